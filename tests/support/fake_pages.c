/* Reserved addresses and pages of the fake device. It judges the allocator's calls as a driver
 * would, and more strictly: the allocator must also release pages that a dead context left. */
#include <stdlib.h>
#include <string.h>

#include "fake_device_int.h"

static uint64_t units_of(uint64_t bytes) {
    return bytes >> AC_PAGE_BITS;
}

ac_status_t fake_range_support(void *arg, ac_range_support_t *support) {
    const fake_context_t *context = arg;
    *support = (ac_range_support_t){.granularity = AC_SEGMENT_ALIGN,
                                    .memory = context->device->capacity};
    return AC_OK;
}

uint64_t fake_reserved_bytes(const fake_device_t *device) {
    uint64_t bytes = 0;
    for (int i = 0; i < FAKE_RESERVED; i++)
        bytes += device->reserved[i].size;
    return bytes;
}

bool fake_may_answer(fake_kind_t kind, ac_status_t status) {
    switch (kind) {
    case FAKE_RANGE_RELEASE:
    case FAKE_PAGE_RELEASE:
        return status == AC_OK; /* a device tries again by itself */
    case FAKE_RANGE_RESERVE:
    case FAKE_PAGE_CREATE:
    case FAKE_PAGE_MAP:
    case FAKE_PAGES_ALLOW:
        return status == AC_OK || status == AC_OOM || status == AC_FAILED;
    case FAKE_PAGES_UNMAP:
        return status == AC_OK || status == AC_BUSY || status == AC_FAILED;
    case FAKE_SEGMENT_ALLOC:
        return status != AC_UNSUPPORTED;
    case FAKE_RECORD:
        return status != AC_OOM;
    default:
        return status != AC_OOM && status != AC_UNSUPPORTED;
    }
}

/* Enters a call that takes something down: it works in a dead context and during a capture. */
static ac_status_t enter_late(fake_context_t *context, fake_kind_t kind) {
    fake_enter(context, kind);
    return AC_OK;
}

ac_status_t fake_range_reserve(void *arg, uint64_t bytes, uint64_t *address) {
    fake_context_t *context = arg;
    fake_device_t *device = context->device;
    ac_status_t status = fake_enter(context, FAKE_RANGE_RESERVE);
    if (status == AC_BUSY)
        status = AC_OK; /* a capture does not mind */
    if (status != AC_OK || atomic_load(&context->dead))
        return fake_leave(context, status == AC_OK ? AC_FAILED : status);
    if (!bytes || bytes % AC_SEGMENT_ALIGN)
        fake_misuse(device, "odd range size");
    int i = 0;
    while (i < FAKE_RESERVED && device->reserved[i].size)
        i++;
    if (i == FAKE_RESERVED ||
        (device->most_addresses && fake_reserved_bytes(device) + bytes > device->most_addresses))
        return fake_leave(context, AC_OOM);
    fake_unit_t *unit = calloc(units_of(bytes), sizeof *unit);
    if (!unit)
        return fake_leave(context, AC_OOM);
    *address = FAKE_RESERVED_BASE + ((uint64_t)i << FAKE_RESERVED_BITS);
    device->reserved[i] = (fake_reserved_t){*address, bytes, unit};
    return fake_leave(context, AC_OK);
}

/* Returns the units of whole addresses inside one range; NULL: misuse. */
static fake_unit_t *units_at(fake_device_t *device, uint64_t address, uint64_t bytes) {
    for (int i = 0; i < FAKE_RESERVED; i++) {
        const fake_reserved_t *r = &device->reserved[i];
        if (r->size && address >= r->address && address + bytes <= r->address + r->size &&
            bytes && (address - r->address) % AC_SEGMENT_ALIGN == 0 &&
            bytes % AC_SEGMENT_ALIGN == 0)
            return &r->unit[units_of(address - r->address)];
    }
    fake_misuse(device, "addresses that are not reserved");
    return NULL;
}

ac_status_t fake_range_release(void *arg, uint64_t address, uint64_t bytes) {
    fake_context_t *context = arg;
    fake_device_t *device = context->device;
    ac_status_t status = enter_late(context, FAKE_RANGE_RELEASE);
    if (status != AC_OK)
        return fake_leave(context, status);
    for (int i = 0; i < FAKE_RESERVED; i++) {
        fake_reserved_t *r = &device->reserved[i];
        if (r->size != bytes || r->address != address)
            continue;
        for (uint64_t at = 0; at < units_of(bytes); at++)
            if (r->unit[at].page)
                fake_misuse(device, "a range with pages was released");
        free(r->unit);
        *r = (fake_reserved_t){0};
        return fake_leave(context, AC_OK);
    }
    fake_misuse(device, "a range that is none was released");
    return fake_leave(context, AC_FAILED);
}

