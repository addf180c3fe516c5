/* The frame of the cases of memory pools: usage: pools CASE (pools.h). */
#include "pools.h"

bool served;
CUcontext context;
static CUfunction kernel;

long long passed(const char *reason) {
    char name[64];
    snprintf(name, sizeof name, reason ? "passed_async_%s" : "passed_async", reason);
    return test_figure(name);
}

long long taken(void) {
    return test_figure("async_allocs");
}

void passed_only(const char *reason, long long count, int line) {
    static const char *const all[] = {NULL,    "capture", "context",  "exportable", "kind",
                                      "reuse", "access",  "disabled", "limit",      "unknown"};
    enum { REASONS = sizeof all / sizeof *all };
    static long long before[REASONS];
    for (int i = 0; served && i < REASONS; i++) {
        long long now = passed(all[i]), more = now - before[i];
        bool meant = !all[i] || (reason && !strcmp(all[i], reason));
        before[i] = now;
        if (more != (meant ? count : 0))
            test_stop(TEST_WRONG, "line %d: %lld requests passed, %s", line, more,
                      all[i] ? all[i] : "in all");
    }
}

CUmemoryPool pool_with(CUmemAllocationHandleType types, size_t most, unsigned short usage,
                       int device) {
    CUmemoryPool pool;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .handleTypes = types,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
                            .maxSize = most,
                            .usage = usage};
    MUST(cuMemPoolCreate(&pool, &props));
    return pool;
}

CUmemoryPool default_pool(int device) {
    CUmemoryPool pool;
    MUST(cuDeviceGetDefaultMemPool(&pool, device));
    return pool;
}

CUdeviceptr take(size_t bytes, CUmemoryPool pool, CUstream stream) {
    CUdeviceptr memory;
    if (pool)
        MUST(cuMemAllocFromPoolAsync(&memory, bytes, pool, stream));
    else
        MUST(cuMemAllocAsync(&memory, bytes, stream));
    return memory;
}

void give(CUdeviceptr memory, CUstream stream) {
    MUST(cuMemFreeAsync(memory, stream));
}

cuuint64_t figure(CUmemoryPool pool, CUmemPool_attribute attribute) {
    cuuint64_t value = 0;
    MUST(cuMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

void set_figure(CUmemoryPool pool, CUmemPool_attribute attribute, cuuint64_t value) {
    MUST(cuMemPoolSetAttribute(pool, attribute, &value));
}

void set_switch(CUmemoryPool pool, CUmemPool_attribute attribute, int on) {
    MUST(cuMemPoolSetAttribute(pool, attribute, &on));
}

CUmemoryPool pool_of(CUdeviceptr memory) {
    CUmemoryPool pool = NULL;
    MUST(cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, memory));
    return pool;
}

void use(CUdeviceptr memory, CUstream stream) {
    void *params[] = {&memory};
    MUST(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

int main(int argc, char **argv) {
    static const struct {
        const case_t *cases;
        const size_t *count;
    } tables[] = {{serving, &serving_count},
                  {reasons, &reasons_count},
                  {sharing, &sharing_count},
                  {multicast, &multicast_count}};
    static const unsigned short sizes[] = {8};
    static const simcuda_access_t access = {0, -1, 64, 1};
    unsigned long long (*reports)(void);
    if (!test_find("simcuda_race_reports", &reports))
        return TEST_SKIPPED;
    served = test_library_is_here();
    test_title = argc > 1 ? argv[1] : "";
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (size_t i = 0; i < *tables[t].count; i++) {
            if (strcmp(test_title, tables[t].cases[i].name) != 0)
                continue;
            context = test_device(0);
            kernel = test_kernel(&(simcuda_kernel_t){"touch", NULL, 20000, 1, sizes, 1, &access});
            tables[t].cases[i].run();
            MUST(cuCtxSynchronize());
            EXPECT(reports() == 0);
            return TEST_GOOD;
        }
    return TEST_USAGE;
}
