/* Threads allocate with caches of their own or without, free each other's blocks, submit work and synchronise.
 * One thread completes work. Another trims, queries and changes settings.
 *
 * A shadow of the device's memory shows a granule with two owners, or with an owner while earlier work may still
 * touch it. The program also serves the sanitizers.
 *
 *   stress [ROUNDS [WAYS]]
 *
 * If WAYS contains `alone`, there is a single context. With `ordered` all its work goes to one stream, and this
 * stream's order protects memory too: new owners come after it, but pages that leave do not.
 *
 * With `streams` a second stream gets some of the work now and then. Memory without a wait must come after its
 * previous owner, and some of it is held back (quarantine.c). With `rely` frees rely on the order of the only
 * stream whenever possible. With `pages` arenas grow by pages. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/allocator_int.h"
#include "allocator/supply/expand.h"
#include "fake_device.h"
#include "fake_settings.h"

#define MIB      ((uint64_t)1 << 20)
#define CAPACITY (96 * MIB)
/* Part of each reserved range that the shadow covers: all addresses in use. */
#define WINDOW   (256 * MIB)
#define GRANULES ((CAPACITY + FAKE_RESERVED * WINDOW) / AC_GRANULE)

enum { THREADS = 4, SLOTS = 64, CONTEXTS = 2, STREAMS = 2, SECOND_EVERY = 200 };
static unsigned contexts = CONTEXTS;
static bool ordered, streams;

static fake_device_t device;
static fake_context_t context[CONTEXTS];
static ac_arena_t *arena[CONTEXTS];
static ac_allocator_t *allocator;
static ac_device_stats_t stats;
static ac_device_counters_t counters;
static ac_settings_t settings;
static unsigned long rounds = 20000;
static _Atomic bool over;
static _Atomic unsigned long errors, served, refused;

/* The oracle's state of each granule of the device. */
static _Atomic unsigned char owned[GRANULES];
static _Atomic uint64_t busy_until[CONTEXTS][GRANULES];

/* Work by stream, of the owner and of earlier owners; and for a stream, the other stream's work that it comes
 * after. */
static _Atomic uint64_t newest[STREAMS][GRANULES], before[STREAMS][GRANULES];
static _Atomic uint64_t joined[STREAMS];
static _Atomic unsigned long relied; /* granules */

static uint64_t key_of(unsigned stream) {
    return 0x1000 + 16 * stream;
}

static void raise(_Atomic uint64_t *figure, uint64_t n) {
    uint64_t seen = atomic_load(figure);
    while (seen < n && !atomic_compare_exchange_weak(figure, &seen, n))
        ;
}

static void turned(uint64_t from, uint64_t number, uint64_t to) {
    if (from != to)
        raise(&joined[to == key_of(1)], number);
}

/* Blocks that any thread may free: an atomic exchange decides the owner. */
typedef struct {
    uint64_t address, size;
    int context;
} held_t;
static held_t *_Atomic board[SLOTS];

static uint64_t draw(uint64_t *state, uint64_t below) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state % below;
}

static void wrong(const char *what) {
    if (atomic_fetch_add(&errors, 1) < 10)
        fprintf(stderr, "stress: %s\n", what);
}

static uint64_t granule_of(uint64_t address) {
    if (address < FAKE_RESERVED_BASE)
        return (address - FAKE_BASE) / AC_GRANULE;
    uint64_t range = (address - FAKE_RESERVED_BASE) >> FAKE_RESERVED_BITS;
    uint64_t offset = (address - FAKE_RESERVED_BASE) & (((uint64_t)1 << FAKE_RESERVED_BITS) - 1);
    if (offset + 4 * MIB > WINDOW) {
        fprintf(stderr, "stress: the window is too small\n");
        abort();
    }
    return (CAPACITY + range * WINDOW + offset) / AC_GRANULE;
}

/* Called when pages leave: no work may touch them any more. For a segment the device waits for this. */
static void leaving(void *arg, uint64_t address, uint64_t size) {
    (void)arg;
    if (address < FAKE_RESERVED_BASE)
        return;
    uint64_t first = granule_of(address);
    for (uint64_t g = first; g < first + size / AC_GRANULE; g++) {
        if (atomic_load(&owned[g]))
            wrong("given back while it has an owner");
        for (int c = 0; c < CONTEXTS; c++)
            if (atomic_load(&busy_until[c][g]) > atomic_load(&context[c].completed))
                wrong("given back while work may touch it");
    }
}

