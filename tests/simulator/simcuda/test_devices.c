/* Which devices a process sees (CUDA_VISIBLE_DEVICES), and contexts that are attached to. */
#include "sim_test.h"

/* Opens the driver on a machine of four devices. Returns the number of visible devices, or -1
 * if cuInit finds none. */
static int devices_with(const char *visible) {
    int count = -1;
    if (visible)
        setenv("CUDA_VISIBLE_DEVICES", visible, 1);
    else
        unsetenv("CUDA_VISIBLE_DEVICES");
    ck_assert_int_eq(simcuda_configure("devices:4"), 0);
    CUresult result = cuInit(0);
    if (result)
        ck_assert_uint_eq(result, CUDA_ERROR_NO_DEVICE);
    else
        OK(cuDeviceGetCount(&count));
    return count;
}

/* Returns the bus number of the device: its number in the machine, from 1. */
static int bus_of(CUdevice device) {
    int bus;
    CUdevice back = -1;
    char id[32];
    OK(cuDeviceGetAttribute(&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, device));
    OK(cuDeviceGetPCIBusId(id, sizeof id, device));
    OK(cuDeviceGetByPCIBusId(&back, id));
    ck_assert_int_eq(back, device);
    return bus;
}

START_TEST(all_without_the_variable) {
    ck_assert_int_eq(devices_with(NULL), 4);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(bus_of(i), i + 1);
}
END_TEST

START_TEST(the_list_orders_them) {
    CUuuid uuid;
    CUdevice hidden;
    ck_assert_int_eq(devices_with("3,1"), 2);
    ck_assert_int_eq(bus_of(0), 4);
    ck_assert_int_eq(bus_of(1), 2);
    OK(cuDeviceGetUuid_v2(&uuid, 0));
    ck_assert_int_eq(uuid.bytes[15], 3);
    GIVES(cuDeviceGet(&hidden, 2), CUDA_ERROR_INVALID_DEVICE);
    GIVES(cuDeviceGetByPCIBusId(&hidden, "0000:01:00.0"), CUDA_ERROR_INVALID_DEVICE);
}
END_TEST

static const struct {
    const char *list;
    int count;
} lists[] = {
    {"", -1},
    {"-1", -1},
    {"0,9,1", 1},
    {"2,x", 1},
    {"1x,0", -1},
    {"0,0", -1},
    {"GPU-73696d75-6c61-7465-642d-637564612d02,0", 2},
    {"gpu-73696d75-6c61-7465-642d-637564612d01", 1},
    {"GPU-73696d75-6c61", -1}, /* the beginning of all of them */
    {"GPU-00000000-0000-0000-0000-000000000000,0", -1},
    {"GPU-73696d75-6c61-7465-642d-637564612d02-1", -1},
};

START_TEST(an_invalid_entry_ends_it) {
    ck_assert_int_eq(devices_with(lists[_i].list), lists[_i].count);
    if (lists[_i].count == 2)
        ck_assert_int_eq(bus_of(0), 3);
}
END_TEST

START_TEST(detaching_ends_with_the_last_use) {
    CUcontext ctx, again = NULL;
    unsigned long long id;
    OK(cuInit(0));
    OK(cuCtxCreate_v2(&ctx, 0, 0));
    OK(cuCtxAttach(&again, 0));
    ck_assert_ptr_eq(again, ctx);
    GIVES(cuCtxAttach(&again, 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuCtxDetach(ctx));
    OK(cuCtxGetId(ctx, &id));
    OK(cuCtxDetach(ctx));
    GIVES(cuCtxGetId(ctx, &id), CUDA_ERROR_INVALID_CONTEXT);
    GIVES(cuCtxDetach(ctx), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuCtxGetCurrent(&ctx));
    ck_assert_ptr_null(ctx);
}
END_TEST

START_TEST(only_the_current_context_is_detached_from) {
    CUcontext ctx, primary;
    OK(cuInit(0));
    OK(cuCtxCreate_v2(&ctx, 0, 0));
    OK(cuCtxSetCurrent(NULL));
    GIVES(cuCtxDetach(ctx), CUDA_ERROR_INVALID_CONTEXT);
    GIVES(cuCtxAttach(&ctx, 0), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuCtxSetCurrent(primary));
    GIVES(cuCtxDetach(primary), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuCtxAttach(&ctx, 0));
    OK(cuCtxDetach(primary)); /* the primary context stays retained */
    OK(cuCtxSynchronize());
}
END_TEST

int main(void) {
    Suite *suite = suite_create("devices");
    TCase *t = tcase_create("devices");
    suite_add_tcase(suite, t);
    tcase_add_test(t, all_without_the_variable);
    tcase_add_test(t, the_list_orders_them);
    tcase_add_loop_test(t, an_invalid_entry_ends_it, 0, sizeof lists / sizeof *lists);
    tcase_add_test(t, detaching_ends_with_the_last_use);
    tcase_add_test(t, only_the_current_context_is_detached_from);
    return run_suite(suite);
}
