/* Injects a failure into each driver call, at every position, whether the program or the library
 * makes the call.
 *
 *   chaos_program [PROGRAM [FUNCTION NTH CODE]]
 *
 * A first run of each program counts the calls of each function. Then a new process runs the
 * program ROUNDS times for each function and each of its calls. In each round the Nth call fails
 * with a code: one that this function may return, or one error that is permanent. The test
 * reports
 *
 * - a crash, or a run that does not end;
 * - a failure that the program sees in another call, or with another code; any failure of an
 *   allocation that the cache serves;
 * - memory, events and streams that are left over, and statistics that do not balance;
 * - a report of the race detector, and values that differ from the last ones written.
 * The line that names a failure ends with the command that repeats it. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "chaos.h"

enum { ROUNDS = 4, SECONDS = 20, TEXT = 4096, STICKY = CUDA_ERROR_ILLEGAL_ADDRESS };

static const struct {
    const char *symbol, *name;
} functions[] = {
#define CU_FN(symbol, name, since, mode, params, args) {#symbol, #name},
#include "device/cuda_functions.def"
#undef CU_FN
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

typedef struct {
    const program_t *program;
    const char *function; /* the queried name: all its versions count together */
    unsigned nth;         /* 0: no failure */
    int code;
} fault_t;

/* Results of a child, in memory that it shares with its parent. */
static struct {
    unsigned long long calls[FUNCTIONS];  /* of round 1, under the first symbol of a name */
    unsigned long long launches, handles; /* events and streams after the last round */
    char text[TEXT];
    size_t length;
    bool whole;
} * result;

static fault_t fault;
static unsigned round_number, noticed;
static unsigned long long usual_handles; /* result->handles without an injected failure */

/* --- judging --- */

void wrong(const char *format, ...) {
    va_list list;
    size_t room = TEXT - result->length;
    int n = snprintf(result->text + result->length, room, "  round %u: ", round_number);
    if (n < 0 || (size_t)n >= room)
        return;
    va_start(list, format);
    int m = vsnprintf(result->text + result->length + n, room - (size_t)n, format, list);
    va_end(list);
    if (m < 0 || (size_t)(n + m) + 1 >= room)
        return;
    result->length += (size_t)(n + m);
    result->text[result->length++] = '\n';
}

static const char *name_of(const char *symbol) {
    for (int i = 0; i < FUNCTIONS; i++)
        if (!strcmp(functions[i].symbol, symbol))
            return functions[i].name;
    return symbol;
}

static bool served_by_cache(const char *name) {
    return world.library && !world.capturing && !strcmp(name, "cuMemAlloc");
}

bool note(const char *symbol, int line, CUresult code) {
    if (code == CUDA_SUCCESS || code == CUDA_ERROR_NOT_READY)
        return true;
    if (fault.code == STICKY) {
        /* The library must treat the context as lost, with all memory in it. */
        if (code != STICKY && code != CUDA_ERROR_OUT_OF_MEMORY)
            wrong("line %d: %s => %d, and not %d", line, symbol, (int)code, fault.code);
        return false;
    }
    if (!fault.nth || strcmp(name_of(symbol), fault.function) != 0)
        wrong("line %d: %s noticed: %d", line, symbol, (int)code);
    else if ((int)code != fault.code)
        wrong("line %d: %s => %d, and not %d", line, symbol, (int)code, fault.code);
    else if (noticed++)
        wrong("line %d: %s failed once more", line, symbol);
    else if (served_by_cache(fault.function))
        wrong("line %d: a request failed that could be asked for again", line);
    return false;
}

/* --- one run --- */

static void arm(void) {
    char plan[160];
    noticed = 0;
    simcuda_reset_calls();
    simcuda_clear_faults();
    if (!fault.nth)
        return;
    if (!strcmp(fault.function, "kernel")) {
        simcuda_sticky(fault.nth);
        return;
    }
    snprintf(plan, sizeof plan, "%s@%u=%d", fault.function, fault.nth, fault.code);
    if (simcuda_fail(plan) != 0)
        _exit(4);
}

static void count_calls(void) {
    for (int i = 0; i < FUNCTIONS; i++) {
        int first = 0;
        while (strcmp(functions[first].name, functions[i].name) != 0)
            first++;
        result->calls[first] += simcuda_calls(functions[i].symbol);
    }
    result->launches = simcuda_calls("cuLaunchKernel");
}

static unsigned long long handles(void) {
    return simcuda_live("events") + simcuda_live("streams");
}

static void one_round(void) {
    arm();
    if (round_number > 1 || world_start(fault.program->devices)) {
        fault.program->body();
        world_finish();
    }
    if (round_number == 1)
        count_calls();
    simcuda_clear_faults();
    simcuda_sticky(0);
    noticed = 1; /* nothing fails until the next round */
    if (fault.code != STICKY)
        world_check_empty();
    result->handles = handles();
}

