/* The dump document, made only from a live page; see dump.h, and dump.schema.json for its form.
 * Callers are the exit handler, the thread that serves signals and intervals, the API, and the command for
 * pages of other processes.  The page may change meanwhile.  So figures that have to match are copied
 * first, for devices of this process under the lock of the writers. */
#include "observe/dump.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "observe/json.h"
#include "observe/leaks.h"
#include "observe/module_name.h"
#include "observe/raw.h"
#include "observe/recorded.h"
#include "observe/scratch.h"
#include "observe/start.h"

enum { DUMP_VERSION = 1 };

AC_START_DATA _Atomic(ac_dump_figures_fn *) ac_dump_figures;
AC_START_DATA _Atomic(ac_dump_pinned_fn *) ac_dump_pinned;

/* Writes a time as "2026-01-31T12:00:00.000Z".  It does not use gmtime_r, which may read time zone files and takes
 * a lock. */
static void format_time(int64_t ns, char text[32]) {
    uint64_t ms = ns > 0 ? (uint64_t)ns / 1000000 : 0;
    unsigned of_day = (unsigned)(ms % 86400000);
    /* Days since 1 March of year 0, in eras of 400 years: leap days come last in a year that
     * starts in March. */
    unsigned days = (unsigned)(ms / 86400000) + 719468;
    unsigned era = days / 146097, day_of_era = days % 146097;
    unsigned year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    unsigned day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    unsigned from_march = (5 * day_of_year + 2) / 153;
    unsigned day = day_of_year - (153 * from_march + 2) / 5 + 1;
    unsigned month = from_march < 10 ? from_march + 3 : from_march - 9;
    unsigned year = era * 400 + year_of_era + (month <= 2);
    unsigned second = of_day / 1000;
    snprintf(text, 32, "%04u-%02u-%02uT%02u:%02u:%02u.%03uZ", year % 10000, month % 100,
             day % 100, second / 3600, second / 60 % 60, second % 60, of_day % 1000);
}

static json_t *rank_json(const char *rank) {
    if (!*rank || rank[strspn(rank, "0123456789")] != '\0')
        return json_null();
    return json_integer(strtoll(rank, NULL, 10));
}

static void put_process(json_t *root, const ac_live_t *page, bool *failed) {
    char time_text[32], exe[AC_LIVE_EXE];
    json_t *process = ac_json_put_object(root, "process", failed);
    ac_json_put_integer(process, "pid", page->pid, failed);
    ac_json_put_integer(process, "ppid", page->ppid, failed);
    ac_json_put_text(process, "host", page->host, failed);
    ac_live_exe(page, exe);
    ac_json_put_text(process, "exe", exe, failed);
    json_t *argv = json_array();
    ac_json_put(process, "argv", argv, failed);
    for (size_t i = 0; i < sizeof page->argv - 1 && !*failed;) {
        size_t n = strnlen(page->argv + i, sizeof page->argv - i);
        /* An argument may be empty, so the list ends only when all further bytes are 0. */
        bool rest = false;
        for (size_t j = i; j < sizeof page->argv && !rest; j++)
            rest = page->argv[j] != '\0';
        if (!rest)
            break;
        ac_json_append(argv, ac_json_text(page->argv + i, n), failed);
        i += n + 1;
    }
    ac_json_put(process, "rank", rank_json(page->rank), failed);
    format_time(page->start_time_ns, time_text);
    ac_json_put_text(process, "start_time", time_text, failed);
}

typedef struct {
    ac_config_t values;
    ac_config_error_t error;
    char conf[AC_LIVE_CONF], text[AC_CONFIG_PATH + 1];
} settings_t;
_Static_assert(sizeof(settings_t) <= AC_SCRATCH, "settings have no room");

static void put_settings(json_t *root, const ac_live_t *page, settings_t *s, bool *failed) {
    ac_live_conf(page, s->conf);
    ac_config_default(&s->values);
    bool applied = ac_config_parse(s->conf, &s->values, &s->error, NULL) == 0;

    json_t *config = ac_json_put_object(root, "config", failed);
    ac_json_put_text(config, "string", s->conf, failed);
    ac_json_put(config, "error",
                applied ? json_null() : ac_json_text(s->error.text, strlen(s->error.text)),
                failed);
    json_t *effective = ac_json_put_object(config, "effective", failed);
    const char *key;
    for (unsigned i = 0; (key = ac_config_key(i)); i++)
        if (ac_config_value(&s->values, key, s->text, sizeof s->text) >= 0)
            ac_json_put_text(effective, key, s->text, failed);
}

