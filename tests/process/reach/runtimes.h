/* What a plugin of runtimes.c offers: calls of the runtime that it is linked with. */
#ifndef REACH_RUNTIMES_H
#define REACH_RUNTIMES_H

#include <stddef.h>

typedef struct {
    int (*allocate)(void **pointer, size_t bytes);
    int (*release)(void *pointer);
    int (*set_device)(int device);
    int (*last_error)(void);
    int (*get_entry)(const char *name, void **function);
} plugin_t;

#endif
