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

/* Reserved addresses. The number of a page is its index plus one. */
enum { FAKE_RESERVED = 16 };
typedef struct {
    uint32_t page; /* number of the page that is mapped here; 0: none */
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
    uint32_t mapped; /* number of its mappings */
} fake_page_t;

typedef struct {
    pthread_mutex_t lock;    /* guards all fields except the plan, which is set before a call */
    uint64_t capacity, used; /* bytes */
    bool bump;               /* never hand out an address twice */
    uint64_t next;           /* address of the next allocation, with `bump` */
    unsigned count;
    fake_range_t range[FAKE_RANGES]; /* in address order */
    unsigned calls[FAKE_KINDS], total_calls;
    unsigned fail_at;                   /* the total_calls at which a call fails; 0: none */
    ac_status_t fail_with[FAKE_KINDS];  /* AC_OK: that kind never fails */
    unsigned failed;                    /* number of calls that failed on plan */
    void (*sync_off)(uint64_t address); /* called when SYNC_MEMOPS is reset there */
    bool no_fences;                     /* recording answers AC_UNSUPPORTED */
    bool fill_late; /* fills are not waited for to the end: AC_BUSY */
    bool endless; /* waits with a limit reach it; a short limit passes in real time */
    unsigned live_fences;
    const char *wrong;                           /* the first misuse that was seen */
    void (*before)(void *arg, fake_kind_t kind); /* called before each call, without the device's lock
                                                    */
    /* Called when later work of `to` comes after all earlier work of `from`. */
    void (*ordered)(fake_context_t *context, uint64_t from, uint64_t to);
    /* Called when later work of `to` comes after the work of `from` up to that number. */
    void (*turned)(uint64_t from, uint64_t number, uint64_t to);
    void (*freeing)(void *arg, uint64_t address, uint64_t size);
    void *arg;
    uint64_t most_addresses; /* limit of reserved bytes at a time; 0: none */
    uint64_t most_used;      /* bytes: the peak of `used` */
    fake_reserved_t reserved[FAKE_RESERVED];
    fake_page_t *page;
    uint32_t pages, page_room, live_pages, live_mappings;
    unsigned peers; /* devices that may reach its pages, if the pages were allowed since */
    /* Contents: filled pieces, newest last, until their pages go. A test changes `byte`. */
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
    unsigned join_events; /* number of streams that were made to wait for another one */
};

extern const ac_device_ops_t fake_ops;

void fake_device_init(fake_device_t *device, uint64_t capacity);

/* Returns true if device.h lets a call of this kind return this status. */
bool fake_may_answer(fake_kind_t kind, ac_status_t status);

/* Frees the host memory that the device holds. */
void fake_device_close(fake_device_t *device);

/* Bytes of reserved addresses. */
uint64_t fake_reserved_bytes(const fake_device_t *device);

/* Returns true if all of [address, address + size) may be used. */
bool fake_usable(const fake_device_t *device, uint64_t address, uint64_t size);

/* Returns true if all peers may use every page that its own device may use. */
bool fake_reachable(const fake_device_t *device);

void fake_context_init(fake_context_t *context, fake_device_t *device);

/* Ends the context: frees its memory and completes its work. */
void fake_context_kill(fake_context_t *context);

/* Submits one piece of work and returns its number. */
uint64_t fake_submit(fake_context_t *context);

/* Completes the work up to number `until`. */
void fake_complete(fake_context_t *context, uint64_t until);

#endif
