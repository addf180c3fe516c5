/* The current context changes in a way that the library does not see, after the program has
 * looked a function up that can do so.  Memory must come from the device that is current. */
#include "reach.h"

int cudaMalloc(void **pointer, size_t bytes);
int cudaFree(void *pointer);
void *raw_function(void *handle, const char *name);

static void *driver;

static int device_of(CUdeviceptr pointer) {
    int device = -1;
    cuPointerGetAttribute_fn *attribute =
        FUNCTION(cuPointerGetAttribute_fn, dlsym(driver, "cuPointerGetAttribute"));
    attribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer);
    return device;
}

/* A call of the runtime comes first and last: it may be served by what the one before proved. */
static int allocate(const char *when, cuMemAlloc_v2_fn *alloc) {
    void *a = NULL, *c = NULL;
    CUdeviceptr b = 0;
    int failed = cudaMalloc(&a, 1000) || alloc(&b, 1000) || cudaMalloc(&c, 1000);
    printf("%s: devices %d, %d and %d\n", when, device_of((CUdeviceptr)a), device_of(b),
           device_of((CUdeviceptr)c));
    return failed;
}

int main(void) {
    void *pointer = NULL;
    CUcontext context[2] = {NULL, NULL};
    if (cudaMalloc(&pointer, 1000) || cudaFree(pointer))
        return 1;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    cuMemAlloc_v2_fn *alloc = FUNCTION(cuMemAlloc_v2_fn, dlsym(driver, "cuMemAlloc_v2"));
    cuDevicePrimaryCtxRetain_fn *retain =
        FUNCTION(cuDevicePrimaryCtxRetain_fn, dlsym(driver, "cuDevicePrimaryCtxRetain"));
    cuCtxSetCurrent_fn *change =
        FUNCTION(cuCtxSetCurrent_fn, raw_function(driver, "cuCtxSetCurrent"));
    for (int device = 0; device < 2; device++)
        if (retain(&context[device], device))
            return 1;
    dlsym(RTLD_NEXT, "cuGLCtxCreate");
    int failed = allocate("before", alloc);
    failed |= change(context[1]) || allocate("on the other", alloc);
    failed |= change(context[0]) || allocate("back", alloc);
    return failed;
}
