/* Order between processes: events, and reports of the race detector about shared memory. */
#include <string.h>
#include <time.h>

#include "actor.h"
#include "cases.h"
#include "harness.h"

#define KIB 1024ull

enum { INTERPROCESS = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING };

/* Two processes with a shared event. The second one has memory of the first open. */
typedef struct {
    actor_t *maker, *other;
    uint64_t event, theirs;  /* the event in each */
    uint64_t memory, view;   /* 16 KiB of zeroes */
    uint64_t stream, beside; /* a stream in each */
} pair_t;

static uint64_t open_event(actor_t *actor, const answer_t *shared) {
    ask_t ask = {.what = DO_EVENT_OPEN};
    memcpy(ask.handle, shared->handle, sizeof ask.handle);
    return actor_value(actor_ask(actor, ask));
}

static pair_t pair_start(void) {
    pair_t pair = {.maker = actor_start(AS_CASE), .other = actor_start(AS_CASE)};
    memory_of(pair.maker, 16 * KIB, 77);
    pair.event = VALUE(pair.maker, DO_EVENT, INTERPROCESS);
    answer_t shared = ASK(pair.maker, DO_EVENT_EXPORT, pair.event);
    GIVES(shared.result, CUDA_SUCCESS);
    pair.theirs = open_event(pair.other, &shared);
    pair.memory = memory_of(pair.maker, 16 * KIB, 0);
    pair.view = open_of(pair.other, handle_of(pair.maker, pair.memory));
    pair.stream = VALUE(pair.maker, DO_STREAM);
    pair.beside = VALUE(pair.other, DO_STREAM);
    return pair;
}

static void pair_end(pair_t *pair) {
    GIVES(RESULT(pair->other, DO_EVENT_DESTROY, pair->theirs), CUDA_SUCCESS);
    GIVES(RESULT(pair->maker, DO_EVENT_DESTROY, pair->event), CUDA_SUCCESS);
    actor_end(pair->other);
    actor_end(pair->maker);
}

static uint64_t races(const pair_t *pair) {
    return races_of(pair->maker, "") + races_of(pair->other, "");
}

void case_events(void) {
    pair_t p = pair_start();
    uint64_t own = memory_of(p.other, 4, 1);
    GIVES(RESULT(p.other, DO_EVENT_QUERY, p.theirs), CUDA_SUCCESS); /* never recorded */
    for (unsigned round = 0; round < 3; round++) {
        GOOD(p.maker, DO_SLOW, p.memory, 100 + round, p.stream);
        GOOD(p.maker, DO_EVENT_RECORD, p.event, p.stream);
        GIVES(RESULT(p.other, DO_EVENT_QUERY, p.theirs), CUDA_ERROR_NOT_READY);
        GOOD(p.other, DO_STREAM_WAIT, p.beside, p.theirs);
        GOOD(p.other, DO_COPY_ASYNC, own, p.view, p.beside, 4);
        GOOD(p.other, DO_EVENT_WAIT, p.theirs);
        GIVES(RESULT(p.other, DO_EVENT_QUERY, p.theirs), CUDA_SUCCESS);
        GOOD(p.other, DO_SYNC);
        EXPECT(reads(p.other, own, 4, 100 + round));
    }
    EXPECT(races(&p) == 0);
    pair_end(&p);
}

void case_events_back(void) {
    pair_t p = pair_start();
    uint64_t own = memory_of(p.maker, 4, 1);
    GOOD(p.other, DO_SLOW, p.view, 200, p.beside);
    GOOD(p.other, DO_EVENT_RECORD, p.theirs, p.beside);
    GIVES(RESULT(p.maker, DO_EVENT_QUERY, p.event), CUDA_ERROR_NOT_READY);
    GOOD(p.maker, DO_STREAM_WAIT, p.stream, p.event);
    GOOD(p.maker, DO_COPY_ASYNC, own, p.memory, p.stream, 4);
    GOOD(p.maker, DO_SYNC);
    EXPECT(reads(p.maker, own, 4, 200));
    GIVES(RESULT(p.maker, DO_EVENT_QUERY, p.event), CUDA_SUCCESS);
    GOOD(p.maker, DO_FREE, p.memory);
    EXPECT(races(&p) == 0);
    pair_end(&p);
}

