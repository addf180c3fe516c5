/* A stand-in for the process around the library's thread (process/writer.h): one device with the
 * allocator of fake_world.h, no dumps and no requests, and a main thread that never ends. The
 * test defines ac_process_config and ac_pinned_decay. */
#ifndef WRITER_FRAME_H
#define WRITER_FRAME_H

#include <pthread.h>

#include "allocator/supply/supply.h"
#include "allocator_frame.h"
#include "track/context.h"
#include "process/control.h"
#include "track/decay.h"
#include "process/own_thread.h"
#include "track/pinned.h"
#include "tell/process_dump.h"
#include "track/running.h"
#include "process/writer.h"

_Atomic int ac_state;
_Atomic bool ac_enabled = true;

void ac_process_dump_configured(const char *why) {
    (void)why;
}

void ac_control_run(void) {
}

void ac_device_each(void (*visit)(CUdevice of, ac_allocator_t *allocator, void *arg), void *arg) {
    visit(0, allocator, arg);
}

static pthread_t own_thread;
static bool has_thread;

int ac_own_thread_start(void *(*run)(void *)) {
    has_thread = true;
    return pthread_create(&own_thread, NULL, run, NULL);
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

/* Frees memory while work is pending and tells the library's thread about it. */
static void owe(void) {
    uint64_t block = alloc(40 * MIB);
    submit(0);
    give(block);
    ac_supply_postpone_trim(allocator);
}

#endif
