/* Growth of modules and of call sites (growth.h).
 *
 * Memory that a program takes and returns in each round of a loop goes up and down; memory that it forgets
 * raises the least of each round.  So the looks are divided into thirds by their number, and a module's memory
 * rises if the least of each third is above that of the one before. */
#include "show/growth.h"
#include "command.h"
#include "read/control.h"
#include "read/document.h"
#include "read/sites.h"
#include "base/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST_PARTS = 3 };

typedef struct {
    int64_t device;
    char *name, *path; /* empty: not known */
    int64_t *held;     /* bytes, by look */
    int64_t low[MOST_PARTS];
    double per_second;
    bool rises, is_site; /* site: a call site, by its name alone */
} module_t;

typedef struct {
    unsigned looks, modules, parts;
    double *at; /* seconds */
    module_t *module;
    bool named;    /* the documents tell of modules */
    char *unasked; /* why the process told of no call sites; NULL: it was asked, or there is none */
} growth_t;

/* ------------------------------------------------------------------ looks */

static module_t *holder_of(growth_t *growth, int64_t device, const char *name, const char *path,
                           bool is_site) {
    for (unsigned i = 0; i < growth->modules; i++) {
        module_t *module = &growth->module[i];
        if (module->device == device && module->is_site == is_site &&
            !strcmp(is_site ? module->name : module->path, is_site ? name : path))
            return module;
    }
    growth->module = cmd_resize(growth->module, (growth->modules + 1) * sizeof *growth->module);
    module_t *module = &growth->module[growth->modules++];
    *module = (module_t){.device = device,
                         .name = cmd_format("%s", name),
                         .path = cmd_format("%s", path),
                         .is_site = is_site,
                         .held = cmd_alloc((growth->looks + 1) * sizeof(int64_t))};
    memset(module->held, 0, (growth->looks + 1) * sizeof(int64_t)); /* before it asked first */
    return module;
}

static void add_look(growth_t *growth, const json_t *document) {
    const json_t *devices = json_object_get(document, "devices");
    growth->at = cmd_resize(growth->at, (growth->looks + 1) * sizeof *growth->at);
    growth->at[growth->looks] = cmd_document_seconds(cmd_text(document, "time"));
    for (unsigned i = 0; i < growth->modules; i++) {
        module_t *module = &growth->module[i];
        module->held = cmd_resize(module->held, (growth->looks + 1) * sizeof(int64_t));
        module->held[growth->looks] = 0;
    }
    for (size_t i = 0; i < json_array_size(devices); i++) {
        const json_t *device = json_array_get(devices, i);
        const json_t *modules = json_object_get(device, "modules");
        int64_t ordinal = cmd_integer(device, "ordinal");
        growth->named |= modules != NULL;
        for (size_t k = 0; k < json_array_size(modules); k++) {
            const json_t *json = json_array_get(modules, k);
            const json_t *bytes = json_object_get(json, "allocated_bytes");
            /* Several have no path: they count as one. */
            int64_t *held = &holder_of(growth, ordinal, cmd_text(json, "name"),
                                       cmd_text(json, "path"), false)
                                 ->held[growth->looks];
            *held = cmd_sum(*held, cmd_integer(bytes, "current"), 1);
        }
    }
    cmd_sites_t sites;
    cmd_sites_recorded(document, -1, &sites);
    for (size_t i = 0; i < sites.count; i++)
        holder_of(growth, sites.site[i].device, sites.site[i].name, "", true)->held[growth->looks] =
            sites.site[i].bytes;
    cmd_sites_free(&sites);
    growth->looks++;
}

static void clear(growth_t *growth) {
    for (unsigned i = 0; i < growth->modules; i++) {
        free(growth->module[i].name);
        free(growth->module[i].path);
        free(growth->module[i].held);
    }
    free(growth->module);
    free(growth->at);
    free(growth->unasked);
}

/* ------------------------------------------------------------------ what they say */

/* Returns the first look of part `i`. */
static unsigned part_begin(const growth_t *growth, unsigned i) {
    return growth->looks * i / growth->parts;
}

static double part_time(const growth_t *growth, unsigned i) {
    return (growth->at[part_begin(growth, i)] + growth->at[part_begin(growth, i + 1) - 1]) / 2;
}

