/* Thread records (thread.h). */
#include "intercept/thread.h"

#include <pthread.h>
#include <stddef.h>
#include <unistd.h>

#include "allocator/allocator_int.h"
#include "intercept/captures.h"
#include "intercept/writer.h"
#include "observe/trace.h"

__thread ac_thread_t *ac_thread_tls __attribute__((tls_model("initial-exec")));
_Atomic uint64_t ac_generation = 1;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ac_thread_t *spare;
static pthread_key_t key;
static _Atomic bool key_made;
static _Atomic uint64_t numbers;

ac_thread_t *ac_thread_get(void) {
    if (ac_thread_tls)
        return ac_thread_tls;
    pthread_mutex_lock(&lock);
    if (!spare) {
        enum { BATCH = 64 };
        ac_thread_t *fresh = ac_record_memory(BATCH * sizeof *fresh);
        for (int i = 0; fresh && i < BATCH; i++) {
            fresh[i].next = spare;
            spare = &fresh[i];
        }
    }
    ac_thread_t *thread = spare;
    if (thread)
        spare = thread->next;
    pthread_mutex_unlock(&lock);
    if (!thread)
        return NULL;
    *thread = (ac_thread_t){.number = atomic_fetch_add(&numbers, 1) + 1};
    thread->row = ac_live_row_take(&thread->shared);
    thread->trace = ac_trace_lane_take(thread->number);
    ac_thread_tls = thread;
    if (atomic_load(&key_made))
        pthread_setspecific(key, thread);
    return thread;
}

void ac_thread_forget(void) {
    ac_thread_t *thread = ac_thread_tls;
    if (thread)
        thread->known = thread->runtime = NULL;
}

/* In the key of a main thread that has no record yet. */
static char main_mark;

/* Other destructors of the thread may still call CUDA after this one: they get a new record,
 * and this runs once more. */
static void thread_ended(void *arg) {
    if (arg != &main_mark) {
        ac_thread_t *thread = arg;
        ac_thread_tls = NULL;
        ac_captures_thread_gone(thread->number);
        ac_live_row_return(thread->row);
        ac_trace_lane_return(thread->trace);
        pthread_mutex_lock(&lock);
        thread->next = spare;
        spare = thread;
        pthread_mutex_unlock(&lock);
    }
    ac_writer_thread_ended(gettid() == getpid());
}

/* In the constructor; at activation where that failed for lack of keys. */
static void make_key(void) {
    if (!atomic_load(&key_made) && pthread_key_create(&key, thread_ended) == 0)
        atomic_store(&key_made, true);
}

void ac_thread_watch_main(void) {
    make_key();
    if (atomic_load(&key_made) && gettid() == getpid() && !pthread_setspecific(key, &main_mark))
        ac_writer_main_watched();
}

void ac_thread_setup(void) {
    make_key();
}

void ac_thread_fork_child(void) {
    pthread_mutex_init(&lock, NULL);
    spare = NULL; /* the list may be half changed */
}
