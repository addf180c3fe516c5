/* The state and the settings of the running process (running.h). */
#include "track/running.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/carve.h"
#include "allocator/order/generation.h"
#include "config/defaults.h"
#include "device/cuda_device.h"
#include "device/driver.h"
#include "observe/live.h"
#include "observe/live_file.h"
#include "observe/log.h"
#include "observe/start.h"
#include "lock.h"
#include "wiring.h"

AC_START_DATA _Atomic int ac_state = AC_STATE_ASLEEP;
AC_START_DATA _Atomic bool ac_fast_path, ac_enabled, ac_filling, ac_guarding;
AC_START_DATA _Atomic int ac_free_sync;

/* --- the environment --- */

/* Most texts are short, and stay off the pages that only long ones need. */
AC_START_DATA static char short_text[160];
static char long_text[AC_LIVE_CONF];
AC_START_DATA static const char *conf_text;
AC_START_DATA static bool conf_bad, conf_strict, conf_warned, profiled, sanitized;
AC_START_DATA static ac_config_t from_environment;
AC_START_DATA static const ac_config_t *_Atomic in_force = &from_environment;
static ac_config_error_t conf_error;
static ac_config_warnings_t conf_warnings, defaults_warnings;
AC_START_DATA static pthread_once_t environment_once = PTHREAD_ONCE_INIT;

/* Reads the environment and nothing else: it may run in any process, at any time. */
AC_START static void read_environment(void) {
    const char *text = secure_getenv("ACCEL_ALLOC_CONF");
    const char *injected = secure_getenv("CUDA_INJECTION64_PATH");
    profiled = injected && *injected;
    sanitized = (injected && strstr(injected, "sanitizer")) ||
                secure_getenv("NV_SANITIZER_INJECTION_PORT_BASE");
    ac_config_default(&from_environment);
    conf_strict = ac_config_is_strict(text, false) || ac_defaults_strict();
    if (!text || !*text)
        return;
    size_t length = strlen(text);
    conf_text = length < sizeof short_text ? short_text : long_text;
    conf_bad = length >= sizeof long_text;
    if (conf_bad) {
        strcpy(conf_error.text, "the string is too long (4095 bytes at most)");
        return;
    }
    memcpy(length < sizeof short_text ? short_text : long_text, text, length + 1);
    ac_config_error_t error;
    ac_config_warnings_t warnings;
    conf_bad = ac_config_parse(conf_text, &from_environment, &error, &warnings) != 0;
    if (conf_bad)
        conf_error = error;
    else if (warnings.count)
        conf_warnings = warnings;
    conf_warned = !conf_bad && warnings.count;
    if (!conf_bad)
        atomic_store(&ac_log_level, from_environment.log_level);
}

AC_START const ac_config_t *ac_process_config(void) {
    pthread_once(&environment_once, read_environment);
    return atomic_load_explicit(&in_force, memory_order_acquire);
}

bool ac_process_strips_deepbind(void) {
    return ac_process_config()->deepbind == AC_DEEPBIND_STRIP;
}

/* --- changes while running --- */

/* Guards changes of the configuration, and what is derived from it. */
AC_START_DATA static ac_mutex_t config_lock = AC_MUTEX(CONFIG);

/* Copies of the configurations that were in force: readers may keep pointers to them forever.  A
 * program that switches between a few settings makes a few copies. */
typedef struct ac_kept_config {
    ac_config_t config;
    struct ac_kept_config *next;
} ac_kept_config_t;

/* Returns a copy that stays.  NULL if host memory is short.  Called under the lock. */
static const ac_config_t *keep(const ac_config_t *config) {
    static ac_kept_config_t *all;
    /* Padding bytes may differ: this makes one more copy, not a wrong one. */
    for (const ac_kept_config_t *kept = all; kept; kept = kept->next)
        if (memcmp(&kept->config, config, sizeof *config) == 0)
            return &kept->config;
    ac_kept_config_t *kept = ac_carve(sizeof *kept);
    if (!kept)
        return NULL;
    memcpy(&kept->config, config, sizeof *config);
    kept->next = all;
    all = kept;
    return &kept->config;
}

