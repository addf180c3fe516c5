/* Handles of memory: their targets and their lifetimes. */
#include <string.h>

#include "actor.h"
#include "cases.h"
#include "harness.h"

#define KIB 1024ull
#define MIB (1024 * KIB)

static bool same(handle_t a, handle_t b) {
    return !memcmp(&a, &b, sizeof a);
}

/* Allocates until a block has `address`, which was just freed. A cache may return others
 * first. */
static bool again(actor_t *actor, uint64_t address, uint64_t bytes, uint32_t word) {
    for (int i = 0; i < 64; i++)
        if (memory_of(actor, bytes, word) == address)
            return true;
    return false;
}

void case_blocks(void) {
    enum { COUNT = 200 };
    static const uint64_t sizes[] = {4,        512,     4 * KIB,       5000,
                                     64 * KIB, 1 * MIB, 300 * KIB + 4, 5 * MIB};
    actor_t *exporter = actor_start(AS_CASE), *importer = actor_start(AS_CASE);
    uint64_t address[COUNT], view[COUNT];
    handle_t handle[COUNT];
    for (unsigned i = 0; i < COUNT; i++)
        address[i] = memory_of(exporter, sizes[i % 8], 7000 + i);
    for (unsigned i = 0; i < COUNT; i++)
        handle[i] = handle_of(exporter, address[i]);
    for (unsigned i = 0; i < COUNT; i++) {
        view[i] = open_of(importer, handle[i]);
        answer_t range = ASK(importer, DO_RANGE, view[i] + sizes[i % 8] / 2);
        MUST(range.result);
        EXPECT(range.address == view[i]);
        EXPECT(range.value == sizes[i % 8]);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        EXPECT(reads(importer, view[i], sizes[i % 8], 7000 + i));
        GOOD(importer, DO_FILL, view[i], sizes[i % 8], 9000 + i);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        EXPECT(reads(exporter, address[i], sizes[i % 8], 9000 + i));
        GIVES(RESULT(importer, DO_CLOSE, view[i]), CUDA_SUCCESS);
        GIVES(RESULT(exporter, DO_FREE, address[i]), CUDA_SUCCESS);
    }
    clean_end(exporter, importer);
}

void case_three_opens(void) {
    actor_t *exporter = actor_start(AS_CASE), *importer = actor_start(AS_CASE);
    handle_t handle = handle_of(exporter, memory_of(exporter, 40 * KIB, 5));
    uint64_t view = open_of(importer, handle);
    EXPECT(open_of(importer, handle) == view);
    EXPECT(open_of(importer, handle) == view);
    EXPECT(count_of(importer, "imports") == 1);
    GIVES(RESULT(importer, DO_CLOSE, view), CUDA_SUCCESS);
    GIVES(RESULT(importer, DO_CLOSE, view), CUDA_SUCCESS);
    EXPECT(reads(importer, view, 40 * KIB, 5));
    GIVES(RESULT(importer, DO_CLOSE, view + 4 * KIB), CUDA_ERROR_INVALID_VALUE);
    GIVES(RESULT(importer, DO_CLOSE, view), CUDA_SUCCESS);
    EXPECT(count_of(importer, "imports") == 0);
    GIVES(RESULT(importer, DO_CLOSE, view), CUDA_ERROR_INVALID_VALUE);
    EXPECT(open_of(importer, handle) != 0);
    actor_end(importer);
    actor_end(exporter);
}

void case_neighbours(void) {
    actor_t *exporter = actor_start(AS_CASE), *importer = actor_start(AS_CASE);
    for (unsigned first = 0; first < 2; first++) {
        uint64_t address[2], view[2];
        for (unsigned i = 0; i < 2; i++) {
            address[i] = memory_of(exporter, 8 * KIB, 30 + i);
            view[i] = open_of(importer, handle_of(exporter, address[i]));
        }
        GIVES(RESULT(importer, DO_CLOSE, view[first]), CUDA_SUCCESS);
        EXPECT(reads(importer, view[!first], 8 * KIB, 30 + !first));
        GIVES(RESULT(importer, DO_CLOSE, view[first]), CUDA_ERROR_INVALID_VALUE);
        GIVES(RESULT(importer, DO_CLOSE, view[!first]), CUDA_SUCCESS);
        EXPECT(count_of(importer, "imports") == 0);
    }
    actor_end(importer);
    actor_end(exporter);
}

