/* Windows of the single-stream rule (sole.c) and of fences (fence.c). The oracle of this device
 * knows the order of its work. */
#include "allocator/order/retire.h"
#include "line_device.h"
#include "windows.h"

static ac_submitter_t other;

/* Submits like submit(), but may run while the timeline's lock is held. */
static void submit_raw(unsigned stream) {
    ac_fence_enter(&timeline);
    ac_sole_enter(&timeline, FIRST_KEY + stream, NULL);
    d.submitted[stream]++;
    ac_fence_leave(&timeline);
}

static void sole_works(void) {
    submit(0);
}

static void second_works(void) {
    submit(1);
}

static void third_works(void) {
    submit(2);
}

static void free_relies(void) {
    ck_assert(rely());
}

/* Checks that the timeline does not count as idle while work is pending. */
static void check_busy(void) {
    ck_assert_msg(!ac_timeline_idle(&timeline),
                  "work is under way, and the context counts as idle");
}

/* --- the single-stream rule --- */

void window_rely_looked_at_once(void) {
    begin();
    submit(0);
    at_window("rely_begins", second_works);
    rely();
    submit(1);
    end();
}

static void second_works_early(void) {
    d.late_join_events = true; /* rely() has not recorded the free yet */
    submit(1);
}

void window_rely_raised_late(void) {
    begin();
    submit(0);
    at_window("rely_decided", second_works_early);
    ck_assert(rely());
    submit(1);
    end();
}

void window_relied_read_first(void) {
    begin();
    submit(0);
    at_window("sole_left", free_relies);
    submit(1);
    end();
}

/* Another thread submits work to the new sole stream and frees memory of it. */
static void sole_works_and_relies(void) {
    submit_raw(0);
    ck_assert(rely());
}

void window_sole_before_its_marks(void) {
    begin();
    at_window("sole_made", sole_works_and_relies);
    submit(0);
    submit(1);
    end();
}

/* Makes the other thread's store to its slot visible; its processor had delayed it. */
static void slot_shows(void) {
    atomic_store(&other.inside, &timeline);
}

void window_sole_without_barrier(void) {
    begin();
    ac_fence_list(&other);
    submit(0);
    full_sync();
    ck_assert(ac_sole_passes(&timeline.single, FIRST_KEY)); /* so that the other thread found
                                                               it */
    at_window("barrier_heavy", slot_shows);
    submit(1);
    slot_shows();
    d.submitted[0]++;
    rely();
    submit(1);
    ac_fence_leave_as(&timeline, &other);
    end();
}

static void other_comes_and_goes(void) {
    d.submitted[0]++;
    ac_fence_mark(&timeline);
}

void window_idle_marks_read_once(void) {
    begin();
    ac_fence_list(&other);
    submit(0);
    full_sync();
    ck_assert(ac_sole_passes(&timeline.single, FIRST_KEY));
    at_window("barrier_heavy", other_comes_and_goes);
    submit(1);
    rely();
    submit(1);
    end();
}

void window_join_within_epoch(void) {
    begin();
    submit(0);
    ck_assert(rely());
    submit(1); /* the turn of this stream covers the sole stream alone */
    d.completed[0] = 1;
    ac_fence_poll(&timeline, false);
    check_busy();
    end();
}

static uint64_t
    lane_clock; /* clock of another thread's stream, the sole stream, after it looked and
                   marked */

/* Does a free of that thread, which relies on the order, and its next submission, which looks
 * only if the clock moved. */
static void lane_leans_and_submits(void) {
    ck_assert(rely());
    if (lane_clock == ac_fence_now())
        d.submitted[0]++;
    else
        submit(0);
}

void window_due_before_epoch(void) {
    begin();
    submit(0);
    lane_clock = ac_fence_now();
    ck_assert(ac_sole_passes(&timeline.single, FIRST_KEY));
    ac_fence_mark(&timeline);
    at_window("rely_announced", lane_leans_and_submits);
    ck_assert(ac_sole_protects(&timeline));
    submit(1);
    end();
}

/* The program waits for the sole stream. Afterwards only the work given to that stream is
 * complete. */
static void wait_for_sole(void) {
    uint64_t stamp = ac_sole_alone(&timeline, FIRST_KEY);
    d.completed[0] = d.submitted[0];
    if (stamp)
        ac_fence_synced(&timeline, stamp);
    check_busy();
}

void window_alone_looked_at_once(void) {
    begin();
    submit(0);
    at_window("alone_begins", second_works);
    wait_for_sole();
    end();
}

