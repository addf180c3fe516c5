/* See passed.h.  A reason is a row here and a counter passed_async_* of counters.def. */
#include "read/passed.h"
#include "command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    unsigned counter;
    const char *label, *advice; /* advice NULL: nothing is to be changed */
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
enum { REASONS = sizeof reasons / sizeof *reasons };

typedef struct {
    const reason_t *reason;
    uint64_t count;
} row_t;

static int by_count(const void *a, const void *b) {
    const row_t *x = a, *y = b;
    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    return x->reason < y->reason ? -1 : 1;
}

/* Those that there were, most frequent first. */
static unsigned rows_of(const cmd_figures_t *figures, row_t rows[REASONS]) {
    unsigned count = 0;
    for (unsigned i = 0; i < REASONS; i++) {
        uint64_t n = figures->process[reasons[i].counter];
        if (n)
            rows[count++] = (row_t){&reasons[i], n};
    }
    qsort(rows, count, sizeof *rows, by_count);
    return count;
}

const char *cmd_passed_text(char text[CMD_PASSED_TEXT], const cmd_figures_t *figures) {
    row_t rows[REASONS];
    char some[CMD_FIGURE], all[CMD_FIGURE];
    uint64_t passed = figures->process[AC_COUNT_passed_async];
    if (!passed)
        return NULL;
    unsigned count = rows_of(figures, rows);
    int length =
        snprintf(text, CMD_PASSED_TEXT, "%s of %s stream-ordered requests left to the driver",
                 cmd_text_count(some, (int64_t)passed),
                 cmd_text_count(all, (int64_t)(passed + figures->device.async_allocs)));
    for (unsigned i = 0; i < count && length < CMD_PASSED_TEXT; i++)
        length +=
            snprintf(text + length, (size_t)(CMD_PASSED_TEXT - length), "%s %s %s", i ? "," : ":",
                     cmd_text_count(some, (int64_t)rows[i].count), rows[i].reason->label);
    return text;
}

void cmd_passed_advise(cmd_findings_t *findings, const cmd_figures_t *figures) {
    row_t rows[REASONS];
    char text[CMD_PASSED_TEXT], some[CMD_FIGURE];
    if (!cmd_passed_text(text, figures))
        return;
    cmd_finding(findings, CMD_FINDING_NOTE, "streams", "%s", text);
    unsigned count = rows_of(figures, rows);
    for (unsigned i = 0; i < count; i++)
        if (rows[i].reason->advice)
            cmd_finding(findings, CMD_FINDING_NOTE, "streams", "%s %s",
                        cmd_text_count(some, (int64_t)rows[i].count), rows[i].reason->advice);
}
