/* gpu_guesses: asks this machine's device the questions on which the simulated device guesses.
 *
 *   gpu_guesses [--judge] [--write FILE] [PROBE...]       all probes unless some are named
 *
 * The program prints one line per row of tools/simcuda/guesses.def (PROTOCOL.md), as soon as the
 * row's process has ended.  It writes a table with this device's answers to FILE, or to guesses.def
 * in QUALIFY_OUT.  On the simulated device the rows do not change.  A probe that may end a context
 * or a process runs in a process of its own.  A crash or a timeout of a probe is its answer.
 *
 * Exit status: 0 done, 1 an answer of the simulated device is not the one in the table, 2 wrong
 * usage, 77 no driver or no device. */
#include "guesses.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* LIMIT_S: limit of a probe, which usually takes 0.1 s.  OPEN_S: limit for opening the device. */
enum { ANSWER = 200, LIMIT_S = 3, OPEN_S = 10, WIDTH = 98 };

/* How a probe runs.  OPEN: in a process that it shares with other probes.  ALONE: in a process of
 * its own.  RAW: alone, without opening the device.  LATE: alone, after the driver's
 * destructors. */
typedef enum { OPEN, ALONE, RAW, LATE } how_t;

static const struct {
    const char *probe;
    how_t how;
} apart[] = {
    {"free_after_error", ALONE},
    {"copy_beyond", ALONE},
    {"destroyed_stream", ALONE},
    {"destroyed_context", ALONE},
    {"destroy_primary", ALONE},
    {"destroy_pending", ALONE},
    {"reset_counts", ALONE},
    {"release_unretained", RAW},
    {"context_memory", ALONE},
    {"fork", ALONE},
    {"late_calls", LATE},
    {"free_others", ALONE},
    {"capture_destroyed_stream", ALONE},
    {"graph_memory_early", ALONE},
    {"ipc_twice", ALONE},
    {"ipc_again", ALONE},
    {"ipc_freed", ALONE},
    {"ipc_ended", ALONE},
    {"ipc_stopped", ALONE},
    {"multicast_read", ALONE},
    {"multicast_unbound", ALONE},
};

static const struct {
    const char *probe, *function, *situation, *answer;
    void (*ask)(void);
} rows[] = {
#define SIM_GUESS(probe, function, situation, answer)                                            \
    {#probe, #function, situation, answer, guess_##probe},
#include "guesses.def"
#undef SIM_GUESS
};
enum { ROWS = sizeof rows / sizeof *rows };

/* Memory shared with the processes of the probes. */
typedef struct {
    char answer[ROWS][ANSWER];
    bool over[ROWS], said[ROWS];
    int now; /* the current row */
    bool simulated, opened;
} answers_t;

static answers_t *answers;

/* ---------------------------------------------------------------- functions for probes */

void say(const char *format, ...) {
    char *text = answers->answer[answers->now];
    size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, ANSWER - used, format, arguments);
    va_end(arguments);
}

void say_also(const char *word) {
    say("%s%s", *answers->answer[answers->now] ? ", " : "", word);
}

const char *say_waits(CUstream stream, gpu_kernel_t slow, CUcontext other, gpu_call_t *call,
                      void *arg) {
    gpu_wait_t seen = gpu_does_wait(stream, slow, other, call, arg);
    if (seen.result)
        return gpu_error(seen.result);
    return seen.answer == GPU_WAITED    ? "waits"
           : seen.answer == GPU_DID_NOT ? "does not wait"
                                        : "unclear";
}

static void also_if_waits(const char *name, const char *answer) {
    if (!strcmp(answer, "waits"))
        say_also(name);
    else if (strcmp(answer, "does not wait")) {
        say_also(name);
        say(" (%s)", answer);
    }
}

