/* Python frames of a thread that does not hold the interpreter's lock.  Used by python_frames.c. */
#ifndef AC_PYTHON_OWN_H
#define AC_PYTHON_OWN_H

#include "observe/sites.h"

/* An interpreter with frames that the library can read without its lock. */
typedef struct {
    unsigned long version; /* Py_Version; 0: its frames cannot be read */
    const void *code_type, *text_type, *bytes_type;
    int memory; /* descriptor of the process's memory, while frames are read */
} ac_python_own_t;

/* Reads the frames of the calling thread, innermost first, and returns their number; 0: they cannot be read.
 * `state` is its PyThreadState. If the thread's stack has no frame of the interpreter, another thread may run
 * with this state. Then the result means nothing. */
unsigned ac_python_own_frames(const ac_python_own_t *own, void *state, uint64_t *frame, unsigned room);

#endif
