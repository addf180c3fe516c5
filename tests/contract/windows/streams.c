/* Windows of the order of streams (ordered.c, edges.c, order.c), on the fake device. */
#include "allocator/retired/ordered_int.h"
#include "allocator_frame.h"
#include "device_window.h"
#include "windows.h"

enum { S = 16, T = 20, U = 24, EVENT = 77 };

static uint64_t first, second; /* blocks of S */

static uint64_t alloc_on(ac_stream_t stream, uint64_t bytes) {
    uint64_t address = 0;
    ck_assert_int_eq(ac_arena_alloc_on(arena, stream, bytes, false, &address), AC_OK);
    return address;
}

static void give_on(uint64_t address, ac_stream_t stream) {
    submit(0);
    ck_assert_int_eq(ac_block_free_on(arena, stream, address), AC_OK);
    ac_arena_stream_is(arena, stream, true);
}

/* Returns true if `to` is known to come after the free in `from` with that position. */
static bool proven(ac_stream_t to, ac_stream_t from, uint64_t position) {
    ac_order_t *order = &arena->ordered->order;
    unsigned at = ac_order_find(order, to), of = ac_order_find(order, from);
    return at != AC_ORDER_NONE && of != AC_ORDER_NONE && ac_order_proven(order, at, of, position);
}

/* Returns the position of the last free on the stream. */
static uint64_t last_of(ac_stream_t stream) {
    ac_order_t *order = &arena->ordered->order;
    return order->pos[ac_order_find(order, stream)];
}

/* Allocates two blocks on S and frees the first. A request of T can get no other memory. */
static void begin_ordered(void) {
    begin_large();
    settings.limit = 4 * MIB;
    ac_allocator_configure(allocator, &settings);
    first = alloc_on(S, 3 * MIB);
    second = alloc_on(S, MIB / 2);
    give_on(first, S);
}

static void second_is_freed(void) {
    give_on(second, S);
}

void window_edge_read_after_record(void) {
    begin_ordered();
    uint64_t of_first = last_of(S);
    at_window("edge_recorded", second_is_freed);
    ck_assert_uint_eq(alloc_on(T, 3 * MIB), first);
    ck_assert(proven(T, S, of_first));
    ck_assert(!proven(T, S, last_of(S)));
    end_idle();
}

static _Atomic bool gone;

static void stream_goes(void) {
    ac_arena_stream_gone(arena, S);
    atomic_store(&gone, true);
}

static bool is_pinned(void) {
    return __atomic_load_n(&arena->ordered->pinned, __ATOMIC_RELAXED) != 0;
}

static void stream_goes_elsewhere(void) {
    other_thread(stream_goes, is_pinned);
}

static void name_it(fake_context_t *of, uint64_t from, uint64_t to) {
    (void)of, (void)to;
    ck_assert_msg(from != S || !atomic_load(&gone), "a stream that is gone is named");
}

void window_stream_not_pinned(void) {
    begin_ordered();
    device.ordered = name_it;
    at_call(&device, FAKE_STREAM_ORDER, stream_goes_elsewhere);
    alloc_on(T, 3 * MIB);
    other_thread_ends();
    end_idle();
}

/* Records the event on S and lets T wait for it. Calls `meanwhile` before the driver's call of
 * the wait. */
static void wait_for_event(void (*meanwhile)(void)) {
    ac_edge_t edge;
    ac_edge_record_begin(&edge, arena, EVENT, S);
    ac_edge_record_end(&edge, true);
    ac_edge_of_event(&edge, arena, EVENT);
    meanwhile();
    ac_edge_joined(&edge, T);
}

static void nothing(void) {
}

static void event_is_recorded_on_u(void) {
    ac_edge_t edge;
    ac_edge_record_begin(&edge, arena, EVENT, U);
    ac_edge_record_end(&edge, true);
}

static void begin_three(void) {
    begin_large();
    give_on(alloc_on(S, MIB), S);
    give_on(alloc_on(U, MIB), U);
}

void window_joined_without_version(void) {
    begin_three();
    uint64_t of_s = last_of(S);
    wait_for_event(event_is_recorded_on_u);
    ck_assert(!proven(T, S, of_s));
    wait_for_event(nothing);
    ck_assert(proven(T, S, of_s));
    end();
}

/* Two threads record the event at the same time, so the order in the driver is not known. */
void window_overlapping_records_known(void) {
    ac_edge_t on_s, on_u, edge;
    begin_three();
    uint64_t of_s = last_of(S), of_u = last_of(U);
    ac_edge_record_begin(&on_s, arena, EVENT, S);
    ac_edge_record_begin(&on_u, arena, EVENT, U);
    ac_edge_record_end(&on_u, true);
    ac_edge_record_end(&on_s, true);
    ac_edge_of_event(&edge, arena, EVENT);
    ac_edge_joined(&edge, T);
    ck_assert(!proven(T, S, of_s));
    ck_assert(!proven(T, U, of_u));
    end();
}

static void context_ends(void) {
    fake_context_kill(&context[0]);
    ac_arena_drop(arena);
}

void window_served_of_dead_context(void) {
    uint64_t address = 0;
    begin_ordered();
    at_call(&device, FAKE_STREAM_ORDER, context_ends);
    ck_assert_int_ne(ac_arena_alloc_on(arena, T, 3 * MIB, false, &address), AC_OK);
    end();
}

static bool slot_is_given_up(void) {
    return !__atomic_load_n(&arena->ordered->order.used[0], __ATOMIC_RELAXED);
}

static void stream_goes_and_call_fails(void) {
    other_thread(stream_goes, slot_is_given_up);
    device.fail_with[FAKE_STREAM_ORDER] = AC_FAILED;
    device.fail_at = device.total_calls + 1;
    at_call(&device, FAKE_WAIT, end); /* when that call comes, the block is in a list again */
}

void window_given_to_gone_stream(void) {
    uint64_t address;
    begin_ordered();
    ck_assert_uint_eq(ac_order_find(&arena->ordered->order, S), 0);
    at_call(&device, FAKE_STREAM_ORDER, stream_goes_and_call_fails);
    ac_arena_alloc_on(arena, T, 3 * MIB, false, &address);
    other_thread_ends();
    ck_assert_uint_eq(device.failed, 1);
    ck_assert(!device_part);
    end();
}
