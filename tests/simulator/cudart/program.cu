// The code that nvcc generates around a kernel, on the stand-in runtime: registration before main,
// a launch with <<<>>>, a device variable.  It runs with the shared and with the static library.  A
// kernel computes on the simulated device only if a host function is registered for its name.
#include <cstdio>
#include <cstring>

#include <cuda_runtime.h>

__device__ int offset[4];

extern "C" __global__ void add_one(int *values, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        values[i] += 1;
    }
}

extern "C" int register_add_one(void); // program_kernel.c

#define CHECK(call)                                                                           \
    do {                                                                                      \
        cudaError_t error = (call);                                                           \
        if (error != cudaSuccess) {                                                           \
            printf("line %d: %s: %s\n", __LINE__, #call, cudaGetErrorName(error));            \
            return 1;                                                                         \
        }                                                                                     \
    } while (0)

int main() {
    if (register_add_one() != 0) {
        printf("the driver is not the simulated one\n");
        return 77;
    }
    const int n = 1000;
    int values[n], back[4] = {0}, numbers[4] = {3, 1, 4, 1}, count = 0, *device = nullptr;
    cudaDeviceProp properties;
    cudaStream_t stream;
    for (int i = 0; i < n; i++) {
        values[i] = i;
    }
    CHECK(cudaGetDeviceCount(&count));
    CHECK(cudaGetDeviceProperties(&properties, 0));
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMalloc(&device, sizeof values));
    CHECK(cudaMemcpyAsync(device, values, sizeof values, cudaMemcpyHostToDevice, stream));
    add_one<<<(n + 255) / 256, 256, 0, stream>>>(device, n);
    add_one<<<(n + 255) / 256, 256, 0, stream>>>(device, n);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpyAsync(values, device, sizeof values, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpyToSymbol(offset, numbers, sizeof numbers));
    CHECK(cudaMemcpyFromSymbol(back, offset, sizeof back));
    CHECK(cudaFree(device));
    CHECK(cudaStreamDestroy(stream));
    for (int i = 0; i < n; i++) {
        if (values[i] != i + 2) {
            printf("values[%d] is %d\n", i, values[i]);
            return 1;
        }
    }
    if (memcmp(back, numbers, sizeof back) != 0) {
        printf("the variable did not keep its value\n");
        return 1;
    }
    printf("%d device(s), %s, %d values right\n", count, properties.name, n);
    return 0;
}
