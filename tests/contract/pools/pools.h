/* The frame of the cases for memory pools (frame.c). Each case runs bare and under the library.
 * EXPECT and GIVES must hold in both; checks of the library's own behaviour run only if it
 * serves. */
#ifndef POOLS_H
#define POOLS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accelcache.h"
#include "harness.h"

#define MIB  ((size_t)1 << 20)
#define UNIT ((size_t)512) /* granularity of pools */

typedef struct {
    const char *name;
    void (*run)(void);
} case_t;

extern const case_t serving[], reasons[], sharing[], multicast[];
extern const size_t serving_count, reasons_count, sharing_count, multicast_count;

extern bool served; /* the library is here */
extern CUcontext context;

/* Returns the number of requests left to the driver because of `reason` (NULL: all). */
long long passed(const char *reason);
/* Returns the number of stream-ordered requests that the library served, on all devices. */
long long taken(void);
/* Checks that since the last call exactly `count` requests were passed to the driver, all for
 * `reason`. Without the library it checks nothing. */
void passed_only(const char *reason, long long count, int line);
#define PASSED(reason, count) passed_only(reason, count, __LINE__)
/* Checks a behaviour of the library alone. */
#define OURS(condition) EXPECT(!served || (condition))

CUmemoryPool pool_with(CUmemAllocationHandleType types, size_t most, unsigned short usage,
                       int device);
#define pool_plain() pool_with(CU_MEM_HANDLE_TYPE_NONE, 0, 0, 0)
CUmemoryPool default_pool(int device);
CUdeviceptr take(size_t bytes, CUmemoryPool pool,
                 CUstream stream); /* NULL: the current pool */
void give(CUdeviceptr memory, CUstream stream);
cuuint64_t figure(CUmemoryPool pool, CUmemPool_attribute attribute);
void set_figure(CUmemoryPool pool, CUmemPool_attribute attribute, cuuint64_t value);
void set_switch(CUmemoryPool pool, CUmemPool_attribute attribute, int on);
CUmemoryPool pool_of(CUdeviceptr memory);
void use(CUdeviceptr memory, CUstream stream); /* a kernel that writes there */

#define USED      CU_MEMPOOL_ATTR_USED_MEM_CURRENT
#define USED_HIGH CU_MEMPOOL_ATTR_USED_MEM_HIGH
#define HELD      CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT
#define HELD_HIGH CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH
#define THRESHOLD CU_MEMPOOL_ATTR_RELEASE_THRESHOLD

#endif
