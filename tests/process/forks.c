/* Forks before, after and while CUDA is used; forks.py holds the numbers that each must show. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"

extern char **environ;

static int wait_for(pid_t child) {
    int status;
    NEED(child > 0);
    while (waitpid(child, &status, 0) < 0)
        NEED(errno == EINTR);
    return status;
}

static void wait_well(pid_t child) {
    int status = wait_for(child);
    if (status)
        fprintf(stderr, "program: child's status is 0x%x\n", (unsigned)status);
    NEED(status == 0);
}

static int fork_before(void) {
    pid_t child = fork();
    program_device();
    program_use(child ? 5 : 7);
    if (child)
        wait_well(child);
    return 0;
}

/* The child of a process that used CUDA: every call gets the driver's own answer. */
static void use_in_child(CUdeviceptr block) {
    CUdeviceptr fresh = 42;
    size_t available = 42, total = 42;
    CUcontext context;
    GIVES(cuMemAlloc_v2(&fresh, 4096), CUDA_ERROR_NOT_INITIALIZED);
    NEED(fresh == 42);
    GIVES(cuMemFree_v2(block), CUDA_ERROR_NOT_INITIALIZED);
    GIVES(cuMemGetInfo_v2(&available, &total), CUDA_ERROR_NOT_INITIALIZED);
    GIVES(cuCtxGetCurrent(&context), CUDA_ERROR_NOT_INITIALIZED);
    GIVES(cuInit(0), CUDA_ERROR_NOT_INITIALIZED);
    GIVES(cuCtxSynchronize(), CUDA_ERROR_NOT_INITIALIZED);
}

static int fork_after(void) {
    program_device();
    CUdeviceptr block = program_alloc();
    pid_t child = fork();
    if (!child) {
        use_in_child(block);
        pid_t grandchild = fork();
        if (!grandchild) {
            use_in_child(block);
            exit(0);
        }
        wait_well(grandchild);
        exit(0);
    }
    wait_well(child);
    program_free(block);
    program_use(4);
    return 0;
}

/* Children made without the C library's fork handlers end by exit as well. */
static int fork_bare(void) {
    char name[64];
    snprintf(name, sizeof name, "accelcache-%d.json", (int)getpid());
    program_device();
    program_use(5);
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (!child)
        exit(0);
    wait_well(child);
    NEED(access(name, F_OK) != 0);
    return 0;
}

static _Atomic int stop;

static void *churn(void *arg) {
    CUdeviceptr held[8] = {0};
    unsigned at = (unsigned)(size_t)arg;
    program_device();
    while (!atomic_load(&stop)) {
        CUdeviceptr *slot = &held[at++ % 8];
        if (*slot)
            program_free(*slot);
        MUST(cuMemAlloc_v2(slot, 512u << at % 14));
    }
    for (int i = 0; i < 8; i++)
        if (held[i])
            program_free(held[i]);
    return NULL;
}

static void *one_pair(void *arg) {
    program_device();
    program_use(1);
    return arg;
}

/* Threads that come and go take other locks than those that stay. */
static void *start_threads(void *arg) {
    while (!atomic_load(&stop)) {
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            NEED(!pthread_create(&threads[i], NULL, one_pair, NULL));
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
    }
    return arg;
}

static void *in_child(void *arg) {
    CUdeviceptr *block = arg;
    GIVES(cuMemFree_v2(*block), CUDA_ERROR_NOT_INITIALIZED);
    return NULL;
}

/* Many forks while other threads hold whatever locks there are.  A child that hangs is ended by
 * its alarm, which shows in its status. */
