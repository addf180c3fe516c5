/* Functions that the files of the fake device share. */
#ifndef FAKE_DEVICE_INT_H
#define FAKE_DEVICE_INT_H

#include "fake_device.h"

void fake_misuse(fake_device_t *device, const char *what);

/* Begins a call: counts it and applies the plan. Returns with the lock held; _leave drops
 * it. */
ac_status_t fake_enter(fake_context_t *context, fake_kind_t kind);
ac_status_t fake_leave(fake_context_t *context, ac_status_t status);

void fake_charge(fake_device_t *device, uint64_t bytes);

/* fake_pages.c */
ac_status_t fake_range_support(void *context, ac_range_support_t *support);
ac_status_t fake_range_reserve(void *context, uint64_t bytes, uint64_t *address);
ac_status_t fake_range_release(void *context, uint64_t address, uint64_t bytes);
ac_status_t fake_page_create(void *context, uint64_t bytes, uint64_t *page);
ac_status_t fake_page_release(void *context, uint64_t page);
ac_status_t fake_page_map(void *context, uint64_t address, uint64_t bytes, uint64_t page);
ac_status_t fake_pages_allow(void *context, uint64_t address, uint64_t bytes);
ac_status_t fake_pages_unmap(void *context, uint64_t address, uint64_t bytes);
bool fake_fills_over(void *context);
ac_status_t fake_memory_fill(void *context, uint64_t address, uint64_t bytes, uint8_t byte);
ac_status_t fake_memory_differs(void *context, uint64_t address, uint64_t bytes, uint8_t byte,
                                uint64_t *first);

#endif
