/* The key `fill`: memory that the library serves gets a pattern when it is handed out, and when it is
 * freed, so that a program that reads what it never wrote, or what it freed, sees it.
 *
 * A plain request is filled before it returns, by a stream of ours: memory is then handed out only
 * once no work uses it (no single-stream rule), and a plain free waits for the device as with
 * free_sync.  A device that is full of kernels may not get to it: after a second the block is freed,
 * behind the pattern, and another one serves, without a pattern until the late one has been written.
 * What names a stream is filled in its order, without a wait.  While a stream captures nothing is
 * filled.  With the key set hits go the long ways (ac_hits_are_simple), so that these are the only
 * places to fill from. */
#ifndef AC_FILL_H
#define AC_FILL_H

#include "hooks/body.h"

/* The pattern is on; a plain request for `bytes`, or one of a stream, was served at `address`.  False: the
 * block is not the program's, it has been freed. */
bool ac_fill_this(ac_context_t *context, uint64_t address, uint64_t bytes);
void ac_fill_this_on(uint64_t address, uint64_t bytes, CUstream stream, bool per_thread);

/* `address`, of whatever block, is about to be freed, in the context that is current.  The first
 * waits for that context's work (ac_context_await), and returns what came of it: memory that other
 * contexts may still use stays as it is. */
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
