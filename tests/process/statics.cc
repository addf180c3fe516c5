// Blocks freed by static destructors: of an object made before CUDA was used, and of one after.
#include <cstdio>
#include <cstdlib>

typedef unsigned long long CUdeviceptr;
extern "C" {
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuMemAlloc_v2(CUdeviceptr *, std::size_t);
int cuMemFree_v2(CUdeviceptr);
}

struct Holder {
    CUdeviceptr block = 0;
    void fill() {
        if (cuMemAlloc_v2(&block, 1 << 20))
            std::abort();
    }
    ~Holder() {
        if (block && cuMemFree_v2(block))
            std::fputs("free failed\n", stderr);
    }
};

static Holder early;

static Holder &late() {
    static Holder holder;
    return holder;
}

static thread_local Holder in_thread;

int main() {
    void *context;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context))
        return 99;
    early.fill();
    late().fill();
    in_thread.fill();
    return 0;
}
