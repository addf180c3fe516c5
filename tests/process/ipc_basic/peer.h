/* Another process, which does with CUDA what it is told. */
#ifndef IPC_PEER_H
#define IPC_PEER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "driver.h"

typedef struct {
    pid_t pid;
    int to, from;
} peer_t;

typedef enum {
    PEER_ALLOC,  /* `size` bytes of 32-bit `word`; its handle and address come back */
    PEER_FREE,   /* the memory at `address` */
    PEER_OPEN,   /* `handle`: the address comes back */
    PEER_CLOSE,  /* what is open at `address` */
    PEER_WORK,   /* the same beside pending work; `word` comes back as 1 if that was waited for */
    PEER_READ,   /* the first and the last word of `size` bytes at `address` */
    PEER_RANGE,  /* `address` and `size` of the allocation around `address`; its buffer id */
    PEER_FILL,   /* `size` bytes of `word` at `address` */
    PEER_DETACH, /* its main thread ends, and another one goes on */
    PEER_FORGET, /* all its sockets are closed: `size` comes back, how many */
    PEER_LOW, /* it has no standard streams: `word` comes back, whether it could write to one since */
    PEER_BAIT, /* another socket in place of that at `path`, of which `word` says what it does */
    PEER_EXPORT, /* the handle of the memory at `address` */
    PEER_FILTER, /* a seccomp filter: the one of number `word`, see below */
    PEER_POOR,   /* it may have `size` descriptors, and no capabilities */
    PEER_CONTEXT, /* a second context of the device, current from then on: or with `size` gone */
    PEER_STOP
} peer_do_t;

/* All but the first are for all threads. */
enum {
    PEER_FILTER_ONE,       /* allows all; for the main thread */
    PEER_FILTER_ALL,       /* allows all */
    PEER_FILTER_DENIES,    /* kills for ptrace, and for a use of prctl */
    PEER_FILTER_NO_SOCKET, /* kills for accept4 */
    PEER_FILTER_ARGUMENT,  /* kills for one request of ioctl */
    PEER_FILTER_STRICT,    /* kills for accept4, on top of one that allows all */
    PEER_FILTER_UNSEEN     /* allows all; the library does not see how it is installed */
};

typedef struct {
    peer_do_t what;
    CUipcMemHandle handle;
    CUdeviceptr address;
    size_t size;
    unsigned word;
    char path[512];
} peer_ask_t;

typedef struct {
    CUresult result;
    CUipcMemHandle handle;
    CUdeviceptr address;
    size_t size;
    unsigned word, last;
    unsigned long long id;
} peer_answer_t;

/* What is larger than this is filled at its begin and end. */
enum { PEER_LARGE = 256 << 20 };

/* With `preloaded` as this process, else without the library.  On device `device`. */
peer_t peer_start(const char *program, int device, bool preloaded);
peer_answer_t peer_ask(peer_t *peer, peer_ask_t ask);
/* Its two halves: several peers work at a time. */
void peer_tell(peer_t *peer, peer_ask_t ask);
peer_answer_t peer_answer(peer_t *peer);
/* It ends by itself and well; or is killed. */
void peer_stop(peer_t *peer);
void peer_kill(peer_t *peer);

/* What a socket does that no library of ours listens at (bait.c). */
typedef enum {
    BAIT_SILENT,
    BAIT_GARBAGE,
    BAIT_EMPTY,
    BAIT_SHORT,
    BAIT_WRONG,
    BAIT_ENDS,
    BAITS
} bait_t;
void bait_start(const char *path, bait_t bait);

/* What such a process does. */
int peer_main(int device);

/* Fill memory of this process with the word, and wait. */
void fill(CUdeviceptr address, size_t size, unsigned word);

/* The same for one call. */
CUresult peer_open(peer_t *peer, CUipcMemHandle handle, CUdeviceptr *address);
CUresult peer_close(peer_t *peer, CUdeviceptr address);
/* Whether it reads `size` bytes of the word there. */
bool peer_reads(peer_t *peer, CUdeviceptr address, size_t size, unsigned word);

#endif