static void judge_module(const growth_t *growth, module_t *module) {
    unsigned last = growth->parts - 1;
    module->rises = true;
    for (unsigned i = 0; i < growth->parts; i++) {
        unsigned at = part_begin(growth, i);
        module->low[i] = module->held[at];
        for (; at < part_begin(growth, i + 1); at++)
            if (module->held[at] < module->low[i])
                module->low[i] = module->held[at];
        module->rises &= !i || module->low[i] > module->low[i - 1];
    }
    double seconds = part_time(growth, last) - part_time(growth, 0);
    module->per_second = seconds > 0 ? (double)(module->low[last] - module->low[0]) / seconds : 0;
}

/* Rising ones come first, the fastest in front. */
static int by_growth(const void *a, const void *b) {
    const module_t *x = a, *y = b;
    if (x->rises != y->rises)
        return x->rises ? -1 : 1;
    return x->per_second < y->per_second ? 1 : x->per_second > y->per_second ? -1 : 0;
}

static void judge(growth_t *growth) {
    growth->parts = growth->looks < MOST_PARTS ? growth->looks : MOST_PARTS;
    for (unsigned i = 0; i < growth->modules; i++)
        judge_module(growth, &growth->module[i]);
    if (growth->modules)
        qsort(growth->module, growth->modules, sizeof *growth->module, by_growth);
}

static double seconds(const growth_t *growth) {
    return growth->at[growth->looks - 1] - growth->at[0];
}

static unsigned count_rising(const growth_t *growth, bool sites) {
    unsigned rising = 0;
    for (unsigned i = 0; i < growth->modules; i++)
        rising += growth->module[i].rises && growth->module[i].is_site == sites;
    return rising;
}

static void print_table(const growth_t *growth, bool sites) {
    cmd_table_t *table = cmd_table_new("lrrrr");
    cmd_table_row(table, sites ? "call site" : "module that asked", "device", "least at first",
                  "least at last", "a second");
    for (unsigned i = 0; i < growth->modules && growth->module[i].rises; i++) {
        const module_t *module = &growth->module[i];
        if (module->is_site != sites)
            continue;
        char device[CMD_FIGURE], low[2][CMD_FIGURE], rate[CMD_FIGURE] = "-";
        if (module->per_second > 0)
            cmd_text_bytes(rate, (int64_t)(module->per_second + 0.5));
        cmd_table_row(table, *module->name ? module->name : "(not known)",
                      cmd_text_count(device, module->device),
                      cmd_text_bytes(low[0], module->low[0]),
                      cmd_text_bytes(low[1], module->low[growth->parts - 1]), rate);
    }
    cmd_table_print(table, 2);
}

static void print_unasked(const char *why) {
    char *text = cmd_format("Call sites are not known: %s.  They are with "
                            "ACCEL_ALLOC_CONF=control:true,stacks:sampled.",
                            why);
    putchar('\n');
    cmd_print_paragraph(text, 0);
    free(text);
}

static void print_text(const growth_t *growth) {
    unsigned rising = count_rising(growth, false);
    printf("%u looks over %.1f s: ", growth->looks, seconds(growth));
    if (!rising) {
        puts("no module's memory rises");
    } else {
        printf("memory of %u module%s rises\n\n", rising, rising == 1 ? "" : "s");
        print_table(growth, false);
    }
    if (count_rising(growth, true)) {
        putchar('\n');
        print_table(growth, true);
    }
    if (growth->unasked && rising)
        print_unasked(growth->unasked);
    if (rising && growth->looks < 2 * MOST_PARTS)
        cmd_print_paragraph(
            "Few looks: a program that is still taking what it needs looks the same.", 0);
}

static json_t *to_json(const growth_t *growth) {
    json_t *modules = json_array(), *sites = json_array();
    for (unsigned i = 0; i < growth->modules; i++) {
        const module_t *module = &growth->module[i];
        json_t *low = json_array();
        for (unsigned k = 0; k < growth->parts; k++)
            json_array_append_new(low, json_integer(module->low[k]));
        json_array_append_new(
            module->is_site ? sites : modules,
            json_pack("{s:I, s:o, s:o, s:b, s:I, s:I, s:o, s:f}", "device",
                      (json_int_t)module->device, "name",
                      *module->name ? cmd_json_text(module->name) : json_null(), "path",
                      *module->path ? cmd_json_text(module->path) : json_null(), "rises",
                      module->rises, "first", (json_int_t)module->held[0], "last",
                      (json_int_t)module->held[growth->looks - 1], "least", low,
                      "bytes_per_second", module->per_second));
    }
    return json_pack("{s:s, s:i, s:I, s:f, s:o, s:o, s:o}", "schema", "accelcache-growth",
                     "version", 1, "looks", (json_int_t)growth->looks, "seconds", seconds(growth),
                     "modules", modules, "sites", sites, "sites_unknown",
                     growth->unasked ? cmd_json_text(growth->unasked) : json_null());
}

