/* See oom_report.h. */
#include "tell/oom_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tell/layouts.h"
#include "track/running.h"
#include "tell/recording.h"
#include "observe/dump.h"
#include "observe/filter.h"
#include "observe/folder.h"
#include "observe/log.h"
#include "observe/module_name.h"
#include "observe/raw.h"
#include "tell/process_dump.h"

enum { SIZE_TEXT = 32 };

/* Formats without floating point: the program's locale may have a comma. */
static const char *size_text(char text[SIZE_TEXT], uint64_t bytes) {
    if (bytes < 10 << 10)
        snprintf(text, SIZE_TEXT, "%" PRIu64 " bytes", bytes);
    else if (bytes < 10 << 20)
        snprintf(text, SIZE_TEXT, "%" PRIu64 " KiB", bytes >> 10);
    else
        snprintf(text, SIZE_TEXT, "%" PRIu64 " MiB", bytes >> 20);
    return text;
}

/* ---- other processes ---- */

static bool same_device(const ac_live_device_t *a, const ac_live_device_t *b) {
    static const unsigned char unknown[sizeof a->uuid];
    return memcmp(a->uuid, unknown, sizeof unknown) ? !memcmp(a->uuid, b->uuid, sizeof a->uuid)
                                                    : a->ordinal == b->ordinal;
}

/* Stores a process in the list. If the list is full, the smallest entry gives way. */
static void add_other(ac_dump_oom_t *oom, const ac_live_name_t *name, const ac_live_t *page,
                      uint64_t reserved) {
    unsigned at = oom->others++;
    if (at >= AC_DUMP_OTHERS) {
        at = 0;
        for (unsigned i = 1; i < AC_DUMP_OTHERS; i++)
            if (oom->other[i].reserved < oom->other[at].reserved)
                at = i;
        if (oom->other[at].reserved >= reserved)
            return;
    }
    oom->other[at].pid = name->pid;
    oom->other[at].here = name->here;
    oom->other[at].reserved = reserved;
    ac_live_exe(page, oom->other[at].exe);
}

static void look_at_other(const ac_live_name_t *name, void *arg) {
    ac_dump_oom_t *oom = arg;
    char why[64];
    bool alive = false;
    const ac_live_device_t *ours = ac_live_device(ac_live, (unsigned)oom->ordinal);
    if (!ours || (name->pid == ac_live->pid && name->space == ac_live->space))
        return;
    const ac_live_t *page = ac_live_read(name, &alive, why, sizeof why);
    for (unsigned i = 0; page && alive && i < AC_LIVE_DEVICES; i++) {
        const ac_live_device_t *device = ac_live_device(page, i);
        if (!device || !same_device(ours, device))
            continue;
        int64_t reserved = device->stats.reserved_bytes[AC_POOL_ALL].current;
        if (reserved > 0)
            add_other(oom, name, page, (uint64_t)reserved);
    }
    if (page)
        ac_live_free(page);
}

/* ---- the document ---- */

/* Returns true if enough time has passed since the last document. Then the caller writes the
 * next. */
static bool may_write(void) {
    enum { APART_SECONDS = 10 };
    static _Atomic uint64_t next;
    uint64_t now = ac_cuda_ops.now_ns(), due = atomic_load(&next);
    return now >= due &&
           atomic_compare_exchange_strong(&next, &due, now + APART_SECONDS * 1000000000ull);
}

static int write_document(ac_dump_oom_t *oom, char *path, size_t size) {
    ac_layouts_t *layouts = ac_layouts_take();
    ac_record_snapshot();
    const ac_dump_more_t more = {.oom = oom,
                                 .layout = layouts ? layouts->layout : NULL,
                                 .layouts = layouts ? layouts->count : 0};
    ac_live_each(look_at_other, oom);
    int error =
        ac_process_dump_with(ac_process_config()->oom_dump, "out of memory", &more, path, size);
    ac_layouts_free(layouts);
    return error;
}

/* ---- the line ---- */

/* Returns true if the request would fit after pages were moved. It then takes whole pages of its
 * own. */
static bool pages_help(const ac_dump_oom_t *oom, uint64_t movable, uint64_t page, uint64_t room) {
    return !ac_process_config()->expandable_segments && movable &&
           movable + room >= (oom->bytes + page - 1) / page * page;
}

