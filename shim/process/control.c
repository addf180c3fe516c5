/* See control.h. */
#include "track/observers.h"
#include "process/control.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/allocator.h"
#include "device/cuda_device.h"
#include "track/context.h"
#include "process/ipc_serve.h"
#include "tell/layouts.h"
#include "track/pinned.h"
#include "track/running.h"
#include "tell/recorded_of.h"
#include "tell/recording.h"
#include "process/writer.h"
#include "observe/dump.h"
#include "observe/live_file.h"
#include "observe/log.h"
#include "share/control.h"
#include "tell/process_dump.h"

/* One request at a time: a second requester gets EBUSY with a message. */
typedef enum { FREE, TAKEN } slot_t;
static _Atomic int slot = FREE;
static int slot_fd;
static ac_control_ask_t slot_ask;

static void trim_device(CUdevice device, ac_allocator_t *allocator, void *bytes) {
    (void)device;
    *(uint64_t *)bytes += ac_allocator_trim(allocator, false);
}

static void reset_device(CUdevice device, ac_allocator_t *allocator, void *arg) {
    (void)device;
    (void)arg;
    ac_allocator_reset_peak(allocator);
}

static int set(const char *text, char *why, size_t size) {
    ac_config_error_t error = {.text = ""};
    if (ac_process_configure(text, &error))
        return 0;
    snprintf(why, size, "%s", error.text);
    return EINVAL;
}

static int trim(ac_control_answer_t *answer) {
    if (ac_cuda_is_capturing(NULL)) {
        snprintf(answer->text, sizeof answer->text,
                 "a stream captures: try again when it is over");
        return EBUSY;
    }
    ac_observe_late();
    ac_device_each(trim_device, &answer->bytes);
    ac_pinned_trim(false);
    return 0;
}

static int dump(ac_control_answer_t *answer) {
    if (strcmp(ac_process_config()->dump, "none") != 0)
        return ac_process_dump(NULL, "request", answer->text, sizeof answer->text);
    snprintf(answer->text, sizeof answer->text, "the key dump is none there");
    return EINVAL;
}

static bool is_absolute(const char *file, ac_control_answer_t *answer) {
    if (*file != '/')
        snprintf(answer->text, sizeof answer->text, "the file needs an absolute name");
    return *file == '/';
}

static int figures(const char *file, ac_control_answer_t *answer) {
    const ac_dump_more_t more = {.figures = true};
    if (!is_absolute(file, answer))
        return EINVAL;
    return ac_process_dump_with(file, "request", &more, answer->text, sizeof answer->text);
}

/* Writes all blocks, each device as it was at one moment. */
static int snapshot(const char *file, ac_control_answer_t *answer) {
    if (!is_absolute(file, answer))
        return EINVAL;
    ac_layouts_t *layouts = ac_layouts_take();
    if (!layouts)
        return ENOMEM;
    ac_record_snapshot();
    const ac_dump_more_t more = {.layout = layouts->layout, .layouts = layouts->count};
    int error = ac_process_dump_with(file, "request", &more, answer->text, sizeof answer->text);
    ac_layouts_free(layouts);
    return error;
}

/* Writes the part of the layout that is near the address, for each device. */
static int where(const char *text, ac_control_answer_t *answer) {
    enum { MOST = 4 };
    uint64_t address = strtoull(text, NULL, 10);
    ac_layouts_t *layouts = ac_layouts_take();
    ac_near_t near[MOST];
    ac_layout_t found[MOST];
    unsigned count = 0;
    size_t length;
    for (unsigned i = 0; layouts && i < layouts->count && count < MOST; i++) {
        ac_layout_near(&layouts->layout[i], address, &near[count]);
        found[count] = near[count].layout;
        count++;
    }
    char *list = layouts ? ac_layout_text(found, count, SIZE_MAX, &length) : NULL;
    ac_layouts_free(layouts);
    if (!list || length >= sizeof answer->text) {
        free(list);
        return ENOMEM;
    }
    memcpy(answer->text, list, length + 1);
    free(list);
    return 0;
}

static int history(const char *text, ac_control_answer_t *answer) {
    bool on = !strcmp(text, "on");
    if (!on && strcmp(text, "off") != 0) {
        snprintf(answer->text, sizeof answer->text, "the history is switched on or off");
        return EINVAL;
    }
    ac_recording_history(on);
    return 0;
}

static int recorded(const char *text, ac_control_answer_t *answer) {
    return ac_recorded_tell(strtoull(text, NULL, 10), answer->text, sizeof answer->text);
}

static int act(const ac_control_ask_t *ask, ac_control_answer_t *answer) {
    switch (ask->verb) {
    case AC_CONTROL_DUMP:
        return dump(answer);
    case AC_CONTROL_TRIM:
        return trim(answer);
    case AC_CONTROL_RESET_PEAKS:
        ac_device_each(reset_device, NULL);
        return 0;
    case AC_CONTROL_SET:
        return set(ask->text, answer->text, sizeof answer->text);
    case AC_CONTROL_SNAPSHOT:
        return snapshot(ask->text, answer);
    case AC_CONTROL_WHERE:
        return where(ask->text, answer);
    case AC_CONTROL_HISTORY:
        return history(ask->text, answer);
    case AC_CONTROL_RECORDED:
        return recorded(ask->text, answer);
    case AC_CONTROL_FIGURES:
        return figures(ask->text, answer);
    default:
        return ENOSYS; /* a verb of a later version */
    }
}

void ac_control_run(void) {
    static ac_control_answer_t answer; /* only the writer uses it */
    if (atomic_load(&slot) != TAKEN)
        return;
    memset(&answer, 0, sizeof answer);
    answer.error = act(&slot_ask, &answer);
    int fd = slot_fd;
    atomic_store(&slot, FREE); /* first: the requester may ask again once it has the answer */
    ac_control_reply(fd, &answer);
}

/* Accepts a request. Runs on the thread that serves the socket. */
static bool take(int fd, const ac_control_ask_t *ask) {
    static ac_control_answer_t refusal;
    bool idle = atomic_load(&slot) == FREE;
    if (idle) {
        slot_ask = *ask;
        slot_fd = fd;
        atomic_store(&slot, TAKEN);
        if (ac_writer_ask())
            return true;
        atomic_store(&slot, FREE);
    }
    refusal = (ac_control_answer_t){.error = EBUSY};
    strcpy(refusal.text, idle ? "it has no thread for that" : "it does what another one asked");
    ac_control_reply(fd, &refusal);
    return true;
}

void ac_control_start(void) {
    if (!ac_process_config()->control)
        return;
    ac_control_serve(take);
    /* The socket lies next to the live page, so it needs the page's name. */
    int error = ac_live_file.name[0] ? ac_ipc_serve_start() : ENOENT;
    if (error)
        ac_log_once(AC_LOG_WARNING, "no socket for `accelcache ctl`: %s", strerror(error));
}

void ac_control_fork_child(void) {
    atomic_store(&slot, FREE);
}
