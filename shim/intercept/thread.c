/* Thread records (thread.h). */
#include "intercept/thread.h"

#include <pthread.h>
#include <stddef.h>
#include <sys/single_threaded.h>
#include <unistd.h>

#include "allocator/allocator_int.h"
#include "intercept/captures.h"
#include "intercept/writer.h"
#include "observe/start.h"

__thread ac_thread_t *ac_thread_tls __attribute__((tls_model("initial-exec")));
_Atomic uint64_t ac_generation = 1;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ac_thread_t *spare;
AC_START_DATA static pthread_key_t key;
AC_START_DATA static _Atomic bool key_made;
static _Atomic uint64_t numbers;

/* Records that nobody had yet: untouched, so that a program of few threads pays for few.  Under
 * the lock. */
static ac_thread_t *fresh;
static unsigned fresh_left;

static ac_thread_t *take_fresh(void) {
    enum { BATCH = 64 };
    if (!fresh_left) {
        fresh = ac_record_memory(BATCH * sizeof *fresh);
        fresh_left = fresh ? BATCH : 0;
    }
    return fresh_left ? &fresh[--fresh_left] : NULL;
}

ac_thread_t *ac_thread_get(void) {
    if (ac_thread_tls)
        return ac_thread_tls;
    pthread_mutex_lock(&lock);
    ac_thread_t *thread = spare;
    if (thread)
        spare = thread->next;
    else
        thread = take_fresh();
    pthread_mutex_unlock(&lock);
    if (!thread)
        return NULL;
    *thread = (ac_thread_t){.number = atomic_fetch_add(&numbers, 1) + 1};
    thread->row = ac_live_row_take(&thread->shared);
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
        pthread_mutex_lock(&lock);
        thread->next = spare;
        spare = thread;
        pthread_mutex_unlock(&lock);
    }
    ac_writer_thread_ended(gettid() == getpid());
}

/* In the constructor; at activation where that failed for lack of keys. */
AC_START static void make_key(void) {
    if (!atomic_load(&key_made) && pthread_key_create(&key, thread_ended) == 0)
        atomic_store(&key_made, true);
}

AC_START void ac_thread_watch_main(void) {
    make_key();
    /* While there is one thread only it is the main one; mostly that spares asking the kernel. */
    bool is_main = __libc_single_threaded || gettid() == getpid();
    if (atomic_load(&key_made) && is_main && !pthread_setspecific(key, &main_mark))
        ac_writer_main_watched();
}

void ac_thread_setup(void) {
    make_key();
}

void ac_thread_fork_child(void) {
    pthread_mutex_init(&lock, NULL);
    spare = NULL; /* the list may be half changed */
    fresh_left = 0;
}