static int fork_storm(void) {
    bool emulated = getenv("AC_EMULATED"); /* some hundred times as slow */
    pthread_t threads[4];
    program_device();
    CUdeviceptr block = program_alloc();
    for (size_t i = 0; i < 4; i++)
        NEED(!pthread_create(&threads[i], NULL, i < 2 ? churn : start_threads, (void *)(i * 3)));
    for (int i = 0; i < (emulated ? 20 : 200); i++) {
        if (i % 10 == 0)
            kill(getpid(), SIGUSR2); /* the writer has locks too */
        pid_t child = fork();
        if (!child) {
            pthread_t other;
            alarm(emulated ? 200 : 20);
            use_in_child(block);
            if (i % 4 == 1) {
                NEED(!pthread_create(&other, NULL, in_child, &block));
                pthread_join(other, NULL);
            } else if (i % 4 == 2) {
                pthread_exit(NULL);
            }
            exit(0);
        }
        wait_well(child);
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    program_free(block);
    return 0;
}

/* With fork_inside.so preloaded: the driver itself forks in cuInit, and so does every other
 * object that registers fork handlers. */
static int fork_inside(void) {
    program_device();
    program_use(5);
    return 0;
}

static int spawns(void) {
    char *const command[] = {"/bin/sh", "-c", "exit 0", NULL};
    pid_t child;
    program_device();
    program_use(3);
    child = vfork();
    if (!child) {
        execve(command[0], command, environ);
        _exit(97);
    }
    wait_well(child);
    child = vfork();
    if (!child)
        _exit(0);
    wait_well(child);
    NEED(!posix_spawn(&child, command[0], NULL, NULL, command, environ));
    wait_well(child);
    NEED(system("exit 0") == 0);
    FILE *pipe = popen("echo from a pipe", "r");
    char line[64] = "";
    NEED(pipe && fgets(line, sizeof line, pipe) && !strcmp(line, "from a pipe\n"));
    pclose(pipe);
    program_use(2);
    return 0;
}

static pid_t fork_using(CUdeviceptr block, bool leave_at_once) {
    pid_t child = fork();
    if (!child) {
        alarm(20);
        use_in_child(block);
        if (leave_at_once)
            _exit(0);
        exit(0);
    }
    return child;
}

/* While a stream captures and frees are held back by it; the graph is right afterwards. */
static int fork_capturing(void) {
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    unsigned char seen[2] = {0};
    program_device();
    stream = test_stream();
    CUdeviceptr block = program_alloc(), other = program_alloc();
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuMemsetD8Async(block, 7, 100, stream));
    program_free(other);
    for (int i = 0; i < 4; i++)
        wait_well(fork_using(block, i % 2));
    MUST(cuMemsetD8Async(block + 1, 8, 1, stream));
    MUST(cuStreamEndCapture(stream, &graph));
    wait_well(fork_using(block, false));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphLaunch(exec, stream));
    MUST(cuStreamSynchronize(stream));
    MUST(cuMemcpyDtoH_v2(seen, block, 2));
    EXPECT(seen[0] == 7 && seen[1] == 8);
    program_free(block);
    program_use(3);
    return 0;
}

/* Children that leave by _exit write nothing, nor do those that become another program. */
static int fork_leaving(void) {
    program_device();
    CUdeviceptr block = program_alloc();
    wait_well(fork_using(block, true));
    pid_t child = fork();
    if (!child) {
        char *const command[] = {"forks", "nothing", NULL};
        use_in_child(block);
        execve("/proc/self/exe", command, environ);
        _exit(97);
    }
    wait_well(child);
    program_free(block);
    program_use(4);
    return 0;
}

static int use_nothing(void) {
    return 0;
}

static int use_seven(void) {
    program_device();
    program_use(7);
    return 0;
}

/* A child that becomes a program with CUDA: a dump of its own. */
static int fork_exec(void) {
    char *const command[] = {"forks", "seven", NULL};
    program_device();
    CUdeviceptr block = program_alloc();
    for (int i = 0; i < 2; i++) {
        pid_t child = i ? vfork() : fork();
        if (!child) {
            execve("/proc/self/exe", command, environ);
            _exit(97);
        }
        wait_well(child);
    }
    program_free(block);
    program_use(4);
    return 0;
}

/* A process that used CUDA turns into a daemon: what goes on is a child without CUDA. */
static int daemon_after(void) {
    program_device();
    CUdeviceptr block = program_alloc();
    program_use(4);
    program_free(block);
    pid_t child = fork();
    if (!child) {
        setsid();
        wait_well(fork_using(block, false));
        exit(0);
    }
    wait_well(child);
    return 0;
}

/* With fork_locks.so preloaded: every function of the driver that is hooked, in a child whose parent
 * used all kinds of memory. */
typedef CUresult hooked_fn(size_t, size_t, size_t, size_t, size_t, size_t, size_t, size_t, size_t,
                           size_t, size_t, size_t);
static const char *const hooked[] = {
#define CU_FN(symbol, name, since, mode, params, args)
#define CU_HOOK(symbol, name, since, mode, params, args)                  #symbol,
#define CU_SUBMIT(symbol, name, since, mode, params, args, stream, reach) #symbol,
#define CU_RETRY(symbol, name, since, mode, params, args, need)           #symbol,
#include "device/cuda_functions.def"
};

