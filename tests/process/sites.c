/* Requests and frees from call sites that are known by name.  Compiled without tail calls, which would
 * hide who calls.
 *
 * usage: sites PLUGIN STEP...
 *   keep N BYTES      keep_buffers takes N blocks
 *   lose N BYTES      so does lose_buffers
 *   swap              take_by_swap takes two by libraries of which one takes the other's place
 *   swap_namespace    the same, the other one in a namespace of its own that has a library already
 *   plugin BYTES      the plug-in takes one (model::Layer<float>::grow)
 *   drop INDEX        drop_buffer frees the block that was taken as number INDEX, from 0 on
 *   again INDEX       free_again frees that one
 *   inside INDEX      free_inside frees what lies 512 bytes behind its begin
 *   close             the plug-in is unloaded
 *   small             a thread with the least stack takes a block (in_small_stack)
 *   threads N         N threads take and free blocks at once (churn)
 *   fork              a child takes a block and ends
 *   signal            a signal handler takes a block (on_signal)
 *   broken            code whose unwind table makes no sense takes a block
 *   senseless         code whose table's addresses are encoded in a way that does not exist does (spoil)
 *   blind             code without an unwind table does
 *   full              fill_device takes blocks of 64 MiB until there are no more
 *   pause             says "paused" and waits for a line of input
 *   refused           a request that fails; says how often the device was asked how much is free
 *   pinned BYTES      pin_memory takes and frees pinned host memory
 *   physical BYTES    take_physical takes physical memory (cuMemCreate), map_physical maps it, and releases
 *                     its handle, unmap_physical unmaps it; take_physical releases another one that is not mapped
 *   huge              a request for more than the device has
 *   reset             the device's context ends
 *   unpin             unpin_again frees pinned memory, and twice more, which is refused
 *   array BYTES       make_array makes an array of so many bytes and destroys it, does the same by the other call,
 *                     and makes one that stays
 *   managed BYTES     take_managed takes and frees managed memory
 *   starve            no more address space from now on than a MiB
 *   feed              as much as before
 *   wait              says "ready" and where the blocks lie, until the input ends */
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "program.h"

#include "simcuda.h"

enum { BLOCKS = 4096 };
static CUdeviceptr block[BLOCKS];
static unsigned blocks;
static CUdeviceptr (*plugin_take)(size_t bytes);

#if defined(__clang__)
#define SITE __attribute__((noinline))
#else
#define SITE __attribute__((noinline, noclone))
#endif
#define STAY __asm__ volatile("" : : : "memory") /* what came before is no tail call */

SITE static void keep_buffers(int count, size_t bytes) {
    for (int i = 0; i < count; i++)
        MUST(cuMemAlloc_v2(&block[blocks++], bytes));
    STAY;
}

SITE static void lose_buffers(int count, size_t bytes) {
    for (int i = 0; i < count; i++)
        MUST(cuMemAlloc_v2(&block[blocks++], bytes));
    STAY;
}

SITE static void drop_buffer(CUdeviceptr pointer) {
    MUST(cuMemFree_v2(pointer));
    STAY;
}

SITE static void free_again(CUdeviceptr pointer) {
    NEED(cuMemFree_v2(pointer) != 0);
    STAY;
}

SITE static void free_inside(CUdeviceptr pointer) {
    NEED(cuMemFree_v2(pointer + 512) != 0);
    STAY;
}

SITE static void fill_device(void) {
    CUdeviceptr pointer;
    while (cuMemAlloc_v2(&pointer, (size_t)64 << 20) == 0)
        continue;
    STAY;
}

SITE static void pin_memory(size_t bytes) {
    void *memory;
    MUST(cuMemAllocHost_v2(&memory, bytes));
    MUST(cuMemFreeHost(memory));
    STAY;
}

SITE static CUdeviceptr map_physical(CUmemGenericAllocationHandle handle, size_t bytes) {
    CUdeviceptr address;
    MUST(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    MUST(cuMemMap(address, bytes, 0, handle, 0));
    MUST(cuMemRelease(handle));
    STAY;
    return address;
}

SITE static void unmap_physical(CUdeviceptr address, size_t bytes) {
    MUST(cuMemUnmap(address, bytes));
    MUST(cuMemAddressFree(address, bytes));
    STAY;
}

SITE static void take_physical(size_t bytes) {
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    MUST(cuMemCreate(&handle, bytes, &prop, 0));
    CUdeviceptr address = map_physical(handle, bytes);
    CUmemGenericAllocationHandle again;
    MUST(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)address));
    unmap_physical(address, bytes);
    MUST(cuMemRelease(again));
    MUST(cuMemCreate(&handle, bytes, &prop, 0));
    address = map_physical(handle, bytes);
    unmap_physical(address, bytes);
    STAY;
}

