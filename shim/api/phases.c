/* Phases of the program: by the C API, and by the ranges of NVTX 3.
 *
 * The NVTX headers load the library that NVTX_INJECTION64_PATH names.  They call its InitializeInjectionNvtx2, which
 * enters functions into their tables; ranges call these functions from then on.  Programs contain the compiled
 * headers, so the layouts below are part of the contract.  Ranges of nvtxRangeStart belong to no thread and are no
 * phases. */
#include "api/api_int.h"

#include <wchar.h>

#include "observe/phases.h"

static const char own; /* domain of the C API */

accel_status_t accel_phase_push(const char *name) {
    if (!name || !*name)
        return ACCEL_ERROR_INVALID;
    return ac_phase_push(&own, name) < 0 ? ACCEL_ERROR_OUT_OF_MEMORY : ACCEL_OK;
}

accel_status_t accel_phase_pop(void) {
    return ac_phase_pop(&own) < 0 ? ACCEL_ERROR_INVALID : ACCEL_OK;
}

/* ------------------------------------------------------------------ NVTX */

typedef struct { /* nvtxEventAttributes_t */
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, zero;
    uint64_t payload;
    int32_t message_type;
    const void *message;
} range_t;

enum { MESSAGE_ASCII = 1, MESSAGE_WIDE, MESSAGE_REGISTERED };
enum { NO_TRACKING = -2 }; /* NVTX_NO_PUSH_POP_TRACKING */

static int push(const void *domain, const char *name) {
    int level = ac_phase_push(domain, name && *name ? name : "range");
    return level < 0 ? NO_TRACKING : level;
}

/* The first characters, without those beyond ASCII. */
static const char *narrow(char text[AC_PHASE_NAME], const wchar_t *wide) {
    unsigned length = 0;
    for (; wide && wide[length] && length < AC_PHASE_NAME - 1; length++)
        text[length] = wide[length] > 0 && wide[length] < 128 ? (char)wide[length] : '?';
    text[length] = '\0';
    return text;
}

static int domain_push(const void *domain, const range_t *range) {
    char text[AC_PHASE_NAME];
    switch (range ? range->message_type : 0) {
    case MESSAGE_ASCII:
    case MESSAGE_REGISTERED: /* as register_string gave it */
        return push(domain, range->message);
    case MESSAGE_WIDE:
        return push(domain, narrow(text, range->message));
    default:
        return push(domain, NULL);
    }
}

static int domain_pop(const void *domain) {
    int level = ac_phase_pop(domain);
    return level < 0 ? NO_TRACKING : level;
}

static int push_range(const range_t *range) {
    return domain_push(NULL, range);
}

static int push_text(const char *name) {
    return push(NULL, name);
}

static int push_wide(const wchar_t *name) {
    char text[AC_PHASE_NAME];
    return push(NULL, narrow(text, name));
}

static int pop(void) {
    return domain_pop(NULL);
}

static const void *create_domain(const void *name) {
    static _Atomic uintptr_t domains;
    (void)name;
    return (const void *)(atomic_fetch_add(&domains, 1) + 1);
}

static const char *register_string(const void *domain, const char *name) {
    (void)domain;
    return name ? ac_phase_keep(name) : NULL;
}

static const char *register_wide(const void *domain, const wchar_t *name) {
    char text[AC_PHASE_NAME];
    return register_string(domain, narrow(text, name));
}

typedef void function_t(void);
typedef struct { /* NvtxExportTableCallbacks */
    size_t size;
    int (*get)(int module, function_t ****table, unsigned *size);
} callbacks_t;

enum { EXPORT_CALLBACKS = 1, MODULE_CORE = 1, MODULE_CORE2 = 5 };

static const struct {
    unsigned module, number; /* of the function in the module's table */
    function_t *function;
} functions[] = {
    {MODULE_CORE, 8, (function_t *)push_range},        /* nvtxRangePushEx */
    {MODULE_CORE, 9, (function_t *)push_text},         /* nvtxRangePushA */
    {MODULE_CORE, 10, (function_t *)push_wide},        /* nvtxRangePushW */
    {MODULE_CORE, 11, (function_t *)pop},              /* nvtxRangePop */
    {MODULE_CORE2, 4, (function_t *)domain_push},      /* nvtxDomainRangePushEx */
    {MODULE_CORE2, 5, (function_t *)domain_pop},       /* nvtxDomainRangePop */
    {MODULE_CORE2, 10, (function_t *)register_string}, /* nvtxDomainRegisterStringA */
    {MODULE_CORE2, 11, (function_t *)register_wide},   /* nvtxDomainRegisterStringW */
    {MODULE_CORE2, 12, (function_t *)create_domain},   /* nvtxDomainCreateA */
    {MODULE_CORE2, 13, (function_t *)create_domain},   /* nvtxDomainCreateW */
};

/* Called by each copy of the headers in the process, with its tables.  Returns 1; 0: it calls nothing. */
AC_EXPORT int InitializeInjectionNvtx2(const void *(*table_of)(uint32_t table));
int InitializeInjectionNvtx2(const void *(*table_of)(uint32_t table)) {
    const callbacks_t *callbacks = table_of ? table_of(EXPORT_CALLBACKS) : NULL;
    if (!callbacks || callbacks->size < sizeof *callbacks || !callbacks->get)
        return 0;
    for (unsigned i = 0; i < sizeof functions / sizeof *functions; i++) {
        function_t ***table = NULL;
        unsigned size = 0;
        if (callbacks->get((int)functions[i].module, &table, &size) && table && functions[i].number < size &&
            table[functions[i].number])
            *table[functions[i].number] = functions[i].function;
    }
    return 1;
}
