/* Python's pickle, protocol 2, as far as dictionaries, lists, numbers, text and truth values go: what
 * Python and PyTorch's memory viewer read. */
#ifndef CMD_PICKLE_H
#define CMD_PICKLE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Lists are handed over in parts: the viewer passes each as the arguments of one call. */
enum { CMD_PICKLE_BATCH = 1000 };

void cmd_pickle_begin(FILE *out);
void cmd_pickle_end(FILE *out);
void cmd_pickle_integer(FILE *out, int64_t value);
void cmd_pickle_text(FILE *out, const char *text); /* UTF-8 */
void cmd_pickle_truth(FILE *out, bool value);
/* An empty dictionary; then keys and values in turn between open and close.  The same of lists. */
void cmd_pickle_dictionary(FILE *out);
void cmd_pickle_dictionary_close(FILE *out);
void cmd_pickle_list(FILE *out);
void cmd_pickle_list_close(FILE *out);
/* After `count` elements of a list: begins another part where it is time. */
void cmd_pickle_list_next(FILE *out, size_t count);
/* A pair as a tuple of two numbers. */
void cmd_pickle_pair(FILE *out, int64_t first, int64_t second);

/* What Python's pickle wrote, of protocol 2 or later, as JSON: tuples are arrays, keys text.  Nothing
 * in it is executed.  Values are nested no deeper than jansson's own, and none lies in itself; one
 * that is named several times is shared.  NULL: *error is one line, malloc'd. */
json_t *cmd_pickle_read(const char *data, size_t length, char **error);
static inline bool cmd_pickle_is(const char *data, size_t length) {
    return length > 1 && (unsigned char)data[0] == 0x80;
}

/* Any JSON value.  Arrays under the key "segment_pool_id" become pairs. */
void cmd_pickle_json(FILE *out, const json_t *value);

#endif
