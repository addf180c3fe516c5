/* The window between the library's thread and one that owes memory (writer.c), on the fake device: the
 * process around them is stood in for. */
#include <check.h>
#include <pthread.h>
#include <time.h>

#include "allocator/supply/supply.h"
#include "allocator_frame.h"
#include "intercept/context.h"
#include "intercept/control.h"
#include "intercept/decay.h"
#include "intercept/own_thread.h"
#include "intercept/pinned.h"
#include "intercept/process.h"
#include "intercept/writer.h"
#include "windows.h"

_Atomic int ac_state = AC_STATE_ACTIVE;
_Atomic bool ac_enabled = true;
static const ac_config_t config = {.enabled = true, .background_trim = true, .dump = "none"};

const ac_config_t *ac_process_config(void) {
    return &config;
}

bool ac_process_dump_configured(const char *why) {
    (void)why;
    return false;
}

void ac_control_run(void) {
}

void ac_pinned_decay(const ac_config_t *now) {
    (void)now;
}

void ac_device_each(void (*visit)(CUdevice of, ac_allocator_t *allocator, void *arg), void *arg) {
    visit(0, allocator, arg);
}

int ac_own_thread_start(void *(*run)(void *)) {
    pthread_t thread;
    return pthread_create(&thread, NULL, run, NULL);
}

int64_t ac_own_thread_look_ns(int64_t last, bool quiet) {
    (void)last, (void)quiet;
    return 0;
}

bool ac_own_thread_alone(void) {
    return false;
}

void *ac_own_thread_end(void) {
    return NULL;
}

void ac_own_thread_main_ended(void) {
}

bool ac_own_thread_main_has_ended(void) {
    return false;
}

static void owe(void) {
    uint64_t block = alloc(40 * MIB);
    submit(0);
    give(block);
    ac_supply_owe(allocator);
    fake_complete(&context[0], context[0].submitted);
}

static _Atomic bool owed_again;

static void owe_again(void) {
    owe();
    atomic_store(&owed_again, true);
}

/* Just after the thread found that nothing is owed any more. */
void window_owed_looked_at_once(void) {
    enum { NAP_NS = 1000000, NAPS = 1500 };
    begin_large();
    ac_writer_start();
    at_window("debt_settled", owe_again);
    owe();
    for (int i = 0; i < NAPS && (!atomic_load(&owed_again) || atomic_load(&ac_trim_owed)); i++)
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    ck_assert(atomic_load(&owed_again));
    ck_assert_msg(!atomic_load(&ac_trim_owed), "memory stays that was owed meanwhile");
}
