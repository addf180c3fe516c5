/* Which module asks for memory (modules.h). */
#include "intercept/modules.h"

#include "allocator/allocator.h"
#include "intercept/callers.h"
#include "intercept/objects.h"
#include "intercept/process.h"
#include "intercept/recording.h"

static ac_callers_t callers;
_Static_assert(AC_MODULES <= 1 << AC_CALLERS_BITS, "callers have no room for a module's number");

unsigned ac_module_of(const void *caller) {
    uint64_t word = ac_callers_word(caller);
    unsigned number;
    if (ac_callers_find(&callers, word, &number))
        return number;
    ac_object_t object = ac_object_of(caller);
    if (!object.dynamic)
        number = AC_MODULE_UNKNOWN;
    else if (!ac_live_module(object.path ? object.path : "", &number))
        return AC_MODULE_UNKNOWN; /* another thread is about to name one */
    ac_callers_remember(&callers, word, number);
    return number;
}

void ac_asking_end(const ac_asking_t *asking, const void *pointer) {
    uint64_t address = (uint64_t)(uintptr_t)pointer;
    if (asking->thread) {
        asking->thread->asks_for = asking->before;
        asking->thread->asks_from = asking->from_before;
    } else if (pointer && atomic_load(&ac_state) == AC_STATE_ACTIVE) {
        ac_block_attribute(address, ac_module_of(asking->caller));
        if (atomic_load_explicit(&ac_recording, memory_order_relaxed))
            ac_record_asked(address, asking->caller);
    }
}
