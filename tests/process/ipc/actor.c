/* Starts actors, and executes their requests. */
#include "actor.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

enum { ACTORS = 16, LIMIT_S = 60, SLOW_NS = 60000000 };

bool under_library, on_pages;

static actor_t actors[ACTORS];

/* ---------------------------------------------------------------- the script's side */

static void become_actor(int socket, under_t under) {
    char number[16], conf[256];
    bool preload = under == AS_CASE ? under_library : under == WITH_LIBRARY;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(getenv("AC_EMULATED") ? 10 * LIMIT_S : LIMIT_S); /* continues after the exec */
    if (preload)
        setenv("LD_PRELOAD", getenv("IPC_LIBRARY"), 1);
    else
        setenv("LD_PRELOAD", getenv("IPC_OWNERS"), 1);
    if (on_pages) {
        snprintf(conf, sizeof conf, "%s,expandable_segments:true", getenv("ACCEL_ALLOC_CONF"));
        setenv("ACCEL_ALLOC_CONF", conf, 1);
    }
    snprintf(number, sizeof number, "%d", socket);
    execl("/proc/self/exe", "ipc", "actor", number, (char *)NULL);
    _exit(126);
}

actor_t *actor_start(under_t under) {
    int pair[2];
    unsigned i = 0;
    while (i < ACTORS && actors[i].pid)
        i++;
    NEED(i < ACTORS);
    NEED(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair));
    int theirs = dup(pair[1]); /* stays open after the exec */
    pid_t process = fork();
    if (process == 0) {
        become_actor(theirs, under);
    }
    NEED(process > 0);
    close(pair[1]);
    close(theirs);
    actors[i] = (actor_t){process, pair[0]};
    return &actors[i];
}

void actor_tell(actor_t *actor, ask_t ask) {
    NEED(send(actor->socket, &ask, sizeof ask, MSG_NOSIGNAL) == sizeof ask);
}

answer_t actor_answer(actor_t *actor) {
    answer_t answer;
    ssize_t length = recv(actor->socket, &answer, sizeof answer, 0);
    if (length != sizeof answer)
        test_stop(TEST_WRONG, "process %d ended", (int)actor->pid);
    return answer;
}

answer_t actor_ask(actor_t *actor, ask_t ask) {
    actor_tell(actor, ask);
    return actor_answer(actor);
}

answer_t actor_do(actor_t *actor, const uint64_t words[5]) {
    return actor_ask(
        actor,
        (ask_t){
            .what = (do_t)words[0], .a = words[1], .b = words[2], .c = words[3], .d = words[4]});
}

static int wait_for(actor_t *actor) {
    int status = -1;
    close(actor->socket);
    while (waitpid(actor->pid, &status, 0) < 0 && errno == EINTR)
        ;
    actor->pid = 0;
    return status;
}

