/* Records of the memory of other processes that this process opened by tokens (share/ipc_token.h).
 *
 * A *mapping* is memory that the driver opened: a whole segment of the exporter, once for each
 * context.  A *view* is one block of it that the program got.  Views are counted; after the last
 * view of a mapping the driver closes it.  If the program never closed a block, the exporter may
 * have reused its address.  Then the two blocks are one view, with the size of the newer.
 *
 * These functions only keep records.  The caller calls the driver between them, without a lock.  If
 * another thread is opening or closing the mapping, a thread that needs it waits for that call, for
 * at most one second.  Then it opens a mapping of its own, which the driver counts separately.  Any
 * thread. */
#ifndef AC_IPC_VIEWS_H
#define AC_IPC_VIEWS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/device.h"
#include "share/ipc_table.h"

typedef struct ac_ipc_mapping ac_ipc_mapping_t;

/* Enters the mapping of the driver's handle in `context` (its record).  `exporter` is the nonce of
 * its token: another program image may have a handle of the same bytes for other memory.  The
 * mapping's memory stays until ac_ipc_leave.  Returns NULL if host memory is short.  If *fresh, the
 * caller has to open the mapping and then to call ac_ipc_opened. */
ac_ipc_mapping_t *ac_ipc_enter(const void *context, uint64_t exporter,
                               const unsigned char handle[AC_IPC_HANDLE], uint64_t bytes,
                               bool *fresh);

/* Called after the caller opened the mapping at `base`.  0: opening failed, and the mapping is
 * removed. */
void ac_ipc_opened(ac_ipc_mapping_t *mapping, uint64_t base);

/* Called before ac_ipc_opened if the caller mapped pages instead of opening a driver handle.
 * `owner`: the device of the pages (-1: not known). */
void ac_ipc_on_pages(ac_ipc_mapping_t *mapping, int owner);

/* Return properties of a mapping that the caller has entered. */
uint64_t ac_ipc_base(const ac_ipc_mapping_t *mapping);
int ac_ipc_owner(const ac_ipc_mapping_t *mapping);
const void *ac_ipc_context(const ac_ipc_mapping_t *mapping);

/* Adds a view of `size` bytes, `offset` bytes into the mapping.  The caller has entered the mapping:
 * its entry now belongs to the view.  Returns false if host memory is short. */
bool ac_ipc_view_add(ac_ipc_mapping_t *mapping, uint64_t offset, uint64_t size);

/* Leaves the mapping.  If the result is not 0, nothing else is inside.  The caller then closes the
 * mapping at its base that many times and calls ac_ipc_closed.  If that `failed`, the caller is
 * inside again. */
unsigned ac_ipc_leave(ac_ipc_mapping_t *mapping);
void ac_ipc_closed(ac_ipc_mapping_t *mapping, bool failed);

/* Called after the driver opened one of its own handles at `base`.  If that is a mapping of this
 * table, now or later, it counts as one more view of the whole mapping.  It has to be closed as
 * often as it was opened. */
void ac_ipc_native_opened(const void *context, uint64_t base);

/* Called before the driver closes memory that _native_opened recorded and that is no view.  If the
 * driver fails, the caller calls _native_opened again.  Returns false if there is no record. */
bool ac_ipc_native_close(const void *context, uint64_t base);

/* Result of ac_ipc_find: the place of an address. */
typedef enum {
    AC_IPC_ELSEWHERE, /* not in a mapping */
    AC_IPC_BETWEEN,   /* in a mapping, but in no view: memory of others */
    AC_IPC_VIEW
} ac_ipc_place_t;
typedef struct {
    uint64_t address, size; /* address and size of the view */
    uint64_t id;            /* unique among all views of this process */
    uint64_t base, bytes;   /* address and size of its mapping */
    const void *context;    /* context that it was opened in */
    bool on_pages;          /* ac_ipc_on_pages */
    bool closed;            /* ac_ipc_view_close removed its last use */
} ac_ipc_view_t;

/* Removes one use of the view at exactly `address`; prefers a view of `context`.  *view describes
 * the view.  The caller gets the entry of that use and has to leave the mapping.  Returns NULL if
 * there is no view. */
ac_ipc_mapping_t *ac_ipc_view_close(const void *context, uint64_t address, ac_ipc_view_t *view);

ac_ipc_place_t ac_ipc_find(uint64_t address, ac_ipc_view_t *view);

/* Number of mappings: the caller reads it before ac_ipc_find.  Number of records that _native_close
 * knows. */
extern AC_HIDDEN _Atomic unsigned ac_ipc_mappings, ac_ipc_natives;

/* Called before ac_ipc_closed for a mapping on pages.  Nothing is open there any more, and the
 * caller removes the pages later. */
void ac_ipc_postponed(ac_ipc_mapping_t *mapping);

/* Called after the context ended.  Removes its records at once, but for mappings on pages: their
 * records go when the caller has removed the pages. */
void ac_ipc_context_gone(const void *context);

/* Pages that the caller has to remove. */
typedef struct {
    const void *context; /* context that opened them */
    uint64_t base, bytes;
    int owner;      /* ac_ipc_on_pages */
    uint64_t target; /* every context has to reach it first (order/fence.h); 0: the context has ended */
} ac_ipc_left_t;

/* Returns the next pages: the caller removes them, or calls _left_again.  Returns false if there are
 * no more. */
bool ac_ipc_next_left(ac_ipc_left_t *left);
void ac_ipc_left_again(const ac_ipc_left_t *left);

/* Finds the next mapping above *base that is on pages of the device `owner`.  Returns false if there
 * is none. */
bool ac_ipc_next_of(int owner, const void **context, uint64_t *base, uint64_t *bytes);

/* Forgets everything in a fork child, which has nothing open. */
void ac_ipc_fork_child(void);

#endif
