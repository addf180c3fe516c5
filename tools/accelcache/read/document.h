/* Statistics documents: the JSON that the library writes at exit, or that is made of the live
 * page of a running or killed process. */
#ifndef CMD_DOCUMENT_H
#define CMD_DOCUMENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"
#include "observe/live.h"

/* The document in a file, checked against what this command knows; the caller decrefs it.
 * NULL: *error is one line with cause and remedy, malloc'd.  Named pipes and devices are not
 * waited for, but refused; /dev/stdin and what a shell makes of <(...) are read. */
json_t *cmd_document_load(const char *path, char **error);
/* Its two halves.  The text of a file of at most `most` bytes (0: of any size), or of a pipe that the user
 * means; malloc'd.  Then what it says. */
char *cmd_document_text(const char *path, size_t most, size_t *length, char **error);
json_t *cmd_document_parse(const char *text, size_t length, char **error);

/* Makes the document of a process from its live page; *alive says whether it still runs. */
json_t *cmd_document_live(const ac_live_name_t *name, bool *alive, char **error);

/* The page that the user means by "PID" or "PID@NAMESPACE".  False: *error as above. */
bool cmd_page_find(int pid, uint64_t space, ac_live_name_t *name, char **error);

/* Live pages of this user's processes that write their dump into `folder`, as their key `dump` says by an
 * absolute name: `visit` gets the name of that file in the folder.  This finds the counts of processes that
 * ended by a signal or by _exit.  The document is the visitor's to decref. */
typedef void cmd_page_fn(const ac_live_name_t *name, json_t *document, bool alive,
                         const char *file, void *arg);
void cmd_pages_of_folder(const char *folder, cmd_page_fn *visit, void *arg);

/* A figure of a device: `pool` NULL for single statistics, `field` NULL for plain counts. 0 if it is absent
 * (loading checks this). */
int64_t cmd_document_stat(const json_t *device, const char *name, const char *pool,
                          const char *field);

/* Seconds of a time as a document has it, "2026-01-31T12:00:00.000Z"; 0: it has none. */
double cmd_document_seconds(const char *text);

/* A counter of a device or of the whole document. */
int64_t cmd_document_counter(const json_t *holder, const char *name);

/* Sums over devices and documents. */
typedef struct {
    int64_t allocated, allocated_peak, reserved, reserved_peak; /* bytes; sums of peaks */
    int64_t ooms;
    ac_device_counters_t device;
    uint64_t process[AC_COUNT_HOOKS];
} cmd_figures_t;
void cmd_figures_add(cmd_figures_t *figures, const json_t *document);

#endif
