/* The file of the recorder (trace.c): its name, its header, its growth and its end.  Internal to
 * observe/.  No descriptor is kept: the program may close any number and open its own under it.
 *
 * Thread-safe but for _create and _time, of which there is one call at a time. */
#ifndef AC_TRACE_FILE_H
#define AC_TRACE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "observe/trace_format.h"

/* The header while there is a file, mapped; else NULL. */
extern ac_trace_header_t *ac_trace_header;

/* See ac_trace_open; `pattern` names a file. */
int ac_trace_file_create(const char *pattern, char *path, size_t size, int *other);
const char *ac_trace_file_path(void);

/* Reserve and map a unit at `offset`; it reads as 0.  Returns 0 or an errno value: ESTALE when
 * the file is not where it was. */
int ac_trace_file_front(uint64_t offset, ac_trace_chunk_t **front);

/* Write a copy of the front to `offset`; it counts once it is whole.  Returns 0 or
 * an errno value. */
int ac_trace_file_copy(uint64_t offset, const ac_trace_chunk_t *front);

/* The clock of stamps: chosen by ac_trace_file_create. */
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
/* Note the clock's rate up to now. */
void ac_trace_file_time(void);

void ac_trace_file_fork_child(void);

#endif