void actor_end(actor_t *actor) {
    actor_tell(actor, (ask_t){.what = DO_EXIT});
    int status = wait_for(actor);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

void actor_kill(actor_t *actor) {
    kill(actor->pid, SIGKILL);
    wait_for(actor);
}

uint64_t actor_value(answer_t answer) {
    MUST(answer.result);
    return answer.value;
}

uint64_t actor_address(answer_t answer) {
    MUST(answer.result);
    return answer.address;
}

uint64_t memory_of(actor_t *actor, uint64_t bytes, uint32_t word) {
    uint64_t address = ADDRESS(actor, DO_ALLOC, bytes);
    GOOD(actor, DO_FILL, address, bytes, word);
    return address;
}

handle_t handle_of(actor_t *actor, uint64_t address) {
    handle_t handle;
    answer_t answer = ASK(actor, DO_EXPORT, address);
    GIVES(answer.result, CUDA_SUCCESS);
    memcpy(&handle, answer.handle, sizeof handle);
    return handle;
}

CUresult try_open(actor_t *actor, handle_t handle, uint64_t *address) {
    ask_t ask = {.what = DO_OPEN, .a = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS};
    memcpy(ask.handle, &handle, sizeof handle);
    answer_t answer = actor_ask(actor, ask);
    *address = answer.address;
    return answer.result;
}

uint64_t open_of(actor_t *actor, handle_t handle) {
    uint64_t address;
    GIVES(try_open(actor, handle, &address), CUDA_SUCCESS);
    return address;
}

bool reads(actor_t *actor, uint64_t address, uint64_t bytes, uint32_t word) {
    answer_t answer = ASK(actor, DO_READ, address, bytes);
    MUST(answer.result);
    return answer.value == word && !answer.more;
}

static uint64_t named(actor_t *actor, do_t what, const char *text) {
    ask_t ask = {.what = what};
    snprintf(ask.text, sizeof ask.text, "%s", text);
    return actor_value(actor_ask(actor, ask));
}

uint64_t count_of(actor_t *actor, const char *kind) {
    return named(actor, DO_LIVE, kind);
}

uint64_t races_of(actor_t *actor, const char *finding) {
    return named(actor, DO_RACES, finding);
}

/* ---------------------------------------------------------------- the actor's side */

static CUcontext primary;
static CUfunction slow;

#define POINTER(type, word) ((type)(uintptr_t)(word))

static void become_ready(void) {
    static const simcuda_access_t access = {0, -1, 4, 1};
    static const unsigned short sizes[] = {8, 4};
    static const simcuda_kernel_t kernel = {"slow", test_store, SLOW_NS, 2, sizes, 1, &access};
    primary = test_device(0);
    slow = test_kernel(&kernel);
}

static CUresult read_words(const ask_t *ask, answer_t *answer) {
    uint32_t *words = malloc(ask->b);
    NEED(words);
    CUresult result = cuMemcpyDtoH_v2(words, ask->a, ask->b);
    answer->value = words[0];
    for (uint64_t i = 1; !result && i < ask->b / 4; i++)
        answer->more += words[i] != words[0];
    free(words);
    return result;
}

static CUresult launch_slow(const ask_t *ask) {
    CUdeviceptr to = ask->a;
    unsigned word = (unsigned)ask->b;
    void *params[] = {&to, &word};
    return cuLaunchKernel(slow, 1, 1, 1, 1, 1, 1, 0, POINTER(CUstream, ask->c), params, NULL);
}

static CUresult fill(const ask_t *ask) {
    CUresult result = cuMemsetD32_v2(ask->a, (unsigned)ask->c, ask->b / 4);
    return result ? result : cuCtxSynchronize();
}

static CUresult copy(const ask_t *ask) {
    CUresult result = cuMemcpyDtoD_v2(ask->a, ask->b, ask->c);
    return result ? result : cuCtxSynchronize();
}

/* Views that this process opened. The race detector treats each as an owner, because the library
 * opens larger regions. The newest view of an address determines its owner; an older one may
 * still be open. */
static struct {
    CUdeviceptr at;
    size_t size;
    unsigned opens;
} views[4096];
enum { VIEWS = sizeof views / sizeof *views };

static void view_opened(CUdeviceptr address) {
    unsigned mine = VIEWS;
    size_t size;
    MUST(cuMemGetAddressRange_v2(NULL, &size, address));
    for (unsigned i = 0; i < VIEWS; i++) {
        if (views[i].opens && views[i].at < address + size &&
            address < views[i].at + views[i].size)
            simcuda_owner_end(views[i].at);
        if (views[i].opens ? views[i].at == address : mine == VIEWS)
            mine = i;
    }
    NEED(mine < VIEWS);
    views[mine].at = address;
    views[mine].size = size;
    views[mine].opens++;
    simcuda_owner_begin(address, size);
}

static CUresult close_memory(CUdeviceptr address) {
    for (unsigned i = 0; i < VIEWS; i++)
        if (views[i].opens && views[i].at == address && !--views[i].opens)
            simcuda_owner_end(address);
    return cuIpcCloseMemHandle(address);
}

static CUresult open_memory(const ask_t *ask, answer_t *answer) {
    CUipcMemHandle handle;
    CUdeviceptr address = 0;
    memcpy(&handle, ask->handle, sizeof handle);
    CUresult result = cuIpcOpenMemHandle_v2(&address, handle, (unsigned)ask->a);
    if (!result)
        view_opened(address);
    answer->address = address;
    return result;
}

static CUresult open_event(const ask_t *ask, answer_t *answer) {
    CUipcEventHandle handle;
    CUevent event = NULL;
    memcpy(&handle, ask->handle, sizeof handle);
    CUresult result = cuIpcOpenEventHandle(&event, handle);
    answer->value = (uintptr_t)event;
    return result;
}

static CUresult export_event(const ask_t *ask, answer_t *answer) {
    CUipcEventHandle handle;
    CUresult result = cuIpcGetEventHandle(&handle, POINTER(CUevent, ask->a));
    memcpy(answer->handle, &handle, sizeof handle);
    return result;
}

static CUresult export_memory(const ask_t *ask, answer_t *answer) {
    CUipcMemHandle handle;
    CUresult result = cuIpcGetMemHandle(&handle, ask->a);
    memcpy(answer->handle, &handle, sizeof handle);
    return result;
}

static CUresult new_stream(answer_t *answer) {
    CUstream stream;
    CUresult result = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    answer->value = (uintptr_t)stream;
    return result;
}

static CUresult end_capture(CUstream stream, answer_t *answer) {
    CUgraph graph = NULL;
    size_t nodes = 0;
    CUresult result = cuStreamEndCapture(stream, &graph);
    if (!result)
        result = cuGraphGetNodes(graph, NULL, &nodes);
    answer->value = nodes;
    return result ? result : cuGraphDestroy(graph);
}

static CUresult new_event(const ask_t *ask, answer_t *answer) {
    CUevent event;
    CUresult result = cuEventCreate(&event, (unsigned)ask->a);
    answer->value = (uintptr_t)event;
    return result;
}

static CUresult new_context(answer_t *answer) {
    CUcontext context;
    CUresult result = cuCtxCreate_v2(&context, 0, 0);
    answer->value = (uintptr_t)context;
    return result;
}

static CUresult end_context(const ask_t *ask) {
    CUresult result = cuCtxDestroy_v2(POINTER(CUcontext, ask->a));
    return result ? result : cuCtxSetCurrent(primary);
}

static CUresult reset(void) {
    CUresult result = cuDevicePrimaryCtxReset_v2(0);
    if (!result)
        become_ready();
    return result;
}

static CUresult in_child(const ask_t *ask, answer_t *answer) {
    CUipcMemHandle handle;
    int status = -1;
    pid_t child = fork();
    if (child == 0)
        exit((int)(cuIpcGetMemHandle(&handle, ask->a) & 0xff)); /* runs the exit handlers */
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
        return CUDA_ERROR_UNKNOWN;
    answer->value = (uint64_t)WEXITSTATUS(status);
    return CUDA_SUCCESS;
}

static CUresult memory_range(const ask_t *ask, answer_t *answer) {
    CUdeviceptr base = 0;
    size_t size = 0;
    CUresult result = cuMemGetAddressRange_v2(&base, &size, ask->a);
    answer->address = base;
    answer->value = size;
    return result;
}

static CUresult buffer_id(const ask_t *ask, answer_t *answer) {
    unsigned long long id = 0;
    CUresult result = cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, ask->a);
    answer->value = id;
    return result;
}

