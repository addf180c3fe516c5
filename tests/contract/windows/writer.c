/* The window between the library's thread and a thread that owes memory (writer.c), on the fake device.
 * writer_frame.h stands in for the process. */
#include <check.h>
#include <time.h>

#include "writer_frame.h"
#include "windows.h"

static const ac_config_t config = {.enabled = true, .background_trim = true, .dump = "none"};

const ac_config_t *ac_process_config(void) {
    return &config;
}

void ac_pinned_decay(const ac_config_t *now) {
    (void)now;
}

static void owe_what_is_done(void) {
    owe();
    fake_complete(&context[0], context[0].submitted);
}

static _Atomic bool owed_again;

static void owe_again(void) {
    owe_what_is_done();
    atomic_store(&owed_again, true);
}

/* New memory is owed just after the thread found nothing owed. */
void window_pending_looked_at_once(void) {
    enum { NAP_NS = 1000000, FEW_NAPS = 1500, MOST_NAPS = 20000 };
    /* with the fault it would wait forever */
    const int most = ac_failpoint ? FEW_NAPS : MOST_NAPS;
    int naps = 0;
    begin_large();
    atomic_store(&ac_state, AC_STATE_ACTIVE);
    ac_writer_start();
    at_window("debt_settled", owe_again);
    owe_what_is_done();
    for (; naps < MOST_NAPS && !atomic_load(&owed_again); naps++) /* a busy machine may start threads
                                                                     late */
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    ck_assert(atomic_load(&owed_again));
    for (naps = 0; naps < most && atomic_load(&ac_trim_pending); naps++)
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    ck_assert_msg(!atomic_load(&ac_trim_pending), "memory stays that was owed meanwhile");
}
