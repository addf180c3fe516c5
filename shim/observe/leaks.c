/* The leak report (leaks.h). */
#include "observe/leaks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "observe/log.h"
#include "observe/module_name.h"
#include "observe/raw.h"
#include "observe/recorded.h"

/* Blocks of one requested size of one module; during the gathering, a single block. */
typedef struct {
    uint32_t device, module;
    uint64_t requested; /* bytes of each request */
    uint64_t blocks, bytes;
} kind_t;

/* The holdings of one module on one device: `count` kinds from `first` on, the most bytes first. */
typedef struct {
    unsigned device, module;
    size_t first, count;
    uint64_t blocks, bytes;
} holder_t;

enum { MOST_HOLDERS = AC_LIVE_DEVICES * AC_MODULES, MOST_SIZES = 16, MOST_SAID = 4 };

static struct {
    bool looked;
    kind_t *kind;
    holder_t *holder; /* the most bytes first */
    size_t kinds, holders;
    uint64_t blocks, bytes;
} found;

/* ------------------------------------------------------------------ finding */

typedef struct {
    unsigned device;
    size_t count, room;
    kind_t *kind;
} gather_t;

static void count_block(const ac_held_t *block, void *arg) {
    gather_t *gather = arg;
    (void)block;
    gather->room++;
}

static void gather_block(const ac_held_t *block, void *arg) {
    gather_t *gather = arg;
    if (gather->count < gather->room) /* else: taken since they were counted */
        gather->kind[gather->count++] =
            (kind_t){gather->device, block->module, block->requested, 1, block->size};
}

/* Gathers the blocks of a device.  It visits them twice, because the list cannot be allocated under the device's
 * lock: the first visit counts the blocks. */
static void gather_device(ac_held_each_fn *each, const struct timespec *deadline,
                          unsigned device) {
    gather_t gather = {.device = device};
    if (!each(device, deadline, count_block, &gather) || !gather.room)
        return;
    kind_t *kind = realloc(found.kind, (found.kinds + gather.room) * sizeof *kind);
    if (!kind)
        return;
    found.kind = kind;
    gather.kind = kind + found.kinds;
    if (each(device, deadline, gather_block, &gather))
        found.kinds += gather.count;
}

static int compare(uint64_t a, uint64_t b) {
    return (a > b) - (a < b);
}

static int by_kind(const void *a, const void *b) {
    const kind_t *x = a, *y = b;
    if (x->device != y->device)
        return compare(x->device, y->device);
    if (x->module != y->module)
        return compare(x->module, y->module);
    return compare(x->requested, y->requested);
}

static int by_kind_bytes(const void *a, const void *b) {
    const kind_t *x = a, *y = b;
    return x->bytes == y->bytes ? compare(y->requested, x->requested)
                                : compare(y->bytes, x->bytes);
}

static int by_holder_bytes(const void *a, const void *b) {
    const holder_t *x = a, *y = b;
    if (x->bytes != y->bytes)
        return compare(y->bytes, x->bytes);
    return x->device == y->device ? compare(x->module, y->module) : compare(x->device, y->device);
}

/* Blocks of one kind become one entry. */
static void join_kinds(void) {
    size_t kinds = 0;
    qsort(found.kind, found.kinds, sizeof *found.kind, by_kind);
    for (size_t i = 0; i < found.kinds; i++) {
        const kind_t *next = &found.kind[i];
        kind_t *last = kinds ? &found.kind[kinds - 1] : NULL;
        found.blocks += next->blocks;
        found.bytes += next->bytes;
        if (last && by_kind(last, next) == 0) {
            last->blocks += next->blocks;
            last->bytes += next->bytes;
        } else {
            found.kind[kinds++] = *next;
        }
    }
    found.kinds = kinds;
}

static void list_holders(void) {
    for (size_t i = 0; i < found.kinds; i++) {
        const kind_t *kind = &found.kind[i];
        holder_t *holder = found.holders ? &found.holder[found.holders - 1] : NULL;
        if (!holder || holder->device != kind->device || holder->module != kind->module) {
            holder = &found.holder[found.holders++];
            *holder = (holder_t){.device = kind->device, .module = kind->module, .first = i};
        }
        holder->count++;
        holder->blocks += kind->blocks;
        holder->bytes += kind->bytes;
    }
    for (size_t i = 0; i < found.holders; i++)
        qsort(&found.kind[found.holder[i].first], found.holder[i].count, sizeof *found.kind,
              by_kind_bytes);
    qsort(found.holder, found.holders, sizeof *found.holder, by_holder_bytes);
}