SITE static void make_array(size_t bytes) {
    CUarray array;
    CUDA_ARRAY_DESCRIPTOR shape = {bytes / 64, 4, CU_AD_FORMAT_FLOAT, 4};
    CUDA_ARRAY3D_DESCRIPTOR deep = {bytes / 64, 4, 0, CU_AD_FORMAT_FLOAT, 4, 0};
    MUST(cuArrayCreate_v2(&array, &shape));
    MUST(cuArrayDestroy(array));
    MUST(cuArray3DCreate_v2(&array, &deep));
    MUST(cuArrayDestroy(array));
    MUST(cuArrayCreate_v2(&array, &shape)); /* it stays */
    STAY;
}

SITE static void unpin_again(void) {
    void *memory;
    MUST(cuMemAllocHost_v2(&memory, 5000));
    MUST(cuMemFreeHost(memory));
    EXPECT(cuMemFreeHost(memory) != CUDA_SUCCESS);
    EXPECT(cuMemFree_v2((CUdeviceptr)(uintptr_t)memory) != CUDA_SUCCESS);
    STAY;
}

SITE static void take_managed(size_t bytes) {
    CUdeviceptr pointer;
    MUST(cuMemAllocManaged(&pointer, bytes, 1 /* CU_MEM_ATTACH_GLOBAL */));
    MUST(cuMemFree_v2(pointer));
    STAY;
}

static struct rlimit space;

static void starve(void) {
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    NEED(file && fscanf(file, "%lu", &pages) == 1);
    fclose(file);
    MUST(getrlimit(RLIMIT_AS, &space));
    MUST(setrlimit(RLIMIT_AS, &(struct rlimit){pages * 4096 + (1 << 20), space.rlim_max}));
}

static void be_refused(void) {
    CUdeviceptr pointer;
    unsigned long long before = simcuda_calls("cuMemGetInfo_v2");
    NEED(cuMemAlloc_v2(&pointer, (size_t)64 << 20) != 0);
    printf("%llu\n", simcuda_calls("cuMemGetInfo_v2") - before);
}

SITE static void *in_small_stack(void *unused) {
    test_device(0);
    MUST(cuMemAlloc_v2(&block[blocks++], 3000));
    STAY;
    return unused;
}

static void take_in_small_stack(void) {
    pthread_attr_t attributes;
    pthread_t thread;
    MUST(pthread_attr_init(&attributes));
    MUST(pthread_attr_setstacksize(&attributes, (size_t)PTHREAD_STACK_MIN + 32768));
    MUST(pthread_create(&thread, &attributes, in_small_stack, NULL));
    MUST(pthread_join(thread, NULL));
}

SITE static void *churn(void *unused) {
    test_device(0);
    for (int i = 0; i < 3000; i++) {
        CUdeviceptr pointer[3];
        for (int k = 0; k < 3; k++)
            MUST(cuMemAlloc_v2(&pointer[k], (size_t)1 << (9 + 5 * k)));
        for (int k = 0; k < 3; k++)
            MUST(cuMemFree_v2(pointer[k]));
    }
    return unused;
}

static void churn_in_threads(int count) {
    pthread_t thread[64];
    NEED(count <= 64);
    for (int i = 0; i < count; i++)
        MUST(pthread_create(&thread[i], NULL, churn, NULL));
    for (int i = 0; i < count; i++)
        MUST(pthread_join(thread[i], NULL));
}

static void take_in_child(void) {
    CUdeviceptr pointer;
    pid_t child = fork();
    if (child == 0) {
        cuMemAlloc_v2(&pointer, 4096); /* no child may use CUDA */
        _exit(0);
    }
    NEED(child > 0 && waitpid(child, NULL, 0) == child);
}

SITE static void on_signal(int number) {
    (void)number;
    MUST(cuMemAlloc_v2(&block[blocks++], 5000));
    STAY;
}

