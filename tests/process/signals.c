/* Programs that get the dump's signal; signals.py sends it.  Each prints "ready" and then lives
 * until its stdin is closed. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "program.h"

static volatile sig_atomic_t seen;

static void own_handler(int number) {
    (void)number;
    seen++;
}

static int stay(void) {
    char byte;
    puts("ready");
    fflush(stdout);
    for (;;) {
        ssize_t n = read(STDIN_FILENO, &byte, 1);
        if (n == 0)
            break;
        if (n < 0) {
            NEED(errno == EINTR);
            puts("interrupted");
        } else {
            printf("got %c, seen %d\n", byte, (int)seen);
        }
        fflush(stdout);
    }
    return 0;
}

static int plain(void) {
    program_device();
    program_use(5);
    return stay();
}

static int own_before(void) {
    signal(SIGUSR2, own_handler);
    return plain();
}

static int own_after(void) {
    program_device();
    signal(SIGUSR2, own_handler);
    program_use(5);
    return stay();
}

static int ignored(void) {
    signal(SIGUSR2, SIG_IGN);
    return plain();
}

/* A program that fetches its signals with sigwait: blocked everywhere, default disposition. */
static int fetched(void) {
    sigset_t set;
    int number;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    program_device();
    program_use(5);
    puts("ready");
    fflush(stdout);
    NEED(!sigwait(&set, &number) && number == SIGUSR2);
    puts("fetched");
    fflush(stdout);
    return 0;
}

/* Blocked in all threads but one. */
static void *idle_thread(void *arg) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    for (;;)
        pause();
    return arg;
}

static int one_open(void) {
    pthread_t thread;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    NEED(!pthread_create(&thread, NULL, idle_thread, NULL));
    return plain();
}

static _Atomic int stop;

static void *churn(void *arg) {
    int rounds = 0;
    program_device();
    while (!atomic_load(&stop) || rounds < 100) {
        program_use(1);
        rounds++;
    }
    return arg;
}

static int heavy(void) {
    pthread_t threads[8];
    program_device();
    for (int i = 0; i < 8; i++)
        NEED(!pthread_create(&threads[i], NULL, churn, NULL));
    int status = stay();
    atomic_store(&stop, 1);
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    return status;
}

int main(int argc, char **argv) {
    static const program_case_t cases[] = {
        {"plain", plain},     {"own_before", own_before}, {"own_after", own_after},
        {"ignored", ignored}, {"fetched", fetched},       {"one_open", one_open},
        {"heavy", heavy},
    };
    return program_main(argc, argv, cases, sizeof cases / sizeof cases[0]);
}
