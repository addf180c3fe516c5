/* Preloaded after the library: holds a thread inside dl_iterate_phdr, with the C library's lock of the list of
 * objects. */
#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

typedef int step_fn(struct dl_phdr_info *, size_t, void *);
typedef int walk_fn(step_fn *, void *);

void fork_walk_through(void (*call)(int), int arg);
void fork_walk_hold(void);
bool fork_walk_is_inside(void);
void fork_walk_forked(void);

static _Thread_local bool holds;
static _Atomic bool inside, forked;

typedef struct {
    step_fn *step;
    void *arg;
} call_t;

/* A frame of code that may be unloaded: a walk through it looks what was loaded. */
void fork_walk_through(void (*call)(int), int arg) {
    call(arg);
    atomic_load(&inside);
}

/* The next walk of this thread. */
void fork_walk_hold(void) {
    holds = true;
}

bool fork_walk_is_inside(void) {
    return atomic_load(&inside);
}

void fork_walk_forked(void) {
    atomic_store(&forked, true);
}

static int held_step(struct dl_phdr_info *info, size_t size, void *arg) {
    call_t *call = arg;
    if (holds) {
        holds = false;
        atomic_store(&inside, true);
        for (int i = 0; i < 300 && !atomic_load(&forked); i++)
            usleep(1000);
    }
    return call->step(info, size, call->arg);
}

int dl_iterate_phdr(step_fn *step, void *arg) {
    static _Atomic bool looking;
    static union {
        void *address;
        walk_fn *walk;
    } next;
    static _Atomic bool found;
    call_t call = {step, arg};
    if (!atomic_load(&found)) {
        if (atomic_exchange(&looking, true))
            return 0; /* by the lookup itself */
        next.address = dlsym(RTLD_NEXT, "dl_iterate_phdr");
        atomic_store(&found, true);
    }
    return next.walk(held_step, &call);
}
