/* Blocks on pages of another process: maps them into addresses of this process, and removes them. */
#ifndef AC_IPC_PAGES_H
#define AC_IPC_PAGES_H

#include "track/context.h"
#include "track/ipc_views.h"
#include "share/ipc_lookup.h"

/* Gets all pages of `entry`, which was found in `source`, and maps them side by side.  The
 * context's device may use them, and the devices that may reach the memory's own device.  *base:
 * the address, for `mapping`, which the caller opens.  CUDA_ERROR_INVALID_HANDLE: the exporter
 * does not give the pages, and *error says why (ac_ipc_request; EBADMSG: it sent no memory).  Any
 * other error is the driver's.  After an error nothing is mapped.  The exporter has five seconds
 * for each answer, one second if it is stopped.  All answers together have 30 seconds and one
 * more for each 256 MiB. */
CUresult ac_ipc_pages_open(ac_context_t *context, const ac_ipc_token_t *token,
                           const ac_ipc_source_t *source, const ac_ipc_entry_t *entry, int *error,
                           ac_ipc_mapping_t *mapping, CUdeviceptr *base);

/* Removes the pages after their last view was closed.  First waits for the work of the context
 * that opened them, as the driver does.  Also waits for all other contexts that may use them, for
 * at most 30 seconds.  While a stream captures the function cannot wait: it returns, and the
 * pages go later.  After an error the pages are still there, and open. */
CUresult ac_ipc_pages_close(ac_ipc_mapping_t *mapping, uint64_t bytes);

/* Remove the pages that were left: pages of contexts that ended, and pages that were closed while
 * a stream captured.  The latter go if all work from before the close is over. */
void ac_ipc_pages_bury(void);
void ac_ipc_pages_context_gone(const void *context);

/* Called after more devices may reach the device's memory: grants them access to its open pages
 * in this process. */
void ac_ipc_pages_allow(CUdevice device);

#endif