/* Text of the machine's defaults file, once CUDA was used, if there is a file.  Changes under the
 * lock. */
static char defaults[AC_DEFAULTS_TEXT];
static bool has_defaults, defaults_bad, refuses_environment; /* the last: strict, nothing else changed it */

/* Puts `text` (NULL: empty) into force, over the machine's defaults.  `now`: FIXED keys keep its
 * values (NULL: all keys may change).  Called under the lock. */
static bool put_in_force(const char *text, const ac_config_t *now, const bool *enabled,
                         ac_config_error_t *error) {
    static char whole[AC_LIVE_CONF];
    static ac_config_t wanted;
    if (ac_config_merge(has_defaults ? defaults : "", text, whole, sizeof whole, error,
                        &defaults_warnings) != 0 ||
        ac_config_parse(whole, &wanted, error, NULL) != 0)
        return false;
    if (now)
        ac_config_take_fixed(&wanted, now);
    if (enabled)
        wanted.enabled = *enabled;
    const ac_config_t *kept = keep(&wanted);
    if (!kept) {
        snprintf(error->text, sizeof error->text, "host memory is short");
        return false;
    }
    atomic_store(&in_force, kept);
    ac_live_set_conf(whole);
    return true;
}

/* The environment, and settings that the program made through the C API before, override the
 * defaults. */
void ac_process_read_defaults(void) {
    static char text[AC_LIVE_CONF]; /* under the lock */
    static ac_config_t plain;       /* under the lock, too */
    char why[AC_DEFAULTS_WHY];
    ac_config_error_t error;
    const char *path = ac_defaults_path();
    if (!path)
        return;
    bool good = ac_defaults_read(path, defaults, sizeof defaults, why);
    ac_lock(&config_lock);
    const ac_config_t *now = ac_process_config();
    has_defaults = good && *defaults;
    if (has_defaults) {
        if (now == &from_environment)
            snprintf(text, sizeof text, "%s", conf_text && !conf_bad ? conf_text : "");
        else
            ac_live_conf(ac_live, text);
        /* accel_enable leaves no text: its setting is passed on separately. */
        bool by_call =
            ac_config_parse(text, &plain, &error, NULL) == 0 && plain.enabled != now->enabled;
        good = put_in_force(text, NULL, by_call ? &now->enabled : NULL, &error);
        has_defaults = good;
        if (!good)
            snprintf(why, sizeof why, "%s", error.text);
    }
    ac_unlock(&config_lock);
    defaults_bad = !good;
    if (!good)
        ac_log(AC_LOG_ERROR, "%s was not applied: %s (`accelcache config` shows it)", path, why);
}

static _Atomic bool given_up; /* permanent: see ac_process_give_up */

static void switch_off(void) {
    atomic_store(&ac_fast_path, false);
    atomic_store(&ac_enabled, false);
}

/* Applies the configuration in force.  Called under the lock. */
static void apply(void) {
    const ac_config_t *config = ac_process_config();
    bool enabled = config->enabled && !sanitized && !atomic_load(&given_up);
    atomic_store(&ac_log_level, config->log_level);
    atomic_store(&ac_enabled, enabled);
    atomic_store(&ac_filling, config->fill != 0);
    atomic_store(&ac_guarding, enabled && config->guard);
    if (atomic_load(&ac_state) != AC_STATE_INERT) { /* else a fork child: locks may be taken */
        ac_tell_settings();
    }
    atomic_store(&ac_fast_path, enabled && !profiled);
    if (atomic_load(&given_up)) /* just now */
        switch_off();
}

void ac_process_give_up(const char *why) {
    if (atomic_exchange(&given_up, true))
        return;
    atomic_store(&ac_cuda_pages_stay, true);
    switch_off();
    ac_generation_grow();
    ac_log_once(AC_LOG_WARNING,
                "%s: its work cannot be waited for. The cache is off from now on, requests go to "
                "the driver",
                why);
}

bool ac_process_gave_up(void) {
    return atomic_load(&given_up);
}