#if defined(__x86_64__) || defined(__aarch64__)
/* A call of cuMemAlloc_v2 by a frame whose unwind table has an operation that does not exist; by one whose
 * table spoil() makes senseless, which it can, as no other frame is said to be a signal's; and by one that
 * has no table at all. */
int senseless_frame(CUdeviceptr *pointer, size_t bytes);
int broken_frame(CUdeviceptr *pointer, size_t bytes);
int blind_frame(CUdeviceptr *pointer, size_t bytes);
#if defined(__x86_64__)
#define FRAME_BEGIN "sub $8, %rsp\n"
#define FRAME_SIZE  "8"
#define FRAME_CALL  "call cuMemAlloc_v2@PLT\n"
#define FRAME_END   "add $8, %rsp\nret\n"
#else
#define FRAME_BEGIN "stp x29, x30, [sp, -16]!\n"
#define FRAME_SIZE  "16"
#define FRAME_CALL  "bl cuMemAlloc_v2\n"
#define FRAME_END   "ldp x29, x30, [sp], 16\nret\n"
#endif
/* Hidden, not local: a local one of assembly is reached by the GOT on aarch64, which loses where it lies. */
#define FUNCTION_END(name)                                                        \
    ".globl " #name "\n.hidden " #name "\n.type " #name ", %function\n.size " #name ", .-" #name "\n"
__asm__(".text\n"
        "broken_frame:\n"
        ".cfi_startproc\n" FRAME_BEGIN ".cfi_escape 0x0f, 0x01, 0xff\n" FRAME_CALL FRAME_END
        ".cfi_endproc\n" FUNCTION_END(broken_frame)
        "senseless_frame:\n"
        ".cfi_startproc\n"
        ".cfi_signal_frame\n" FRAME_BEGIN ".cfi_adjust_cfa_offset " FRAME_SIZE "\n" FRAME_CALL FRAME_END
        ".cfi_endproc\n" FUNCTION_END(senseless_frame)
        "blind_frame:\n" FRAME_BEGIN FRAME_CALL FRAME_END FUNCTION_END(blind_frame));

extern const unsigned *_Unwind_Find_FDE(void *pc, void *bases[3]);

/* An encoding of addresses on which the unwinder calls abort(), already where it looks for the frame's
 * table: no linker passes it on, so it is written here. */
static void spoil(void) {
    void *bases[3];
    const unsigned *entry = _Unwind_Find_FDE((void *)((uintptr_t)senseless_frame + 4), bases);
    NEED(entry);
    char *head = (char *)(entry + 1) - entry[1];
    NEED(!strcmp(head + 9, "zRS"));
    char *encoding = head + 9 + sizeof "zRS" + 4; /* alignments, register, length: one byte each */
    NEED(*encoding == 0x1b);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *begin = (char *)((size_t)encoding & ~(page - 1));
    NEED(!mprotect(begin, page, PROT_READ | PROT_WRITE));
    *encoding = 0x01;
}
#else
#define spoil()
#define senseless_frame cuMemAlloc_v2
#define broken_frame cuMemAlloc_v2
#define blind_frame  cuMemAlloc_v2
#endif

static void wait_for_end(void) {
    puts("ready");
    for (unsigned i = 0; i < blocks; i++)
        printf("%llu\n", (unsigned long long)block[i]);
    puts("");
    fflush(stdout);
    while (getchar() != EOF)
        continue;
}

typedef int swap_take_fn(__typeof__(cuMemAlloc_v2) *take, CUdeviceptr *pointer, size_t bytes);

static swap_take_fn *find_swap(void *library) {
    swap_take_fn *found;
    NEED(library);
    *(void **)&found = dlsym(library, "swap_take");
    NEED(found);
    return found;
}

