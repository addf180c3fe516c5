/* Modules.  Any image is accepted.  Names and sizes are known from PTX text only; see image.h.
 * Variables start as zero, regardless of the image.  Global lock. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "module.h"
#include "state.h"

sim_slab_t sim_modules = SIM_SLAB(sim_module_t, 1 << 16);
sim_slab_t sim_functions = SIM_SLAB(sim_function_t, 1 << 18);

simcuda_kernel_fn *sim_kernel_symbol(const char *name) {
    char symbol[512];
    simcuda_kernel_fn *fn = NULL;
    if ((size_t)snprintf(symbol, sizeof symbol, "simcuda_kernel_%s", name) >= sizeof symbol)
        return NULL;
    sim_unlock();
    void *found = dlsym(RTLD_DEFAULT, symbol);
    sim_lock();
    memcpy(&fn, &found, sizeof fn);
    return fn;
}

/* ---- variables ---- */

static CUresult make_variable(CUmodule module, const char *name, size_t bytes, bool managed,
                              sim_variable_t **out) {
    sim_variable_t *variable = calloc(1, sizeof *variable);
    sim_alloc_t *record = NULL;
    if (!variable)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = sim_device_alloc(module->ctx, SIM_MEM_GLOBAL, bytes, &record);
    if (result) {
        free(variable);
        return result;
    }
    record->flags = managed;
    record->managed = managed;
    *variable = (sim_variable_t){module->variables, name, record->base, record->id, bytes};
    module->variables = variable;
    *out = variable;
    return CUDA_SUCCESS;
}

static void drop_variables(CUmodule module) {
    while (module->variables) {
        sim_variable_t *variable = module->variables;
        module->variables = variable->next;
        sim_alloc_t *record = sim_alloc_at(variable->base);
        if (record && record->id == variable->id)
            sim_device_free(record);
        free(variable);
    }
}

CUresult sim_module_variable(CUmodule module, const char *name, CUdeviceptr *base,
                             size_t *bytes) {
    sim_variable_t *variable = module->variables;
    while (variable && strcmp(variable->name, name))
        variable = variable->next;
    if (!variable) {
        if (module->image->known)
            return CUDA_ERROR_NOT_FOUND;
        const char *kept = sim_intern(name, strlen(name));
        CUresult result =
            kept ? make_variable(module, kept, SIM_UNKNOWN_VARIABLE_BYTES, false, &variable)
                 : CUDA_ERROR_OUT_OF_MEMORY;
        if (result)
            return result;
    }
    if (base)
        *base = variable->base;
    if (bytes)
        *bytes = variable->bytes;
    return CUDA_SUCCESS;
}

/* ---- modules ---- */

CUresult sim_module_make(CUcontext home, sim_image_t *image, CUlibrary library, CUmodule *out) {
    CUmodule module = sim_slab_take(&sim_modules);
    if (!module)
        return CUDA_ERROR_OUT_OF_MEMORY;
    module->ctx = home;
    module->library = library;
    module->image = sim_image_ref(image);
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < image->variable_count && !result; i++) {
        sim_variable_t *variable;
        const sim_image_variable_t *v = &image->variables[i];
        result = make_variable(module, v->name, v->bytes, v->managed, &variable);
    }
    if (result) {
        sim_module_drop(module);
        return result;
    }
    *out = module;
    return CUDA_SUCCESS;
}

void sim_module_drop(CUmodule module) {
    while (module->functions) {
        CUfunction function = module->functions;
        module->functions = function->next;
        free(function->legacy);
        sim_slab_give(&sim_functions, function);
    }
    drop_variables(module);
    sim_image_unref(module->image);
    sim_slab_give(&sim_modules, module);
}

void sim_modules_ctx_gone(CUcontext ctx) {
    size_t at = 0;
    for (CUmodule module; (module = sim_slab_next(&sim_modules, &at));)
        if (module->ctx == ctx)
            sim_module_drop(module);
}

