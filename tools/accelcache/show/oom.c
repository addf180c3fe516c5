/* `accelcache oom`: the holders of the memory when a request failed for lack of it. */
#include "show/oom.h"
#include "command.h"
#include "read/document.h"
#include "read/failure.h"
#include "read/segments.h"
#include "base/option.h"
#include "read/recorded.h"
#include "read/sites.h"

#include <stdlib.h>
#include <string.h>

static const char help[] =
    "Usage: accelcache oom [--json] FILE\n"
    "Shows a file of the key oom_dump, which a failed request for memory wrote: the\n"
    "caller, the holders of the device's memory, and a setting that would have\n"
    "served the request.  A setting is named only if a replay of the blocks serves\n"
    "the request with it, and there is room wherever else the blocks could lie.\n"
    "\n"
    "  --json  the figures as JSON\n"
    "\n"
    "Exit status: 0 shown; 1 the file cannot be read, or no request failed when it\n"
    "was written; 2 wrong usage.\n";

/* ------------------------------------------------------------------ figures */

enum { MOST_SITES = 8 };

typedef struct {
    const json_t *document, *failure, *device;
    cmd_segments_t segments; /* of the device */
    int64_t ordinal, bytes, total;
    int64_t available, limit; /* -1: not known, none */
    int64_t reserved, others;
    int64_t unexplained; /* -1: not known */
    struct {
        int64_t bytes, blocks;
    } state[AC_LAID_STATES];
    int64_t wanted;             /* of what is held: requested bytes */
    int64_t idle;               /* free, in segments in which nothing else is */
    int64_t largest;            /* free bytes side by side */
    bool is_at_limit, is_whole; /* whole: all blocks are listed */
    cmd_oom_candidate_t candidate[CMD_OOM_CANDIDATES];
} oom_t;

