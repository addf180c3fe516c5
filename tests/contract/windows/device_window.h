/* A window in the fake device: another thread does its part once, before the next call of a
 * kind. */
#ifndef DEVICE_WINDOW_H
#define DEVICE_WINDOW_H

#include "fake_device.h"

static void (*device_part)(void);
static fake_kind_t device_kind;

static void before_call(void *arg, fake_kind_t kind) {
    void (*part)(void) = device_part;
    (void)arg;
    if (!part || kind != device_kind)
        return;
    device_part = NULL;
    part();
}

static void at_call(fake_device_t *of, fake_kind_t kind, void (*part)(void)) {
    device_kind = kind;
    device_part = part;
    of->before = before_call;
}

#endif
