/* The check of a block's steps (state.def), in debug and sanitizer builds. */
#include "allocator/space/block.h"

#ifdef AC_CHECKED

static const bool legal[AC_BLOCK_STATES][AC_BLOCK_STATES] = {
#define STEP(from, to, text) [AC_BLOCK_##from][AC_BLOCK_##to] = true,
#include "allocator/space/state.def"
#undef STEP
};

_Atomic bool ac_block_stepped[AC_BLOCK_STATES][AC_BLOCK_STATES];

static void stop(ac_block_state_t from, ac_block_state_t to) {
    (void)from, (void)to;
    __builtin_trap();
}

void (*ac_block_bad_step)(ac_block_state_t from, ac_block_state_t to) = stop;

void ac_block_check_step(ac_block_state_t from, ac_block_state_t to) {
    if (from >= AC_BLOCK_STATES || to >= AC_BLOCK_STATES || !legal[from][to]) {
        ac_block_bad_step(from, to);
        return;
    }
    if (!atomic_load_explicit(&ac_block_stepped[from][to], memory_order_relaxed))
        atomic_store_explicit(&ac_block_stepped[from][to], true, memory_order_relaxed);
}

#endif
