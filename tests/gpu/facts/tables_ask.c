/* gpu_tables: makes a library ask the driver for its private tables (tables.py).
 *
 *   gpu_tables self     asks in two ways, for two tables that no driver has
 *   gpu_tables optix    the ray tracing library of the driver makes a context
 *   gpu_tables nvenc    the video encoder of the driver opens a session
 *
 * This file declares only the parts of optix and nvenc that the first calls need.  Exit status: 0
 * done, 1 a call failed, 77 the library is missing. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "gpu.h"

static void *library_of(const char *name) {
    void *library = dlopen(name, RTLD_NOW);
    if (!library)
        fprintf(stderr, "%s is not on this machine\n", name);
    return library;
}

static int ask_self(void) {
    const void *table;
    void *found = NULL;
    CUuuid first = {.bytes = "first unknown id"}, second = {.bytes = "second unknown."};
    if (!gpu_load())
        return 77;
    CUresult listed = GPU_HAS(cuGetProcAddress_v2)
                          ? cu.cuGetProcAddress_v2("cuGetExportTable", &found, 12000, 0, NULL)
                          : cu.cuGetProcAddress("cuGetExportTable", &found, 11030, 0);
    cuGetExportTable_fn *function;
    memcpy(&function, &found, sizeof function);
    if (listed || !function)
        return 1;
    return !(cu.cuGetExportTable(&table, &first) && function(&table, &second));
}

/* The interface version decides the size of the function table.  In all versions the third function
 * makes a context. */
static int ask_optix(void) {
    enum { FEWEST = 30, MOST = 80, CREATE = 2 };
    static const int versions[] = {118, 105, 93, 87, 84, 68, 60, 55, 47, 41};
    void *table[MOST] = {NULL}, *library = library_of("libnvoptix.so.1");
    int (*query)(int, unsigned, void *, const void **, void *, size_t);
    int (*create)(CUcontext, const void *, void **);
    if (!library || !gpu_open())
        return 77;
    void *found = dlsym(library, "optixQueryFunctionTable"), *context = NULL;
    memcpy(&query, &found, sizeof query);
    for (unsigned i = 0; found && i < sizeof versions / sizeof *versions; i++)
        for (size_t n = FEWEST; n < MOST; n++)
            if (query(versions[i], 0, NULL, NULL, table, n * sizeof *table) == 0) {
                memcpy(&create, &table[CREATE], sizeof create);
                return create(gpu.primary, NULL, &context) != 0;
            }
    return 1;
}

static int ask_nvenc(void) {
    enum { OPEN = 29, CUDA = 1 };
    struct {
        uint32_t version, reserved;
        void *function[512];
    } list = {0};
    struct {
        uint32_t version, type;
        void *device, *reserved;
        uint32_t api;
        uint32_t rest[512];
    } session = {0};
    uint32_t newest = 0;
    uint32_t (*ask)(uint32_t *);
    int (*make)(void *), (*begin)(void *, void **);
    void *library = library_of("libnvidia-encode.so.1"), *encoder = NULL;
    if (!library || !gpu_open())
        return 77;
    void *found = dlsym(library, "NvEncodeAPIGetMaxSupportedVersion");
    memcpy(&ask, &found, sizeof ask);
    void *maker = dlsym(library, "NvEncodeAPICreateInstance");
    memcpy(&make, &maker, sizeof make);
    if (!found || !maker || ask(&newest))
        return 1;
    uint32_t api = newest >> 4 | (newest & 0xf) << 24, mark = api | 7u << 28;
    list.version = mark | 2u << 16;
    if (make(&list) || !list.function[OPEN])
        return 1;
    session.version = mark | 1u << 16;
    session.type = CUDA;
    session.device = gpu.primary;
    session.api = api;
    memcpy(&begin, &list.function[OPEN], sizeof begin);
    return begin(&session, &encoder) != 0;
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "self"))
        return ask_self();
    if (argc == 2 && !strcmp(argv[1], "optix"))
        return ask_optix();
    if (argc == 2 && !strcmp(argv[1], "nvenc"))
        return ask_nvenc();
    fprintf(stderr, "usage: gpu_tables self|optix|nvenc\n");
    return 2;
}
