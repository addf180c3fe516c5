/* A program that finds the driver by itself.  usage: lookup MODE */
#include "reach.h"

static void *library;
static cuGetProcAddress_v2_fn *get2;
static cuGetProcAddress_fn *get1;

static void *named(const char *name) {
    return look("dlsym", library, name, dlsym);
}

static void *asked(const char *name, int version, cuuint64_t flags) {
    char label[160];
    void *found = NULL;
    CUdriverProcAddressQueryResult status = 99;
    unsigned result =
        get2 ? get2(name, &found, version, flags, &status) : get1(name, &found, version, flags);
    snprintf(label, sizeof(label), "%s@%d/%llu = %u status %u", name, version,
             (unsigned long long)flags, result, status);
    say(label, found);
    return found;
}

static int use_named(void) {
    driver_t driver = {FUNCTION(cuInit_fn, named("cuInit")),
                       FUNCTION(cuDevicePrimaryCtxRetain_fn, named("cuDevicePrimaryCtxRetain")),
                       FUNCTION(cuCtxSetCurrent_fn, named("cuCtxSetCurrent")),
                       FUNCTION(cuMemAlloc_v2_fn, named("cuMemAlloc_v2")),
                       FUNCTION(cuMemFree_v2_fn, named("cuMemFree_v2"))};
    return exercise(&driver);
}

static int use_asked(cuuint64_t flags) {
    driver_t driver = {
        FUNCTION(cuInit_fn, asked("cuInit", 2000, flags)),
        FUNCTION(cuDevicePrimaryCtxRetain_fn, asked("cuDevicePrimaryCtxRetain", 7000, flags)),
        FUNCTION(cuCtxSetCurrent_fn, asked("cuCtxSetCurrent", 4000, flags)),
        FUNCTION(cuMemAlloc_v2_fn, asked("cuMemAlloc", 3020, flags)),
        FUNCTION(cuMemFree_v2_fn, asked("cuMemFree", 3020, flags))};
    return exercise(&driver);
}

static int by_dlsym(void) {
    static const char *const names[] = {"cuMemAlloc",
                                        "cuMemFree",
                                        "cuMemAllocAsync",
                                        "cuMemAllocAsync_ptsz",
                                        "cuLaunchKernel",
                                        "cuLaunchKernel_ptsz",
                                        "cuDeviceGetCount",
                                        "cuGetExportTable",
                                        "cuGetProcAddress",
                                        "cuGetProcAddress_v2",
                                        "cuMemAlloc_v9",
                                        "cuMem",
                                        "cudaMalloc",
                                        "dlsym",
                                        "getpid"};
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        named(names[i]);
    return use_named();
}

static int by_suffixed_names(void) {
    named("cuGetProcAddress");
    named("cuGetProcAddress_v2");
    named("cuMemFreeAsync_ptsz");
    named("cuMemAllocPitch_v2");
    return use_named();
}

/* "cuGetProcAddress" asked for through itself, again and again. */
static int through_itself(void) {
    for (int i = 0; i < 3; i++)
        get2 = FUNCTION(cuGetProcAddress_v2_fn, asked("cuGetProcAddress", 12000, 0));
    get1 = FUNCTION(cuGetProcAddress_fn, asked("cuGetProcAddress", 11030, 0));
    asked("cuMemAlloc", 3020, 0);
    get2 = NULL;
    get2 = FUNCTION(cuGetProcAddress_v2_fn, asked("cuGetProcAddress", 12000, 0));
    return use_asked(0);
}

static int all_flags(void) {
    for (cuuint64_t flags = 0; flags < 5; flags++) {
        asked("cuMemAllocAsync", 11020, flags);
        asked("cuMemFreeAsync", 11020, flags);
        asked("cuMemcpy", 4000, flags);
        asked("cuMemcpy", 7000, flags);
        asked("cuLaunchKernel", 7000, flags);
        asked("cuMemAlloc", 3020, flags);
    }
    return use_asked(CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
}

static int all_versions(void) {
    static const char *const names[] = {"cuMemAlloc",
                                        "cuMemFree",
                                        "cuMemGetInfo",
                                        "cuCtxSynchronize",
                                        "cuDevicePrimaryCtxRelease",
                                        "cuCtxCreate",
                                        "cuGetProcAddress",
                                        "cuStreamBeginCapture"};
    static const int versions[] = {0,     1000,  2000,  3019,  3020,  7000,  10000, 10010,
                                   11000, 11030, 11040, 11999, 12000, 12050, 13000, 99000};
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        for (unsigned j = 0; j < sizeof(versions) / sizeof(versions[0]); j++)
            asked(names[i], versions[j], 0);
    return use_asked(0);
}

static int bad_arguments(void) {
    void *found = NULL;
    CUdriverProcAddressQueryResult status = 99;
    printf("NULL status: %u\n", get2("cuMemAlloc", &found, 3020, 0, NULL));
    say("cuMemAlloc", found);
    printf("unknown, NULL status: %u\n", get2("cuNothing", &found, 12000, 0, NULL));
    printf("empty: %u\n", get2("", &found, 0, 0, &status));
    printf("NULL name: %u\n", get2(NULL, &found, 12000, 0, &status));
    printf("NULL function: %u\n", get2("cuMemAlloc", NULL, 12000, 0, &status));
    printf("unknown flag: %u\n", get2("cuMemAlloc", &found, 12000, 1 << 20, &status));
    asked("cuMemAlloc", 1000, 0);
    asked("cuMemAlloc_v2", 12000, 0);
    return use_asked(0);
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    int flags = !strcmp(mode, "deepbind") ? RTLD_NOW | RTLD_DEEPBIND : RTLD_NOW;
    library = dlopen("libcuda.so.1", flags);
    if (!library) {
        printf("no driver: %s\n", dlerror());
        return 1;
    }
    if (!strcmp(mode, "dlsym") || !strcmp(mode, "deepbind"))
        return by_dlsym();
    if (!strcmp(mode, "suffixed"))
        return by_suffixed_names();
    get1 = FUNCTION(cuGetProcAddress_fn, named("cuGetProcAddress"));
    if (!strcmp(mode, "v1"))
        return use_asked(0);
    get2 = FUNCTION(cuGetProcAddress_v2_fn, named("cuGetProcAddress_v2"));
    if (!strcmp(mode, "v2"))
        return use_asked(0);
    if (!strcmp(mode, "self"))
        return through_itself();
    if (!strcmp(mode, "flags"))
        return all_flags();
    if (!strcmp(mode, "versions"))
        return all_versions();
    if (!strcmp(mode, "arguments"))
        return bad_arguments();
    return 2;
}
