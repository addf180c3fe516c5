/* Tickets against a model that knows for each piece of work which others come before it. The
 * histories are random: two contexts with streams, events, captures and synchronisations. Each
 * step checks every waiting ticket for every asker.
 *
 * The law of ticket.h must hold: the definition and the reaches of keys agree. If a block is
 * called ready, all work on it comes before the asker's next work. A ready block stays ready,
 * unless the step is one that ends promises. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/order/capture.h"
#include "allocator/order/fence.h"
#include "allocator/order/retire.h"
#include "run_suite.h"

/* Number of a context's streams alive at a time. A new stream replaces a destroyed one, and the
 * old work goes on. */
enum { CONTEXTS = 2, ALIVE = 3, OWN_STREAMS = 8, STREAMS = CONTEXTS * OWN_STREAMS, EVENTS = 5 };
enum { BLOCKS = 24, STEPS = 3000, WORK = STEPS + 10, FIRST_KEY = 0x1000 };

typedef struct {
    uint64_t at[STREAMS];
} clocks_t;

typedef enum { NOWHERE, USED, WAITING } where_t;

typedef struct {
    where_t where;
    unsigned context;
    ac_ticket_t ticket; /* the use so far, or the work that it waits for */
    clocks_t born;      /* number of work items when the program got it */
    clocks_t busy;      /* work that may touch it; 0: none */
    bool captured;      /* a graph that can still be launched may touch it */
    uint32_t ready;     /* bit for each asker that found it ready; the last: any work */
} memory_t;

static struct {
    clocks_t submitted, completed;
    clocks_t before[STREAMS]; /* work that the next item of a stream comes after */
    clocks_t of[STREAMS][WORK];
    clocks_t event[EVENTS];
    unsigned alive[CONTEXTS][ALIVE], made[CONTEXTS];
    memory_t memory[BLOCKS];
    bool shared, capturing;
    uint64_t session;
    unsigned fences, waited, served;
    bool ends; /* this step may end a promise */
} m;

static ac_timeline_t timeline[CONTEXTS];
static ac_order_t order[CONTEXTS];
static uint64_t state;
static bool crosses; /* in this history, contexts start to reach each other */

