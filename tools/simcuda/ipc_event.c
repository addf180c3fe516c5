/* Events for several processes: cuEventCreate with CU_EVENT_INTERPROCESS, cuIpcGetEventHandle,
 * cuIpcOpenEventHandle.  Global lock.
 *
 * A record takes a number, the ticket, when it is submitted.  The ticket comes from the register of
 * the process that made the event.  The record marks its ticket complete there when it completes.
 * A wait refers to the newest ticket at the time of the call.  If this process took that ticket,
 * the wait is an edge to the record, as for other events.  Otherwise the wait polls the register
 * until the ticket is complete, as a wait for a value in memory does.
 *
 * Approximation: an old ticket that SIM_SHARE_TICKETS newer ones followed has lost its place.  It
 * counts as complete when the ticket in its place is complete.  A record by a process that ended
 * counts as complete, because its work ended.
 *
 * With clock:virtual each process has a clock of its own.  Work of another process advances only
 * while that process makes driver calls.
 *
 * Guesses: guesses.def has the errors.  One more needs two processes to observe: an event that its
 * maker destroyed is complete for others. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ipc_share.h"
#include "race.h"
#include "state.h"

#define MAGIC 0x3176706961647563ull

enum { ASK_EVERY = 256 }; /* polls of a ticket between two checks of its process */

/* Target of event->shared; records and waits under way hold references to it, too. */
typedef struct {
    unsigned refs;
    sim_peer_t *peer; /* made it; NULL: this process */
    sim_share_event_t *slot;
    uint64_t id;
    uint64_t looks;
    uint64_t cookie; /* of the process that made it */
} shared_t;

typedef struct {
    shared_t *shared;
    uint64_t ticket;
} payload_t;

static uint64_t live;

static void unref(shared_t *shared) {
    if (--shared->refs)
        return;
    if (shared->peer)
        sim_peer_close(shared->peer);
    free(shared);
}

static void release(void *payload) {
    unref(((payload_t *)payload)->shared);
}

static bool same_event(const shared_t *shared) {
    return atomic_load(&shared->slot->id) == shared->id;
}

/* ---- tickets ---- */

static uint64_t newest(const shared_t *shared) {
    return same_event(shared) ? atomic_load(&shared->slot->last) : 0;
}

/* Returns 0 if the event is gone: a record of it is then invisible to other processes. */
static uint64_t ticket_take(const shared_t *shared) {
    if (!same_event(shared))
        return 0;
    uint64_t number = atomic_fetch_add(&shared->slot->last, 1) + 1;
    sim_ticket_t *ticket = &shared->slot->ticket[number % SIM_SHARE_TICKETS];
    atomic_store(&ticket->pid, getpid());
    atomic_store(&ticket->state, number * 2);
    return number;
}

static void ticket_done(const shared_t *shared, uint64_t number) {
    sim_ticket_t *ticket = &shared->slot->ticket[number % SIM_SHARE_TICKETS];
    unsigned long long pending = number * 2;
    if (same_event(shared)) /* a later ticket in its place goes on */
        atomic_compare_exchange_strong(&ticket->state, &pending, pending + 1);
}

static bool ticket_is_done(shared_t *shared, uint64_t number) {
    sim_ticket_t *ticket = &shared->slot->ticket[number % SIM_SHARE_TICKETS];
    if (!same_event(shared))
        return true;
    uint64_t state = atomic_load(&ticket->state);
    if (state > number * 2 && state % 2)
        return true;
    return ++shared->looks % ASK_EVERY == 0 && state >= number * 2 &&
           !sim_process_runs(atomic_load(&ticket->pid));
}

/* ---- records and waits as work ---- */

static CUresult record_done(sim_work_t *work) {
    const payload_t *payload = SIM_PAYLOAD(work, payload_t);
    ticket_done(payload->shared, payload->ticket);
    return CUDA_SUCCESS;
}

static void record_release(void *payload) {
    const payload_t *record = payload;
    ticket_done(record->shared, record->ticket); /* the item was refused before */
    release(payload);
}

static bool wait_over(sim_work_t *work) {
    const payload_t *payload = SIM_PAYLOAD(work, payload_t);
    return ticket_is_done(payload->shared, payload->ticket);
}

/* Records run even in a broken context, so that they do not block another process. */
static const sim_work_ops_t record_ops = {.name = "record",
                                          .type = SIM_WORK_RECORD,
                                          .flags = SIM_RUN_ALWAYS,
                                          .run = record_done,
                                          .release = record_release};
static const sim_work_ops_t wait_ops = {.name = "wait",
                                        .type = SIM_WORK_WAIT,
                                        .flags = SIM_RUN_GATED,
                                        .ready = wait_over,
                                        .release = release};

static sim_work_t *work_of(const sim_work_ops_t *ops, CUcontext ctx, shared_t *shared,
                           uint64_t ticket) {
    sim_work_t *work = sim_work_new(ops, ctx, sizeof(payload_t));
    if (work) {
        *SIM_PAYLOAD(work, payload_t) = (payload_t){shared, ticket};
        shared->refs++;
    }
    return work;
}

sim_work_t *sim_ipc_record_work(CUcontext ctx, CUevent event) {
    shared_t *shared = event->shared;
    sim_work_t *work = work_of(&record_ops, ctx, shared, 0);
    if (work)
        SIM_PAYLOAD(work, payload_t)->ticket = ticket_take(shared);
    return work;
}

