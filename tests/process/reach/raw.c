/* Built as libucm_raw.so, whose lookups are never answered with a hook: its callers get the
 * driver's own functions, which stand for a way to change things that passes no hook. */
#include <dlfcn.h>

void *raw_function(void *handle, const char *name);

void *raw_function(void *handle, const char *name) {
    void *volatile found = dlsym(handle, name); /* no tail call: stay the caller */
    return found;
}
