/* What this process has open of other processes' memory by tokens (share/ipc_token.h).
 *
 * A *mapping* is what the driver opened: a whole segment of the exporter, once for each context.
 * A *view* is what the program was given of it: one block.  Views are counted; with the last one of
 * a mapping the driver closes it.  Two lifetimes of the exporter at one address, the first of which
 * the program never closed, are one view, of the size of the newer.
 *
 * All here is records: the caller makes the calls of the driver, between the functions below, with
 * no lock held.  A thread that wants a mapping which another one is opening or closing waits for that
 * call, a second at the most: then it opens another mapping of its own, which the driver counts by
 * itself.  Any thread. */
#ifndef AC_IPC_VIEWS_H
#define AC_IPC_VIEWS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/device.h"
#include "share/ipc_table.h"

typedef struct ac_ipc_mapping ac_ipc_mapping_t;

/* Enter the mapping of the driver's handle in `context` (the record of one).  `exporter` is the
 * nonce of its token: another program image may have a handle of the same bytes for other
 * memory.  Its memory stays until ac_ipc_leave.  NULL: host memory is short.  With *fresh the
 * caller has to open it, and says what came of that: ac_ipc_opened. */
ac_ipc_mapping_t *ac_ipc_enter(const void *context, uint64_t exporter,
                               const unsigned char handle[AC_IPC_HANDLE], uint64_t bytes,
                               bool *fresh);

/* It is open at `base`; 0: it is not, and the mapping has gone. */
void ac_ipc_opened(ac_ipc_mapping_t *mapping, uint64_t base);

/* Before ac_ipc_opened: it is no memory that the driver opened by a handle but pages that the caller
 * mapped, of the device `owner` (-1: not known). */
void ac_ipc_on_pages(ac_ipc_mapping_t *mapping, int owner);

/* Of a mapping that the caller has entered. */
uint64_t ac_ipc_base(const ac_ipc_mapping_t *mapping);
int ac_ipc_owner(const ac_ipc_mapping_t *mapping);
const void *ac_ipc_context(const ac_ipc_mapping_t *mapping);

/* A view of `size` bytes, `offset` bytes into the mapping that the caller has entered: that entry
 * becomes the view's.  False: host memory is short. */
bool ac_ipc_view_add(ac_ipc_mapping_t *mapping, uint64_t offset, uint64_t size);

/* Leave the mapping.  Not 0: nothing else is inside, and the caller has to close it at its base, so
 * many times, and then to call ac_ipc_closed; where that `failed` the caller is inside again. */
unsigned ac_ipc_leave(ac_ipc_mapping_t *mapping);
void ac_ipc_closed(ac_ipc_mapping_t *mapping, bool failed);

/* The driver opened one of its own handles at `base`.  Where that is a mapping of ours, or becomes one,
 * it is one view more, of all of it, and has to be closed as often. */
void ac_ipc_native_opened(const void *context, uint64_t base);

/* What was opened so, and is no view, is about to be closed by the driver; where that fails, it is
 * _native_opened again.  False: there is none. */
bool ac_ipc_native_close(const void *context, uint64_t base);

/* What lies at an address. */
typedef enum {
    AC_IPC_ELSEWHERE, /* not in a mapping */
    AC_IPC_BETWEEN,   /* in a mapping, and in no view: others' memory */
    AC_IPC_VIEW
} ac_ipc_place_t;
typedef struct {
    uint64_t address, size; /* of the view */
    uint64_t id;            /* unlike that of any other view of this process */
    uint64_t base, bytes;   /* of its mapping */
    const void *context;    /* that was opened in */
    bool on_pages;          /* ac_ipc_on_pages */
    bool closed;            /* by ac_ipc_view_close, for the last time */
} ac_ipc_view_t;

/* The view at exactly `address`, of `context` before others, is used once less: *view is what it
 * was, and the caller has entered the mapping, and leaves it.  NULL: there is none. */
ac_ipc_mapping_t *ac_ipc_view_close(const void *context, uint64_t address, ac_ipc_view_t *view);

ac_ipc_place_t ac_ipc_find(uint64_t address, ac_ipc_view_t *view);

/* Whether there is any mapping: a look before ac_ipc_find.  And anything that _native_close knows. */
extern AC_HIDDEN _Atomic unsigned ac_ipc_mappings, ac_ipc_natives;

/* Before ac_ipc_closed, of a mapping on pages: nothing is open there any more, and the caller takes
 * the pages away later. */
void ac_ipc_postponed(ac_ipc_mapping_t *mapping);

/* The context has gone, and what was open in it: what the driver opened for it at once, mappings on
 * pages when the caller has taken them away. */
void ac_ipc_context_gone(const void *context);

/* Pages that are to be taken away. */
typedef struct {
    const void *context; /* that they were opened in */
    uint64_t base, bytes;
    int owner;      /* ac_ipc_on_pages */
    uint64_t target; /* all contexts reach it first (order/fence.h); 0: the context has gone */
} ac_ipc_left_t;

/* One after the other: the caller takes it away, or says _left_again.  False: there is no more. */
bool ac_ipc_next_left(ac_ipc_left_t *left);
void ac_ipc_left_again(const ac_ipc_left_t *left);

/* The mapping on pages of the device `owner` that comes next behind *base; false: there is none. */
bool ac_ipc_next_of(int owner, const void **context, uint64_t *base, uint64_t *bytes);

/* In a fork child: nothing is open. */
void ac_ipc_fork_child(void);

#endif