ac_status_t fake_page_create(void *arg, uint64_t bytes, uint64_t *page) {
    fake_context_t *context = arg;
    fake_device_t *device = context->device;
    ac_status_t status = fake_enter(context, FAKE_PAGE_CREATE);
    if (status == AC_BUSY)
        status = AC_OK;
    if (status != AC_OK || atomic_load(&context->dead))
        return fake_leave(context, status == AC_OK ? AC_FAILED : status);
    if (!bytes || bytes % AC_SEGMENT_ALIGN)
        fake_misuse(device, "odd page size");
    if (bytes > device->capacity - device->used)
        return fake_leave(context, AC_OOM);
    if (device->pages == device->page_room) {
        uint32_t room = device->page_room ? 2 * device->page_room : 1024;
        void *grown = realloc(device->page, room * sizeof *device->page);
        if (!grown)
            return fake_leave(context, AC_OOM);
        device->page = grown;
        device->page_room = room;
    }
    device->page[device->pages++] = (fake_page_t){.bytes = bytes, .held = true};
    device->live_pages++;
    fake_charge(device, bytes);
    *page = device->pages;
    return fake_leave(context, AC_OK);
}

static void settle(fake_device_t *device, fake_page_t *page) {
    if (page->held || page->mapped)
        return;
    device->live_pages--;
    device->used -= page->bytes;
}

/* NULL: misuse. */
static fake_page_t *held_page(fake_device_t *device, uint64_t page) {
    if (page && page <= device->pages && device->page[page - 1].held)
        return &device->page[page - 1];
    fake_misuse(device, "a page that is not held");
    return NULL;
}

ac_status_t fake_page_release(void *arg, uint64_t number) {
    fake_context_t *context = arg;
    ac_status_t status = enter_late(context, FAKE_PAGE_RELEASE);
    fake_page_t *page = status == AC_OK ? held_page(context->device, number) : NULL;
    if (page) {
        page->held = false;
        settle(context->device, page);
    }
    return fake_leave(context, status);
}

ac_status_t fake_page_map(void *arg, uint64_t address, uint64_t bytes, uint64_t number) {
    fake_context_t *context = arg;
    fake_device_t *device = context->device;
    ac_status_t status = fake_enter(context, FAKE_PAGE_MAP);
    if (status == AC_BUSY)
        status = AC_OK;
    if (status != AC_OK || atomic_load(&context->dead))
        return fake_leave(context, status == AC_OK ? AC_FAILED : status);
    fake_page_t *page = held_page(device, number);
    fake_unit_t *unit = units_at(device, address, bytes);
    if (!page || !unit)
        return fake_leave(context, AC_FAILED);
    if (bytes != page->bytes || page->mapped)
        fake_misuse(device, "a page mapped in part, or twice");
    for (uint64_t i = 0; i < units_of(bytes); i++) {
        if (unit[i].page)
            fake_misuse(device, "mapped where something is mapped");
        unit[i] = (fake_unit_t){.page = (uint32_t)number, .first = i == 0};
    }
    page->mapped++;
    device->live_mappings++;
    return fake_leave(context, AC_OK);
}

/* Returns true if the units are whole adjacent pages; reports a misuse if not. */
static bool whole(fake_device_t *device, const fake_unit_t *unit, uint64_t count) {
    for (uint64_t i = 0; unit && i < count;) {
        uint64_t span = unit[i].page ? units_of(device->page[unit[i].page - 1].bytes) : 0;
        if (!span || !unit[i].first || span > count - i) {
            fake_misuse(device, "not whole pages side by side");
            return false;
        }
        i += span;
    }
    return unit != NULL;
}

ac_status_t fake_pages_allow(void *arg, uint64_t address, uint64_t bytes) {
    fake_context_t *context = arg;
    ac_status_t status = fake_enter(context, FAKE_PAGES_ALLOW);
    if (status == AC_BUSY)
        status = AC_OK;
    if (status != AC_OK || atomic_load(&context->dead))
        return fake_leave(context, status == AC_OK ? AC_FAILED : status);
    fake_unit_t *unit = units_at(context->device, address, bytes);
    if (!whole(context->device, unit, units_of(bytes)))
        return fake_leave(context, AC_FAILED);
    for (uint64_t i = 0; i < units_of(bytes); i++) {
        unit[i].allowed = true;
        unit[i].peers = context->device->peers;
    }
    return fake_leave(context, AC_OK);
}

