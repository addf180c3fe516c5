/* Frees that have to wait until no stream captures: of memory that the driver served and that work may still
 * use, where a synchronisation would spoil the capture, and of memory whose stream is the one that captures.
 * A program that frees by accel_raw_deleter or accel_torch_free learns of no failure and frees once; a pool
 * that gives a segment back has no one to tell. */
#include "api/api_int.h"

#include "allocator/supply/pages.h"
#include "device/driver.h"
#include "intercept/observers.h"

/* Whether the memory is still the program's after a free that came to this. */
static bool is_held(accel_status_t status) {
    return status != ACCEL_OK && status != ACCEL_ERROR_DOUBLE_FREE &&
           status != ACCEL_ERROR_NOT_OURS && status != ACCEL_ERROR_INTERIOR;
}

accel_status_t ac_late_give(const ac_raw_t *raw) {
    ac_raw_t late = *raw;
    accel_status_t status = ac_raw_give(raw);
    late.late = true;
    if (!is_held(status) || !ac_raw_add(&late))
        return status;
    atomic_store(&ac_late_observer, ac_late_free);
    ac_count(ac_thread_tls, AC_COUNT_late_frees);
    return ACCEL_OK;
}

/* What still fails while no stream captures will not do better: its context has gone, and the memory with
 * it. */
bool ac_late_free(void) {
    const accel_pool_id_t none = {0, 0};
    ac_raw_t raw;
    size_t at = 0;
    bool any = false;
    while (!ac_cuda_is_capturing() && ac_raw_take_late(&raw, &at)) {
        accel_status_t status = ac_raw_give(&raw);
        if (status == ACCEL_ERROR_BUSY || (is_held(status) && ac_cuda_is_capturing())) {
            ac_raw_add(&raw); /* a capture began meanwhile */
            break;
        }
        if (status != ACCEL_OK)
            continue;
        if (!ac_owned(raw.address)) {
            atomic_fetch_add(&ac_given_back, raw.bytes);
            any = true;
        }
        ac_history(ACCEL_TRACE_FREE_COMPLETED, raw.device, raw.address, raw.bytes, raw.stream, none);
    }
    return any;
}
