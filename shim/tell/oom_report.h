/* What the user is told of a request that fails for want of memory: one line on stderr, once, and
 * with the key oom_dump a document that says who holds what. */
#ifndef AC_OOM_REPORT_H
#define AC_OOM_REPORT_H

#include "track/context.h"

/* `module`, by code at `caller`, asked for `bytes`, with `async` on a stream; `at_limit`: a configured limit refuses
 * them.  By the thread that asked, without a lock of ours.  Documents of one process are written
 * ten seconds apart: programs that go on after a failure may fail again and again. */
void ac_oom_report(ac_thread_t *thread, ac_context_t *context, unsigned module,
                   const void *caller, bool async, uint64_t bytes, bool at_limit);

#endif