void say_waits_for(gpu_call_t *call, void *arg) {
    CUstream blocking = a_stream(CU_STREAM_DEFAULT), free = a_stream(CU_STREAM_NON_BLOCKING);
    also_if_waits("legacy stream", say_waits(CU_STREAM_LEGACY, gpu.slow, NULL, call, arg));
    also_if_waits("blocking streams", say_waits(blocking, gpu.slow, NULL, call, arg));
    also_if_waits("non-blocking streams", say_waits(free, gpu.slow, NULL, call, arg));
    if (gpu_beside()) {
        MUST(cu.cuCtxSetCurrent(gpu_beside()->context));
        also_if_waits("other contexts", say_waits(gpu_beside()->stream, gpu_beside()->slow,
                                                  gpu.primary, call, arg));
        MUST(cu.cuCtxSetCurrent(gpu.primary));
    }
    if (!*answers->answer[answers->now])
        say("nothing");
}

CUstream a_stream(unsigned flags) {
    CUstream stream;
    MUST(cu.cuStreamCreate(&stream, flags));
    return stream;
}

CUevent an_event(void) {
    CUevent event;
    MUST(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    return event;
}

CUdeviceptr some_memory(size_t bytes) {
    CUdeviceptr memory;
    MUST(cu.cuMemAlloc_v2(&memory, bytes));
    return memory;
}

CUdeviceptr mapped_memory(size_t *bytes) {
    CUmemAllocationProp prop;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr range = 0;
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = gpu.device;
    CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    if (!GPU_HAS(cuMemCreate) ||
        cu.cuMemGetAllocationGranularity(bytes, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) ||
        cu.cuMemCreate(&handle, *bytes, &prop, 0))
        return 0;
    MUST(cu.cuMemAddressReserve(&range, *bytes, 0, 0, 0));
    MUST(cu.cuMemMap(range, *bytes, 0, handle, 0));
    MUST(cu.cuMemSetAccess(range, *bytes, &access, 1));
    return range;
}

const gpu_green_t *a_green_context(void) {
    const gpu_green_t *green = gpu_green();
    if (!green)
        say("not here");
    return green;
}

/* ---------------------------------------------------------------- processes */

static how_t how_of(int row) {
    for (size_t i = 0; i < sizeof apart / sizeof *apart; i++)
        if (!strcmp(apart[i].probe, rows[row].probe))
            return apart[i].how;
    return OPEN;
}

static bool is_chosen(int row, int count, char **names) {
    for (int i = 0; i < count; i++)
        if (!strcmp(names[i], rows[row].probe))
            return true;
    return count == 0;
}

static void ask(int row) {
    answers->now = row;
    alarm(LIMIT_S);
    rows[row].ask();
    alarm(0);
    answers->over[row] = true;
}

static void at_end(void) {
    ask(answers->now);
}

/* Runs the probe after the driver's destructors.  It opens a library now, later than the driver,
 * and the destructor of this library asks. */
static void ask_late(void) {
    char path[1024] = "";
    void (**hook)(void) = NULL;
    if (readlink("/proc/self/exe", path, sizeof path - 32) > 0 && strrchr(path, '/'))
        strcpy(strrchr(path, '/') + 1, "libgpu_late.so");
    void *library = dlopen(path, RTLD_NOW);
    if (library)
        hook = dlsym(library, "gpu_late_hook");
    if (!hook)
        _exit(3);
    *hook = at_end;
    exit(0);
}

static void child(int from, int count, char **names) {
    how_t how = how_of(from);
    answers->now = from;
    alarm(OPEN_S);
    bool there = how == RAW ? gpu_load() : gpu_open();
    answers->simulated |= gpu.simulated;
    if (!there)
        _exit(77);
    answers->opened = true;
    if (how == LATE)
        ask_late();
    ask(from);
    for (int row = from + 1; how == OPEN && row < ROWS; row++)
        if (how_of(row) == OPEN && !answers->over[row] && is_chosen(row, count, names))
            ask(row);
    _exit(0);
}

/* Runs a process for this row, and also for later OPEN rows if it is OPEN.  Returns false if there
 * is no device. */
static bool run_from(int row, int count, char **names) {
    int status = 0;
    pid_t process = fork();
    if (process == 0)
        child(row, count, names);
    if (process < 0 || waitpid(process, &status, 0) != process)
        return false;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77 && !answers->opened)
        return false;
    int now = answers->now;
    if (answers->over[now])
        return true;
    answers->answer[now][0] = '\0';
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        say("did not return in time");
    else if (WIFSIGNALED(status))
        say("crashed with signal %d", WTERMSIG(status));
    else
        say("could not be asked (exit status %d)", WEXITSTATUS(status));
    answers->over[now] = true;
    return true;
}