void ac_leaks_find(ac_held_each_fn *each) {
    struct timespec deadline = ac_raw_time(CLOCK_REALTIME);
    deadline.tv_sec++;
    found.looked = true;
    for (unsigned device = 0; device < AC_LIVE_DEVICES; device++)
        if (ac_live_device(ac_live, device))
            gather_device(each, &deadline, device);
    if (!found.kinds)
        return;
    join_kinds();
    found.holder =
        malloc((found.kinds < MOST_HOLDERS ? found.kinds : MOST_HOLDERS) * sizeof *found.holder);
    if (found.holder)
        list_holders();
}

/* ------------------------------------------------------------------ telling */

/* Appends "libplugin.so (10 blocks, 2621440 bytes, 9 of 262144 each)" to `text`. */
static size_t add_holder(char *text, size_t used, size_t size, const holder_t *holder) {
    char name[AC_MODULE_LABEL];
    const kind_t *most = &found.kind[holder->first];
    int n =
        snprintf(text + used, size - used,
                 "%s%s (%" PRIu64 " block%s, %" PRIu64 " bytes, %" PRIu64 " of %" PRIu64 " each)",
                 used ? ", " : "", ac_module_label(name, holder->module, "code of no module"),
                 holder->blocks, holder->blocks == 1 ? "" : "s", holder->bytes, most->blocks,
                 most->requested);
    return n < 0 || (size_t)n >= size - used ? size - 1 : used + (size_t)n;
}

void ac_leaks_say(void) {
    char text[640] = "", more[48] = "", label[AC_SITE_LABEL], site[AC_SITE_LABEL + 96] = "";
    ac_recorded_site_t largest;
    size_t used = 0, said = found.holders < MOST_SAID ? found.holders : MOST_SAID;
    if (!found.blocks)
        return;
    for (size_t i = 0; i < said; i++)
        used = add_holder(text, used, sizeof text, &found.holder[i]);
    if (found.holders > said)
        snprintf(more, sizeof more, ", and %zu more", found.holders - said);
    if (ac_recorded_largest(&largest))
        snprintf(site, sizeof site,
                 "; the largest site is %s (%" PRIu64 " block%s, %" PRIu64 " bytes)",
                 ac_site_label(label, largest.stack), largest.blocks,
                 largest.blocks == 1 ? "" : "s", largest.bytes);
    ac_log(AC_LOG_WARNING,
           "leak: %" PRIu64 " block%s of device memory, %" PRIu64
           " bytes, not freed at exit, asked for by %s%s%s",
           found.blocks, found.blocks == 1 ? "" : "s", found.bytes, text, more, site);
}

static void put_sizes(json_t *json, const holder_t *holder, bool *failed) {
    json_t *sizes = json_array();
    ac_json_put(json, "sizes", sizes, failed);
    for (size_t i = 0; i < holder->count && i < MOST_SIZES && !*failed; i++) {
        const kind_t *kind = &found.kind[holder->first + i];
        json_t *one = json_object();
        ac_json_append(sizes, one, failed);
        if (*failed)
            return;
        ac_json_put_integer(one, "requested_bytes", (int64_t)kind->requested, failed);
        ac_json_put_integer(one, "blocks", (int64_t)kind->blocks, failed);
        ac_json_put_integer(one, "bytes", (int64_t)kind->bytes, failed);
    }
}

void ac_leaks_put(json_t *root, bool *failed) {
    char exe[AC_LIVE_EXE];
    if (!found.looked)
        return;
    json_t *leaks = json_array();
    ac_json_put(root, "leaks", leaks, failed);
    ac_live_exe(ac_live, exe);
    for (size_t i = 0; i < found.holders && !*failed; i++) {
        const holder_t *holder = &found.holder[i];
        json_t *json = json_object();
        ac_json_append(leaks, json, failed);
        if (*failed)
            return;
        ac_json_put_integer(json, "device", ac_live_device(ac_live, holder->device)->ordinal,
                            failed);
        ac_module_put(json, ac_module_path(ac_live, holder->module, exe), failed);
        ac_json_put_integer(json, "blocks", (int64_t)holder->blocks, failed);
        ac_json_put_integer(json, "bytes", (int64_t)holder->bytes, failed);
        put_sizes(json, holder, failed);
    }
}
