/* `accelcache doctor`: is the CUDA driver there.  cuInit may crash, hang or leave state behind,
 * so a child asks; it is this command again, without preloaded libraries, so that the answer is
 * the driver's own and no statistics arise. */
#include "base/child.h"
#include "command.h"
#include "device/cuda_abi.h"
#include "run/doctor.h"
#include "run/place.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* KILLED_MS: until one that was killed is gone.  It is not while it hangs inside the kernel. */
enum { LIMIT_MS = 10000, KILLED_MS = 2000, REPLY = 4096 };

/* ------------------------------------------------------------------ the child */

int cmd_doctor_probe(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver) {
        printf("missing %s\n", dlerror());
        return CMD_OK;
    }
    struct link_map *map;
    if (dlinfo(driver, RTLD_DI_LINKMAP, &map) == 0)
        printf("path %s\n", map->l_name);
    cuInit_fn *init;
    cuDriverGetVersion_fn *get_version;
    cuDeviceGetCount_fn *get_count;
    cuDeviceGetName_fn *get_name;
    cuGetErrorName_fn *error_name;
    *(void **)&init = dlsym(driver, "cuInit");
    *(void **)&get_version = dlsym(driver, "cuDriverGetVersion");
    *(void **)&get_count = dlsym(driver, "cuDeviceGetCount");
    *(void **)&get_name = dlsym(driver, "cuDeviceGetName");
    *(void **)&error_name = dlsym(driver, "cuGetErrorName");
    int version = 0, count = 0;
    if (get_version && get_version(&version) == CUDA_SUCCESS)
        printf("version %d\n", version);
    if (!init || !get_count) {
        puts("broken it exports no cuInit");
        return CMD_OK;
    }
    fflush(stdout); /* cuInit may be the end */
    CUresult result = init(0);
    if (result == CUDA_SUCCESS)
        result = get_count(&count);
    if (result != CUDA_SUCCESS) {
        const char *name = NULL;
        if (!error_name || error_name(result, &name) != CUDA_SUCCESS || !name)
            name = "an error";
        printf("error %d %s\n", (int)result, name);
        return CMD_OK;
    }
    printf("devices %d\n", count);
    for (int i = 0; get_name && i < count && i < 16; i++) {
        char name[128] = "";
        if (get_name(name, sizeof name, i) == CUDA_SUCCESS)
            printf("device %d: %s\n", i, name);
    }
    return CMD_OK;
}

/* ------------------------------------------------------------------ the parent */

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void become_probe(const char *folder, int out) {
    unsetenv("LD_PRELOAD");
    if (folder) {
        char *path = cmd_place_prepend(folder, getenv("LD_LIBRARY_PATH"));
        setenv("LD_LIBRARY_PATH", path, 1);
    }
    char *const argv[] = {(char *)(uintptr_t) "accelcache", (char *)(uintptr_t) "doctor",
                          (char *)(uintptr_t) "--probe-driver", NULL};
    if (dup2(out, STDOUT_FILENO) >= 0)
        execv("/proc/self/exe", argv);
    _exit(CMD_CANNOT_RUN);
}

/* Reads the output of the child into `reply`, and its wait status.  0, or an errno: ETIMEDOUT, it had to be
 * ended. */
static int ask(const char *folder, char reply[REPLY], int *status) {
    int pipe_fd[2], error;
    reply[0] = '\0';
    if (pipe(pipe_fd))
        return errno;
    fflush(NULL);
    pid_t pid = fork();
    error = errno;
    if (pid == 0) {
        close(pipe_fd[0]);
        become_probe(folder, pipe_fd[1]);
    }
    close(pipe_fd[1]);
    int64_t end = now_ms() + LIMIT_MS;
    size_t used = 0;
    bool closed = pid < 0;
    while (!closed) {
        struct pollfd wait = {.fd = pipe_fd[0], .events = POLLIN};
        int64_t left = end - now_ms();
        int ready = left > 0 ? poll(&wait, 1, (int)left) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            break;
        char spare[256];
        bool full = used + 1 >= REPLY;
        ssize_t n = full ? read(pipe_fd[0], spare, sizeof spare)
                         : read(pipe_fd[0], reply + used, REPLY - 1 - used);
        closed = n <= 0 && !(n < 0 && errno == EINTR);
        if (n > 0 && !full)
            used += (size_t)n;
    }
    reply[used] = '\0';
    close(pipe_fd[0]);
    if (pid < 0)
        return error;
    /* The pipe closes when the child ends; one that hangs behind a closed pipe is ended too. */
    int64_t left = end - now_ms();
    error = closed ? cmd_child_wait_for(pid, status, left > 0 ? (int)left : 0) : ETIMEDOUT;
    if (error == ETIMEDOUT) {
        kill(pid, SIGKILL);
        cmd_child_wait_for(pid, status, KILLED_MS);
    }
    return error;
}