static void forget_fills(fake_device_t *device, uint64_t address, uint64_t bytes) {
    unsigned kept = 0;
    for (unsigned i = 0; i < device->fills; i++)
        if (device->fill[i].address < address || device->fill[i].address >= address + bytes)
            device->fill[kept++] = device->fill[i];
    device->fills = kept;
}

ac_status_t fake_pages_unmap(void *arg, uint64_t address, uint64_t bytes) {
    fake_context_t *context = arg;
    fake_device_t *device = context->device;
    ac_status_t status = fake_enter(context, FAKE_PAGES_UNMAP);
    if (status != AC_OK && !atomic_load(&context->dead))
        return fake_leave(context, status);
    fake_unit_t *unit = units_at(device, address, bytes);
    if (!whole(device, unit, units_of(bytes)))
        return fake_leave(context, AC_FAILED);
    if (device->freeing && !atomic_load(&context->dead))
        device->freeing(device->arg, address, bytes);
    forget_fills(device, address, bytes);
    for (uint64_t i = 0; i < units_of(bytes); i++) {
        fake_page_t *page = &device->page[unit[i].page - 1];
        if (unit[i].first) {
            page->mapped--;
            device->live_mappings--;
            settle(device, page);
        }
        unit[i] = (fake_unit_t){0};
    }
    return fake_leave(context, AC_OK);
}

bool fake_fills_over(void *arg) {
    const fake_context_t *context = arg;
    return !context->device->fill_late;
}

ac_status_t fake_memory_fill(void *arg, uint64_t address, uint64_t bytes, uint8_t byte) {
    fake_context_t *context = arg;
    fake_device_t *device = context->device;
    ac_status_t status = fake_enter(context, FAKE_FILL);
    if (status == AC_OK && device->fill_late)
        status = AC_BUSY;
    if (status == AC_OK && !fake_usable(device, address, bytes))
        fake_misuse(device, "memory filled that is not there");
    if (status == AC_OK && device->fills < FAKE_FILLS) {
        device->fill[device->fills].address = address;
        device->fill[device->fills].bytes = bytes;
        device->fill[device->fills++].byte = byte;
    }
    return fake_leave(context, status);
}

ac_status_t fake_memory_differs(void *arg, uint64_t address, uint64_t bytes, uint8_t byte,
                                uint64_t *first) {
    fake_context_t *context = arg;
    fake_device_t *device = context->device;
    ac_status_t status = fake_enter(context, FAKE_DIFFERS);
    if (status == AC_OK && !fake_usable(device, address, bytes))
        fake_misuse(device, "memory read that is not there");
    *first = bytes;
    for (unsigned i = 0; i < device->fills; i++)
        if (device->fill[i].address == address && device->fill[i].byte != byte)
            *first = 0;
    return fake_leave(context, status);
}

bool fake_usable(const fake_device_t *device, uint64_t address, uint64_t size) {
    for (int i = 0; i < FAKE_RESERVED; i++) {
        const fake_reserved_t *r = &device->reserved[i];
        if (!r->size || address < r->address || address + size > r->address + r->size)
            continue;
        uint64_t end = units_of(address + size - 1 - r->address);
        for (uint64_t at = units_of(address - r->address); at <= end; at++)
            if (!r->unit[at].allowed)
                return false;
        return true;
    }
    for (unsigned i = 0; i < device->count; i++)
        if (address >= device->range[i].address &&
            address + size <= device->range[i].address + device->range[i].size)
            return true;
    return false;
}

bool fake_reachable(const fake_device_t *device) {
    for (int i = 0; i < FAKE_RESERVED; i++) {
        const fake_reserved_t *r = &device->reserved[i];
        for (uint64_t at = 0; at < units_of(r->size); at++)
            if (r->unit[at].allowed && r->unit[at].peers != device->peers)
                return false;
    }
    return true;
}

void fake_device_close(fake_device_t *device) {
    for (int i = 0; i < FAKE_RESERVED; i++)
        free(device->reserved[i].unit);
    free(device->page);
    device->page = NULL;
}
