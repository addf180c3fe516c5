/* Reports of refused frees (wrong_free.h). */
#include "tell/wrong_free.h"

#include <inttypes.h>
#include <stdio.h>

#include "allocator/allocator.h"
#include "track/modules.h"
#include "bind/objects.h"
#include "tell/recorded_of.h"
#include "tell/unwind.h"
#include "observe/log.h"
#include "observe/module_name.h"
#include "observe/recorded.h"

/* Names the module that frees. A caller inside the library means the C API, and its own callers
 * are not known. */
static char *label_of(char text[AC_MODULE_LABEL], const void *caller) {
    unsigned module = AC_MODULE_UNKNOWN;
    if (ac_object_of(caller).dynamic != ac_object_of(&ac_live).dynamic)
        module = ac_module_of(caller);
    return ac_module_label(text, module, "a caller of accel_free, or code of no module,");
}

/* Formats the place, " at libplugin.so+0x1234"; "" if it was not recorded. */
static char *place_of(char text[AC_SITE_LABEL + 8], const char *before, uint32_t stack) {
    char label[AC_SITE_LABEL];
    ac_site_label(label, stack);
    snprintf(text, AC_SITE_LABEL + 8, "%s%s", *label ? before : "", label);
    return text;
}

static void say_inside(const ac_block_info_t *block, uint64_t address, const char *who,
                       const char *here) {
    char asked[AC_MODULE_LABEL], place[AC_SITE_LABEL + 8] = "";
    ac_recorded_t alloc;
    if (ac_recorded_alloc(block->address, &alloc))
        place_of(place, " at ", alloc.stack);
    ac_log(AC_LOG_WARNING,
           "interior free: %s freed 0x%" PRIx64 "%s, which is %" PRIu64
           " bytes into a block of %" PRIu64
           " bytes that %s asked for%s; the call returned an error, the block stays. Later "
           "ones are counted (interior_frees)",
           who, address, here, address - block->address, block->requested,
           ac_module_label(asked, block->module, "code of no known module"), place);
}

/* The record of free memory names the last module that asked for it, until the memory is joined
 * with other free memory. */
static void say_again(const ac_block_info_t *block, uint64_t address, const char *who,
                      const char *here) {
    char asked[AC_MODULE_LABEL], text[AC_MODULE_LABEL + AC_SITE_LABEL + 40] = "";
    char freed_at[AC_SITE_LABEL + 8] = "", asked_at[AC_SITE_LABEL + 8] = "";
    ac_recorded_t freed, alloc;
    if (ac_recorded_free(address, true, &freed)) {
        place_of(freed_at, " at ", freed.stack);
        if (ac_recorded_alloc(address, &alloc))
            place_of(asked_at, " at ", alloc.stack);
    }
    if (block->address == address && block->module != AC_MODULE_UNKNOWN)
        snprintf(text, sizeof text, "; %s had asked for it%s",
                 ac_module_label(asked, block->module, ""), asked_at);
    else if (*asked_at)
        snprintf(text, sizeof text, "; it was asked for%s", asked_at);
    ac_log(AC_LOG_WARNING,
           "double free: %s freed 0x%" PRIx64
           "%s, which is free already%s%s%s. The call returned an error. Later ones are counted "
           "(double_frees)",
           who, address, here, *freed_at ? ": it was freed" : "", freed_at, text);
}

void ac_wrong_free(ac_thread_t *thread, uint64_t address, const void *caller) {
    static _Atomic int said[2]; /* one flag a kind */
    ac_block_info_t block;
    char who[AC_MODULE_LABEL], here[AC_SITE_LABEL + 8] = "";
    ac_count(thread, AC_COUNT_bad_frees);
    if (ac_block_find(address, &block) != AC_OK)
        return; /* the segment was freed meanwhile */
    bool inside = block.allocated && block.address != address;
    ac_count(thread, inside ? AC_COUNT_interior_frees : AC_COUNT_double_frees);
    if (atomic_exchange(&said[inside], 1))
        return; /* printed once: the search reads the whole history */
    caller = thread && thread->frees_for ? thread->frees_for : caller;
    label_of(who, caller);
    if (thread && (ac_thread_records(thread) || ac_is_guarding())) {
        uint64_t frame = ac_unwind_frame(caller);
        place_of(here, " at ", ac_site_of(&frame, 1));
    }
    if (inside)
        say_inside(&block, address, who, here);
    else
        say_again(&block, address, who, here);
}

CUresult ac_wrong_free_private(ac_thread_t *thread, uint64_t address) {
    static _Atomic int said;
    ac_count(thread, AC_COUNT_bad_frees);
    if (!atomic_exchange(&said, 1))
        ac_log(AC_LOG_WARNING,
               "0x%" PRIx64 " is memory of a private pool, which calls of CUDA do not free: use "
               "accel_raw_delete. The call returned an error, the block stays. Later ones are "
               "counted (bad_frees)",
               address);
    return CUDA_ERROR_INVALID_VALUE;
}