static CUresult load(CUmodule *out, sim_image_t *image) {
    CUcontext ctx;
    CUresult result = image ? sim_ctx_current(&ctx) : CUDA_ERROR_OUT_OF_MEMORY;
    if (!result && image->refused)
        result = CUDA_ERROR_INVALID_PTX;
    if (!result)
        result = sim_module_make(sim_ctx_home(ctx), image, NULL, out);
    sim_image_unref(image);
    return result;
}

static CUresult load_data(CUmodule *out, const void *data) {
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result)
        return result;
    if (!out || !data)
        return CUDA_ERROR_INVALID_VALUE;
    return load(out, sim_image_parse(data));
}

SIM_API(cuModuleLoadData)(CUmodule *out, const void *data) {
    return load_data(out, data);
}

SIM_API(cuModuleLoadDataEx)
(CUmodule *out, const void *data, SIM_UNUSED unsigned count, SIM_UNUSED CUjit_option *options,
 SIM_UNUSED void **values) {
    return load_data(out, data);
}

SIM_API(cuModuleLoadFatBinary)(CUmodule *out, const void *data) {
    return load_data(out, data);
}

CUresult sim_image_read(const char *path, sim_image_t **out) {
    FILE *file = fopen(path, "rb");
    if (!file)
        return CUDA_ERROR_FILE_NOT_FOUND;
    char *text = NULL;
    size_t length = 0, got;
    do {
        char *grown = realloc(text, length + 65537);
        if (!grown)
            break;
        text = grown;
        got = fread(text + length, 1, 65536, file);
        length += got;
        text[length] = 0;
    } while (got);
    fclose(file);
    *out = text ? sim_image_parse(text) : NULL;
    free(text);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

SIM_API(cuModuleLoad)(CUmodule *out, const char *path) {
    CUcontext ctx;
    sim_image_t *image;
    CUresult result = sim_ctx_current(&ctx);
    if (result)
        return result;
    if (!out || !path)
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_image_read(path, &image);
    return result ? result : load(out, image);
}

static CUresult get(CUmodule module) {
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result)
        return result;
    return sim_slab_has(&sim_modules, module) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

SIM_API(cuModuleUnload)(CUmodule module) {
    CUresult result = get(module);
    if (result)
        return result;
    if (module->library)
        return CUDA_ERROR_NOT_PERMITTED;
    uint64_t id = module->object.id;
    sim_wait_ctx(module->ctx);
    if (!sim_slab_has(&sim_modules, module) || module->object.id != id)
        return CUDA_ERROR_INVALID_HANDLE;
    sim_module_drop(module);
    return CUDA_SUCCESS;
}

SIM_API(cuModuleGetLoadingMode)(CUmoduleLoadingMode *out) {
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

/* ---- functions ---- */

CUresult sim_module_function(CUmodule module, const char *name, simcuda_kernel_fn *symbol,
                             CUfunction *out) {
    for (CUfunction f = module->functions; f; f = f->next) {
        if (!strcmp(f->name, name)) {
            *out = f;
            return CUDA_SUCCESS;
        }
    }
    const sim_image_kernel_t *info = sim_image_kernel(module->image, name);
    if (module->image->known && !info)
        return CUDA_ERROR_NOT_FOUND;
    const char *kept = sim_intern(name, strlen(name));
    CUfunction function = kept ? sim_slab_take(&sim_functions) : NULL;
    if (!function)
        return CUDA_ERROR_OUT_OF_MEMORY;
    function->module = module;
    function->name = kept;
    function->info = info;
    function->symbol = symbol;
    function->carveout = -1;
    function->next = module->functions;
    module->functions = function;
    *out = function;
    return CUDA_SUCCESS;
}

SIM_API(cuModuleGetFunction)(CUfunction *out, CUmodule module, const char *name) {
    CUresult result = get(module);
    if (result)
        return result;
    if (!out || !name)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t id = module->object.id;
    simcuda_kernel_fn *symbol = sim_kernel_symbol(name);
    if (!sim_slab_has(&sim_modules, module) || module->object.id != id)
        return CUDA_ERROR_INVALID_HANDLE;
    return sim_module_function(module, name, symbol, out);
}

SIM_API(cuModuleGetGlobal_v2)
(CUdeviceptr *base, size_t *bytes, CUmodule module, const char *name) {
    CUresult result = get(module);
    if (result)
        return result;
    return name ? sim_module_variable(module, name, base, bytes) : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuModuleGetFunctionCount)(unsigned *out, CUmodule module) {
    CUresult result = get(module);
    if (!result && !out)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *out = module->image->kernel_count;
    return result;
}

SIM_API(cuModuleEnumerateFunctions)(CUfunction *out, unsigned count, CUmodule module) {
    CUresult result = get(module);
    if (!result && !out)
        result = CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; !result && i < count && i < module->image->kernel_count; i++)
        result = sim_module_function(module, module->image->kernels[i].name, NULL, &out[i]);
    return result;
}

/* ---- properties of functions ---- */

unsigned sim_function_shared(const sim_function_t *function) {
    enum { WITHOUT_ASKING = 49152 };
    return function->max_dynamic_shared ? (unsigned)function->max_dynamic_shared : WITHOUT_ASKING;
}

CUresult sim_function_attribute(CUfunction_attribute which, const sim_function_t *function,
                                int *out) {
    switch (which) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *out = 1024;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *out = 32;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *out = 90;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *out = (int)sim_function_shared(function);
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        *out = function->carveout;
        return CUDA_SUCCESS;
    default:
        if (which > CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE)
            return CUDA_ERROR_INVALID_VALUE;
        *out = 0;
        return CUDA_SUCCESS;
    }
}

