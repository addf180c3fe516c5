/* Facts 1 and 2: compares the answers of cuGetProcAddress with the exported symbols and with
 * cuda_functions.def, the table that the library and the simulated driver share. */
#include "facts.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef enum { LEGACY, PTDS } stream_mode_t;

static const struct {
    const char *symbol, *name;
    int since;
    stream_mode_t mode;
} rows[] = {
#define CU_FN(symbol, name, since, mode, params, args) {#symbol, #name, since, mode},
#include "device/cuda_functions.def"
#undef CU_FN
};
enum { ROWS = sizeof rows / sizeof *rows, SHOWN = 6, TEXT = 1000 };

static const struct {
    const char *name;
    int version;
    cuuint64_t flags;
    const char *answer;
} lookups[] = {
    {"", 0, 0, ""}, /* the runtime's probe */
#define RT_LOOKUP(symbol, name, version, flags) {#name, version, flags, #symbol},
#include "cudart/lookups.def"
#undef RT_LOOKUP
};
enum { LOOKUPS = sizeof lookups / sizeof *lookups };

/* Number of differences, and the first SHOWN of them in words. */
typedef struct {
    int asked, differ;
    char text[TEXT];
} tally_t;

REPORT_PRINTF(2)
static void differs(tally_t *tally, const char *format, ...) {
    size_t used = strlen(tally->text);
    va_list arguments;
    if (tally->differ++ >= SHOWN)
        return;
    va_start(arguments, format);
    vsnprintf(tally->text + used, sizeof tally->text - used, format, arguments);
    va_end(arguments);
}

static void *exported(const char *symbol) {
    return dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), symbol);
}

/* Returns the driver's answer; NULL if it does not find the function. */
static void *look_up(const char *name, int version, cuuint64_t flags) {
    void *found = NULL;
    CUresult result = cu.cuGetProcAddress_v2
                          ? cu.cuGetProcAddress_v2(name, &found, version, flags, NULL)
                          : cu.cuGetProcAddress(name, &found, version, flags);
    return result ? NULL : found;
}

static cuuint64_t flag_of(stream_mode_t mode) {
    return mode == PTDS ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                        : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
}

static bool there_are_lookups(claim_t claim) {
    return fact_needs(claim, GPU_HAS(cuGetProcAddress) || GPU_HAS(cuGetProcAddress_v2),
                      "cuGetProcAddress, which came with CUDA 11.3");
}

void fact_1(void) {
    tally_t tally = {0};
    if (!there_are_lookups(CLAIM_1_addresses_equal_exports))
        return;
    for (int i = 0; i < ROWS; i++) {
        void *address = exported(rows[i].symbol);
        if (!address || rows[i].since > gpu.version)
            continue;
        void *found = look_up(rows[i].name, rows[i].since, flag_of(rows[i].mode));
        tally.asked++;
        if (found != address)
            differs(&tally, " %s: %p for %s %d, exported %p;", rows[i].symbol, found,
                    rows[i].name, rows[i].since, address);
    }
    fact_answer(CLAIM_1_addresses_equal_exports, tally.asked && !tally.differ,
                "%d of %d symbols differ.%s", tally.differ, tally.asked, tally.text);
}

/* Returns the row that should answer; ROWS if there is none. */
static int row_of(const char *name, int version, stream_mode_t mode) {
    int best = ROWS;
    for (int i = 0; i < ROWS; i++)
        if (!strcmp(rows[i].name, name) && rows[i].mode == mode && rows[i].since <= version &&
            rows[i].since <= gpu.version && (best == ROWS || rows[i].since > rows[best].since))
            best = i;
    return best;
}

static void *expected(const char *name, int version, stream_mode_t mode) {
    int row = row_of(name, version, mode);
    if (row == ROWS && mode == PTDS)
        row = row_of(name, version, LEGACY);
    return row == ROWS ? NULL : exported(rows[row].symbol);
}

/* Some functions of the runtime's list are newer than an older driver. */
static bool is_newer(int i) {
    return lookups[i].version > gpu.version ||
           (*lookups[i].answer && !exported(lookups[i].answer));
}

static void runtime_lookups(void) {
    tally_t tally = {0};
    int newer = 0;
    for (int i = 0; i < LOOKUPS; i++) {
        if (is_newer(i)) {
            newer++;
            continue;
        }
        void *found = look_up(lookups[i].name, lookups[i].version, lookups[i].flags);
        void *wanted = *lookups[i].answer ? exported(lookups[i].answer) : NULL;
        tally.asked++;
        if (found != wanted)
            differs(&tally, " \"%s\" %d flags %d: %p, %s is %p;", lookups[i].name,
                    lookups[i].version, (int)lookups[i].flags, found,
                    *lookups[i].answer ? lookups[i].answer : "nothing", wanted);
    }
    fact_answer(CLAIM_2_runtime_lookups, tally.asked && !tally.differ,
                "%d of %d lookups differ, %d more are newer than the driver.%s", tally.differ,
                tally.asked, newer, tally.text);
}

static void least_versions(void) {
    tally_t tally = {0};
    for (int i = 0; i < ROWS; i++) {
        if (rows[i].since > gpu.version || !exported(rows[i].symbol))
            continue;
        for (int version = rows[i].since - 1; version <= rows[i].since; version++) {
            void *found = look_up(rows[i].name, version, flag_of(rows[i].mode));
            void *wanted = expected(rows[i].name, version, rows[i].mode);
            tally.asked++;
            if (found != wanted)
                differs(&tally, " %s %d: %p, table %p (%s);", rows[i].name, version, found,
                        wanted, rows[i].symbol);
        }
    }
    fact_answer(CLAIM_2_least_versions, tally.asked && !tally.differ,
                "%d of %d answers differ.%s", tally.differ, tally.asked, tally.text);
}

static void per_thread_flag(void) {
    tally_t tally = {0};
    for (int i = 0; i < ROWS; i++) {
        int version = gpu.version;
        if (rows[i].since > version || !exported(rows[i].symbol))
            continue;
        for (cuuint64_t flags = 0; flags <= 2; flags++) {
            stream_mode_t mode =
                flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM ? PTDS : LEGACY;
            void *found = look_up(rows[i].name, version, flags);
            void *wanted = expected(rows[i].name, version, mode);
            /* A driver that is newer than the table may have a newer form of a function. */
            if (!found && !wanted)
                continue;
            tally.asked++;
            Dl_info where;
            bool twin = found && dladdr(found, &where) && where.dli_sname &&
                        (strstr(where.dli_sname, "_ptsz") || strstr(where.dli_sname, "_ptds"));
            bool wants_twin = mode == PTDS && row_of(rows[i].name, version, PTDS) != ROWS;
            if (found != wanted && (gpu.version <= 13000 || twin != wants_twin))
                differs(&tally, " %s flags %d: %p, table %p;", rows[i].name, (int)flags, found,
                        wanted);
        }
    }
    fact_answer(CLAIM_2_per_thread_flag, tally.asked && !tally.differ,
                "%d of %d answers differ.%s", tally.differ, tally.asked, tally.text);
}

void fact_2(void) {
    if (!there_are_lookups(CLAIM_2_runtime_lookups)) {
        there_are_lookups(CLAIM_2_least_versions);
        there_are_lookups(CLAIM_2_per_thread_flag);
        return;
    }
    runtime_lookups();
    least_versions();
    per_thread_flag();
}
