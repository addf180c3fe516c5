/* Windows of captures and of a context's end (cuda_context.c). */
#include <check.h>
#include <stdatomic.h>

#include "device/cuda_int.h"
#include "device/driver.h"
#include "windows.h"

static void capture_begins(void) {
    ac_cuda_capture_begin(NULL);
    ac_cuda_capture_began(NULL, true);
}

/* Checks the mark: if no capture began since it, calls that a capture forbids must be
 * safe. */
static void check_mark(uint64_t mark) {
    ck_assert_msg(!ac_cuda_capture_none_since(mark) || !ac_cuda_is_capturing(NULL),
                  "a capture is under way that counts as none");
}

void window_capture_mark_late(void) {
    at_window("capture_looked", capture_begins);
    check_mark(ac_cuda_capture_mark());
}

static uint64_t mark;

static void another_looks(void) {
    mark = ac_cuda_capture_mark();
}

void window_capture_counted_late(void) {
    ac_cuda_capture_begin(NULL);
    at_window("capture_begun", another_looks);
    ac_cuda_capture_began(NULL, true);
    check_mark(mark);
}

static ac_cuda_context_t context;

static void another_synchronises(void) {
    ck_assert(!ac_cuda_sync_begin(&context));
}

void window_sync_beside_beginning(void) {
    at_window("capture_at_gate", another_synchronises);
    ac_cuda_capture_begin(NULL);
    ac_cuda_capture_began(NULL, false);
    ck_assert(ac_cuda_sync_begin(&context));
    ac_cuda_sync_end();
}

static const CUcontext handle = (CUcontext)0x100;
static _Atomic bool destroyed;

static CUresult get_current(CUcontext *out) {
    ck_assert_msg(!atomic_load(&destroyed), "a context is entered that has gone");
    *out = handle;
    return CUDA_SUCCESS;
}

static CUresult get_device(CUdevice *out) {
    *out = 0;
    return CUDA_SUCCESS;
}

static void context_goes(void) {
    ac_cuda_context_dying(&context); /* returns when no call of the library is inside */
    ac_cuda_context_kill(&context);
    atomic_store(&destroyed, true);
}

static bool is_inside(void) {
    return atomic_load(&context.users) > 0;
}

static void context_goes_elsewhere(void) {
    other_thread(context_goes, is_inside);
}

void window_entered_after_look(void) {
    ac_cuda_scope_t scope;
    ac_driver.cuCtxGetCurrent = get_current;
    ac_driver.cuCtxGetDevice = get_device; /* called if the other thread comes early */
    ac_cuda_context_init(&context, handle, 0, 0, AC_RECORD_STREAMS);
    at_window("context_seen", context_goes_elsewhere);
    ck_assert(ac_cuda_enter(&context, &scope));
    ac_cuda_leave(&scope);
    other_thread_ends();
}
