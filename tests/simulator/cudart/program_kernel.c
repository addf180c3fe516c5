/* The host function behind the kernel of program.cu, in C because the simulator's header and
 * NVIDIA's describe the same types. */
#include <dlfcn.h>
#include <string.h>

#include "simcuda.h"

typedef void *host_fn(CUdeviceptr address);
typedef int register_fn(const simcuda_kernel_t *kernel);

static host_fn *host_memory;

static void add_one(const simcuda_launch_t *launch) {
    CUdeviceptr address = 0;
    int n = 0;
    memcpy(&address, launch->params[0], sizeof address);
    memcpy(&n, launch->params[1], sizeof n);
    int *values = host_memory(address);
    for (int i = 0; i < n; i++) {
        values[i] += 1;
    }
}

/* Returns 0, or -1 if the driver is not the simulated one. */
int register_add_one(void) {
    static const unsigned short sizes[] = {8, 4};
    static const simcuda_kernel_t kernel = {.name = "add_one",
                                            .fn = add_one,
                                            .duration_ns = -1,
                                            .param_count = 2,
                                            .param_bytes = sizes};
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *add = driver != NULL ? dlsym(driver, "simcuda_register_kernel") : NULL;
    void *host = driver != NULL ? dlsym(driver, "simcuda_host") : NULL;
    register_fn *register_kernel = NULL;
    memcpy(&register_kernel, &add, sizeof add);
    memcpy(&host_memory, &host, sizeof host);
    return register_kernel != NULL && host != NULL ? register_kernel(&kernel) : -1;
}