static int report(growth_t *growth, bool json) {
    if (growth->looks < 2) {
        cmd_say("--growth: growth shows in two looks or more; there is %u", growth->looks);
        return CMD_FAILED;
    }
    if (!growth->named) {
        cmd_say("--growth: these documents tell of no modules; they are of an older version, or "
                "no device was used");
        return CMD_FAILED;
    }
    judge(growth);
    if (json)
        return cmd_print_json(to_json(growth), JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9));
    print_text(growth);
    return CMD_OK;
}

/* ------------------------------------------------------------------ sources of the looks */

static int by_time(const void *a, const void *b) {
    const json_t *x = *(const json_t *const *)a, *y = *(const json_t *const *)b;
    return strcmp(cmd_text(x, "time"), cmd_text(y, "time"));
}

static bool same_process(const json_t *a, const json_t *b) {
    const json_t *x = json_object_get(a, "process"), *y = json_object_get(b, "process");
    return json_equal(json_object_get(x, "pid"), json_object_get(y, "pid")) &&
           json_equal(json_object_get(x, "host"), json_object_get(y, "host")) &&
           json_equal(json_object_get(x, "start_time"), json_object_get(y, "start_time"));
}

int cmd_growth_of(const cmd_rendered_t *document, unsigned count, bool json) {
    growth_t growth = {0};
    const json_t **list = cmd_alloc((count + 1) * sizeof *list);
    for (unsigned i = 0; i < count; i++) {
        list[i] = document[i].document;
        if (same_process(list[0], list[i]))
            continue;
        cmd_say("--growth: %s and %s are of two processes", document[0].source,
                document[i].source);
        free(list);
        return CMD_FAILED;
    }
    if (count)
        qsort(list, count, sizeof *list, by_time);
    for (unsigned i = 0; i < count; i++)
        add_look(&growth, list[i]);
    free(list);
    int status = report(&growth, json);
    clear(&growth);
    return status;
}

/* The figures that the process itself writes, with call sites, which its page does not have.  NULL: *error. */
static json_t *ask_figures(const ac_live_name_t *name, const char *path, char **error) {
    ac_control_answer_t answer;
    if (!cmd_control(name, AC_CONTROL_FIGURES, path, &answer, error))
        return NULL;
    json_t *document = cmd_document_load(path, error);
    unlink(path);
    return document;
}

/* Falls back to the page of a process that does not answer, or cannot write where we read. */
static json_t *look_at(const ac_live_name_t *name, const char *path, char **why, bool *alive,
                       char **error) {
    json_t *document = *why ? NULL : ask_figures(name, path, why);
    return document ? document : cmd_document_live(name, alive, error);
}

static char *make_folder(void) {
    const char *folder = getenv("TMPDIR");
    char *path = cmd_format("%s/accelcache-XXXXXX", folder && *folder == '/' ? folder : "/tmp");
    if (mkdtemp(path))
        return path;
    free(path);
    return NULL;
}

int cmd_growth_watch(int pid, uint64_t space, unsigned looks, double pause_seconds, bool json) {
    growth_t growth = {0};
    char *error = NULL, *why = NULL, *folder = make_folder();
    char *path = folder ? cmd_format("%s/figures.json", folder) : NULL;
    bool alive = true;
    json_t *first = NULL;
    if (!path)
        why = cmd_format("there is no folder for temporary files");
    struct timespec pause = {(time_t)pause_seconds,
                             (long)((pause_seconds - (double)(time_t)pause_seconds) * 1e9)};
    for (unsigned i = 0; i < looks && alive && !error; i++) {
        ac_live_name_t name;
        if (i)
            nanosleep(&pause, NULL);
        json_t *document = cmd_page_find(pid, space, &name, &error)
                               ? look_at(&name, path, &why, &alive, &error)
                               : NULL;
        if (document && (!first || same_process(first, document))) {
            add_look(&growth, document);
            cmd_bar_step("looking", i + 1, looks);
        }
        if (first)
            json_decref(document);
        else
            first = document;
    }
    cmd_bar_end();
    json_decref(first);
    if (folder)
        rmdir(folder);
    free(path);
    free(folder);
    growth.unasked = why;
    /* A process that ends while one looks has been looked at. */
    int status = CMD_FAILED;
    if (error && growth.looks < 2)
        cmd_say("%s", error);
    else
        status = report(&growth, json);
    free(error);
    clear(&growth);
    return status;
}
