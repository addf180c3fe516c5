/* The grammar of ACCEL_ALLOC_CONF and the table of its keys (config.def).  Called by activation,
 * accel_set_allocator_settings, the dump and the command; no lock, no state.
 *
 *   conf   = [ entry { "," entry } [ "," ] ]
 *   entry  = key ":" value
 *   value  = text without , : [ ]  |  "[" text without [ ] "]"
 *          | for a path: everything up to the next comma
 *
 * White space around tokens is ignored.  One comma may follow the last entry, because scripts
 * build the string by appending "key:value,"; an empty entry anywhere else is an error, and so
 * is a key given twice.
 *
 * A file of defaults (defaults.h) has the same entries: there the end of a line ends one as a comma
 * does, and lines that begin with # are comments. */
#include "config/config.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "config/value.h"
#include "observe/scratch.h"
#include "observe/start.h"

enum { HOST, CACHE, ALLOCATOR }; /* scopes */

/* The texts of the rows, one after the other (text_t). */
typedef struct {
#define CONFIG(key, type, field, low, high, default_text, scope, trait, range, doc)              \
    char key_##key[sizeof #key];                                                                 \
    char default_##key[sizeof default_text];                                                     \
    char range_##key[sizeof range];
#define FOREIGN(key, harmless, doc)                                                              \
    char key_##key[sizeof #key];                                                                 \
    char harmless_##key[sizeof harmless];                                                        \
    char doc_##key[sizeof doc];
#include "config/config.def"
} texts_t;

static const texts_t texts = {
#define CONFIG(key, type, field, low, high, default_text, scope, trait, range, doc)              \
#key, default_text, range,
#define FOREIGN(key, harmless, doc) #key, harmless, doc,
#include "config/config.def"
};

/* Offset into them: pointers would be relocated in every process that the library is loaded
 * into, and this table is read in each. */
typedef uint16_t text_t;
_Static_assert(sizeof texts <= UINT16_MAX, "offsets of texts are too short");
#define TEXT_AT(member) offsetof(texts_t, member)

AC_START static const char *text_of(text_t at) {
    return (const char *)&texts + at;
}

typedef struct {
    text_t key;
    text_t default_text, range; /* our own keys */
    text_t harmless, doc;       /* foreign keys: values not warned about; 0 for our own */
    uint8_t type;
    uint8_t scope : 4, trait : 4;
    uint16_t offset, size; /* of the field */
    ac_bounds_t bounds;
} row_t;

