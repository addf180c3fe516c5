/* Finds the module that asks for memory (modules.h). */
#include "track/modules.h"

#include "allocator/allocator.h"
#include "bind/callers.h"
#include "bind/objects.h"
#include "observe/live.h"

_Static_assert(AC_MODULES <= 1 << 8, "a record of code has no room for a module's number");

/* Known code, for all threads.  `version` has two parts: the number of dlopen calls, and below it a
 * number that grows with each use of the record.  A reader accepts the fields only if the version has
 * not changed. */
enum { CODES = 64, CODE_PAGE = 4096, VERSION_BITS = 32 };
#define WRITING UINT64_MAX /* no version: dlopen is not called that often */
static struct {
    _Atomic uint64_t version;
    _Atomic uintptr_t start, bytes;
    _Atomic unsigned module;
} known[CODES];
static _Atomic uint32_t uses;

static bool find(uint32_t dlopens, const void *caller, ac_code_t *code) {
    for (unsigned i = 0; i < CODES; i++) {
        uint64_t version = atomic_load_explicit(&known[i].version, memory_order_acquire);
        if (version >> VERSION_BITS != dlopens)
            continue;
        /* Acquire: the version is read again after these. */
        code->start = atomic_load_explicit(&known[i].start, memory_order_acquire);
        code->bytes = atomic_load_explicit(&known[i].bytes, memory_order_acquire);
        code->module = (uint8_t)atomic_load_explicit(&known[i].module, memory_order_acquire);
        if (ac_code_holds(code, caller) &&
            atomic_load_explicit(&known[i].version, memory_order_relaxed) == version)
            return true;
    }
    return false;
}

static void remember(uint32_t dlopens, const ac_code_t *code) {
    uint32_t use = atomic_fetch_add(&uses, 1);
    unsigned i = use % CODES;
    uint64_t version = atomic_load(&known[i].version);
    if (version == WRITING || !atomic_compare_exchange_strong(&known[i].version, &version, WRITING))
        return;
    /* Release: a reader that sees one of these sees WRITING, too. */
    atomic_store_explicit(&known[i].start, code->start, memory_order_release);
    atomic_store_explicit(&known[i].bytes, code->bytes, memory_order_release);
    atomic_store_explicit(&known[i].module, code->module, memory_order_release);
    atomic_store_explicit(&known[i].version, (uint64_t)dlopens << VERSION_BITS | use,
                          memory_order_release);
}

typedef struct {
    uintptr_t address;
    ac_object_t object;
    ac_code_t code;
} walk_t;

static int walk_step(struct dl_phdr_info *info, size_t size, void *argument) {
    (void)size;
    walk_t *walk = argument;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + header->p_vaddr;
        if (header->p_type != PT_LOAD || walk->address - start >= header->p_memsz)
            continue;
        walk->object = ac_object_from(info);
        walk->code = (ac_code_t){.start = start, .bytes = header->p_memsz};
        return 1;
    }
    return 0;
}

ac_code_t ac_module_code(const void *caller) {
    ac_code_t code = {0};
    unsigned module = AC_MODULE_UNKNOWN;
    uint32_t dlopens = ac_callers_now(); /* read before the code */
    if (find(dlopens, caller, &code))
        return code;
    walk_t walk = {.address = (uintptr_t)caller};
    if (!ac_object_each(walk_step, &walk))
        walk.code = (ac_code_t){.start = walk.address & -(uintptr_t)CODE_PAGE, .bytes = CODE_PAGE};
    if (walk.object.dynamic && !ac_live_module(walk.object.path ? walk.object.path : "", &module))
        return walk.code; /* another thread is about to name a module */
    walk.code.module = (uint8_t)module;
    remember(dlopens, &walk.code);
    return walk.code;
}