void window_alone_stamped_late(void) {
    begin();
    submit(0);
    at_window("alone_decided", second_works);
    wait_for_sole();
    end();
}

static void destroy_sole(void) {
    ac_sole_stream_gone(&timeline, FIRST_KEY);
    atomic_store(&d.gone[0], true);
}

static bool pinned;

static bool sole_is_pinned(void) {
    return pinned;
}

static void sole_is_destroyed(void) {
    pinned = atomic_load(&timeline.single.naming) > 0; /* if false, the other thread pins the
                                                          stream first */
    other_thread(destroy_sole, sole_is_pinned);
}

void window_sole_not_pinned(void) {
    begin();
    submit(0);
    ck_assert(rely());
    meanwhile = sole_is_destroyed;
    submit(1);
    other_thread_ends();
    end();
}

void window_sole_pinned_late(void) {
    begin();
    submit(0);
    ck_assert(rely());
    at_window("join_due", sole_is_destroyed);
    submit(0);
    other_thread_ends();
    end();
}

static void sole_works_and_relies_again(void) {
    submit(0);
    ck_assert(rely());
}

void window_join_stamped_late(void) {
    begin();
    submit(0);
    ck_assert(rely());
    after_join = sole_works_and_relies_again;
    submit_raw(0);
    submit(1);
    end();
}

void window_late_join_taken(void) {
    begin();
    submit(0);
    ck_assert(rely());
    meanwhile = sole_works;
    submit(0);
    submit(1);
    end();
}

static void another_sole_is_relied_on(void) {
    ac_sole_leave(&timeline);
    full_sync();
    forget_join_events();
    submit(3);
    ck_assert(rely());
}

void window_second_join_taken(void) {
    begin();
    submit(0);
    ck_assert(rely());
    meanwhile = another_sole_is_relied_on;
    ac_sole_leave(&timeline);
    submit(1);
    end();
}

void window_leaving_passes(void) {
    begin();
    submit(0);
    ck_assert(rely());
    meanwhile = third_works;
    submit(1);
    end();
}

/* The walk over the program's blocks. When it begins, a third stream works on a block that was
 * handed out early. When it ends, no such block is in use. */
static bool walk(ac_timeline_t *of, uint64_t until) {
    static bool inside;
    ck_assert_uint_ge(until, atomic_load(&of->single.relied));
    if (inside)
        return false;
    inside = true;
    submit(2);
    inside = false;
    memset(&d.relied, 0, sizeof d.relied);
    return true;
}

void window_rule_ended_before_walk(void) {
    begin();
    timeline.quarantine = walk;
    submit(0);
    ck_assert(rely());
    submit(1);
    ck_assert_uint_eq(d.waits, 1); /* a wait of the third stream */
    end();
}

static uint64_t handed_out;

/* Frees memory that relies on order. It is handed out again at once. */
static void memory_comes_back(void) {
    ck_assert(rely());
    handed_out = ac_fence_handout(&timeline);
    ac_fence_stamp();
}

void window_early_noted_late(void) {
    begin();
    submit(0);
    at_window("rely_due", memory_comes_back);
    ck_assert(rely());
    ck_assert_uint_le(ac_sole_early(&timeline), handed_out);
    end();
}

/* --- fences --- */

/* Begins a call of another thread, and then completes all earlier work. */
static void other_begins(void) {
    ac_fence_list(&other);
    ck_assert(ac_fence_enter_as(&timeline, &other));
    ac_sole_enter(&timeline, FIRST_KEY, NULL);
    full_sync();
}

static void other_ends(void) {
    d.submitted[0]++;
    ac_fence_leave_as(&timeline, &other);
}

void window_wanted_before_inside(void) {
    begin();
    ac_fence_list(&other);
    ck_assert(ac_fence_enter_as(&timeline, &other));
    ac_sole_enter(&timeline, FIRST_KEY, NULL);
    ck_assert_int_eq(ac_fence_close(&timeline, false), AC_OK);
    at_window("close_begins", other_ends);
    ck_assert_int_eq(ac_fence_close(&timeline, false), AC_OK);
    bool all;
    uint64_t target = ac_fence_target(&timeline, &all);
    memcpy(d.completed, d.submitted, sizeof d.completed);
    ac_fence_poll(&timeline, false);
    ck_assert_uint_ge(ac_fence_reached(&timeline, all), target); /* no fence is missing */
    end();
}

void window_idle_stamped_late(void) {
    begin();
    at_window("close_idle", sole_works);
    ck_assert_int_eq(ac_fence_close(&timeline, false), AC_OK);
    check_busy();
    end();
}

