/* Frees that are refused (wrong_free.h). */
#include "intercept/wrong_free.h"

#include <inttypes.h>
#include <stdio.h>

#include "allocator/allocator.h"
#include "intercept/modules.h"
#include "intercept/objects.h"
#include "observe/log.h"
#include "observe/module_name.h"

/* Who frees; our own code is the C API's, whose callers are not known. */
static char *label_of(char text[AC_MODULE_LABEL], const void *caller) {
    unsigned module = AC_MODULE_UNKNOWN;
    if (ac_object_of(caller).dynamic != ac_object_of(&ac_live).dynamic)
        module = ac_module_of(caller);
    return ac_module_label(text, module, "a caller of accel_free, or code of no module,");
}

static void say_inside(const ac_block_info_t *block, uint64_t address, const char *who) {
    char asked[AC_MODULE_LABEL];
    ac_log_once(AC_LOG_WARNING,
                "interior free: %s freed 0x%" PRIx64 ", which is %" PRIu64
                " bytes into a block of %" PRIu64
                " bytes that %s asked for; the call returned an error, the block stays. Later "
                "ones are counted (interior_frees)",
                who, address, address - block->address, block->requested,
                ac_module_label(asked, block->module, "code of no known module"));
}

/* The record of memory that is free names the module that asked for it last, as long as the memory
 * was not joined with other. */
static void say_again(const ac_block_info_t *block, uint64_t address, const char *who) {
    char asked[AC_MODULE_LABEL], text[AC_MODULE_LABEL + 32] = "";
    if (block->address == address && block->module != AC_MODULE_UNKNOWN)
        snprintf(text, sizeof text, "; %s had asked for it",
                 ac_module_label(asked, block->module, ""));
    ac_log_once(AC_LOG_WARNING,
                "double free: %s freed 0x%" PRIx64
                ", which is free already%s. The call returned an error. Later ones are counted "
                "(double_frees)",
                who, address, text);
}

void ac_wrong_free(ac_thread_t *thread, uint64_t address, const void *caller) {
    ac_block_info_t block;
    char who[AC_MODULE_LABEL];
    ac_count(thread, AC_COUNT_bad_frees);
    if (ac_block_find(address, &block) != AC_OK)
        return; /* its segment went meanwhile */
    bool inside = block.allocated && block.address != address;
    ac_count(thread, inside ? AC_COUNT_interior_frees : AC_COUNT_double_frees);
    label_of(who, thread && thread->frees_for ? thread->frees_for : caller);
    if (inside)
        say_inside(&block, address, who);
    else
        say_again(&block, address, who);
}
