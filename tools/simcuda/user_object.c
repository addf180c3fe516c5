/* User objects: counted references to objects of the program.  Graphs keep them while they or
 * their work may use the object.  Global lock.
 *
 * An object is destroyed when the last reference is released.  A host function then calls the
 * destructor in a thread of the driver, after all launches of executable graphs that held the
 * object.
 *
 * Guesses (public documentation is silent):
 *   handles that are no objects                       INVALID_VALUE
 *   releasing more references than there are          INVALID_VALUE
 *   a copy of a graph holds as many references as the graph
 */
#include <limits.h>
#include <stdlib.h>

#include "graph.h"

enum { NO_DESTRUCTOR_SYNC = 1, MOVE = 1 };

typedef struct CUuserObject_handle {
    sim_object_t object;
    void *value;
    CUhostFn destroy;
    uint64_t refs;
    sim_work_t *after; /* end of the launches that held it, or NULL */
} sim_user_object_t;

static sim_slab_t user_objects = SIM_SLAB(sim_user_object_t, 1 << 16);

static sim_user_object_t *object_get(CUuserObject handle) {
    return sim_slab_has(&user_objects, handle) ? handle : NULL;
}

/* Makes the destructor of the object wait for `work`, too. */
static void keep_until(sim_user_object_t *object, sim_work_t *work) {
    if (!work || work->state == SIM_DONE)
        return;
    sim_work_t *both = object->after ? sim_work_new(&sim_mark_ops, NULL, 0) : NULL;
    if (both && sim_work_after(both, object->after) && sim_work_after(both, work))
        sim_work_submit(both);
    sim_work_unref(object->after);
    object->after = both ? both : sim_work_ref(work);
}

static void release(sim_user_object_t *object, uint64_t count) {
    sim_work_t *work;
    object->refs -= count;
    if (object->refs)
        return;
    if (!sim_host_work(NULL, object->destroy, object->value, &work)) {
        sim_work_after(work, object->after);
        sim_work_submit(work);
        sim_work_unref(work);
    }
    sim_work_unref(object->after);
    sim_slab_give(&user_objects, object);
}

/* ---- what graphs hold ---- */

static bool hold(sim_user_refs_t *refs, CUuserObject object, uint64_t count) {
    for (size_t i = 0; i < refs->count; i++)
        if (refs->item[i].object == object) {
            refs->item[i].held += count;
            return true;
        }
    if (refs->count == refs->room) {
        size_t room = refs->room ? 2 * refs->room : 4;
        sim_user_ref_t *grown = realloc(refs->item, room * sizeof *grown);
        if (!grown)
            return false;
        refs->item = grown;
        refs->room = room;
    }
    refs->item[refs->count++] = (sim_user_ref_t){object, count};
    return true;
}

bool sim_user_refs_copy(sim_user_refs_t *to, const sim_user_refs_t *from) {
    for (size_t i = 0; i < from->count; i++) {
        if (!hold(to, from->item[i].object, from->item[i].held))
            return false;
        from->item[i].object->refs += from->item[i].held;
    }
    return true;
}

void sim_user_refs_keep(const sim_user_refs_t *refs, sim_work_t *work) {
    for (size_t i = 0; i < refs->count; i++)
        keep_until(refs->item[i].object, work);
}

void sim_user_refs_drop(sim_user_refs_t *refs) {
    for (size_t i = 0; i < refs->count; i++)
        release(refs->item[i].object, refs->item[i].held);
    free(refs->item);
    *refs = (sim_user_refs_t){0};
}

SIM_API(cuGraphRetainUserObject)
(CUgraph handle, CUuserObject object, unsigned count, unsigned flags) {
    sim_graph_t *graph = sim_graph_get(handle);
    if (!graph || !object_get(object) || !count || count > INT_MAX || flags & ~(unsigned)MOVE ||
        (flags & MOVE && object->refs < count))
        return CUDA_ERROR_INVALID_VALUE;
    if (!hold(&graph->users, object, count))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!(flags & MOVE))
        object->refs += count;
    return CUDA_SUCCESS;
}

SIM_API(cuGraphReleaseUserObject)(CUgraph handle, CUuserObject object, unsigned count) {
    sim_graph_t *graph = sim_graph_get(handle);
    if (!graph || !object_get(object) || !count || count > INT_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    sim_user_refs_t *refs = &graph->users;
    for (size_t i = 0; i < refs->count; i++) {
        if (refs->item[i].object != object || refs->item[i].held < count)
            continue;
        refs->item[i].held -= count;
        if (!refs->item[i].held)
            refs->item[i] = refs->item[--refs->count];
        release(object, count);
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

/* ---- the objects ---- */

SIM_API(cuUserObjectCreate)
(CUuserObject *out, void *value, CUhostFn destroy, unsigned references, unsigned flags) {
    if (!out || !destroy || !references || references > INT_MAX || flags != NO_DESTRUCTOR_SYNC)
        return CUDA_ERROR_INVALID_VALUE;
    sim_user_object_t *object = sim_slab_take(&user_objects);
    if (!object)
        return CUDA_ERROR_OUT_OF_MEMORY;
    object->value = value;
    object->destroy = destroy;
    object->refs = references;
    *out = object;
    return CUDA_SUCCESS;
}

SIM_API(cuUserObjectRetain)(CUuserObject object, unsigned count) {
    if (!object_get(object) || !count || count > INT_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    object->refs += count;
    return CUDA_SUCCESS;
}

SIM_API(cuUserObjectRelease)(CUuserObject object, unsigned count) {
    if (!object_get(object) || !count || count > INT_MAX || object->refs < count)
        return CUDA_ERROR_INVALID_VALUE;
    release(object, count);
    return CUDA_SUCCESS;
}

SIM_LIVE_COUNT(user_objects) {
    return user_objects.live;
}