static CUresult alloc(const ask_t *ask, answer_t *answer) {
    CUdeviceptr address = 0;
    CUresult result = cuMemAlloc_v2(&address, ask->a);
    answer->address = address;
    return result;
}

static CUresult perform(const ask_t *ask, answer_t *answer) {
    CUstream stream = POINTER(CUstream, ask->c);
    switch (ask->what) {
    case DO_ALLOC:
        return alloc(ask, answer);
    case DO_FREE:
        return cuMemFree_v2(ask->a);
    case DO_FILL:
        return fill(ask);
    case DO_READ:
        return read_words(ask, answer);
    case DO_COPY:
        return copy(ask);
    case DO_SLOW:
        return launch_slow(ask);
    case DO_COPY_ASYNC:
        return cuMemcpyDtoDAsync_v2(ask->a, ask->b, ask->d, stream);
    case DO_SYNC:
        return cuCtxSynchronize();
    case DO_STREAM:
        return new_stream(answer);
    case DO_RANGE:
        return memory_range(ask, answer);
    case DO_ID:
        return buffer_id(ask, answer);
    case DO_EXPORT:
        return export_memory(ask, answer);
    case DO_OPEN:
    case DO_OPEN_FLAGS:
        return open_memory(ask, answer);
    case DO_CLOSE:
        return close_memory(ask->a);
    case DO_CAPTURE:
        return cuStreamBeginCapture_v2(POINTER(CUstream, ask->a), CU_STREAM_CAPTURE_MODE_GLOBAL);
    case DO_CAPTURE_END:
        return end_capture(POINTER(CUstream, ask->a), answer);
    case DO_EVENT:
        return new_event(ask, answer);
    case DO_EVENT_EXPORT:
        return export_event(ask, answer);
    case DO_EVENT_OPEN:
        return open_event(ask, answer);
    case DO_EVENT_RECORD:
        return cuEventRecord(POINTER(CUevent, ask->a), POINTER(CUstream, ask->b));
    case DO_EVENT_QUERY:
        return cuEventQuery(POINTER(CUevent, ask->a));
    case DO_EVENT_WAIT:
        return cuEventSynchronize(POINTER(CUevent, ask->a));
    case DO_EVENT_DESTROY:
        return cuEventDestroy_v2(POINTER(CUevent, ask->a));
    case DO_STREAM_WAIT:
        return cuStreamWaitEvent(POINTER(CUstream, ask->a), POINTER(CUevent, ask->b), 0);
    case DO_DEVICE:
        test_device((int)ask->a);
        return CUDA_SUCCESS;
    case DO_CONTEXT:
        return new_context(answer);
    case DO_CONTEXT_END:
        return end_context(ask);
    case DO_RESET:
        return reset();
    case DO_LIVE:
        answer->value = simcuda_live(ask->text);
        return CUDA_SUCCESS;
    case DO_CALLS:
        answer->value = simcuda_calls(ask->text);
        return CUDA_SUCCESS;
    case DO_USED:
        answer->value = simcuda_used_memory(0);
        return CUDA_SUCCESS;
    case DO_RACES:
        answer->value = *ask->text ? simcuda_race_found(ask->text) : simcuda_race_reports();
        return CUDA_SUCCESS;
    case DO_FORK:
        return in_child(ask, answer);
    default:
        return CUDA_ERROR_UNKNOWN;
    }
}

static void again(int socket) {
    char number[16];
    answer_t answer = {.result = CUDA_SUCCESS};
    snprintf(number, sizeof number, "%d", socket);
    NEED(send(socket, &answer, sizeof answer, MSG_NOSIGNAL) == sizeof answer);
    execl("/proc/self/exe", "ipc", "actor", number, (char *)NULL);
    _exit(126);
}

int actor_main(int socket) {
    ask_t ask;
    become_ready();
    while (recv(socket, &ask, sizeof ask, 0) == sizeof ask) {
        answer_t answer = {.result = CUDA_SUCCESS};
        if (ask.what == DO_EXIT)
            return 0;
        if (ask.what == DO_EXEC)
            again(socket);
        answer.result = perform(&ask, &answer);
        NEED(send(socket, &answer, sizeof answer, MSG_NOSIGNAL) == sizeof answer);
    }
    return 0; /* the script has ended */
}

void clean_end(actor_t *exporter, actor_t *importer) {
    EXPECT(count_of(importer, "imports") == 0);
    EXPECT(races_of(importer, "") + races_of(exporter, "") == 0);
    actor_end(importer);
    actor_end(exporter);
}
