/* See passed.h.  Each reason has a row here and a counter passed_async_* in counters.def. */
#include "read/passed.h"
#include "command.h"

#include <stdio.h>

typedef struct {
    unsigned counter;
    const char *label, *advice;
} reason_t;

static const reason_t reasons[] = {
    {AC_COUNT_passed_async_capture, "capture",
     "came while the stream captured: memory of a graph is the driver's. Allocate before the "
     "capture if the graph does not have to own it"},
    {AC_COUNT_passed_async_context, "other context",
     "named a stream of a context that was not the current primary one, or that has green "
     "contexts: set the stream's device before the request"},
    {AC_COUNT_passed_async_exportable, "exportable pool",
     "named a pool that other processes may open: create it with handle type NONE where it is "
     "not shared (PyTorch, RMM, cuda.core: an option of the pool), and keep an exportable one "
     "for what is"},
    {AC_COUNT_passed_async_kind, "host or managed pool",
     "named a pool of host or managed memory, or for a special use: they are the driver's"},
    {AC_COUNT_passed_async_reuse, "reuse switched off",
     "named a pool with a kind of reuse switched off (CU_MEMPOOL_ATTR_REUSE_*): leave the "
     "switches on"},
    {AC_COUNT_passed_async_access, "access of other devices",
     "named a pool that other devices were given access to (cudaMemPoolSetAccess): use a pool of "
     "its own for what they reach"},
    {AC_COUNT_passed_async_disabled, "enabled:false", NULL},
    {AC_COUNT_passed_async_limit, "no memory",
     "found no memory here, or a pool beyond the 255 that are followed at a time: see the "
     "memory limit and the number of pools"},
    {AC_COUNT_passed_async_unknown, "not known",
     "named a pool that was made before the library was there, came on a device without pools, "
     "or "
     "had wrong arguments: preload the library, and look for errors of cudaMallocAsync"},
};
_Static_assert(sizeof reasons / sizeof *reasons == CMD_PASSED_REASONS, "a row for each reason");

unsigned cmd_passed(const cmd_figures_t *figures, cmd_passed_t rows[CMD_PASSED_REASONS]) {
    unsigned count = 0;
    for (unsigned i = 0; i < CMD_PASSED_REASONS; i++) {
        uint64_t n = figures->process[reasons[i].counter];
        unsigned at = count;
        if (!n)
            continue;
        for (; at && rows[at - 1].count < n; at--)
            rows[at] = rows[at - 1];
        rows[at] = (cmd_passed_t){reasons[i].label, reasons[i].advice, n};
        count++;
    }
    return count;
}

const char *cmd_passed_text(char text[CMD_PASSED_TEXT], const cmd_figures_t *figures) {
    cmd_passed_t rows[CMD_PASSED_REASONS];
    char some[CMD_FIGURE], all[CMD_FIGURE];
    uint64_t passed = figures->process[AC_COUNT_passed_async];
    if (!passed)
        return NULL;
    unsigned count = cmd_passed(figures, rows);
    int length =
        snprintf(text, CMD_PASSED_TEXT, "%s of %s stream-ordered requests left to the driver",
                 cmd_text_count(some, (int64_t)passed),
                 cmd_text_count(all, (int64_t)(passed + figures->device.async_allocs)));
    for (unsigned i = 0; i < count && length < CMD_PASSED_TEXT; i++)
        length +=
            snprintf(text + length, (size_t)(CMD_PASSED_TEXT - length), "%s %s %s", i ? "," : ":",
                     cmd_text_count(some, (int64_t)rows[i].count), rows[i].label);
    return text;
}