static void take_no_lock(unsigned (*locks)(void)) {
    /* A handle, which these take by value: on aarch64 that is its address. */
    static const char handle[64];
    unsigned wrong = 0;
    for (size_t i = 0; i < sizeof hooked / sizeof *hooked; i++) {
        hooked_fn *call;
        NEED(test_find(hooked[i], &call));
        size_t second = strncmp(hooked[i], "cuIpcOpen", 9) ? 0 : (size_t)handle;
        locks();
        call(0, second, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
        if (locks() == 0)
            continue;
        fprintf(stderr, "program: %s takes a lock in a fork child\n", hooked[i]);
        wrong++;
    }
    EXPECT(wrong == 0);
    exit(0);
}

static int fork_locks(void) {
    unsigned (*locks)(void);
    CUcontext context;
    CUipcMemHandle handle;
    program_device();
    CUdeviceptr block = program_alloc();
    MUST(cuIpcGetMemHandle(&handle, block));
    NEED(test_find("fork_locks", &locks));
    locks();
    program_use(2);
    MUST(cuCtxCreate_v2(&context, 0, 0));
    program_use(2);
    NEED(locks() > 0);
    pid_t child = fork();
    if (!child) {
        alarm(20);
        take_no_lock(locks);
    }
    wait_well(child);
    program_free(block);
    return 0;
}

/* Double fork, a session of its own, then CUDA; tells its pid. */
static int daemonise(void) {
    int ends[2];
    char byte;
    NEED(!pipe(ends));
    if (fork() == 0) {
        setsid();
        if (fork() == 0) {
            close(ends[0]);
            program_device();
            program_use(5);
            printf("%d\n", (int)getpid());
            fflush(stdout);
            exit(0); /* closes the pipe */
        }
        _exit(0);
    }
    close(ends[1]);
    while (read(ends[0], &byte, 1) > 0) {
    }
    return 0;
}

/* With fork_walk.so preloaded: a thread that asked for it stays inside its next walk of the loader's list, until
 * it is told that the process forked, or a while passed. */
static struct {
    void (*through)(void (*call)(int), int arg);
    void (*hold)(void);
    bool (*is_inside)(void);
    void (*forked)(void);
} walk;
static const char *loaded_in_child;

static void start_walks(void) {
    NEED(test_find("fork_walk_through", &walk.through));
    NEED(test_find("fork_walk_hold", &walk.hold));
    NEED(test_find("fork_walk_is_inside", &walk.is_inside));
    NEED(test_find("fork_walk_forked", &walk.forked));
    program_device();
    walk.through(program_use, 2);
}

/* Nothing is known of any code from then on. */
static void forget_code(void) {
    NEED(dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD));
}

static void *walk_stack(void *arg) {
    program_device();
    program_use(1);
    forget_code();
    walk.hold();
    program_use(1);
    return arg;
}

static void *look_for_code(void *arg) {
    forget_code();
    walk.hold();
    NEED(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
    return arg;
}

static void fork_and_load(void) {
    pid_t child = fork();
    if (!child) {
        alarm(10);
        NEED(dlopen(loaded_in_child, RTLD_NOW));
        _exit(0);
    }
    walk.forked();
    wait_well(child);
}

static int fork_beside(void *(*other)(void *)) {
    pthread_t thread;
    start_walks();
    NEED(!pthread_create(&thread, NULL, other, NULL));
    for (int i = 0; i < 20000 && !walk.is_inside(); i++)
        usleep(1000);
    NEED(walk.is_inside());
    fork_and_load();
    pthread_join(thread, NULL);
    return 0;
}

static int fork_walking(void) {
    return fork_beside(walk_stack);
}

static int fork_looking(void) {
    return fork_beside(look_for_code);
}

static _Atomic int step;

static void *walk_late(void *arg) {
    program_device();
    walk.through(program_use, 2);
    atomic_store(&step, 1);
    while (atomic_load(&step) != 2)
        usleep(1000);
    walk.hold();
    walk.through(program_use, 1);
    atomic_store(&step, 3);
    return arg;
}

/* Of the program, and the last one. */
static void walk_beside_fork(void) {
    atomic_store(&step, 2);
    for (int i = 0; i < 20000 && atomic_load(&step) != 3; i++)
        usleep(1000);
    NEED(atomic_load(&step) == 3);
    NEED(!walk.is_inside());
    walk.hold(); /* the thread that forks may walk */
    walk.forked();
    walk.through(program_use, 1);
    NEED(walk.is_inside());
}

static int fork_closed(void) {
    pthread_t thread;
    NEED(!pthread_atfork(walk_beside_fork, NULL, NULL));
    start_walks();
    NEED(!pthread_create(&thread, NULL, walk_late, NULL));
    while (atomic_load(&step) != 1)
        usleep(1000);
    fork_and_load();
    pthread_join(thread, NULL);
    return 0;
}

int main(int argc, char **argv) {
    loaded_in_child = argc > 2 ? argv[2] : NULL;
    static const program_case_t cases[] = {
        {"before", fork_before}, {"after", fork_after},         {"bare", fork_bare},
        {"storm", fork_storm},   {"inside", fork_inside},       {"spawns", spawns},
        {"daemon", daemonise},   {"capturing", fork_capturing}, {"leaving", fork_leaving},
        {"exec", fork_exec},     {"seven", use_seven},          {"daemon_after", daemon_after},
        {"locks", fork_locks},   {"nothing", use_nothing},
        {"walking", fork_walking}, {"looking", fork_looking}, {"closed", fork_closed},
    };
    return program_main(argc, argv, cases, sizeof cases / sizeof cases[0]);
}
