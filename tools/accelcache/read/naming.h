/* How call sites are named.  Every part of the command that names one asks here.
 *
 * Frames are JSON as in PyTorch's snapshots, innermost first: `name`, `filename`, `line`.  Code without a known
 * line has the file "object+0xOFFSET" and line 0; a native frame with a line has its object in `object`.
 *
 * A stack begins with frames that every request has: the CUDA runtime, the wrappers of its headers, allocators,
 * libffi, the interpreter.  These wrappers do not tell which code asked.  Each frame has a rank (naming.c), and only
 * frames of the program name a site.  If the stack has none, frames of libraries do, and last the wrappers.
 *
 * The outermost frames may be phases that the program had open (shim/observe/phases.h): "phase NAME", without a file.
 * They divide sites: the same code in another phase is another site. */
#ifndef CMD_NAMING_H
#define CMD_NAMING_H

#include <jansson.h>
#include <stdbool.h>

/* "Tensor::Tensor (tensor.cc:12) < make < KVCache::append, phase serve/decode": the three innermost frames of the best
 * rank, and the phases.  malloc'd; NULL if there are no frames. */
char *cmd_naming_site(const json_t *frames);

/* Returns true for a phase: `name` is "phase NAME". */
bool cmd_naming_is_phase(const char *name, const char *file);
/* NAME of such a frame; NULL: it is none. */
const char *cmd_naming_phase(const json_t *frame);

/* The frames without wrappers; all of them if there are no others.  The caller releases the list. */
json_t *cmd_naming_stack(const json_t *frames);

/* "scope::function (file.cc:12)", "scope::function (object+0x12)", "object+0x12".  malloc'd. */
char *cmd_naming_frame(const json_t *frame);

/* Returns the frame's text for flame graphs, which join the calls of one function: without offsets. */
char *cmd_naming_box(const json_t *frame);

#endif
