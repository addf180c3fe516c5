/* Preloaded after the library with failpoints, which tells of each lock that it takes: from
 * fork_locks on they are counted.  In a fork child any of them may be held for ever, by a thread that
 * the child does not have. */
unsigned fork_locks(void);
void ac_test_locked(void);

static _Thread_local unsigned taken;

/* How many this thread took since it asked before. */
unsigned fork_locks(void) {
    unsigned count = taken;
    taken = 0;
    return count;
}

void ac_test_locked(void) {
    taken++;
}
