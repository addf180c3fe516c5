/* Probes of memory and events shared between processes.
 *
 * The other process runs `gpu_guesses --twin`.  It exports a block, and frees it or ends on
 * request. */
#include "guesses.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCK = 3 << 20, TWIN_S = 12 };

typedef struct {
    pid_t pid;
    int to, from;
    CUipcMemHandle handle;
} twin_t;

/* Exports a block, and frees it for every byte on standard input. */
int guess_twin(void) {
    CUipcMemHandle handle;
    CUdeviceptr memory;
    char word = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(TWIN_S);
    if (!gpu_open() || cu.cuMemAlloc_v2(&memory, BLOCK) || cu.cuIpcGetMemHandle(&handle, memory))
        return 1;
    ssize_t sent = write(STDOUT_FILENO, &handle, sizeof handle);
    while (sent > 0 && read(STDIN_FILENO, &word, 1) == 1) {
        word = (char)cu.cuMemFree_v2(memory);
        sent = write(STDOUT_FILENO, &word, 1);
    }
    return 0;
}

static bool twin_start(twin_t *twin) {
    int in[2], out[2];
    if (pipe(in) || pipe(out))
        return false;
    twin->pid = fork();
    if (twin->pid == 0) {
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        close(in[1]);
        close(out[0]);
        execl("/proc/self/exe", "gpu_guesses", "--twin", (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    twin->to = in[1];
    twin->from = out[0];
    return twin->pid > 0 &&
           read(twin->from, &twin->handle, sizeof twin->handle) == sizeof twin->handle;
}

static void twin_end(const twin_t *twin) {
    if (twin->pid <= 0)
        return;
    kill(twin->pid, SIGKILL);
    waitpid(twin->pid, NULL, 0);
    close(twin->to);
    close(twin->from);
}

static const char *opened(const twin_t *twin, CUdeviceptr *memory) {
    return gpu_error(
        cu.cuIpcOpenMemHandle_v2(memory, twin->handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
}

static bool has_twin(twin_t *twin) {
    bool there = twin_start(twin);
    if (!there) {
        twin_end(twin);
        say("not here");
    }
    return there;
}

void guess_ipc_twice(void) {
    twin_t twin = {0};
    CUdeviceptr first = 0, second = 0;
    if (!has_twin(&twin))
        return;
    say("%s, ", opened(&twin, &first));
    say("%s, ", opened(&twin, &second));
    say("%s address; ", first == second ? "same" : "another");
    say("inside %s, ", gpu_error(cu.cuIpcCloseMemHandle(first + KIB)));
    say("%s, ", gpu_error(cu.cuIpcCloseMemHandle(first)));
    say("%s, ", gpu_error(cu.cuIpcCloseMemHandle(second)));
    say("%s", gpu_error(cu.cuIpcCloseMemHandle(first)));
    twin_end(&twin);
}

void guess_ipc_again(void) {
    twin_t twin = {0};
    CUipcMemHandle handle;
    CUdeviceptr memory = 0;
    if (!has_twin(&twin))
        return;
    opened(&twin, &memory);
    say("%s, ", gpu_error(cu.cuIpcGetMemHandle(&handle, memory)));
    say("freed %s", gpu_error(cu.cuMemFree_v2(memory)));
    twin_end(&twin);
}

/* Opens and closes a handle during a capture in global mode, the strictest mode. */
void guess_ipc_captured(void) {
    twin_t twin = {0};
    CUstream stream = a_stream(CU_STREAM_NON_BLOCKING);
    CUgraph graph = NULL;
    CUdeviceptr memory = 0;
    if (!has_twin(&twin))
        return;
    MUST(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    say("opened %s, ", opened(&twin, &memory));
    say("closed %s, ", gpu_error(cu.cuIpcCloseMemHandle(memory)));
    say("capture %s", gpu_error(cu.cuStreamEndCapture(stream, &graph)));
    twin_end(&twin);
}

void guess_ipc_freed(void) {
    twin_t twin = {0};
    CUdeviceptr memory = 0;
    char word = 0;
    if (!has_twin(&twin))
        return;
    bool freed = write(twin.to, &word, 1) == 1 && read(twin.from, &word, 1) == 1 && !word;
    say("%s", freed ? opened(&twin, &memory) : "not freed");
    twin_end(&twin);
}

void guess_ipc_ended(void) {
    twin_t twin = {0};
    CUdeviceptr memory = 0, late = 0;
    unsigned word;
    if (!has_twin(&twin))
        return;
    opened(&twin, &memory);
    twin_end(&twin);
    say("what is open is read %s, ", gpu_error(cu.cuMemcpyDtoH_v2(&word, memory, sizeof word)));
    say("closed %s, ", gpu_error(cu.cuIpcCloseMemHandle(memory)));
    say("opened %s", opened(&twin, &late));
}

void guess_ipc_stopped(void) {
    twin_t twin = {0};
    CUdeviceptr memory = 0;
    int status = 0;
    if (!has_twin(&twin))
        return;
    bool stopped = !kill(twin.pid, SIGSTOP) &&
                   waitpid(twin.pid, &status, WUNTRACED) == twin.pid && WIFSTOPPED(status);
    say("%s", stopped ? opened(&twin, &memory) : "not stopped");
    twin_end(&twin);
}

void guess_ipc_own(void) {
    twin_t self = {0};
    CUdeviceptr memory;
    MUST(cu.cuIpcGetMemHandle(&self.handle, some_memory(BLOCK)));
    say("%s", opened(&self, &memory));
}

void guess_ipc_close(void) {
    say("own memory %s, ", gpu_error(cu.cuIpcCloseMemHandle(some_memory(BLOCK))));
    say("nothing %s", gpu_error(cu.cuIpcCloseMemHandle(0)));
}

void guess_ipc_flags(void) {
    twin_t self = {0};
    CUdeviceptr memory;
    MUST(cu.cuIpcGetMemHandle(&self.handle, some_memory(BLOCK)));
    say("%s", gpu_error(cu.cuIpcOpenMemHandle_v2(&memory, self.handle, 0)));
}

void guess_ipc_others(void) {
    CUipcMemHandle handle;
    CUdeviceptr managed = 0, pooled = 0;
    size_t bytes;
    CUdeviceptr mapped = mapped_memory(&bytes);
    bool has = GPU_HAS(cuMemAllocManaged) && !cu.cuMemAllocManaged(&managed, KIB, 1);
    say("managed %s, ", has ? gpu_error(cu.cuIpcGetMemHandle(&handle, managed)) : "not here");
    say("mapped %s, ", mapped ? gpu_error(cu.cuIpcGetMemHandle(&handle, mapped)) : "not here");
    has = GPU_HAS(cuMemAllocAsync) && !cu.cuMemAllocAsync(&pooled, KIB, NULL);
    say("pool's %s", has ? gpu_error(cu.cuIpcGetMemHandle(&handle, pooled)) : "not here");
}

/* Opens handles of 64 bytes that no driver made; a library could pass them on. */
void guess_ipc_garbage(void) {
    static const unsigned char fills[] = {0x5a, 0x00, 0xff};
    twin_t none = {0};
    CUdeviceptr memory;
    for (size_t i = 0; i < sizeof fills; i++) {
        memset(&none.handle, fills[i], sizeof none.handle);
        say_also(opened(&none, &memory));
    }
}

/* ---------------------------------------------------------------- events */

static CUevent interprocess_event(void) {
    CUevent event;
    MUST(cu.cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    return event;
}

void guess_ipc_event_plain(void) {
    CUipcEventHandle handle;
    CUevent timed = NULL;
    say("%s, ", gpu_error(cu.cuIpcGetEventHandle(&handle, an_event())));
    say("created with times %s", gpu_error(cu.cuEventCreate(&timed, CU_EVENT_INTERPROCESS)));
}

void guess_ipc_event_own(void) {
    CUipcEventHandle handle;
    CUevent event;
    MUST(cu.cuIpcGetEventHandle(&handle, interprocess_event()));
    say("%s", gpu_error(cu.cuIpcOpenEventHandle(&event, handle)));
}

void guess_ipc_event_garbage(void) {
    CUipcEventHandle handle;
    CUevent event;
    memset(&handle, 0x5a, sizeof handle);
    say("%s", gpu_error(cu.cuIpcOpenEventHandle(&event, handle)));
}
