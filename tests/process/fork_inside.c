/* Preloaded after the library: forks whenever fork handlers are registered, which the
 * simulated driver does inside cuInit, holding its locks, and the library on its first use.  The
 * children leave by exit and must not write anything. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int register_fn(void (*)(void), void (*)(void), void (*)(void), void *);

int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
                      void *library);

int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
                      void *library) {
    union {
        void *address;
        register_fn *call;
    } next = {dlsym(RTLD_NEXT, "__register_atfork")};
    int status;
    pid_t pid = fork();
    if (!pid) {
        alarm(20);
        exit(0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
        fputs("fork_inside: a child failed\n", stderr);
    else
        fputs("forked inside\n", stderr);
    return next.call(prepare, parent, child, library);
}
