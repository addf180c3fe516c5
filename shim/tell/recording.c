/* Records of requests and frees (recording.h). */
#include "tell/recording.h"

#include <string.h>
#include <unistd.h>

#include "allocator/allocator.h"
#include "track/running.h"
#include "tell/unwind.h"
#include "observe/beside.h"
#include "observe/log.h"
#include "observe/phases.h"
#include "observe/raw.h"
#include "observe/recorded.h"
#include "observe/sites.h"

_Atomic bool ac_recording;

static ac_stacks_t stacks(void) {
    return ac_process_config()->stacks;
}

void ac_recording_start(void) {
    const ac_config_t *config = ac_process_config();
    size_t events = config->history ? (size_t)config->history : AC_HISTORY_USUAL;
    ac_history_size(events);
    ac_unwind_start();
    ac_recorded_start(config->stacks, ac_device_held);
    atomic_store(&ac_history_on, config->history != 0);
    atomic_store(&ac_recording, config->history || config->stacks != AC_STACKS_NONE);
}

static void note_begin(CUdevice device, ac_allocator_t *allocator, void *arg) {
    (void)allocator;
    (void)arg;
    ac_history_add(ac_history_of((unsigned)device), &(ac_event_t){.kind = AC_EVENT_BEGIN});
}

/* Growing the generation makes threads test again whether calls are recorded. */
void ac_recording_history(bool on) {
    bool records = on || stacks() != AC_STACKS_NONE, begins = on && !ac_history_is_on();
    /* Frees are not recorded in between: the addresses may belong to other blocks by now. A thread may add
     * a holding after the end, but not of a block that was freed after recording began again. */
    if (records && !atomic_load(&ac_recording))
        ac_holdings_clear();
    if (begins)
        ac_beside_untell();
    atomic_store(&ac_history_on, on);
    atomic_store(&ac_recording, records);
    ac_generation_grow();
    if (begins)
        ac_device_each(note_begin, NULL);
    if (!records)
        ac_holdings_clear();
}

void ac_recording_fork_child(void) {
    atomic_store(&ac_history_on, false);
    atomic_store(&ac_recording, false);
}

/* ------------------------------------------------------------------ samples */

/* Returns the number of sample points in the next `bytes` of the thread's requests. The requests lie end to
 * end on a line, which is divided into parts of AC_SAMPLE_BYTES. One point of each part is drawn at random.
 * Each point then stands for AC_SAMPLE_BYTES, at any position of the requests' ends. */
static uint64_t points(ac_recorder_t *recorder, uint64_t bytes) {
    const int64_t part = AC_SAMPLE_BYTES;
    uint64_t count = 0;
    if (!recorder->seed) {
        recorder->seed = (uint64_t)ac_raw_ns(CLOCK_MONOTONIC) | 1;
        recorder->until_sample = (int64_t)(recorder->seed % AC_SAMPLE_BYTES);
    }
    recorder->until_sample -= (int64_t)bytes;
    if (recorder->until_sample < -part) { /* each whole part in between has one point */
        count = (uint64_t)(-recorder->until_sample / part);
        recorder->until_sample += (int64_t)count * part;
    }
    while (recorder->until_sample <= 0) {
        uint64_t x = recorder->seed; /* xorshift */
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        int64_t before = (int64_t)(recorder->seed % AC_SAMPLE_BYTES);
        recorder->seed = x;
        recorder->until_sample += part - before + (int64_t)(x % AC_SAMPLE_BYTES);
        count++;
    }
    return count;
}

void ac_record_missed(ac_thread_t *thread) {
    thread->recorder.missed = true;
}

/* Returns the bytes that the request stands for; 0: it is no sample. */
static uint64_t sample(ac_recorder_t *recorder, uint64_t bytes) {
    bool missed = recorder->missed;
    recorder->missed = false;
    if (stacks() != AC_STACKS_SAMPLED)
        return 0;
    return missed ? bytes : points(recorder, bytes) * AC_SAMPLE_BYTES;
}

/* ------------------------------------------------------------------ stacks */

/* Ends a stack with the open phases of the thread; they take the place of the outermost frames of a deep one. */
static unsigned add_phases(uint64_t frame[AC_SITE_FRAMES], unsigned count) {
    uint64_t phase[AC_PHASES];
    unsigned phases = ac_phase_frames(phase, AC_PHASES);
    if (count > AC_SITE_FRAMES - phases)
        count = AC_SITE_FRAMES - phases;
    memcpy(frame + count, phase, phases * sizeof *frame);
    return count + phases;
}

