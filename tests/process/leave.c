/* Every way in which a process ends.  Each case makes a known number of calls: leave.py holds the
 * numbers.  The library late.c, linked, frees what it is given when it is finalised. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "late.h"
#include "program.h"

extern char **environ;

unsigned long long simcuda_calls_total(void);

static int by_return(void) {
    program_device();
    program_use(5);
    return 3;
}

static int by_exit(void) {
    program_device();
    program_use(5);
    exit(4);
}

static CUdeviceptr kept[2];

/* Registered before CUDA is used: runs when exit has begun for the library.  The free must still
 * be counted, and cost no driver call. */
static void free_late(void) {
    unsigned long long calls = simcuda_calls_total();
    program_free(kept[0]);
    NEED(simcuda_calls_total() == calls);
}

static void free_early(void) {
    program_free(kept[1]);
}

static void fill_kept(void) {
    program_device();
    kept[0] = program_alloc();
    kept[1] = program_alloc();
}

static int by_handlers(void) {
    atexit(free_late);
    fill_kept();
    atexit(free_early);
    return 0;
}

static int by_quick_exit(void) {
    at_quick_exit(free_late);
    fill_kept();
    at_quick_exit(free_early);
    quick_exit(6);
}

/* What libraries free when they are finalised, the driver before them or after. */
static int by_libraries(void) {
    program_device();
    late_keep(program_alloc());
    program_use(1);
    return 0;
}

static void *last_thread(void *arg) {
    pthread_join(*(pthread_t *)arg, NULL);
    program_device();
    program_use(5);
    return NULL;
}

static pthread_t main_thread;

/* The process ends with its last thread, status 0. */
static void leave_main(void) {
    pthread_t other;
    main_thread = pthread_self();
    NEED(!pthread_create(&other, NULL, last_thread, &main_thread));
    pthread_detach(other);
    pthread_exit(NULL);
}

static int by_last_thread(void) {
    program_device();
    program_use(5);
    leave_main();
    return 97;
}

static int by_last_thread_alone(void) {
    leave_main(); /* the main thread itself never used CUDA */
    return 97;
}

static void *exiting_thread(void *arg) {
    (void)arg;
    program_device();
    program_use(5);
    exit(5);
}

static int by_other_thread(void) {
    pthread_t other;
    program_device();
    program_use(5);
    NEED(!pthread_create(&other, NULL, exiting_thread, NULL));
    for (;;)
        pause();
    return 97;
}

static _Atomic int busy;

static void *busy_thread(void *arg) {
    CUdeviceptr block;
    program_device();
    atomic_fetch_add(&busy, 1);
    for (;;) /* the driver refuses from some moment on */
        if (cuMemAlloc_v2(&block, 4096) == CUDA_SUCCESS)
            cuMemFree_v2(block);
    return arg;
}

/* Threads go on using the device while the process ends. */
static int by_busy(void) {
    program_device();
    for (int i = 0; i < 4; i++) {
        pthread_t other;
        NEED(!pthread_create(&other, NULL, busy_thread, NULL));
    }
    program_use(200);
    while (atomic_load(&busy) < 4)
        sched_yield();
    return 7;
}

static _Atomic int asking;

/* More than there is while a kernel runs: it waits for memory that comes back with it. */
static void *asking_thread(void *arg) {
    CUdeviceptr block;
    program_device();
    atomic_store(&asking, 1);
    cuMemAlloc_v2(&block, (size_t)60 << 20);
    return arg;
}

/* The process ends while a thread is inside a request, which would go on for long. */
static int by_exit_beside_request(void) {
    CUdeviceptr block, flag;
    CUstream stream;
    pthread_t other;
    program_device();
    stream = test_stream();
    flag = program_alloc();
    MUST(cuMemAlloc_v2(&block, (size_t)60 << 20));
    MUST(cuMemsetD32_v2(flag, 0, 1));
    MUST(cuStreamWaitValue32_v2(stream, flag, 1, 0));
    MUST(cuMemsetD8Async(block, 1, 1, stream));
    program_free(block);
    NEED(!pthread_create(&other, NULL, asking_thread, NULL));
    while (!atomic_load(&asking))
        sched_yield();
    usleep(200000); /* it is inside by now, most likely */
    return 7;
}

static int by_abort(void) {
    program_device();
    program_use(5);
    abort();
}

