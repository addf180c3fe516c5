/* Hooks of memory pools.  Every call goes to the driver, so arguments, errors, handles and settings are its
 * own.  The hooks add the memory that the library serves to the driver's answers (mempools.h). */
#include "hooks/body.h"

#include "device/driver.h"
#include "track/mempools.h"
#include "track/pool_access.h"

/* --- creation and destruction of pools --- */

/* Returns true if the host can read the pool's memory: managed memory, and memory of the host. */
static bool is_of_host(CUmemAllocationType type, const CUmemLocation *location) {
    return type == CU_MEM_ALLOCATION_TYPE_MANAGED ||
           location->type != CU_MEM_LOCATION_TYPE_DEVICE;
}

/* How the program makes a pool: by properties, or from a handle (`import` is not NULL). */
typedef struct {
    cuMemPoolCreate_fn *create;
    const CUmemPoolProps *props;
    cuMemPoolImportFromShareableHandle_fn *import;
    void *handle;
    CUmemAllocationHandleType type;
    unsigned long long flags;
} maker_t;

static CUresult make_one(const maker_t *maker, CUmemoryPool *pool) {
    return maker->import ? maker->import(pool, maker->handle, maker->type, maker->flags)
                         : maker->create(pool, maker->props);
}

/* Makes a pool with a handle that no pool with blocks has.  The driver keeps a destroyed pool until its
 * last block is freed, but it does not know the library's blocks.  If a new pool gets the handle of a
 * destroyed pool with blocks, it is held until the driver makes one with another handle, and then
 * destroyed. */
static CUresult make(const maker_t *maker, CUmemoryPool *pool) {
    CUmemoryPool held[AC_MEMPOOLS];
    unsigned count = 0;
    CUresult result = make_one(maker, pool);
    while (result == CUDA_SUCCESS && count < AC_MEMPOOLS && ac_mempool_is_named(*pool)) {
        held[count++] = *pool;
        result = make_one(maker, pool);
    }
    if (count && result != CUDA_SUCCESS) { /* a pool with a used handle is better than none */
        *pool = held[--count];
        result = CUDA_SUCCESS;
    }
    while (count > 0)
        AC_REAL(cuMemPoolDestroy)(held[--count]);
    return result;
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props) {
    AC_ENTER_OR_RETURN(cuMemPoolCreate);
    CUresult result;
    const maker_t maker = {.create = real, .props = props};
    AC_RETRY(result, AC_NEED_UNKNOWN, make(&maker, pool));
    if (result == CUDA_SUCCESS && thread) {
        ac_mempool_created(*pool, props);
        if (is_of_host(props->allocType, &props->location))
            ac_shown_memory(0);
    }
    ac_context_note_current(thread, result);
    return result;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *handle,
                                            CUmemAllocationHandleType type,
                                            unsigned long long flags) {
    AC_ENTER_OR_RETURN(cuMemPoolImportFromShareableHandle);
    CUresult result;
    const maker_t maker = {.import = real, .handle = handle, .type = type, .flags = flags};
    AC_RETRY(result, AC_NEED_UNKNOWN, make(&maker, pool));
    if (result == CUDA_SUCCESS && thread)
        ac_mempool_created(*pool, NULL);
    ac_context_note_current(thread, result);
    return result;
}

/* Allocated blocks of the pool stay valid, and are freed like any others. */
CUresult cuMemPoolDestroy(CUmemoryPool pool) {
    AC_ENTER_OR_RETURN(cuMemPoolDestroy);
    unsigned number = thread ? ac_mempool_named(pool, NULL) : 0;
    ac_mempool_destroying(number);
    AC_WINDOW(pool_destroying);
    CUresult result = real(pool);
    ac_mempool_destroyed(number, result == CUDA_SUCCESS);
    return result;
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
    AC_ENTER_OR_RETURN(cuDeviceSetMemPool);
    CUresult result = real(device, pool);
    if (thread && device >= 0)
        ac_mempool_current_changed(device);
    return result;
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool) {
    AC_ENTER_OR_RETURN(cuMemSetMemPool);
    CUresult result = real(location, type, pool);
    if (thread)
        ac_mempool_current_changed(-1);
    return result;
}

static CUresult shown(const ac_thread_t *thread, const CUmemoryPool *pool,
                      const CUmemLocation *location, CUmemAllocationType type, CUresult result) {
    if (result == CUDA_SUCCESS && thread) {
        ac_mempool_shown(*pool, location, type);
        if (is_of_host(type, location))
            ac_shown_memory(0);
    }
    return result;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location,
                                CUmemAllocationType type) {
    AC_ENTER_OR_RETURN(cuMemGetDefaultMemPool);
    return shown(thread, pool, location, type, real(pool, location, type));
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) {
    AC_ENTER_OR_RETURN(cuMemGetMemPool);
    return shown(thread, pool, location, type, real(pool, location, type));
}

/* --- attributes --- */