static uint32_t stack_of(ac_thread_t *thread, const void *caller, bool whole) {
    uint64_t frame[AC_SITE_FRAMES];
    unsigned count = 0;
    if (whole)
        count = ac_unwind(thread, caller, frame);
    else if (caller)
        frame[count++] = ac_unwind_frame(caller);
    if (ac_has_phases())
        count = add_phases(frame, count);
    return ac_site_of(frame, count);
}

uint32_t ac_record_context(ac_thread_t *thread, const void *caller, const char *text) {
    uint64_t frame[AC_SITE_FRAMES + 1];
    uint32_t first = text ? ac_site_text(text) : 0;
    unsigned count = first != 0;
    frame[0] = ac_frame_text(first, 0);
    if (stacks() == AC_STACKS_ALL)
        count += ac_unwind(thread, caller, frame + count);
    return ac_site_of(frame, count < AC_SITE_FRAMES ? count : AC_SITE_FRAMES);
}

const char *ac_record_text(uint32_t stack) {
    ac_site_t site;
    if (!ac_site_get(stack, &site) || !(site.frame[0] & AC_FRAME_TEXT) ||
        site.frame[0] & UINT32_MAX)
        return NULL;
    return ac_site_text_of((uint32_t)((site.frame[0] & ~AC_FRAME_TEXT) >> 32));
}

/* Warns once that records are lost, because host memory or stack numbers are short. Requests and figures
 * stay correct. */
static void tell_what_is_lost(void) {
    if (__builtin_expect(ac_holdings_lost() || ac_sites_lost(), 0))
        ac_log_once(
            AC_LOG_WARNING,
            "host memory is short, or there are more than 65,536 stacks: who asked for some "
            "blocks "
            "is not recorded (lost_blocks, lost_stacks of the dump); all figures stay right");
}

/* Makes a system call only the first time. */
static uint32_t thread_id(ac_thread_t *thread) {
    if (!thread->recorder.tid)
        thread->recorder.tid = (uint32_t)ac_raw_gettid();
    return thread->recorder.tid;
}

/* Returns -1 if the address is not in a segment of the library. */
static int device_of(uint64_t address) {
    ac_arena_t *arena = ac_block_arena(address);
    const ac_cuda_context_t *context = arena ? ac_arena_context(arena) : NULL;
    return context ? context->device : -1;
}

/* ------------------------------------------------------------------ memory outside the cache */

/* Returns the device of the thread's context; -1: it has none, or the driver must not be called now. */
static int current_device(ac_thread_t *thread) {
    ac_context_t *context =
        atomic_load_explicit(&ac_state, memory_order_acquire) == AC_STATE_ACTIVE
            ? ac_context_of_stream(thread, NULL)
            : NULL;
    return context ? context->cuda.device : -1;
}

void ac_record_event(ac_thread_t *thread, ac_event_kind_t kind, int device, uint64_t address,
                     uint64_t bytes, const void *caller) {
    if (device == AC_CURRENT_DEVICE)
        device = current_device(thread);
    if (device < 0)
        return;
    caller = thread->asks_from ? thread->asks_from : caller;
    ac_history_add(ac_history_of((unsigned)device),
                   &(ac_event_t){.kind = (uint8_t)kind,
                                 .address = address,
                                 .bytes = bytes,
                                 .stack = stack_of(thread, caller, stacks() == AC_STACKS_ALL),
                                 .thread = thread_id(thread)});
}

/* ------------------------------------------------------------------ requests and frees */

uint32_t ac_record_alloc(ac_thread_t *thread, uint64_t address, uint64_t bytes, uint64_t stream,
                         const void *caller) {
    int device = device_of(address);
    uint64_t estimate = sample(&thread->recorder, bytes);
    if (device < 0) {
        ac_record_beside(thread, AC_EVENT_PASSED_ALLOC, address, bytes, caller);
        return 0;
    }
    ac_holding_t holding = {.address = address,
                            .bytes = bytes,
                            .time_ns = ac_raw_ns(CLOCK_REALTIME),
                            .stream = stream,
                            .estimate = estimate,
                            .thread = thread_id(thread),
                            .device = (uint8_t)device};
    holding.stack = stack_of(thread, thread->asks_from ? thread->asks_from : caller,
                             stacks() == AC_STACKS_ALL || holding.estimate);
    ac_site_count(holding.stack, bytes);
    ac_holding_put(&holding);
    tell_what_is_lost();
    ac_history_add(ac_history_of((unsigned)device), &(ac_event_t){.kind = AC_EVENT_ALLOC,
                                                                  .time_ns = holding.time_ns,
                                                                  .address = address,
                                                                  .bytes = bytes,
                                                                  .stream = stream,
                                                                  .stack = holding.stack,
                                                                  .thread = holding.thread});
    return holding.stack;
}

