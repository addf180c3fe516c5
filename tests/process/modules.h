/* How a module of modules.c asks for memory. */
#ifndef PROCESS_MODULES_H
#define PROCESS_MODULES_H

#include <stddef.h>

/* By the function of that name; an error of the driver or the runtime, -1: there is no such. */
typedef int modules_take_fn(const char *how, size_t bytes, void **pointer);

/* What a plugin exports. */
typedef struct {
    modules_take_fn *take;
    int (*release)(void *pointer);
    int (*release_async)(void *pointer); /* on the default stream */
} modules_plugin_t;

#endif
