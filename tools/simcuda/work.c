/* The scheduler: work items, their dependencies, and completing them in time order.
 *
 * Invariant: an item is in the heap exactly while it is QUEUED (all dependencies complete, not yet
 * run).  The heap is ordered by (done, seq), so that runs with the virtual clock repeat.  Items
 * without duration and effect complete at once when they become ready.  The global lock is held
 * throughout; it is dropped while UNLOCKED items run. */
#include <stdlib.h>
#include <string.h>

#include "race.h"
#include "state.h"
#include "tsan.h"

size_t sim_pending, sim_effects;

static sim_work_t **heap;
static size_t heap_count, heap_room;
static sim_work_t *gated;                  /* due, but not ready() yet; list by next */
static sim_work_t *host_first, *host_last; /* host functions to run; list by next */
static uint64_t last_seq, live;
static uint64_t launches, faulty_launch;

const sim_work_ops_t sim_mark_ops = {.name = "mark", .type = SIM_WORK_MARK};
const sim_work_ops_t sim_wait_ops = {.name = "wait", .type = SIM_WORK_WAIT};

enum { TIDY_EVERY = 64 };

static bool execute(sim_work_t *work);

/* ---- heap ---- */

static bool earlier(const sim_work_t *a, const sim_work_t *b) {
    return a->done != b->done ? a->done < b->done : a->seq < b->seq;
}

static void heap_put(size_t at, sim_work_t *work) {
    heap[at] = work;
    work->heap_at = at;
}

