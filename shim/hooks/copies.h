/* Destinations of submissions, for free_sync.h: a line for each function that may be visible work.
 * Parameters have their names from cuda_functions.def.
 *
 *   HOST         memory of the host, or a layout that is not declared here
 *   AT(p)        an address
 *   SHAPE(s)     the destination of a copy structure
 *   LIST(p, n)   n addresses
 *   BACK(p, n)   memory of the host, from n bytes of the device at p, before the call returns
 *   BACK_SHAPE(s)  likewise, by a copy structure
 *   BACK_ARRAY(n)  likewise, from n bytes of an array
 *   KERNEL       any memory that a kernel reaches
 *   GRAPH        any memory that a graph reaches
 *
 * LONG_... returns the kind of visible work, SHORT_... true if the short way of submit_hooks.c may be
 * taken. */
#ifndef AC_COPIES_H
#define AC_COPIES_H

#include "track/free_sync.h"

#define TO_cuMemcpy2DAsync              , HOST
#define TO_cuMemcpy2DAsync_v2           , SHAPE(a)
#define TO_cuMemcpy2DAsync_v2_ptsz      , SHAPE(a)
#define TO_cuMemcpy3DAsync              , HOST
#define TO_cuMemcpy3DAsync_v2           , SHAPE(a)
#define TO_cuMemcpy3DAsync_v2_ptsz      , SHAPE(a)
#define TO_cuMemcpy3DBatchAsync         , HOST
#define TO_cuMemcpy3DBatchAsync_v2      , HOST
#define TO_cuMemcpy3DBatchAsync_ptsz    , HOST
#define TO_cuMemcpy3DBatchAsync_v2_ptsz , HOST
#define TO_cuMemcpy3DPeerAsync          , SHAPE(a)
#define TO_cuMemcpy3DPeerAsync_ptsz     , SHAPE(a)
#define TO_cuMemcpyAsync                , AT(a)
#define TO_cuMemcpyAsync_ptsz           , AT(a)
#define TO_cuMemcpyAtoHAsync            , HOST
#define TO_cuMemcpyAtoHAsync_v2         , HOST
#define TO_cuMemcpyAtoHAsync_v2_ptsz    , HOST
#define TO_cuMemcpyBatchAsync           , LIST(a, d)
#define TO_cuMemcpyBatchAsync_v2        , LIST(a, d)
#define TO_cuMemcpyBatchAsync_ptsz      , LIST(a, d)
#define TO_cuMemcpyBatchAsync_v2_ptsz   , LIST(a, d)
#define TO_cuMemcpyDtoDAsync            , AT(a)
#define TO_cuMemcpyDtoDAsync_v2         , AT(a)
#define TO_cuMemcpyDtoDAsync_v2_ptsz    , AT(a)
#define TO_cuMemcpyDtoHAsync            , HOST
#define TO_cuMemcpyDtoHAsync_v2         , HOST
#define TO_cuMemcpyDtoHAsync_v2_ptsz    , HOST
#define TO_cuMemcpyHtoDAsync            , AT(a)
#define TO_cuMemcpyHtoDAsync_v2         , AT(a)
#define TO_cuMemcpyHtoDAsync_v2_ptsz    , AT(a)
#define TO_cuMemcpyPeerAsync            , AT(a)
#define TO_cuMemcpyPeerAsync_ptsz       , AT(a)
#define TO_cuMemcpyDtoH_v2              , BACK(b, c)
#define TO_cuMemcpyDtoH_v2_ptds         , BACK(b, c)
#define TO_cuMemcpyAtoH_v2              , BACK_ARRAY(d)
#define TO_cuMemcpyAtoH_v2_ptds         , BACK_ARRAY(d)
#define TO_cuMemcpy2D_v2                , BACK_SHAPE(a)
#define TO_cuMemcpy2D_v2_ptds           , BACK_SHAPE(a)
#define TO_cuMemcpy2DUnaligned_v2       , BACK_SHAPE(a)
#define TO_cuMemcpy2DUnaligned_v2_ptds  , BACK_SHAPE(a)
#define TO_cuLaunch                     , KERNEL
#define TO_cuLaunchGrid                 , KERNEL
#define TO_cuLaunchGridAsync            , KERNEL
#define TO_cuLaunchKernel               , KERNEL
#define TO_cuLaunchKernel_ptsz          , KERNEL
#define TO_cuLaunchCooperativeKernel    , KERNEL
#define TO_cuLaunchCooperativeKernel_ptsz , KERNEL
#define TO_cuGraphLaunch                , GRAPH
#define TO_cuGraphLaunch_ptsz           , GRAPH