static int by_underscore(void) {
    program_device();
    program_use(5);
    _exit(8);
}

static int by_kill(void) {
    program_device();
    program_use(5);
    return raise(SIGKILL);
}

static int by_exec_plain(void) {
    char *const command[] = {"/bin/cat", NULL}; /* stays until its stdin is closed */
    program_device();
    program_use(5);
    execve(command[0], command, environ);
    return 97;
}

static int by_exec_cuda(void) {
    char *const command[] = {"leave", "return", NULL};
    program_device();
    program_use(50);
    execve("/proc/self/exe", command, environ);
    return 97;
}

static int by_failed_exec(void) {
    char *const command[] = {"none", NULL};
    program_device();
    program_use(4);
    execve("/nonexistent", command, environ);
    program_use(1);
    return 0;
}

/* ---- in another folder than the one of the start ---- */

static int by_leaving_folder(void) {
    program_device();
    program_use(5);
    NEED(!chdir("/"));
    return 3;
}

static int by_leaving_folder_first(void) {
    NEED(!chdir("/"));
    program_device();
    program_use(5);
    return 3;
}

static int by_renamed_folder(void) {
    program_device();
    program_use(5);
    NEED(!rename("../work", "../renamed"));
    return 3;
}

/* Every number but those of output is one of the program's own input by now. */
static int by_taken_numbers(void) {
    program_device();
    program_use(5);
    closefrom(3);
    for (int fd = 64; fd < 1024; fd++) /* which may be the limit: some stay free */
        NEED(dup2(STDIN_FILENO, fd) == fd);
    return 3;
}

/* ---- sandboxes ---- */

#define IS(call, action)                                                                         \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1), BPF_STMT(BPF_RET | BPF_K, action)
#define CALL_NUMBER  BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define FILTER(code) filter((code), sizeof(code) / sizeof *(code))

/* For all threads there are. */
static void filter(struct sock_filter *code, size_t length) {
    struct sock_fprog program = {(unsigned short)length, code};
    NEED(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    NEED(!syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program));
}

static void filter_opening(void) {
    struct sock_filter code[] = {CALL_NUMBER, IS(openat, SECCOMP_RET_KILL_PROCESS),
                                 BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    FILTER(code);
}

static int by_filtered_opening(void) {
    program_device();
    program_use(5);
    filter_opening();
    return 3;
}

enum { WATCHED = 16 };

/* Until all other threads sleep, and still do a moment later. */
static void wait_for_sleepers(void) {
    test_thread_t threads[WATCHED];
    for (int seen = 0; seen < 3; seen++) {
        size_t count = test_threads(threads, WATCHED);
        for (size_t i = 0; i < count; i++)
            if (threads[i].id != getpid() && !threads[i].asleep)
                seen = -1;
        usleep(1000);
    }
}

/* Nothing but what the end of a program with open files takes.  The library's thread for dumps on
 * request has to be asleep: what it calls until then would be filtered as well. */
static int by_narrow_filter(void) {
    struct sock_filter code[] = {CALL_NUMBER,
                                 IS(read, SECCOMP_RET_ALLOW),
                                 IS(write, SECCOMP_RET_ALLOW),
                                 IS(lseek, SECCOMP_RET_ALLOW),
                                 IS(exit_group, SECCOMP_RET_ALLOW),
                                 BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)};
    program_device();
    program_use(5);
    wait_for_sleepers();
    printf("kept in a buffer\n");
    FILTER(code);
    return 3;
}

