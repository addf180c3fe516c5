/* Python frames of a thread that does not hold the interpreter's lock.  Used by python_frames.c. */
#ifndef AC_PYTHON_OWN_H
#define AC_PYTHON_OWN_H

#include "observe/sites.h"

/* An interpreter of a kind whose frames can be read without its lock. */
typedef struct {
    unsigned long version; /* Py_Version; 0: of another kind */
    const void *code_type, *text_type, *bytes_type;
    int memory; /* a descriptor of the process's memory, while frames are read */
} ac_python_own_t;

/* Frames of the calling thread, innermost first.  `state`: its PyThreadState.  0: they cannot be read.  If the thread's
 * stack has no frame of the interpreter, another thread may run with this state, and the answer means nothing. */
unsigned ac_python_own_frames(const ac_python_own_t *own, void *state, uint64_t *frame, unsigned room);

#endif
