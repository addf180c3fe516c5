/* Arrays and copies from and to them: cuda.h, cuArrayCreate to cuArrayGetMemoryRequirements. */
#include "extra.h"

static CUDA_ARRAY_DESCRIPTOR flat(size_t width, size_t height) {
    return (CUDA_ARRAY_DESCRIPTOR){width, height, CU_AD_FORMAT_UNSIGNED_INT32, 1};
}

START_TEST(life_of_an_array) {
    CUarray array;
    CUDA_ARRAY_DESCRIPTOR shape = flat(100, 7), got;
    CUDA_ARRAY3D_DESCRIPTOR got3;
    OK(cuArrayCreate_v2(&array, &shape));
    ck_assert_uint_ge(simcuda_used_memory(0), 100 * 7 * 4);
    OK(cuArrayGetDescriptor_v2(&got, array));
    ck_assert_uint_eq(got.Width, 100);
    ck_assert_uint_eq(got.Height, 7);
    OK(cuArray3DGetDescriptor_v2(&got3, array));
    ck_assert_uint_eq(got3.Depth, 0);
    CUDA_ARRAY_MEMORY_REQUIREMENTS needs;
    GIVES(cuArrayGetMemoryRequirements(&needs, array, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuArrayDestroy(array));
    ck_assert_uint_eq(simcuda_used_memory(0), 0);
    GIVES(cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
    GIVES(cuArrayGetDescriptor_v2(&got, array), CUDA_ERROR_INVALID_HANDLE);
}
END_TEST

START_TEST(creation_is_checked) {
    CUarray array;
    CUDA_ARRAY_DESCRIPTOR shape = flat(0, 7);
    GIVES(cuArrayCreate_v2(&array, &shape), CUDA_ERROR_INVALID_VALUE);
    shape = flat(10, 7);
    shape.NumChannels = 3;
    GIVES(cuArrayCreate_v2(&array, &shape), CUDA_ERROR_INVALID_VALUE);
    shape.NumChannels = 1;
    shape.Format = 77;
    GIVES(cuArrayCreate_v2(&array, &shape), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuArrayCreate_v2(&array, NULL), CUDA_ERROR_INVALID_VALUE);
    shape = flat(1 << 15, 1 << 15); /* 4 GiB */
    GIVES(cuArrayCreate_v2(&array, &shape), CUDA_ERROR_OUT_OF_MEMORY);
    shape = flat(SIZE_MAX / 2, SIZE_MAX / 2);
    GIVES(cuArrayCreate_v2(&array, &shape), CUDA_ERROR_OUT_OF_MEMORY);
    shape = flat(8, 8);
    GIVES(cuArrayCreate_v2(NULL, &shape), CUDA_ERROR_INVALID_VALUE);
    OK(cuCtxSetCurrent(NULL));
    GIVES(cuArrayCreate_v2(&array, &shape), CUDA_ERROR_INVALID_CONTEXT);
}
END_TEST

START_TEST(one_dimensional_copies) {
    unsigned in[64], out[64] = {0};
    for (unsigned i = 0; i < 64; i++)
        in[i] = i * i + 1;
    CUarray a, b;
    CUdeviceptr p;
    CUDA_ARRAY_DESCRIPTOR shape = flat(64, 0);
    OK(cuArrayCreate_v2(&a, &shape));
    OK(cuArrayCreate_v2(&b, &shape));
    OK(cuMemAlloc_v2(&p, sizeof in));
    CUstream s = extra_stream();
    OK(cuMemcpyHtoA_v2(a, 0, in, sizeof in));
    OK(cuMemcpyAtoA_v2(b, 32, a, 64, 64));
    OK(cuMemcpyAtoD_v2(p, b, 32, 64));
    OK(cuMemcpyDtoA_v2(a, 0, p, 64));
    OK(cuCtxSynchronize()); /* copies inside the device do not wait */
    OK(cuMemcpyAtoHAsync_v2(out, a, 0, sizeof out, s));
    OK(cuStreamSynchronize(s));
    for (unsigned i = 0; i < 64; i++)
        ck_assert_uint_eq(out[i], i < 16 ? in[i + 16] : in[i]);
    OK(cuMemcpyAtoH_v2(out, b, 32, 64));
    ck_assert_mem_eq(out, in + 16, 64);
    GIVES(cuMemcpyAtoH_v2(out, (CUarray)(uintptr_t)0x1234, 0, 4), CUDA_ERROR_INVALID_HANDLE);
}
END_TEST

/* A box out of the middle of one array into the middle of another, and to the host. */
START_TEST(boxes) {
    enum { W = 9, H = 7, D = 5 };
    unsigned in[D][H][W], out[2][3][4];
    for (unsigned z = 0; z < D; z++)
        for (unsigned y = 0; y < H; y++)
            for (unsigned x = 0; x < W; x++)
                in[z][y][x] = z * 10000 + y * 100 + x;
    CUDA_ARRAY3D_DESCRIPTOR shape = {W, H, D, CU_AD_FORMAT_UNSIGNED_INT32, 1, 0};
    CUarray a, b;
    OK(cuArray3DCreate_v2(&a, &shape));
    OK(cuArray3DCreate_v2(&b, &shape));
    CUDA_MEMCPY3D whole = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                           .srcHost = in,
                           .srcPitch = sizeof in[0][0],
                           .srcHeight = H,
                           .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                           .dstArray = a,
                           .WidthInBytes = sizeof in[0][0],
                           .Height = H,
                           .Depth = D};
    OK(cuMemcpy3D_v2(&whole));
    CUDA_MEMCPY3D box = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                         .srcArray = a,
                         .srcXInBytes = 2 * 4,
                         .srcY = 1,
                         .srcZ = 2,
                         .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                         .dstArray = b,
                         .dstXInBytes = 4,
                         .dstY = 3,
                         .dstZ = 1,
                         .WidthInBytes = 4 * 4,
                         .Height = 3,
                         .Depth = 2};
    OK(cuMemcpy3D_v2(&box));
    CUDA_MEMCPY3D back = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                          .srcArray = b,
                          .srcXInBytes = 4,
                          .srcY = 3,
                          .srcZ = 1,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = out,
                          .dstPitch = sizeof out[0][0],
                          .dstHeight = 3,
                          .WidthInBytes = 4 * 4,
                          .Height = 3,
                          .Depth = 2};
    OK(cuMemcpy3D_v2(&back));
    for (unsigned z = 0; z < 2; z++)
        for (unsigned y = 0; y < 3; y++)
            for (unsigned x = 0; x < 4; x++)
                ck_assert_uint_eq(out[z][y][x], in[z + 2][y + 1][x + 2]);
    box.srcZ = 4; /* over the end */
    GIVES(cuMemcpy3D_v2(&box), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(arrays_go_with_their_context) {
    CUcontext ctx;
    CUarray array;
    CUDA_ARRAY_DESCRIPTOR shape = flat(100, 100);
    OK(cuCtxCreate_v2(&ctx, 0, 0));
    unsigned long long before = simcuda_used_memory(0);
    OK(cuArrayCreate_v2(&array, &shape));
    ck_assert_uint_gt(simcuda_used_memory(0), before);
    OK(cuCtxDestroy_v2(ctx));
    ck_assert_uint_eq(simcuda_used_memory(0), before);
    OK(cuCtxSetCurrent(extra_ctx));
    GIVES(cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
}
END_TEST

/* The descriptions as the driver lays them out: CUDA_RESOURCE_DESC and CUDA_TEXTURE_DESC. */
typedef union {
    struct {
        unsigned type, pad;
        uint64_t memory;
    } head;
    unsigned char bytes[144];
} description_t;

START_TEST(texture_objects_say_what_they_were_made_of) {
    enum { ARRAY = 0, LINEAR = 2, PITCH2D = 3 };
    static const unsigned char sampler[104] = {2, 0, 0, 0, 1};
    CUarray array;
    CUDA_ARRAY_DESCRIPTOR shape = flat(16, 16);
    CUdeviceptr p;
    CUtexObject texture = 0, second;
    CUsurfObject surface = 0;
    OK(cuArrayCreate_v2(&array, &shape));
    OK(cuMemAlloc_v2(&p, 4096));
    description_t of_memory = {.head = {PITCH2D, 0, p + 512}},
                  of_array = {.head = {ARRAY, 0, (uintptr_t)array}}, back, sampler_back;
    of_memory.bytes[143] = 7;
    const void *memory = &of_memory, *storage = &of_array, *how = sampler;
    void *out = &back, *sampler_out = &sampler_back;
    OK(cuTexObjectCreate(&texture, memory, how, NULL));
    OK(cuTexObjectCreate(&second, storage, how, NULL));
    ck_assert(texture && second && texture != second);
    OK(cuTexObjectGetResourceDesc(out, texture));
    ck_assert_mem_eq(&back, &of_memory, sizeof back);
    OK(cuTexObjectGetTextureDesc(sampler_out, texture));
    ck_assert_mem_eq(&sampler_back, sampler, sizeof sampler);
    GIVES(cuTexObjectGetResourceViewDesc(out, texture), CUDA_ERROR_INVALID_VALUE);
    OK(cuSurfObjectCreate(&surface, storage));
    GIVES(cuSurfObjectCreate(&surface, memory), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuTexObjectDestroy(surface), CUDA_ERROR_INVALID_VALUE);
    OK(cuSurfObjectDestroy(surface));
    OK(cuTexObjectDestroy(texture));
    GIVES(cuTexObjectDestroy(texture), CUDA_ERROR_INVALID_VALUE);
    OK(cuTexObjectDestroy(second));
    GIVES(cuTexObjectCreate(&texture, memory, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    of_memory.head.memory = 4096; /* no memory of a device */
    GIVES(cuTexObjectCreate(&texture, memory, how, NULL), CUDA_ERROR_INVALID_VALUE);
    of_memory.head.type = 9;
    GIVES(cuTexObjectCreate(&texture, memory, how, NULL), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

int main(void) {
    TCase *t;
    Suite *suite = extra_suite("arrays", &t);
    tcase_add_test(t, life_of_an_array);
    tcase_add_test(t, creation_is_checked);
    tcase_add_test(t, one_dimensional_copies);
    tcase_add_test(t, boxes);
    tcase_add_test(t, arrays_go_with_their_context);
    tcase_add_test(t, texture_objects_say_what_they_were_made_of);
    return run_suite(suite);
}
