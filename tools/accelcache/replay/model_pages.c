/* Memory in pages of the modelled device: reserved addresses, physical pages, and their mappings (model.h).
 * Calls that device.h forbids are refused and remembered (cmd_model_misuse). */
#include "command.h"
#include "replay/model_int.h"

#include <stdlib.h>
#include <sys/mman.h>

static size_t page_table_size(const reserved_t *reserved) {
    return reserved->size / UNIT * sizeof *reserved->page;
}

void model_pages_free(cmd_model_t *model) {
    for (unsigned i = 0; i < model->reserves; i++)
        munmap(model->reserved[i].page, page_table_size(&model->reserved[i]));
    free(model->page);
    free(model->spare_page);
}

ac_status_t model_range_support(void *context, ac_range_support_t *support) {
    const cmd_model_t *model = context;
    *support = (ac_range_support_t){.granularity = UNIT, .memory = model->capacity};
    return AC_OK;
}

/* The range follows all earlier ones: no address of a range is ever a segment's. */
ac_status_t model_range_reserve(void *context, uint64_t bytes, uint64_t *address) {
    cmd_model_t *model = context;
    CHARGE(model, reserve, bytes);
    uint64_t start = PAGES;
    for (unsigned i = 0; i < model->reserves; i++)
        if (model->reserved[i].address + model->reserved[i].size > start)
            start = model->reserved[i].address + model->reserved[i].size;
    if (bytes > PAGES_END - start || model->reserves == MOST_RESERVED)
        return AC_OOM;
    reserved_t *reserved = &model->reserved[model->reserves];
    *reserved = (reserved_t){.address = start, .size = bytes};
    /* The table is rarely touched, so mmap gives it no memory at first. */
    reserved->page = mmap(NULL, page_table_size(reserved), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved->page == MAP_FAILED)
        return AC_FAILED;
    model->reserves++;
    *address = start;
    return AC_OK;
}

static reserved_t *reserved_at(cmd_model_t *model, uint64_t address, uint64_t bytes) {
    for (unsigned i = 0; i < model->reserves; i++) {
        reserved_t *reserved = &model->reserved[i];
        if (address >= reserved->address && bytes <= reserved->size &&
            address - reserved->address <= reserved->size - bytes && address % UNIT == 0)
            return reserved;
    }
    return NULL;
}

static uint32_t *page_at(const reserved_t *reserved, uint64_t address) {
    return &reserved->page[(address - reserved->address) / UNIT];
}

ac_status_t model_range_release(void *context, uint64_t address, uint64_t bytes) {
    cmd_model_t *model = context;
    CHARGE(model, unreserve, bytes);
    reserved_t *reserved = reserved_at(model, address, bytes);
    if (!reserved || reserved->address != address || reserved->size != bytes)
        return model_misuse(model, "released addresses that it does not have");
    for (uint64_t at = address; at < address + bytes; at += UNIT)
        if (*page_at(reserved, at))
            return model_misuse(model, "released addresses with a page");
    munmap(reserved->page, page_table_size(reserved));
    *reserved = model->reserved[--model->reserves];
    return AC_OK;
}

ac_status_t model_page_create(void *context, uint64_t bytes, uint64_t *page) {
    cmd_model_t *model = context;
    const cmd_cost_t *cost = bytes <= UNIT ? &model->costs.create_least : &model->costs.create;
    model_charge(model, CMD_CALL_create, cost, bytes, 0);
    if (bytes == 0 || bytes % UNIT)
        return model_misuse(model, "asked for a page of odd size");
    if (bytes > model->capacity - model->used)
        return AC_OOM;
    if (!model->spare_pages && model->pages + 1 >= model->page_room) {
        model->page_room = model->page_room ? model->page_room * 2 : 1024;
        model->page = cmd_resize(model->page, model->page_room * sizeof *model->page);
        model->spare_page =
            cmd_resize(model->spare_page, model->page_room * sizeof *model->spare_page);
    }
    uint64_t number =
        model->spare_pages ? model->spare_page[--model->spare_pages] : ++model->pages;
    model->page[number] = (page_t){.bytes = bytes, .held = true};
    model_take(model, bytes);
    *page = number;
    return AC_OK;
}

