/* See ipc_serve.h. */
#include "process/ipc_serve.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>

#include "allocator/allocator.h"
#include "track/context.h"
#include "process/own_thread.h"
#include "track/running.h"
#include "lock.h"
#include "observe/filter.h"
#include "share/ipc_fds.h"
#include "share/ipc_socket.h"
#include "share/ipc_table.h"

/* Longest sleep of the thread if it need not check other threads. No descriptor is kept to wake it. */
enum { SLEEP_NS = 500000000 };
/* After this time, an answer is sent with the pages that are ready: importers see progress and take
 * turns. */
enum { GRANT_NS = 50000000 };

static ac_mutex_t lock = AC_MUTEX(IPC);
static bool serving;

/* Exports up to `most` of the pages, as far as the driver allows. */
static void show(const ac_shown_pages_t *shown, uint64_t most, ac_ipc_pages_t *pages,
                 int page[AC_IPC_BATCH]) {
    ac_cuda_context_t *context = ac_arena_context(shown->arena);
    uint64_t begin = ac_cuda_ops.now_ns();
    pages->error = EIO;
    for (unsigned i = 0; i < shown->count && i < most; i++) {
        if (i && ac_cuda_ops.now_ns() - begin > GRANT_NS)
            return;
        ac_fds_enter();
        bool done = ac_cuda_page_export(context, shown->at[i].page, &page[i]) == AC_OK &&
                    ac_fds_add(page[i]);
        ac_fds_leave();
        if (!done)
            return;
        pages->bytes[i] = shown->at[i].bytes;
        pages->count = i + 1;
    }
}

/* The block's lifetime lasts when ac_pages_show succeeds, and its pages stay until ac_pages_return. If
 * it ends meanwhile, the importer detects it: it checks again after it has the pages (ipc_import.c). */
static void grant(const ac_ipc_ask_t *ask, ac_ipc_pages_t *pages, int page[AC_IPC_BATCH]) {
    ac_ipc_token_t token = {.nonce = ask->nonce};
    ac_ipc_entry_t entry;
    ac_shown_pages_t shown;
    if (!ac_ipc_table_find(&token, &entry) ||
        ac_pages_show(ask->address, ask->serial, ask->from, &shown) != AC_OK)
        return;
    show(&shown, ask->most, pages, page);
    ac_pages_return(&shown);
}

/* Ends the thread. The next export starts another one, or is refused. */
static void *end(void) {
    ac_lock(&lock);
    serving = false;
    ac_unlock(&lock);
    return ac_own_thread_end();
}

static void *serve(void *arg) {
    int64_t look_ns = 0;
    bool quiet = false;
    (void)arg;
    ac_filter_thread_start();
    for (;;) {
        int state = atomic_load(&ac_state);
        if (state == AC_STATE_EXITING || state == AC_STATE_INERT)
            return NULL;
        look_ns = ac_own_thread_look_ns(look_ns, quiet);
        uint64_t begin = ac_cuda_ops.now_ns();
        int64_t wait_ns = look_ns ? look_ns : SLEEP_NS;
        ac_ipc_await(wait_ns);
        quiet = ac_cuda_ops.now_ns() - begin >= (uint64_t)wait_ns;
        /* A filter of the program may now forbid the next calls of this thread. */
        if (ac_filter_thread_now() || (look_ns && ac_own_thread_alone()))
            return end();
        bool there = ac_ipc_answer(grant);
        if (!there && atomic_load(&ac_state) == AC_STATE_ACTIVE &&
            (ac_filter_now() || ac_ipc_listen() != 0))
            return end();
    }
}

int ac_ipc_serve_start(void) {
    int error = 0;
    ac_lock(&lock);
    if (serving ? ac_filter_thread_now() : ac_filter_now())
        error = EPERM;
    else if (!serving)
        error = ac_ipc_listen();
    if (!serving && !error)
        error = ac_own_thread_start(serve);
    if (!error)
        serving = true;
    ac_unlock(&lock);
    return error;
}

void ac_ipc_serve_fork_child(void) {
    lock = (ac_mutex_t)AC_MUTEX(IPC);
    serving = false;
}
