/* The fault plan: the calls that fail, and their errors.  Global lock. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state.h"

typedef struct {
    char function[96];
    uint64_t nth, seen;
    bool onward;
    bool has_code;
    CUresult code;
} fault_t;

static fault_t *plan;
static size_t plan_count;

/* Matches a name of the plan.  "cuMemAlloc" means every version and stream variant,
 * "cuMemAlloc_v2" only that symbol.  "cuMemAlloc" is a symbol, too (the 32-bit one), but people
 * expect the group. */
static bool matches(const char *function, sim_fn_t fn) {
    return !strcmp(sim_fn_name(fn), function) || !strcmp(sim_fn_symbol(fn), function);
}

static bool known(const char *function) {
    for (unsigned i = 0; i < SIM_FN_COUNT; i++)
        if (matches(function, i))
            return true;
    return false;
}

static bool parse(const char *text, fault_t *out) {
    memset(out, 0, sizeof *out);
    size_t length = strcspn(text, "@>");
    if (!text[length] || length >= sizeof out->function)
        return false;
    memcpy(out->function, text, length);
    out->onward = text[length] == '>';
    text += length + 1;
    if (out->onward && *text++ != '=')
        return false;
    char *end;
    out->nth = strtoull(text, &end, 10);
    if (end == text || !out->nth)
        return false;
    if (*end == '=') {
        text = end + 1;
        out->code = (CUresult)strtoul(text, &end, 10);
        out->has_code = true;
        if (end == text)
            return false;
    }
    return !*end && known(out->function);
}

bool sim_faults_add(const char *text) {
    char *copy = strdup(text), *rest = copy;
    bool good = copy;
    for (char *item; good && (item = strsep(&rest, ";"));) {
        fault_t fault;
        fault_t *grown = realloc(plan, (plan_count + 1) * sizeof *plan);
        good = grown && parse(item, &fault);
        if (grown)
            plan = grown;
        if (good)
            plan[plan_count++] = fault;
    }
    free(copy);
    if (plan_count)
        atomic_fetch_or(&sim_gate, SIM_GATE_FAULTS);
    return good;
}

void sim_faults_clear(void) {
    plan_count = 0;
    atomic_fetch_and(&sim_gate, ~(unsigned)SIM_GATE_FAULTS);
}

CUresult sim_fault_hit(sim_fn_t fn, unsigned traits) {
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < plan_count; i++) {
        fault_t *fault = &plan[i];
        if (!matches(fault->function, fn))
            continue;
        fault->seen++;
        if (result || (fault->onward ? fault->seen < fault->nth : fault->seen != fault->nth))
            continue;
        result = fault->has_code && !fault->code ? SIM_NOTHING
                 : fault->has_code               ? fault->code
                 : traits & SIM_ALLOCATES        ? CUDA_ERROR_OUT_OF_MEMORY
                                                 : CUDA_ERROR_UNKNOWN;
    }
    return result;
}