void case_interior(void) {
    actor_t *exporter = actor_start(AS_CASE), *importer = actor_start(AS_CASE);
    memory_of(exporter, 60 * KIB, 1);
    uint64_t address = memory_of(exporter, 60 * KIB, 2);
    GOOD(exporter, DO_FILL, address + 32 * KIB, 4, 3);
    handle_t handle = handle_of(exporter, address + 32 * KIB);
    EXPECT(same(handle, handle_of(exporter, address)));
    uint64_t view = open_of(importer, handle);
    EXPECT(reads(importer, view, 32 * KIB, 2));
    EXPECT(reads(importer, view + 32 * KIB, 4, 3));
    GIVES(RESULT(exporter, DO_EXPORT, 0x1234), CUDA_ERROR_INVALID_VALUE);
    actor_end(importer);
    actor_end(exporter);
}

void case_lifetimes(void) {
    actor_t *exporter = actor_start(AS_CASE), *importer = actor_start(AS_CASE);
    uint64_t address = memory_of(exporter, 16 * KIB, 1), view;
    handle_t first = handle_of(exporter, address);
    EXPECT(same(first, handle_of(exporter, address)));
    GOOD(exporter, DO_FREE, address);
    NEED(again(exporter, address, 16 * KIB, 2));
    handle_t second = handle_of(exporter, address);
    EXPECT(!same(first, second));
    GIVES(try_open(importer, first, &view), CUDA_ERROR_INVALID_HANDLE);
    EXPECT(reads(importer, open_of(importer, second), 16 * KIB, 2));
    EXPECT(count_of(importer, "imports") == 1);
    actor_end(importer);
    actor_end(exporter);
}

void case_freed(void) {
    actor_t *exporter = actor_start(AS_CASE), *importer = actor_start(AS_CASE);
    uint64_t address = memory_of(exporter, 16 * KIB, 1), view;
    uint64_t beside = memory_of(exporter, 16 * KIB, 2);
    handle_t handle = handle_of(exporter, address), other = handle_of(exporter, beside);
    GOOD(exporter, DO_FREE, address);
    GIVES(try_open(importer, handle, &view), CUDA_ERROR_INVALID_HANDLE);
    EXPECT(count_of(importer, "imports") == 0);
    EXPECT(reads(importer, open_of(importer, other), 16 * KIB, 2));
    GIVES(try_open(importer, handle, &view), CUDA_ERROR_INVALID_HANDLE);
    GIVES(RESULT(exporter, DO_FREE, address), CUDA_ERROR_INVALID_VALUE);
    actor_end(importer);
    actor_end(exporter);
}

/* CUDA does not define the contents that the importer sees after the free. Closing the view
 * works. */
void case_freed_open(void) {
    actor_t *exporter = actor_start(AS_CASE), *importer = actor_start(AS_CASE);
    uint64_t address = memory_of(exporter, 16 * KIB, 1), view;
    handle_t handle = handle_of(exporter, address);
    view = open_of(importer, handle);
    EXPECT(reads(importer, view, 16 * KIB, 1));
    GOOD(exporter, DO_FREE, address);
    NEED(again(exporter, address, 16 * KIB, 2));
    uint64_t next = open_of(importer, handle_of(exporter, address));
    EXPECT(reads(importer, next, 16 * KIB, 2));
    GIVES(RESULT(importer, DO_CLOSE, view), CUDA_SUCCESS);
    if (next != view) /* the library has one address for both */
        GIVES(RESULT(importer, DO_CLOSE, view), CUDA_ERROR_INVALID_VALUE);
    EXPECT(reads(importer, next, 16 * KIB, 2));
    GIVES(RESULT(importer, DO_CLOSE, next), CUDA_SUCCESS);
    clean_end(exporter, importer);
}

void case_own(void) {
    actor_t *exporter = actor_start(AS_CASE);
    uint64_t address = memory_of(exporter, 16 * KIB, 1), view;
    memory_of(exporter, 16 * KIB, 2);
    handle_t handle = handle_of(exporter, address);
    GIVES(try_open(exporter, handle, &view), CUDA_ERROR_INVALID_CONTEXT);
    GIVES(RESULT(exporter, DO_CLOSE, address), CUDA_ERROR_INVALID_VALUE);
    EXPECT(reads(exporter, address, 16 * KIB, 1));
    EXPECT(count_of(exporter, "imports") == 0);
    actor_end(exporter);
}

