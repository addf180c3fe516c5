/* Calls the listeners (wiring.h, wiring.def). */
#include "wiring.h"

#include "allocator/order/barrier.h"
#include "allocator/carve.h"
#include "bind/loader_gate.h"
#include "hooks/body.h"
#include "hooks/direct_hooks.h"
#include "hooks/graph_hooks.h"
#include "hooks/guard.h"
#include "hooks/ipc.h"
#include "observe/live.h"
#include "observe/sites.h"
#include "observe/trace.h"
#include "process/control.h"
#include "process/ipc_serve.h"
#include "process/own_thread.h"
#include "process/process.h"
#include "process/writer.h"
#include "share/ipc_fds.h"
#include "share/ipc_socket.h"
#include "share/ipc_table.h"
#include "tell/recording.h"
#include "tell/tracing.h"
#include "track/captures.h"
#include "track/context.h"
#include "track/decay.h"
#include "track/devices.h"
#include "track/free_sync.h"
#include "track/ipc_pages.h"
#include "track/ipc_views.h"
#include "track/observers.h"
#include "track/peers.h"
#include "track/pinned.h"
#include "track/pool_access.h"
#include "track/reach.h"
#include "track/thread.h"

bool ac_ask_active(void) {
#define ACTIVE(function) return function();
#include "process/wiring.def"
}

bool ac_ask_refused(void) {
#define REFUSED(function) return function();
#include "process/wiring.def"
}

AC_EARLY bool ac_ask_strips_deepbind(void) {
#define STRIPS_DEEPBIND(function) return function();
#include "process/wiring.def"
}

int ac_ask_export(void) {
#define EXPORT(function) return function();
#include "process/wiring.def"
}

void ac_tell_start(void) {
#define START(function) function();
#include "process/wiring.def"
}

void ac_tell_started(void) {
#define STARTED(function) function();
#include "process/wiring.def"
}

void ac_tell_fork_child(void) {
#define FORK_CHILD(function) function();
#include "process/wiring.def"
}

void ac_tell_settings(void) {
#define SETTINGS(function) function();
#include "process/wiring.def"
}

void ac_tell_settings_changed(void) {
#define SETTINGS_CHANGED(function) function();
#include "process/wiring.def"
}

void ac_tell_context_begins(ac_context_t *context) {
#define CONTEXT_BEGINS(function) function(context);
#include "process/wiring.def"
}

void ac_tell_context_ends(ac_context_t *context, uint64_t limit_ns) {
#define CONTEXT_ENDS(function) function(context, limit_ns);
#include "process/wiring.def"
}

void ac_tell_context_leaves(const ac_context_t *context) {
#define CONTEXT_LEAVES(function) function(context);
#include "process/wiring.def"
}

void ac_tell_context_dead(ac_context_t *context) {
#define CONTEXT_DEAD(function) function(context);
#include "process/wiring.def"
}

void ac_tell_context_gone(const ac_context_t *context) {
#define CONTEXT_GONE(function) function(context);
#include "process/wiring.def"
}

void ac_tell_context_unknown(void) {
#define CONTEXT_UNKNOWN(function) function();
#include "process/wiring.def"
}

void ac_tell_stream_gone(ac_context_t *context, CUstream stream) {
#define STREAM_GONE(function) function(context, stream);
#include "process/wiring.def"
}

void ac_tell_pool_gone(unsigned pool) {
#define POOL_GONE(function) function(pool);
#include "process/wiring.def"
}

void ac_tell_thread_begins(ac_thread_t *thread) {
#define THREAD_BEGINS(function) function(thread);
#include "process/wiring.def"
}

void ac_tell_thread_gone(uint64_t number) {
#define THREAD_GONE(function) function(number);
#include "process/wiring.def"
}

void ac_tell_thread_ended(bool main) {
#define THREAD_ENDED(function) function(main);
#include "process/wiring.def"
}