/* As in a container: the dump is written. */
static int by_early_filter(void) {
    struct sock_filter code[] = {CALL_NUMBER, IS(ptrace, SECCOMP_RET_KILL_PROCESS),
                                 BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    FILTER(code);
    program_device();
    program_use(5);
    return 3;
}

/* More events than the trace has room for without another look at its file. */
static int by_filtered_trace(void) {
    program_device();
    program_use(5);
    filter_opening();
    program_use(4000);
    return 3;
}

/* The signal asks for a dump, which must not be tried. */
static int by_filtered_signal(void) {
    program_device();
    program_use(5);
    filter_opening();
    raise(SIGUSR2);
    usleep(200000);
    return 3;
}

/* How often another thread gave the processor up, by its open /proc file; LONG_MAX: it has ended. */
static long switches(int file) {
    char text[4096];
    ssize_t count = pread(file, text, sizeof text - 1, 0);
    if (count <= 0)
        return LONG_MAX;
    text[count] = 0;
    const char *line = strstr(text, "\nvoluntary_ctxt_switches:");
    NEED(line);
    return strtol(strchr(line, ':') + 1, NULL, 10);
}

/* The other threads' /proc files. */
static int watch_threads(int file[WATCHED]) {
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    NEED(tasks);
    for (struct dirent *task; (task = readdir(tasks));) {
        char path[300];
        if (task->d_name[0] == '.' || atoi(task->d_name) == getpid())
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        NEED(count < WATCHED && (file[count++] = open(path, O_RDONLY)) >= 0);
    }
    closedir(tasks);
    return count;
}

/* dump_interval is two seconds; 4: they had passed when the filter came.  Ends after the library's thread has
 * woken at their end. */
static int by_filtered_interval(void) {
    enum { LONGEST_MS = 60000 };
    int file[WATCHED];
    long before[WATCHED];
    char name[64];
    program_device();
    program_use(5);
    snprintf(name, sizeof name, "accelcache-%d.json", (int)getpid());
    wait_for_sleepers();
    int count = watch_threads(file);
    NEED(count > 0);
    filter_opening();
    if (!access(name, F_OK))
        _exit(4);
    for (int i = 0; i < count; i++)
        before[i] = switches(file[i]);
    usleep(2300000);
    for (int ms = 0; ms < LONGEST_MS; ms++) {
        for (int i = 0; i < count; i++)
            if (switches(file[i]) > before[i])
                return 3;
        usleep(1000);
    }
    return 5;
}

/* Memory is owed, for which the library may want a thread.  The program has all its threads. */
static int by_filtered_threads(void) {
    struct sock_filter code[] = {CALL_NUMBER, IS(clone, SECCOMP_RET_KILL_PROCESS),
                                 IS(clone3, SECCOMP_RET_KILL_PROCESS),
                                 BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    CUdeviceptr flag, block;
    program_device();
    flag = program_alloc();
    MUST(cuMemAlloc_v2(&block, 100 << 20));
    program_free(block);
    MUST(cuMemsetD32_v2(flag, 0, 1));
    MUST(cuStreamWaitValue32_v2(NULL, flag, 1, 0));
    FILTER(code);
    MUST(cuMemAlloc_v2(&block, 200 << 20));
    program_free(block);
    program_free(flag);
    return 3;
}

static void *first_use(void *arg) {
    program_device();
    program_use(3);
    return arg;
}

/* A thread that begins behind a filter counts where there is memory already. */
static int by_filtered_thread(void) {
    struct sock_filter code[] = {CALL_NUMBER, IS(mremap, SECCOMP_RET_KILL_PROCESS),
                                 BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    pthread_t thread;
    program_device();
    program_use(2);
    FILTER(code);
    NEED(!pthread_create(&thread, NULL, first_use, NULL));
    NEED(!pthread_join(thread, NULL));
    return 3;
}

static int never_used(void) {
    return 9;
}

int main(int argc, char **argv) {
    static const program_case_t cases[] = {
        {"return", by_return},
        {"exit", by_exit},
        {"handlers", by_handlers},
        {"quick_exit", by_quick_exit},
        {"libraries", by_libraries},
        {"last_thread", by_last_thread},
        {"last_thread_alone", by_last_thread_alone},
        {"other_thread", by_other_thread},
        {"busy", by_busy},
        {"beside_request", by_exit_beside_request},
        {"abort", by_abort},
        {"_exit", by_underscore},
        {"kill", by_kill},
        {"exec_plain", by_exec_plain},
        {"exec_cuda", by_exec_cuda},
        {"failed_exec", by_failed_exec},
        {"folder", by_leaving_folder},
        {"folder_first", by_leaving_folder_first},
        {"renamed", by_renamed_folder},
        {"taken_numbers", by_taken_numbers},
        {"filtered_opening", by_filtered_opening},
        {"narrow_filter", by_narrow_filter},
        {"early_filter", by_early_filter},
        {"filtered_trace", by_filtered_trace},
        {"filtered_signal", by_filtered_signal},
        {"filtered_interval", by_filtered_interval},
        {"filtered_threads", by_filtered_threads},
        {"filtered_thread", by_filtered_thread},
        {"never", never_used},
    };
    return program_main(argc, argv, cases, sizeof cases / sizeof cases[0]);
}
