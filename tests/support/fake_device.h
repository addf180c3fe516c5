/* A device of the tests' own behind device.h: memory is a set of address ranges, work is a
 * counter per context that the test moves on, and any call can be made to fail.  All
 * functions are thread-safe. */
#ifndef FAKE_DEVICE_H
#define FAKE_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "device/device.h"

typedef enum {
    FAKE_SEGMENT_ALLOC,
    FAKE_SEGMENT_FREE,
    FAKE_RECORD,
    FAKE_QUERY,
    FAKE_WAIT,
    FAKE_JOIN,
    FAKE_SYNCHRONIZE,
    FAKE_STREAM_ORDER,
    FAKE_SYNC_MEMOPS_OFF,
    FAKE_RANGE_RESERVE, /* fake_pages.c, from here on */
    FAKE_RANGE_RELEASE,
    FAKE_PAGE_CREATE,
    FAKE_PAGE_RELEASE,
    FAKE_PAGE_MAP,
    FAKE_PAGES_ALLOW,
    FAKE_PAGES_UNMAP,
    FAKE_FILL,
    FAKE_DIFFERS,
    FAKE_KINDS
} fake_kind_t;

enum { FAKE_RANGES = 4096, FAKE_FILLS = 256 };
#define FAKE_BASE ((uint64_t)0x200000000000)

/* Range i is reserved at FAKE_RESERVED_BASE + i * 2^FAKE_RESERVED_BITS. */
#define FAKE_RESERVED_BASE ((uint64_t)0x300000000000)
enum { FAKE_RESERVED_BITS = 40 };

typedef struct fake_context fake_context_t;

typedef struct {
    uint64_t address, size;
    fake_context_t *owner;
} fake_range_t;

/* Reserved addresses; a page is its number plus one. */
enum { FAKE_RESERVED = 16 };
typedef struct {
    uint32_t page; /* that is mapped here, by all its units; 0: none */
    bool first, allowed;
    unsigned peers; /* of the device, when it was allowed */
} fake_unit_t;
typedef struct {
    uint64_t address, size;
    fake_unit_t *unit;
} fake_reserved_t;
typedef struct {
    uint64_t bytes;
    bool held;       /* not released */
    uint32_t mapped; /* how often */
} fake_page_t;

typedef struct {
    pthread_mutex_t lock;    /* guards all but the plan, which is set before a call */
    uint64_t capacity, used; /* bytes */
    bool bump;               /* never hand out an address twice */
    uint64_t next;           /* where to go on, with `bump` */
    unsigned count;
    fake_range_t range[FAKE_RANGES]; /* in address order */
    unsigned calls[FAKE_KINDS], total_calls;
    unsigned fail_at;                   /* the total_calls at which a call fails; 0: none */
    ac_status_t fail_with[FAKE_KINDS];  /* AC_OK: that kind never fails */
    unsigned failed;                    /* how many calls did fail on plan */
    void (*sync_off)(uint64_t address); /* SYNC_MEMOPS is set back there */
    bool no_fences;                     /* recording answers AC_UNSUPPORTED */
    bool fill_late; /* fills are not waited for to the end: AC_BUSY */
    bool endless; /* waits that have a limit reach it; they last where it is short */
    unsigned live_fences;
    const char *wrong;                           /* the first misuse that was seen */
    void (*before)(void *arg, fake_kind_t kind); /* each call, without the device's lock */
    /* Whatever goes to `to` now comes after all that `from` was given. */
    void (*ordered)(fake_context_t *context, uint64_t from, uint64_t to);
    /* Whatever goes to `to` now comes after the work of `from` up to that number. */
    void (*turned)(uint64_t from, uint64_t number, uint64_t to);
    void (*freeing)(void *arg, uint64_t address, uint64_t size);
    void *arg;
    uint64_t most_addresses; /* bytes that can be reserved at a time; 0: any number */
    uint64_t most_used;      /* bytes: the peak of `used` */
    fake_reserved_t reserved[FAKE_RESERVED];
    fake_page_t *page;
    uint32_t pages, page_room, live_pages, live_mappings;
    unsigned peers; /* devices that may reach its pages, if they were allowed since */
    /* Contents: pieces that were filled, newest last, until their pages go.  A test changes `byte`. */
    unsigned fills;
    struct {
        uint64_t address, bytes;
        uint8_t byte;
    } fill[FAKE_FILLS]; /* [fills] */
} fake_device_t;

struct fake_context {
    fake_device_t *device;
    _Atomic uint64_t submitted, completed; /* pieces of work */
    _Atomic bool capturing, dead;
    bool bystander; /* it captures nothing, although a capture session is open */
    unsigned join_events; /* streams that were made to wait for another one */
};

extern const ac_device_ops_t fake_ops;

void fake_device_init(fake_device_t *device, uint64_t capacity);

/* Whether device.h lets a call of that kind fail so. */
bool fake_may_answer(fake_kind_t kind, ac_status_t status);

/* Free what the device holds of the host's memory. */
void fake_device_close(fake_device_t *device);

/* Addresses that are reserved, bytes. */
uint64_t fake_reserved_bytes(const fake_device_t *device);

/* Whether all of [address, address + size) is memory that may be used. */
bool fake_usable(const fake_device_t *device, uint64_t address, uint64_t size);

/* Whether all pages that may be used may be so by all peers. */
bool fake_reachable(const fake_device_t *device);

void fake_context_init(fake_context_t *context, fake_device_t *device);

/* The context ends: its memory goes back, its work is done. */
void fake_context_kill(fake_context_t *context);

/* One piece of work; returns its number. */
uint64_t fake_submit(fake_context_t *context);

/* Work up to number `until` has completed. */
void fake_complete(fake_context_t *context, uint64_t until);

#endif
