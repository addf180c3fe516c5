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

/* A pickle that is being written.  It remembers each text and each JSON array or object that is named
 * several times, and writes a reference when one comes again, as Python's own writer does. */
typedef struct {
    FILE *out;
    void *texts, *values; /* trees of what was written: tsearch() */
    uint32_t count;       /* entries in both */
} cmd_pickle_t;

void cmd_pickle_begin(cmd_pickle_t *pickle, FILE *out);
void cmd_pickle_end(cmd_pickle_t *pickle); /* ends the stream and frees what `pickle` remembers */
void cmd_pickle_integer(cmd_pickle_t *pickle, int64_t value);
void cmd_pickle_text(cmd_pickle_t *pickle, const char *text); /* UTF-8 */
void cmd_pickle_truth(cmd_pickle_t *pickle, bool value);
/* Begins an empty dictionary.  Its keys and values are written in turn until it is closed. */
void cmd_pickle_dictionary(cmd_pickle_t *pickle);
void cmd_pickle_dictionary_close(cmd_pickle_t *pickle);
/* Begins an empty list.  Its elements are written until it is closed. */
void cmd_pickle_list(cmd_pickle_t *pickle);
void cmd_pickle_list_close(cmd_pickle_t *pickle);
/* Call after `count` elements of a list: begins the next part of CMD_PICKLE_BATCH elements. */
void cmd_pickle_list_next(cmd_pickle_t *pickle, size_t count);
/* Writes a tuple of two numbers. */
void cmd_pickle_pair(cmd_pickle_t *pickle, int64_t first, int64_t second);
/* Writes any JSON value, which must live until cmd_pickle_end().  A pair of numbers under
 * "segment_pool_id" or "pool_id" becomes a tuple. */
void cmd_pickle_json(cmd_pickle_t *pickle, const json_t *value);

/* Reads files of Python's pickle, protocol 2 or later, as JSON: tuples are arrays, keys text.  Nothing in it is
 * executed.  Values are nested no deeper than jansson's own, and none lies in itself; one that is named several
 * times is shared.  NULL: *error is one line, malloc'd. */
json_t *cmd_pickle_read(const char *data, size_t length, char **error);
static inline bool cmd_pickle_is(const char *data, size_t length) {
    return length > 1 && (unsigned char)data[0] == 0x80;
}

#endif
