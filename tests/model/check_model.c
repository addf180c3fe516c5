/* Random operations against an oracle that knows what the device may still touch.
 *
 * The oracle keeps, for each freed range, the work submitted before the free that may touch
 * it (contract: never handed out again, nor given to the driver, before that work is done), and
 * judges every "out of memory" by what completing everything and giving back all idle segments
 * would have left. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/allocator_int.h"
#include "fake_device.h"

enum { CONTEXTS = 3, LIVES = 400, HAZARDS = 1 << 14, STEPS = 3000 };
#define MIB      ((uint64_t)1 << 20)
#define CAPACITY (512 * MIB)

typedef struct {
    uint64_t address, size, requested;
    int slot;
    uint64_t born[CONTEXTS]; /* work submitted when it was handed out */
} live_t;

typedef struct {
    uint64_t address, size;
    int slot;
    uint64_t need[CONTEXTS]; /* the work that has to be done first */
} hazard_t;

static struct {
    uint64_t random;
    fake_device_t device;
    fake_context_t *context[CONTEXTS];
    ac_arena_t *arena[CONTEXTS];
    ac_allocator_t *allocator;
    ac_device_stats_t stats;
    ac_device_counters_t counters;
    ac_settings_t settings;
    live_t live[LIVES];
    unsigned lives;
    hazard_t hazard[HAZARDS];
    unsigned hazards;
    bool was_reset, broken, uncounted, lock_held;
    unsigned ooms, step;
} m;

static uint64_t draw(uint64_t below) {
    m.random ^= m.random << 13;
    m.random ^= m.random >> 7;
    m.random ^= m.random << 17;
    return m.random % below;
}

static uint64_t draw_size(void) {
    uint64_t log = draw(28); /* up to 128 MiB */
    return ((uint64_t)1 << log) + draw((uint64_t)1 << log);
}

#define expect(holds, ...)                                                                       \
    do {                                                                                         \
        if (!(holds))                                                                            \
            ck_abort_msg("step %u: " __VA_ARGS__);                                               \
    } while (0)

static bool overlap(uint64_t a, uint64_t a_size, uint64_t b, uint64_t b_size) {
    return a < b + b_size && b < a + a_size;
}

static void forget_done(void) {
    unsigned kept = 0;
    for (unsigned i = 0; i < m.hazards; i++) {
        bool open = false;
        for (int c = 0; c < CONTEXTS; c++)
            open |= m.hazard[i].need[c] > atomic_load(&m.context[c]->completed);
        if (open)
            m.hazard[kept++] = m.hazard[i];
    }
    m.hazards = kept;
}

static bool in_danger(uint64_t address, uint64_t size) {
    for (unsigned i = 0; i < m.hazards; i++) {
        const hazard_t *h = &m.hazard[i];
        for (int c = 0; c < CONTEXTS; c++)
            if (h->need[c] > atomic_load(&m.context[c]->completed) &&
                overlap(h->address, h->size, address, size))
                return true;
    }
    return false;
}

static void before_call(void *arg, fake_kind_t kind) {
    (void)arg, (void)kind;
    if (pthread_mutex_trylock(&m.allocator->lock))
        m.lock_held = true;
    else
        pthread_mutex_unlock(&m.allocator->lock);
    for (int c = 0; c < CONTEXTS; c++) {
        pthread_mutex_t *lock = &ac_arena_line(m.arena[c])->lock;
        if (pthread_mutex_trylock(lock))
            m.lock_held = true;
        else
            pthread_mutex_unlock(lock);
    }
}

static void freeing(void *arg, uint64_t address, uint64_t size) {
    (void)arg;
    expect(!in_danger(address, size), "gave back memory in use by work", m.step);
    for (unsigned i = 0; i < m.lives; i++)
        expect(!overlap(m.live[i].address, m.live[i].size, address, size),
               "gave back a segment with a live block", m.step);
}

static void open_context(int slot) {
    m.context[slot] = calloc(1, sizeof **m.context); /* stays: late fences name it */
    fake_context_init(m.context[slot], &m.device);
    m.device.before = NULL; /* the arena is not there yet */
    m.arena[slot] = ac_arena_create(m.allocator, &fake_ops, m.context[slot]);
    ck_assert_ptr_nonnull(m.arena[slot]);
    m.device.before = before_call;
}

