/* Numbers of live objects, for tests that look for leaks.  live.def lists the kinds; the file that
 * owns the objects counts them. */
#include <string.h>

#include "state.h"

#define EXPORT __attribute__((visibility("default")))

static const struct {
    const char *kind;
    uint64_t (*count)(void);
} kinds[] = {
#define SIM_LIVE(kind, doc) {#kind, sim_live_##kind},
#include "live.def"
#undef SIM_LIVE
};

EXPORT unsigned long long simcuda_live(const char *kind) {
    unsigned long long count = ~0ull;
    sim_config_ensure();
    if (!kind || atomic_load(&sim_gate) & (SIM_GATE_FORKED | SIM_GATE_EXITING))
        return count;
    sim_lock();
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].kind, kind))
            count = kinds[i].count();
    sim_unlock();
    return count;
}

EXPORT const char *simcuda_live_kind(size_t at) {
    return at < sizeof kinds / sizeof *kinds ? kinds[at].kind : NULL;
}