static void take_granules(const held_t *held) {
    uint64_t first = granule_of(held->address);
    uint64_t done[CONTEXTS];
    for (int c = 0; c < CONTEXTS; c++)
        done[c] = atomic_load(&context[c].completed);
    for (uint64_t g = first; g < first + held->size / AC_GRANULE; g++) {
        if (atomic_exchange(&owned[g], 1))
            wrong("two owners");
        for (int c = 0; c < CONTEXTS && !ordered; c++)
            if (atomic_load(&busy_until[c][g]) > done[c])
                wrong("handed out while work may touch it");
        for (unsigned s = 0; s < STREAMS && streams; s++)
            if (atomic_load(&newest[s][g]) > done[0]) {
                raise(&before[s][g], atomic_load(&newest[s][g]));
                atomic_fetch_add(&relied, 1);
            }
    }
}

/* Checks that the owner's work on the block has reached the stream. */
static void comes_after(const held_t *held, unsigned stream, uint64_t number) {
    uint64_t done = atomic_load(&context[0].completed), first = granule_of(held->address);
    uint64_t known = atomic_load(&joined[stream]);
    for (uint64_t g = first; g < first + held->size / AC_GRANULE; g++) {
        uint64_t other = atomic_load(&before[!stream][g]);
        if (other > done && other > known)
            wrong("work runs beside that of the owner before");
        atomic_store(&newest[stream][g], number);
    }
}

/* A thread's caches, one per arena (NULL: none), and its knowledge of streams. */
typedef struct {
    ac_cache_t *cache[CONTEXTS];
    ac_cache_tally_t tally[CONTEXTS];
    ac_joins_t joins;
} caches_t;

static void free_held(ac_cache_t *cache, held_t *held) {
    uint64_t first = granule_of(held->address);
    for (uint64_t g = first; g < first + held->size / AC_GRANULE; g++)
        atomic_store(&owned[g], 0);
    if ((cache ? ac_cache_free(cache, held->address) : ac_block_free(held->address)) != AC_OK)
        wrong("free refused");
    free(held);
}

/* Submits work on the owner's block (NULL: on no block) to a context, as the hooks would. */
static void submit(ac_joins_t *joins, const held_t *held, int c, unsigned stream) {
    ac_timeline_t *timeline = ac_arena_timeline(arena[c]);
    if (ac_fence_full(timeline))
        ac_fence_close(timeline, atomic_load(&ac_fence_shared));
    uint64_t number;
    if (ordered) {
        ac_fence_enter(timeline);
        ac_sole_enter(timeline, key_of(stream), joins);
        number = fake_submit(&context[c]);
        if (streams && held)
            comes_after(held, stream, number);
        ac_fence_leave(timeline);
    } else {
        number = fake_submit(&context[c]);
        ac_fence_submitted(timeline);
    }
    uint64_t first = held ? granule_of(held->address) : 0;
    uint64_t end = held ? first + held->size / AC_GRANULE : 0;
    for (uint64_t g = first; g < end; g++)
        atomic_store(&busy_until[c][g], number);
}

static void close_cache(caches_t *caches, int c) {
    if (caches->cache[c])
        ac_cache_close(caches->cache[c]);
    caches->cache[c] = NULL;
}

/* Returns a cache most of the time. A cache lives for some hundred rounds. */
static ac_cache_t *cache_for(caches_t *caches, int c, uint64_t *state) {
    if (draw(state, 500) == 0)
        close_cache(caches, c);
    else if (!caches->cache[c])
        caches->cache[c] = ac_cache_open(arena[c], &caches->tally[c]);
    return draw(state, 4) ? caches->cache[c] : NULL;
}

static ac_status_t serve(ac_cache_t *cache, int c, uint64_t bytes, bool cached_only,
                         uint64_t *address) {
    unsigned module = (unsigned)(bytes / 512 % AC_MODULES);
    if (!cache)
        return ac_arena_alloc_for(arena[c], module, bytes, cached_only, address);
    ac_cache_ask_for(cache, module);
    return ac_cache_alloc(cache, bytes, cached_only, address);
}

static unsigned draw_stream(uint64_t *state) {
    return streams && draw(state, SECOND_EVERY) == 0;
}

static _Atomic unsigned long withdrawn;

static bool quarantine(ac_timeline_t *timeline, uint64_t until) {
    bool done = ac_arena_quarantine(timeline, until);
    atomic_fetch_add(&withdrawn, done);
    return done;
}

static void lose_no_backoff(ac_timeline_t *timeline) {
    ac_lock(&timeline->lock);
    timeline->single.backoff = 0;
    ac_unlock(&timeline->lock);
}

