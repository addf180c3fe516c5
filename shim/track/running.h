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

/* Settings that hooks read at each call.  The other settings are in ac_process_config. */
extern _Atomic bool ac_enabled, ac_filling, ac_guarding;

/* Behaviour of a free: it does nothing more, checks if it has to wait (free_sync.h), or waits. */
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

/* True if hooks may use the runtime-level fast path (profilers want to see every call). */
extern _Atomic bool ac_fast_path;

/* Called if fences no longer tell when freed memory is out of reach of the device.  From now on the
 * process reuses no freed memory, and requests go to the driver.  Logs `why` once. */
void ac_process_give_up(const char *why);
bool ac_process_gave_up(void);

/* Returns true if dlopen is called without RTLD_DEEPBIND. */
bool ac_process_strips_deepbind(void);

/* Returns the configuration in force: that of the environment, until accel_set_allocator_settings
 * replaces it.  The configuration behind the pointer never changes and is never freed.  Any thread,
 * any time. */
const ac_config_t *ac_process_config(void);

/* Replaces the configuration (accel_set_allocator_settings).  Returns false if nothing changed;
 * *error says why. */
bool ac_process_configure(const char *text, ac_config_error_t *error);

/* Changes only the key `enabled` of an active process.  Returns false if host memory is short. */
bool ac_process_enable(bool enabled);

/* Called in this order at activation: reads the machine's defaults; logs what is wrong with the
 * settings; opens the live page under the names of the hooks; puts the settings into effect.  With
 * strict settings, a wrong setting refuses all requests.  _open_page returns 0 or an errno value. */
void ac_process_read_defaults(void);
void ac_process_report_settings(void);
int ac_process_open_page(const char *names, size_t bytes, unsigned hooks);
void ac_process_apply(void);

/* Makes the lock of the settings usable in a fork child. */
void ac_process_settings_fork_child(void);

#endif