void case_events_gone(void) {
    pair_t p = pair_start();
    actor_t *third = actor_start(AS_CASE);
    answer_t shared = ASK(p.maker, DO_EVENT_EXPORT, p.event);
    uint64_t thirds = open_event(third, &shared);
    GOOD(p.other, DO_SLOW, p.view, 1, p.beside);
    GOOD(p.other, DO_EVENT_RECORD, p.theirs, p.beside);
    actor_kill(p.other); /* the record ends with its process */
    GIVES(RESULT(p.maker, DO_EVENT_WAIT, p.event), CUDA_SUCCESS);
    GIVES(RESULT(third, DO_EVENT_WAIT, thirds), CUDA_SUCCESS);
    actor_kill(p.maker);
    GIVES(RESULT(third, DO_EVENT_WAIT, thirds), CUDA_SUCCESS);
    ask_t ask = {.what = DO_EVENT_OPEN};
    memcpy(ask.handle, shared.handle, sizeof ask.handle);
    GIVES(actor_ask(third, ask).result, CUDA_ERROR_INVALID_HANDLE);
    GIVES(RESULT(third, DO_EVENT_DESTROY, thirds), CUDA_SUCCESS);
    EXPECT(count_of(third, "shared_events") == 0);
    actor_end(third);
}

/* ---------------------------------------------------------------- the race detector */

/* Allocates until a block has the address again. Returns it, or 0. The new block has another
 * owner. */
static uint64_t used_again(actor_t *maker, uint64_t address) {
    for (int i = 0; i < 64; i++)
        if (memory_of(maker, 16 * KIB, 5) == address)
            return address;
    return 0;
}

/* The sides do not wait for the work. The detector reports the free, or at the latest the next owner's
 * work. */
void case_race_freed(void) {
    pair_t p = pair_start();
    GOOD(p.other, DO_SLOW, p.view, 1, p.beside);
    GOOD(p.maker, DO_FREE, p.memory);
    NEED(used_again(p.maker, p.memory));
    EXPECT(races_of(p.maker, "released") + races_of(p.maker, "unordered") > 0);
    EXPECT(races_of(p.other, "") == 0);
    pair_end(&p);
}

void case_race_used(void) {
    pair_t p = pair_start();
    GOOD(p.maker, DO_FREE, p.memory);
    NEED(used_again(p.maker, p.memory));
    EXPECT(races(&p) == 0); /* the view is open, but unused */
    GOOD(p.other, DO_SLOW, p.view, 1, p.beside);
    EXPECT(races_of(p.other, "freed") == 1);
    GOOD(p.other, DO_SYNC);
    pair_end(&p);
}

void case_race_none(void) {
    pair_t p = pair_start();
    for (unsigned i = 0; i < 3; i++)
        GOOD(p.other, DO_FILL, p.view, 16 * KIB, i);
    GOOD(p.maker, DO_FILL, p.memory, 16 * KIB, 9);
    GOOD(p.other, DO_SLOW, p.view, 1, p.beside);
    GOOD(p.other, DO_SYNC);
    GOOD(p.other, DO_CLOSE, p.view);
    GOOD(p.maker, DO_FREE, p.memory);
    NEED(used_again(p.maker, p.memory));
    EXPECT(races(&p) == 0);
    pair_end(&p);
}

/* The hosts do not wait. The owner's stream follows the other process's work by an event, and the owner
 * then synchronises. */
void case_race_events(void) {
    pair_t p = pair_start();
    GOOD(p.other, DO_SLOW, p.view, 1, p.beside);
    GOOD(p.other, DO_EVENT_RECORD, p.theirs, p.beside);
    GOOD(p.maker, DO_EVENT_WAIT, p.event);
    GOOD(p.maker, DO_FREE, p.memory);
    NEED(used_again(p.maker, p.memory));
    EXPECT(races(&p) == 0);
    pair_end(&p);
}

void case_race_killed(void) {
    pair_t p = pair_start();
    GOOD(p.other, DO_SLOW, p.view, 1, p.beside);
    actor_kill(p.other);
    GOOD(p.maker, DO_FREE, p.memory);
    NEED(used_again(p.maker, p.memory));
    EXPECT(races_of(p.maker, "") == 0);
    actor_end(p.maker);
}