static void put_config(json_t *root, const ac_live_t *page, bool *failed) {
    settings_t *settings = ac_scratch_take();
    if (settings)
        put_settings(root, page, settings, failed);
    else
        *failed = true;
    ac_scratch_give(settings);
}

static json_t *stat_json(const ac_stat_t *stat, bool *failed) {
    json_t *json = json_object();
    ac_json_put_integer(json, "current", stat->current, failed);
    ac_json_put_integer(json, "peak", stat->peak, failed);
    ac_json_put_integer(json, "allocated", stat->allocated, failed);
    ac_json_put_integer(json, "freed", stat->freed, failed);
    return json;
}

static json_t *pools_json(const ac_stat_t stat[AC_POOL_KINDS], bool *failed) {
    json_t *json = json_object();
    ac_json_put(json, "all", stat_json(&stat[AC_POOL_ALL], failed), failed);
    ac_json_put(json, "small_pool", stat_json(&stat[AC_POOL_SMALL], failed), failed);
    ac_json_put(json, "large_pool", stat_json(&stat[AC_POOL_LARGE], failed), failed);
    return json;
}

static json_t *stats_json(const ac_device_stats_t *stats, bool *failed) {
    json_t *json = json_object();
#define STAT_COUNT(name, doc) ac_json_put_integer(json, #name, stats->name, failed);
#define STAT_POOLS(name, unit, doc)                                                              \
    ac_json_put(json, #name, pools_json(stats->name, failed), failed);
#define STAT_SINGLE(name, unit, doc)                                                             \
    ac_json_put(json, #name, stat_json(&stats->name, failed), failed);
#include "observe/stats.def"
    return json;
}

static json_t *uuid_json(const unsigned char uuid[16]) {
    static const unsigned char unknown[16];
    char text[48] = "GPU-";
    size_t n = 4;
    if (memcmp(uuid, unknown, sizeof unknown) == 0)
        return json_null();
    for (int i = 0; i < 16; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%02x",
                              i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
    return ac_json_text(text, n);
}

/* Copies word by word with atomic loads: the writer is another process, or holds its lock for ever. */
static void copy_words(uint64_t *to, const uint64_t *from, size_t bytes) {
    for (size_t i = 0; i < bytes / sizeof *to; i++)
        to[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
}

typedef struct {
    union {
        ac_device_stats_t stats;
        uint64_t stat_words[sizeof(ac_device_stats_t) / sizeof(uint64_t)];
    };
    union {
        ac_device_counters_t counters;
        uint64_t counter_words[sizeof(ac_device_counters_t) / sizeof(uint64_t)];
    };
} figures_t;
_Static_assert(sizeof(figures_t) == sizeof(ac_device_stats_t) + sizeof(ac_device_counters_t),
               "figures are 64-bit words and nothing else");

/* Returns the number of threads of another process with private rows, which this process cannot read. */
static uint32_t rows_beside(const ac_live_t *page) {
    return page == ac_live ? 0 : __atomic_load_n(&page->rows_beside, __ATOMIC_RELAXED);
}

static void get_figures(const ac_live_t *page, unsigned device, const struct timespec *deadline,
                        figures_t *figures) {
    ac_dump_figures_fn *copy = page == ac_live ? atomic_load(&ac_dump_figures) : NULL;
    if (copy && copy(device, deadline, &figures->stats, &figures->counters))
        return;
    const ac_live_device_t *from = ac_live_device(page, device);
    copy_words(figures->stat_words, (const uint64_t *)(const void *)&from->stats,
               sizeof figures->stats);
    copy_words(figures->counter_words, (const uint64_t *)(const void *)&from->counters,
               sizeof figures->counters);
    ac_cache_sum_t caches;
    ac_live_caches(page, device, &caches);
    ac_stats_absorb(&figures->stats, &figures->counters, &caches);
    ac_stats_raise(&figures->stats);
    if (rows_beside(page))
        memset(&figures->stats.modules, 0, sizeof figures->stats.modules);
    else
        ac_live_modules(page, device, &figures->stats.modules);
    figures->counters.thread_cache_blocks = caches.held_blocks;
    figures->counters.thread_cache_bytes = caches.held_bytes;
}

/* Makes the array of modules that ever got memory, in the order of their numbers. */
static json_t *modules_json(const ac_live_t *page, const ac_modules_t *of, bool *failed) {
    char exe[AC_LIVE_EXE];
    json_t *modules = json_array();
    ac_live_exe(page, exe);
    for (unsigned i = 0; i < AC_MODULES && !*failed; i++) {
        if (!of->allocs[i])
            continue;
        json_t *json = json_object();
        ac_json_append(modules, json, failed);
        if (*failed)
            break;
        ac_module_put(json, ac_module_path(page, i, exe), failed);
        ac_json_put_integer(json, "num_allocs", (int64_t)of->allocs[i], failed);
        json_t *bytes = ac_json_put_object(json, "allocated_bytes", failed);
        ac_json_put_integer(bytes, "current", (int64_t)(of->alloc_bytes[i] - of->free_bytes[i]),
                            failed);
        ac_json_put_integer(bytes, "allocated", (int64_t)of->alloc_bytes[i], failed);
        ac_json_put_integer(bytes, "freed", (int64_t)of->free_bytes[i], failed);
    }
    return modules;
}

/* Time that a dump waits for the locks of all devices together.  A writer may have been stopped with its lock held
 * (exit from a signal handler). */
enum { MOST_SECONDS = 1 };

void ac_dump_device(const ac_live_t *page, unsigned device, const struct timespec *deadline,
                    ac_device_stats_t *stats, ac_device_counters_t *counters) {
    figures_t figures;
    get_figures(page, device, deadline, &figures);
    *stats = figures.stats;
    *counters = figures.counters;
}

static void put_devices(json_t *root, const ac_live_t *page, const struct timespec *deadline,
                        bool *failed) {
    figures_t figures;
    uint64_t blocks = 0, bytes = 0; /* a damaged page may have any values */
    json_t *devices = json_array();
    ac_json_put(root, "devices", devices, failed);
    for (unsigned i = 0; i < AC_LIVE_DEVICES && !*failed; i++) {
        const ac_live_device_t *device = ac_live_device(page, i);
        if (!device)
            continue;
        get_figures(page, i, deadline, &figures);
        blocks += (uint64_t)figures.stats.allocation[AC_POOL_ALL].current;
        bytes += (uint64_t)figures.stats.allocated_bytes[AC_POOL_ALL].current;
        json_t *json = json_object();
        ac_json_append(devices, json, failed);
        if (*failed)
            return;
        ac_json_put_integer(json, "ordinal", device->ordinal, failed);
        ac_json_put(json, "name",
                    ac_json_text(device->name, strnlen(device->name, sizeof device->name)),
                    failed);
        ac_json_put(json, "uuid", uuid_json(device->uuid), failed);
        ac_json_put_integer(json, "total_memory", (int64_t)page->total_memory[i], failed);
        ac_json_put(json, "stats", stats_json(&figures.stats, failed), failed);
        ac_json_put(json, "modules", modules_json(page, &figures.stats.modules, failed), failed);
        json_t *counters = ac_json_put_object(json, "counters", failed);
#define DEVICE_COUNTER(name, unit, doc)                                                          \
    ac_json_put_integer(counters, #name, (int64_t)figures.counters.name, failed);
#include "observe/counters.def"
    }
    json_t *held = ac_json_put_object(root, "held", failed);
    ac_json_put_integer(held, "blocks", (int64_t)blocks, failed);
    ac_json_put_integer(held, "bytes", (int64_t)bytes, failed);
}

/* Copies the figures of pinned memory; see ac_dump_device. */
void ac_dump_host(const ac_live_t *page, const struct timespec *deadline,
                  ac_host_stats_t *stats) {
    ac_dump_pinned_fn *copy = page == ac_live ? atomic_load(&ac_dump_pinned) : NULL;
    union {
        ac_host_stats_t stats;
        uint64_t words[sizeof(ac_host_stats_t) / sizeof(uint64_t)];
    } host;
    if (!copy || !copy(deadline, &host.stats))
        copy_words(host.words, (const uint64_t *)(const void *)&page->pinned, sizeof host);
    *stats = host.stats;
}

static void put_pinned(json_t *root, const ac_live_t *page, const struct timespec *deadline,
                       bool *failed) {
    ac_host_stats_t stats;
    ac_dump_host(page, deadline, &stats);
    json_t *pinned = ac_json_put_object(root, "pinned", failed);
    json_t *json = ac_json_put_object(pinned, "stats", failed);
#define HOST_STAT(name, unit, doc)                                                               \
    ac_json_put(json, #name, stat_json(&stats.name, failed), failed);
#define HOST_COUNT(name, doc) ac_json_put_integer(json, #name, stats.name, failed);
#include "observe/host_stats.def"
}

static void put_counters(json_t *root, const ac_live_t *page, bool *failed) {
    json_t *counters = ac_json_put_object(root, "counters", failed);
#define PROCESS_COUNTER(name, unit, doc)                                                         \
    ac_json_put_integer(counters, #name, (int64_t)ac_live_sum(page, AC_COUNT_##name), failed);
#include "observe/counters.def"
    json_t *hooks = ac_json_put_object(root, "hooks", failed);
    const char *name = NULL;
    for (unsigned i = 0; i < AC_LIVE_HOOKS && (name = ac_live_hook_next(page, name)); i++) {
        uint64_t calls = ac_live_sum(page, AC_COUNT_HOOKS + i);
        if (calls)
            ac_json_put_integer(hooks, name, (int64_t)calls, failed);
    }
    ac_json_put_integer(root, "hook_count", page->hook_count, failed);
}

/* Returns true if the warning is complete: its first byte is written last. */
static bool warning_is_there(const char *text) {
    return __atomic_load_n(text, __ATOMIC_ACQUIRE) != '\0';
}

static void put_warnings(json_t *root, const ac_live_t *page, bool *failed) {
    json_t *warnings = json_array();
    ac_json_put(root, "warnings", warnings, failed);
    uint32_t count = __atomic_load_n(&page->warning_count, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < count && i < AC_LIVE_WARNINGS && !*failed; i++) {
        const char *text = page->warning[i];
        bool skip = !warning_is_there(text);
        for (uint32_t j = 0; j < i && !skip; j++)
            skip = warning_is_there(page->warning[j]) &&
                   strncmp(page->warning[j], text, AC_LIVE_TEXT) == 0;
        if (!skip)
            ac_json_append(warnings, ac_json_text(text, strnlen(text, AC_LIVE_TEXT)), failed);
    }
    if (rows_beside(page) && !*failed) {
        char text[160];
        int n = snprintf(text, sizeof text,
                         "more than %d threads: the figures of %" PRIu32
                         " are missing here until they end, and those of modules are left out",
                         AC_LIVE_ROWS - 1 + (int)page->rows_more, rows_beside(page));
        ac_json_append(warnings, ac_json_text(text, (size_t)n), failed);
    }
    if (count > AC_LIVE_WARNINGS && !*failed) {
        char text[64];
        int n = snprintf(text, sizeof text, "%" PRIu32 " more warnings were not kept",
                         count - AC_LIVE_WARNINGS);
        ac_json_append(warnings, ac_json_text(text, (size_t)n), failed);
    }
}

/* Names of modules by number, which blocks refer to. */
static void put_module_names(json_t *root, const ac_live_t *page, bool *failed) {
    char exe[AC_LIVE_EXE];
    json_t *names = json_array();
    ac_live_exe(page, exe);
    ac_json_put(root, "module_names", names, failed);
    for (unsigned i = 0; i < AC_MODULES && !*failed; i++) {
        const char *path = ac_module_path(page, i, exe);
        const char *name = path ? ac_module_file(path) : NULL;
        ac_json_append(names, name ? ac_json_text(name, strlen(name)) : json_null(), failed);
    }
}

static json_t *known_bytes(uint64_t bytes) {
    return bytes == UINT64_MAX ? json_null() : json_integer((json_int_t)bytes);
}

static void put_oom(json_t *root, const ac_dump_oom_t *oom, bool *failed) {
    json_t *json = ac_json_put_object(root, "out_of_memory", failed);
    ac_json_put_integer(json, "device", oom->ordinal, failed);
    ac_json_put_integer(json, "bytes", (int64_t)oom->bytes, failed);
    ac_json_put_integer(json, "module", oom->module, failed);
    ac_json_put_integer(json, "thread", oom->thread, failed);
    if (oom->stack)
        ac_json_put_integer(json, "stack", oom->stack, failed);
    ac_json_put(json, "async", oom->async ? json_true() : json_false(), failed);
    ac_json_put(json, "at_limit", oom->at_limit ? json_true() : json_false(), failed);
    ac_json_put(json, "limit", known_bytes(oom->limit), failed);
    ac_json_put(json, "device_free", known_bytes(oom->available), failed);
    ac_json_put_integer(json, "other_processes", oom->others, failed);
    json_t *others = json_array();
    ac_json_put(json, "others", others, failed);
    for (unsigned i = 0; i < oom->others && i < AC_DUMP_OTHERS && !*failed; i++) {
        json_t *other = json_object();
        ac_json_append(others, other, failed);
        if (*failed)
            return;
        ac_json_put_integer(other, "pid", oom->other[i].pid, failed);
        ac_json_put(other, "same_namespace", oom->other[i].here ? json_true() : json_false(),
                    failed);
        const char *program = ac_module_file(oom->other[i].exe);
        ac_json_put(other, "program", ac_json_text(program, strlen(program)), failed);
        ac_json_put_integer(other, "reserved", (int64_t)oom->other[i].reserved, failed);
    }
}

/* Most blocks of a dump, about 25 MiB of text. */
enum { MOST_BLOCKS = 1 << 18 };

/* Inserts a part that is already text before the document's last brace.  Takes ownership of both.  Returns NULL if
 * memory is short. */
static char *add_part(char *text, const char *name, char *part, size_t size, size_t *length) {
    static const char before[] = ",\n  \"", between[] = "\": ", end[] = "\n}\n";
    char *brace = text ? strrchr(text, '}') : NULL, *whole = NULL;
    size_t front = brace ? (size_t)(brace - text) : 0, key = strlen(name);
    while (front && text[front - 1] == '\n')
        front--;
    if (part && brace)
        whole = realloc(text, front + sizeof before + key + sizeof between + size + sizeof end);
    if (!whole) {
        free(part);
        free(text);
        return NULL;
    }
    const struct {
        const char *text;
        size_t length;
    } parts[] = {{before, sizeof before - 1},
                 {name, key},
                 {between, sizeof between - 1},
                 {part, size},
                 {end, sizeof end - 1}};
    *length = front;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        memcpy(whole + *length, parts[i].text, parts[i].length);
        *length += parts[i].length;
    }
    whole[*length] = '\0';
    free(part);
    return whole;
}

static char *add_segments(char *text, const ac_dump_more_t *more, size_t *length) {
    size_t size = 0;
    char *segments = ac_layout_text(more->layout, more->layouts, MOST_BLOCKS, &size);
    return add_part(text, "layout", segments, size, length);
}

static char *add_history(char *text, size_t *length) {
    size_t size = 0;
    char *history = text ? ac_recorded_history(&size) : NULL;
    return history ? add_part(text, "history", history, size, length) : text;
}

char *ac_dump_text_with(const ac_live_t *page, const char *reason, const ac_dump_more_t *more,
                        size_t *length) {
    char time_text[32];
    bool failed = false;
    if (!ac_json_ready())
        return NULL;
    json_t *root = json_object();
    ac_json_put_text(root, "schema", "accelcache-dump", &failed);
    ac_json_put_integer(root, "version", DUMP_VERSION, &failed);
    put_process(root, page, &failed);
    ac_json_put_text(root, "reason", reason, &failed);
    format_time(ac_raw_ns(CLOCK_REALTIME), time_text);
    ac_json_put_text(root, "time", time_text, &failed);
    ac_json_put(root, "driver_version",
                page->driver_version ? json_integer(page->driver_version) : json_null(), &failed);
    put_config(root, page, &failed);
    struct timespec deadline = ac_raw_time(CLOCK_REALTIME);
    deadline.tv_sec += MOST_SECONDS;
    put_devices(root, page, &deadline, &failed);
    if (page == ac_live)
        ac_leaks_put(root, &failed);
    if (page == ac_live)
        ac_recorded_put(root, &failed);
    put_pinned(root, page, &deadline, &failed);
    put_counters(root, page, &failed);
    put_warnings(root, page, &failed);
    if (more)
        put_module_names(root, page, &failed);
    if (more && more->oom)
        put_oom(root, more->oom, &failed);
    if (more && more->partial)
        ac_json_put(root, "layout_partial", json_true(), &failed);
    char *text = failed ? NULL : ac_json_dump(root, length);
    ac_json_free(root);
    bool figures = more && more->figures;
    if (text && more && !figures)
        text = add_segments(text, more, length);
    return page == ac_live && !figures ? add_history(text, length) : text;
}

char *ac_dump_text(const ac_live_t *page, const char *reason, size_t *length) {
    return ac_dump_text_with(page, reason, NULL, length);
}
