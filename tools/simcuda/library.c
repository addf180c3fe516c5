/* Libraries: images that belong to no context.  Their kernels become functions of each context
 * that uses them.  Global lock. */
#include <string.h>

#include "module.h"
#include "state.h"

sim_slab_t sim_libraries = SIM_SLAB(sim_library_t, 1 << 16);
sim_slab_t sim_kernels = SIM_SLAB(sim_kernel_t, 1 << 18);

static CUresult load(CUlibrary *out, sim_image_t *image) {
    if (image && image->refused) {
        sim_image_unref(image);
        return CUDA_ERROR_INVALID_PTX;
    }
    CUlibrary library = image ? sim_slab_take(&sim_libraries) : NULL;
    if (!library) {
        sim_image_unref(image);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    library->image = image;
    *out = library;
    return CUDA_SUCCESS;
}

SIM_API(cuLibraryLoadData)
(CUlibrary *out, const void *data, SIM_UNUSED CUjit_option *c, SIM_UNUSED void **d,
 SIM_UNUSED unsigned e, SIM_UNUSED CUlibraryOption *f, SIM_UNUSED void **g,
 SIM_UNUSED unsigned h) {
    if (!out || !data)
        return CUDA_ERROR_INVALID_VALUE;
    return load(out, sim_image_parse(data));
}

SIM_API(cuLibraryLoadFromFile)
(CUlibrary *out, const char *path, SIM_UNUSED CUjit_option *c, SIM_UNUSED void **d,
 SIM_UNUSED unsigned e, SIM_UNUSED CUlibraryOption *f, SIM_UNUSED void **g,
 SIM_UNUSED unsigned h) {
    sim_image_t *image;
    if (!out || !path)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_image_read(path, &image);
    return result ? result : load(out, image);
}

static CUresult get(CUlibrary library) {
    return sim_slab_has(&sim_libraries, library) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

SIM_API(cuLibraryUnload)(CUlibrary library) {
    CUresult result = get(library);
    if (result)
        return result;
    size_t at = 0;
    for (CUmodule module; (module = sim_slab_next(&sim_modules, &at));)
        if (module->library == library)
            sim_module_drop(module);
    while (library->kernels) {
        CUkernel kernel = library->kernels;
        library->kernels = kernel->next;
        sim_slab_give(&sim_kernels, kernel);
    }
    sim_image_unref(library->image);
    sim_slab_give(&sim_libraries, library);
    return CUDA_SUCCESS;
}

static CUresult kernel_of(CUlibrary library, const char *name, simcuda_kernel_fn *symbol,
                          CUkernel *out) {
    for (CUkernel kernel = library->kernels; kernel; kernel = kernel->next) {
        if (!strcmp(kernel->name, name)) {
            *out = kernel;
            return CUDA_SUCCESS;
        }
    }
    if (library->image->known && !sim_image_kernel(library->image, name))
        return CUDA_ERROR_NOT_FOUND;
    const char *kept = sim_intern(name, strlen(name));
    CUkernel kernel = kept ? sim_slab_take(&sim_kernels) : NULL;
    if (!kernel)
        return CUDA_ERROR_OUT_OF_MEMORY;
    kernel->library = library;
    kernel->name = kept;
    kernel->symbol = symbol;
    kernel->next = library->kernels;
    library->kernels = kernel;
    *out = kernel;
    return CUDA_SUCCESS;
}

SIM_API(cuLibraryGetKernel)(CUkernel *out, CUlibrary library, const char *name) {
    CUresult result = get(library);
    if (!result && (!out || !name))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    simcuda_kernel_fn *symbol = sim_kernel_symbol(name);
    result = get(library);
    return result ? result : kernel_of(library, name, symbol, out);
}

SIM_API(cuLibraryGetKernelCount)(unsigned *out, CUlibrary library) {
    CUresult result = get(library);
    if (!result && !out)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *out = library->image->kernel_count;
    return result;
}

SIM_API(cuLibraryEnumerateKernels)(CUkernel *out, unsigned count, CUlibrary library) {
    CUresult result = get(library);
    if (!result && !out)
        result = CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; !result && i < count && i < library->image->kernel_count; i++)
        result = kernel_of(library, library->image->kernels[i].name, NULL, &out[i]);
    return result;
}

CUresult sim_library_module(CUlibrary library, CUcontext home, CUmodule *out) {
    size_t at = 0;
    for (CUmodule module; (module = sim_slab_next(&sim_modules, &at));) {
        if (module->library == library && module->ctx == home) {
            *out = module;
            return CUDA_SUCCESS;
        }
    }
    return sim_module_make(home, library->image, library, out);
}

static CUresult current_module(CUlibrary library, CUmodule *out) {
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (!result)
        result = get(library);
    return result ? result : sim_library_module(library, sim_ctx_home(ctx), out);
}

SIM_API(cuLibraryGetModule)(CUmodule *out, CUlibrary library) {
    return out ? current_module(library, out) : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuLibraryGetGlobal)
(CUdeviceptr *base, size_t *bytes, CUlibrary library, const char *name) {
    CUmodule module;
    CUresult result = name ? current_module(library, &module) : CUDA_ERROR_INVALID_VALUE;
    return result ? result : sim_module_variable(module, name, base, bytes);
}

SIM_API(cuLibraryGetManaged)
(CUdeviceptr *base, size_t *bytes, CUlibrary library, const char *name) {
    CUmodule module;
    CUresult result = name ? current_module(library, &module) : CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    const sim_image_variable_t *variable = sim_image_variable(library->image, name);
    if (!variable || !variable->managed)
        return CUDA_ERROR_NOT_FOUND;
    return sim_module_variable(module, name, base, bytes);
}

SIM_API(cuLibraryGetUnifiedFunction)(void **out, CUlibrary library, const char *name) {
    CUresult result = get(library);
    if (!result)
        result = out && name ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_VALUE;
    return result;
}

/* ---- kernels ---- */

static CUresult get_kernel(CUkernel kernel) {
    return sim_slab_has(&sim_kernels, kernel) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult sim_function_get(CUfunction handle, CUcontext home, CUfunction *out) {
    if (sim_slab_has(&sim_functions, handle)) {
        *out = handle;
        return CUDA_SUCCESS;
    }
    CUkernel kernel = (CUkernel)(void *)handle;
    CUmodule module;
    CUresult result = get_kernel(kernel);
    if (!result)
        result = sim_library_module(kernel->library, home, &module);
    return result ? result : sim_module_function(module, kernel->name, kernel->symbol, out);
}

SIM_API(cuKernelGetFunction)(CUfunction *out, CUkernel kernel) {
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (!result)
        result = get_kernel(kernel);
    if (!result && !out)
        result = CUDA_ERROR_INVALID_VALUE;
    return result ? result : sim_function_get((CUfunction)(void *)kernel, sim_ctx_home(ctx), out);
}

SIM_API(cuKernelGetLibrary)(CUlibrary *out, CUkernel kernel) {
    CUresult result = get_kernel(kernel);
    if (!result && !out)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *out = kernel->library;
    return result;
}

SIM_API(cuKernelGetName)(const char **out, CUkernel kernel) {
    CUresult result = get_kernel(kernel);
    if (!result && !out)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *out = kernel->name;
    return result;
}

SIM_API(cuKernelGetParamInfo)(CUkernel kernel, size_t index, size_t *offset, size_t *bytes) {
    CUresult result = get_kernel(kernel);
    return result ? result
                  : sim_param_info(sim_image_kernel(kernel->library->image, kernel->name), index,
                                   offset, bytes);
}

/* The function keeps the attributes.  A query makes the kernel a function of the current
 * context. */
SIM_API(cuKernelGetAttribute)
(int *out, CUfunction_attribute which, CUkernel kernel, CUdevice device) {
    CUfunction function;
    CUresult result = sim_device_check(device);
    if (!result && !out)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = sim_do_cuKernelGetFunction(&function, kernel);
    return result ? result : sim_function_attribute(which, function, out);
}

SIM_API(cuKernelSetAttribute)
(CUfunction_attribute which, int value, CUkernel kernel, CUdevice device) {
    CUfunction function;
    CUresult result = sim_device_check(device);
    if (!result)
        result = sim_do_cuKernelGetFunction(&function, kernel);
    return result ? result : sim_do_cuFuncSetAttribute(function, which, value);
}

SIM_API(cuKernelSetCacheConfig)
(CUkernel kernel, SIM_UNUSED CUfunc_cache config, CUdevice device) {
    CUresult result = sim_device_check(device);
    return result ? result : get_kernel(kernel);
}

SIM_LIVE_COUNT(libraries) {
    return sim_libraries.live;
}