static void say(ac_context_t *context, const ac_dump_oom_t *oom, const char *more) {
    char asked[SIZE_TEXT], total[SIZE_TEXT], left[SIZE_TEXT], held[SIZE_TEXT], size[SIZE_TEXT];
    char module[AC_MODULE_LABEL], waiting[96] = "", captured[96] = "";
    ac_allocator_t *allocator = ac_arena_allocator(context->arena);
    ac_device_stats_t stats;
    const ac_config_t *config = ac_process_config();
    const ac_live_device_t *live = ac_live_device(ac_live, (unsigned)oom->ordinal);
    uint64_t page = config->low_memory ? AC_SEGMENT_ALIGN : config->page_size;
    ac_free_bytes_t free_bytes = ac_allocator_free_bytes(allocator, page);
    ac_allocator_stats(allocator, &stats);
    int64_t allocated = stats.allocated_bytes[AC_POOL_ALL].current;
    int64_t freed = stats.active_bytes[AC_POOL_ALL].current - allocated;
    int64_t graphs = live ? (int64_t)live->counters.capture_deferred_bytes : 0;
    int64_t kept = freed - graphs + (int64_t)free_bytes.kept; /* may be negative: threads go on */
    int64_t parts = stats.reserved_bytes[AC_POOL_ALL].current - allocated - freed -
                    (int64_t)free_bytes.kept;
    uint64_t room = oom->available == UINT64_MAX ? 0 : oom->available;
    if (oom->at_limit)
        room = ac_allocator_room(allocator);
    if (kept > 0)
        snprintf(waiting, sizeof waiting, "%s freed here and kept by work that is not over, ",
                 size_text(size, (uint64_t)kept));
    if (graphs > 0)
        snprintf(captured, sizeof captured, "%s freed here and kept for captured graphs, ",
                 size_text(size, (uint64_t)graphs));
    ac_log(AC_LOG_WARNING,
           "out of memory on device %d: %s asked for %s%s; the device has %s, %s free; %s "
           "allocated here, %s%s%s in free parts of segments in use%s%s",
           oom->ordinal, ac_module_label(module, oom->module, "code of no file"),
           size_text(asked, oom->bytes), oom->at_limit ? ", beyond the configured limit" : "",
           size_text(total, ac_live->total_memory[oom->ordinal]),
           oom->available == UINT64_MAX ? "not known how much" : size_text(left, oom->available),
           size_text(held, (uint64_t)allocated), waiting, captured,
           size_text(size, parts > 0 ? (uint64_t)parts : 0),
           pages_help(oom, free_bytes.movable, page, room)
               ? ", which ACCEL_ALLOC_CONF=expandable_segments:true may put together"
               : "",
           more);
}

/* The report lies on the heap: the thread's stack may be small. */
typedef struct {
    ac_dump_oom_t oom;
    char path[AC_FOLDER_PATH], rest[AC_FOLDER_PATH + 128];
} report_t;

static void write_down(report_t *report) {
    int error = write_document(&report->oom, report->path, sizeof report->path);
    if (error)
        snprintf(report->rest, sizeof report->rest, ". %s cannot be written: %s", report->path,
                 strerror(error));
    else
        snprintf(report->rest, sizeof report->rest, ". accelcache oom %s says who holds it",
                 report->path);
}

void ac_oom_report(ac_thread_t *thread, ac_context_t *context, unsigned module,
                   const void *caller, bool async, uint64_t bytes, bool at_limit) {
    static const char hint[] = ". oom_dump:oom-%p.json there writes down who holds it";
    static _Atomic int said;
    ac_allocator_t *allocator = ac_arena_allocator(context->arena);
    bool wanted = strcmp(ac_process_config()->oom_dump, "none") != 0;
    bool writes = wanted && !ac_filter_now() && may_write();
    bool first = !atomic_exchange(&said, 1);
    report_t *report = writes || first ? calloc(1, sizeof *report) : NULL;
    /* The figure costs a driver call. It is read only if it is used, because some programs try
     * again and again. */
    uint64_t available = UINT64_MAX;
    bool recorded = atomic_load_explicit(&ac_recording, memory_order_relaxed);
    if ((report || recorded) && !ac_allocator_available(allocator, &available))
        available = UINT64_MAX;
    uint32_t stack = ac_record_oom(thread, context->cuda.device, bytes, available, caller);
    if (!report)
        return;
    report->oom.ordinal = (int)context->cuda.device;
    report->oom.module = module;
    report->oom.async = async;
    report->oom.at_limit = at_limit;
    report->oom.bytes = bytes;
    report->oom.limit = ac_allocator_limit(allocator);
    report->oom.thread = ac_raw_gettid();
    report->oom.available = available;
    report->oom.stack = stack;
    if (writes)
        write_down(report);
    else if (!wanted)
        memcpy(report->rest, hint, sizeof hint);
    if (first)
        say(context, &report->oom, report->rest);
    free(report);
}
