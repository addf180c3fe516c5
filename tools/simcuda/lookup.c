/* cuGetProcAddress, both versions: symbols by (name, version, stream mode).  No lock; the
 * index is built once. */
#include <stdlib.h>
#include <string.h>

#include "state.h"

static unsigned short order[SIM_FN_COUNT];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int by_name(const void *a, const void *b) {
    return strcmp(sim_fn_name(*(const unsigned short *)a),
                  sim_fn_name(*(const unsigned short *)b));
}

static void build(void) {
    for (unsigned i = 0; i < SIM_FN_COUNT; i++)
        order[i] = (unsigned short)i;
    qsort(order, SIM_FN_COUNT, sizeof *order, by_name);
}

static unsigned first_row(const char *name) {
    unsigned low = 0, high = SIM_FN_COUNT;
    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (strcmp(sim_fn_name(order[middle]), name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Finds the row of this name and mode with the highest `since` that fits.  `known` becomes true if
 * the driver has a row of that name in any version. */
static sim_fn_t newest(const char *name, int version, bool per_thread, bool *known) {
    sim_fn_t best = SIM_FN_COUNT;
    for (unsigned i = first_row(name); i < SIM_FN_COUNT; i++) {
        sim_fn_t fn = order[i];
        if (strcmp(sim_fn_name(fn), name) != 0)
            break;
        if ((uint64_t)sim_fn_since(fn) > sim_config.driver)
            continue;
        *known = true;
        if (sim_fn_per_thread(fn) != per_thread || sim_fn_since(fn) > version)
            continue;
        if (best == SIM_FN_COUNT || sim_fn_since(fn) > sim_fn_since(best))
            best = fn;
    }
    return best;
}

/* Functions and tables that a test added. */
enum { OFFERS = 8 };
typedef struct {
    const char *name;
    char id[16];
    const void *what;
} offer_t;
static offer_t offers[OFFERS];
static _Atomic unsigned offer_count;
static pthread_mutex_t offer_lock = PTHREAD_MUTEX_INITIALIZER;

static int offer(const offer_t *made) {
    pthread_mutex_lock(&offer_lock);
    unsigned at = offer_count;
    if (at < OFFERS && made->what) {
        offers[at] = *made;
        offer_count = at + 1;
    }
    pthread_mutex_unlock(&offer_lock);
    return at < OFFERS && made->what ? 0 : -1;
}

__attribute__((visibility("default"))) int simcuda_offer_function(const char *name,
                                                                  void *function) {
    return name ? offer(&(offer_t){.name = name, .what = function}) : -1;
}

__attribute__((visibility("default"))) int simcuda_offer_table(const void *id,
                                                               const void *table) {
    offer_t made = {.what = table};
    if (id)
        memcpy(made.id, id, sizeof made.id);
    return id ? offer(&made) : -1;
}

const void *sim_offered_table(const void *id) {
    for (unsigned i = 0; i < offer_count; i++)
        if (!offers[i].name && !memcmp(offers[i].id, id, sizeof offers[i].id))
            return offers[i].what;
    return NULL;
}

static void *offered_function(const char *name) {
    for (unsigned i = 0; i < offer_count; i++)
        if (offers[i].name && !strcmp(offers[i].name, name))
            return (void *)(uintptr_t)offers[i].what;
    return NULL;
}

static CUresult look_up(const char *name, void **out, int version, cuuint64_t flags,
                        CUdriverProcAddressQueryResult *status) {
    if (!name || !out || flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_once(&once, build);
    bool known = false;
    sim_fn_t fn = SIM_FN_COUNT;
    if (flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
        fn = newest(name, version, true, &known);
    if (fn == SIM_FN_COUNT)
        fn = newest(name, version, false, &known);
    if (fn == SIM_FN_COUNT && (*out = offered_function(name))) {
        if (status)
            *status = CU_GET_PROC_ADDRESS_SUCCESS;
        return CUDA_SUCCESS;
    }
    if (fn == SIM_FN_COUNT) {
        *out = NULL;
        if (status)
            *status = known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                            : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        return CUDA_ERROR_NOT_FOUND;
    }
    *out = sim_fn_address(fn);
    if (status)
        *status = CU_GET_PROC_ADDRESS_SUCCESS;
    return CUDA_SUCCESS;
}

SIM_API(cuGetProcAddress)(const char *name, void **out, int version, cuuint64_t flags) {
    return look_up(name, out, version, flags, NULL);
}

SIM_API(cuGetProcAddress_v2)
(const char *name, void **out, int version, cuuint64_t flags,
 CUdriverProcAddressQueryResult *status) {
    return look_up(name, out, version, flags, status);
}
