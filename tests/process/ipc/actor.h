/* Actors: processes that execute CUDA calls on request, one call per request. A script in one
 * process can therefore describe the interaction of several processes, from top to bottom.
 *
 * The script's process calls no CUDA and runs without the library. Each actor is a new process of
 * this program. It is killed when the script's process ends, or by its own alarm. */
#ifndef IPC_ACTOR_H
#define IPC_ACTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "driver.h"

typedef enum {
    DO_ALLOC,      /* a: bytes                      -> address */
    DO_FREE,       /* a: address */
    DO_FILL,       /* a: address, b: bytes, c: word of 32 bits; waits */
    DO_READ,       /* a: address, b: bytes          -> value: first word, more: words unlike it */
    DO_COPY,       /* a: to, b: from, c: bytes; waits */
    DO_SLOW,       /* a: address, b: word, c: stream: a kernel that writes it late; no wait */
    DO_COPY_ASYNC, /* a: to, b: from, c: stream, d: bytes; no wait */
    DO_SYNC,
    DO_STREAM,        /*                           -> value: a stream */
    DO_RANGE,         /* a: address                -> address, value: bytes */
    DO_ID,            /* a: address                -> value: buffer id */
    DO_EXPORT,        /* a: address                -> handle */
    DO_OPEN,          /* handle                    -> address */
    DO_OPEN_FLAGS,    /* handle, a: flags          -> address */
    DO_CLOSE,         /* a: address */
    DO_CAPTURE,       /* a: stream, which captures in the strictest mode */
    DO_CAPTURE_END,   /* a: stream                 -> value: nodes of the graph */
    DO_EVENT,         /* a: flags                  -> value: an event */
    DO_EVENT_EXPORT,  /* a: event                  -> handle */
    DO_EVENT_OPEN,    /* handle                    -> value */
    DO_EVENT_RECORD,  /* a: event, b: stream */
    DO_EVENT_QUERY,   /* a: event */
    DO_EVENT_WAIT,    /* a: event; waits */
    DO_EVENT_DESTROY, /* a: event */
    DO_STREAM_WAIT,   /* a: stream, b: event */
    DO_DEVICE,        /* a: ordinal; its primary context is current afterwards */
    DO_CONTEXT,       /*                           -> value: a new context, current afterwards */
    DO_CONTEXT_END,   /* a: context; the primary one is current afterwards */
    DO_RESET,         /* resets device 0's primary context, which is current afterwards */
    DO_LIVE,          /* text: a kind of simcuda_live  -> value */
    DO_CALLS,         /* text: a function of the driver -> value: calls that reached it */
    DO_USED,          /*                            -> value: bytes of device 0 in use */
    DO_RACES,         /* text: a finding, "" for all -> value */
    DO_FORK,          /* a child that calls cuIpcGetMemHandle(a) and exits -> value: its result */
    DO_EXEC,          /* executes the actor's program again, in the same process */
    DO_EXIT,          /* exits like a program */
} do_t;

typedef struct {
    do_t what;
    uint64_t a, b, c, d;
    unsigned char handle[CU_IPC_HANDLE_SIZE];
    char text[48];
} ask_t;

typedef struct {
    CUresult result;
    uint64_t address, value, more;
    unsigned char handle[CU_IPC_HANDLE_SIZE];
} answer_t;

typedef struct {
    pid_t pid;
    int socket;
} actor_t;

/* Selects an actor's run with or without the library. */
typedef enum { AS_CASE, WITHOUT_LIBRARY, WITH_LIBRARY } under_t;
/* True if AS_CASE means with the library in this run of the script. */
extern bool under_library;
/* True if the library's memory is on pages. */
extern bool on_pages;

actor_t *actor_start(under_t under);
/* Sends a request and waits for the answer. The script ends with TEST_WRONG if the actor dies
 * first. */
answer_t actor_ask(actor_t *actor, ask_t ask);
answer_t actor_do(actor_t *actor, const uint64_t words[5]); /* what, a, b, c, d */
/* The two halves of actor_ask. */
void actor_tell(actor_t *actor, ask_t ask);
answer_t actor_answer(actor_t *actor);
/* Ends the actor: actor_end by a normal exit, which must succeed, actor_kill by SIGKILL. Both
 * wait for it. */
void actor_end(actor_t *actor);
void actor_kill(actor_t *actor);

/* Main function of a process that actor_start made. */
int actor_main(int socket);

/* ---- short forms ---- */

/* Sends a request given by its words: ASK(actor, DO_FILL, address, bytes, word). */
#define ASK(actor, ...)     actor_do(actor, (const uint64_t[5]){__VA_ARGS__})
#define RESULT(actor, ...)  ASK(actor, __VA_ARGS__).result
#define VALUE(actor, ...)   actor_value(ASK(actor, __VA_ARGS__))
#define ADDRESS(actor, ...) actor_address(ASK(actor, __VA_ARGS__))
#define GOOD(actor, ...)    MUST(RESULT(actor, __VA_ARGS__))

uint64_t actor_value(answer_t answer); /* the call must succeed */
uint64_t actor_address(answer_t answer);

typedef struct {
    unsigned char bytes[CU_IPC_HANDLE_SIZE];
} handle_t;

uint64_t memory_of(actor_t *actor, uint64_t bytes, uint32_t word); /* filled */
handle_t handle_of(actor_t *actor, uint64_t address);
CUresult try_open(actor_t *actor, handle_t handle, uint64_t *address);
uint64_t open_of(actor_t *actor, handle_t handle); /* has to work */
/* Returns true if every word of the memory is `word`. */
bool reads(actor_t *actor, uint64_t address, uint64_t bytes, uint32_t word);
uint64_t count_of(actor_t *actor, const char *kind);    /* DO_LIVE */
uint64_t races_of(actor_t *actor, const char *finding); /* DO_RACES */

/* Ends both actors. Checks that the importer has nothing open, and that neither found a race. */
void clean_end(actor_t *exporter, actor_t *importer);

#endif