static void model_begin(uint64_t seed, bool bump) {
    memset(&m, 0, sizeof m);
    m.random = seed * 0x9e3779b97f4a7c15u + 1;
    atomic_store(&ac_fence_crossed, false);
    atomic_store(&ac_fence_uncounted, false);
    fake_device_init(&m.device, CAPACITY);
    m.device.bump = bump;
    m.device.freeing = freeing;
    m.settings = (ac_settings_t){AC_UNLIMITED, 20 * MIB, AC_UNLIMITED, 0, {0}, AC_RECENT};
    m.allocator = ac_allocator_create(&m.settings, &m.stats, &m.counters);
    ck_assert_ptr_nonnull(m.allocator);
    for (int c = 0; c < CONTEXTS; c++)
        open_context(c);
}

static void model_end(void) {
    for (int c = 0; c < CONTEXTS; c++) {
        fake_context_kill(m.context[c]);
        ac_arena_drop(m.arena[c]);
    }
    ck_assert_uint_eq(m.device.live_fences, 0);
    ck_assert_int_eq(m.stats.reserved_bytes[AC_POOL_ALL].current, 0);
    ck_assert_int_eq(m.stats.active[AC_POOL_ALL].current, 0);
}

/* --- the oracle's own arithmetic --- */

static uint64_t rounded(uint64_t bytes) {
    uint64_t power = 1, divisions = m.settings.divisions[0]; /* the same in every slot */
    while (power * 2 <= bytes)
        power *= 2;
    if (divisions > 1 && bytes > 512 * divisions && bytes != power)
        for (uint64_t i = 1; i <= divisions; i++)
            if (power + power / divisions * i >= bytes) {
                bytes = power + power / divisions * i;
                break;
            }
    return (bytes + 511) / 512 * 512;
}

typedef struct {
    uint64_t run, longest; /* bytes side by side that completing everything would free */
    uint64_t live_segments;
    const ac_segment_t *segment;
    bool counted;
    const ac_arena_t *arena;
} room_t;

static void look(const ac_segment_t *segment, const ac_block_t *block, void *arg) {
    room_t *room = arg;
    if (room->segment != segment) {
        room->segment = segment;
        room->run = 0;
        room->counted = false;
    }
    if (block->state == AC_BLOCK_ALLOCATED) {
        room->live_segments += room->counted ? 0 : segment->size;
        room->counted = true;
        room->run = 0;
    } else if (segment->arena == room->arena && !segment->tainted) {
        room->run += block->size;
        if (room->run > room->longest)
            room->longest = room->run;
    }
}

static bool anything_captures(void) {
    for (int c = 0; c < CONTEXTS; c++)
        if (atomic_load(&m.context[c]->capturing))
            return true;
    return false;
}

