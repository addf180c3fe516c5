/* What the cases of memory pools are written with (frame.c).  Each runs bare and under the library:
 * what is judged by EXPECT and GIVES holds in both, and what only the library does is judged where
 * it serves. */
#ifndef POOLS_H
#define POOLS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accelcache.h"
#include "harness.h"

#define MIB  ((size_t)1 << 20)
#define UNIT ((size_t)512) /* in which pools count */

typedef struct {
    const char *name;
    void (*run)(void);
} case_t;

extern const case_t serving[], reasons[], sharing[], multicast[];
extern const size_t serving_count, reasons_count, sharing_count, multicast_count;

extern bool served; /* the library is here */
extern CUcontext context;

/* Counters of the process: requests left to the driver because of `reason` (NULL: all). */
long long passed(const char *reason);
/* Requests of streams that the library served, of all devices. */
long long taken(void);
/* Since it was called last, exactly so many requests were passed because of `reason`, and no
 * others; judged only where the library is. */
void passed_only(const char *reason, long long count, int line);
#define PASSED(reason, count) passed_only(reason, count, __LINE__)
/* What the library alone does. */
#define OURS(condition) EXPECT(!served || (condition))

CUmemoryPool pool_with(CUmemAllocationHandleType types, size_t most, unsigned short usage,
                       int device);
#define pool_plain() pool_with(CU_MEM_HANDLE_TYPE_NONE, 0, 0, 0)
CUmemoryPool default_pool(int device);
CUdeviceptr take(size_t bytes, CUmemoryPool pool,
                 CUstream stream); /* pool NULL: the current one */
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
