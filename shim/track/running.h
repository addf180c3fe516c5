/* State and settings of the running process. */
#ifndef AC_RUNNING_H
#define AC_RUNNING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "config/config.h"
#include "wiring.h"

typedef enum {
    AC_STATE_ASLEEP, /* no CUDA was used */
    AC_STATE_WAKING, /* one thread sets things up: the others pass their calls through */
    AC_STATE_ACTIVE,
    AC_STATE_INERT,  /* every call is passed through: no driver, a fork child, a sanitizer */
    AC_STATE_EXITING /* exit began: host-side bookkeeping only, no CUDA of our own */
} ac_state_t;

extern _Atomic int ac_state;

/* Settings that hooks ask for at each call; the others: ac_process_config. */
extern _Atomic bool ac_enabled, ac_filling, ac_guarding;

/* What frees do now: nothing more, look whether they have to wait (free_sync.h), or wait. */
enum { AC_FREES_GO_ON, AC_FREES_LOOK, AC_FREES_WAIT };
extern _Atomic int ac_free_sync;

static inline bool ac_is_enabled(void) {
    return atomic_load_explicit(&ac_enabled, memory_order_relaxed);
}

static inline bool ac_frees_wait(void) {
    return atomic_load_explicit(&ac_free_sync, memory_order_relaxed) == AC_FREES_WAIT;
}

/* Returns true if a free may have to wait. */
static inline bool ac_frees_synchronize(void) {
    return atomic_load_explicit(&ac_free_sync, memory_order_relaxed) != AC_FREES_GO_ON;
}

static inline bool ac_is_filling(void) {
    return atomic_load_explicit(&ac_filling, memory_order_relaxed);
}

static inline bool ac_is_guarding(void) {
    return atomic_load_explicit(&ac_guarding, memory_order_relaxed);
}

/* Returns true if the cache serves.  The first use of CUDA wakes the library (ac_ask_active).  Any thread. */
static inline bool ac_is_active(void) {
    return atomic_load_explicit(&ac_state, memory_order_acquire) == AC_STATE_ACTIVE ||
           ac_ask_active();
}

/* Whether the runtime-level fast path may be used (profilers want to see every call). */
extern _Atomic bool ac_fast_path;

/* Fences no longer tell when freed memory is out of reach of the device: none is handed out
 * again, in the whole process, and requests go to the driver.  Said once, with `why`. */
void ac_process_give_up(const char *why);
bool ac_process_gave_up(void);

/* Returns true if dlopen is called without RTLD_DEEPBIND. */
bool ac_process_strips_deepbind(void);

/* The configuration in force: of the environment, until accel_set_allocator_settings puts another
 * one in its place.  What it points to never changes and never goes away.  Any thread, any time.
 */
const ac_config_t *ac_process_config(void);

/* Replace the configuration (accel_set_allocator_settings).  False: *error says why, and nothing
 * has changed. */
bool ac_process_configure(const char *text, ac_config_error_t *error);

/* Change the one key `enabled` of an active process.  False: host memory is short. */
bool ac_process_enable(bool enabled);

/* From activation: reads the machine's defaults, logs what is wrong with the settings
 * (strict settings: refuses all requests if any is), opens the live page under
 * the names of the hooks (0 or an errno value), and puts the settings into effect. */
void ac_process_read_defaults(void);
void ac_process_report_settings(void);
int ac_process_open_page(const char *names, size_t bytes, unsigned hooks);
void ac_process_apply(void);

/* Makes the lock of the settings usable in a fork child. */
void ac_process_settings_fork_child(void);

#endif