static uint64_t draw(uint64_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

static unsigned context_of(unsigned stream) {
    return stream / OWN_STREAMS;
}

static uint64_t key_of(unsigned stream) {
    return FIRST_KEY + stream;
}

static unsigned any_stream(void) {
    return m.alive[draw(CONTEXTS)][draw(ALIVE)];
}

static void raise_to(uint64_t *value, uint64_t to) {
    *value = *value > to ? *value : to;
}

static void join(clocks_t *to, const clocks_t *from) {
    for (int i = 0; i < STREAMS; i++)
        raise_to(&to->at[i], from->at[i]);
}

static bool within(const clocks_t *a, const clocks_t *b) {
    for (int i = 0; i < STREAMS; i++)
        if (a->at[i] > b->at[i])
            return false;
    return true;
}

/* --- the device --- */

static ac_status_t fence_record(void *context, bool unseen, void **out) {
    (void)unseen;
    if (m.capturing)
        return AC_BUSY;
    clocks_t *covers = calloc(1, sizeof *covers);
    for (unsigned s = 0; s < STREAMS; s++)
        if (context_of(s) == *(const unsigned *)context)
            covers->at[s] = m.submitted.at[s];
    m.fences++;
    *out = covers;
    return AC_OK;
}

static ac_status_t fence_query(void *context, void *fence) {
    (void)context;
    return within(fence, &m.completed) ? AC_OK : AC_BUSY;
}

static ac_status_t fence_wait(void *context, void *fence, uint64_t limit_ns) {
    (void)limit_ns;
    return fence_query(context, fence);
}

static void fence_release(void *context, void *fence) {
    (void)context;
    m.fences--;
    free(fence);
}

static bool capturing(void *context, bool any) {
    (void)context;
    (void)any;
    return m.capturing;
}

static const ac_device_ops_t ops = {.fence_record = fence_record,
                                    .fence_query = fence_query,
                                    .fence_wait = fence_wait,
                                    .fence_release = fence_release,
                                    .capturing = capturing};

/* --- the program --- */

static void submit(unsigned s) {
    ac_timeline_t *own = &timeline[context_of(s)];
    ac_fence_enter(own);
    ac_fence_mark(own);
    m.submitted.at[s]++;
    m.before[s].at[s] = m.submitted.at[s] - 1;
    m.of[s][m.submitted.at[s]] = m.before[s];
    m.before[s].at[s] = m.submitted.at[s];
    ac_fence_leave(own);
}

/* Ends the next item of a stream's work, if it has begun. */
static void work_ends(unsigned s) {
    uint64_t next = m.completed.at[s] + 1;
    if (next <= m.submitted.at[s] && within(&m.of[s][next], &m.completed))
        m.completed.at[s] = next;
}

static bool may_touch(const memory_t *memory, unsigned s) {
    return m.shared || context_of(s) == memory->context;
}

/* Adds work since the program got the memory: all of it, or the work before a stream's next
 * item. */
static void now_busy(memory_t *memory, const clocks_t *until) {
    for (unsigned s = 0; s < STREAMS; s++)
        if (may_touch(memory, s) && until->at[s] > memory->born.at[s])
            raise_to(&memory->busy.at[s], until->at[s]);
}

static void handed_out(memory_t *memory) {
    memory->where = USED;
    memory->ticket = (ac_ticket_t){.epoch = ac_fence_handout(&timeline[memory->context])};
    memory->born = m.submitted;
    memory->busy = (clocks_t){{0}};
    memory->captured = false;
    m.served++;
}

static void take_new(memory_t *memory) {
    memory->context = (unsigned)draw(CONTEXTS);
    handed_out(memory);
}

static bool is_over(const memory_t *memory) {
    return within(&memory->busy, &m.completed);
}

static void free_plainly(memory_t *memory) {
    ac_ticket_t ticket = {.key = AC_KEY_NONE};
    ac_free_t how = ac_order_retire(&timeline[memory->context], &memory->ticket, 0, &ticket);
    now_busy(memory, &m.submitted);
    memory->ready = 0;
    ck_assert_int_ne(how, AC_FREE_BY_ORDER);
    if (how == AC_FREE_READY && (!is_over(memory) || (m.capturing && memory->captured)))
        ck_abort_msg("memory is called ready while work is under way");
    memory->where = how == AC_FREE_READY ? NOWHERE : WAITING;
    memory->ticket = ticket;
    memory->captured = memory->captured && m.capturing;
    m.waited += how == AC_FREE_WAITS;
}

static void free_on(memory_t *memory, unsigned s) {
    ac_ticket_t ticket = {.key = AC_KEY_NONE};
    unsigned c = context_of(s);
    unsigned slot = c == memory->context ? ac_order_slot(&order[c], key_of(s), 0) : AC_ORDER_NONE;
    ac_order_retire_on(&timeline[memory->context], &timeline[c], &order[c], slot, &memory->ticket,
                       &ticket);
    clocks_t end = m.before[s];
    if (c != memory->context)
        end = m.submitted; /* the wait for the other context's stream is unknown */
    now_busy(memory, &end);
    memory->ready = 0;
    memory->where = WAITING;
    memory->ticket = ticket;
    memory->captured = memory->captured && m.capturing;
    m.waited++;
}

static void record(unsigned s, unsigned event) {
    ac_order_t *own = &order[context_of(s)];
    ac_order_mark_t mark;
    ac_order_record_begin(own, event + 1, ac_order_find(own, key_of(s)), &mark);
    ac_order_record_end(own, &mark, true);
    for (unsigned c = 0; c < CONTEXTS; c++)
        if (c != context_of(s))
            ac_order_forget(&order[c], event + 1);
    m.event[event] = m.before[s];
}

static void wait_for(unsigned s, unsigned event) {
    ac_order_t *own = &order[context_of(s)];
    ac_order_mark_t mark;
    if (ac_order_look(own, event + 1, &mark) && ac_order_still(own, &mark)) {
        unsigned to = ac_order_slot(own, key_of(s), 0);
        ac_order_join(own, to, &mark.vector);
    }
    join(&m.before[s], &m.event[event]);
}

/* Lets the host find the event complete. */
static void ask_event(unsigned event) {
    if (!within(&m.event[event], &m.completed))
        return;
    for (unsigned c = 0; c < CONTEXTS; c++) {
        ac_order_mark_t mark;
        if (ac_order_look(&order[c], event + 1, &mark))
            ac_order_completed(&order[c], &mark.vector);
    }
}

static void synchronise(unsigned c) {
    uint64_t stamp = ac_fence_stamp();
    if (m.capturing)
        return;
    for (bool more = true; more;) {
        more = false;
        for (unsigned s = 0; s < STREAMS; s++) {
            uint64_t before = m.completed.at[s];
            work_ends(s);
            more = more || m.completed.at[s] > before;
        }
    }
    ac_fence_synced(&timeline[c], stamp);
}

/* Destroys a stream. Tickets that wait for its key get another. */
static void renew(void) {
    unsigned c = (unsigned)draw(CONTEXTS), at = (unsigned)draw(ALIVE), s = m.alive[c][at];
    unsigned slot = ac_order_find(&order[c], key_of(s));
    if (slot == AC_ORDER_NONE || m.made[c] == OWN_STREAMS || draw(8))
        return;
    ac_order_drop(&order[c], slot);
    for (int i = 0; i < BLOCKS; i++) {
        memory_t *memory = &m.memory[i];
        if (memory->where == WAITING && memory->context == c &&
            memory->ticket.key == ac_key_of(slot))
            ck_assert_int_eq(ac_order_exchange(&timeline[c], &memory->ticket), AC_FREE_WAITS);
    }
    m.alive[c][at] = c * OWN_STREAMS + m.made[c]++;
    m.ends = true;
}

static void capture(unsigned s) {
    if (!m.capturing) {
        ac_fence_capture_begin(NULL);
        ac_order_capture_begin(++m.session);
        m.capturing = true;
        ac_fence_capture_began();
        m.ends = true;
        return;
    }
    if (draw(3)) { /* captured work, which runs when the graph does */
        ac_fence_submitted(&timeline[context_of(s)]);
        for (int i = 0; i < BLOCKS; i++)
            if (m.memory[i].where == USED && may_touch(&m.memory[i], s))
                m.memory[i].captured = true;
        return;
    }
    m.capturing = false;
    ac_order_capture_end();
    for (int i = 0; i < BLOCKS; i++)
        if (m.memory[i].where == USED)
            m.memory[i].captured = false; /* from here on the program has to order it */
}

/* Releases the last graph. Its last launch may still run. */
static void release(unsigned s) {
    if (m.capturing)
        return;
    submit(s);
    for (int i = 0; i < BLOCKS; i++) {
        memory_t *memory = &m.memory[i];
        if (memory->where != WAITING || memory->ticket.key != AC_KEY_CAPTURE)
            continue;
        memory->captured = false;
        now_busy(memory, &m.submitted);
        if (ac_order_exchange(&timeline[memory->context], &memory->ticket) != AC_FREE_READY)
            continue;
        if (!is_over(memory))
            ck_abort_msg("a graph's memory is called ready while the graph runs");
        memory->where = NOWHERE;
    }
}

/* --- what must hold --- */

static void check(memory_t *memory, unsigned asker, const clocks_t *after) {
    const ac_ticket_t *t = &memory->ticket;
    unsigned c = memory->context;
    unsigned slot = asker == STREAMS ? AC_ORDER_NONE : ac_order_find(&order[c], key_of(asker));
    bool ready = ac_order_ready(&timeline[c], &order[c], slot, t);
    uint64_t place = ac_key_is_stream(t->key) ? t->place : t->epoch;
    uint64_t fences =
        ac_order_reach_of(&timeline[c], &order[c], slot, t->all ? AC_KEY_ALL : AC_KEY_OWN);
    bool law =
        t->key != AC_KEY_CAPTURE &&
        (place <= ac_order_reach_of(&timeline[c], &order[c], slot, t->key) || t->epoch <= fences);
    if (ready != law)
        ck_abort_msg("key %u place %u: ready %d, by reach %d", t->key, (unsigned)place, ready,
                     law);
    clocks_t safe = m.completed;
    join(&safe, after);
    if (ready && (memory->captured || !within(&memory->busy, &safe)))
        ck_abort_msg("key %u place %u is ready for asker %u, and busy", t->key, (unsigned)place,
                     asker);
    bool was = memory->ready >> asker & 1;
    /* If others can use a context's memory, new work of this context makes ALL fall back. The
     * check accepts this caution. */
    if (was && !ready && !m.ends && !t->all)
        ck_abort_msg("key %u place %u was ready for asker %u", t->key, (unsigned)place, asker);
    memory->ready = (memory->ready & ~(1u << asker)) | (uint32_t)ready << asker;
}

static void check_all(void) {
    for (int b = 0; b < BLOCKS; b++) {
        memory_t *memory = &m.memory[b];
        if (memory->where != WAITING)
            continue;
        check(memory, STREAMS, &(clocks_t){{0}});
        for (int i = 0; i < ALIVE; i++) {
            unsigned s = m.alive[memory->context][i];
            check(memory, s, &m.before[s]);
        }
    }
    for (unsigned c = 0; c < CONTEXTS; c++)
        if (ac_order_check(&order[c]) || ac_fence_check(&timeline[c]))
            ck_abort_msg("invariants");
    m.ends = false;
}

/* Lets the stream have a block that is ready for it. */
static void serve(memory_t *memory, unsigned s) {
    unsigned c = context_of(s), slot = ac_order_find(&order[c], key_of(s));
    if (c != memory->context || !ac_order_ready(&timeline[c], &order[c], slot, &memory->ticket))
        return;
    if (!ac_key_is_stream(memory->ticket.key)) {
        handed_out(memory);
        return;
    }
    atomic_store(&memory->ticket.epoch, 0); /* handed on */
    memory->where = USED;
    memory->born = m.submitted;
    m.served++;
}

static void begin(uint64_t seed) {
    static unsigned number[CONTEXTS] = {0, 1};
    memset(&m, 0, sizeof m);
    memset(order, 0, sizeof order);
    memset(timeline, 0, sizeof timeline);
    state = seed * 0x9e3779b97f4a7c15u + 1;
    atomic_store(&ac_sole_wanted, false);
    atomic_store(&ac_fence_shared, false);
    for (unsigned c = 0; c < CONTEXTS; c++)
        for (; m.made[c] < ALIVE; m.made[c]++)
            m.alive[c][m.made[c]] = c * OWN_STREAMS + m.made[c];
    for (unsigned c = 0; c < CONTEXTS; c++)
        ck_assert(ac_timeline_open(&timeline[c], &ops, &number[c]));
}

static void use(void) {
    memory_t *memory = &m.memory[draw(BLOCKS)];
    if (memory->where == NOWHERE)
        take_new(memory);
    else if (memory->where == WAITING)
        serve(memory, any_stream());
    else if (draw(2))
        free_plainly(memory);
    else
        free_on(memory, any_stream());
}

static void cross(void) {
    if (!crosses || draw(400))
        return;
    ac_fence_share();
    atomic_store(&ac_fence_shared, true); /* set again: this happens once in a process */
    m.shared = m.ends = true;
}

static void ask_fences(void) {
    unsigned c = (unsigned)draw(CONTEXTS);
    ac_fence_close(&timeline[c], m.shared);
    ac_fence_poll(&timeline[c], m.shared);
}

static void step(void) {
    switch (draw(16)) {
    case 0:
        record(any_stream(), (unsigned)draw(EVENTS));
        break;
    case 1:
        wait_for(any_stream(), (unsigned)draw(EVENTS));
        break;
    case 2:
        ask_event((unsigned)draw(EVENTS));
        break;
    case 3:
        renew();
        break;
    case 4:
        cross();
        break;
    case 5:
        if (draw(4) == 0)
            synchronise((unsigned)draw(CONTEXTS));
        break;
    case 6:
        if (draw(4) == 0)
            capture(any_stream());
        break;
    case 7:
        if (draw(8) == 0)
            release(any_stream());
        break;
    case 8:
        ask_fences();
        break;
    case 9:
    case 10:
        submit(any_stream());
        break;
    case 11:
    case 12:
        work_ends((unsigned)draw(STREAMS));
        break;
    default:
        use();
    }
    check_all();
}

/* Completes each context's work and lets the allocator know. No ticket waits afterwards. */
static void end(void) {
    while (m.capturing)
        capture(0);
    release(0);
    for (unsigned c = 0; c < CONTEXTS; c++)
        synchronise(c);
    check_all();
    for (int i = 0; i < BLOCKS; i++)
        ck_assert(m.memory[i].where != WAITING || m.memory[i].ready & 1u << STREAMS);
    for (unsigned c = 0; c < CONTEXTS; c++)
        ac_timeline_close(&timeline[c]);
    ck_assert_uint_eq(m.fences, 0);
    ck_assert_uint_gt(m.waited, 20);
    ck_assert_uint_gt(m.served, 20);
}

START_TEST(law) {
    crosses = _i % 3 == 0;
    begin((uint64_t)_i + 1);
    for (int i = 0; i < STEPS; i++)
        step();
    end();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ticket");
    TCase *all = tcase_create("law");
    tcase_set_timeout(all, 120);
    tcase_add_loop_test(all, law, 0, 60);
    suite_add_tcase(suite, all);
    return run_suite(suite);
}