/* The second library lies where the first one lay; the hook of dlopen sees the first alone. */
SITE static void take_by_swap(bool further) {
    char path[2][4096];
    for (int i = 0; i < 2; i++)
        snprintf(path[i], sizeof path[i], "%s/libsites_swap_%d.so", getenv("AC_PROGRAMS"), 1000 + 2000 * i);
    Lmid_t space = LM_ID_BASE;
    if (further) {
        void *held = dlmopen(LM_ID_NEWLM, path[0], RTLD_NOW | RTLD_LOCAL);
        NEED(held);
        MUST(dlinfo(held, RTLD_DI_LMID, &space));
    }
    for (int tries = 0; tries < 50; tries++) {
        void *library = dlopen(path[0], RTLD_NOW | RTLD_LOCAL);
        swap_take_fn *first = find_swap(library), *second;
        MUST(first(cuMemAlloc_v2, &block[blocks++], 1000));
        MUST(dlclose(library));
        library = dlmopen(space, path[1], RTLD_NOW | RTLD_LOCAL);
        second = find_swap(library);
        MUST(second(cuMemAlloc_v2, &block[blocks++], 3000));
        if (second == first)
            return; /* it stays */
        MUST(dlclose(library));
    }
    test_stop(TEST_BROKEN, "no library took the place of the other one");
}

SITE static void take_by_plugin(size_t bytes) {
    block[blocks++] = plugin_take(bytes);
    NEED(block[blocks - 1]);
    STAY;
}

int main(int argc, char **argv) {
    NEED(argc > 1);
    void *plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    NEED(plugin);
    *(void **)&plugin_take = dlsym(plugin, "plugin_take");
    NEED(plugin_take);
    test_device(0);
    for (int i = 2; i < argc; i++) {
        const char *step = argv[i];
        if (!strcmp(step, "keep")) {
            keep_buffers(atoi(argv[i + 1]), strtoull(argv[i + 2], NULL, 10));
            i += 2;
        } else if (!strcmp(step, "lose")) {
            lose_buffers(atoi(argv[i + 1]), strtoull(argv[i + 2], NULL, 10));
            i += 2;
        } else if (!strcmp(step, "swap") || !strcmp(step, "swap_namespace")) {
            take_by_swap(strcmp(step, "swap") != 0);
        } else if (!strcmp(step, "plugin")) {
            take_by_plugin(strtoull(argv[++i], NULL, 10));
        } else if (!strcmp(step, "drop")) {
            drop_buffer(block[atoi(argv[++i])]);
        } else if (!strcmp(step, "again")) {
            free_again(block[atoi(argv[++i])]);
        } else if (!strcmp(step, "inside")) {
            free_inside(block[atoi(argv[++i])]);
        } else if (!strcmp(step, "close")) {
            MUST(dlclose(plugin));
        } else if (!strcmp(step, "small")) {
            take_in_small_stack();
        } else if (!strcmp(step, "threads")) {
            churn_in_threads(atoi(argv[++i]));
        } else if (!strcmp(step, "fork")) {
            take_in_child();
        } else if (!strcmp(step, "signal")) {
            signal(SIGUSR1, on_signal);
            raise(SIGUSR1);
        } else if (!strcmp(step, "broken")) {
            MUST(broken_frame(&block[blocks++], 7000));
        } else if (!strcmp(step, "senseless")) {
            spoil();
            MUST(senseless_frame(&block[blocks++], 8000));
        } else if (!strcmp(step, "blind")) {
            MUST(blind_frame(&block[blocks++], 9000));
        } else if (!strcmp(step, "full")) {
            fill_device();
        } else if (!strcmp(step, "refused")) {
            be_refused();
        } else if (!strcmp(step, "pinned")) {
            pin_memory(strtoull(argv[++i], NULL, 10));
        } else if (!strcmp(step, "physical")) {
            take_physical(strtoull(argv[++i], NULL, 10));
        } else if (!strcmp(step, "array")) {
            make_array(strtoull(argv[++i], NULL, 10));
        } else if (!strcmp(step, "huge")) {
            EXPECT(cuMemAlloc_v2(&block[blocks], (size_t)1 << 45) == CUDA_ERROR_OUT_OF_MEMORY);
        } else if (!strcmp(step, "reset")) {
            MUST(cuDevicePrimaryCtxReset_v2(0));
        } else if (!strcmp(step, "unpin")) {
            unpin_again();
        } else if (!strcmp(step, "managed")) {
            take_managed(strtoull(argv[++i], NULL, 10));
        } else if (!strcmp(step, "starve")) {
            starve();
        } else if (!strcmp(step, "feed")) {
            MUST(setrlimit(RLIMIT_AS, &space));
        } else if (!strcmp(step, "pause")) {
            puts("paused");
            fflush(stdout);
            while (getchar() != '\n')
                continue;
        } else if (!strcmp(step, "wait")) {
            wait_for_end();
        } else {
            return TEST_USAGE;
        }
    }
    return 0;
}
