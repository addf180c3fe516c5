/* A program with a result: it allocates, frees, prints a sum and ends with status 11.
 * usage: work [WORD...], each WORD a misfortune that comes before CUDA is used, or after it with
 * "-" before the word:
 *   files    all file descriptors are taken       fsize    no file may be longer than 4 KiB
 *   memory   no more address space                data2    number 2 is closed, then a data file
 *   append2  number 2 is closed, then a log       close    numbers 0, 1 and 2 are closed
 *   scribble a thread writes to the closed 1 while dumps are asked for; tells nothing */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "../program.h"

static void limit(int what, unsigned long value) {
    struct rlimit rlimit = {value, value};
    NEED(!setrlimit(what, &rlimit));
}

static void take_files(void) {
    limit(RLIMIT_NOFILE, 48);
    while (open("/dev/null", O_RDONLY) >= 0) {
    }
    NEED(errno == EMFILE);
}

/* What is mapped stays; nothing can be added, and the heap is full. */
static void take_memory(void) {
    limit(RLIMIT_AS, 1);
    for (size_t bytes = 1 << 20; bytes >= 16;) {
        if (!malloc(bytes))
            bytes /= 2;
    }
}

static void replace_stderr(int flags) {
    close(STDERR_FILENO);
    int fd = open("data", flags | O_CREAT, 0600);
    NEED(fd == STDERR_FILENO);
    NEED(write(fd, "data\n", 5) == 5);
}

static void close_all(void) {
    for (int fd = 0; fd < 3; fd++)
        close(fd);
}

static _Atomic int stop;

static void *scribble(void *arg) {
    while (!atomic_load(&stop))
        /* Not by way of the C library: ThreadSanitizer guards numbers of files there, and whose
         * this one is at the moment is what the thread is to find out. */
        if (syscall(SYS_write, STDOUT_FILENO, "scribble", (size_t)8) == 8)
            _exit(96); /* this program has not opened number 1 */
    return arg;
}

static void ask_for_dumps(void) {
    pthread_t thread;
    char name[64];
    snprintf(name, sizeof name, "accelcache-%d.json", (int)getpid());
    NEED(!pthread_create(&thread, NULL, scribble, NULL));
    for (int i = 0; i < 300; i++) {
        raise(SIGUSR2);
        while (access(name, F_OK))
            usleep(100);
        unlink(name);
    }
    atomic_store(&stop, 1);
    pthread_join(thread, NULL);
}

static void befall(const char *word) {
    if (!strcmp(word, "files"))
        take_files();
    else if (!strcmp(word, "memory"))
        take_memory();
    else if (!strcmp(word, "fsize"))
        limit(RLIMIT_FSIZE, 4096);
    else if (!strcmp(word, "data2"))
        replace_stderr(O_RDWR);
    else if (!strcmp(word, "append2"))
        replace_stderr(O_WRONLY | O_APPEND);
    else if (!strcmp(word, "close"))
        close_all();
    else if (!strcmp(word, "scribble"))
        ask_for_dumps();
    else
        test_stop(TEST_USAGE, "wrong word");
}

int main(int argc, char **argv) {
    CUdeviceptr block[16];
    unsigned long long sum = 0;
    char text[64];
    for (int i = 1; i < argc; i++)
        if (argv[i][0] != '-')
            befall(argv[i]);
    CUresult result = cuInit(0);
    if (result != CUDA_SUCCESS) {
        printf("no CUDA: %d\n", (int)result);
        return 12;
    }
    program_device();
    for (int i = 0; i < 16; i++) {
        MUST(cuMemAlloc_v2(&block[i], 1000u << i));
        sum += 1000u << i;
    }
    for (int i = 1; i < argc; i++)
        if (argv[i][0] == '-')
            befall(argv[i] + 1);
    for (int i = 0; i < 16; i++)
        program_free(block[i]);
    program_use(3);
    int length = snprintf(text, sizeof text, "sum %llu\n", sum);
    ssize_t written = write(STDOUT_FILENO, text, (size_t)length); /* closed on purpose, perhaps */
    return written < 0 ? 13 : 11;
}
