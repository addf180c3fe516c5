/* Executes a program from start to end: threads in lockstep, queries after every operation, and
 * checks at the end. */
#include "execute.h"

#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "accelcache.h"
#include "execute_int.h"

run_t run;

static sem_t turn[THREADS]; /* one thread runs at a time: the one with the next operation */

static void say(int status, const char *message) {
    (void)status;
    printf("failed: %s\n", message);
    if (run.next < run.program->count) {
        printf("at operation %zu: ", run.next);
        op_print(&run.program->ops[run.next], stdout);
    }
}

void run_note(uint64_t what) {
    for (unsigned i = 0; i < 8; i++)
        run.hash = (run.hash ^ (what >> 8 * i & 0xff)) * 0x100000001b3u;
}

/* ---- beginning ---- */

static unsigned long long baseline; /* the device's allocations before the program */
static CUmodule modules[CONTEXTS];

/* Fills the fields of the context, which is current. */
void run_context_ready(int context) {
    static const char *const names[KERNELS] = {"fill", "check", "mix"};
    char name[16];
    void *pinned;
    MUST(cuMemHostAlloc(&pinned, (size_t)SLOTS * HEAD, 0));
    run.pinned[context] = pinned;
    MUST(cuModuleLoadData(&modules[context], run_ptx));
    for (unsigned i = 0; i < KERNELS; i++)
        for (unsigned j = 0; j < LAUNCH_SPEEDS; j++) {
            snprintf(name, sizeof name, "%s%u", names[i], j);
            MUST(cuModuleGetFunction(&run.function[context][i][j], modules[context], name));
        }
}

void run_context_ends(int context) {
    simcuda_owner_end((CUdeviceptr)(uintptr_t)run.pinned[context]);
}

static void set_up(const program_t *program) {
    test_say = say;
    run.program = program;
    run.model = model_new(program);
    run.hash = 0xcbf29ce484222325u;
    run.limited = strstr(program->sim, "memory:") || strstr(program->conf, "memory_limit") ||
                  strstr(program->conf, "per_process_memory_fraction");
    test_find("accel_check", &run.check);
    test_find("accel_empty_cache", &run.empty);
    if (run.empty && !run.check)
        run_fail("the library has no accel_check");
    MUST(cuInit(0));
    run_register_kernels();
    for (unsigned i = 0; i < program->devices; i++) {
        MUST(cuDevicePrimaryCtxRetain(&run.context[i], (int)i));
        MUST(cuCtxSetCurrent(run.context[i]));
        run_context_ready((int)i);
    }
    MUST(cuCtxSetCurrent(run.context[0]));
    baseline = simcuda_live_allocations(NULL);
}

/* ---- after every operation ---- */

static void look(void) {
    char message[200] = "";
    if (simcuda_race_reports())
        run_fail("the race detector objects");
    run_check_mismatch();
    if (run.program->slow && run.check &&
        records_agree(run.check, message, sizeof message))
        run_fail("accel_check: %s", message);
}

static int stream_of(const op_t *op) {
    const char *kinds = op_operands(op->code), *found = strchr(kinds, 'S');
    return found ? model_lane(run.model, op->thread, op->at[found - kinds]) : -1;
}

/* Shortest limit of the library that an operation in lockstep can reach. Virtual time passes with
 * polls. If a wait ends by its limit, the load of the machine decides what follows. */
#define LIMIT_NS 100000000

static uint64_t real_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void step(void) {
    const op_t *op = &run.program->ops[run.next];
    int lane = stream_of(op), capture = lane < 0 ? -1 : run.model->lane[lane].capture;
    if (!model_apply(run.model, op)) {
        run.skipped++;
        return;
    }
    uint64_t begin = real_ns();
    run_op(op, lane, capture);
    run.late += real_ns() - begin >= LIMIT_NS;
    look();
}

static pthread_t threads[THREADS], previous[THREADS]; /* by number; [0] is unused */

static void *successor(void *argument);

static void start(unsigned self, void *(*body)(void *)) {
    if (pthread_create(&threads[self], NULL, body, (void *)(uintptr_t)self))
        run_fail("no thread can be started");
}

static void take_turn(unsigned self) {
    while (sem_wait(&turn[self]))
        ;
}

static void steps(unsigned self) {
    while (run.next < run.program->count) {
        const op_t *op = &run.program->ops[run.next];
        if (op->thread != self) {
            sem_post(&turn[op->thread]);
            take_turn(self);
            continue;
        }
        step();
        run.next++;
        if (op->code == OP_RENEW && self) {
            previous[self] = pthread_self();
            start(self, successor);
            return;
        }
    }
    for (unsigned i = 0; i < THREADS; i++)
        sem_post(&turn[i]);
}