static bool is_figure(CUmemPool_attribute attribute) {
    return attribute >= CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT &&
           attribute <= CU_MEMPOOL_ATTR_USED_MEM_HIGH;
}

static bool is_high(CUmemPool_attribute attribute) {
    return attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH ||
           attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH;
}

static bool is_reuse(CUmemPool_attribute attribute) {
    return attribute >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
           attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

static ac_mark_t mark_of(CUmemPool_attribute attribute) {
    bool used = attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT ||
                attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH;
    return used ? AC_MARK_USED : AC_MARK_RESERVED;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
    AC_ENTER_OR_RETURN(cuMemPoolGetAttribute);
    unsigned number = thread ? ac_mempool_named(pool, NULL) : 0;
    ac_allocator_t *allocator = ac_mempool_allocator(number);
    CUresult result = real(pool, attribute, value);
    if (result != CUDA_SUCCESS || !allocator || !is_figure(attribute))
        return result;
    ac_mempool_t ours;
    ac_mark_t mark = mark_of(attribute);
    ac_mempool_figures(allocator, number, &ours);
    cuuint64_t *figure = value;
    *figure =
        is_high(attribute) ? ac_mempool_peak(number, mark, *figure) : *figure + ours.now[mark];
    return result;
}

/* Follows an attribute that the program set; `value`: the driver has accepted it. */
static void follow_setting(unsigned number, CUmemPool_attribute attribute, const void *value) {
    ac_allocator_t *allocator = ac_mempool_allocator(number);
    if (is_reuse(attribute) && !*(const int *)value)
        ac_mempool_leave(number, AC_PASSED(reuse));
    else if (allocator && attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        ac_mempool_keep(allocator, number, *(const cuuint64_t *)value);
    else if (allocator && is_high(attribute))
        ac_mempool_reset_peak(number, mark_of(attribute));
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
    AC_ENTER_OR_RETURN(cuMemPoolSetAttribute);
    unsigned number = thread ? ac_mempool_named(pool, NULL) : 0;
    CUresult result = real(pool, attribute, value);
    if (result == CUDA_SUCCESS && number)
        follow_setting(number, attribute, value);
    return result;
}

/* --- trim --- */

/* `least` applies to the driver's and the library's memory together; the driver's counts first. */
CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t least) {
    AC_ENTER_OR_RETURN(cuMemPoolTrimTo);
    unsigned number = thread ? ac_mempool_named(pool, NULL) : 0;
    ac_allocator_t *allocator = ac_mempool_allocator(number);
    cuuint64_t kept = 0;
    CUresult result = real(pool, least);
    if (result != CUDA_SUCCESS || !allocator)
        return result;
    if (ac_driver.cuMemPoolGetAttribute &&
        ac_driver.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &kept) !=
            CUDA_SUCCESS)
        kept = 0;
    ac_mempool_trim(allocator, number, least > kept ? least - kept : 0);
    ac_mempools_given();
    return result;
}

/* --- access --- */

CUresult cuMemPoolGetAccess(CUmemAccess_flags *access, CUmemoryPool pool,
                            CUmemLocation *location) {
    AC_ENTER_OR_RETURN(cuMemPoolGetAccess);
    (void)thread;
    return real(access, pool, location);
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access, size_t count) {
    AC_ENTER_OR_RETURN(cuMemPoolSetAccess);
    unsigned number = thread ? ac_mempool_named(pool, NULL) : 0;
    CUresult result = real(pool, access, count);
    for (size_t i = 0; result == CUDA_SUCCESS && number && i < count; i++)
        if (access[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
            access[i].location.id != ac_mempool_device(number)) {
            ac_mempool_leave(number, AC_PASSED(access));
            if (access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
                ac_pool_reach(number, access[i].location.id);
        }
    return result;
}

/* --- sharing with other processes: only pools made for it can be shared, and the driver serves them --- */

CUresult cuMemPoolExportToShareableHandle(void *handle, CUmemoryPool pool,
                                          CUmemAllocationHandleType type,
                                          unsigned long long flags) {
    AC_ENTER_OR_RETURN(cuMemPoolExportToShareableHandle);
    unsigned number = thread ? ac_mempool_named(pool, NULL) : 0;
    CUresult result = real(handle, pool, type, flags);
    if (result == CUDA_SUCCESS)
        ac_mempool_leave(number, AC_PASSED(exportable));
    return result;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *exported, CUdeviceptr pointer) {
    AC_ENTER_OR_RETURN(cuMemPoolExportPointer);
    (void)thread;
    return real(exported, ac_owned(pointer) ? AC_UNOWNED : pointer);
}

CUresult cuMemPoolImportPointer(CUdeviceptr *pointer, CUmemoryPool pool,
                                CUmemPoolPtrExportData *exported) {
    AC_ENTER_OR_RETURN(cuMemPoolImportPointer);
    CUresult result = real(pointer, pool, exported);
    if (result == CUDA_SUCCESS && thread)
        ac_shown_found(*pointer);
    return result;
}