static int64_t figure(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

static const json_t *device_of(const json_t *document, int64_t ordinal) {
    size_t index;
    const json_t *device;
    json_array_foreach(json_object_get(document, "devices"), index,
                       device) if (figure(device, "ordinal") == ordinal) return device;
    return NULL;
}

static void count_segment(oom_t *oom, const cmd_segment_t *segment) {
    int64_t busy = 0, run = 0, all = 0;
    uint64_t end = 0;
    for (size_t i = 0; i < segment->blocks; i++) {
        const cmd_block_t *block = &oom->segments.block[segment->first + i];
        bool is_free = block->state == AC_LAID_FREE || block->state == AC_LAID_CACHED;
        if (block->state == AC_LAID_UNMAPPED)
            continue;
        oom->state[block->state].bytes += (int64_t)block->bytes;
        oom->state[block->state].blocks++;
        if (block->state == AC_LAID_ALLOCATED)
            oom->wanted += (int64_t)block->requested;
        run = is_free ? (end == block->address ? run : 0) + (int64_t)block->bytes : 0;
        end = block->address + block->bytes;
        oom->largest = run > oom->largest ? run : oom->largest;
        busy += !is_free;
        all += (int64_t)block->bytes;
    }
    oom->idle += busy ? 0 : all;
}

static void count(oom_t *oom) {
    for (size_t i = 0; i < oom->segments.segments; i++)
        count_segment(oom, &oom->segments.segment[i]);
    size_t index;
    const json_t *other;
    json_array_foreach(json_object_get(oom->failure, "others"), index, other)
        oom->others = cmd_sum(oom->others, figure(other, "reserved"), 1);
    oom->unexplained = -1;
    if (oom->available >= 0 && oom->total > 0) {
        int64_t taken = cmd_sum(oom->reserved, oom->others, 1);
        oom->unexplained = cmd_sum(oom->total - oom->available, taken, -1);
        if (oom->unexplained < 0)
            oom->unexplained = 0; /* figures of other processes are of a moment later */
    }
}

static bool read(oom_t *oom, const json_t *document, char **error) {
    oom->document = document;
    oom->failure = json_object_get(document, "out_of_memory");
    if (!json_is_object(oom->failure)) {
        *error =
            cmd_format("no request failed when it was written: the key oom_dump names a file "
                       "for that");
        return false;
    }
    if (!cmd_segments_of_dump(&oom->segments, json_object_get(document, "layout"), error))
        return false;
    oom->ordinal = figure(oom->failure, "device");
    oom->bytes = figure(oom->failure, "bytes");
    oom->available = figure(oom->failure, "device_free");
    oom->limit = figure(oom->failure, "limit");
    oom->is_at_limit = json_is_true(json_object_get(oom->failure, "at_limit"));
    cmd_segments_keep(&oom->segments, (int)oom->ordinal);
    oom->is_whole = oom->segments.segments && !oom->segments.unlisted;
    oom->device = device_of(document, oom->ordinal);
    if (!oom->device || oom->bytes <= 0) {
        *error = cmd_format("out_of_memory has another form than accelcache writes");
        return false;
    }
    oom->total = figure(oom->device, "total_memory");
    oom->reserved = cmd_document_stat(oom->device, "reserved_bytes", "all", "current");
    count(oom);
    return true;
}

static void replay(oom_t *oom) {
    static const cmd_oom_candidate_t candidates[CMD_OOM_CANDIDATES] = {
        {.conf = "", .name = "the settings as they were"},
        {.conf = "expandable_segments:true", .name = "expandable_segments:true"},
        {.conf = "expandable_segments:true,page_size_mb:2",
         .name = "expandable_segments:true,page_size_mb:2"},
        {.conf = "", .without_limit = true}};
    memcpy(oom->candidate, candidates, sizeof candidates);
    if (oom->is_at_limit)
        oom->candidate[3].name = "memory_limit:0,per_process_memory_fraction:1";
    if (!oom->is_whole)
        return;
    const char *conf =
        json_string_value(json_object_get(json_object_get(oom->document, "config"), "string"));
    const cmd_oom_state_t state = {.segments = &oom->segments,
                                   .conf = conf ? conf : "",
                                   .bytes = (uint64_t)oom->bytes,
                                   .reserved = (uint64_t)oom->reserved,
                                   .available =
                                       oom->available < 0 ? UINT64_MAX : (uint64_t)oom->available,
                                   .limit = oom->limit < 0 ? UINT64_MAX : (uint64_t)oom->limit};
    cmd_oom_replay(&state, oom->candidate);
}

/* The first setting that is proved to serve it, or without `sure` that a replay serves it with;
 * NULL: there is none. */
static const cmd_oom_candidate_t *helper(const oom_t *oom, bool sure) {
    if (!oom->candidate[0].tried || oom->candidate[0].served)
        return NULL;
    for (int i = 1; i < CMD_OOM_CANDIDATES; i++)
        if (oom->candidate[i].name && (sure ? oom->candidate[i].sure : oom->candidate[i].served))
            return &oom->candidate[i];
    return NULL;
}

/* ------------------------------------------------------------------ words */

static const char *asker(const oom_t *oom) {
    int64_t module = figure(oom->failure, "module");
    return cmd_module_name(oom->document, module < 0 ? 0 : (unsigned)module);
}

static void say_what(const oom_t *oom) {
    char *line = cmd_failure_text(oom->document), limit[CMD_FIGURE];
    cmd_print_hanging(line, 0, 2);
    free(line);
    if (oom->is_at_limit && oom->limit >= 0)
        printf("The process may reserve %s.\n", cmd_text_bytes(limit, oom->limit));
}

static void row(cmd_table_t *table, const char *what, int64_t bytes, const char *more) {
    char text[CMD_FIGURE];
    if (bytes >= 0)
        cmd_table_row(table, what, cmd_text_bytes(text, bytes), more, NULL);
    else
        cmd_table_row(table, what, "not known", more, NULL);
}

static void row_of_state(cmd_table_t *table, const oom_t *oom, const char *what,
                         ac_laid_state_t state) {
    char text[CMD_FIGURE];
    int64_t blocks = oom->state[state].blocks;
    if (!blocks && state != AC_LAID_ALLOCATED)
        return;
    char *more = cmd_format("%s block%s", cmd_text_count(text, blocks), blocks == 1 ? "" : "s");
    if (state == AC_LAID_ALLOCATED && oom->wanted < oom->state[state].bytes) {
        char *longer = cmd_format("%s, %s of it rounding", more,
                                  cmd_text_bytes(text, oom->state[state].bytes - oom->wanted));
        free(more);
        more = longer;
    }
    row(table, what, oom->state[state].bytes, more);
    free(more);
}

static void rows_of_process(cmd_table_t *table, const oom_t *oom) {
    char text[CMD_FIGURE];
    row(table, "this process", oom->reserved, "reserved");
    if (!oom->is_whole)
        return;
    row_of_state(table, oom, "  held", AC_LAID_ALLOCATED);
    row_of_state(table, oom, "  freed, work may still use it", AC_LAID_PENDING);
    row_of_state(table, oom, "  freed, a graph may use it", AC_LAID_HELD);
    int64_t idle = oom->state[AC_LAID_FREE].bytes + oom->state[AC_LAID_CACHED].bytes;
    char *more = cmd_format("the largest part %s", cmd_text_bytes(text, oom->largest));
    row(table, "  free", idle, more);
    free(more);
    row(table, "    of it beside blocks in use", idle - oom->idle, "in the same segments");
}

static void rows_of_others(cmd_table_t *table, const oom_t *oom) {
    size_t index;
    const json_t *other;
    json_array_foreach(json_object_get(oom->failure, "others"), index, other) {
        const char *program = json_string_value(json_object_get(other, "program"));
        char *name = cmd_format("process %lld", (long long)figure(other, "pid"));
        row(table, name, figure(other, "reserved"), program ? program : "?");
        free(name);
    }
}

/* Calls that took memory past the library, as far as they are counted. */
static char *taken_elsewhere(const oom_t *oom) {
    static const char *const calls[] = {"cuMemCreate",        "cuArrayCreate_v2",
                                        "cuArray3DCreate_v2", "cuMipmappedArrayCreate",
                                        "cuMemAllocManaged",  NULL};
    const json_t *hooks = json_object_get(oom->document, "hooks");
    char *list = cmd_format("contexts, modules, what was taken without the library");
    int64_t passed = cmd_document_counter(oom->document, "passed_allocs") +
                     cmd_document_counter(oom->document, "passed_async");
    char text[CMD_FIGURE];
    for (int i = -1; i < 0 || calls[i]; i++) {
        int64_t n = i < 0 ? passed : figure(hooks, calls[i]);
        if (n <= 0)
            continue;
        char *longer = cmd_format("%s; here %s %s", list, cmd_text_count(text, n),
                                  i < 0 ? "allocations were left to the driver" : calls[i]);
        free(list);
        list = longer;
    }
    return list;
}

static int64_t held_by(const json_t *module) {
    return figure(json_object_get(module, "allocated_bytes"), "current");
}

static int by_held(const void *a, const void *b) {
    int64_t x = held_by(*(const json_t *const *)a), y = held_by(*(const json_t *const *)b);
    return (x < y) - (x > y);
}

/* The one that holds most comes first. */
static void print_modules(const oom_t *oom) {
    char text[CMD_FIGURE];
    const json_t *modules = json_object_get(oom->device, "modules");
    size_t count = json_array_size(modules);
    const json_t **module = cmd_alloc((count + 1) * sizeof *module);
    cmd_table_t *table = cmd_table_new("lr");
    for (size_t i = 0; i < count; i++)
        module[i] = json_array_get(modules, i);
    if (count)
        qsort(module, count, sizeof *module, by_held);
    for (size_t i = 0; i < count && held_by(module[i]) > 0; i++) {
        const char *name = json_string_value(json_object_get(module[i], "name"));
        cmd_table_row(table, name ? name : "code of no file",
                      cmd_text_bytes(text, held_by(module[i])), NULL);
    }
    free(module);
    if (oom->state[AC_LAID_ALLOCATED].blocks || !oom->is_whole)
        printf("\nHeld by\n");
    cmd_table_print(table, 2);
}

static void say_what_helps(const oom_t *oom) {
    char text[CMD_FIGURE], more[CMD_FIGURE];
    const cmd_oom_candidate_t *best = helper(oom, true), *maybe = helper(oom, false);
    int64_t room = oom->is_at_limit ? oom->limit - oom->reserved : oom->available;
    int64_t idle = oom->state[AC_LAID_FREE].bytes + oom->state[AC_LAID_CACHED].bytes;
    char *line;
    if (best)
        line = cmd_format("%s would have served it: replayed with the blocks as they lay, the "
                          "request is served, and wherever else they could have come to lie "
                          "there is room.",
                          best->name);
    else if (maybe)
        line =
            cmd_format("%s may have served it: replayed with the blocks as they lay the request "
                       "is served, but with it they would have come to lie elsewhere.  A "
                       "trace tells (accelcache run --trace, accelcache tune --capacity).",
                       maybe->name);
    else if (!oom->is_whole || !oom->candidate[0].tried)
        line = cmd_format("Nothing was replayed: the file does not list all blocks.");
    else if (oom->candidate[0].served)
        line =
            cmd_format("Replayed with the settings as they were the request is served: how the "
                       "blocks lay does not explain the failure.");
    else if (room >= 0 && idle + room < oom->bytes)
        line = cmd_format("No setting that was replayed would have served it: %s were free in "
                          "all, %s less than it asked for.",
                          cmd_text_bytes(text, idle + room),
                          cmd_text_bytes(more, oom->bytes - idle - room));
    else
        line = cmd_format("No setting that was replayed would have served it.");
    putchar('\n');
    cmd_print_hanging(line, 0, 2);
    free(line);
}

static void print(const oom_t *oom) {
    say_what(oom);
    cmd_table_t *table = cmd_table_new("lrl");
    rows_of_process(table, oom);
    rows_of_others(table, oom);
    char *elsewhere = taken_elsewhere(oom);
    row(table, "not explained", oom->unexplained, elsewhere);
    row(table, "free on the device", oom->available, "");
    row(table, "the device", oom->total, "");
    putchar('\n');
    cmd_table_print(table, 2);
    free(elsewhere);
    print_modules(oom);
    cmd_sites_recorded_print(oom->document, oom->ordinal, "Largest call sites", MOST_SITES);
    say_what_helps(oom);
}

/* ------------------------------------------------------------------ for machines */

static json_t *known(int64_t value) {
    return value < 0 ? json_null() : json_integer((json_int_t)value);
}

static int print_json(const oom_t *oom) {
    json_t *states = json_object(), *replays = json_array();
    const cmd_oom_candidate_t *best = helper(oom, true);
    int64_t stack = figure(oom->failure, "stack");
    for (int i = 0; i < AC_LAID_STATES; i++)
        json_object_set_new(states, ac_laid_words[i],
                            json_pack("{s:I, s:I}", "bytes", (json_int_t)oom->state[i].bytes,
                                      "blocks", (json_int_t)oom->state[i].blocks));
    for (int i = 0; i < CMD_OOM_CANDIDATES; i++)
        if (oom->candidate[i].tried)
            json_array_append_new(replays,
                                  json_pack("{s:s, s:b, s:b}", "settings", oom->candidate[i].name,
                                            "served", oom->candidate[i].served, "sure",
                                            oom->candidate[i].sure));
    return cmd_print_json(
        json_pack(
            "{s:I, s:o, s:I, s:b, s:o, s:o, s:I, s:O?, s:I, s:o, s:I, s:o, s:I, s:I, s:O?, "
            "s:o, s:o, s:o, s:o}",
            "device", (json_int_t)oom->ordinal, "module", cmd_json_text(asker(oom)), "bytes",
            (json_int_t)oom->bytes, "at_limit", oom->is_at_limit, "limit", known(oom->limit),
            "device_free", known(oom->available), "device_total", (json_int_t)oom->total,
            "others", json_object_get(oom->failure, "others"), "others_reserved",
            (json_int_t)oom->others, "unexplained", known(oom->unexplained), "reserved",
            (json_int_t)oom->reserved, "blocks", states, "idle_segments", (json_int_t)oom->idle,
            "largest_free", (json_int_t)oom->largest, "modules",
            json_object_get(oom->device, "modules"), "replays", replays, "would_serve",
            best ? json_string(best->name) : json_null(), "site",
            stack > 0 ? cmd_json_text(cmd_recorded_site(oom->document, stack)) : json_null(),
            "sites", cmd_sites_recorded_json(oom->document, oom->ordinal)),
        0);
}

static int show(const char *path, bool json) {
    char *error = NULL;
    oom_t oom = {0};
    json_t *document = cmd_document_load(path, &error);
    bool done = document && read(&oom, document, &error);
    int status = done ? CMD_OK : CMD_FAILED;
    if (!done) {
        cmd_say("%s: %s", path, error);
    } else {
        replay(&oom);
        if (json)
            status = print_json(&oom);
        else
            print(&oom);
    }
    free(error);
    cmd_segments_free(&oom.segments);
    json_decref(document);
    return status;
}

int cmd_oom(int argc, char **argv) {
    bool json = false;
    int status;
    const cmd_option_t options[] = {{"json", 'j', .flag = &json}, {.name = NULL}};
    if (!cmd_options(argc, argv, options, help, &status))
        return status;
    if (optind == argc)
        return cmd_usage("FILE is missing");
    if (argc - optind > 1)
        return cmd_usage("\"%s\" is one argument too many", argv[optind + 1]);
    return show(argv[optind], json);
}
