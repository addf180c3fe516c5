/* Pinned host memory: what other hooks need to know of its cache (pinned_cache; allocator/host/).
 *
 * Thread-safe.  Those that give memory back call the driver, and do nothing while anything
 * captures. */
#ifndef AC_PINNED_H
#define AC_PINNED_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/host/host.h"
#include "config/config.h"
#include "device/cuda_abi.h"

struct ac_context;

/* The one pool of the process; its figures are those of the live page. */
extern AC_HIDDEN ac_host_t ac_pinned;

/* Bytes that may be kept now: 0 where nothing is, and where the host does not say what it has. */
uint64_t ac_pinned_limit(void);

/* What is idle since before `before` goes back to the driver, oldest first, until no more than
 * `limit` bytes are kept; none while anything captures.  Returns bytes. */
uint64_t ac_pinned_give_back(uint64_t before, uint64_t limit);

/* A request for `size` bytes fails for want of memory: give back what is idle; with `wait` after
 * waiting for pending work, where the host would have room then.  False: nothing went back. */
bool ac_pinned_make_room(struct ac_context *context, uint64_t size, bool wait);

/* From activation, once. */
void ac_pinned_start(void);

/* The block around an address; false: it is none of ours. */
bool ac_pinned_find(uint64_t address, ac_host_info_t *info);

/* What the driver says of a block, made true of the request that it serves: by the functions of the
 * same names, for an address that was found. */
CUresult ac_pinned_range(cuMemGetAddressRange_v2_fn *real, CUdeviceptr *base, size_t *size,
                         CUdeviceptr address, const ac_host_info_t *info);
CUresult ac_pinned_attribute(cuPointerGetAttribute_fn *real, void *data,
                             CUpointer_attribute attribute, CUdeviceptr address,
                             const ac_host_info_t *info);
CUresult ac_pinned_attributes(cuPointerGetAttributes_fn *real, unsigned count,
                              CUpointer_attribute *attributes, void **data, CUdeviceptr address,
                              const ac_host_info_t *info);
CUresult ac_pinned_set_attribute(cuPointerSetAttribute_fn *real, const void *value,
                                 CUpointer_attribute attribute, CUdeviceptr address,
                                 const ac_host_info_t *info);

/* cuMemFree of a pointer that is not the allocator's. */
CUresult ac_pinned_plain_free(cuMemFree_v2_fn *real, CUdeviceptr pointer);

/* The driver handed out something that names the memory at `address`, if that is pinned. */
void ac_pinned_shared(uint64_t address);

/* All idle blocks go back; with `wait` those that wait for work as well, for oom_wait at the most.
 * Returns bytes. */
uint64_t ac_pinned_trim(bool wait);

/* An interval of decay.h has passed. */
void ac_pinned_decay(const ac_config_t *config);

/* The context is about to go: wait until no work of others may use what was freed of it, as
 * ac_arena_quiesce does. */
void ac_pinned_quiesce(struct ac_context *context, uint64_t limit_ns);

/* The context has gone, and its blocks with it. */
void ac_pinned_context_gone(const struct ac_context *context);

/* As ac_allocator_holds and ac_allocator_release. */
bool ac_pinned_holds(uint64_t session);
void ac_pinned_release(uint64_t session);

/* As ac_allocator_check. */
int ac_pinned_check(const char **why);

#endif
