/* The key `fill`: the library writes a pattern into the memory that it serves, when it hands the memory
 * out and when the program frees it.  A program that reads memory that it never wrote, or memory that
 * it freed, sees the pattern.
 *
 * A plain request is filled by a stream of the library before it returns.  Memory is then handed out
 * only once no work uses it (no single-stream rule), and a plain free waits for the device as with
 * free_sync.  A device that is full of kernels may delay the pattern.  After a second the block is
 * freed, behind the pattern, and another block serves.  Until the late pattern has been written, the
 * library fills no memory.
 *
 * Requests and frees that name a stream are filled in its order, without a wait.  While a stream
 * captures, nothing is filled.  With the key set, hits take the long way (ac_hits_are_simple), so the
 * functions below are the only places that fill. */
#ifndef AC_FILL_H
#define AC_FILL_H

#include "hooks/body.h"

/* Fill memory that was just served, if the key is set: for a plain request, and (_on) in the order of a
 * stream.  False: the block was freed instead, and the program must not get it. */
bool ac_fill_this(ac_context_t *context, uint64_t address, uint64_t bytes);
void ac_fill_this_on(uint64_t address, uint64_t bytes, CUstream stream, bool per_thread);

/* Fill the block at `address` before it is freed in the current context.  The first waits for that
 * context's work (ac_context_await) and returns the result of the wait.  It leaves memory alone that
 * other contexts may still use.  _on fills in the order of the stream. */
CUresult ac_fill_this_free(ac_context_t *context, uint64_t address);
void ac_fill_this_free_on(const ac_context_t *context, uint64_t address, CUstream stream,
                          bool per_thread);

static inline bool ac_fill_served(ac_context_t *context, uint64_t address, uint64_t bytes) {
    return !__builtin_expect(ac_is_filling(), 0) || ac_fill_this(context, address, bytes);
}

static inline void ac_fill_served_on(uint64_t address, uint64_t bytes, CUstream stream,
                                     bool per_thread) {
    if (__builtin_expect(ac_is_filling(), 0))
        ac_fill_this_on(address, bytes, stream, per_thread);
}

static inline CUresult ac_fill_await(ac_context_t *context, uint64_t address) {
    return ac_is_filling() ? ac_fill_this_free(context, address) : ac_context_await(context);
}

static inline void ac_fill_freed_on(const ac_context_t *context, uint64_t address,
                                    CUstream stream, bool per_thread) {
    if (__builtin_expect(ac_is_filling(), 0))
        ac_fill_this_free_on(context, address, stream, per_thread);
}

#endif
