/* Functions that all litmus programs share: devices, kernels, ownership, verdicts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "litmus.h"

enum { BYTES = 64 << 10, SLOW_SPINS = 2000000, ROUNDS = 3, BLOCKS = 32 };

/* Block sizes of the rounds with real frees and allocations: from a slab, from a segment, and
 * nearly all memory if the settings leave 8 MiB. */
static const size_t round_bytes[] = {BYTES, 512 << 10, 3 << 20};

/* store(to, value, spins): waits, then writes one word. */
static const char ptx[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
#define STORE(name)                                                                              \
    ".visible .entry " name "(.param .u64 to, .param .u32 value, .param .u32 spins) {\n"         \
    " .reg .pred %p; .reg .u32 %v, %n; .reg .u64 %a, %t, %s, %e, %d;\n"                          \
    " ld.param.u64 %a, [to]; ld.param.u32 %v, [value]; ld.param.u32 %n, [spins];\n"              \
    " cvta.to.global.u64 %a, %a; cvt.u64.u32 %e, %n; mov.u64 %s, %clock64;\n"                    \
    "AGAIN: mov.u64 %t, %clock64; sub.u64 %d, %t, %s; setp.lt.u64 %p, %d, %e;\n"                 \
    " @%p bra AGAIN; st.global.u32 [%a], %v; ret; }\n"
    STORE("litmus_quick") STORE("litmus_slow");

static int (*register_kernel)(const simcuda_kernel_t *);
static unsigned long long (*reports)(void);
static void (*owner_begin)(CUdeviceptr, size_t);
static size_t (*owner_end)(CUdeviceptr);
static void (*host_saw)(const void *);
static void (*advance)(unsigned long long);

static void register_stores(void) {
    static const unsigned short sizes[] = {8, 4, 4};
    static const simcuda_access_t access = {0, -1, sizeof(unsigned), 1};
    simcuda_kernel_t kernel = {"litmus_quick", test_store, 1000, 3, sizes, 1, &access};
    register_kernel(&kernel);
    kernel.name = "litmus_slow";
    kernel.duration_ns = 1000000;
    register_kernel(&kernel);
}

static void set_up_device(litmus_t *t, int i) {
    CUmodule module;
    MUST(cuDeviceGet(&t->device[i], i));
    MUST(cuDevicePrimaryCtxRetain(&t->ctx[i], t->device[i]));
    MUST(cuCtxSetCurrent(t->ctx[i]));
    MUST(cuModuleLoadData(&module, ptx));
    MUST(cuModuleGetFunction(&t->store[i][0], module, "litmus_quick"));
    MUST(cuModuleGetFunction(&t->store[i][1], module, "litmus_slow"));
}

/* Enables peer access only if a case needs it, because it changes the work that a cache has to
 * wait for. */
static void connect_devices(litmus_t *t) {
    int can = 0;
    bool wanted = false;
    for (size_t i = 0; i < litmus_case_count; i++)
        wanted |= (litmus_cases[i].what & TWO_DEVICES) != 0;
    if (t->devices > 1 && wanted)
        cuDeviceCanAccessPeer(&can, 1, 0);
    if (!can) {
        t->devices = 1;
        return;
    }
    set_up_device(t, 1);
    t->there = test_stream();
    MUST(cuMemAlloc_v2(&t->peer, BYTES));
    MUST(cuCtxEnablePeerAccess(t->ctx[0], 0));
}

static void set_up(litmus_t *t) {
    test_find("simcuda_register_kernel", &register_kernel);
    t->simulated = register_kernel;
    test_find("simcuda_advance", &advance);
    if (t->simulated) {
        test_find("simcuda_race_reports", &reports);
        test_find("simcuda_owner_begin", &owner_begin);
        test_find("simcuda_owner_end", &owner_end);
        test_find("simcuda_host_saw", &host_saw);
        register_stores();
    }
    const char *mode = getenv("LITMUS");
    t->allocator = mode && !strcmp(mode, "allocator");
    set_up_device(t, 0);
    connect_devices(t);
    MUST(cuCtxSetCurrent(t->ctx[0]));
    for (int i = 0; i < 3; i++)
        t->free_stream[i] = test_stream();
    for (int i = 0; i < 2; i++) {
        MUST(cuStreamCreate(&t->blocking[i], CU_STREAM_DEFAULT));
        MUST(cuEventCreate(&t->event[i], CU_EVENT_DISABLE_TIMING));
    }
    MUST(cuMemAlloc_v2(&t->other, BYTES));
    MUST(cuMemHostAlloc(&t->pinned, BYTES, 0));
}

void litmus_launch(litmus_t *t, int on, CUstream stream, CUdeviceptr to, unsigned value,
                   bool slow, bool programmatic) {
    unsigned spins = slow ? SLOW_SPINS : 0;
    void *params[] = {&to, &value, &spins};
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    attribute.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, stream, &attribute, 1};
    if (programmatic)
        MUST(cuLaunchKernelEx(&config, t->store[on][slow], params, NULL));
    else
        MUST(cuLaunchKernel(t->store[on][slow], 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

void litmus_old(litmus_t *t, CUstream stream) {
    litmus_launch(t, 0, stream, t->memory, 1, true, false);
}

void litmus_new(litmus_t *t, CUstream stream) {
    litmus_launch(t, 0, stream, t->memory, 2, false, false);
}

void litmus_own(litmus_t *t, CUdeviceptr memory, size_t bytes) {
    if (t->simulated && !t->allocator)
        owner_begin(memory, bytes);
}

void litmus_disown(litmus_t *t, CUdeviceptr memory) {
    if (t->simulated && !t->allocator)
        owner_end(memory);
}

static void take(litmus_t *t) {
    MUST(cuMemAlloc_v2(&t->memory, t->bytes));
    litmus_own(t, t->memory, t->bytes);
}

static void give(litmus_t *t) {
    litmus_disown(t, t->memory);
    MUST(cuMemFree_v2(t->memory));
}

/* Frees the memory and requests more until the same address comes back, or the device has no
 * more. */
static void give_and_take(litmus_t *t) {
    CUdeviceptr before = t->memory, kept[BLOCKS];
    int count = 0;
    give(t);
    do {
        if (cuMemAlloc_v2(&kept[count], t->bytes))
            break;
        count++;
    } while (count < BLOCKS && kept[count - 1] != before);
    if (!count)
        test_stop(TEST_BROKEN, "no memory");
    t->memory = kept[--count];
    t->reused += t->memory == before;
    while (count)
        MUST(cuMemFree_v2(kept[--count]));
}

void litmus_hand_over(litmus_t *t) {
    if (t->allocator) {
        give_and_take(t);
    } else {
        litmus_disown(t, t->memory);
        litmus_own(t, t->memory, t->bytes);
    }
}

void litmus_pause(litmus_t *t) {
    if (t->simulated)
        advance(100000);
    usleep(100);
}

unsigned litmus_look(litmus_t *t, const volatile unsigned *at) {
    unsigned found = *at;
    if (t->simulated)
        host_saw((const void *)at);
    return found;
}

void litmus_poll(litmus_t *t, const volatile unsigned *at, unsigned wanted) {
    while (litmus_look(t, at) != wanted)
        litmus_pause(t);
}

bool litmus_was_late(litmus_t *t, CUevent event) {
    return !t->allocator && cuEventQuery(event) == CUDA_SUCCESS;
}

static void finish(litmus_t *t) {
    if (t->devices > 1) {
        MUST(cuCtxSetCurrent(t->ctx[1]));
        MUST(cuCtxSynchronize());
    }
    MUST(cuCtxSetCurrent(t->ctx[0]));
    MUST(cuCtxSynchronize());
}

/* Returns the fault, or NULL if the case passed. */
static const char *judge(litmus_t *t, const litmus_case_t *one, unsigned long long found) {
    bool racy = one->what & RACY && !t->allocator;
    unsigned value = 0;
    if (racy)
        return found ? NULL : "is racy, and the race detector did not object";
    if (found)
        return "is ordered, and the race detector objected";
    MUST(cuMemcpyDtoH_v2(&value, t->memory, sizeof value));
    return value == 2 ? NULL : "does not leave the new owner's value in memory";
}

static bool applies(const litmus_t *t, const litmus_case_t *one) {
    if (one->what & RACY && !t->simulated)
        return false;
    if (one->what & DIRECT && t->allocator)
        return false;
    return !(one->what & TWO_DEVICES) || t->devices > 1;
}

/* Runs one case; true: passed. */
static bool run(litmus_t *t, const litmus_case_t *one) {
    take(t);
    finish(t);
    unsigned long long before = reports ? reports() : 0;
    one->run(t);
    unsigned long long found = reports ? reports() - before : 0;
    finish(t);
    if (reports && !(one->what & RACY && !t->allocator))
        found = reports() - before; /* work at the end of the case counts, too */
    const char *wrong = judge(t, one, found);
    printf("%s %s, %zu bytes%s%s\n", wrong ? "not ok" : "ok", one->name, t->bytes,
           wrong ? ": " : "", wrong ? wrong : "");
    give(t);
    return !wrong;
}

int main(void) {
    litmus_t t = {.bytes = BYTES};
    size_t ran = 0, failed = 0;
    test_may_lack = true;
    if (cuInit(0) || cuDeviceGetCount(&t.devices) || !t.devices)
        return 77;
    set_up(&t);
    for (size_t round = 0; round < (t.allocator ? ROUNDS : 1); round++)
        for (size_t i = 0; i < litmus_case_count; i++)
            if (applies(&t, &litmus_cases[i])) {
                t.bytes = round_bytes[round];
                failed += !run(&t, &litmus_cases[i]);
                ran++;
            }
    if (t.allocator)
        printf("handed over at the same address: %zu of %zu\n", t.reused, ran);
    return failed ? 1 : ran ? 0 : 77;
}