static CUresult get_function(CUfunction handle, CUfunction *out) {
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    return result ? result : sim_function_get(handle, sim_ctx_home(ctx), out);
}

SIM_API(cuFuncGetAttribute)(int *out, CUfunction_attribute which, CUfunction function) {
    CUresult result = get_function(function, &function);
    if (!result && !out)
        result = CUDA_ERROR_INVALID_VALUE;
    return result ? result : sim_function_attribute(which, function, out);
}

SIM_API(cuFuncSetAttribute)(CUfunction function, CUfunction_attribute which, int value) {
    CUresult result = get_function(function, &function);
    if (result)
        return result;
    if (which == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && value >= 0 && value <= 232448)
        function->max_dynamic_shared = value;
    else if (which == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT && value >= -1 &&
             value <= 100)
        function->carveout = value;
    else if (which < CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET ||
             which > CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

SIM_API(cuFuncSetCacheConfig)(CUfunction function, SIM_UNUSED CUfunc_cache config) {
    return get_function(function, &function);
}

SIM_API(cuFuncSetSharedMemConfig)(CUfunction function, SIM_UNUSED CUsharedconfig config) {
    return get_function(function, &function);
}

SIM_API(cuFuncGetModule)(CUmodule *out, CUfunction function) {
    CUresult result = get_function(function, &function);
    if (!result && !out)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *out = function->module;
    return result;
}

SIM_API(cuFuncGetName)(const char **out, CUfunction function) {
    CUresult result = get_function(function, &function);
    if (!result && !out)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *out = function->name;
    return result;
}

CUresult sim_param_info(const sim_image_kernel_t *info, size_t index, size_t *offset,
                        size_t *bytes) {
    if (!info || index >= info->param_count || !offset)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = info->param_offset[index];
    if (bytes)
        *bytes = info->param_bytes[index];
    return CUDA_SUCCESS;
}

SIM_API(cuFuncGetParamInfo)(CUfunction function, size_t index, size_t *offset, size_t *bytes) {
    CUresult result = get_function(function, &function);
    return result ? result : sim_param_info(function->info, index, offset, bytes);
}

SIM_API(cuFuncIsLoaded)(CUfunctionLoadingState *out, CUfunction function) {
    CUresult result = get_function(function, &function);
    if (!result && !out)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *out = 1; /* loaded */
    return result;
}

SIM_API(cuFuncLoad)(CUfunction function) {
    return get_function(function, &function);
}

SIM_LIVE_COUNT(modules) {
    return sim_modules.live;
}
