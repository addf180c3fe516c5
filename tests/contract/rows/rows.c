/* Every row that gives work to a stream, or is tried again when memory is short.  Does the library
 * treat the call as the row says, and does this test notice if it does not?
 *
 *   rows                 runs every row
 *   rows SYMBOL          runs one
 *   rows --failpoints    spoils every row in every way (failpoint.h): the checks for that way must
 *                        fail (under the library with failpoints)
 *
 * The expected behaviour comes from the driver's signatures (rows.py), not from the hooks'
 * columns, so a new row gets its cases without a change here.  Each check is a process of its own,
 * forked before CUDA is used, on a device of stand-ins (rows_device.h): work stays pending until a
 * thread waits for it.  ACCEL_ALLOC_CONF sets how fences are recorded, and ROWS_CONF repeats it in
 * one word: ctx, streams, sync and pages (single_stream is off there), single and
 * single_streams. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checks.h"

enum { ROOM = 4096, PASSES = 3 };

/* Arguments of a row's call. */
typedef struct {
    CUstream stream;
    CUdeviceptr address[2];
    CUlaunchConfig config;
    CUDA_LAUNCH_PARAMS launches[2];
    CUdeviceptr room[ROOM / sizeof(CUdeviceptr)]; /* target of the pointers */
} target_t;

typedef enum { SUBMIT, RETRY, BODY } kind_t;

typedef struct {
    kind_t kind;
    const char *symbol;
    bool streamed; /* names a stream */
    bool per_thread;
    unsigned addresses;
    bool many, holds;
    CUresult (*call)(target_t *t);
} row_t;

#define ROW(kind, symbol, params, args, stream, per_thread, addresses, many, holds, values)      \
    static CUresult call_##symbol(target_t *t) {                                                 \
        (void)t;                                                                                 \
        return symbol values;                                                                    \
    }
