/* The key `guard` (guard.h). */
#include "hooks/guard.h"

#include <inttypes.h>
#include <stdio.h>

#include "allocator/supply/guard.h"
#include "track/modules.h"
#include "observe/log.h"
#include "observe/module_name.h"
#include "observe/raw.h"

/* --- which request --- */

/* Returns a random number from 1 to 2 N - 1, with the mean N. */
static uint32_t next_gap(ac_thread_t *thread, uint32_t n) {
    if (!thread->guard_seed)
        thread->guard_seed = ((uint64_t)ac_raw_ns(CLOCK_MONOTONIC) ^ thread->number << 32 ^
                              (uint64_t)ac_raw_getpid()) |
                             1;
    thread->guard_seed ^= thread->guard_seed << 13;
    thread->guard_seed ^= thread->guard_seed >> 7;
    thread->guard_seed ^= thread->guard_seed << 17;
    return 1 + (uint32_t)(thread->guard_seed >> 32) % (2 * n - 1);
}

static bool is_due(ac_thread_t *thread) {
    uint32_t n = (uint32_t)ac_process_config()->guard;
    if (!n)
        return false;
    if (!thread->guard_left)
        thread->guard_left = next_gap(thread, n);
    if (--thread->guard_left)
        return false;
    thread->guard_left = next_gap(thread, n);
    return true;
}

/* Reasons to leave out a request, each printed once.  NULL: the condition is temporary. */
static const char *const reasons[AC_GUARD_ANSWERS] = {
    [AC_GUARD_NO_PAGES] = "the device has no pages (virtual memory management), or their size is "
                          "odd. guard has no effect there",
    [AC_GUARD_TOO_LARGE] = "a guarded block is one page, of just under 128 GiB at the most",
    [AC_GUARD_SHARE] = "guarded blocks would take more than a quarter of the device, or of the "
                       "limit, beside their own bytes. guard:1/N with a larger N takes less",
    [AC_GUARD_FULL] = "the device, or the limit, has no room for its pages. guard:1/N with a "
                      "larger N takes less",
    [AC_GUARD_ADDRESSES] = "no addresses are left for guarded blocks, or host memory for what is "
                           "known of them. guard:1/N with a larger N takes fewer"};

static void say_refused(ac_guard_answer_t answer, int device, uint64_t bytes) {
    static _Atomic bool said[AC_GUARD_ANSWERS];
    if (reasons[answer] && !atomic_exchange(&said[answer], true))
        ac_log(AC_LOG_WARNING,
               "guard leaves out a request of %" PRIu64
               " bytes on device %d, which is counted (guard_refusals): %s",
               bytes, device, reasons[answer]);
}

bool ac_guard_serve_this(ac_thread_t *thread, const ac_context_t *context, unsigned module,
                         const ac_from_t *from, uint64_t bytes, uint64_t *address) {
    if (!is_due(thread))
        return false;
    ac_guard_answer_t answer =
        ac_arena_alloc_guarded(context->arena, module, from ? from->mempool : 0,
                               from ? &from->stream : NULL, bytes, address);
    if (answer != AC_GUARD_SERVED)
        say_refused(answer, (int)context->cuda.device, bytes);
    return answer == AC_GUARD_SERVED;
}

/* --- who frees --- */

void ac_guard_freeing_this(const ac_thread_t *thread, uint64_t address, const void *caller) {
    ac_guard_freeing(address,
                     ac_module_of(thread && thread->frees_for ? thread->frees_for : caller));
}

/* --- what is found --- */

static void say(const ac_guard_damage_t *damage) {
    enum { MOST = 8 };
    static _Atomic unsigned said;
    char asked[AC_MODULE_LABEL], freed[AC_MODULE_LABEL], where[64];
    unsigned before = atomic_fetch_add(&said, 1);
    if (before >= MOST)
        return;
    if (damage->at < 0)
        snprintf(where, sizeof where, "%" PRId64 " bytes before it", -damage->at);
    else
        snprintf(where, sizeof where, "byte %" PRIu64 " past its end",
                 (uint64_t)damage->at - damage->requested + 1);
    ac_log(AC_LOG_WARNING,
           "guard: a block of %" PRIu64 " bytes at 0x%" PRIx64
           " that %s asked for was overrun: %s was written to, as its free by %s shows%s",
           damage->requested, damage->address,
           ac_module_label(asked, damage->asked_by, "code of no known module"), where,
           ac_module_label(freed, damage->freed_by, "code of no known module"),
           before + 1 == MOST ? ". Later ones are counted (guard_damages)" : "");
}

void ac_guard_setup(void) {
    ac_guard_damaged = say;
}