/* Body of a thread that replaces an ended one. Its predecessor is joined first, with all that
 * ends with a thread. */
static void *successor(void *argument) {
    unsigned self = (unsigned)(uintptr_t)argument;
    pthread_join(previous[self], NULL);
    MUST(cuCtxSetCurrent(run.context[0]));
    steps(self);
    return NULL;
}

static void *thread(void *argument) {
    unsigned self = (unsigned)(uintptr_t)argument;
    take_turn(self);
    MUST(cuCtxSetCurrent(run.context[0]));
    sem_post(&turn[0]);
    take_turn(self);
    steps(self);
    return NULL;
}

/* ---- end ---- */

static bool capturing(void) {
    for (unsigned i = 0; i < CAPTURES; i++)
        if (run.model->capture[i].live)
            return true;
    return false;
}

static void synchronise(void) {
    for (unsigned i = 0; i < CONTEXTS; i++)
        if (run.model->context[i].live) {
            MUST(cuCtxSetCurrent(run.context[i]));
            MUST(cuCtxSynchronize());
        }
    MUST(cuCtxSetCurrent(run.context[0]));
}

static void give_back(void) {
    for (unsigned i = 0; i < GRAPHS; i++)
        if (run.model->graph[i].live && run.graph[i].exec)
            MUST(cuGraphExecDestroy(run.graph[i].exec));
    for (unsigned i = 0; i < BLOCKS; i++)
        if (run.memory[i].live)
            MUST(run.model->block[i].pinned
                     ? cuMemFreeHost((void *)(uintptr_t)run.memory[i].at)
                     : cuMemFree_v2(run.memory[i].at));
    for (unsigned i = 0; i < POOLS; i++)
        if (run.model->pool[i].live)
            MUST(cuMemPoolDestroy(run.pool[i]));
    for (unsigned i = 0; i < STREAMS; i++)
        if (run.model->lane[i].live)
            MUST(cuStreamDestroy_v2(run.stream[i]));
    for (unsigned i = 0; i < EVENTS; i++)
        if (run.model->event[i].live)
            MUST(cuEventDestroy_v2(run.event[i]));
    for (unsigned i = run.program->devices; i < CONTEXTS; i++)
        if (run.model->context[i].live) {
            run.model->context[i].live = false;
            run_context_ends((int)i);
            MUST(cuCtxDestroy_v2(run.context[i]));
        }
}

static void compare_with_beginning(void) {
    accel_status_t (*stats)(int, accel_device_stats_t *);
    test_find("accel_get_device_stats", &stats);
    if (run.empty)
        MUST(run.empty());
    for (int i = 0; stats && i < (int)run.program->devices; i++) {
        accel_device_stats_t now = {.size = sizeof now};
        MUST(stats(i, &now));
        if (now.allocated_bytes.all.current || now.active_bytes.all.current ||
            now.reserved_bytes.all.current)
            run_fail("at the end device %d has %lld bytes allocated, %lld active, %lld reserved",
                     i, (long long)now.allocated_bytes.all.current,
                     (long long)now.active_bytes.all.current,
                     (long long)now.reserved_bytes.all.current);
    }
    unsigned long long bytes, left = simcuda_live_allocations(&bytes);
    if (left != baseline)
        run_fail("at the end there are %llu device allocations, at the beginning %llu", left,
                 baseline);
}

static void finish(void) {
    if (capturing())
        return; /* the program never ends its capture, so memory cannot be checked */
    synchronise();
    look();
    give_back();
    synchronise();
    look();
    compare_with_beginning();
}

int execute(const program_t *program) {
    for (unsigned i = 0; i < THREADS; i++)
        sem_init(&turn[i], 0, 0);
    set_up(program);
    for (unsigned i = 1; i < program->threads; i++) {
        start(i, thread);
        sem_post(&turn[i]);
        take_turn(0);
    }
    steps(0);
    for (unsigned i = 1; i < program->threads; i++)
        pthread_join(threads[i], NULL);
    uint64_t begin = real_ns();
    finish();
    run.late += real_ns() - begin >= LIMIT_NS;
    run_note(simcuda_now());
    printf("passed: %lu operations, %lu skipped, hash %016llx, %lu late\n", run.executed,
           run.skipped, (unsigned long long)run.hash, run.late);
    fflush(stdout);
    return 0;
}