#include "rows.inc"
#undef ROW
static const row_t rows[] = {
#define ROW(kind, symbol, params, args, stream, per_thread, addresses, many, holds, values)      \
    {kind,  #symbol,      sizeof #stream != sizeof "NULL", per_thread, addresses, many,          \
     holds, call_##symbol},
#include "rows.inc"
#undef ROW
};
enum { ROWS = sizeof rows / sizeof *rows };

/* --- parts of checks --- */

static target_t target;
static CUcontext there;

static void aim(const row_t *row, CUstream stream, CUdeviceptr memory) {
    target.stream = target.config.hStream = target.launches[1].hStream =
        row->streamed ? stream : NULL;
    target.launches[0].hStream = target.stream;
    target.address[0] = target.address[1] = memory;
    for (size_t i = 0; i < ROOM / sizeof(CUdeviceptr); i++)
        target.room[i] = memory;
}

/* Calls the row and returns the number of its first work item. */
static unsigned run_row(const row_t *row) {
    unsigned first = rows_works();
    test_must(row->call(&target), row->symbol, __FILE__, __LINE__);
    unsigned made = rows_works() - first;
    if (made != (strstr(row->symbol, "MultiDevice") ? 2 : 1))
        test_stop(TEST_BROKEN, "the driver was given no work");
    return first;
}

/* Submits other work, by a function other than the row's. */
static unsigned run_other(const row_t *row, CUstream stream, CUdeviceptr memory) {
    unsigned first = rows_works();
    if (strstr(row->symbol, "cuMemsetD8Async"))
        MUST(cuMemsetD16Async(memory, 1, 4, stream));
    else
        MUST(cuMemsetD8Async(memory, 1, 4, stream));
    return first;
}

/* The handle that always means the stream that the row uses if it names none. */
static CUstream plain_default(const row_t *row) {
    return row->per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

/* --- the checks; `variant` is explained at each --- */

/* Each call counts as one call of its hook, and as one submission. */
static void check_counted(const row_t *row, unsigned pass) {
    set_up();
    aim(row, test_stream(), take_first());
    for (unsigned i = 0; i <= pass; i++) {
        unsigned long long calls = figure(row->symbol), submissions = figure("submissions");
        unsigned first = run_row(row);
        if (i < pass)
            continue;
        expect(figure(row->symbol) == calls + 1, "the call was not counted");
        expect(figure("submissions") - submissions == rows_works() - first,
               "the submission was not counted");
    }
}

/* Memory freed after the call is not handed out while the call's work is pending. `variant` is
 * the pass; the first pass takes the long way. From PASSES on the passes repeat on the default
 * stream. */
static void check_covered(const row_t *row, unsigned variant) {
    set_up();
    unsigned pass = variant % PASSES;
    CUstream stream = variant < PASSES ? test_stream() : NULL;
    take();
    for (unsigned i = 0; i <= pass; i++) {
        CUdeviceptr memory = take();
        aim(row, stream, memory);
        if (pass == 2) /* no other submission lies between the last two */
            MUST(cuMemsetD32_v2(memory, 1, 4)), MUST(cuCtxSynchronize());
        unsigned first = run_row(row);
        MUST(cuMemFree_v2(memory));
        bool back = comes_back(memory);
        unsigned pending = rows_pending(first);
        expect(!back || !pending, "memory was handed out while the call's work was pending");
        if (!back && !pending)
            test_stop(TEST_BROKEN, "the work did not stay pending");
        MUST(cuCtxSynchronize());
    }
}

/* The stream is the only one in use, and the library knows it. The stream's order is enough for
 * freed memory. */
static void check_home(const row_t *row, unsigned on_default) {
    set_up();
    CUstream stream = on_default ? NULL : test_stream();
    CUdeviceptr memory = take_first();
    aim(row, stream, memory);
    unsigned first = run_row(row);
    run_other(row, stream && row->streamed ? stream : plain_default(row), memory);
    MUST(cuMemFree_v2(memory));
    bool back = comes_back(memory);
    if (!rows_pending(first))
        test_stop(TEST_BROKEN, "the work did not stay pending");
    expect(back == !row->holds, row->holds ? "memory was handed out though others may be made "
                                             "to wait for work that the program holds"
                                           : "the stream was not taken for the only one in use");
}

/* Makes a graph with work that may hold its stream. Every later launch of a graph then counts as
 * holding. `variant` is the way by which the work gets into a graph; GRAPH_WAYS: only other
 * work. */
enum { GRAPH_WAYS = 6 };
static void make_graph(const row_t *row, unsigned variant) {
    CUgraph graph;
    CUgraphNode node;
    CUgraphNodeParams params = {.type = variant == 3 ? CU_GRAPH_NODE_TYPE_HOST
                                                     : CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT};
    MUST(cuGraphCreate(&graph, 0));
    switch (variant) { /* that the driver refuses some of them changes nothing */
    case 0:
        cuGraphAddHostNode(&node, graph, NULL, 0, NULL);
        break;
    case 1:
        cuGraphAddBatchMemOpNode(&node, graph, NULL, 0, NULL);
        break;
    case 2:
        cuGraphAddExternalSemaphoresWaitNode(&node, graph, NULL, 0, NULL);
        break;
    case 3:
        cuGraphAddNode(&node, graph, NULL, 0, &params);
        break;
    case 4:
        cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &params);
        break;
    default:
        target.stream = test_stream();
        MUST(cuStreamBeginCapture_v2(target.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        if (variant < GRAPH_WAYS)
            MUST(cuLaunchHostFunc(target.stream, NULL, NULL));
        else
            run_other(row, target.stream, 0);
        MUST(cuStreamEndCapture(target.stream, &graph));
        MUST(cuCtxSynchronize());
        break;
    }
    aim(row, test_stream(), take_first());
}

static void check_graph(const row_t *row, unsigned variant) {
    set_up();
    make_graph(row, variant);
    CUdeviceptr memory = target.address[0];
    run_row(row);
    run_other(row, target.stream, memory);
    MUST(cuMemFree_v2(memory));
    expect(comes_back(memory) == (variant == GRAPH_WAYS),
           "whether the graph may hold its stream was taken wrongly");
}

/* The call's stream is a second one. Its work must come after that of the first stream, because
 * freed memory relied on the first stream's order. `variant`: odd numbers are on the default
 * stream; from 2 on the stream was used before. */
static void check_second(const row_t *row, unsigned variant) {
    set_up();
    bool again = variant >= 2;
    CUstream home = test_stream(), stream = variant % 2 ? NULL : test_stream();
    CUdeviceptr memory = take_first();
    aim(row, stream, memory);
    if (again) {
        run_row(row);
        MUST(cuCtxSynchronize());
    }
    unsigned before = 0;
    for (int i = 0; i < 3; i++) { /* an event comes behind the first ones */
        before = run_other(row, home, memory);
        MUST(cuMemFree_v2(memory));
        if (take() != memory)
            test_stop(TEST_BROKEN, "memory did not come back in the order of the only stream");
    }
    expect(rows_follow(run_row(row), before), "the work did not wait for the stream before it");
}

/* Address number `variant` is memory of another device's context. From the number of addresses on,
 * all memory behind pointers is. */
static void check_reach(const row_t *row, unsigned variant) {
    set_up();
    CUstream stream = test_stream();
    CUdeviceptr near = take_first();
    MUST(cuDevicePrimaryCtxRetain(&there, 1));
    MUST(cuCtxSetCurrent(there));
    CUdeviceptr far = take_first();
    MUST(cuCtxSetCurrent(here));
    aim(row, stream, near);
    run_row(row); /* the next one knows its stream */
    if (variant < row->addresses)
        target.address[variant] = far;
    else
        aim(row, stream, far);
    unsigned first = run_row(row);
    MUST(cuCtxSetCurrent(there));
    MUST(cuMemFree_v2(far));
    expect(!comes_back(far),
           "memory of another context was handed out while the work was pending");
    if (!rows_pending(first))
        test_stop(TEST_BROKEN, "the work did not stay pending");
}

/* The stream is one of another context than the current one. */
static void check_foreign(const row_t *row, unsigned variant) {
    (void)variant;
    set_up();
    CUdeviceptr memory = take_first();
    aim(row, test_stream(), memory);
    MUST(cuDevicePrimaryCtxRetain(&there, 1));
    MUST(cuCtxSetCurrent(there));
    take();
    unsigned first = run_row(row);
    MUST(cuCtxSetCurrent(here));
    MUST(cuMemFree_v2(memory));
    expect(!comes_back(memory), "memory was handed out while the call's work was pending");
    if (!rows_pending(first))
        test_stop(TEST_BROKEN, "the work did not stay pending");
}

/* The stream captures: memory freed after the call stays as long as the graph. `variant`: number
 * of earlier uses of the stream. */
static void check_captured(const row_t *row, unsigned variant) {
    CUgraph graph;
    set_up();
    CUdeviceptr memory = take_first();
    CUstream stream = test_stream();
    aim(row, stream, memory);
    for (unsigned i = 0; i < variant; i++)
        run_row(row);
    MUST(cuCtxSynchronize());
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    memory = take();
    aim(row, stream, memory);
    run_row(row);
    MUST(cuMemFree_v2(memory));
    expect(!comes_back(memory), "memory was handed out during the capture of the call");
    MUST(cuStreamEndCapture(stream, &graph));
    expect(!comes_back(memory), "memory was handed out that a graph is to use");
    MUST(cuGraphDestroy(graph));
    MUST(cuCtxSynchronize());
    if (!comes_back(memory))
        test_stop(TEST_WRONG, "memory stayed away when the graph was gone");
}

/* The call's result says that the context is broken. From then on the driver serves its memory. */
static void check_broken(const row_t *row, unsigned again) {
    set_up();
    CUdeviceptr memory = take_first();
    aim(row, row->kind == RETRY ? NULL : test_stream(), memory);
    if (again)
        run_row(row);
    MUST(cuMemFree_v2(memory));
    MUST(cuCtxSynchronize());
    unsigned long long before = simcuda_calls("cuMemAlloc_v2");
    if (take() != memory || simcuda_calls("cuMemAlloc_v2") != before)
        test_stop(TEST_BROKEN, "memory did not come back");
    MUST(cuMemFree_v2(memory));
    rows_stand_in(row->symbol, CUDA_ERROR_ILLEGAL_ADDRESS, 1);
    expect(row->call(&target) == CUDA_ERROR_ILLEGAL_ADDRESS, "the result is another one");
    rows_stand_in(NULL, CUDA_SUCCESS, 0);
    cuMemAlloc_v2(&memory, MIB);
    expect(simcuda_calls("cuMemAlloc_v2") > before, "memory was served in a broken context");
}

enum { FOR_GOOD, TRIMMED, WAITED, AGAIN };

/* The call is out of memory. FOR_GOOD: permanently, and nothing can be given back. WAITED: there
 * is work to wait for. AGAIN: the stream was used before. */
static void check_retried(const row_t *row, unsigned variant) {
    set_up();
    CUdeviceptr memory;
    CUstream stream = test_stream();
    MUST(cuMemAlloc_v2(&memory, 64 * MIB));
    aim(row, stream, memory);
    if (variant == AGAIN)
        run_row(row);
    if (variant == WAITED) {
        rows_last(1000000); /* less than the limit of the wait for memory that comes back */
        run_other(row, test_stream(), memory);
    }
    if (variant != FOR_GOOD)
        MUST(cuMemFree_v2(memory));
    if (variant == AGAIN)
        MUST(cuCtxSynchronize());
    unsigned long long used = simcuda_used_memory(0), calls = figure(row->symbol);
    rows_stand_in(row->symbol, CUDA_ERROR_OUT_OF_MEMORY, variant == FOR_GOOD ? SOME : 1);
    CUresult result = row->call(&target);
    unsigned asked = rows_asked();
    rows_stand_in(NULL, CUDA_SUCCESS, 0);
    if (variant != FOR_GOOD && asked > 2 && !strcmp(row->symbol, "cuEventCreate"))
        asked = 2; /* the library made events for a fence in between */
    if (variant != FOR_GOOD) {
        expect(result == CUDA_SUCCESS && asked == 2, "the call was not tried again");
        expect(simcuda_used_memory(0) + 64 * MIB <= used, "no memory was given back before that");
    } else {
        expect(result == CUDA_ERROR_OUT_OF_MEMORY && asked == 1,
               "there was nothing to give back, and the call was tried again");
    }
    expect(figure(row->symbol) == calls + 1, "the call was not counted");
}

/* --- the checks of each row, and the checks that have to fail if it is spoilt --- */

enum {
    LONG = 1,      /* the first submission to a stream */
    SHORT = 2,     /* the next ones */
    ELSEWHERE = 4, /* the hook marks another stream */
    BLIND = 8,     /* the hook reads no address */
    ONCE = 16,     /* the hook returns out of memory at once */
    DEAF = 32,     /* the hook ignores a broken context */
};
static const char *const spoilt[] = {"long", "short", "elsewhere", "blind", "once", "deaf"};
enum { SPOILT = sizeof spoilt / sizeof *spoilt };

typedef struct {
    const char *name;
    void (*run)(const row_t *row, unsigned variant);
    unsigned variant;
    unsigned seen; /* the ways that it must notice */
} check_t;

enum { CHECKS = 32 };

/* Returns true if the library knows how much memory the call needs, and does not wait if the
 * device has it. */
static bool tells_its_need(const row_t *row) {
    static const char *const symbols[] = {"cuEventCreate", "cuMemCreate", "cuMemHostRegister_v2",
                                          "cuGraphAddMemAllocNode", "cuImportExternalSemaphore"};
    for (unsigned i = 0; i < sizeof symbols / sizeof *symbols; i++)
        if (!strcmp(symbols[i], row->symbol))
            return true;
    return false;
}

static unsigned checks_of(const row_t *row, const char *conf, check_t check[CHECKS]) {
    unsigned n = 0;
    bool by_name = strstr(conf, "streams"); /* then every submission goes the long way */
    bool shortened = !row->holds && !strstr(row->symbol, "GraphLaunch") &&
                     !strstr(row->symbol, "MultiDevice") && !by_name;
    unsigned elsewhere = by_name ? ELSEWHERE : 0, later = shortened ? SHORT : LONG;
#define ADD(check_name, function, number, ways)                                                  \
    check[n++] = (check_t) {                                                                     \
        check_name, function, number, ways                                                       \
    }
    if (row->kind == RETRY && strcmp(conf, "ctx") != 0)
        return 0;
    if (!strcmp(conf, "ctx")) {
        bool lacks_memory = strcmp(row->symbol, "cuMemAddressReserve") != 0;
        ADD("tried again, and refused again", check_retried, FOR_GOOD, 0);
        if (lacks_memory)
            ADD("tried again", check_retried, TRIMMED, ONCE);
        if (lacks_memory && !tells_its_need(row))
            ADD("tried again after a wait", check_retried, WAITED, ONCE);
        ADD("heard of a broken context", check_broken, 0, DEAF);
    }
    if (row->kind == RETRY)
        return n;
    if (!strcmp(conf, "ctx")) {
        if (shortened) {
            ADD("tried again on a known stream", check_retried, AGAIN, ONCE);
            ADD("heard of a broken context again", check_broken, 1, DEAF);
        }
        if (row->streamed) {
            ADD("foreign stream", check_foreign, 0, LONG | ELSEWHERE);
            ADD("captured", check_captured, 0, LONG);
            ADD("captured again", check_captured, 1, later);
        }
    }
    if (strstr(conf, "single")) {
        if (row->streamed)
            ADD("the only stream", check_home, 0, row->holds ? 0 : ELSEWHERE);
        ADD("the default stream is the only one", check_home, 1, row->holds ? 0 : ELSEWHERE);
        if (row->streamed)
            ADD("a second stream", check_second, 0, LONG | ELSEWHERE);
        ADD("the default stream is a second one", check_second, 1, LONG);
        if (row->streamed)
            ADD("a second stream again", check_second, 2, later);
        for (unsigned i = 0; strstr(row->symbol, "GraphLaunch") && i <= GRAPH_WAYS; i++)
            ADD("a graph that may hold", check_graph, i, 0);
        return n;
    }
    ADD("counted", check_counted, 0, LONG);
    ADD("counted again", check_counted, 1, later);
    if (row->streamed) {
        ADD("covered", check_covered, 0, LONG | elsewhere);
        ADD("covered again", check_covered, 1, later | elsewhere);
    }
    ADD("covered on the default stream", check_covered, PASSES, LONG);
    ADD("covered on the default stream again", check_covered, PASSES + 1, later);
    for (unsigned i = 0; i < row->addresses; i++)
        ADD(i ? "reach of the second address" : "reach of an address", check_reach, i,
            LONG | BLIND);
    if (row->many)
        ADD("reach of what is pointed to", check_reach, row->addresses, LONG | BLIND);
    return n;
}

typedef struct {
    const row_t *row;
    const check_t *check;
} job_t;

static void do_job(const void *argument) {
    const job_t *job = argument;
    job->check->run(job->row, job->check->variant);
}

static int run_check(const row_t *row, const check_t *check, const char *failpoint) {
    job_t job = {row, check};
    return checks_run(row->symbol, check->name, failpoint, do_job, &job);
}

int main(int argc, char **argv) {
    const char *conf = getenv("ROWS_CONF");
    bool failpoint = argc > 1 && !strcmp(argv[1], "--failpoints");
    const char *only = argc > 1 + failpoint ? argv[1 + failpoint] : NULL;
    unsigned runs = 0, wrong = 0;
    check_t check[CHECKS];
    if (!conf || argc > 2 + failpoint) {
        fprintf(stderr, "usage: ROWS_CONF=ctx|streams|sync|pages|single|single_streams rows "
                        "[--failpoints] [SYMBOL]\n");
        return 64;
    }
    for (const row_t *row = rows; row < rows + ROWS; row++) {
        unsigned count = !only || !strcmp(only, row->symbol) ? checks_of(row, conf, check) : 0;
        for (unsigned i = 0; i < count; i++) {
            if (!failpoint) {
                runs++;
                wrong += run_check(row, &check[i], NULL) != TEST_GOOD;
                continue;
            }
            for (unsigned way = 0; way < SPOILT; way++) {
                if (!(check[i].seen & 1u << way))
                    continue;
                runs++;
                if (run_check(row, &check[i], spoilt[way]) == TEST_WRONG)
                    continue;
                fprintf(stderr, "%s, %s: passed though spoilt: %s\n", row->symbol, check[i].name,
                        spoilt[way]);
                wrong++;
            }
        }
    }
    printf("%u checks, %u wrong\n", runs, wrong);
    return !runs || wrong;
}
