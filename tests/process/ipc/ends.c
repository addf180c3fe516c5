/* Processes, contexts and programs that end; processes with and without the library. */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "actor.h"
#include "cases.h"
#include "harness.h"

#define KIB 1024ull
#define MIB (1024 * KIB)

void case_exporter_ended(void) {
    actor_t *importer = actor_start(AS_CASE);
    uint64_t view;
    for (unsigned killed = 0; killed < 2; killed++) {
        actor_t *exporter = actor_start(AS_CASE);
        memory_of(exporter, 16 * KIB, 1);
        handle_t handle = handle_of(exporter, memory_of(exporter, 16 * KIB, 2));
        (killed ? actor_kill : actor_end)(exporter);
        GIVES(try_open(importer, handle, &view), CUDA_ERROR_INVALID_HANDLE);
        GIVES(try_open(importer, handle, &view), CUDA_ERROR_INVALID_HANDLE);
    }
    EXPECT(count_of(importer, "imports") == 0);
    actor_end(importer);
}

void case_exporter_killed(void) {
    actor_t *exporter = actor_start(AS_CASE), *importer = actor_start(AS_CASE);
    handle_t first = handle_of(exporter, memory_of(exporter, 16 * KIB, 1));
    handle_t second = handle_of(exporter, memory_of(exporter, 16 * KIB, 2));
    uint64_t view = open_of(importer, first), other;
    actor_kill(exporter);
    EXPECT(reads(importer, view, 16 * KIB, 1));
    /* The second block may be in memory that is open already. */
    if (!try_open(importer, second, &other)) {
        EXPECT(reads(importer, other, 16 * KIB, 2));
        GIVES(RESULT(importer, DO_CLOSE, other), CUDA_SUCCESS);
    }
    EXPECT(reads(importer, view, 16 * KIB, 1));
    GIVES(RESULT(importer, DO_CLOSE, view), CUDA_SUCCESS);
    GIVES(RESULT(importer, DO_CLOSE, view), CUDA_ERROR_INVALID_VALUE);
    EXPECT(count_of(importer, "imports") == 0);
    actor_end(importer);
}

static int64_t milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* An importer does not ask the exporting process, except for pages. It then asks for up to one
 * second, and can open them after the process continues. One handle is of a part of a segment, one
 * of a whole segment. */
void case_exporter_stopped(void) {
    actor_t *exporter = actor_start(AS_CASE), *importer = actor_start(AS_CASE);
    memory_of(exporter, 16 * KIB, 1);
    handle_t handle = handle_of(exporter, memory_of(exporter, 16 * KIB, 2));
    handle_t whole = handle_of(exporter, memory_of(exporter, 64 * MIB, 3));
    uint64_t view, other;
    int status;
    NEED(!kill(exporter->pid, SIGSTOP));
    NEED(waitpid(exporter->pid, &status, WUNTRACED) == exporter->pid && WIFSTOPPED(status));
    if (on_pages) {
        int64_t begin = milliseconds();
        GIVES(try_open(importer, handle, &view), CUDA_ERROR_INVALID_HANDLE);
        int64_t spent = milliseconds() - begin;
        EXPECT(spent >= 900 && spent < 2500);
        EXPECT(count_of(importer, "imports") + count_of(importer, "reservations") == 0);
        NEED(!kill(exporter->pid, SIGCONT));
    }
    int64_t begin = milliseconds();
    view = open_of(importer, handle);
    other = open_of(importer, whole);
    EXPECT(on_pages || milliseconds() - begin < 900);
    EXPECT(reads(importer, view, 16 * KIB, 2) && reads(importer, other, 64 * MIB, 3));
    GIVES(RESULT(importer, DO_CLOSE, view), CUDA_SUCCESS);
    GIVES(RESULT(importer, DO_CLOSE, other), CUDA_SUCCESS);
    NEED(!kill(exporter->pid, SIGCONT));
    actor_end(exporter);
    actor_end(importer);
}

void case_importer_killed(void) {
    enum { COUNT = 1000, TIMES = 3 };
    actor_t *exporter = actor_start(AS_CASE);
    static uint64_t address[COUNT];
    static handle_t handle[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        address[i] = ADDRESS(exporter, DO_ALLOC, 4 * KIB);
        handle[i] = handle_of(exporter, address[i]);
    }
    uint64_t used = VALUE(exporter, DO_USED), exports = count_of(exporter, "exports");
    for (unsigned time = 0; time < TIMES; time++) {
        actor_t *importer = actor_start(AS_CASE);
        for (unsigned i = 0; i < COUNT; i++)
            open_of(importer, handle[i]);
        actor_kill(importer);
    }
    EXPECT(VALUE(exporter, DO_USED) == used);
    EXPECT(count_of(exporter, "exports") == exports);
    for (unsigned i = 0; i < COUNT; i++)
        GIVES(RESULT(exporter, DO_FREE, address[i]), CUDA_SUCCESS);
    EXPECT(VALUE(exporter, DO_USED) <= used);
    actor_end(exporter);
}