static page_t *page_of(cmd_model_t *model, uint64_t number) {
    bool known = number && number <= model->pages && model->page[number].bytes;
    return known ? &model->page[number] : NULL;
}

static void drop_page(cmd_model_t *model, page_t *page) {
    if (page->held || page->mapped)
        return;
    model->used -= page->bytes;
    page->bytes = 0;
    model->spare_page[model->spare_pages++] = (uint64_t)(page - model->page);
}

ac_status_t model_page_release(void *context, uint64_t number) {
    cmd_model_t *model = context;
    page_t *page = page_of(model, number);
    CHARGE(model, release, 0);
    if (!page || !page->held)
        return model_misuse(model, "released a page that it does not have");
    page->held = false;
    drop_page(model, page);
    return AC_OK;
}

ac_status_t model_page_map(void *context, uint64_t address, uint64_t bytes, uint64_t number) {
    cmd_model_t *model = context;
    page_t *page = page_of(model, number);
    reserved_t *reserved = reserved_at(model, address, bytes);
    model_charge(model, CMD_CALL_map, &model->costs.map, bytes, 1);
    if (!page || !page->held || page->bytes != bytes || !reserved)
        return model_misuse(model, "mapped what is no page, or where no range is");
    uint32_t *first = page_at(reserved, address);
    for (uint64_t i = 0; i < bytes / UNIT; i++)
        if (first[i])
            return model_misuse(model, "mapped a page over another");
    for (uint64_t i = 0; i < bytes / UNIT; i++)
        first[i] = (uint32_t)number;
    *first |= BEGINS;
    page->mapped++;
    return AC_OK;
}

/* How many whole pages lie side by side there; 0: they do not. */
static uint64_t count_pages(const reserved_t *reserved, uint64_t address, uint64_t bytes) {
    const uint32_t *first = page_at(reserved, address), *last = first + bytes / UNIT;
    uint64_t pages = 0;
    if (bytes == 0 || bytes % UNIT || !(*first & BEGINS))
        return 0;
    for (const uint32_t *at = first; at < last; at++) {
        if (!*at)
            return 0;
        pages += *at >> 31;
    }
    bool inside = address + bytes < reserved->address + reserved->size;
    return inside && *last && !(*last & BEGINS) ? 0 : pages;
}

ac_status_t model_pages_allow(void *context, uint64_t address, uint64_t bytes) {
    cmd_model_t *model = context;
    reserved_t *reserved = reserved_at(model, address, bytes);
    uint64_t pages = reserved ? count_pages(reserved, address, bytes) : 0;
    model_charge(model, CMD_CALL_allow, &model->costs.allow, bytes, pages);
    return pages ? AC_OK : model_misuse(model, "gave access to what is not mapped");
}

ac_status_t model_pages_unmap(void *context, uint64_t address, uint64_t bytes) {
    cmd_model_t *model = context;
    reserved_t *reserved = reserved_at(model, address, bytes);
    uint64_t pages = reserved ? count_pages(reserved, address, bytes) : 0;
    model_charge(model, CMD_CALL_unmap, &model->costs.unmap, bytes, pages);
    if (!pages)
        return model_misuse(model, "unmapped what is not mapped");
    for (uint64_t at = address; at < address + bytes;) {
        uint32_t *first = page_at(reserved, at);
        page_t *page = &model->page[*first & ~BEGINS];
        for (uint64_t i = 0; i < page->bytes / UNIT; i++)
            first[i] = 0;
        at += page->bytes;
        page->mapped--;
        drop_page(model, page);
    }
    return AC_OK;
}
