/* Each system call of a list is refused in turn, as a sandbox's filter does that answers instead of
 * killing: what CUDA answers is the same.
 *
 * usage: refused WHEN, `early`: before CUDA is used, `later`: after that; one line for each call and
 * errno value: how a process with the filter ended, and what it was answered. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "program.h"

/* Of what the library or the loader calls; not those without which no thread runs (futex). */
#define CALL(name)                                                                               \
    { SYS_##name, #name }
static const struct {
    long number;
    const char *name;
} calls[] = {
    CALL(accept4),
    CALL(bind),
    CALL(clock_gettime),
    CALL(clock_nanosleep),
    CALL(clone3),
    CALL(close),
    CALL(connect),
    CALL(dup),
    CALL(faccessat),
    CALL(fallocate),
    CALL(fchmod),
    CALL(fcntl),
    CALL(flock),
    CALL(fstat),
    CALL(ftruncate),
    CALL(getcwd),
    CALL(getdents64),
    CALL(geteuid),
    CALL(getpid),
    CALL(getrandom),
    CALL(gettid),
    CALL(linkat),
    CALL(listen),
    CALL(lseek),
    CALL(madvise),
    CALL(membarrier),
    CALL(memfd_create),
    CALL(mkdirat),
    CALL(mprotect),
    CALL(munmap),
    CALL(newfstatat),
    CALL(openat),
    CALL(ppoll),
    CALL(prctl),
    CALL(pread64),
    CALL(readlinkat),
    CALL(recvmsg),
    CALL(renameat2),
    CALL(rt_sigaction),
    CALL(rt_sigprocmask),
    CALL(sched_getaffinity),
    CALL(sched_yield),
    CALL(sendmsg),
    CALL(socket),
    CALL(statfs),
    CALL(statx),
    CALL(sysinfo),
    CALL(tgkill),
    CALL(umask),
    CALL(uname),
    CALL(unlinkat),
    CALL(write),
};

static void refuse(long number, int error) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    NEED(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    NEED(!syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program));
}

static CUcontext context;
static _Atomic int refusals; /* of requests that have to be served */

static void count(CUresult result) {
    refusals += result != CUDA_SUCCESS;
}

static void start(void) {
    count(cuInit(0));
    count(cuDevicePrimaryCtxRetain(&context, 0));
    count(cuCtxSetCurrent(context));
}

static void ask(void) {
    static const size_t sizes[] = {1, 4096, 70000, 1 << 20, 3 << 20, 40 << 20};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    CUdeviceptr block[SIZES], ordered;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < SIZES; i++)
            count(cuMemAlloc_v2(&block[i], sizes[i]));
        count(cuMemsetD8Async(block[0], 1, 1, NULL));
        for (int i = 0; i < SIZES; i++)
            count(cuMemFree_v2(block[i]));
        count(cuMemAllocAsync(&ordered, 5000, NULL));
        count(cuMemFreeAsync(ordered, NULL));
    }
}

static void *ask_beside(void *unused) {
    count(cuCtxSetCurrent(context));
    ask();
    return unused;
}

static void *nothing(void *unused) {
    return unused;
}

/* Both parts of the answer stand in one status: how much was refused, and whether too much was. */
static int answer(void) {
    enum { MOST = 20, TOO_MUCH = 32 };
    CUdeviceptr block;
    pthread_t thread;
    ask();
    if (!pthread_create(&thread, NULL, ask_beside,
                        NULL)) /* the C library's clone3 may be refused */
        pthread_join(thread, NULL);
    bool much = cuMemAlloc_v2(&block, (size_t)1 << 40) == CUDA_ERROR_OUT_OF_MEMORY;
    return (refusals < MOST ? refusals : MOST) + (much ? TOO_MUCH : 0);
}

static void run(bool early, unsigned call, int error) {
    enum { LIMIT_S = 20 };
    pthread_t thread;
    int status;
    fflush(stdout);
    pid_t pid = fork();
    NEED(pid >= 0);
    if (!pid) {
        alarm(LIMIT_S); /* a process that hangs differs */
        /* So that the C library has what it loads for the end of a thread. */
        NEED(!pthread_create(&thread, NULL, nothing, NULL) && !pthread_join(thread, NULL));
        if (early)
            refuse(calls[call].number, error);
        start();
        ask();
        if (!early)
            refuse(calls[call].number, error);
        _exit(answer());
    }
    NEED(waitpid(pid, &status, 0) == pid);
    printf("%s %s: %s %d\n", calls[call].name, error == EPERM ? "EPERM" : "ENOSYS",
           WIFSIGNALED(status) ? "signal" : "answered",
           WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

int main(int argc, char **argv) {
    NEED(argc == 2);
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) {
        run(!strcmp(argv[1], "early"), i, EPERM);
        run(!strcmp(argv[1], "early"), i, ENOSYS);
    }
    return 0;
}
