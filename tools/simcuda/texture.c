/* Texture and surface objects: descriptions of memory that kernels take as arguments.  Texture
 * hardware is not simulated, so an object is only its description.  Global lock.
 *
 * Guesses (public documentation is silent):
 *   handles that are no objects                  INVALID_VALUE
 *   memory that is freed while an object names it   the object stays
 */
#include <string.h>

#include "sim.h"

/* Sizes of the three descriptions.  Only the beginning of the first one is read: CUresourcetype,
 * then a union of an array, a mipmapped array and linear memory. */
enum { RESOURCE_BYTES = 144, TEXTURE_BYTES = 104, VIEW_BYTES = 112 };
enum { RESOURCE_ARRAY, RESOURCE_MIPMAPPED, RESOURCE_LINEAR, RESOURCE_PITCH2D };

typedef struct {
    sim_object_t object;
    bool surface, has_view;
    unsigned char resource[RESOURCE_BYTES], texture[TEXTURE_BYTES], view[VIEW_BYTES];
} sim_texture_t;

static sim_slab_t textures = SIM_SLAB(sim_texture_t, 1 << 16);

static sim_texture_t *get(unsigned long long handle, bool surface) {
    sim_texture_t *object;
    memcpy(&object, &handle, sizeof object);
    return sim_slab_has(&textures, object) && object->surface == surface ? object : NULL;
}

static CUresult check_resource(const void *description, bool surface) {
    unsigned type;
    uint64_t what;
    sim_array_layout_t layout;
    memcpy(&type, description, sizeof type);
    memcpy(&what, (const char *)description + 8, sizeof what);
    switch (type) {
    case RESOURCE_ARRAY: {
        CUarray array;
        memcpy(&array, &what, sizeof array);
        return sim_array_layout(array, &layout);
    }
    case RESOURCE_LINEAR:
    case RESOURCE_PITCH2D:
        return !surface && sim_alloc_around(what) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case RESOURCE_MIPMAPPED:
        sim_log("textures of mipmapped arrays are not simulated");
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult make(unsigned long long *out, const void *resource, const void *texture,
                     const void *view, bool surface) {
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result)
        return result;
    if (!out || !resource || (!surface && !texture))
        return CUDA_ERROR_INVALID_VALUE;
    result = check_resource(resource, surface);
    if (result)
        return result;
    sim_texture_t *object = sim_slab_take(&textures);
    if (!object)
        return CUDA_ERROR_OUT_OF_MEMORY;
    object->surface = surface;
    object->has_view = view != NULL;
    memcpy(object->resource, resource, RESOURCE_BYTES);
    if (texture)
        memcpy(object->texture, texture, TEXTURE_BYTES);
    if (view)
        memcpy(object->view, view, VIEW_BYTES);
    *out = (uintptr_t)object;
    return CUDA_SUCCESS;
}

static CUresult destroy(unsigned long long handle, bool surface) {
    sim_texture_t *object = get(handle, surface);
    if (!object)
        return CUDA_ERROR_INVALID_VALUE;
    sim_slab_give(&textures, object);
    return CUDA_SUCCESS;
}

static CUresult describe(void *out, const void *from, size_t bytes) {
    if (!out || !from)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(out, from, bytes);
    return CUDA_SUCCESS;
}

SIM_API(cuTexObjectCreate)
(CUtexObject *out, const CUDA_RESOURCE_DESC *resource, const CUDA_TEXTURE_DESC *texture,
 const CUDA_RESOURCE_VIEW_DESC *view) {
    return make(out, resource, texture, view, false);
}

SIM_API(cuTexObjectDestroy)(CUtexObject handle) {
    return destroy(handle, false);
}

SIM_API(cuTexObjectGetResourceDesc)(CUDA_RESOURCE_DESC *out, CUtexObject handle) {
    const sim_texture_t *object = get(handle, false);
    return describe(out, object ? object->resource : NULL, RESOURCE_BYTES);
}

SIM_API(cuTexObjectGetTextureDesc)(CUDA_TEXTURE_DESC *out, CUtexObject handle) {
    const sim_texture_t *object = get(handle, false);
    return describe(out, object ? object->texture : NULL, TEXTURE_BYTES);
}

SIM_API(cuTexObjectGetResourceViewDesc)(CUDA_RESOURCE_VIEW_DESC *out, CUtexObject handle) {
    const sim_texture_t *object = get(handle, false);
    return describe(out, object && object->has_view ? object->view : NULL, VIEW_BYTES);
}

SIM_API(cuSurfObjectCreate)(CUsurfObject *out, const CUDA_RESOURCE_DESC *resource) {
    return make(out, resource, NULL, NULL, true);
}

SIM_API(cuSurfObjectDestroy)(CUsurfObject handle) {
    return destroy(handle, true);
}

SIM_API(cuSurfObjectGetResourceDesc)(CUDA_RESOURCE_DESC *out, CUsurfObject handle) {
    const sim_texture_t *object = get(handle, true);
    return describe(out, object ? object->resource : NULL, RESOURCE_BYTES);
}

SIM_LIVE_COUNT(textures) {
    return textures.live;
}