/* Gives work to the second stream while the program holds no block. Rounds may begin at the same time. */
static pthread_rwlock_t in_round = PTHREAD_RWLOCK_INITIALIZER;

static void second_works(caches_t *caches, uint64_t *state) {
    bool alone = draw(state, 2);
    lose_no_backoff(ac_arena_timeline(arena[0]));
    pthread_rwlock_wrlock(&in_round);
    for (int i = 0; i < SLOTS; i++) {
        held_t *held = atomic_exchange(&board[i], NULL);
        if (held)
            free_held(cache_for(caches, held->context, state), held);
    }
    if (!alone)
        pthread_rwlock_unlock(&in_round);
    submit(&caches->joins, NULL, 0, 1);
    if (alone)
        pthread_rwlock_unlock(&in_round);
}

static void one_round(caches_t *caches, uint64_t *state) {
    int c = (int)draw(state, contexts);
    ac_cache_t *cache = cache_for(caches, c, state);
    held_t *held = malloc(sizeof *held);
    /* Half of the sizes repeat, and one repeats often enough to fill its slabs. */
    uint64_t bytes = (uint64_t)1 << draw(state, ordered ? 24 : 21);
    if (draw(state, 2))
        bytes += draw(state, 4096);
    if (draw(state, 3) == 0)
        bytes = AC_SLAB_LARGEST;
    ac_block_info_t info;
    if (!held || serve(cache, c, bytes, draw(state, 8) == 0, &held->address) != AC_OK) {
        atomic_fetch_add(&refused, 1);
        free(held);
        held = NULL;
        sched_yield();
    } else {
        atomic_fetch_add(&served, 1);
        if (ac_block_find(held->address, &info) != AC_OK || info.address != held->address)
            wrong("block not found");
        held->size = info.size;
        take_granules(held);
        held->context = c;
        if (draw(state, 3) == 0) /* shared across contexts: any context may work on it */
            submit(&caches->joins, held, (int)draw(state, contexts), draw_stream(state));
    }
    held = atomic_exchange(&board[draw(state, SLOTS)], held);
    if (!held)
        return;
    if (draw(state, 4) == 0)
        submit(&caches->joins, held, (int)draw(state, contexts), draw_stream(state));
    free_held(cache_for(caches, held->context, state), held);
}

/* Returns true if the run has exercised the rule. On a busy machine a suspended thread, the device's or a
 * capturing one, makes the others' requests fail meanwhile: the run then goes on. */
static bool streams_mattered(void) {
    pthread_mutex_lock(&device.lock);
    unsigned joins = context[0].join_events;
    pthread_mutex_unlock(&device.lock);
    ac_lock(&allocator->lock);
    uint64_t fenced = counters.fenced_frees;
    ac_unlock(&allocator->lock);
    return (joins || atomic_load(&withdrawn)) && atomic_load(&relied) && fenced;
}

static bool seen_enough(void) {
    return atomic_load(&served) >= rounds && (!streams || streams_mattered());
}

static void *worker(void *arg) {
    enum { MOST = 100 };
    uint64_t state = 0x9e3779b97f4a7c15u * (uint64_t)(uintptr_t)arg;
    caches_t caches = {.cache = {NULL}};
    for (unsigned long i = 0; i < MOST * rounds && !atomic_load(&errors); i++) {
        if (i >= rounds && seen_enough())
            break;
        pthread_rwlock_rdlock(&in_round);
        one_round(&caches, &state);
        pthread_rwlock_unlock(&in_round);
        if (streams && draw(&state, SECOND_EVERY * 4) == 0)
            second_works(&caches, &state);
    }
    for (int c = 0; c < CONTEXTS; c++)
        close_cache(&caches, c);
    return NULL;
}

static void *completer(void *arg) {
    uint64_t state = 4711;
    (void)arg;
    while (!atomic_load(&over)) {
        fake_context_t *c = &context[draw(&state, contexts)];
        uint64_t open = atomic_load(&c->submitted) - atomic_load(&c->completed);
        if (open)
            fake_complete(c, atomic_load(&c->completed) + 1 + draw(&state, open));
        sched_yield();
    }
    return NULL;
}