/* A process without the library opens no block inside a segment or on pages: it gets an error. A
 * block that fills its segment opens. */
void case_mixed_out(void) {
    enum { TIMES = 1000 };
    actor_t *exporter = actor_start(AS_CASE), *importer = actor_start(WITHOUT_LIBRARY);
    uint64_t view;
    for (unsigned i = 0; under_library && i < TIMES; i++) {
        uint64_t inside = ADDRESS(exporter, DO_ALLOC, 4 * KIB);
        GIVES(try_open(importer, handle_of(exporter, inside), &view), CUDA_ERROR_INVALID_VALUE);
    }
    uint64_t large = memory_of(exporter, 64 * MIB, 4);
    if (on_pages) {
        GIVES(try_open(importer, handle_of(exporter, large), &view), CUDA_ERROR_INVALID_VALUE);
        actor_end(importer);
        actor_end(exporter);
        return;
    }
    view = open_of(importer, handle_of(exporter, large));
    EXPECT(reads(importer, view, 1 * MIB, 4));
    EXPECT(reads(importer, view + 63 * MIB, 1 * MIB, 4));
    GOOD(importer, DO_FILL, view, 4 * KIB, 5);
    EXPECT(reads(exporter, large, 4 * KIB, 5));
    GIVES(RESULT(importer, DO_CLOSE, view), CUDA_SUCCESS);
    /* The handle ends with its block, even if a new block has the address. */
    handle_t handle = handle_of(exporter, large);
    GOOD(exporter, DO_FREE, large);
    memory_of(exporter, 64 * MIB, 6);
    GIVES(try_open(importer, handle, &view), CUDA_ERROR_INVALID_HANDLE);
    actor_end(importer);
    actor_end(exporter);
}

void case_mixed_in(void) {
    actor_t *exporter = actor_start(WITHOUT_LIBRARY), *importer = actor_start(AS_CASE);
    uint64_t address = memory_of(exporter, 40 * KIB, 1);
    handle_t handle = handle_of(exporter, address + 4 * KIB);
    uint64_t view = open_of(importer, handle);
    EXPECT(open_of(importer, handle) == view);
    EXPECT(reads(importer, view, 40 * KIB, 1));
    answer_t range = ASK(importer, DO_RANGE, view + 8 * KIB);
    EXPECT(range.address == view && range.value == 40 * KIB);
    GIVES(RESULT(importer, DO_CLOSE, view), CUDA_SUCCESS);
    GIVES(RESULT(importer, DO_CLOSE, view), CUDA_SUCCESS);
    GIVES(RESULT(importer, DO_CLOSE, view), CUDA_ERROR_INVALID_VALUE);
    clean_end(exporter, importer);
}

void case_devices(void) {
    actor_t *exporter = actor_start(AS_CASE), *importer = actor_start(AS_CASE);
    uint64_t address = memory_of(exporter, 16 * KIB, 1);
    handle_t handle = handle_of(exporter, address);
    uint64_t zero = open_of(importer, handle);
    GOOD(importer, DO_DEVICE, 1);
    uint64_t own = memory_of(importer, 16 * KIB, 9), one = open_of(importer, handle);
    EXPECT(reads(importer, one, 16 * KIB, 1));
    GOOD(importer, DO_COPY, own, one, 16 * KIB);
    EXPECT(reads(importer, own, 16 * KIB, 1));
    GIVES(RESULT(importer, DO_FREE, own), CUDA_SUCCESS);
    GIVES(RESULT(importer, DO_CLOSE, one), CUDA_SUCCESS);
    EXPECT(reads(importer, zero, 16 * KIB, 1));
    GIVES(RESULT(importer, DO_CLOSE, zero), CUDA_SUCCESS);
    clean_end(exporter, importer);
}

