/* Records of the recording libcuda.so.1. Tests reach them through dlsym. */
#ifndef TESTS_CUDART_RECORDER_H
#define TESTS_CUDART_RECORDER_H

#include <stdbool.h>
#include <stddef.h>

enum { RECORDER_CALLS = 2048 };

enum recorder_way {
    ASKED,                /* the exported cuGetProcAddress_v2 */
    ASKED_THROUGH_ITSELF, /* the one that cuGetProcAddress returned for its own
                             name */
    CALLED,               /* a function was called */
};

struct recorded {
    enum recorder_way way;
    int version;
    unsigned long long flags;
    bool status; /* a place for the status was given */
    char name[96];
};

typedef size_t recorder_calls_fn(const struct recorded **out);
typedef void recorder_fail_alloc_fn(int times);

#endif