void sim_ipc_event_recorded(CUevent event) {
    const payload_t *record = SIM_PAYLOAD(event->work, payload_t);
    if (sim_race_on && record->ticket)
        sim_shared_covered(event->work, record->shared->cookie, record->shared->id,
                           record->ticket);
}

/* Returns the newest record if this process made it. */
static sim_work_t *own_record(CUevent event, uint64_t ticket) {
    sim_work_t *work = event->work;
    return work && ticket && SIM_PAYLOAD(work, payload_t)->ticket == ticket ? work : NULL;
}

/* Makes an item without a stream, which completes when the register marks the record
 * complete. */
bool sim_ipc_event_before(CUcontext ctx, CUevent event, sim_work_t **out) {
    shared_t *shared = event->shared;
    uint64_t ticket = newest(shared);
    *out = sim_work_ref(own_record(event, ticket));
    if (!ticket || *out)
        return true;
    *out = work_of(&wait_ops, ctx, shared, ticket);
    if (!*out)
        return false;
    if (sim_race_on)
        sim_shared_after(*out, shared->cookie, shared->id, ticket);
    sim_work_submit(*out);
    return true;
}

CUresult sim_ipc_event_wait(CUevent event) {
    CUcontext ctx = event->ctx;
    sim_work_t *before;
    if (!sim_ipc_event_before(ctx, event, &before))
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_wait(before);
    sim_work_unref(before);
    sim_pool_synced();
    return ctx->sticky;
}

CUresult sim_ipc_event_query(CUevent event) {
    uint64_t ticket = newest(event->shared);
    sim_work_t *record = own_record(event, ticket);
    bool done = record ? sim_is_done(record) : !ticket || ticket_is_done(event->shared, ticket);
    CUcontext ctx = event->ctx;
    if (ctx->sticky)
        return ctx->sticky;
    if (!done)
        return CUDA_ERROR_NOT_READY;
    return record ? CUDA_SUCCESS : sim_ipc_event_wait(event); /* which ends at once */
}

/* ---- life of an event ---- */

static shared_t *shared_new(sim_share_event_t *slot, uint64_t id, sim_peer_t *peer) {
    shared_t *shared = calloc(1, sizeof *shared);
    if (!shared)
        return NULL;
    *shared = (shared_t){.refs = 1,
                         .peer = peer,
                         .slot = slot,
                         .id = id,
                         .cookie = peer ? peer->cookie : sim_share->cookie};
    live++; /* ends with the event, even if others keep it */
    return shared;
}

bool sim_ipc_event_new(CUevent event) {
    size_t at = 0;
    if (!sim_share_start())
        return false;
    while (at < SIM_SHARE_EVENTS && atomic_load(&sim_share->event[at].id))
        at++;
    if (at == SIM_SHARE_EVENTS)
        return false;
    sim_share_event_t *slot = &sim_share->event[at];
    event->shared = shared_new(slot, event->object.id, NULL);
    if (!event->shared)
        return false;
    atomic_store(&slot->last, 0);
    for (size_t i = 0; i < SIM_SHARE_TICKETS; i++)
        atomic_store(&slot->ticket[i].state, 0);
    atomic_store(&slot->id, event->object.id);
    return true;
}

void sim_ipc_event_gone(CUevent event) {
    shared_t *shared = event->shared;
    if (!shared->peer)
        atomic_store(&shared->slot->id, 0);
    unref(shared);
    event->shared = NULL;
    live--;
}

SIM_API(cuIpcGetEventHandle)(CUipcEventHandle *out, CUevent handle) {
    CUevent event;
    CUresult result = sim_event_get(handle, &event);
    if (result)
        return result;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    const shared_t *shared = event->shared;
    if (!shared || shared->peer)
        return CUDA_ERROR_INVALID_HANDLE;
    sim_token_t token = {.id = shared->id,
                         .slot = (uint16_t)(shared->slot - sim_share->event),
                         .device = (uint8_t)event->ctx->device};
    sim_token_seal(&token, MAGIC);
    memset(out, 0, sizeof *out);
    memcpy(out, &token, sizeof token);
    return CUDA_SUCCESS;
}

static CUresult open_event(const sim_token_t *token, CUcontext ctx, CUevent *out) {
    sim_peer_t *peer;
    CUresult result = sim_peer_open(token, &peer);
    if (result)
        return result;
    sim_share_event_t *slot = &peer->share->event[token->slot];
    CUevent event = NULL;
    if (atomic_load(&slot->id) != token->id)
        result = CUDA_ERROR_INVALID_HANDLE;
    else if (!(event = sim_slab_take(&sim_events)) ||
             !(event->shared = shared_new(slot, token->id, peer)))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result) {
        if (event)
            sim_slab_give(&sim_events, event);
        sim_peer_close(peer);
        return result;
    }
    event->ctx = ctx;
    event->flags = CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    *out = event;
    return CUDA_SUCCESS;
}

SIM_API(cuIpcOpenEventHandle)(CUevent *out, CUipcEventHandle handle) {
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result)
        return result;
    sim_token_t token;
    if (!out || !sim_token_read(&token, &handle, MAGIC) || token.slot >= SIM_SHARE_EVENTS)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_share && token.cookie == sim_share->cookie)
        return CUDA_ERROR_INVALID_CONTEXT;
    result = sim_device_check(token.device);
    return result ? result : open_event(&token, sim_ctx_home(ctx), out);
}

SIM_LIVE_COUNT(shared_events) {
    return live;
}