void case_contexts(void) {
    actor_t *exporter = actor_start(AS_CASE), *importer = actor_start(AS_CASE);
    handle_t handle = handle_of(exporter, memory_of(exporter, 16 * KIB, 1));
    for (unsigned i = 0; i < 3; i++) {
        uint64_t context = VALUE(importer, DO_CONTEXT);
        uint64_t view = open_of(importer, handle);
        EXPECT(reads(importer, view, 16 * KIB, 1));
        GOOD(importer, DO_CONTEXT_END, context);
        EXPECT(count_of(importer, "imports") == 0);
        GIVES(RESULT(importer, DO_CLOSE, view), CUDA_ERROR_INVALID_VALUE);
    }
    for (unsigned i = 0; i < 3; i++) {
        EXPECT(reads(importer, open_of(importer, handle), 16 * KIB, 1));
        EXPECT(count_of(importer, "imports") == 1);
        GOOD(importer, DO_RESET);
        EXPECT(count_of(importer, "imports") == 0);
    }
    uint64_t view = open_of(importer, handle);
    GOOD(exporter, DO_RESET); /* ends its memory and its handles */
    GIVES(RESULT(importer, DO_CLOSE, view), CUDA_SUCCESS);
    GIVES(try_open(importer, handle, &view), CUDA_ERROR_INVALID_HANDLE);
    handle = handle_of(exporter, memory_of(exporter, 16 * KIB, 2));
    EXPECT(reads(importer, open_of(importer, handle), 16 * KIB, 2));
    actor_end(importer);
    actor_end(exporter);
}

void case_forked(void) {
    actor_t *exporter = actor_start(AS_CASE), *importer = actor_start(AS_CASE);
    memory_of(exporter, 16 * KIB, 1);
    uint64_t address = memory_of(exporter, 16 * KIB, 2);
    handle_t handle = handle_of(exporter, address);
    GIVES(VALUE(exporter, DO_FORK, address), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT(reads(importer, open_of(importer, handle), 16 * KIB, 2));
    handle_t later = handle_of(exporter, memory_of(exporter, 16 * KIB, 3));
    EXPECT(reads(importer, open_of(importer, later), 16 * KIB, 3));
    actor_end(importer);
    actor_end(exporter);
}

/* The process runs another program under its number: the old handles are dead, new ones are
 * valid. */
void case_executed(void) {
    actor_t *exporter = actor_start(AS_CASE), *importer = actor_start(AS_CASE);
    memory_of(exporter, 16 * KIB, 1);
    handle_t handle = handle_of(exporter, memory_of(exporter, 16 * KIB, 2));
    uint64_t view = open_of(importer, handle);
    GOOD(exporter, DO_EXEC);
    EXPECT(reads(importer, view, 16 * KIB, 2));
    GIVES(RESULT(importer, DO_CLOSE, view), CUDA_SUCCESS);
    memory_of(exporter, 16 * KIB, 3);
    uint64_t address = memory_of(exporter, 16 * KIB, 4);
    GIVES(try_open(importer, handle, &view), CUDA_ERROR_INVALID_HANDLE);
    handle_t fresh = handle_of(exporter, address);
    GIVES(try_open(importer, handle, &view), CUDA_ERROR_INVALID_HANDLE);
    EXPECT(reads(importer, open_of(importer, fresh), 16 * KIB, 4));
    actor_end(importer);
    actor_end(exporter);
}

/* Shares blocks like torch.multiprocessing: one event per block, and the consumer ends last. */
void case_producer(void) {
    enum { COUNT = 20 };
    actor_t *producer = actor_start(AS_CASE), *consumer = actor_start(AS_CASE);
    uint64_t view[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        uint64_t event =
            VALUE(producer, DO_EVENT, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
        answer_t shared = ASK(producer, DO_EVENT_EXPORT, event);
        ask_t open_event = {.what = DO_EVENT_OPEN};
        memcpy(open_event.handle, shared.handle, sizeof open_event.handle);
        uint64_t address = memory_of(producer, 200 * KIB, i);
        GOOD(producer, DO_EVENT_RECORD, event, 0);
        handle_t handle = handle_of(producer, address);
        uint64_t theirs = actor_value(actor_ask(consumer, open_event));
        view[i] = open_of(consumer, handle);
        GOOD(consumer, DO_STREAM_WAIT, 0, theirs);
        EXPECT(reads(consumer, view[i], 200 * KIB, i));
        GOOD(consumer, DO_EVENT_DESTROY, theirs);
    }
    actor_end(producer);
    for (unsigned i = 0; i < COUNT; i++) {
        EXPECT(reads(consumer, view[i], 200 * KIB, i));
        GIVES(RESULT(consumer, DO_CLOSE, view[i]), CUDA_SUCCESS);
    }
    EXPECT(count_of(consumer, "imports") == 0);
    actor_end(consumer);
}
