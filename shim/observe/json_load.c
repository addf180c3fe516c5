/* The link to jansson.  It is normally linked in.  If the distribution's archive cannot be linked into a shared
 * library, it is found at run time; see json.h. */
#include "observe/json.h"

/* Seed of jansson's hash tables.  Without it jansson would open /dev/urandom when the process ends.  A constant is
 * safe, because only the library chooses the keys. */
enum { SEED = 1 };

#ifndef AC_JANSSON_DLOPEN

#include <sys/time.h>

#include "observe/raw.h"

int ac_json_time(struct timeval *now, void *zone);

/* Replaces gettimeofday for jansson in the shared library (--defsym).  The function of libc is an indirect function.
 * The loader would have to resolve it in each process, in a part of libc that small programs otherwise never
 * touch. */
int ac_json_time(struct timeval *now, void *zone) {
    struct timespec time = ac_raw_time(CLOCK_REALTIME);
    (void)zone;
    now->tv_sec = time.tv_sec;
    now->tv_usec = time.tv_nsec / 1000;
    return 0;
}

bool ac_json_ready(void) {
    json_object_seed(SEED);
    return true;
}

void ac_json_free(json_t *json) {
    json_decref(json);
}

#else

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "observe/log.h"

ac_json_table_t ac_json_table;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool ready;

static void load(void) {
    void *library = dlopen("libjansson.so.4", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        ac_log(AC_LOG_WARNING, "no statistics dump: libjansson.so.4 is not installed");
        return;
    }
    void *at;
    ready = true;
    /* memcpy: ISO C has no conversion from an object pointer to a function pointer. */
#define X(result, name, args)                                                                    \
    at = dlsym(library, #name);                                                                  \
    memcpy(&ac_json_table.name##_, &at, sizeof at);                                              \
    ready = ready && at;
    AC_JSON_FUNCTIONS(X)
#undef X
    if (!ready)
        ac_log(AC_LOG_WARNING, "no statistics dump: libjansson.so.4 is too old");
    else
        ac_json_table.json_object_seed_(SEED);
}

bool ac_json_ready(void) {
    pthread_once(&once, load);
    return ready;
}

void ac_json_free(json_t *json) {
    /* json_decref would call json_delete by its name. */
    if (json && json->refcount != (size_t)-1 && JSON_INTERNAL_DECREF(json) == 0)
        ac_json_table.json_delete_(json);
}

#endif
