/* Modules, libraries and their functions: interface of module.c, library.c and launch.c. */
#ifndef SIM_MODULE_H
#define SIM_MODULE_H

#include "image.h"
#include "sim.h"

typedef struct CUfunction_handle {
    sim_object_t object;
    CUmodule module;
    const char *name;               /* interned */
    const sim_image_kernel_t *info; /* NULL: nothing known */
    simcuda_kernel_fn *symbol;      /* simcuda_kernel_<name> of the program, or NULL */
    int max_dynamic_shared, carveout;
    struct sim_legacy *legacy; /* legacy.c: settings of the next cuLaunch, or NULL */
    CUfunction next;
} sim_function_t;

typedef struct sim_variable {
    struct sim_variable *next;
    const char *name;
    uint64_t base; /* its allocation record starts here */
    uint64_t id;
    size_t bytes;
} sim_variable_t;

typedef struct CUmodule_handle {
    sim_object_t object;
    CUcontext ctx;
    CUlibrary library; /* that made it, or NULL */
    sim_image_t *image;
    CUfunction functions;
    sim_variable_t *variables;
} sim_module_t;

typedef struct CUkernel_handle {
    sim_object_t object;
    CUlibrary library;
    const char *name;
    simcuda_kernel_fn *symbol;
    CUkernel next;
} sim_kernel_t;

typedef struct CUlibrary_handle {
    sim_object_t object;
    sim_image_t *image;
    CUkernel kernels;
} sim_library_t;

extern sim_slab_t sim_modules, sim_functions, sim_libraries, sim_kernels;

CUresult sim_module_make(CUcontext home, sim_image_t *image, CUlibrary library, CUmodule *out);
void sim_module_drop(CUmodule module);
CUresult sim_module_function(CUmodule module, const char *name, simcuda_kernel_fn *symbol,
                             CUfunction *out);
CUresult sim_module_variable(CUmodule module, const char *name, CUdeviceptr *base, size_t *bytes);
/* Returns the largest dynamic shared memory that a launch of the function may request. */
unsigned sim_function_shared(const sim_function_t *function);
/* Returns the library's module in the context, and makes it on demand. */
CUresult sim_library_module(CUlibrary library, CUcontext home, CUmodule *out);
/* Finds the program's function for a kernel.  Drops the lock, because the loader has locks of its
 * own: recheck handles afterwards. */
simcuda_kernel_fn *sim_kernel_symbol(const char *name);
CUresult sim_image_read(const char *path, sim_image_t **out);
CUresult sim_param_info(const sim_image_kernel_t *info, size_t index, size_t *offset,
                        size_t *bytes);
CUresult sim_function_attribute(CUfunction_attribute which, const sim_function_t *function,
                                int *out);

#endif
