/* The calls of NVTX that the test makes, as its headers make them: by a table that the injected library fills. */
#ifndef PHASES_TABLE_H
#define PHASES_TABLE_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <wchar.h>

typedef void *nvtxDomainHandle_t;
typedef void *nvtxStringHandle_t;
typedef struct {
    uint16_t version, size;
    uint32_t category;
    int32_t colorType;
    uint32_t color;
    int32_t payloadType, reserved0;
    uint64_t payload;
    int32_t messageType;
    union {
        const char *ascii;
        const wchar_t *unicode;
        nvtxStringHandle_t registered;
    } message;
} nvtxEventAttributes_t;
enum { NVTX_VERSION = 3, NVTX_EVENT_ATTRIB_STRUCT_SIZE = sizeof(nvtxEventAttributes_t) };
enum { NVTX_MESSAGE_TYPE_ASCII = 1, NVTX_MESSAGE_TYPE_UNICODE, NVTX_MESSAGE_TYPE_REGISTERED };

typedef void nvtx_function_t(void);
static nvtx_function_t *nvtx_core[16], *nvtx_core2[16];

static int nvtx_get(int module, nvtx_function_t ****table, unsigned *size) {
    static nvtx_function_t **core[17], **core2[17];
    for (int i = 1; i < 16; i++) {
        core[i] = &nvtx_core[i];
        core2[i] = &nvtx_core2[i];
    }
    *table = module == 1 ? core : core2;
    *size = 16;
    return module == 1 || module == 5;
}

static const void *nvtx_export(uint32_t table) {
    static const struct {
        size_t size;
        int (*get)(int module, nvtx_function_t ****table, unsigned *size);
    } callbacks = {sizeof callbacks, nvtx_get};
    return table == 1 ? &callbacks : NULL;
}

static nvtx_function_t *nvtx_of(nvtx_function_t **table, int number) {
    static int begun;
    const char *path = getenv("NVTX_INJECTION64_PATH");
    void *library = !begun++ && path ? dlopen(path, RTLD_LAZY) : NULL;
    int (*begin)(const void *(*)(uint32_t)) = NULL;
    if (library)
        *(void **)&begin = dlsym(library, "InitializeInjectionNvtx2");
    if (begin && !begin(nvtx_export))
        abort();
    return table[number];
}

#define NVTX_CALL(table, number, type, none, arguments)                                                              \
    (nvtx_of(table, number) ? ((type)nvtx_of(table, number))arguments : (none))

static inline int nvtxRangePushEx(const nvtxEventAttributes_t *a) {
    return NVTX_CALL(nvtx_core, 8, int (*)(const nvtxEventAttributes_t *), -2, (a));
}
static inline int nvtxRangePushA(const char *name) {
    return NVTX_CALL(nvtx_core, 9, int (*)(const char *), -2, (name));
}
static inline int nvtxRangePushW(const wchar_t *name) {
    return NVTX_CALL(nvtx_core, 10, int (*)(const wchar_t *), -2, (name));
}
static inline int nvtxRangePop(void) {
    return NVTX_CALL(nvtx_core, 11, int (*)(void), -2, ());
}
static inline int nvtxDomainRangePushEx(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *a) {
    return NVTX_CALL(nvtx_core2, 4, int (*)(nvtxDomainHandle_t, const nvtxEventAttributes_t *), -2, (domain, a));
}
static inline int nvtxDomainRangePop(nvtxDomainHandle_t domain) {
    return NVTX_CALL(nvtx_core2, 5, int (*)(nvtxDomainHandle_t), -2, (domain));
}
static inline nvtxStringHandle_t nvtxDomainRegisterStringA(nvtxDomainHandle_t domain, const char *text) {
    return NVTX_CALL(nvtx_core2, 10, nvtxStringHandle_t (*)(nvtxDomainHandle_t, const char *), NULL, (domain, text));
}
static inline nvtxDomainHandle_t nvtxDomainCreateA(const char *name) {
    return NVTX_CALL(nvtx_core2, 12, nvtxDomainHandle_t (*)(const char *), NULL, (name));
}

#endif