/* ---------------------------------------------------------------- output */

static void write_row(FILE *file, int row) {
    char line[4 * ANSWER];
    const char *answer = answers->over[row] ? answers->answer[row] : rows[row].answer;
    int head = snprintf(line, sizeof line, "SIM_GUESS(%s, %s, \"%s\",", rows[row].probe,
                        rows[row].function, rows[row].situation);
    bool fits = head + 4 + (int)strlen(answer) <= WIDTH;
    fprintf(file, "%s%s\"%s\")\n", line, fits ? " " : "\n          ", answer);
}

static bool write_table(const char *path) {
    FILE *file = fopen(path, "w");
    if (!file)
        return false;
    fprintf(file, "%s",
            "/* Answers that NVIDIA's documentation leaves open: what the simulated device says "
            "until a GPU\n"
            " * has been asked.\n"
            " *\n"
            " *   SIM_GUESS(probe, function, \"situation\", \"answer\")\n"
            " *\n"
            " * tests/gpu/facts has a probe for each row; gpu_guesses writes this file. */\n");
    for (int row = 0; row < ROWS; row++)
        write_row(file, row);
    return fclose(file) == 0;
}

static void report(int row, bool judge) {
    char name[80];
    const char *answer = answers->answer[row];
    bool same = !strcmp(answer, rows[row].answer);
    snprintf(name, sizeof name, "guess.%s", rows[row].probe);
    if (answers->simulated && !same)
        report_fail(name, "%s, %s: the simulated device says \"%s\", its table \"%s\"",
                    rows[row].function, rows[row].situation, answer, rows[row].answer);
    else if (answers->simulated && !judge)
        report_skip(name, "needs a GPU");
    else if (same)
        report_pass(name, "%s, %s: %s", rows[row].function, rows[row].situation, answer);
    else
        report_fact(name, false, "%s, %s: %s.  The simulated device guesses: %s",
                    rows[row].function, rows[row].situation, answer, rows[row].answer);
}

static void report_new(bool judge) {
    for (int row = 0; row < ROWS; row++)
        if (answers->over[row] && !answers->said[row]) {
            answers->said[row] = true;
            report(row, judge);
        }
}

/* Enables multicast objects on the simulated device, which are off by default. */
static void simulate_multicast(void) {
    const char *sim = getenv("ACCEL_SIM");
    char all[1024];
    snprintf(all, sizeof all, "%s%smulticast:true", sim ? sim : "", sim && *sim ? "," : "");
    setenv("ACCEL_SIM", all, 1);
}

int main(int argc, char **argv) {
    const char *out = getenv("QUALIFY_OUT"), *path = NULL;
    char own[1024];
    bool judge = false;
    int first = 1;
    if (argc == 2 && !strcmp(argv[1], "--twin"))
        return guess_twin();
    for (; first < argc && !strncmp(argv[first], "--", 2); first++)
        if (!strcmp(argv[first], "--judge"))
            judge = true;
        else if (!strcmp(argv[first], "--write") && first + 1 < argc)
            path = argv[++first];
        else {
            fprintf(stderr, "usage: gpu_guesses [--judge] [--write FILE] [PROBE...]\n");
            return 2;
        }
    if (out && !path) {
        snprintf(own, sizeof own, "%s/guesses.def", out);
        path = own;
    }
    simulate_multicast();
    answers =
        mmap(NULL, sizeof *answers, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (answers == MAP_FAILED)
        return 1;
    int count = argc - first;
    for (int row = 0; row < ROWS; row++)
        if (!answers->over[row] && is_chosen(row, count, argv + first)) {
            if (!run_from(row, count, argv + first)) {
                fprintf(stderr, "gpu_guesses: no CUDA driver, or no device\n");
                return 77;
            }
            report_new(judge);
        }
    if (path && !write_table(path))
        fprintf(stderr, "gpu_guesses: %s could not be written\n", path);
    return report_end();
}
