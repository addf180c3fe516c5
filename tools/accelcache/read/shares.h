/* Bytes that each recorded stack of a dump holds: all requests count, not only samples. */
#ifndef CMD_SHARES_H
#define CMD_SHARES_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    int64_t device, stack; /* stack: a number of recorded.stack */
    int64_t blocks, bytes; /* as requested */
    int64_t estimate;      /* bytes that its samples stand for */
} cmd_share_t;

/* Rows of `sites`: recorded.sites, or the sites of recorded.peak.  With stacks:sampled most requests have their
 * innermost frame and their phases alone: their bytes are shared out among the sampled stacks with these, in
 * proportion to what those stand for.  Sums by innermost frame and phases are exact.  Their division among
 * callers is an estimate. The caller frees. */
cmd_share_t *cmd_shares(const json_t *document, const json_t *sites, size_t *count);

#endif
