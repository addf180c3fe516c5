/* right_processes: IPC and forks.
 *
 *   right_processes ipc     another process opens memory and events of this one, reads and writes
 *   right_processes inner   like ipc, with blocks that are not the first of their size
 *   right_processes fork    forks children between work: some use no CUDA, some run this program
 *
 * The other processes run this program with `open HANDLE WORDS` or `alone SEED`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "right.h"

enum { WORDS = 3 << 20, INNER_WORDS = 50000, CHILDREN = 3, TEXT = 2 * CU_IPC_HANDLE_SIZE + 1 };

static void to_text(const CUipcMemHandle *handle, char *text) {
    for (size_t i = 0; i < sizeof handle->reserved; i++)
        snprintf(text + 2 * i, 3, "%02x", (unsigned char)handle->reserved[i]);
}

static CUipcMemHandle from_text(const char *text) {
    CUipcMemHandle handle;
    memset(&handle, 0, sizeof handle);
    for (size_t i = 0; i < sizeof handle.reserved && text[2 * i] && text[2 * i + 1]; i++) {
        const char digits[] = {text[2 * i], text[2 * i + 1], '\0'};
        handle.reserved[i] = (char)strtoul(digits, NULL, 16);
    }
    return handle;
}

/* Runs this program with other arguments and waits for it.  Its output appears within ours. */
static void anew(const char *what, const char *first, const char *second) {
    int status = -1;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", "right_processes", what, first, second, (char *)NULL);
        _exit(126);
    }
    if (child > 0)
        waitpid(child, &status, 0);
    printf("the other process ended with %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

static int open_it(const char *text, const char *count) {
    CUdeviceptr memory;
    unsigned words = (unsigned)strtoul(count, NULL, 10);
    right_open();
    CUresult result =
        cu.cuIpcOpenMemHandle_v2(&memory, from_text(text), CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    printf("opened: %s\n", gpu_error(result));
    if (result)
        return 1;
    CUdeviceptr own = right_alloc(words * sizeof(uint32_t));
    printf("read: %016llx\n", right_sum(memory, words, RIGHT_LANE(NULL)));
    MUST(cu.cuMemcpyDtoD_v2(own, memory, words * sizeof(uint32_t)));
    right_mix(own, words, 1, RIGHT_LANE(NULL));
    MUST(cu.cuMemcpyDtoD_v2(memory, own, words * sizeof(uint32_t)));
    MUST(cu.cuCtxSynchronize());
    MUST(cu.cuMemFree_v2(own));
    MUST(cu.cuIpcCloseMemHandle(memory));
    return 0;
}

static void share(CUdeviceptr memory, unsigned words) {
    char text[TEXT], count[16];
    CUipcMemHandle handle;
    MUST(cu.cuMemsetD32_v2(memory, words, words));
    right_mix(memory, words, 3, RIGHT_LANE(NULL));
    MUST(cu.cuCtxSynchronize());
    CUresult result = cu.cuIpcGetMemHandle(&handle, memory);
    printf("handle: %s\n", gpu_error(result));
    if (result)
        return;
    to_text(&handle, text);
    snprintf(count, sizeof count, "%u", words);
    anew("open", text, count);
    printf("written: %016llx\n", right_sum(memory, words, RIGHT_LANE(NULL)));
}

static int ipc(void) {
    right_open();
    for (int round = 0; round < 2; round++) {
        CUdeviceptr memory = right_alloc(WORDS * sizeof(uint32_t));
        share(memory, WORDS);
        MUST(cu.cuMemFree_v2(memory));
    }
    return 0;
}

static int inner(void) {
    CUdeviceptr blocks[4];
    right_open();
    for (int i = 0; i < 4; i++)
        blocks[i] = right_alloc(INNER_WORDS * sizeof(uint32_t));
    for (int i = 0; i < 4; i++)
        share(blocks[i], INNER_WORDS);
    for (int i = 0; i < 4; i++)
        MUST(cu.cuMemFree_v2(blocks[i]));
    return 0;
}

static unsigned long long work(unsigned seed) {
    CUstream stream = right_stream();
    unsigned long long sum = 0;
    for (unsigned i = 0; i < 20; i++) {
        unsigned words = 1000 * (i + seed) + 1;
        CUdeviceptr memory = right_alloc(words * sizeof(uint32_t));
        MUST(cu.cuMemsetD32Async(memory, seed, words, stream));
        right_mix(memory, words, i, RIGHT_LANE(stream));
        sum = sum * 31 + right_sum(memory, words, RIGHT_LANE(stream));
        right_last_work(memory, words, RIGHT_LANE(stream));
        MUST(cu.cuMemFree_v2(memory));
    }
    MUST(cu.cuStreamDestroy_v2(stream));
    return sum;
}

static int alone(const char *seed) {
    right_open();
    printf("alone: %016llx\n", work((unsigned)strtoul(seed, NULL, 10)));
    return 0;
}

static int forks(void) {
    right_open();
    for (unsigned i = 0; i < CHILDREN; i++) {
        int status = -1;
        printf("before: %016llx\n", work(i));
        fflush(stdout);
        pid_t child = fork();
        if (child == 0)
            _exit(40 + (int)i);
        if (child > 0)
            waitpid(child, &status, 0);
        printf("a child without CUDA: %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
        printf("between: %016llx\n", work(i + 10));
        anew("alone", "5", NULL);
        printf("after: %016llx\n", work(i + 20));
    }
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (argc == 4 && !strcmp(what, "open"))
        return open_it(argv[2], argv[3]);
    if (argc == 3 && !strcmp(what, "alone"))
        return alone(argv[2]);
    if (!strcmp(what, "ipc"))
        return ipc();
    if (!strcmp(what, "inner"))
        return inner();
    if (!strcmp(what, "fork"))
        return forks();
    fprintf(stderr, "usage: right_processes ipc|inner|fork\n");
    return 2;
}