/* The line of `reply` that begins with `key`, without it; NULL when there is none. */
static char *line_of(const char *reply, const char *key) {
    size_t length = strlen(key);
    for (const char *line = reply; *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (!strncmp(line, key, length) && line[length] == ' ')
            return cmd_format("%.*s", (int)strcspn(line + length + 1, "\n"), line + length + 1);
    return NULL;
}

static const char *remedy(int error) {
    switch (error) {
    case CUDA_ERROR_NO_DEVICE:
        return "no GPU is visible: is CUDA_VISIBLE_DEVICES empty, the container started without "
               "--gpus, the node without one?";
    case 803: /* system driver mismatch */
        return "the kernel's driver and libcuda.so.1 are of different versions: reboot, or "
               "update the container";
    case 804: /* forward compatibility on hardware without it */
        return "a compatibility libcuda does not work on this GPU: take its folder out of "
               "LD_LIBRARY_PATH";
    case CUDA_ERROR_UNKNOWN:
        return "is the kernel module loaded (nvidia-smi, /dev/nvidia*)?";
    default:
        return "nvidia-smi may say more";
    }
}

void cmd_doctor_driver(cmd_findings_t *findings, const char *folder) {
    char reply[REPLY];
    int status, failed = ask(folder, reply, &status);
    char *missing = line_of(reply, "missing"), *path = line_of(reply, "path");
    char *error = line_of(reply, "error"), *devices = line_of(reply, "devices");
    char *version_text = line_of(reply, "version"), *broken = line_of(reply, "broken");
    int version = version_text ? atoi(version_text) : 0;
    if (missing)
        cmd_finding(findings, CMD_FINDING_PROBLEM, "driver",
                    "libcuda.so.1 cannot be loaded (%s); without NVIDIA's driver only the "
                    "simulated device is left: accelcache run --sim",
                    missing);
    else if (broken)
        cmd_finding(findings, CMD_FINDING_PROBLEM, "driver", "%s: %s", path ? path : "?", broken);
    else if (error)
        cmd_finding(findings, CMD_FINDING_PROBLEM, "driver", "%s answers %s to cuInit: %s",
                    path ? path : "libcuda.so.1", error, remedy(atoi(error)));
    else if (failed && failed != ETIMEDOUT)
        cmd_finding(findings, CMD_FINDING_PROBLEM, "driver",
                    "the driver could not be asked: a child process failed: %s",
                    strerror(failed));
    else if (failed)
        cmd_finding(findings, CMD_FINDING_PROBLEM, "driver",
                    "%s did not answer cuInit within %d s: is a GPU or another process of the "
                    "driver stuck?",
                    path ? path : "libcuda.so.1", LIMIT_MS / 1000);
    else if (WIFSIGNALED(status))
        cmd_finding(findings, CMD_FINDING_PROBLEM, "driver", "%s crashed in cuInit (signal %d)",
                    path ? path : "libcuda.so.1", WTERMSIG(status));
    else if (!devices)
        cmd_finding(findings, CMD_FINDING_PROBLEM, "driver",
                    "the driver could not be asked (status %d)", WEXITSTATUS(status));
    else
        cmd_finding(findings, atoi(devices) > 0 ? CMD_FINDING_OK : CMD_FINDING_PROBLEM, "driver",
                    "%s, CUDA %d.%d, %s device%s", path ? path : "libcuda.so.1", version / 1000,
                    version % 1000 / 10, devices, atoi(devices) == 1 ? "" : "s");
    if (version && version < 11000)
        cmd_finding(findings, CMD_FINDING_PROBLEM, "driver",
                    "drivers before CUDA 11 are not supported");
    else if (version && version < 12050)
        cmd_finding(findings, CMD_FINDING_NOTE, "driver",
                    "before CUDA 12.5 a fence is an event on each stream: freeing with work "
                    "pending costs more");
    for (int i = 0; i < 16; i++) {
        char key[32];
        snprintf(key, sizeof key, "device %d:", i);
        char *name = line_of(reply, key);
        if (name)
            cmd_finding(findings, CMD_FINDING_OK, "device", "%d: %s", i, name);
        free(name);
    }
    char *const owned[] = {missing, path, error, devices, version_text, broken};
    for (unsigned i = 0; i < sizeof owned / sizeof owned[0]; i++)
        free(owned[i]);
}
