/* Answers of the driver about pinned memory: flags, addresses, attributes, ids, sizes, wrong frees.
 * Each query runs over several lifetimes, so that kept blocks answer, too.
 *
 * usage: pinned_answers        Runs every case in its own child process and prints one line for
 * each call. */
#include <stdio.h>
#include <string.h>

#include "answers.h"

#define SAY(call) say_answer(#call, call)

static void say_flags(void *memory) {
    unsigned flags = 99;
    SAY(cuMemHostGetFlags(&flags, memory));
    printf("%s: flags => %u\n", title, flags);
}

static void say_device_pointer(void *memory, size_t at) {
    CUdeviceptr device = POISONED;
    SAY(cuMemHostGetDevicePointer_v2(&device, (char *)memory + at, 0));
    printf("%s: at %zu => %d\n", title, at,
           device == POISONED ? -1 : (int)(device == test_address(memory) + at));
}

/* Prints all attributes of an inner address that do not depend on the address space. */
static void say_attributes(const char *what, const void *memory, size_t at) {
    static const CUpointer_attribute names[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,     CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
        CU_POINTER_ATTRIBUTE_IS_MANAGED,      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_RANGE_SIZE,      CU_POINTER_ATTRIBUTE_MAPPED,
        CU_POINTER_ATTRIBUTE_MAPPING_SIZE,    CU_POINTER_ATTRIBUTE_ACCESS_FLAGS,
        CU_POINTER_ATTRIBUTE_CONTEXT,         CU_POINTER_ATTRIBUTE_HOST_POINTER,
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR};
    enum { COUNT = sizeof names / sizeof *names };
    CUpointer_attribute list[COUNT];
    uint64_t value[COUNT] = {0};
    void *data[COUNT];
    CUcontext current = NULL;
    CUdeviceptr base = POISONED;
    size_t size = 77;
    memcpy(list, names, sizeof names);
    cuCtxGetCurrent(&current);
    for (int i = 0; i < COUNT; i++) {
        uint64_t one = 0;
        CUresult result = cuPointerGetAttribute(&one, names[i], test_address(memory) + at);
        bool host = names[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER;
        if (names[i] == CU_POINTER_ATTRIBUTE_CONTEXT && !result)
            one = one == (uintptr_t)current;
        else if ((host || names[i] == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) && !result)
            one = one == test_address(memory) + (host ? at : 0);
        printf("%s: %s %zu, attribute %d => %s %llu\n", title, what, at, (int)names[i],
               code(result), (unsigned long long)one);
        data[i] = &value[i];
    }
    SAY(cuPointerGetAttributes(8, list, data, test_address(memory) + at));
    for (int i = 0; i < 8; i++)
        printf("%s: %s %zu, all %d => %llu\n", title, what, at, i, (unsigned long long)value[i]);
    SAY(cuMemGetAddressRange_v2(&base, &size, test_address(memory) + at));
    printf("%s: %s %zu, range => %d %zu\n", title, what, at,
           base == POISONED ? -1 : (int)(base == test_address(memory)), size);
}

static uint64_t id_of(const void *memory) {
    uint64_t id = 0, again = 0, block = 0;
    SAY(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, test_address(memory)));
    SAY(cuPointerGetAttribute(&again, CU_POINTER_ATTRIBUTE_BUFFER_ID, test_address(memory)));
    SAY(cuPointerGetAttribute(&block, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID,
                              test_address(memory)));
    printf("%s: id => %d %d\n", title, id != 0 && id == again, block == id);
    return id;
}

static void *get(size_t bytes, int kind) {
    void *memory = NULL;
    CUresult result = kind < 0 ? cuMemAllocHost_v2(&memory, bytes)
                               : cuMemHostAlloc(&memory, bytes, (unsigned)kind);
    printf("%s: %zu bytes of kind %d => %s %d\n", title, bytes, kind, code(result),
           memory != NULL && (uintptr_t)memory % 512 == 0);
    return memory;
}

/* Prints if all of the memory can be written and copied. */
static void say_usable(void *memory, size_t bytes) {
    CUdeviceptr device;
    unsigned char back = 0;
    memset(memory, 0x5c, bytes);
    MUST(cuMemAlloc_v2(&device, bytes));
    SAY(cuMemcpyHtoDAsync_v2(device, memory, bytes, NULL));
    SAY(cuMemcpyDtoH_v2(&back, device + bytes - 1, 1));
    printf("%s: the last byte => %x\n", title, back);
    MUST(cuMemFree_v2(device));
}

