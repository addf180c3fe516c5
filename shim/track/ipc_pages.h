/* Blocks on pages of another process: mapped into addresses of this one, and taken away again. */
#ifndef AC_IPC_PAGES_H
#define AC_IPC_PAGES_H

#include "track/context.h"
#include "track/ipc_views.h"
#include "share/ipc_lookup.h"

/* Get all pages of the entry, which was found in `source`, map them side by side and let the
 * context's device and those that may reach the memory's own use them: *base, for `mapping`,
 * which the caller opens.  CUDA_SUCCESS; INVALID_HANDLE: the exporter does not give them, and *error
 * says why (ac_ipc_request; EBADMSG: it sent no memory); else the driver's answer, and nothing is
 * mapped.  Each answer of the exporter has five seconds, one if it is stopped; all together have 30
 * seconds and one more for each 256 MiB. */
CUresult ac_ipc_pages_open(ac_context_t *context, const ac_ipc_token_t *token,
                           const ac_ipc_source_t *source, const ac_ipc_entry_t *entry, int *error,
                           ac_ipc_mapping_t *mapping, CUdeviceptr *base);

/* The last view of them is closed: wait for the work of the context that they were opened in, as the
 * driver does, and of all others that may use them, half a minute at the most; then take them away.
 * While a stream captures nothing can be waited for, and they go later.  Another answer than
 * CUDA_SUCCESS: they are still there, and open. */
CUresult ac_ipc_pages_close(ac_ipc_mapping_t *mapping, uint64_t bytes);

/* Take away what was left: of contexts that have gone, and what was closed while a stream captured,
 * if all work from before the close is over. */
void ac_ipc_pages_bury(void);
void ac_ipc_pages_context_gone(const void *context);

/* More may reach the device's memory from now on: what is open of it here, too. */
void ac_ipc_pages_allow(CUdevice device);

#endif
