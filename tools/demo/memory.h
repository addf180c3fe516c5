/* Device memory of the demonstration: allocation and copies through the driver API
 * (memory_driver.c) or the CUDA runtime (memory_runtime.c); one of them is linked.  Results are
 * error numbers, which driver and runtime share; 0 is success. */
#ifndef DEMO_MEMORY_H
#define DEMO_MEMORY_H

#include <stddef.h>

/* "driver API" or "runtime API". */
extern const char demo_memory_api[];

/* Finds the functions in `driver`, a handle from dlopen.  Returns the missing name, or NULL. */
const char *demo_memory_open(void *driver);

unsigned demo_memory_alloc(unsigned long long *address, size_t bytes);
unsigned demo_memory_free(unsigned long long address);
/* Copies are asynchronous and ordered by `stream`; host memory must be page-locked for that. */
unsigned demo_memory_copy_in(unsigned long long to, const void *from, size_t bytes, void *stream);
unsigned demo_memory_copy_out(void *to, unsigned long long from, size_t bytes, void *stream);

#endif
