/* Lies in a folder that only plugin.c's RUNPATH names. */
int reach_dependency(void);
int reach_dependency(void) {
    return 1;
}
