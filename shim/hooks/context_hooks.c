/* Hooks that create and destroy contexts, or change the current one. */
#include "hooks/body.h"

#include "device/driver.h"
#include "track/peers.h"
#include "track/pool_access.h"
#include "failpoint.h"

/* --- creation: contexts that are not primary are known from their creation on --- */

static CUresult created(ac_thread_t *thread, CUresult result, const CUcontext *handle) {
    ac_thread_forget(); /* creation makes the new one current */
    if (result == CUDA_SUCCESS && thread && handle) {
        ac_context_created(*handle);
        ac_pool_reach_from(*handle);
    }
    return result;
}

#define CREATE(symbol, params, args)                                                             \
    CUresult symbol params {                                                                     \
        AC_ENTER_OR_RETURN(symbol);                                                              \
        CUresult result;                                                                         \
        AC_RETRY(result, AC_NEED_UNKNOWN, real args);                                            \
        return created(thread, result, context);                                                 \
    }
CREATE(cuCtxCreate, (CUcontext * context, unsigned flags, CUdevice device),
       (context, flags, device))
CREATE(cuCtxCreate_v2, (CUcontext * context, unsigned flags, CUdevice device),
       (context, flags, device))
CREATE(cuCtxCreate_v3,
       (CUcontext * context, CUexecAffinityParam *affinity, int count, unsigned flags,
        CUdevice device),
       (context, affinity, count, flags, device))
CREATE(cuCtxCreate_v4,
       (CUcontext * context, CUctxCreateParams *create, unsigned flags, CUdevice device),
       (context, create, flags, device))

/* A green context shares its device's memory with the primary one.  The same arena serves both,
 * and fences cover the streams of both. */
CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green) {
    AC_ENTER_OR_RETURN(cuCtxFromGreenCtx);
    CUresult result = real(context, green);
    if (result == CUDA_SUCCESS && thread && !ac_context_green(*context))
        ac_context_unseen();
    return result;
}

CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc resources, CUdevice device,
                          unsigned flags) {
    AC_ENTER_OR_RETURN(cuGreenCtxCreate);
    CUresult result;
    CUcontext view = NULL;
    AC_RETRY(result, AC_NEED_UNKNOWN, real(green, resources, device, flags));
    /* Programs create streams from it directly, so it has to be known now. */
    if (result == CUDA_SUCCESS && thread && green)
        cuCtxFromGreenCtx(&view, *green);
    return result;
}

/* --- the current context of the calling thread --- */

#define CURRENT(symbol, params, args)                                                            \
    CUresult symbol params {                                                                     \
        AC_ENTER_OR_RETURN(symbol);                                                              \
        CUresult result = real args;                                                             \
        (void)thread;                                                                            \
        if (!AC_FAILPOINT(current_context_kept) && !AC_ROW_FAILPOINT(symbol, unseen))            \
            ac_thread_forget();                                                                  \
        return result;                                                                           \
    }
CURRENT(cuCtxSetCurrent, (CUcontext context), (context))
CURRENT(cuCtxPushCurrent, (CUcontext context), (context))
CURRENT(cuCtxPushCurrent_v2, (CUcontext context), (context))
CURRENT(cuCtxPopCurrent, (CUcontext * context), (context))
CURRENT(cuCtxPopCurrent_v2, (CUcontext * context), (context))

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    AC_ENTER_OR_RETURN(cuDevicePrimaryCtxRetain);
    CUresult result;
    AC_RETRY(result, AC_NEED_UNKNOWN, real(context, device));
    if (!AC_FAILPOINT(current_context_kept))
        ac_thread_forget();
    if (result == CUDA_SUCCESS)
        ac_context_retained(device);
    if (result == CUDA_SUCCESS && thread && ac_fence_is_unseen())
        ac_context_of(*context); /* it may get unseen work, so fences have to cover it */
    if (result == CUDA_SUCCESS && thread)
        ac_pool_reach_from(*context);
    return result;
}

/* --- destruction: no call of ours is inside during the driver's call; records end after it --- */

#define DESTROY(symbol)                                                                          \
    CUresult symbol(CUcontext context) {                                                         \
        AC_ENTER_OR_RETURN(symbol);                                                              \
        if (ac_is_guest(thread))                                                                 \
            return real(context);                                                                \
        ac_ending_t ending = ac_context_ending(context);                                         \
        CUresult result = real(context);                                                         \
        ac_context_ended(&ending, result == CUDA_SUCCESS);                                       \
        ac_thread_forget();                                                                      \
        return result;                                                                           \
    }
DESTROY(cuCtxDestroy)
DESTROY(cuCtxDestroy_v2)

