/* Calls from lower parts of the library to the parts above them. ac_ask_ functions ask one listener, ac_tell_
 * functions notify all listeners. process/wiring.def names the listeners. All files may include this
 * header. */
#ifndef AC_WIRING_H
#define AC_WIRING_H

#include <stdbool.h>
#include <stdint.h>

struct ac_context;
struct ac_thread;
struct CUstream_handle;

/* Wakes the library if it is asleep. Returns true if the cache serves requests. */
bool ac_ask_active(void);

/* Returns true if the calling thread may not call the driver: in a fork child, or in a host function. */
bool ac_ask_refused(void);

/* Returns true if dlopen is called without RTLD_DEEPBIND. */
bool ac_ask_strips_deepbind(void);

/* Starts to serve importers.  Returns 0 or an errno value. */
int ac_ask_export(void);

/* CUDA is used for the first time. */
void ac_tell_start(void);

/* The library is set up, and calls are about to be served. */
void ac_tell_started(void);

/* The process is the child of a fork. */
void ac_tell_fork_child(void);

/* Settings changed; the lock of the settings is held. */
void ac_tell_settings(void);

/* Settings changed; the lock of the settings is released again. */
void ac_tell_settings_changed(void);

/* A context is used for the first time; the lock of the contexts is held. */
void ac_tell_context_begins(struct ac_context *context);

/* A context is about to be destroyed. Each listener waits for at most `limit_ns` until the memory of the
 * context may be freed. */
void ac_tell_context_ends(struct ac_context *context, uint64_t limit_ns);

/* A context was destroyed, and its record is still alive. */
void ac_tell_context_leaves(const struct ac_context *context);

/* The record of a destroyed context is dead; the lock of the contexts is held. */
void ac_tell_context_dead(struct ac_context *context);

/* The record of a destroyed context is dead; the lock of the contexts is released again. */
void ac_tell_context_gone(const struct ac_context *context);

/* A call may have made another context current. */
void ac_tell_context_unknown(void);

/* The driver is about to destroy a stream. */
void ac_tell_stream_gone(struct ac_context *context, struct CUstream_handle *stream);

/* A memory pool was destroyed. */
void ac_tell_pool_gone(unsigned pool);

/* A thread gets a new record. */
void ac_tell_thread_begins(struct ac_thread *thread);

/* The thread of that number ended. */
void ac_tell_thread_gone(uint64_t number);

/* A thread ended, with or without a record; `main`: it was the main thread. */
void ac_tell_thread_ended(bool main);

#endif
