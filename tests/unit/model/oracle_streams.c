/* The oracle's streams (oracle.h): which stream may reuse freed memory before the work on it is
 * done. For each hazard the oracle knows the streams and events that come after its work. */
#include <string.h>

#include "oracle.h"

static ac_arena_t *arena_of(int slot) {
    return oracle.arena[slot];
}

static uint64_t event_name(int slot, int event) {
    return 1000 + (uint64_t)(slot * ORACLE_EVENTS + event);
}

void oracle_ordered(fake_context_t *context, uint64_t from, uint64_t to) {
    for (unsigned i = 0; i < oracle.hazards; i++) {
        oracle_hazard_t *h = &oracle.hazard[i];
        if (oracle.context[h->slot] != context)
            continue;
        unsigned first = (unsigned)((from - oracle_key(h->slot, 0)) / 4);
        unsigned second = (unsigned)((to - oracle_key(h->slot, 0)) / 4);
        h->streams |= (h->streams >> first & 1) << second;
    }
}

void oracle_alloc_on(bool cached_only) {
    int slot = (int)oracle_draw(ORACLE_CONTEXTS);
    oracle_request(slot, (int)oracle_draw(ORACLE_STREAMS), cached_only);
}

/* Frees a block. The program has ordered the stream after all uses of it. */
void oracle_free_on(void) {
    oracle_hazard_t hazard;
    if (!oracle.lives)
        return;
    oracle_live_t live = oracle_give_up(&hazard);
    int slot = live.slot, stream = (int)oracle_draw(ORACLE_STREAMS);
    uint64_t key = oracle_key(slot, stream);
    hazard.streams = 1u << stream;
    oracle.hazard[oracle.hazards++] = hazard;
    if (ac_block_free_on(arena_of(slot), key, live.address) != AC_OK)
        oracle_wrong("step %u: free refused", oracle.step);
    if (stream % 2 && !ac_arena_stream_asked(arena_of(slot), key))
        ac_arena_stream_is(arena_of(slot), key, true);
}

void oracle_record(void) {
    int slot = (int)oracle_draw(ORACLE_CONTEXTS), stream = (int)oracle_draw(ORACLE_STREAMS);
    unsigned event = (unsigned)oracle_draw(ORACLE_EVENTS);
    bool good = oracle_draw(8) != 0; /* otherwise the event's content is unknown */
    ac_edge_t edge;
    ac_edge_record_begin(&edge, arena_of(slot), event_name(slot, (int)event),
                         oracle_key(slot, stream));
    ac_edge_record_end(&edge, good);
    for (unsigned i = 0; i < oracle.hazards; i++) {
        oracle_hazard_t *h = &oracle.hazard[i];
        if (h->slot != slot)
            continue;
        h->events &= ~(1u << event);
        if (good)
            h->events |= (h->streams >> stream & 1) << event;
    }
}

void oracle_wait_event(void) {
    int slot = (int)oracle_draw(ORACLE_CONTEXTS), stream = (int)oracle_draw(ORACLE_STREAMS);
    unsigned event = (unsigned)oracle_draw(ORACLE_EVENTS);
    ac_edge_t edge;
    ac_edge_of_event(&edge, arena_of(slot), event_name(slot, (int)event));
    for (unsigned i = 0; i < oracle.hazards; i++)
        if (oracle.hazard[i].slot == slot)
            oracle.hazard[i].streams |= (oracle.hazard[i].events >> event & 1) << stream;
    ac_edge_joined(&edge, oracle_key(slot, stream));
}

/* The host saw the event complete, so the work that it covers is complete. */
void oracle_event_seen(void) {
    int slot = (int)oracle_draw(ORACLE_CONTEXTS);
    unsigned event = (unsigned)oracle_draw(ORACLE_EVENTS);
    ac_edge_t edge;
    if (atomic_load(&oracle.context[slot]->capturing))
        return;
    ac_edge_of_event(&edge, NULL, event_name(slot, (int)event));
    for (unsigned i = 0; i < oracle.hazards; i++) {
        oracle_hazard_t *h = &oracle.hazard[i];
        for (int c = 0; c < ORACLE_CONTEXTS && h->slot == slot && h->events >> event & 1; c++)
            if (h->need[c])
                fake_complete(oracle.context[c], h->need[c]);
    }
    ac_edge_completed(&edge);
}

void oracle_stream_gone(void) {
    int slot = (int)oracle_draw(ORACLE_CONTEXTS), stream = (int)oracle_draw(ORACLE_STREAMS);
    ac_arena_stream_gone(arena_of(slot), oracle_key(slot, stream));
    for (unsigned i = 0; i < oracle.hazards; i++)
        if (oracle.hazard[i].slot == slot)
            oracle.hazard[i].streams &= ~(1u << stream);
}