static void kinds(void) {
    static const size_t sizes[] = {1, 512, 4095, 4096, 70000, MIB, 3 * MIB + 5};
    uint64_t before = 0;
    test_device(0);
    for (int round = 0; round < 3; round++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (int kind = -1; kind < 8; kind++) {
                void *memory = get(sizes[s], kind);
                say_flags(memory);
                say_device_pointer(memory, 0);
                say_device_pointer(memory, sizes[s] - 1);
                say_attributes("held", memory, 0);
                say_attributes("held", memory, sizes[s] - 1);
                uint64_t id = id_of(memory);
                printf("%s: the id is another one => %d\n", title, id != before);
                before = id;
                say_usable(memory, sizes[s]);
                SAY(cuMemFreeHost(memory));
                say_flags(memory);
                say_device_pointer(memory, 0);
                say_attributes("freed", memory, 0);
                SAY(cuMemFreeHost(memory));
            }
}

static void wrong(void) {
    void *memory, *pair[2], *nothing = NULL;
    static char pageable[4096];
    CUdeviceptr device;
    CUstream stream;
    CUcontext context = test_device(0);
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    SAY(cuMemHostAlloc(NULL, MIB, 0));
    SAY(cuMemHostAlloc(&nothing, 0, 0));
    SAY(cuMemHostAlloc(&nothing, MIB, 8));
    SAY(cuMemHostAlloc(&nothing, MIB, 1u << 16));
    SAY(cuMemHostAlloc(&nothing, SIZE_MAX, 0));
    SAY(cuMemHostAlloc(&nothing, SIZE_MAX / 2 + 9, 0));
    SAY(cuMemAllocHost_v2(NULL, MIB));
    SAY(cuMemAllocHost_v2(&nothing, 0));
    SAY(cuMemAllocHost_v2(&nothing, SIZE_MAX - 100));
    printf("%s: what was not served => %d\n", title, nothing == NULL);
    SAY(cuMemFreeHost(NULL));
    SAY(cuMemFreeHost(pageable));
    MUST(cuMemAlloc_v2(&device, MIB));
    SAY(cuMemFreeHost((void *)(uintptr_t)device));
    SAY(cuMemFree_v2(device));
    for (int round = 0; round < 3; round++) {
        memory = get(MIB, 0);
        SAY(cuMemFreeHost((char *)memory + 512));
        SAY(cuMemFree_v2(test_address(memory)));
        SAY(cuMemFree_v2(test_address(memory) + 4096));
        SAY(cuMemFreeAsync(test_address(memory), stream));
        SAY(cuMemHostUnregister(memory));
        SAY(cuMemHostRegister_v2(memory, 4096, 0));
        SAY(cuMemFreeHost(memory));
        SAY(cuMemFreeHost((char *)memory + 512));
        SAY(cuMemFree_v2(test_address(memory)));
        SAY(cuMemFreeAsync(test_address(memory), stream));
        SAY(cuMemHostUnregister(memory));
    }
    MUST(cuMemHostRegister_v2(pageable, sizeof pageable, 0));
    SAY(cuMemFreeHost(pageable));
    say_flags(pageable);
    SAY(cuMemHostUnregister(pageable));
    /* Neighbouring blocks have no effect. */
    pair[0] = get(4096, 0);
    pair[1] = get(4096, 0);
    say_attributes("one", pair[0], 4095);
    say_attributes("other", pair[1], 0);
    SAY(cuMemFreeHost(pair[0]));
    say_attributes("left", pair[1], 4095);
    SAY(cuMemFreeHost(pair[1]));
    /* No context is current. */
    memory = get(MIB, 0);
    MUST(cuCtxSetCurrent(NULL));
    SAY(cuMemHostAlloc(&nothing, MIB, 0));
    SAY(cuMemFreeHost(memory));
    SAY(cuMemFreeHost(pageable));
    say_flags(memory);
    MUST(cuCtxSetCurrent(context));
    say_flags(memory);
    SAY(cuMemFreeHost(memory));
}

static void sync_memops(void) {
    const unsigned on = 1, off = 0;
    unsigned value = 7;
    test_device(0);
    for (int round = 0; round < 3; round++) {
        void *memory = get(MIB, 0);
        SAY(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                                  test_address(memory)));
        printf("%s: at first => %u\n", title, value);
        SAY(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, test_address(memory)));
        SAY(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                                  test_address(memory)));
        printf("%s: set => %u\n", title, value);
        if (round == 1)
            SAY(cuPointerSetAttribute(&off, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                                      test_address(memory)));
        SAY(cuMemFreeHost(memory));
        SAY(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, test_address(memory)));
    }
}

static void contexts(void) {
    CUcontext primary = test_device(0), made;
    void *first = get(MIB, 1), *second;
    SAY(cuCtxCreate_v2(&made, 0, 1));
    second = get(MIB, 1);
    say_attributes("second", second, 0);
    say_attributes("first", first, 0); /* of another context */
    SAY(cuMemFreeHost(first));
    first = get(MIB, 1);
    say_attributes("again", first, 0);
    SAY(cuMemFreeHost(second));
    second = get(MIB, 1);
    SAY(cuCtxDestroy_v2(made));
    MUST(cuCtxSetCurrent(primary));
    say_flags(second);
    SAY(cuMemFreeHost(second));
    SAY(cuMemFreeHost(first));
    second = get(MIB, 1);
    say_attributes("last", second, 0);
    SAY(cuDevicePrimaryCtxReset_v2(0));
    test_device(0);
    say_flags(second);
    SAY(cuMemFreeHost(second));
    second = get(MIB, 1);
    SAY(cuMemFreeHost(second));
}

static void capture(void) {
    static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_RELAXED,
                                                CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                                CU_STREAM_CAPTURE_MODE_GLOBAL};
    CUstream stream;
    CUgraph graph;
    test_device(0);
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        void *held = get(2 * MIB, 0), *memory = NULL;
        MUST(cuStreamBeginCapture_v2(stream, modes[i]));
        SAY(cuMemHostAlloc(&memory, 5 * MIB, 0)); /* the cache keeps no block of this size */
        SAY(cuStreamEndCapture(stream, &graph));
        if (memory)
            SAY(cuMemFreeHost(memory));
        MUST(cuStreamBeginCapture_v2(stream, modes[i]));
        SAY(cuMemFreeHost(held));
        SAY(cuStreamEndCapture(stream, &graph));
    }
}

static const answers_case_t cases[] = {{"kinds", kinds},
                                       {"wrong", wrong},
                                       {"sync memops", sync_memops},
                                       {"contexts", contexts},
                                       {"capture", capture}};

int main(void) {
    in_children(cases, sizeof cases / sizeof *cases);
    return 0; /* what a child ended with stands among its lines */
}
