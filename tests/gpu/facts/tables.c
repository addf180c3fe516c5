/* A preloaded library that logs requests for private tables of the driver.
 *
 * It appends a line "library uuid result" to the file TABLES_LOG for each cuGetExportTable.
 * Callers find this function by dlsym or by cuGetProcAddress, which they find by dlsym.  This file
 * replaces all three. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/cuda_abi.h"

#define EXPORT __attribute__((visibility("default")))

typedef void *dlsym_fn(void *, const char *);
EXPORT dlsym_fn dlsym;
EXPORT cuGetExportTable_fn cuGetExportTable;
EXPORT cuGetProcAddress_fn cuGetProcAddress;
EXPORT cuGetProcAddress_v2_fn cuGetProcAddress_v2;

static void *real_symbol(void *handle, const char *name) {
    static dlsym_fn *real;
    if (!real) {
        void *found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
        found = found ? found : dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
        memcpy(&real, &found, sizeof real);
    }
    return real ? real(handle, name) : NULL;
}

static void real_of(const char *name, void *slot) {
    void *found = real_symbol(dlopen("libcuda.so.1", RTLD_NOW), name);
    memcpy(slot, &found, sizeof found);
}

/* Appends a line with a single write, because several threads may call this. */
static void note(const CUuuid *id, CUresult result, void *caller) {
    const char *path = getenv("TABLES_LOG");
    Dl_info info = {.dli_fname = "?"};
    char line[512], uuid[33];
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
    if (fd < 0)
        return;
    dladdr(caller, &info);
    const char *slash = info.dli_fname ? strrchr(info.dli_fname, '/') : NULL;
    for (int i = 0; i < 16; i++)
        snprintf(uuid + 2 * i, 3, "%02x", (unsigned char)id->bytes[i]);
    int n = snprintf(line, sizeof line, "%.200s %s %d\n", slash ? slash + 1 : info.dli_fname,
                     uuid, (int)result);
    if (write(fd, line, (size_t)n) != n)
        fputs("gpu_tables: the log is full\n", stderr);
    close(fd);
}

CUresult cuGetExportTable(const void **a, const CUuuid *b) {
    cuGetExportTable_fn *real;
    real_of("cuGetExportTable", &real);
    CUresult result = real ? real(a, b) : CUDA_ERROR_NOT_FOUND;
    if (b)
        note(b, result, __builtin_return_address(0));
    return result;
}

/* Returns the replacement for the function of this name; NULL if there is none. */
static void *own(const char *name) {
    union {
        cuGetExportTable_fn *table;
        cuGetProcAddress_fn *address;
        cuGetProcAddress_v2_fn *address_2;
        void *any;
    } function = {NULL};
    if (!strcmp(name, "cuGetExportTable"))
        function.table = cuGetExportTable;
    else if (!strcmp(name, "cuGetProcAddress"))
        function.address = cuGetProcAddress;
    else if (!strcmp(name, "cuGetProcAddress_v2"))
        function.address_2 = cuGetProcAddress_v2;
    return function.any;
}

CUresult cuGetProcAddress(const char *a, void **b, int c, cuuint64_t d) {
    cuGetProcAddress_fn *real;
    real_of("cuGetProcAddress", &real);
    CUresult result = real ? real(a, b, c, d) : CUDA_ERROR_NOT_FOUND;
    if (!result && *b && !strcmp(a, "cuGetExportTable"))
        *b = own(a);
    return result;
}

/* A lookup of "cuGetProcAddress" gives version 1 or 2, as the CUDA version `c` demands. */
CUresult cuGetProcAddress_v2(const char *a, void **b, int c, cuuint64_t d,
                             CUdriverProcAddressQueryResult *e) {
    cuGetProcAddress_v2_fn *real;
    real_of("cuGetProcAddress_v2", &real);
    CUresult result = real ? real(a, b, c, d, e) : CUDA_ERROR_NOT_FOUND;
    if (!result && *b && !strcmp(a, "cuGetExportTable"))
        *b = own(a);
    else if (!result && *b && !strcmp(a, "cuGetProcAddress"))
        *b = own(c < 12000 ? a : "cuGetProcAddress_v2");
    return result;
}

void *dlsym(void *handle, const char *name) {
    void *found = real_symbol(handle, name), *ours = found ? own(name) : NULL;
    return ours ? ours : found;
}
