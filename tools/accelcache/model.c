/* The modelled device (model.h). */
#include "model.h"
#include "command.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Where segments lie, and where ranges of pages do. */
#define BASE      ((uint64_t)0x200000000000)
#define END       ((uint64_t)0x300000000000)
#define PAGES     END
#define PAGES_END ((uint64_t)0x7f0000000000)

/* No page is larger: a search for the one that covers an address goes no further back. */
#define LARGEST_PAGE ((uint64_t)1 << 30)

typedef struct {
    uint64_t address, size;
} range_t;

typedef struct {
    uint64_t submitted;         /* kernels */
    double end;                 /* of the last one */
    double ends[CMD_RUN_AHEAD]; /* of the last ones */
} stream_t;

/* A fence is a number: with CMD_WORK_DELAY of the last operation that it covers, with
 * CMD_WORK_STREAMS the time at which it completes. */
typedef union fence {
    uint64_t operation;
    double time;
    union fence *next; /* spare */
} fence_t;

/* A physical page; its memory is taken as long as somebody holds it or it is mapped. */
typedef struct {
    uint64_t bytes;
    bool held;
    uint32_t mapped; /* times */
} page_t;

/* Reserved addresses, and which page (by number, 0: none) begins at each multiple of UNIT. */
typedef struct {
    uint64_t address, size;
    uint32_t *page;
} reserved_t;

enum { MOST_RESERVED = 16 };
#define UNIT AC_SEGMENT_ALIGN

/* Invariant: the ranges are in address order, do not overlap, and add up to `used`. */
struct cmd_model {
    cmd_costs_t costs;
    uint64_t capacity, used;
    range_t *range;
    size_t ranges, range_room;
    reserved_t reserved[MOST_RESERVED];
    unsigned reserves;
    page_t *page; /* [0] is unused */
    size_t pages, page_room;
    uint64_t *spare_page; /* numbers */
    size_t spare_pages;
    const char *misuse;
    cmd_work_t work;
    bool no_fences;
    uint64_t delay, operations, waited; /* CMD_WORK_DELAY: up to `waited` all is complete */
    double now;                         /* ns */
    stream_t **stream;
    unsigned streams;
    fence_t *spare;
    cmd_model_figures_t figures;
};

/* The contract's clock has no context; there is one model at a time in a process. */
static const cmd_model_t *current;

cmd_model_t *cmd_model_new(const cmd_costs_t *costs, uint64_t capacity, cmd_work_t work,
                           uint64_t delay, bool no_fences) {
    cmd_model_t *model = cmd_alloc(sizeof *model);
    model->costs = *costs;
    model->capacity = capacity;
    model->work = work;
    model->delay = delay;
    model->no_fences = no_fences;
    current = model;
    return model;
}

static size_t page_table_size(const reserved_t *reserved) {
    return reserved->size / UNIT * sizeof *reserved->page;
}

void cmd_model_free(cmd_model_t *model) {
    while (model->spare) {
        fence_t *next = model->spare->next;
        free(model->spare);
        model->spare = next;
    }
    for (unsigned i = 0; i < model->streams; i++)
        free(model->stream[i]);
    for (unsigned i = 0; i < model->reserves; i++)
        munmap(model->reserved[i].page, page_table_size(&model->reserved[i]));
    free(model->stream);
    free(model->range);
    free(model->page);
    free(model->spare_page);
    free(model);
    current = NULL;
}

static void charge(cmd_model_t *model, unsigned call, const cmd_cost_t *cost, uint64_t bytes,
                   uint64_t pages) {
    double ns =
        cost->fixed + cost->per_mib * (double)bytes / 1048576 + cost->per_page * (double)pages;
    model->figures.call[call]++;
    model->figures.ns += ns;
    model->now += ns;
}
#define CHARGE(model, name, bytes) charge(model, CMD_CALL_##name, &(model)->costs.name, bytes, 0)

static ac_status_t misuse(cmd_model_t *model, const char *what) {
    if (!model->misuse)
        model->misuse = what;
    return AC_FAILED;
}

