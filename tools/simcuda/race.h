/* Interface between the race detector and the rest of the simulator.  Global lock everywhere.
 *
 * The race detector knows two things that the scheduler forgets.  The first is the order of work:
 * the scheduler drops an order as soon as the earlier item is complete, but completion alone orders
 * nothing for a program that did not check it.  The second is the owner of the memory that an item
 * touches.  Callers guard every call with `if (sim_race_on)`, so that it costs one predicted branch
 * while off. */
#ifndef SIM_RACE_H
#define SIM_RACE_H

#include "sim.h"

/* ---- order (race.c) ---- */

extern bool sim_race_on;
/* Key `race_detector`: off, on (stderr), abort, or a file.  False: the file cannot be written. */
bool sim_race_open(const char *how);

/* Orders `work` after `before`, in any state of `before`. */
void sim_race_after(sim_work_t *work, sim_work_t *before);
/* Orders `work` after the predecessors of `before`.  Successors of `work` come after both. */
void sim_race_after_start(sim_work_t *work, sim_work_t *before);
/* Called when the item goes to the scheduler: its order is final, and its uses are checked. */
void sim_race_submit(sim_work_t *work);
void sim_race_forget(sim_work_t *work); /* the item is freed */
/* Copies the uses of a node's item to the item of a launch.  They keep the owners from the time
 * the node was made. */
void sim_race_clone(sim_work_t *to, const sim_work_t *from);
/* Called when all items of a launch are submitted.  Reports memory that has another owner
 * now. */
void sim_race_launched(sim_work_t *const *items, size_t count);
void sim_race_done(sim_work_t *work); /* the item is complete; the host need not have seen it */
/* Called when the host saw the item complete: work that it submits from now on comes later. */
void sim_race_seen(sim_work_t *work);
/* Called when the host saw the item begin.  It has seen only the work before the item
 * complete. */
void sim_race_reached(sim_work_t *work);
/* Enclose an effect, with the lock held: a release of memory, or a value written. */
void sim_race_enter(sim_work_t *work);
void sim_race_leave(void);
/* Called when a stream is destroyed.  Its work stays in the order of its context, as part of
 * *gone. */
void sim_race_stream_gone(struct sim_op **gone, sim_work_t *last);
void sim_race_after_gone(const struct sim_op *gone, sim_work_t *work); /* NULL: nothing */
void sim_race_gone_free(struct sim_op **gone);

/* ---- memory (race_memory.c) ---- */

typedef enum {
    SIM_USE_PLAIN,
    SIM_USE_GUESS, /* an argument that looks like a pointer */
    SIM_USE_ALLOC, /* stream-ordered allocation: after the frees of the same memory */
    SIM_USE_FREE,
    SIM_USE_REACHED, /* memory behind a multicast object, whatever is mapped at its address */
} sim_use_kind_t;

/* Adds a use of memory that the scheduler need not check. */
void sim_race_touch(sim_work_t *work, uint64_t address, uint64_t length, bool write,
                    sim_use_kind_t kind);
/* Searches the arguments of a kernel without declared accesses for addresses. */
void sim_race_arguments(sim_work_t *work, const void *bytes, size_t count);
/* Fixes the owners of the item's declared uses, at submission at the latest. */
void sim_race_resolve(sim_work_t *work);

void sim_race_record_new(const sim_alloc_t *record);
void sim_race_record_gone(const sim_alloc_t *record);
/* Called when a pool gives addresses back.  Earlier uses there concern only the driver. */
void sim_race_range_gone(uint64_t base, uint64_t size);
/* Called when the record of a mapping is complete, and before a mapping is removed. */
void sim_race_mapped(const sim_alloc_t *record);
void sim_race_unmapping(const sim_alloc_t *record);
/* Called when an item touches memory that is not mapped, at the time it runs. */
void sim_race_fault(sim_work_t *work, uint64_t address, uint64_t length);

/* ---- other processes (race_shared.c) ---- */

/* Called when other processes can open the record's memory, and when memory was opened here. */
void sim_race_exported(const sim_alloc_t *record);
void sim_race_imported(const sim_alloc_t *record);
/* _covered: `record`, submitted, is record number `ticket` of an event for several processes.  The
 * maker's cookie and its id name the event.  _after: `work` (NEW) follows a record of that
 * event. */
void sim_shared_covered(sim_work_t *record, uint64_t cookie, uint64_t event, uint64_t ticket);
void sim_shared_after(sim_work_t *work, uint64_t cookie, uint64_t event, uint64_t ticket);

#endif