void window_mark_before_inside(void) {
    begin();
    other_begins();
    at_window("idle_begins", other_ends);
    check_busy();
    end();
}

void window_left_before_mark(void) {
    begin();
    other_begins();
    at_window("mark", check_busy);
    other_ends();
    check_busy();
    end();
}

void window_marked_once(void) {
    begin();
    other_begins();
    other_ends();
    check_busy();
    end();
}

void window_marked_after_call(void) {
    begin();
    uint64_t born = ac_fence_handout(&timeline);
    ac_fence_enter(&timeline);
    ac_sole_enter(&timeline, FIRST_KEY, NULL);
    d.submitted[0]++; /* the work runs and signals another thread, which frees */
    ck_assert(!ac_fence_untouched(&timeline, born));
    ac_fence_leave(&timeline);
    end();
}

void window_target_without_mark(void) {
    bool all;
    begin();
    other_begins();
    d.submitted[0]++;
    uint64_t target = ac_fence_target(&timeline, &all);
    ck_assert_uint_gt(target, ac_fence_reached(&timeline, all));
    ac_fence_leave_as(&timeline, &other);
    end();
}

/* The mark belongs to an epoch that is over, and the marking call may still be in the driver. */
void window_awaited_by_old_mark(void) {
    uint64_t target;
    begin();
    ac_fence_list(&other);
    ac_ticket_t used = {.epoch = ac_fence_handout(&timeline)};
    submit(0);
    submit(1);
    ck_assert(ac_fence_enter_as(&timeline, &other));
    ac_sole_enter(&timeline, FIRST_KEY, NULL);
    ck_assert(ac_order_awaits(&timeline, &used, 0, &target));
    uint64_t stamp = ac_fence_stamp(); /* the stamp of a fence that does not cover the call */
    d.submitted[0]++;
    if (ac_order_awaits(&timeline, &used, 0, &target))
        ck_assert_uint_gt(target, stamp);
    ac_fence_leave_as(&timeline, &other);
    end();
}

void window_handout_within_epoch(void) {
    begin();
    submit(0);
    uint64_t born = ac_fence_handout(&timeline);
    submit(0);
    ck_assert(!ac_fence_untouched(&timeline, born));
    end();
}

static uint64_t others_stamp;

static void others_stamp_thrice(void) {
    for (int i = 0; i < 3; i++)
        others_stamp = ac_fence_stamp();
}

void window_clock_set_back(void) {
    begin();
    submit(0);
    at_window("handout", others_stamp_thrice);
    ac_fence_handout(&timeline);
    ck_assert_uint_gt(ac_fence_now(), others_stamp);
    end();
}

static void a_fence_is_taken(void) {
    ck_assert_int_eq(ac_fence_close(&timeline, false), AC_OK);
}

void window_submitted_not_inside(void) {
    begin();
    d.submitted[0]++;
    at_window("mark", a_fence_is_taken);
    ac_fence_submitted(&timeline);
    check_busy();
    end();
}

void window_fence_stamped_late(void) {
    begin();
    submit(0);
    after_record = sole_works;
    ck_assert_int_eq(ac_fence_close(&timeline, false), AC_OK);
    d.completed[0] = 1;
    ac_fence_poll(&timeline, false);
    check_busy();
    end();
}

void window_fence_released_in_use(void) {
    begin();
    submit(0);
    ck_assert_int_eq(ac_fence_close(&timeline, false), AC_OK);
    while_asked = full_sync;
    ac_fence_poll(&timeline, false);
    end();
}

static void the_ring_fills(void) {
    for (int i = 0; i < 2 * AC_FENCE_RING; i++) {
        submit(0);
        ck_assert_int_eq(ac_fence_close(&timeline, false), AC_OK);
    }
}

void window_fence_dropped_in_use(void) {
    begin();
    for (int i = 0; i < 2; i++) {
        submit(0);
        ck_assert_int_eq(ac_fence_close(&timeline, false), AC_OK);
    }
    ac_lock(&timeline.lock);
    void *fence = ac_fence_use(&timeline, timeline.ring[1].clock);
    ac_unlock(&timeline.lock);
    while_asked = the_ring_fills;
    ck_assert_int_eq(timeline.ops->fence_query(timeline.context, fence), AC_BUSY);
    ac_fence_unuse(&timeline, fence, false);
    end();
}

static void the_context_ends(void) {
    ac_timeline_close(&timeline);
}

void window_fence_kept_after_context(void) {
    begin();
    submit(0);
    after_record = the_context_ends;
    ac_fence_close(&timeline, false);
    ck_assert_uint_eq(d.fences, 0);
}
