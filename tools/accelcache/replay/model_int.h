/* Internal to the modelled device (model.h). */
#ifndef CMD_MODEL_INT_H
#define CMD_MODEL_INT_H

#include <stddef.h>

#include "replay/model.h"

/* Address ranges of segments and of pages. */
#define BASE      ((uint64_t)0x200000000000)
#define END       ((uint64_t)0x300000000000)
#define PAGES     END
#define PAGES_END ((uint64_t)0x7f0000000000)

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

/* A physical page; its memory is taken as long as its handle is held or it is mapped. */
typedef struct {
    uint64_t bytes;
    bool held;
    uint32_t mapped; /* times */
} page_t;

/* Reserved addresses, and which page (by number, 0: none) covers each multiple of UNIT; with BEGINS in its first
 * one. */
typedef struct {
    uint64_t address, size;
    uint32_t *page;
} reserved_t;

enum { MOST_RESERVED = 16 };
#define BEGINS ((uint32_t)1 << 31)
#define UNIT   AC_SEGMENT_ALIGN

/* Invariants: the ranges are in address order and do not overlap; `used` is the sum of the sizes of segments and
 * pages. */
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

/* Count a call and let its time pass. */
void model_charge(cmd_model_t *model, unsigned call, const cmd_cost_t *cost, uint64_t bytes,
                  uint64_t pages);
#define CHARGE(model, name, bytes)                                                               \
    model_charge(model, CMD_CALL_##name, &(model)->costs.name, bytes, 0)

/* Memory leaves the device. */
void model_take(cmd_model_t *model, uint64_t bytes);

/* AC_FAILED, and remember the first of them. */
ac_status_t model_misuse(cmd_model_t *model, const char *what);

/* model_pages.c: operations of device.h. */
ac_status_t model_range_support(void *context, ac_range_support_t *support);
ac_status_t model_range_reserve(void *context, uint64_t bytes, uint64_t *address);
ac_status_t model_range_release(void *context, uint64_t address, uint64_t bytes);
ac_status_t model_page_create(void *context, uint64_t bytes, uint64_t *page);
ac_status_t model_page_release(void *context, uint64_t page);
ac_status_t model_page_map(void *context, uint64_t address, uint64_t bytes, uint64_t page);
ac_status_t model_pages_allow(void *context, uint64_t address, uint64_t bytes);
ac_status_t model_pages_unmap(void *context, uint64_t address, uint64_t bytes);
void model_pages_free(cmd_model_t *model);

#endif
