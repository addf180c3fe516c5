/* The file of the recorder (trace.c): its name, header, growth and end.  Internal to observe/.  The code keeps
 * no open descriptor, because the program may close any number and reuse it.
 *
 * All functions are thread-safe, except _create and _time: only one thread at a time calls these. */
#ifndef AC_TRACE_FILE_H
#define AC_TRACE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "observe/trace_format.h"

/* The mapped header; NULL if there is no file. */
extern ac_trace_header_t *ac_trace_header;

/* Creates the file for ac_trace_open; `pattern` is not "none". */
int ac_trace_file_create(const char *pattern, char *path, size_t size, int *other);
const char *ac_trace_file_path(void);

/* Reserves and maps a unit of zeros at `offset`.  Returns 0 or an errno value; ESTALE if the file was moved or
 * removed. */
int ac_trace_file_front(uint64_t offset, ac_trace_chunk_t **front);

/* Writes a copy of the front to `offset`.  Readers ignore the copy until it is complete.  Returns 0 or an errno
 * value. */
int ac_trace_file_copy(uint64_t offset, const ac_trace_chunk_t *front);

/* The clock of stamps, which ac_trace_file_create chooses. */
extern bool ac_trace_counter;   /* the processor's */
extern uint32_t ac_trace_shift; /* the header's time_shift */
uint64_t ac_trace_coarse_ns(void);
static inline uint64_t ac_trace_ticks(void) {
#if defined(__x86_64__)
    if (__builtin_expect(ac_trace_counter, 1))
        return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#endif
    return ac_trace_coarse_ns();
}
/* Stores the current time in the header, from which readers compute the clock's rate. */
void ac_trace_file_time(void);

void ac_trace_file_fork_child(void);

#endif
