/* Pinned host memory: functions of its cache for other hooks (pinned_cache; allocator/host/).
 *
 * Thread-safe.  Functions that give memory back call the driver, and do nothing while a stream
 * captures. */
#ifndef AC_PINNED_H
#define AC_PINNED_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/host/host.h"
#include "config/config.h"
#include "device/cuda_abi.h"

struct ac_context;

/* The one pool of the process.  Its figures are in the live page. */
extern AC_HIDDEN ac_host_t ac_pinned;

/* Returns how many bytes the cache may keep now; 0 if it is off.  If the free memory of the host
 * is unknown, it counts as 0: the limit is then at most half of what the cache keeps. */
uint64_t ac_pinned_limit(void);

/* Gives back to the driver blocks that are idle since before `before`, oldest first, until the
 * cache keeps at most `limit` bytes.  Returns the bytes given back; 0 while a stream captures. */
uint64_t ac_pinned_give_back(uint64_t before, uint64_t limit);

/* Called if a request for `size` bytes fails because memory is short: gives back idle blocks.
 * `wait`: waits for pending work first, if the host would then have room.  Returns false if
 * nothing went back. */
bool ac_pinned_make_room(struct ac_context *context, uint64_t size, bool wait);

/* Called once, at activation. */
void ac_pinned_start(void);

/* Finds the block around an address.  Returns false if the cache has none there. */
bool ac_pinned_find(uint64_t address, ac_host_info_t *info);

/* Call the driver's function of the same name for an address that was found, and correct the
 * answer: it then describes the request that the block serves. */
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

/* Serves cuMemFree for a pointer that does not belong to the allocator. */
CUresult ac_pinned_plain_free(cuMemFree_v2_fn *real, CUdeviceptr pointer);

/* Called after the driver handed out something that names the memory at `address`.  Does nothing
 * unless a block of the cache lies there. */
void ac_pinned_shared(uint64_t address);

/* Gives back all idle blocks.  `wait`: first waits for blocks with pending work, for at most
 * oom_wait.  Returns the bytes given back. */
uint64_t ac_pinned_trim(bool wait);

/* Called once in each interval of decay.h. */
void ac_pinned_decay(const ac_config_t *config);

/* Called before a context is destroyed.  Waits for other contexts' work on memory of this
 * context that the program freed, as ac_arena_quiesce does. */
void ac_pinned_quiesce(struct ac_context *context, uint64_t limit_ns);

/* Called after the context ended, and its blocks with it. */
void ac_pinned_context_gone(const struct ac_context *context);

/* Like ac_allocator_holds and ac_allocator_release, for pinned memory. */
bool ac_pinned_holds(uint64_t session);
void ac_pinned_release(uint64_t session);

/* Like ac_allocator_check, for pinned memory. */
int ac_pinned_check(const char **why);

#endif