const char *cmd_model_misuse(const cmd_model_t *model) {
    return model->misuse;
}

/* ------------------------------------------------------------------ memory */

static size_t find_range(const cmd_model_t *model, uint64_t address) {
    size_t low = 0, high = model->ranges;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (model->range[middle].address < address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void take_memory(cmd_model_t *model, uint64_t bytes) {
    model->used += bytes;
    if (model->used > model->figures.peak)
        model->figures.peak = model->used;
}

static ac_status_t segment_alloc(void *context, uint64_t bytes, uint64_t *address) {
    cmd_model_t *model = context;
    CHARGE(model, alloc, bytes);
    if (bytes > model->capacity - model->used)
        return AC_OOM;
    uint64_t start = BASE;
    size_t at = 0;
    for (; at < model->ranges && model->range[at].address - start < bytes; at++)
        start = model->range[at].address + model->range[at].size;
    if (bytes > END - start)
        return AC_OOM;
    if (model->ranges == model->range_room) {
        model->range_room = model->range_room ? model->range_room * 2 : 64;
        model->range = cmd_resize(model->range, model->range_room * sizeof *model->range);
    }
    memmove(&model->range[at + 1], &model->range[at],
            (model->ranges - at) * sizeof *model->range);
    model->range[at] = (range_t){start, bytes};
    model->ranges++;
    take_memory(model, bytes);
    *address = start;
    return AC_OK;
}

/* ------------------------------------------------------------------ time */

static double all_done(const cmd_model_t *model) {
    double end = model->now;
    for (unsigned i = 0; i < model->streams; i++)
        if (model->stream[i]->end > end)
            end = model->stream[i]->end;
    return end;
}

static void wait_for_all(cmd_model_t *model) {
    double end = all_done(model);
    bool waits = end > model->now;
    if (model->work == CMD_WORK_DELAY) {
        waits = model->waited < model->operations;
        model->waited = model->operations;
    }
    model->figures.waits += waits;
    model->now = end;
}

static ac_status_t segment_free(void *context, uint64_t address) {
    cmd_model_t *model = context;
    size_t at = find_range(model, address);
    if (at == model->ranges || model->range[at].address != address)
        return misuse(model, "freed a segment that it does not have");
    CHARGE(model, free, model->range[at].size);
    wait_for_all(model);
    model->used -= model->range[at].size;
    model->ranges--;
    memmove(&model->range[at], &model->range[at + 1],
            (model->ranges - at) * sizeof *model->range);
    return AC_OK;
}

static stream_t *stream_at(cmd_model_t *model, unsigned stream) {
    while (model->streams <= stream) {
        model->stream = cmd_resize(model->stream, (model->streams + 1) * sizeof *model->stream);
        model->stream[model->streams++] = cmd_alloc(sizeof(stream_t));
    }
    return model->stream[stream];
}

/* Keys are addresses as handles would be: no default stream's. */
uint64_t cmd_model_stream_key(unsigned stream) {
    return 0x10000 + (uint64_t)stream * 64;
}

static stream_t *stream_of(cmd_model_t *model, uint64_t key) {
    return stream_at(model, (unsigned)((key - 0x10000) / 64));
}

void cmd_model_operation(cmd_model_t *model) {
    model->operations++;
    model->now += model->costs.operation.fixed;
}

void cmd_model_kernel(cmd_model_t *model, unsigned stream, uint64_t bytes) {
    stream_t *s = stream_at(model, stream);
    double *slot = &s->ends[s->submitted++ % CMD_RUN_AHEAD];
    if (*slot > model->now)
        model->now = *slot;
    double begin = s->end > model->now ? s->end : model->now;
    s->end = *slot =
        begin + model->costs.kernel.fixed + model->costs.kernel.per_mib * (double)bytes / 1048576;
}

void cmd_model_synchronise(cmd_model_t *model) {
    model->waited = model->operations;
    model->now = all_done(model);
}

/* ------------------------------------------------------------------ pages */

static ac_status_t range_support(void *context, ac_range_support_t *support) {
    const cmd_model_t *model = context;
    *support = (ac_range_support_t){.granularity = UNIT, .memory = model->capacity};
    return AC_OK;
}

/* Behind all that was reserved before: no address of a range is ever a segment's. */
static ac_status_t range_reserve(void *context, uint64_t bytes, uint64_t *address) {
    cmd_model_t *model = context;
    CHARGE(model, reserve, bytes);
    uint64_t start = PAGES;
    for (unsigned i = 0; i < model->reserves; i++)
        if (model->reserved[i].address + model->reserved[i].size > start)
            start = model->reserved[i].address + model->reserved[i].size;
    if (bytes > PAGES_END - start || model->reserves == MOST_RESERVED)
        return AC_OOM;
    reserved_t *reserved = &model->reserved[model->reserves];
    *reserved = (reserved_t){.address = start, .size = bytes};
    /* Mostly never touched, so no memory is taken for it. */
    reserved->page = mmap(NULL, page_table_size(reserved), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved->page == MAP_FAILED)
        return AC_FAILED;
    model->reserves++;
    *address = start;
    return AC_OK;
}

static reserved_t *reserved_at(cmd_model_t *model, uint64_t address, uint64_t bytes) {
    for (unsigned i = 0; i < model->reserves; i++) {
        reserved_t *reserved = &model->reserved[i];
        if (address >= reserved->address && bytes <= reserved->size &&
            address - reserved->address <= reserved->size - bytes && address % UNIT == 0)
            return reserved;
    }
    return NULL;
}

static uint32_t *page_at(const reserved_t *reserved, uint64_t address) {
    return &reserved->page[(address - reserved->address) / UNIT];
}

static ac_status_t range_release(void *context, uint64_t address, uint64_t bytes) {
    cmd_model_t *model = context;
    CHARGE(model, unreserve, bytes);
    reserved_t *reserved = reserved_at(model, address, bytes);
    if (!reserved || reserved->address != address || reserved->size != bytes)
        return misuse(model, "released addresses that it does not have");
    for (uint64_t at = address; at < address + bytes; at += UNIT)
        if (*page_at(reserved, at))
            return misuse(model, "released addresses with a page");
    munmap(reserved->page, page_table_size(reserved));
    *reserved = model->reserved[--model->reserves];
    return AC_OK;
}

static ac_status_t page_create(void *context, uint64_t bytes, uint64_t *page) {
    cmd_model_t *model = context;
    const cmd_cost_t *cost = bytes <= UNIT ? &model->costs.create_least : &model->costs.create;
    charge(model, CMD_CALL_create, cost, bytes, 0);
    if (bytes == 0 || bytes % UNIT)
        return misuse(model, "asked for a page of odd size");
    if (bytes > model->capacity - model->used)
        return AC_OOM;
    if (!model->spare_pages && model->pages + 1 >= model->page_room) {
        model->page_room = model->page_room ? model->page_room * 2 : 1024;
        model->page = cmd_resize(model->page, model->page_room * sizeof *model->page);
        model->spare_page =
            cmd_resize(model->spare_page, model->page_room * sizeof *model->spare_page);
    }
    uint64_t number =
        model->spare_pages ? model->spare_page[--model->spare_pages] : ++model->pages;
    model->page[number] = (page_t){.bytes = bytes, .held = true};
    take_memory(model, bytes);
    *page = number;
    return AC_OK;
}

static page_t *page_of(cmd_model_t *model, uint64_t number) {
    bool known = number && number <= model->pages && model->page[number].bytes;
    return known ? &model->page[number] : NULL;
}

static void drop_page(cmd_model_t *model, page_t *page) {
    if (page->held || page->mapped)
        return;
    model->used -= page->bytes;
    page->bytes = 0;
    model->spare_page[model->spare_pages++] = (uint64_t)(page - model->page);
}

static ac_status_t page_release(void *context, uint64_t number) {
    cmd_model_t *model = context;
    page_t *page = page_of(model, number);
    CHARGE(model, release, 0);
    if (!page || !page->held)
        return misuse(model, "released a page that it does not have");
    page->held = false;
    drop_page(model, page);
    return AC_OK;
}

/* The page that covers `address`, however far before it begins; *begin is set. */
static uint32_t covering(const cmd_model_t *model, const reserved_t *reserved, uint64_t address,
                         uint64_t *begin) {
    for (uint64_t at = address;; at -= UNIT) {
        uint32_t number = *page_at(reserved, at);
        *begin = at;
        if (number)
            return at + model->page[number].bytes > address ? number : 0;
        if (at == reserved->address || address - at >= LARGEST_PAGE)
            return 0;
    }
}

static ac_status_t page_map(void *context, uint64_t address, uint64_t bytes, uint64_t number) {
    cmd_model_t *model = context;
    page_t *page = page_of(model, number);
    reserved_t *reserved = reserved_at(model, address, bytes);
    uint64_t begin;
    charge(model, CMD_CALL_map, &model->costs.map, bytes, 1);
    if (!page || !page->held || page->bytes != bytes || !reserved)
        return misuse(model, "mapped what is no page, or where no range is");
    for (uint64_t at = address; at < address + bytes; at += UNIT)
        if (covering(model, reserved, at, &begin))
            return misuse(model, "mapped a page over another");
    *page_at(reserved, address) = (uint32_t)number;
    page->mapped++;
    return AC_OK;
}

/* How many whole pages lie side by side there; 0: they do not. */
static uint64_t count_pages(const cmd_model_t *model, const reserved_t *reserved,
                            uint64_t address, uint64_t bytes) {
    uint64_t pages = 0, at = address;
    while (at < address + bytes) {
        uint32_t number = *page_at(reserved, at);
        if (!number)
            return 0;
        at += model->page[number].bytes;
        pages++;
    }
    return at == address + bytes ? pages : 0;
}

static ac_status_t pages_allow(void *context, uint64_t address, uint64_t bytes) {
    cmd_model_t *model = context;
    reserved_t *reserved = reserved_at(model, address, bytes);
    uint64_t pages = reserved ? count_pages(model, reserved, address, bytes) : 0;
    charge(model, CMD_CALL_allow, &model->costs.allow, bytes, pages);
    return pages ? AC_OK : misuse(model, "gave access to what is not mapped");
}

static ac_status_t pages_unmap(void *context, uint64_t address, uint64_t bytes) {
    cmd_model_t *model = context;
    reserved_t *reserved = reserved_at(model, address, bytes);
    uint64_t pages = reserved ? count_pages(model, reserved, address, bytes) : 0;
    charge(model, CMD_CALL_unmap, &model->costs.unmap, bytes, pages);
    if (!pages)
        return misuse(model, "unmapped what is not mapped");
    for (uint64_t at = address; at < address + bytes;) {
        page_t *page = &model->page[*page_at(reserved, at)];
        *page_at(reserved, at) = 0;
        at += page->bytes;
        page->mapped--;
        drop_page(model, page);
    }
    return AC_OK;
}

/* ------------------------------------------------------------------ fences */

static fence_t *new_fence(cmd_model_t *model) {
    fence_t *fence = model->spare;
    if (fence)
        model->spare = fence->next;
    else
        fence = cmd_alloc(sizeof *fence);
    return fence;
}

static ac_status_t fence_record(void *context, bool unseen, void **out) {
    (void)unseen;
    cmd_model_t *model = context;
    if (model->no_fences)
        return AC_UNSUPPORTED;
    CHARGE(model, record, 0);
    fence_t *fence = new_fence(model);
    if (model->work == CMD_WORK_STREAMS)
        fence->time = all_done(model);
    else
        fence->operation = model->operations;
    *out = fence;
    return AC_OK;
}

static bool is_done(const cmd_model_t *model, const fence_t *fence) {
    if (model->work == CMD_WORK_STREAMS)
        return fence->time <= model->now;
    return fence->operation <= model->waited ||
           fence->operation + model->delay <= model->operations;
}

static ac_status_t fence_query(void *context, void *fence) {
    cmd_model_t *model = context;
    CHARGE(model, query, 0);
    return is_done(model, fence) ? AC_OK : AC_BUSY;
}

static ac_status_t fence_wait(void *context, void *what, uint64_t limit_ns) {
    cmd_model_t *model = context;
    const fence_t *fence = what;
    CHARGE(model, wait, 0);
    if (is_done(model, fence))
        return AC_OK;
    model->figures.waits++;
    if (model->work != CMD_WORK_STREAMS) {
        model->waited = fence->operation;
        return AC_OK;
    }
    if (limit_ns && fence->time > model->now + (double)limit_ns) {
        model->now += (double)limit_ns;
        return AC_BUSY;
    }
    model->now = fence->time;
    return AC_OK;
}

static void fence_release(void *context, void *what) {
    cmd_model_t *model = context;
    fence_t *fence = what;
    fence->next = model->spare;
    model->spare = fence;
}

static ac_status_t turn_record(void *context, uint64_t stream, void **out) {
    cmd_model_t *model = context;
    CHARGE(model, record, 0);
    fence_t *fence = new_fence(model);
    if (model->work == CMD_WORK_STREAMS)
        fence->time = stream_of(model, stream)->end;
    else
        fence->operation = model->operations;
    *out = fence;
    return AC_OK;
}

static ac_status_t turn_wait(void *context, void *fence, uint64_t stream) {
    cmd_model_t *model = context;
    if (stream == 0)
        return fence_wait(context, fence, 0);
    CHARGE(model, order, 0);
    model->figures.stream_waits++;
    if (model->work == CMD_WORK_STREAMS) {
        stream_t *s = stream_of(model, stream);
        double time = ((fence_t *)fence)->time;
        if (time > s->end)
            s->end = time;
    }
    return AC_OK;
}

static bool capturing(void *context) {
    (void)context;
    return false;
}

static ac_status_t synchronize(void *context) {
    cmd_model_t *model = context;
    CHARGE(model, sync, 0);
    wait_for_all(model);
    return AC_OK;
}

static ac_status_t stream_order(void *context, uint64_t from, uint64_t to) {
    cmd_model_t *model = context;
    CHARGE(model, record, 0);
    CHARGE(model, order, 0);
    model->figures.stream_waits++;
    double end = stream_of(model, from)->end;
    stream_t *s = stream_of(model, to);
    if (end > s->end)
        s->end = end;
    return AC_OK;
}

static ac_status_t stream_item(void *context, uint64_t stream) {
    cmd_model_t *model = context;
    (void)stream;
    CHARGE(model, record, 0);
    return AC_OK;
}

static uint64_t now_ns(void) {
    return (uint64_t)current->now;
}

const ac_device_ops_t cmd_model_ops = {
    .segment_alloc = segment_alloc,
    .segment_alloc_aside = segment_alloc,
    .segment_free = segment_free,
    .fence_record = fence_record,
    .fence_query = fence_query,
    .fence_wait = fence_wait,
    .fence_release = fence_release,
    .turn_record = turn_record,
    .turn_wait = turn_wait,
    .capturing = capturing,
    .synchronize = synchronize,
    .stream_order = stream_order,
    .stream_item = stream_item,
    .range_support = range_support,
    .range_reserve = range_reserve,
    .range_release = range_release,
    .page_create = page_create,
    .page_release = page_release,
    .page_map = page_map,
    .pages_allow = pages_allow,
    .pages_unmap = pages_unmap,
    .now_ns = now_ns,
};

/* ------------------------------------------------------------------ figures */

void cmd_model_figures(const cmd_model_t *model, cmd_model_figures_t *figures) {
    *figures = model->figures;
}

void cmd_model_reset(cmd_model_t *model) {
    model->figures = (cmd_model_figures_t){.peak = model->used};
}