bool ac_process_configure(const char *text, ac_config_error_t *error) {
    static ac_config_t wanted; /* under the lock */
    ac_process_config(); /* the environment comes before any call */
    ac_lock(&config_lock);
    const ac_config_t *now = ac_process_config();
    bool running = atomic_load(&ac_state) == AC_STATE_ACTIVE;
    bool done = ac_config_parse(text, &wanted, error, NULL) == 0 &&
                (!running || ac_config_keep_fixed(&wanted, now, error)) &&
                put_in_force(text, running ? now : NULL, NULL, error);
    if (done) {
        apply();
        ac_generation_grow();
    }
    ac_unlock(&config_lock);
    if (done)
        ac_tell_settings_changed();
    return done;
}

bool ac_process_enable(bool enabled) {
    static ac_config_t wanted; /* under the lock */
    ac_lock(&config_lock);
    wanted = *ac_process_config();
    wanted.enabled = enabled;
    const ac_config_t *kept = keep(&wanted);
    if (kept) {
        atomic_store(&in_force, kept);
        apply();
        ac_generation_grow();
    }
    ac_unlock(&config_lock);
    if (kept)
        ac_tell_settings_changed();
    return kept;
}

/* Makes changes of the configuration wait: a change during the copy of the page to its file would be
 * lost. */
int ac_process_open_page(const char *names, size_t bytes, unsigned hooks) {
    static char conf[AC_LIVE_CONF]; /* under the lock */
    ac_lock(&config_lock);
    bool changed = ac_process_config() != &from_environment && !refuses_environment;
    if (changed) /* before CUDA was used */
        ac_live_conf(ac_live, conf);
    int error = ac_live_open(changed ? conf : conf_text, names, bytes, hooks);
    ac_unlock(&config_lock);
    return error;
}

/* If the user asked for strict settings and one is wrong, makes every request for device memory
 * fail. */
static void refuse_wrong_settings(void) {
    static ac_config_t refusing; /* under the lock */
    if (!(conf_bad || defaults_bad) || !(conf_strict || ac_config_is_strict(defaults, true)))
        return;
    if (sanitized) {
        ac_log(AC_LOG_ERROR, "strict settings: with the cache off for compute-sanitizer, wrong settings are not refused");
        return;
    }
    ac_lock(&config_lock);
    refuses_environment = ac_process_config() == &from_environment;
    refusing = *ac_process_config();
    refusing.enabled = true;
    refusing.memory_limit = 1;
    refusing.view = AC_VIEW_DEVICE; /* a device of one byte would confuse the program */
    const ac_config_t *kept = keep(&refusing);
    if (kept)
        atomic_store(&in_force, kept);
    ac_unlock(&config_lock);
    ac_log(AC_LOG_ERROR,
           kept ? "strict settings: every request for device memory fails until the settings are "
                  "right (`accelcache config` checks them)"
                : "strict settings: host memory is short, wrong settings are not refused");
}

void ac_process_report_settings(void) {
    const ac_config_t *config = ac_process_config();
    atomic_store(&ac_log_level, config->log_level);
    if (conf_bad)
        ac_log(AC_LOG_ERROR, "ACCEL_ALLOC_CONF was not applied, the defaults hold: %s",
               conf_error.text);
    for (unsigned i = 0; conf_warned && i < conf_warnings.count; i++)
        ac_log(AC_LOG_WARNING, "ACCEL_ALLOC_CONF: %s", conf_warnings.text[i]);
    for (unsigned i = 0; has_defaults && i < defaults_warnings.count; i++)
        ac_log(AC_LOG_WARNING, "%s: %s", ac_defaults_path(), defaults_warnings.text[i]);
    if (sanitized && config->enabled)
        ac_log(AC_LOG_WARNING, "compute-sanitizer is attached: the cache is off");
    if (config->fence == AC_FENCE_CTX && !ac_driver.cuCtxRecordEvent)
        ac_log(AC_LOG_WARNING,
               "fence:ctx needs a driver of CUDA 12.5 or later: fence:streams holds");
    refuse_wrong_settings();
}

void ac_process_apply(void) {
    ac_lock(&config_lock);
    apply();
    ac_unlock(&config_lock);
}

void ac_process_settings_fork_child(void) {
    config_lock = (ac_mutex_t)AC_MUTEX(CONFIG);
}