static const row_t rows[] = {
#define CONFIG(name, value_type, field, low, high, default_value, row_scope, row_trait,          \
               row_range, row_doc)                                                               \
    {.key = TEXT_AT(key_##name),                                                                 \
     .default_text = TEXT_AT(default_##name),                                                    \
     .range = TEXT_AT(range_##name),                                                             \
     .type = AC_VALUE_##value_type,                                                              \
     .scope = row_scope,                                                                         \
     .trait = AC_TRAIT_##row_trait,                                                              \
     .offset = offsetof(ac_config_t, field),                                                     \
     .size = sizeof((ac_config_t *)NULL)->field,                                                 \
     .bounds = {low, high}},
#define FOREIGN(name, harmless_words, row_doc)                                                   \
    {.key = TEXT_AT(key_##name),                                                                 \
     .harmless = TEXT_AT(harmless_##name),                                                       \
     .doc = TEXT_AT(doc_##name)},
#include "config/config.def"
};
enum { ROWS = sizeof rows / sizeof *rows };

enum {
#define CONFIG(key, type, field, low, high, default_text, scope, trait, range, doc) ROW_##key,
#define FOREIGN(key, harmless, doc)                                                 ROW_##key,
#include "config/config.def"
};

typedef struct {
    const char *text; /* the whole string */
    bool lines;       /* of a file */
    ac_config_t config;
    ac_config_error_t *error;
    const char *value_at[ROWS]; /* NULL: not given */
    ac_config_warnings_t warnings;
    unsigned warnings_dropped, warnings_of_keys; /* the first warnings are about one key each */
} parser_t;

/* ---- messages ---- */

/* Copies at most `size` bytes of a token, for one line of a terminal. */
static const char *printable(ac_token_t token, char *text, size_t size) {
    size_t n = token.length < size - 1 ? token.length : size - 1;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)token.at[i];
        text[i] = c < 0x20 || c > 0x7e ? '?' : (char)c;
    }
    text[n] = '\0';
    if (n < token.length && n >= 3)
        memcpy(text + n - 3, "...", 3);
    return text;
}

/* Writes "position 7", or "line 2" for a file. */
static const char *place(const parser_t *p, const char *at, char text[32]) {
    size_t line = 1;
    for (const char *before = p->text; before < at; before++)
        line += *before == '\n';
    snprintf(text, 32, "%s %zu", p->lines ? "line" : "position",
             p->lines ? line : (size_t)(at - p->text));
    return text;
}

__attribute__((format(printf, 3, 4))) static int fail(parser_t *p, const char *at,
                                                      const char *format, ...) {
    va_list args;
    char where[32];
    p->error->position = (size_t)(at - p->text);
    int n = snprintf(p->error->text, sizeof p->error->text, "%s: ", place(p, at, where));
    va_start(args, format);
    vsnprintf(p->error->text + n, sizeof p->error->text - (size_t)n, format, args);
    va_end(args);
    return -1;
}

__attribute__((format(printf, 2, 3))) static void warn(parser_t *p, const char *format, ...) {
    if (p->warnings.count == AC_CONFIG_WARNINGS) {
        p->warnings_dropped++;
        snprintf(p->warnings.text[AC_CONFIG_WARNINGS - 1], sizeof p->warnings.text[0],
                 "and %u more such keys of the configuration", p->warnings_dropped + 1);
        return;
    }
    va_list args;
    va_start(args, format);
    vsnprintf(p->warnings.text[p->warnings.count++], sizeof p->warnings.text[0], format, args);
    va_end(args);
}

/* Returns the number of edits (insert, delete, replace, swap of neighbours) from a token to a key. */
static unsigned distance(ac_token_t token, const char *key) {
    enum { LONGEST = 64 };
    unsigned row[3][LONGEST + 1];
    size_t columns = strlen(key);
    if (token.length > LONGEST || columns > LONGEST)
        return LONGEST;
    for (size_t j = 0; j <= columns; j++)
        row[0][j] = (unsigned)j;
    for (size_t i = 1; i <= token.length; i++) {
        unsigned *now = row[i % 3];
        const unsigned *before = row[(i + 2) % 3], *earlier = row[(i + 1) % 3];
        now[0] = (unsigned)i;
        for (size_t j = 1; j <= columns; j++) {
            unsigned best = before[j - 1] + (ac_lower(token.at[i - 1]) != key[j - 1]);
            if (before[j] + 1 < best)
                best = before[j] + 1;
            if (now[j - 1] + 1 < best)
                best = now[j - 1] + 1;
            if (i > 1 && j > 1 && ac_lower(token.at[i - 1]) == key[j - 2] &&
                ac_lower(token.at[i - 2]) == key[j - 1] && earlier[j - 2] + 1 < best)
                best = earlier[j - 2] + 1;
            now[j] = best;
        }
    }
    return row[token.length % 3][columns];
}

static int fail_unknown(parser_t *p, ac_token_t key) {
    char shown[48];
    const char *sign = memchr(key.at, '=', key.length);
    for (unsigned i = 0; sign && i < ROWS; i++)
        if (ac_token_is((ac_token_t){key.at, (size_t)(sign - key.at)}, text_of(rows[i].key)))
            return fail(p, sign, "key \"%s\": write : instead of =", text_of(rows[i].key));
    unsigned best = 64;
    const char *nearest = text_of(rows[0].key);
    for (unsigned i = 0; i < ROWS; i++) {
        unsigned d = distance(key, text_of(rows[i].key));
        if (d < best) {
            best = d;
            nearest = text_of(rows[i].key);
        }
    }
    printable(key, shown, sizeof shown);
    if (best <= strlen(nearest) / 2)
        return fail(p, key.at, "unknown key \"%s\"; the nearest known key is \"%s\"", shown,
                    nearest);
    return fail(p, key.at, "unknown key \"%s\"; accelcache config lists the keys", shown);
}

/* ---- grammar ---- */

/* Does the work of strcspn, without the page of vectors that strcspn touches in every process. */
AC_START static size_t until(const char *at, const char *ends) {
    size_t n = 0;
    while (at[n]) {
        for (const char *end = ends; *end; end++)
            if (at[n] == *end)
                return n;
        n++;
    }
    return n;
}

AC_START static const char *skip_space(const char *at) {
    while (ac_is_space(*at))
        at++;
    return at;
}

/* Skips space inside an entry. */
AC_START static const char *skip_inside(const parser_t *p, const char *at) {
    while (ac_is_space(*at) && !(p->lines && *at == '\n'))
        at++;
    return at;
}

/* Skips space before the next entry, and comments if the text is a file (`lines`). */
AC_START static const char *skip_blank(bool lines, const char *at) {
    at = skip_space(at);
    while (lines && *at == '#')
        at = skip_space(at + until(at, "\n"));
    return at;
}

static const char *found(const char *at, char text[16]) {
    if (*at == '\0')
        return "the end";
    if (*at == '\n')
        return "the end of the line";
    char shown[2];
    snprintf(text, 16, "\"%s\"", printable((ac_token_t){at, 1}, shown, sizeof shown));
    return text;
}

/* Takes the value that starts at `at`.  Returns its end, NULL after fail. */
AC_START static const char *take_value(parser_t *p, const row_t *row, const char *at,
                                       ac_token_t *value) {
    char what[16];
    const char *end;
    if (!row->harmless && row->type == AC_VALUE_PATTERN) {
        end = at + until(at, p->lines ? ",\n" : ",");
    } else if (*at == '[') {
        end = at + 1 + until(at + 1, "[]");
        if (*end != ']') {
            fail(p, end, "key \"%s\": expected ] to close the list, found %s", text_of(row->key),
                 found(end, what));
            return NULL;
        }
        end++;
    } else {
        end = at + until(at, p->lines ? ",:[]\n" : ",:[]");
    }
    *value = ac_token_trim((ac_token_t){at, (size_t)(end - at)});
    if (value->length == 0) {
        fail(p, at, "key \"%s\": expected %s, found %s", text_of(row->key),
             row->harmless ? "a value" : text_of(row->range), found(at, what));
        return NULL;
    }
    return end;
}

/* Returns true if `value` is one of the words in "a|b|c". */
AC_START static bool is_one_of(ac_token_t value, const char *words) {
    while (*words) {
        size_t n = until(words, "|");
        if (n == value.length && memcmp(words, value.at, n) == 0)
            return true;
        words += n + (words[n] == '|');
    }
    return false;
}

AC_START static int apply(parser_t *p, const row_t *row, ac_token_t value) {
    char shown[32];
    if (row->harmless) {
        if (!is_one_of(value, text_of(row->harmless)))
            warn(p, "%s:%s has no effect: %s", text_of(row->key),
                 printable(value, shown, sizeof shown), text_of(row->doc));
        return 0;
    }
    ac_refusal_t refusal = {value.at, NULL};
    if (ac_value_types[row->type].read(value, row->bounds, (char *)&p->config + row->offset,
                                       &refusal))
        return 0;
    size_t rest = value.length - (size_t)(refusal.at - value.at);
    return fail(p, refusal.at, "key \"%s\": expected %s; got \"%s\"", text_of(row->key),
                refusal.hint ? refusal.hint : text_of(row->range),
                printable((ac_token_t){refusal.at, rest}, shown, sizeof shown));
}

/* Returns the row of a key; ROWS if there is none. */
AC_START static unsigned find_row(ac_token_t key) {
    unsigned i = 0;
    while (i < ROWS && !ac_token_is(key, text_of(rows[i].key)))
        i++;
    return i;
}

/* Reads one entry.  Returns its end, NULL after fail. */
AC_START static const char *take_entry(parser_t *p, const char *at) {
    char what[16];
    size_t length = until(at, ",:[] \t\n\v\f\r");
    ac_token_t key = {at, length};
    if (length == 0) {
        fail(p, at, "expected a key, found %s", found(at, what));
        return NULL;
    }
    unsigned i = find_row(key);
    if (i == ROWS) {
        fail_unknown(p, key);
        return NULL;
    }
    if (p->value_at[i]) {
        char first[32];
        fail(p, at, "key \"%s\": given twice (first at %s)", text_of(rows[i].key),
             place(p, p->value_at[i], first));
        return NULL;
    }
    at = skip_inside(p, at + length);
    if (*at != ':') {
        fail(p, at, "key \"%s\": expected : after the key, found %s", text_of(rows[i].key),
             found(at, what));
        return NULL;
    }
    ac_token_t value;
    const char *end = take_value(p, &rows[i], skip_inside(p, at + 1), &value);
    if (!end || apply(p, &rows[i], value) != 0)
        return NULL;
    p->value_at[i] = value.at;
    end = skip_inside(p, end);
    if (p->lines && *end == '\n')
        return end;
    if (*end != ',' && *end != '\0') {
        fail(p, end, "key \"%s\": expected , after the value, found %s", text_of(rows[i].key),
             found(end, what));
        return NULL;
    }
    return end;
}

/* Warns about keys of the kind of segments that is not in use. */
static void warn_of_pages(parser_t *p) {
    static const unsigned of_pages[] = {ROW_page_size_mb, ROW_page_budget};
    bool pages = p->config.expandable_segments;
    for (unsigned i = 0; !pages && i < sizeof of_pages / sizeof *of_pages; i++)
        if (p->value_at[of_pages[i]])
            warn(p, "%s has no effect without expandable_segments:true or auto",
                 text_of(rows[of_pages[i]].key));
    if (pages && p->value_at[ROW_max_split_size_mb] && p->config.max_split_size != UINT64_MAX)
        warn(p, "max_split_size_mb has no effect with expandable_segments:true or auto");
    if (p->config.low_memory && p->value_at[ROW_page_size_mb])
        warn(p, "page_size_mb has no effect with low_memory:true");
}

/* Checks what depends on several keys. */
AC_START static int check_combination(parser_t *p) {
    const ac_config_t *c = &p->config;
    if (c->max_split_size < c->large_segment_size)
        return fail(
            p, p->value_at[ROW_max_split_size_mb],
            "key \"max_split_size_mb\": expected at least large_segment_size_mb, which is "
            "%llu",
            (unsigned long long)(c->large_segment_size >> 20));
    if (!c->enabled) {
        for (unsigned i = 0; i < ROWS; i++) {
            if (p->value_at[i] && rows[i].scope != HOST)
                warn(p, "%s has no effect with enabled:false", text_of(rows[i].key));
        }
    } else {
        if (c->gc_threshold > 0 && c->memory_limit == 0 && c->per_process_memory_fraction >= 1)
            warn(p, "garbage_collection_threshold has no effect without memory_limit or "
                    "per_process_memory_fraction below 1");
        if (c->free_sync == AC_FREE_SYNC_ON && p->value_at[ROW_fence])
            warn(p, "fence has no effect with free_sync:true");
        warn_of_pages(p);
    }
    if (strcmp(c->dump, "none") == 0) {
        if (p->value_at[ROW_dump_signal] && c->dump_signal != 0)
            warn(p, "dump_signal has no effect with dump:none");
        if (p->value_at[ROW_dump_interval] && c->dump_interval > 0)
            warn(p, "dump_interval has no effect with dump:none");
    }
    return 0;
}

/* ---- interface ---- */

const char *ac_config_key(unsigned row) {
    return row < ROWS ? text_of(rows[row].key) : NULL;
}

AC_START void ac_config_default(ac_config_t *config) {
    memset(config, 0, sizeof *config);
    for (unsigned i = 0; i < ROWS; i++) {
        const row_t *row = &rows[i];
        if (row->harmless)
            continue;
        ac_refusal_t refusal;
        const char *text = text_of(row->default_text);
        ac_token_t value = {text, strlen(text)};
        ac_value_types[row->type].read(value, row->bounds, (char *)config + row->offset,
                                       &refusal);
    }
}

/* Parses the whole text.  Returns 0, or -1 after fail. */
AC_START static int parse(parser_t *p) {
    p->error->position = 0;
    p->error->text[0] = '\0';
    ac_config_default(&p->config);
    const char *at = skip_blank(p->lines, p->text);
    while (*at) {
        at = take_entry(p, at);
        if (!at)
            return -1;
        if (p->lines && p->value_at[ROW_deepbind])
            return fail(p, p->value_at[ROW_deepbind],
                        "key \"deepbind\": a file is read too late for it; set it in "
                        "ACCEL_ALLOC_CONF");
        at = skip_blank(p->lines, at + (*at == ','));
    }
    p->warnings_of_keys = p->warnings.count;
    return check_combination(p);
}

/* Two parsers fit into a piece of scratch; a small stack has no room for one. */
_Static_assert(2 * sizeof(parser_t) <= AC_SCRATCH, "parsers have no room");

AC_START static parser_t *begin(parser_t *p, const char *text, bool lines,
                                ac_config_error_t *error) {
    memset(p, 0, sizeof *p);
    p->text = text ? text : "";
    p->lines = lines;
    p->error = error;
    return p;
}

AC_START static int no_memory(ac_config_error_t *error) {
    error->position = 0;
    strcpy(error->text, "host memory is short");
    return -1;
}

AC_START int ac_config_parse(const char *text, ac_config_t *config, ac_config_error_t *error,
                             ac_config_warnings_t *warnings) {
    parser_t *p = ac_scratch_take();
    if (warnings)
        warnings->count = 0;
    int result = p ? parse(begin(p, text, false, error)) : no_memory(error);
    if (result == 0) {
        *config = p->config;
        if (warnings)
            *warnings = p->warnings;
    }
    ac_scratch_give(p);
    return result;
}

/* Keeps the warnings about single keys of the file.  Keeps its other warnings if they hold for `whole`, the
 * file and the string together.  `together` is a parser for that. */
static void warnings_of_file(const parser_t *file, const char *whole, parser_t *together,
                             ac_config_warnings_t *warnings) {
    ac_config_error_t error;
    warnings->count = 0;
    if (parse(begin(together, whole, false, &error)) != 0)
        return;
    for (unsigned i = 0; i < file->warnings.count; i++) {
        bool holds = i < file->warnings_of_keys;
        for (unsigned j = 0; !holds && j < together->warnings.count; j++)
            holds = strcmp(file->warnings.text[i], together->warnings.text[j]) == 0;
        if (holds)
            strcpy(warnings->text[warnings->count++], file->warnings.text[i]);
    }
}

static void find_given(parser_t *p, const char *text, bool given[ROWS]) {
    ac_config_error_t unused;
    if (parse(begin(p, text, false, &unused)) == 0)
        for (unsigned i = 0; i < ROWS; i++)
            given[i] = p->value_at[i];
}

static int merge(parser_t p[2], const char *file, const char *text, char *whole, size_t size,
                 ac_config_error_t *error, ac_config_warnings_t *warnings) {
    bool given[ROWS] = {false};
    find_given(&p[1], text, given);
    if (parse(begin(p, file, true, error)) != 0)
        return -1;
    size_t used = 0;
    for (unsigned i = 0; i < ROWS && used < size; i++) {
        if (!p->value_at[i] || given[i] || rows[i].harmless)
            continue;
        used += (size_t)snprintf(whole + used, size - used, "%s:", text_of(rows[i].key));
        if (used + 1 < size)
            used += (size_t)ac_value_types[rows[i].type].write(
                (const char *)&p->config + rows[i].offset, whole + used, size - used - 1);
        if (used + 1 < size) {
            whole[used++] = ',';
            whole[used] = '\0';
        }
    }
    if (used < size)
        used += (size_t)snprintf(whole + used, size - used, "%s", text ? text : "");
    if (used < size) {
        if (warnings)
            warnings_of_file(p, whole, &p[1], warnings);
        return 0;
    }
    snprintf(error->text, sizeof error->text,
             "together with ACCEL_ALLOC_CONF it is too long "
             "(%zu bytes at most)",
             size - 1);
    return -1;
}

int ac_config_merge(const char *file, const char *text, char *whole, size_t size,
                    ac_config_error_t *error, ac_config_warnings_t *warnings) {
    parser_t *p = ac_scratch_take();
    int result = p ? merge(p, file, text, whole, size, error, warnings) : no_memory(error);
    ac_scratch_give(p);
    return result;
}

AC_START bool ac_config_is_strict(const char *text, bool lines) {
    bool strict = false;
    const char *at = skip_blank(lines, text ? text : "");
    while (*at) {
        size_t length = until(at, ",\n"), key = until(at, ":=,\n");
        if (key < length && ac_token_is(ac_token_trim((ac_token_t){at, key}), "strict")) {
            ac_token_t value = ac_token_trim((ac_token_t){at + key + 1, length - key - 1});
            ac_refusal_t refusal;
            if (!ac_value_types[AC_VALUE_BOOL].read(value, (ac_bounds_t){0, 1}, &strict, &refusal))
                strict = true;
        }
        at += length;
        at = skip_blank(lines, at + (*at != '\0'));
    }
    return strict;
}

void ac_config_take_fixed(ac_config_t *config, const ac_config_t *now) {
    for (unsigned i = 0; i < ROWS; i++)
        if (rows[i].trait == AC_TRAIT_FIXED)
            memcpy((char *)config + rows[i].offset, (const char *)now + rows[i].offset,
                   rows[i].size);
}

static bool keep_fixed(ac_config_t *wanted, const ac_config_t *now, ac_config_t *usual,
                       ac_config_error_t *error) {
    ac_config_default(usual);
    for (unsigned i = 0; i < ROWS; i++) {
        const row_t *row = &rows[i];
        if (row->trait != AC_TRAIT_FIXED)
            continue;
        char *to = (char *)wanted + row->offset;
        const char *from = (const char *)now + row->offset;
        if (memcmp(to, (const char *)usual + row->offset, row->size) != 0 &&
            memcmp(to, from, row->size) != 0) {
            snprintf(error->text, sizeof error->text, "%s cannot change once the cache is active",
                     text_of(row->key));
            return false;
        }
        memcpy(to, from, row->size);
    }
    return true;
}

bool ac_config_keep_fixed(ac_config_t *wanted, const ac_config_t *now, ac_config_error_t *error) {
    ac_config_t *usual = ac_scratch_take();
    bool kept = usual ? keep_fixed(wanted, now, usual, error) : no_memory(error) == 0;
    ac_scratch_give(usual);
    return kept;
}

int ac_config_value(const ac_config_t *config, const char *key, char *text, size_t size) {
    for (unsigned i = 0; i < ROWS; i++) {
        if (rows[i].harmless || strcmp(text_of(rows[i].key), key) != 0)
            continue;
        return ac_value_types[rows[i].type].write((const char *)config + rows[i].offset, text,
                                                  size);
    }
    return -1;
}
