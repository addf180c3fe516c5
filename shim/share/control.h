/* Requests of `accelcache ctl` and `accelcache top` to a running process, over the socket of
 * ipc_socket.h, and its answers.  Both sides ask the kernel that the other one belongs to the same
 * user. */
#ifndef AC_SHARE_CONTROL_H
#define AC_SHARE_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

typedef enum {
    AC_CONTROL_DUMP = 1,    /* write the dump to the configured place */
    AC_CONTROL_TRIM,        /* give back idle memory, as far as that waits for nothing */
    AC_CONTROL_RESET_PEAKS, /* peak = current, on every device */
    AC_CONTROL_SET,         /* `text` takes the place of the configuration string */
    AC_CONTROL_SNAPSHOT,    /* write a dump with all blocks to the file `text` */
    AC_CONTROL_WHERE,       /* what is near the address `text` (decimal) */
    AC_CONTROL_HISTORY,     /* switch the history: `text` is "on" or "off" */
    AC_CONTROL_RECORDED,    /* what was recorded of the block at the address `text` (decimal) */
    AC_CONTROL_FIGURES      /* write a dump without blocks and events to the file `text` */
} ac_control_verb_t;

enum { AC_CONTROL_TEXT = 4096 };

/* Texts end with a NUL.  A change of these structures takes another magic number. */
typedef struct {
    uint64_t magic;
    uint32_t verb; /* ac_control_verb_t */
    char text[AC_CONTROL_TEXT];
} ac_control_ask_t;

typedef struct {
    uint64_t magic;
    int32_t error;              /* 0, or an errno value */
    uint64_t bytes;             /* TRIM: that were given back */
    char text[AC_CONTROL_TEXT]; /* DUMP, SNAPSHOT, FIGURES: the file; WHERE: a JSON array of segments
                                 * as dumps have them; with an error what is wrong, or nothing */
} ac_control_answer_t;

/* ---- who asks: any thread ---- */

/* Send the request to the socket `fd` of ac_ipc_connect, and wait for the answer until `until`
 * (CLOCK_MONOTONIC, ns).  0; ETIMEDOUT; or ECONNRESET: the process ended, or had no time for it. */
int ac_control_request(int fd, ac_control_ask_t *ask, ac_control_answer_t *answer, int64_t until);

/* ---- the process that is asked ---- */

/* Take a request over, on the thread of ac_ipc_answer, without waiting for anything.  True: The
 * handler owns `fd` and answers later by ac_control_reply.  False: nothing will come of it. */
typedef bool ac_control_take_fn(int fd, const ac_control_ask_t *ask);
/* From then on requests are taken; before ac_ipc_listen.  Without it they are refused. */
void ac_control_serve(ac_control_take_fn *take);

/* Answer, and close `fd`.  Does not wait.  Any thread. */
void ac_control_reply(int fd, ac_control_answer_t *answer);

#endif