static void run(void) {
    unsigned rounds = fault.code == STICKY ? 1 : ROUNDS;
    unsigned long long before = 0;
    bool more = true; /* in each round */
    for (round_number = 1; round_number <= rounds; round_number++) {
        one_round();
        more = more && result->handles > before;
        before = result->handles;
    }
    /* The library keeps events of its own. Failures may add some, but not one in each round. */
    if (fault.code != STICKY && fault.nth && result->handles >= usual_handles + ROUNDS && more)
        wrong("%llu events and streams are left, %llu without a failure", result->handles,
              usual_handles);
    world_end();
    static const char *const kinds[] = {"streams",  "events",  "graphs",      "graph_execs",
                                        "captures", "modules", "arrays",      "physical",
                                        "mappings", "handles", "reservations"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (simcuda_live(kinds[i]))
            wrong("%llu %s outlived their contexts", simcuda_live(kinds[i]), kinds[i]);
    unsigned long long bytes, left = simcuda_live_allocations(&bytes);
    if (left)
        wrong("%llu allocations of %llu bytes outlived their contexts", left, bytes);
    if (simcuda_race_reports())
        wrong("%llu reports of the race detector", simcuda_race_reports());
    result->whole = true;
}

static int in_child(void) {
    int status;
    memset(result, 0, sizeof *result);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(SECONDS);
        run();
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) {
        perror("fork");
        exit(2);
    }
    return status;
}

/* --- all runs --- */

static unsigned injected, failures;

static void tell(const char *self, int status) {
    static const char *const set[] = {"LD_PRELOAD", "LD_LIBRARY_PATH", "ACCEL_SIM",
                                      "ACCEL_ALLOC_CONF"};
    failures++;
    printf("WRONG: %s, call %u of %s => %d", fault.program->name, fault.nth, fault.function,
           fault.code);
    if (WIFSIGNALED(status))
        printf(": %s", WTERMSIG(status) == SIGALRM ? "did not end" : strsignal(WTERMSIG(status)));
    printf("\n%s  again: env", result->text);
    for (size_t i = 0; i < sizeof set / sizeof *set; i++)
        if (getenv(set[i]))
            printf(" %s=%s", set[i], getenv(set[i]));
    printf(" %s %s %s %u %d\n", self, fault.program->name, fault.function, fault.nth, fault.code);
}

static void inject(const char *self) {
    int status = in_child();
    injected++;
    if (status || !result->whole || result->length)
        tell(self, status);
}

static bool allocates(const char *name) {
    static const char *const words[] = {"Alloc", "Create", "Retain", "Load", "Instantiate"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(name, words[i]))
            return true;
    return false;
}

static void inject_all(const char *self, const unsigned long long calls[FUNCTIONS],
                       unsigned long long launches) {
    for (int i = 0; i < FUNCTIONS; i++) {
        const char *name = fault.function = functions[i].name;
        const int codes[] = {allocates(name) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN,
                             CUDA_ERROR_NOT_SUPPORTED, STICKY,
                             strstr(name, "Query") ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS};
        for (fault.nth = 1; fault.nth <= calls[i]; fault.nth++)
            for (size_t c = 0; c < sizeof codes / sizeof *codes; c++)
                if ((fault.code = codes[c]) != CUDA_SUCCESS)
                    inject(self);
    }
    fault.function = "kernel";
    fault.code = STICKY;
    for (fault.nth = 1; fault.nth <= launches; fault.nth++)
        inject(self);
}

static void one_program(const char *self, const program_t *program) {
    static unsigned long long calls[FUNCTIONS];
    unsigned before = injected, total = 0;
    fault = (fault_t){.program = program, .function = "none"};
    int status = in_child();
    if (status || !result->whole || result->length)
        tell(self, status);
    memcpy(calls, result->calls, sizeof calls);
    usual_handles = result->handles;
    for (int i = 0; i < FUNCTIONS; i++)
        total += (unsigned)calls[i];
    inject_all(self, calls, result->launches);
    printf("%s: %u calls, %u failures injected\n", program->name, total, injected - before);
}

int main(int argc, char **argv) {
    bool found = false;
    result =
        mmap(NULL, sizeof *result, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (result == MAP_FAILED)
        return 2;
    for (size_t i = 0; i < program_count; i++) {
        if (argc > 1 && strcmp(argv[1], programs[i].name) != 0)
            continue;
        found = true;
        if (argc > 4) {
            fault = (fault_t){.program = &programs[i], .function = "none"};
            in_child();
            usual_handles = result->handles;
            fault = (fault_t){&programs[i], argv[2], (unsigned)atoi(argv[3]), atoi(argv[4])};
            inject(argv[0]);
        } else {
            one_program(argv[0], &programs[i]);
        }
    }
    if (!found)
        fprintf(stderr, "chaos: no program of that name\n");
    printf("%u failures injected, %u wrong\n", injected, failures);
    return !found || failures || (argc == 1 && injected < 1000);
}