/* Destroys the context if this was its last use. */
CUresult cuCtxDetach(CUcontext context) {
    AC_ENTER_OR_RETURN(cuCtxDetach);
    unsigned long long id;
    if (ac_is_guest(thread))
        return real(context);
    ac_ending_t ending = ac_context_ending(context);
    CUresult result = real(context);
    ac_context_ended(&ending, result == CUDA_SUCCESS && thread &&
                                  (!ac_driver.cuCtxGetId ||
                                   ac_driver.cuCtxGetId(context, &id) != CUDA_SUCCESS));
    ac_thread_forget();
    return result;
}

/* Destroys a green context.  Its memory stays with the primary context. */
CUresult cuGreenCtxDestroy(CUgreenCtx green) {
    AC_ENTER_OR_RETURN(cuGreenCtxDestroy);
    CUcontext view = NULL;
    cuCtxFromGreenCtx_fn *from_green = AC_REAL(cuCtxFromGreenCtx);
    if (thread && from_green && from_green(&view, green) != CUDA_SUCCESS)
        view = NULL;
    ac_context_t *primary = view ? ac_context_of(view) : NULL;
    if (primary)
        ac_context_green_ending(primary);
    CUresult result = real(green);
    if (result == CUDA_SUCCESS && view)
        ac_context_green_gone(view);
    ac_thread_forget();
    return result;
}

#define RESET(symbol)                                                                            \
    CUresult symbol(CUdevice device) {                                                           \
        AC_ENTER_OR_RETURN(symbol);                                                              \
        if (ac_is_guest(thread))                                                                 \
            return real(device);                                                                 \
        ac_ending_t ending = ac_context_primary_ending(device, true);                            \
        CUresult result = real(device);                                                          \
        if (result == CUDA_SUCCESS)                                                              \
            ac_context_reset(device);                                                            \
        ac_context_ended(&ending, result == CUDA_SUCCESS);                                       \
        ac_thread_forget();                                                                      \
        return result;                                                                           \
    }
RESET(cuDevicePrimaryCtxReset)
RESET(cuDevicePrimaryCtxReset_v2)

/* Releases the primary context.  The last release ends it, and waits for work of other contexts
 * and for calls that are inside.  Other releases must not wait for these. */
static CUresult release(const ac_thread_t *thread, cuDevicePrimaryCtxRelease_v2_fn *real,
                        CUdevice device) {
    unsigned flags;
    int active = 1;
    ac_last_t last = ac_context_releasing(device);
    ac_ending_t ending = {.count = 0};
    if (thread && last != AC_LAST_NOT)
        ending = ac_context_primary_ending(device, last == AC_LAST_SURE);
    CUresult result = real(device);
    if (result != CUDA_SUCCESS && last != AC_LAST_UNSEEN)
        ac_context_retained(device);
    bool ended = thread && result == CUDA_SUCCESS &&
                 ac_driver.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS &&
                 !active;
    if (ended && last == AC_LAST_NOT) /* another release went unseen */
        ending = ac_context_primary_gone(device);
    ac_context_ended(&ending, ended);
    if (thread)
        ac_thread_forget();
    return result;
}

#define RELEASE(symbol)                                                                          \
    CUresult symbol(CUdevice device) {                                                           \
        AC_ENTER_OR_RETURN(symbol);                                                              \
        return ac_is_guest(thread) ? real(device) : release(thread, real, device);               \
    }
RELEASE(cuDevicePrimaryCtxRelease)
RELEASE(cuDevicePrimaryCtxRelease_v2)

/* --- peers: other contexts may use memory from now on --- */

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
    AC_ENTER_OR_RETURN(cuCtxEnablePeerAccess);
    CUresult result;
    if (thread)
        ac_fence_share(); /* before the first access can be submitted */
    AC_RETRY(result, AC_NEED_UNKNOWN, real(peer, flags));
    const ac_context_t *from, *to;
    if (thread && result == CUDA_SUCCESS && (from = ac_context_current(thread)) &&
        (to = ac_context_of(peer)))
        ac_peers_enabled(from, to);
    return thread ? ac_pool_peer_enabled(thread, peer, result) : result;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer) {
    AC_ENTER_OR_RETURN(cuCtxDisablePeerAccess);
    CUresult result;
    if (thread && ac_pool_peer_disables(thread, peer, &result))
        return result;
    result = real(peer);
    const ac_context_t *from, *to;
    if (thread && result == CUDA_SUCCESS && (from = ac_context_current(thread)) &&
        (to = ac_context_of(peer)))
        ac_peers_disabled(from, to);
    return result;
}