void ac_record_asked(uint64_t address, const void *caller) {
    if (stacks() != AC_STACKS_ALL)
        ac_holding_rename(address, stack_of(NULL, caller, false));
}

uint32_t ac_record_free(ac_thread_t *thread, uint64_t address, uint64_t stream,
                        const void *caller) {
    ac_holding_t freed;
    int device = device_of(address);
    bool listed = ac_history_is_on() && device >= 0;
    if (!ac_holding_take(address, &freed))
        freed = (ac_holding_t){.address = 0};
    /* Reading an interpreter's frames may run code that frees on this thread. That free comes through this
     * function too. Therefore `freeing` is set afterwards. */
    uint32_t stack = listed ? stack_of(thread, thread->frees_for ? thread->frees_for : caller,
                                       stacks() == AC_STACKS_ALL)
                            : 0;
    if (device < 0)
        ac_record_beside(thread, AC_EVENT_PASSED_FREE, address, 0,
                         thread->frees_for ? thread->frees_for : caller);
    thread->recorder.freeing = freed;
    if (!listed)
        return 0;
    ac_history_add(ac_history_of((unsigned)device), &(ac_event_t){.kind = AC_EVENT_FREE,
                                                                  .address = address,
                                                                  .bytes = freed.bytes,
                                                                  .stream = stream,
                                                                  .stack = stack,
                                                                  .thread = thread_id(thread)});
    return stack;
}

void ac_record_refused(ac_thread_t *thread, uint64_t address) {
    int device = device_of(address);
    if (thread->recorder.freeing.address == address)
        ac_holding_put(&thread->recorder.freeing);
    thread->recorder.freeing.address = 0;
    if (device < 0)
        ac_record_beside(thread, AC_EVENT_REFUSED, address, 0, NULL);
    else
        ac_history_add(ac_history_of((unsigned)device),
                       &(ac_event_t){.kind = AC_EVENT_REFUSED,
                                     .address = address,
                                     .thread = thread_id(thread)});
}

uint32_t ac_record_oom(ac_thread_t *thread, int device, uint64_t bytes, uint64_t available,
                       const void *caller) {
    if (!atomic_load_explicit(&ac_recording, memory_order_relaxed))
        return 0;
    uint32_t stack = stack_of(thread, thread->asks_from ? thread->asks_from : caller,
                              stacks() != AC_STACKS_NONE);
    thread->recorder.missed = false;
    ac_history_add(ac_history_of((unsigned)device),
                   &(ac_event_t){.kind = AC_EVENT_OOM,
                                 .address = available == UINT64_MAX ? 0 : available,
                                 .bytes = bytes,
                                 .stack = stack,
                                 .thread = thread_id(thread)});
    return stack;
}

static bool is_of(const ac_holding_t *holding, const void *arena) {
    return ac_block_arena(holding->address) == arena;
}

static void note_gone(const ac_holding_t *holding) {
    ac_history_add(ac_history_of(holding->device), &(ac_event_t){.kind = AC_EVENT_FREE,
                                                                 .address = holding->address,
                                                                 .bytes = holding->bytes,
                                                                 .stream = holding->stream,
                                                                 .thread = holding->thread});
}

void ac_record_context_gone(const ac_context_t *context) {
    if (atomic_load_explicit(&ac_recording, memory_order_relaxed) && context->arena)
        ac_holdings_sweep(is_of, context->arena, note_gone);
}

static void note_snapshot(CUdevice device, ac_allocator_t *allocator, void *arg) {
    (void)allocator;
    (void)arg;
    ac_history_add(ac_history_of((unsigned)device), &(ac_event_t){.kind = AC_EVENT_SNAPSHOT});
}

void ac_record_snapshot(void) {
    if (ac_history_is_on())
        ac_device_each(note_snapshot, NULL);
}

void ac_asking_end(const ac_asking_t *asking, const void *pointer) {
    uint64_t address = (uint64_t)(uintptr_t)pointer;
    if (asking->thread) {
        asking->thread->asks_for = asking->before;
        asking->thread->asks_from = asking->from_before;
    } else if (pointer && atomic_load(&ac_state) == AC_STATE_ACTIVE) {
        ac_block_attribute(address, ac_module_of(asking->caller));
        if (atomic_load_explicit(&ac_recording, memory_order_relaxed))
            ac_record_asked(address, asking->caller);
    }
}
