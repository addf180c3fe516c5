/* Report of a request that fails because device memory is short. The first failure prints one line on stderr.
 * With the key oom_dump, a document lists the holders of the memory. */
#ifndef AC_OOM_REPORT_H
#define AC_OOM_REPORT_H

#include "track/context.h"

/* Reports a request for `bytes`, made by `module` from code at `caller`. `async` means that the request names
 * a stream, `at_limit` that a configured limit refuses it. The thread that made the request calls this and
 * holds no lock of the library. A process writes at most one document every ten seconds: a program that goes
 * on after a failure may fail again and again. */
void ac_oom_report(ac_thread_t *thread, ac_context_t *context, unsigned module,
                   const void *caller, bool async, uint64_t bytes, bool at_limit);

#endif