static void heap_up(size_t at, sim_work_t *work) {
    while (at && earlier(work, heap[(at - 1) / 2])) {
        heap_put(at, heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    heap_put(at, work);
}

static sim_work_t *heap_pop(void) {
    sim_work_t *top = heap[0], *moved = heap[--heap_count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= heap_count)
            break;
        if (child + 1 < heap_count && earlier(heap[child + 1], heap[child]))
            child++;
        if (!earlier(heap[child], moved))
            break;
        heap_put(at, heap[child]);
        at = child;
    }
    if (heap_count)
        heap_put(at, moved);
    return top;
}

/* ---- items ---- */

sim_work_t *sim_work_new(const sim_work_ops_t *ops, CUcontext ctx, size_t payload_bytes) {
    sim_work_t *work = calloc(1, sizeof *work + payload_bytes);
    if (!work)
        return NULL;
    live++;
    work->ops = ops;
    work->refs = 1;
    work->ctx = ctx;
    work->ctx_id = ctx ? ctx->object.id : 0;
    work->payload_bytes = payload_bytes;
    return work;
}

sim_work_t *sim_work_ref(sim_work_t *work) {
    if (work)
        work->refs++;
    return work;
}

void sim_work_unref(sim_work_t *work) {
    if (!work || --work->refs)
        return;
    if (work->ops->release)
        work->ops->release(work->payload);
    for (size_t i = 0; i < work->dependent_count; i++)
        sim_work_unref(work->dependents[i]);
    if (work->op)
        sim_race_forget(work);
    free(work->dependents);
    free(work->accesses);
    free(work);
    live--;
}

bool sim_work_touches(sim_work_t *work, uint64_t address, uint64_t length, bool write) {
    if (work->access_count == work->access_room) {
        size_t room = work->access_room ? 2 * work->access_room : 2;
        sim_access_t *grown = realloc(work->accesses, room * sizeof *grown);
        if (!grown)
            return false;
        work->accesses = grown;
        work->access_room = room;
    }
    work->accesses[work->access_count++] = (sim_access_t){address, length, write};
    return true;
}

sim_work_t *sim_work_clone(const sim_work_t *work) {
    sim_work_t *copy = sim_work_new(work->ops, work->ctx, work->payload_bytes);
    if (!copy)
        return NULL;
    copy->duration = work->duration;
    copy->label = work->label;
    memcpy(copy->payload, work->payload, work->payload_bytes);
    if (work->ops->clone && !work->ops->clone(copy->payload, work->payload)) {
        free(copy);
        live--;
        return NULL;
    }
    for (size_t i = 0; i < work->access_count; i++) {
        const sim_access_t *access = &work->accesses[i];
        if (!sim_work_touches(copy, access->address, access->length, access->write)) {
            sim_work_unref(copy);
            return NULL;
        }
    }
    copy->programmatic = work->programmatic;
    if (sim_race_on)
        sim_race_clone(copy, work);
    return copy;
}

static bool depend(sim_work_t *work, sim_work_t *before) {
    if (before->state == SIM_DONE) {
        if (before->done > work->start)
            work->start = before->done;
        return true;
    }
    if (before->dependent_count && before->dependents[before->dependent_count - 1] == work)
        return true; /* added twice in a row: stream order and an event often agree */
    if (before->dependent_count == before->dependent_room) {
        size_t room = before->dependent_room ? 2 * before->dependent_room : 2;
        sim_work_t **grown = realloc(before->dependents, room * sizeof *grown);
        if (!grown)
            return false;
        before->dependents = grown;
        before->dependent_room = room;
    }
    before->dependents[before->dependent_count++] = sim_work_ref(work);
    work->pending++;
    return true;
}

bool sim_work_after(sim_work_t *work, sim_work_t *before) {
    if (!before || before == work)
        return true;
    if (sim_race_on)
        sim_race_after(work, before);
    return depend(work, before);
}

bool sim_work_after_start(sim_work_t *work, sim_work_t *before) {
    if (sim_race_on)
        sim_race_after_start(work, before);
    return depend(work, before);
}

/* ---- life of an item ---- */

/* Puts the item into the heap, or onto `*list` of items that complete at once. */
static void make_ready(sim_work_t *work, sim_work_t **list) {
    if (work->start < work->submitted)
        work->start = work->submitted;
    work->done = work->start + work->duration;
    bool instant = !work->ops->run && !work->ops->ready && !work->access_count &&
                   work->ops->type != SIM_WORK_KERNEL;
    if (instant && work->done <= sim_now()) {
        work->next = *list;
        *list = work;
        return;
    }
    if (heap_count == heap_room) {
        size_t room = heap_room ? 2 * heap_room : 256;
        sim_work_t **grown = realloc(heap, room * sizeof *grown);
        if (!grown) { /* no memory: the item completes as if it took no time */
            work->next = *list;
            *list = work;
            return;
        }
        heap = grown;
        heap_room = room;
    }
    work->state = SIM_QUEUED;
    heap_up(heap_count++, work);
    sim_clock_kick(work->done, sim_effects > 0);
}

/* Completes the items of the list, and items that become ready and take no time. */
static void complete(sim_work_t *list) {
    while (list) {
        sim_work_t *work = list;
        list = work->next;
        work->next = NULL;
        work->state = SIM_DONE;
        sim_pending--;
        if (work->ops->run)
            sim_effects--;
        if (sim_race_on)
            sim_race_done(work);
        if (sim_order_on)
            sim_order_note(work);
        for (size_t i = 0; i < work->dependent_count; i++) {
            sim_work_t *after = work->dependents[i];
            if (after->start < work->done)
                after->start = work->done;
            if (--after->pending == 0 && after->state == SIM_BLOCKED)
                make_ready(after, &list);
            sim_work_unref(after);
        }
        work->dependent_count = 0;
        sim_work_unref(work);
    }
    sim_clock_done();
}

/* Completes due items without effect.  Unlike sim_pump this never drops the lock, so any body may
 * call it.  It prevents a program that launches without end from filling the memory. */
static void tidy(uint64_t now) {
    while (heap_count && heap[0]->done <= now && !heap[0]->ops->run && !heap[0]->ops->ready) {
        sim_work_t *work = heap_pop();
        execute(work);
        complete(work);
    }
}

void sim_work_submit(sim_work_t *work) {
    if (sim_self)
        sim_self->polls = 0;
    work->seq = ++last_seq;
    work->submitted = sim_now();
    if (sim_race_on)
        sim_race_submit(work);
    /* While the item is NEW, dependencies that end here only count down. */
    if (work->seq % TIDY_EVERY == 0 && !sim_config.virtual_clock)
        tidy(work->submitted);
    work->state = SIM_BLOCKED;
    sim_work_ref(work);
    sim_pending++;
    if (work->ops->run)
        sim_effects++;
    if (work->pending) {
        if (work->ops->run)
            sim_clock_kick(sim_next_due(), true);
        return;
    }
    sim_work_t *list = NULL;
    make_ready(work, &list);
    if (list)
        complete(list);
}

static void fault_context(CUcontext ctx, uint64_t id, CUresult error) {
    if (ctx && ctx->object.id == id && !ctx->sticky)
        ctx->sticky = error;
}

void sim_work_faults(uint64_t nth) {
    faulty_launch = nth ? launches + nth : 0;
}

static bool context_gone(const sim_work_t *work) {
    const sim_context_t *ctx = work->ctx;
    return ctx && (ctx->object.id != work->ctx_id || !ctx->active || ctx->sticky);
}

/* Returns true if the access reaches memory of all devices.  Only kernels can read a multicast
 * object, because they reduce the values. */
static bool reaches_all(const sim_work_t *work, const sim_access_t *access) {
    bool reads = !access->write && work->ops->type != SIM_WORK_KERNEL;
    return !(reads && sim_multicast_at(access->address)) &&
           sim_multicast_ready(access->address, access->length);
}

/* Finds the error of the item at the moment it takes effect. */
static CUresult judge(sim_work_t *work) {
    if (context_gone(work)) {
        work->failed = true;
        return CUDA_SUCCESS;
    }
    if (work->ops->type == SIM_WORK_KERNEL && ++launches == faulty_launch)
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    for (size_t i = 0; i < work->access_count; i++) {
        const sim_access_t *access = &work->accesses[i];
        if (!sim_range_ok(access->address, access->length, access->write)) {
            if (sim_race_on)
                sim_race_fault(work, access->address, access->length);
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        }
        if (sim_multicast_mapped && !reaches_all(work, access)) {
            if (sim_race_on)
                sim_race_fault(work, access->address, access->length);
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        }
        if (work->ops->type == SIM_WORK_KERNEL &&
            !sim_reaches(work->ctx, access->address, access->length, access->write))
            return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    return CUDA_SUCCESS;
}

/* Returns true for work of the device, false for host functions and the simulator's own
 * items. */
static bool is_device(const sim_work_t *work) {
    sim_work_type_t type = work->ops->type;
    return type == SIM_WORK_KERNEL || type == SIM_WORK_COPY || type == SIM_WORK_FILL ||
           type == SIM_WORK_WRITE_VALUE || type == SIM_WORK_WAIT_VALUE;
}

static CUresult run(sim_work_t *work) {
    bool device = is_device(work);
    if (device)
        SIM_DEVICE_BEGINS;
    CUresult error = work->ops->run(work);
    if (device)
        SIM_DEVICE_ENDS;
    return error;
}

static bool ready(sim_work_t *work) {
    SIM_DEVICE_BEGINS;
    bool is = work->ops->ready(work);
    SIM_DEVICE_ENDS;
    return is;
}

static void run_unlocked(sim_work_t *work) {
    sim_thread_t *self = sim_thread();
    if (sim_race_on && work->ops->flags & SIM_RUN_HOST)
        sim_race_reached(work);
    if (self)
        self->in_host_function = true;
    sim_clock_hand_over();
    sim_unlock();
    CUresult error = run(work);
    sim_lock();
    if (self)
        self->in_host_function = false;
    if (error)
        fault_context(work->ctx, work->ctx_id, error);
}

/* Executes the item; false if it takes effect later, in another thread. */
static bool execute(sim_work_t *work) {
    const sim_work_ops_t *ops = work->ops;
    work->state = SIM_RUNNING;
    CUresult error = judge(work);
    if (error) {
        fault_context(work->ctx, work->ctx_id, error);
        work->failed = true;
    }
    if (!ops->run || (work->failed && !(ops->flags & SIM_RUN_ALWAYS)))
        return true;
    if (ops->flags & SIM_RUN_HOST && sim_config.virtual_clock) {
        sim_clock_host_call(run_unlocked, work);
        return true;
    }
    if (ops->flags & SIM_RUN_HOST) {
        if (host_last)
            host_last->next = work;
        else
            host_first = work;
        host_last = work;
        sim_clock_host_kick();
        return false;
    }
    if (ops->flags & SIM_RUN_UNLOCKED) {
        run_unlocked(work);
    } else {
        if (sim_race_on)
            sim_race_enter(work);
        error = run(work);
        if (sim_race_on)
            sim_race_leave();
        if (error)
            fault_context(work->ctx, work->ctx_id, error);
    }
    return true;
}

sim_work_t *sim_host_take(void) {
    sim_work_t *work = host_first;
    if (work) {
        host_first = work->next;
        if (!host_first)
            host_last = NULL;
        work->next = NULL;
    }
    return work;
}

void sim_host_run(sim_work_t *work) {
    run_unlocked(work);
    uint64_t now = sim_now();
    if (work->done < now)
        work->done = now;
    complete(work);
}

static void finish_due(sim_work_t *work) {
    if (work->ops->ready && !context_gone(work) && !ready(work)) {
        work->state = SIM_RUNNING;
        work->next = gated;
        gated = work;
        return;
    }
    if (execute(work))
        complete(work);
}

static void retry_gated(void) {
    sim_work_t *list = gated;
    gated = NULL;
    while (list) {
        sim_work_t *work = list;
        list = work->next;
        work->next = NULL;
        if (!context_gone(work) && !ready(work)) {
            work->next = gated;
            gated = work;
            continue;
        }
        uint64_t now = sim_now();
        if (work->done < now)
            work->done = now;
        if (execute(work))
            complete(work);
    }
}

void sim_pump(uint64_t until) {
    if (gated)
        retry_gated();
    while (heap_count && heap[0]->done <= until) {
        finish_due(heap_pop());
        if (gated)
            retry_gated();
    }
}

void sim_pump_no_kernel(uint64_t until) {
    if (gated)
        retry_gated();
    while (heap_count && heap[0]->done <= until &&
           !(heap[0]->ops->run && heap[0]->ops->type == SIM_WORK_KERNEL)) {
        finish_due(heap_pop());
        if (gated)
            retry_gated();
    }
}

bool sim_pump_next(void) {
    if (gated)
        retry_gated();
    if (!heap_count)
        return false;
    finish_due(heap_pop());
    return true;
}

uint64_t sim_next_due(void) {
    return heap_count ? heap[0]->done : UINT64_MAX;
}

bool sim_has_gated(void) {
    return gated;
}

SIM_LIVE_COUNT(work) {
    return live;
}
