/* The harness of test programs that call the driver: assertions, and a device.
 *
 * A program, or each of its cases in a child process, ends with one of the statuses below. A
 * message names the running case, file and line, the call or condition, and the result. Any thread
 * may use the macros. Programs that check every answer of the driver in their own way (chaos,
 * litmus, answers) use the same two macros. */
#ifndef SUPPORT_HARNESS_H
#define SUPPORT_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "driver.h"
#include "simcuda.h"

enum {
    TEST_GOOD = 0,
    TEST_WRONG = 1,    /* the tested behaviour is wrong */
    TEST_BROKEN = 2,   /* a step before the tested one failed: nothing was shown */
    TEST_USAGE = 64,   /* unknown case */
    TEST_SKIPPED = 77, /* a requirement of the program is missing */
};

/* Makes a call of the driver, the runtime or the C API that has to succeed. If it fails, the
 * process ends with TEST_BROKEN. */
#define MUST(call) test_must((long long)(call), #call, __FILE__, __LINE__)
/* Checks a step of the program itself. If it fails, the process ends with TEST_BROKEN. */
#define NEED(condition) test_need(condition, #condition, __FILE__, __LINE__)
/* Checks the tested behaviour. If the condition is false, the process ends with TEST_WRONG. */
#define EXPECT(condition) test_expect(condition, #condition, __FILE__, __LINE__)
/* Checks that the tested call returns `wanted`. If not, the process ends with TEST_WRONG. */
#define GIVES(call, wanted)                                                                      \
    test_gives((long long)(call), (long long)(wanted), #call, __FILE__, __LINE__)

void test_must(long long result, const char *call, const char *file, int line);
void test_need(bool holds, const char *condition, const char *file, int line);
void test_expect(bool holds, const char *condition, const char *file, int line);
void test_gives(long long result, long long wanted, const char *call, const char *file, int line);

/* Prints the message and ends the process without its exit handlers: work may still be running, and
 * a dump of a failed run would only confuse. */
__attribute__((noreturn, format(printf, 2, 3))) void test_stop(int status, const char *format,
                                                               ...);

/* The running case, with which messages begin; NULL: none. */
extern const char *test_title;
/* True in programs that also run on a GPU: if a MUST returns NOT_SUPPORTED, the process ends with
 * TEST_SKIPPED. */
extern bool test_may_lack;
/* Names the result of a failed MUST; NULL: the message has its number alone. */
extern const char *(*test_result_name)(CUresult result);
/* Receives every message; the default prints a line on stderr. */
typedef void test_say_fn(int status, const char *message);
extern test_say_fn *test_say;

/* ---- a device (device.c) ---- */

/* The primary context of device `i`, current in the calling thread. */
CUcontext test_device(int i);
/* Registers a kernel with the simulated device and finds it in the current context. For tests on
 * the simulated device only, because that device does not read the module's text. */
CUfunction test_kernel(const simcuda_kernel_t *kernel);
/* The body of a kernel (address, 32-bit value): writes the value there. */
void test_store(const simcuda_launch_t *launch);
/* A stream of the current context that is not ordered with the legacy default stream. */
CUstream test_stream(void);
/* Finds a function of the preloaded library or of the simulated device. Returns false, with NULL in
 * the slot, if there is none. `slot` is a pointer to a function pointer. */
bool test_find(const char *name, void *slot);
static inline CUdeviceptr test_address(const void *memory) {
    return (CUdeviceptr)(uintptr_t)memory;
}

/* ---- the threads of this process (threads.c) ---- */

typedef struct {
    pid_t id;
    bool asleep; /* it waits, and for something else than a processor */
    long sleeps; /* how often it went to sleep */
} test_thread_t;

/* Lists all threads and returns their number. More than `room` is TEST_BROKEN. */
size_t test_threads(test_thread_t *threads, size_t room);

/* ---- the library under a program that does not link it (device.c) ---- */

bool test_library_is_here(void);
/* The sum of all figures of that name in its statistics; 0: it is not here. */
long long test_figure(const char *name);
/* Checks the library's records by accel_check, if the library is loaded. */
void test_library_agrees(void);

#endif