static void judge_out_of_memory(int slot, uint64_t bytes) {
    m.ooms++;
    if (m.broken || anything_captures() || m.settings.max_split_size != AC_UNLIMITED)
        return;
    room_t room = {.arena = m.arena[slot]};
    ac_allocator_walk(m.allocator, look, &room);
    uint64_t size = rounded(bytes);
    uint64_t need = size <= 64 << 10 ? 2 * MIB : (size + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
    uint64_t most = m.settings.limit < CAPACITY ? m.settings.limit : CAPACITY;
    expect(room.longest < size, "false out of memory: a block of %llu serves %llu", m.step,
           (unsigned long long)room.longest, (unsigned long long)size);
    expect(room.live_segments + need > most,
           "false out of memory: %llu in use of %llu, %llu needed", m.step,
           (unsigned long long)room.live_segments, (unsigned long long)most,
           (unsigned long long)need);
}

/* --- the operations --- */

static void do_alloc(bool cached_only) {
    int slot = (int)draw(CONTEXTS);
    uint64_t bytes = draw_size(), address = 0;
    if (m.lives == LIVES)
        return;
    unsigned calls = m.device.total_calls, failed = m.device.failed;
    ac_status_t status = ac_arena_alloc(m.arena[slot], bytes, cached_only, &address);
    if (cached_only)
        expect(m.device.total_calls == calls, "a device call with cached_only", m.step);
    if (status != AC_OK) {
        if (m.device.failed > failed)
            return; /* an injected failure: any answer, but the books must hold */
        expect(status != AC_BUSY || cached_only || atomic_load(&m.context[slot]->capturing),
               "busy for no reason", m.step);
        expect(status != AC_FAILED || m.broken, "failed for no reason", m.step);
        if (status == AC_OOM)
            judge_out_of_memory(slot, bytes);
        return;
    }
    live_t live = {.slot = slot, .address = address, .requested = bytes};
    ac_block_info_t info;
    expect(address && address % AC_GRANULE == 0, "odd address", m.step);
    expect(ac_block_find(address + bytes - 1, &info) == AC_OK, "block not found", m.step);
    expect(info.address == address && info.allocated && info.requested == bytes &&
               info.arena == m.arena[slot] && info.size >= rounded(bytes),
           "a wrong block", m.step);
    live.size = info.size;
    for (unsigned i = 0; i < m.lives; i++)
        expect(!overlap(address, live.size, m.live[i].address, m.live[i].size), "two owners",
               m.step);
    bool held = false;
    for (unsigned i = 0; i < m.device.count; i++)
        held |= address >= m.device.range[i].address &&
                address + live.size <= m.device.range[i].address + m.device.range[i].size;
    expect(held, "memory that the device has not given", m.step);
    expect(!in_danger(address, live.size), "memory in use by work was handed out", m.step);
    for (int c = 0; c < CONTEXTS; c++)
        live.born[c] = atomic_load(&m.context[c]->submitted);
    m.live[m.lives++] = live;
}

static void do_free(void) {
    if (!m.lives)
        return;
    unsigned at = (unsigned)draw(m.lives);
    live_t live = m.live[at];
    m.live[at] = m.live[--m.lives];
    hazard_t hazard = {.address = live.address, .size = live.size, .slot = live.slot};
    for (int c = 0; c < CONTEXTS; c++) {
        uint64_t submitted = atomic_load(&m.context[c]->submitted);
        bool counts = c == live.slot || atomic_load(&ac_fence_crossed);
        if (counts && (m.uncounted || submitted > live.born[c]))
            hazard.need[c] = submitted;
    }
    expect(m.hazards < HAZARDS, "the oracle is full", m.step);
    m.hazard[m.hazards++] = hazard;
    expect(ac_block_free(live.address) == AC_OK, "free refused", m.step);
}

static void do_bad_free(void) {
    uint64_t address = FAKE_BASE + draw(CAPACITY / 256) * 512;
    for (unsigned i = 0; i < m.lives; i++)
        if (m.live[i].address == address)
            return;
    ac_status_t status = ac_block_free(address);
    expect(status == AC_NOT_OURS || status == AC_BAD_ADDRESS, "freed what is not held", m.step);
}

/* As the hooks do: waiting frees get their fence first. */
static void do_submit(void) {
    int slot = (int)draw(CONTEXTS);
    ac_fence_line_t *line = ac_arena_line(m.arena[slot]);
    if (ac_fence_full(line))
        ac_fence_close(line, atomic_load(&ac_fence_crossed));
    fake_submit(m.context[slot]);
    if (!m.uncounted)
        ac_fence_submitted(line);
}

static void do_complete(void) {
    fake_context_t *context = m.context[draw(CONTEXTS)];
    uint64_t done = atomic_load(&context->completed);
    uint64_t open = atomic_load(&context->submitted) - done;
    if (open)
        fake_complete(context, done + 1 + draw(open));
}

static void do_synchronize(void) {
    int slot = (int)draw(CONTEXTS);
    if (atomic_load(&m.context[slot]->capturing))
        return;
    uint64_t clock = ac_fence_now();
    fake_complete(m.context[slot], atomic_load(&m.context[slot]->submitted));
    ac_fence_synced(ac_arena_line(m.arena[slot]), clock);
}

static void do_trim(void) {
    bool wait = draw(2);
    uint64_t used = m.device.used;
    uint64_t freed = ac_allocator_trim(m.allocator, wait);
    expect(used - m.device.used == freed || m.device.failed, "trim's answer", m.step);
    if (wait && !anything_captures() && !m.broken && !m.device.failed)
        expect(ac_allocator_idle_bytes(m.allocator) == 0, "trim left idle memory", m.step);
}

static void do_taint(void) {
    if (!m.lives)
        return;
    bool fresh;
    expect(ac_block_taint(m.live[draw(m.lives)].address, &fresh) == AC_OK, "taint", m.step);
}

/* The driver ends the context first, the allocator hears of it later: others may be handed the
 * same addresses in between. */
static void do_drop(void) {
    int slot = (int)draw(CONTEXTS);
    ac_arena_t *arena = m.arena[slot];
    fake_context_kill(m.context[slot]);
    unsigned kept = 0;
    for (unsigned i = 0; i < m.lives; i++)
        if (m.live[i].slot != slot)
            m.live[kept++] = m.live[i];
    m.lives = kept;
    kept = 0;
    for (unsigned i = 0; i < m.hazards; i++) {
        m.hazard[i].need[slot] = 0;
        if (m.hazard[i].slot != slot)
            m.hazard[kept++] = m.hazard[i];
    }
    m.hazards = kept;
    open_context(slot);
    if (draw(2)) {
        uint64_t address;
        unsigned failed = m.device.failed;
        if (ac_arena_alloc(m.arena[slot], 3 * MIB, false, &address) == AC_OK)
            expect(ac_block_free(address) == AC_OK, "free after a context's end", m.step);
        else
            expect(m.device.failed > failed || m.device.used > 0, "empty and full", m.step);
    }
    ac_arena_drop(arena);
}

static void do_capture(void) {
    fake_context_t *context = m.context[draw(CONTEXTS)];
    atomic_store(&context->capturing, !atomic_load(&context->capturing));
}

static void do_configure(void) {
    static const uint64_t splits[] = {AC_UNLIMITED, AC_UNLIMITED, 21 * MIB, 24 * MIB, 50 * MIB};
    static const uint64_t larges[] = {2 * MIB, 20 * MIB, 20 * MIB, 64 * MIB};
    static const uint64_t limits[] = {AC_UNLIMITED, AC_UNLIMITED, 300 * MIB};
    static const uint32_t divisions[] = {0, 0, 2, 4, 16};
    m.settings.max_split_size = splits[draw(5)];
    m.settings.large_segment_size = larges[draw(4)];
    m.settings.limit = limits[draw(3)];
    m.settings.gc_threshold = draw(2) ? 0.6 : 0;
    m.settings.recent = draw(AC_RECENT + 1);
    uint32_t d = divisions[draw(5)];
    for (int i = 0; i < AC_DIVISION_SLOTS; i++)
        m.settings.divisions[i] = d;
    ac_allocator_configure(m.allocator, &m.settings);
}

static void do_reset(void) {
    if (draw(2)) {
        ac_allocator_reset_peak(m.allocator);
    } else {
        ac_allocator_reset_accumulated(m.allocator);
        m.was_reset = true;
    }
}

static void check_stat(const ac_stat_t *stat) {
    expect(stat->current >= 0 && stat->peak >= stat->current, "a statistic", m.step);
    expect(m.was_reset || stat->allocated - stat->freed == stat->current, "a sum", m.step);
}

static void check_step(void) {
    const char *why = NULL;
    ac_device_stats_t stats;
    expect(ac_allocator_check(m.allocator, &why) == 0, "%s", m.step, why);
    expect(!m.lock_held, "a device call under a lock", m.step);
    expect(!m.device.wrong, "%s", m.step, m.device.wrong);
    ac_allocator_stats(m.allocator, &stats);
#define STAT_COUNT(name, doc)
#define STAT_POOLS(name, unit, doc)                                                              \
    for (int i = 0; i < AC_POOL_KINDS; i++)                                                      \
        check_stat(&stats.name[i]);
#define STAT_SINGLE(name, unit, doc) check_stat(&stats.name);
#include "observe/stats.def"
#undef STAT_COUNT
#undef STAT_POOLS
#undef STAT_SINGLE
    /* A segment that an injected failure kept from the driver is lost to the books. */
    if (!m.device.failed)
        expect((uint64_t)stats.reserved_bytes[AC_POOL_ALL].current == m.device.used,
               "reserved differs from the device's own count", m.step);
    expect(stats.allocation[AC_POOL_ALL].current == (int64_t)m.lives, "live blocks", m.step);
    forget_done();
}

typedef enum { PLAIN, CROSSED, UNCOUNTED, BOTH, MODES } scope_t;

static void one_step(bool rare) {
    static const struct {
        unsigned weight;
        void (*act)(void);
    } common[] = {{34, do_free},
                  {14, do_submit},
                  {8, do_complete},
                  {3, do_synchronize},
                  {1, do_bad_free}},
      seldom[] = {{2, do_trim},    {3, do_taint},     {1, do_drop},
                  {2, do_capture}, {2, do_configure}, {2, do_reset}};
    uint64_t dice = draw(100);
    if (dice < 38) {
        do_alloc(draw(20) == 0);
        return;
    }
    dice -= 38;
    for (unsigned i = 0; i < sizeof common / sizeof common[0]; i++) {
        if (dice < common[i].weight) {
            common[i].act();
            return;
        }
        dice -= common[i].weight;
    }
    if (!rare || draw(3)) /* seldom, and only where wanted */
        return;
    dice = draw(12);
    for (unsigned i = 0; i < sizeof seldom / sizeof seldom[0]; i++) {
        if (dice < seldom[i].weight) {
            seldom[i].act();
            return;
        }
        dice -= seldom[i].weight;
    }
}

static void run_model(uint64_t seed, scope_t mode, bool rare, unsigned fault_every) {
    model_begin(seed, seed % 3 == 0);
    m.uncounted = mode == UNCOUNTED || mode == BOTH;
    atomic_store(&ac_fence_uncounted, m.uncounted);
    unsigned cross_at = mode == CROSSED || mode == BOTH ? (unsigned)draw(STEPS / 2) : STEPS;
    for (m.step = 0; m.step < STEPS; m.step++) {
        if (m.step == cross_at)
            atomic_store(&ac_fence_crossed, true);
        if (fault_every && draw(fault_every) == 0) {
            m.device.fail_at = m.device.total_calls + 1 + (unsigned)draw(3);
            for (int k = 0; k < FAKE_KINDS; k++)
                m.device.fail_with[k] = k == FAKE_SEGMENT_ALLOC && draw(2) ? AC_OOM : AC_BUSY;
        }
        one_step(rare);
        check_step();
    }
    for (int c = 0; c < CONTEXTS; c++)
        atomic_store(&m.context[c]->capturing, false);
    while (m.lives)
        do_free();
    m.device.fail_at = 0;
    ac_allocator_trim(m.allocator, true);
    check_step();
    ck_assert_uint_eq(ac_allocator_reserved(m.allocator), 0);
    model_end();
}

START_TEST(random_plain) {
    run_model(1 + (uint64_t)_i, (scope_t)(_i % MODES), false, 0);
    ck_assert_uint_gt(m.ooms, 0); /* the device was small enough to matter */
}
END_TEST

START_TEST(random_everything) {
    run_model(100 + (uint64_t)_i, (scope_t)(_i % MODES), true, 0);
}
END_TEST

START_TEST(random_faults) {
    run_model(200 + (uint64_t)_i, (scope_t)(_i % MODES), true, 20);
    ck_assert_uint_gt(m.device.failed, 0);
}
END_TEST

START_TEST(random_without_fences) {
    model_begin(300 + (uint64_t)_i, false);
    m.device.no_fences = true;
    for (m.step = 0; m.step < STEPS; m.step++) {
        one_step(true);
        check_step();
    }
    model_end();
}
END_TEST

/* --- chaos: a fixed program, failing each device call once, in every way --- */

static void short_program(uint64_t seed) {
    m.random = seed;
    for (m.step = 0; m.step < 250; m.step++) {
        one_step(false);
        if (m.step % 50 == 49)
            do_trim();
        check_step();
    }
    while (m.lives)
        do_free();
    ac_allocator_trim(m.allocator, true);
    check_step();
}

START_TEST(every_call_fails_once) {
    static const ac_status_t ways[] = {AC_OOM, AC_BUSY, AC_UNSUPPORTED, AC_FAILED};
    for (unsigned n = 1;; n++) {
        model_begin(7, false);
        m.device.fail_at = n;
        m.broken = ways[_i] == AC_FAILED;
        for (int k = 0; k < FAKE_KINDS; k++)
            if ((ways[_i] != AC_OOM || k == FAKE_SEGMENT_ALLOC) &&
                (ways[_i] != AC_UNSUPPORTED || k == FAKE_RECORD)) /* what device.h allows */
                m.device.fail_with[k] = ways[_i];
        short_program(0x1234567);
        bool over = m.device.total_calls < n;
        model_end();
        if (over) {
            ck_assert_uint_gt(n, 40);
            break;
        }
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("model");
    TCase *tests = tcase_create("model");
    tcase_add_loop_test(tests, random_plain, 0, 8);
    tcase_add_loop_test(tests, random_everything, 0, 12);
    tcase_add_loop_test(tests, random_faults, 0, 8);
    tcase_add_loop_test(tests, random_without_fences, 0, 2);
    tcase_add_loop_test(tests, every_call_fails_once, 0, 4);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