static void *meddler(void *arg) {
    uint64_t state = 42;
    (void)arg;
    while (!atomic_load(&over)) {
        int c = (int)draw(&state, contexts);
        ac_device_stats_t now;
        uint64_t clock;
        const char *why = NULL;
        switch (draw(&state, 12)) {
        case 0:
            ac_allocator_trim(allocator, draw(&state, 2));
            break;
        case 1:
            clock = ac_fence_stamp();
            if (fake_ops.synchronize(&context[c], 0) == AC_OK)
                ac_fence_synced(ac_arena_timeline(arena[c]), clock);
            break;
        case 2:
            ac_fence_capture_begin(NULL);
            atomic_store(&context[c].capturing, true);
            ac_fence_capture_began();
            sched_yield();
            atomic_store(&context[c].capturing, false);
            break;
        case 3:
            ac_allocator_stats(allocator, &now);
            break;
        case 4:
            ac_allocator_idle_bytes(allocator);
            break;
        case 5:
            if (ac_allocator_check(allocator, &why))
                wrong(why);
            break;
        case 6:
            ac_allocator_reset_peak(allocator);
            break;
        case 7:
            settings.thread_cache = draw(&state, 3) * 2 * MIB;
            settings.divisions[0] = draw(&state, 4) ? 0 : 4;
            ac_allocator_configure(allocator, &settings);
            break;
        case 8:
            if (draw(&state, 2))
                ac_allocator_drop_records(allocator);
            else
                ac_allocator_decay(allocator, 1);
            break;
        case 9: /* as a request about to fail does, with no thread kept out of its cache */
            ac_lock(&allocator->lock);
            if (!arena[c]->dead)
                ac_slabs_dissolve(&arena[c]->space);
            ac_unlock(&allocator->lock);
            break;
        case 10: /* otherwise memory would soon wait for fences alone */
            lose_no_backoff(ac_arena_timeline(arena[c]));
            break;
        default:
            ac_fence_poll(ac_arena_timeline(arena[c]), true);
        }
        sched_yield();
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t thread[THREADS], other[2];
    const char *why = NULL;
    if (argc > 1)
        rounds = strtoul(argv[1], NULL, 10);
    streams = argc > 2 && strstr(argv[2], "streams");
    ordered = streams || (argc > 2 && strstr(argv[2], "ordered"));
    if (ordered || (argc > 2 && strstr(argv[2], "alone")))
        contexts = 1;
    atomic_store(&ac_sole_wanted, ordered);
    atomic_store(&ac_sole_eager, argc > 2 && strstr(argv[2], "rely"));
    settings = fake_settings("thread_cache_mb:2,large_segment_size_mb:4");
    settings.page = settings.small_page = AC_SEGMENT_ALIGN;
    if (ordered)
        settings.limit = 64 * MIB; /* little more than is in use: pages have to move */
    settings.expandable_segments = argc > 2 && strstr(argv[2], "pages");
    fake_device_init(&device, CAPACITY);
    device.freeing = leaving;
    device.turned = streams ? turned : NULL;
    allocator = ac_allocator_create(&settings, &stats, &counters);
    for (int c = 0; c < CONTEXTS; c++) {
        fake_context_init(&context[c], &device);
        arena[c] = ac_arena_create(allocator, &fake_ops, &context[c]);
        ac_arena_timeline(arena[c])->quarantine = quarantine;
    }
    if (contexts > 1)
        ac_fence_share();
    pthread_create(&other[0], NULL, completer, NULL);
    pthread_create(&other[1], NULL, meddler, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&thread[i], NULL, worker, (void *)(uintptr_t)(i + 1));
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    atomic_store(&over, true);
    pthread_join(other[0], NULL);
    pthread_join(other[1], NULL);

    for (int i = 0; i < SLOTS; i++)
        if (board[i])
            free_held(NULL, board[i]);
    ac_allocator_trim(allocator, true);
    if (ac_allocator_check(allocator, &why) || device.wrong)
        wrong(why ? why : device.wrong);
    if (stats.reserved_bytes[AC_POOL_ALL].current || device.used)
        wrong("memory is left over");
    if (streams && !streams_mattered())
        wrong("the streams did not matter");
    if (atomic_load(&served) < rounds)
        wrong("hardly anything was served");
    for (int c = 0; c < CONTEXTS; c++) {
        fake_context_kill(&context[c]);
        ac_arena_drop(arena[c]);
        ac_expand_bury(arena[c]);
    }
    if (device.live_pages || device.live_mappings || fake_reserved_bytes(&device))
        wrong("pages are left over");
    if (device.live_fences)
        wrong("fences are left over");
    printf("stress: %lu served, %lu refused, %u waits and %lu quarantines, %lu errors\n",
           atomic_load(&served), atomic_load(&refused), context[0].join_events,
           atomic_load(&withdrawn), atomic_load(&errors));
    return atomic_load(&errors) != 0;
}
