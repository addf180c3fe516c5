/* Lists segments and blocks of the cache, with their streams. */
#include "api/api_int.h"

#include <stdlib.h>

static void count_item(const ac_item_t *item, void *arg) {
    ac_items_t *items = arg;
    if (items->count < items->room)
        items->item[items->count] = *item;
    items->count++;
}

bool ac_items_collect(ac_items_t *items, ac_allocator_t *allocator) {
    for (;;) {
        items->count = 0;
        ac_allocator_walk(allocator, count_item, items);
        if (items->count <= items->room)
            return true;
        free(items->item);
        items->room = items->count + items->count / 8 + 16;
        items->item = malloc(items->room * sizeof *items->item);
        if (!items->item) {
            items->room = items->count = 0;
            return false;
        }
    }
}

/* --- expandable segments by stream --- */

typedef struct {
    accel_segment_size_t *size;
    size_t count, room;
} sizes_t;

static bool add_size(sizes_t *sizes, void *stream, bool small, uint64_t bytes) {
    size_t at = 0;
    while (at < sizes->count &&
           (sizes->size[at].stream != stream || sizes->size[at].small != small))
        at++;
    if (at == sizes->room) {
        size_t room = 2 * sizes->room + 8;
        accel_segment_size_t *larger = realloc(sizes->size, room * sizeof *larger);
        if (!larger)
            return false;
        sizes->size = larger;
        sizes->room = room;
    }
    if (at == sizes->count)
        sizes->size[sizes->count++] = (accel_segment_size_t){stream, small, 0};
    sizes->size[at].bytes += bytes;
    return true;
}

/* The stream that the block's memory was asked for on; NULL where it is not known. */
static void *stream_of(const ac_item_t *block) {
    uint64_t segment;
    void *stream;
    ac_raw_t raw;
    if (block->state != AC_BLOCK_ALLOCATED)
        return NULL;
    if (ac_pool_segment_of(block->address, &segment, &stream))
        return stream;
    return ac_raw_find(block->address, &raw) && !raw.allocator ? raw.stream : NULL;
}

accel_status_t accel_get_expandable_segment_sizes(int device, accel_segment_size_t **out,
                                                  size_t *count) {
    ac_items_t items = {.item = NULL};
    sizes_t sizes = {.size = NULL};
    accel_status_t status = ac_api_need(device);
    if (status != ACCEL_OK || !out || !count)
        return status == ACCEL_OK ? ACCEL_ERROR_INVALID : status;
    ac_allocator_t *allocator = ac_device_allocator(device);
    bool told = allocator && ac_items_collect(&items, allocator);
    const ac_item_t *segment = NULL;
    for (const ac_item_t *item = items.item; told && item < items.item + items.count; item++) {
        if (item->segment)
            segment = item;
        else if (segment && segment->paged)
            told = add_size(&sizes, stream_of(item), segment->small, item->size);
    }
    free(items.item);
    if (!told) {
        free(sizes.size);
        return ACCEL_ERROR_OUT_OF_MEMORY;
    }
    *out = sizes.size;
    *count = sizes.count;
    return ACCEL_OK;
}