/* AC_TO: the destination of a function, NOWHERE for functions without a line.  AC_SHOWS puts `way`
 * in front of it. */
#define AC_TO_PICK(none, to, ...)   to
#define AC_TO_PICKED(...)           AC_TO_PICK(__VA_ARGS__)
#define AC_TO(symbol)               AC_TO_PICKED(TO_##symbol, NOWHERE, )
#define AC_TO_PASTE(way, to)        way##to
#define AC_TO_PASTED(way, to)       AC_TO_PASTE(way, to)
#define AC_SHOWS(way, symbol)       AC_TO_PASTED(way, AC_TO(symbol))

#define LONG_NOWHERE    AC_SHOW_NOTHING
#define LONG_HOST       AC_SHOW_COPY
#define LONG_AT(p)      (ac_address_shows((uint64_t)(p)) ? AC_SHOW_COPY : AC_SHOW_NOTHING)
#define LONG_SHAPE(s)                                                                            \
    ((s) && ((s)->dstMemoryType == CU_MEMORYTYPE_HOST ||                                         \
             ((s)->dstMemoryType != CU_MEMORYTYPE_ARRAY && ac_address_shows((s)->dstDevice)))    \
         ? AC_SHOW_COPY                                                                          \
         : AC_SHOW_NOTHING)
#define LONG_LIST(p, n) (ac_list_shows(p, n) ? AC_SHOW_COPY : AC_SHOW_NOTHING)
#define LONG_KERNEL     (atomic_load(&ac_holds_shown) ? AC_SHOW_KERNEL : AC_SHOW_NOTHING)
#define LONG_GRAPH      (ac_graph_shows() ? AC_SHOW_COPY : AC_SHOW_NOTHING)

/* CUDA documents only for these copies, and only from the device, that they return after the result
 * has arrived.  Memory that is not known as the device's may be the host's own.  Memory of another
 * context has no result of this one.  The context of an array is not known. */
#define LONG_BACK(p, n)                                                                          \
    ((n) && owns(&submit, (uint64_t)(p)) ? AC_SHOW_AWAITED : AC_SHOW_NOTHING)
#define LONG_BACK_ARRAY(n) ((n) && ac_context_count() < 2 ? AC_SHOW_AWAITED : AC_SHOW_NOTHING)
#define LONG_BACK_SHAPE(s)                                                                       \
    ((s) && (s)->WidthInBytes && (s)->Height && (s)->dstMemoryType == CU_MEMORYTYPE_HOST &&      \
             (s)->srcMemoryType == CU_MEMORYTYPE_DEVICE && owns(&submit, (s)->srcDevice)         \
         ? AC_SHOW_AWAITED                                                                       \
         : AC_SHOW_NOTHING)

#define SHORT_NOWHERE    true
#define SHORT_HOST       shows_nothing(thread, stream)
#define SHORT_AT(p)      (SHORT_HOST || !LONG_AT(p))
#define SHORT_SHAPE(s)   (SHORT_HOST || !LONG_SHAPE(s))
#define SHORT_LIST(p, n) (SHORT_HOST || !LONG_LIST(p, n))
#define SHORT_BACK(p, n)    SHORT_HOST
#define SHORT_BACK_ARRAY(n) SHORT_HOST
#define SHORT_BACK_SHAPE(s) SHORT_HOST
#define SHORT_KERNEL     true /* the short way serves a stream only after its first kernel: `is_new` */
#define SHORT_GRAPH      true /* never taken */

typedef enum { AC_SHOW_NOTHING, AC_SHOW_COPY, AC_SHOW_KERNEL, AC_SHOW_AWAITED } ac_show_t;

static inline bool ac_list_shows(const CUdeviceptr *address, size_t count) {
    for (size_t i = 0; address && i < count; i++)
        if (ac_address_shows(address[i]))
            return true;
    return false;
}

#endif
