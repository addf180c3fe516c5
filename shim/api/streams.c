/* The current stream of each thread, by device, and guards.  The library has one pointer of
 * thread-local storage, and that is the hooks' own: streams lie behind a key, in a record that a
 * thread gets with its first accel_set_stream. */
#include "api/api_int.h"

#include <pthread.h>
#include <stdlib.h>

#include "device/driver.h"

typedef struct {
    void *stream[AC_LIVE_DEVICES];
    CUcontext context; /* that is current as long as `chosen` holds */
    int chosen;        /* by accel_maybe_exchange_device: the device plus 1; 0: none */
} current_t;

static pthread_key_t key;
static bool have_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_key(void) {
    have_key = pthread_key_create(&key, free) == 0;
}

static current_t *current_of(bool make) {
    pthread_once(&once, make_key);
    if (!have_key)
        return NULL;
    current_t *current = pthread_getspecific(key);
    if (current || !make)
        return current;
    current = calloc(1, sizeof *current);
    if (current && pthread_setspecific(key, current) != 0) {
        free(current);
        return NULL;
    }
    return current;
}

void *ac_api_stream(int device) {
    const current_t *current = current_of(false);
    return current && device >= 0 && device < AC_LIVE_DEVICES ? current->stream[device] : NULL;
}

bool ac_api_choose(int device, CUcontext context) {
    current_t *current = current_of(device >= 0);
    if (current) {
        current->chosen = device + 1;
        current->context = context;
    }
    return current || device < 0;
}

int ac_api_chosen(CUcontext context) {
    const current_t *current = current_of(false);
    return current && current->chosen && current->context == context ? current->chosen - 1 : -1;
}

/* Returns ACCEL_OK if the handle is of a stream of the device's primary context.  The thread's current stream
 * counts as one: it was, and its handle may be of a destroyed stream, which no driver may be asked about. */
static accel_status_t check_stream(accel_stream_t stream) {
    CUcontext context;
    ac_api_scope_t scope;
    if ((CUstream)stream.stream <= CU_STREAM_PER_THREAD || !ac_driver.cuStreamGetCtx ||
        stream.stream == ac_api_stream(stream.device))
        return ACCEL_OK;
    if (!ac_api_enter(&scope, stream.device))
        return ACCEL_ERROR_CUDA;
    bool is_one = ac_driver.cuStreamGetCtx(stream.stream, &context) == CUDA_SUCCESS &&
                  ac_api_is_primary(context, stream.device);
    ac_api_leave(&scope);
    return is_one ? ACCEL_OK : ACCEL_ERROR_INVALID;
}

static bool set_stream(accel_stream_t stream) {
    if (stream.device >= AC_LIVE_DEVICES)
        return false;
    if (ac_api_stream(stream.device) == stream.stream)
        return true;
    current_t *current = current_of(true);
    if (current)
        current->stream[stream.device] = stream.stream;
    return current;
}

accel_status_t accel_get_stream(int device, accel_stream_t *stream) {
    if (!stream)
        return ACCEL_ERROR_INVALID;
    if (device < 0)
        device = accel_current_device();
    accel_status_t status = ac_api_need(device < 0 ? 0 : device);
    if (status == ACCEL_OK)
        *stream = (accel_stream_t){ac_api_stream(device), device};
    return status;
}

accel_status_t accel_set_stream(accel_stream_t stream) {
    if (stream.device < 0)
        return ACCEL_OK;
    accel_status_t status = ac_api_need(stream.device);
    if (status == ACCEL_OK)
        status = check_stream(stream);
    if (status == ACCEL_OK)
        status = accel_set_device(stream.device);
    if (status == ACCEL_OK && !set_stream(stream))
        status = ACCEL_ERROR_OUT_OF_MEMORY;
    return status;
}

/* --- guards --- */

enum { GUARD_OFF, GUARD_ON = 0x61636775 }; /* no value that memory is likely to have by chance */

accel_status_t accel_guard_enter_stream(accel_guard_t *guard, accel_stream_t stream) {
    CUcontext context = NULL;
    if (!guard)
        return ACCEL_ERROR_INVALID;
    *guard = (accel_guard_t)ACCEL_GUARD_INIT;
    if (stream.device < 0)
        return ACCEL_OK;
    accel_status_t status = ac_api_need(stream.device);
    if (status != ACCEL_OK)
        return status;
    accel_stream_t before = {ac_api_stream(stream.device), stream.device};
    if (ac_driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS)
        return ACCEL_ERROR_CUDA;
    int chosen = ac_api_chosen(context);
    status = accel_set_stream(stream);
    *guard = (accel_guard_t){before, context, GUARD_ON, chosen};
    if (status != ACCEL_OK)
        accel_guard_leave(guard);
    return status;
}

accel_status_t accel_guard_enter(accel_guard_t *guard, int device) {
    accel_stream_t stream = {device < 0 ? NULL : ac_api_stream(device), device};
    return accel_guard_enter_stream(guard, stream);
}

void accel_guard_leave(accel_guard_t *guard) {
    if (!guard || guard->entered != GUARD_ON)
        return;
    guard->entered = GUARD_OFF;
    set_stream(guard->before);
    if (!ac_is_active() || ac_driver.cuCtxSetCurrent(guard->context) != CUDA_SUCCESS)
        return;
    ac_api_choose(guard->chosen, guard->context);
    ac_thread_forget();
}
