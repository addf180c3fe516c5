/* Answers of the management library to a process with a limit of 256 MiB, looked up or linked.
 *
 * usage: ask_nvml CASE LIBRARY OTHER    OTHER: a library of another name with the same
 * functions */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "nvml.h"

#define MIB ((unsigned long long)1 << 20)

static memory_info_fn *info;
static memory_info_v2_fn *info_v2;
static void *(*device_with)(const char *);

static void *found(void *library, const char *name) {
    void *function = dlsym(library, name);
    NEED(function);
    return function;
}

static void find(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    NEED(library);
    info = __extension__(memory_info_fn *) found(library, "nvmlDeviceGetMemoryInfo");
    info_v2 = __extension__(memory_info_v2_fn *) found(library, "nvmlDeviceGetMemoryInfo_v2");
    device_with = __extension__(void *(*)(const char *)) found(library, "fake_device");
}

static void tells(void *device, unsigned long long total, unsigned long long room,
                  unsigned long long reserved) {
    nvmlMemory_t memory;
    nvmlMemory_v2_t second = {.version = nvmlMemory_v2};
    GIVES(info(device, &memory), 0);
    EXPECT(memory.total == total * MIB && memory.free == room * MIB);
    EXPECT(memory.used == memory.total - memory.free);
    GIVES(info_v2(device, &second), 0);
    EXPECT(second.total == total * MIB && second.free == room * MIB);
    EXPECT(second.reserved == reserved * MIB);
    EXPECT(second.total == second.reserved + second.free + second.used);
    second.version = 7;
    GIVES(info_v2(device, &second), 25);
    GIVES(info(device, NULL), 2);
    GIVES(info(NULL, &memory), 2);
}

/* Which device there is, from a process that uses CUDA: this one does not. */
static void child_asks(CUuuid *uuid) {
    int ends[2], status;
    NEED(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        test_device(0);
        MUST(cuDeviceGetUuid(uuid, 0));
        _exit(write(ends[1], uuid, sizeof *uuid) != sizeof *uuid);
    }
    NEED(waitpid(child, &status, 0) == child && status == 0);
    NEED(read(ends[0], uuid, sizeof *uuid) == sizeof *uuid);
}

int main(int argc, char **argv) {
    NEED(argc == 4);
    bool limited = !strcmp(argv[1], "limit"), other = !strcmp(argv[1], "other");
    find(other ? argv[3] : argv[2]);
#ifdef LINKED
    if (!other) {
        info = nvmlDeviceGetMemoryInfo;
        info_v2 = nvmlDeviceGetMemoryInfo_v2;
        device_with = fake_device;
    }
#endif
    CUuuid uuid;
    CUdeviceptr p;
    if (!strcmp(argv[1], "no_cuda")) {
        child_asks(&uuid);
        tells(device_with(uuid.bytes), 1024, 1000, 24);
        return 0;
    }
    test_device(0);
    MUST(cuMemAlloc_v2(&p, 100 * MIB));
    MUST(cuDeviceGetUuid(&uuid, 0));
    tells(device_with(uuid.bytes), limited ? 256 : 1024, limited ? 156 : 1000, limited ? 0 : 24);
    MUST(cuDeviceGetUuid(&uuid, 1)); /* not used yet */
    tells(device_with(uuid.bytes), limited ? 256 : 1024, limited ? 256 : 1000, limited ? 0 : 24);
    tells(device_with(NULL), 1024, 1000, 24);
    return 0;
}