/* Changes each byte of a handle in turn. The open fails, or gives the same memory. */
void case_arguments(void) {
    actor_t *exporter = actor_start(AS_CASE), *importer = actor_start(AS_CASE);
    uint64_t view;
    memory_of(exporter, 16 * KIB, 1);
    handle_t handle = handle_of(exporter, memory_of(exporter, 16 * KIB, 2));
    ask_t ask = {.what = DO_OPEN_FLAGS};
    memcpy(ask.handle, &handle, sizeof handle);
    GIVES(actor_ask(importer, ask).result, CUDA_ERROR_INVALID_VALUE);
    ask.a = 2;
    GIVES(actor_ask(importer, ask).result, CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < sizeof handle; i++) {
        handle_t damaged = handle;
        damaged.bytes[i] ^= 0x11;
        if (try_open(importer, damaged, &view))
            continue;
        EXPECT(reads(importer, view, 16 * KIB, 2));
        GIVES(RESULT(importer, DO_CLOSE, view), CUDA_SUCCESS);
    }
    for (unsigned word = 0; word < 256; word += 51) {
        handle_t none;
        memset(&none, (int)word, sizeof none);
        GIVES(try_open(importer, none, &view), CUDA_ERROR_INVALID_VALUE);
    }
    EXPECT(count_of(importer, "imports") == 0);
    EXPECT(reads(importer, open_of(importer, handle), 16 * KIB, 2));
    actor_end(importer);
    actor_end(exporter);
}

/* Opening and closing are no work of the stream, and do not end the capture. */
void case_captured(void) {
    actor_t *exporter = actor_start(AS_CASE), *importer = actor_start(AS_CASE);
    uint64_t stream = VALUE(importer, DO_STREAM), view[2];
    handle_t handle[2];
    for (unsigned i = 0; i < 2; i++)
        handle[i] = handle_of(exporter, memory_of(exporter, 20 * MIB, 50 + i));
    view[0] = open_of(importer, handle[0]);
    GOOD(importer, DO_FILL, view[0], 4 * KIB, 60);
    GOOD(importer, DO_CAPTURE, stream);
    view[1] = open_of(importer, handle[1]);
    for (unsigned i = 0; i < 2; i++) {
        GIVES(RESULT(importer, DO_CLOSE, view[i]), CUDA_SUCCESS);
        GIVES(RESULT(importer, DO_CLOSE, view[i]), CUDA_ERROR_INVALID_VALUE);
    }
    GOOD(importer, DO_SLOW, open_of(importer, handle[0]) + 8 * KIB, 61, stream);
    EXPECT(VALUE(importer, DO_CAPTURE_END, stream) == 1);
    view[0] = open_of(importer, handle[0]);
    EXPECT(reads(importer, view[0], 4 * KIB, 60));
    GIVES(RESULT(importer, DO_CLOSE, view[0]), CUDA_SUCCESS);
    GIVES(RESULT(importer, DO_CLOSE, view[0]), CUDA_SUCCESS);
    clean_end(exporter, importer);
}

void case_three_processes(void) {
    actor_t *exporter = actor_start(AS_CASE), *second = actor_start(AS_CASE),
            *third = actor_start(AS_CASE);
    uint64_t address = memory_of(exporter, 16 * KIB, 1);
    handle_t handle = handle_of(exporter, address);
    uint64_t view = open_of(second, handle), other = open_of(third, handle);
    GIVES(RESULT(second, DO_EXPORT, view), CUDA_ERROR_INVALID_VALUE);
    GIVES(RESULT(second, DO_FREE, view), CUDA_ERROR_INVALID_VALUE);
    GOOD(second, DO_FILL, view, 16 * KIB, 2);
    EXPECT(reads(third, other, 16 * KIB, 2));
    GIVES(RESULT(second, DO_CLOSE, view), CUDA_SUCCESS);
    GOOD(third, DO_FILL, other, 16 * KIB, 3);
    EXPECT(reads(exporter, address, 16 * KIB, 3));
    actor_end(second);
    EXPECT(reads(third, other, 16 * KIB, 3));
    actor_end(third);
    actor_end(exporter);
}

/* Exports 1,000 blocks of 4 KiB. They use at most 1.1 times their size and one segment of
 * small blocks. */
void case_memory_used(void) {
    enum { COUNT = 1000 };
    actor_t *exporter = actor_start(AS_CASE);
    uint64_t before = VALUE(exporter, DO_USED), address[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        address[i] = ADDRESS(exporter, DO_ALLOC, 4 * KIB);
        handle_of(exporter, address[i]);
    }
    uint64_t used = VALUE(exporter, DO_USED) - before;
    EXPECT(used <= COUNT * 4 * KIB * 11 / 10 + 2 * MIB);
    for (unsigned i = 0; i < COUNT; i++)
        GIVES(RESULT(exporter, DO_FREE, address[i]), CUDA_SUCCESS);
    actor_end(exporter);
}
