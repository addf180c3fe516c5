/* ACCEL_SIM and simcuda_configure: the parser of sim_config.def. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state.h"

sim_config_t sim_config;

typedef enum { KIND_COUNT, KIND_SIZE, KIND_BOOL, KIND_TEXT, KIND_CLOCK, KIND_FAULTS } kind_t;
enum { START = 0, LIVE = 1 };

static const struct {
    const char *key, *initial;
    kind_t kind;
    int when;
    size_t offset;
} keys[] = {
#define SIM_KEY(kind, key, member, initial, when, doc)                                           \
    {#key, initial, KIND_##kind, when, offsetof(sim_config_t, member)},
#include "sim_config.def"
};
enum { KEY_COUNT = sizeof keys / sizeof *keys };

static const char *const allowed[] = {
    [KIND_COUNT] = "a whole number",
    [KIND_SIZE] = "bytes with optional K, M, G or T",
    [KIND_BOOL] = "true or false",
    [KIND_TEXT] = "text without commas",
    [KIND_CLOCK] = "real or virtual",
    [KIND_FAULTS] = "<function>@<N>[=<code>] or <function>>=<N>[=<code>] of a driver function",
};

/* For simcuda_describe: every key with its default, whether it may change later, and its text. */
size_t sim_config_describe(char *out, size_t room) {
    static const struct {
        const char *key, *initial, *when, *doc;
    } rows[] = {
#define SIM_KEY(kind, key, member, initial, when, doc) {#key, initial, #when, doc},
#include "sim_config.def"
    };
    size_t at = 0;
    for (unsigned i = 0; i < KEY_COUNT; i++) {
        int length =
            snprintf(at < room ? out + at : NULL, at < room ? room - at : 0, "%s\t%s\t%s\t%s\n",
                     rows[i].key, rows[i].initial, rows[i].when, rows[i].doc);
        at += length > 0 ? (size_t)length : 0;
    }
    return at;
}

static bool parse_number(const char *text, bool size, uint64_t *out) {
    if (!isdigit((unsigned char)*text))
        return false;
    char *end;
    unsigned long long number = strtoull(text, &end, 10);
    if (size && *end) {
        static const char suffixes[] = "KMGT";
        const char *found = strchr(suffixes, toupper((unsigned char)*end));
        if (!found || number >> 24)
            return false;
        number <<= 10 * (found - suffixes + 1);
        end++;
    }
    *out = number;
    return *end == 0;
}

/* Sets a key.  A refused value leaves the setting unchanged. */
static bool set(unsigned key, const char *value) {
    void *member = (char *)&sim_config + keys[key].offset;
    uint64_t number;
    switch (keys[key].kind) {
    case KIND_COUNT:
    case KIND_SIZE:
        if (!parse_number(value, keys[key].kind == KIND_SIZE, &number))
            return false;
        if (!strcmp(keys[key].key, "devices") && number > SIM_MAX_DEVICES)
            return false;
        memcpy(member, &number, sizeof number);
        if (!strcmp(keys[key].key, "sticky"))
            sim_work_faults(number);
        return true;
    case KIND_BOOL:
        if (strcmp(value, "true") && strcmp(value, "false") && strcmp(value, "True") &&
            strcmp(value, "False"))
            return false;
        *(bool *)member = tolower((unsigned char)*value) == 't';
        return true;
    case KIND_CLOCK:
        if (strcmp(value, "real") && strcmp(value, "virtual"))
            return false;
        *(bool *)member = *value == 'v';
        return true;
    case KIND_FAULTS:
        return !*value || sim_faults_add(value);
    case KIND_TEXT:
        break;
    }
    char *copy = strdup(value);
    if (!copy)
        return false;
    free(*(char **)member);
    *(char **)member = copy;
    return true;
}

static void set_defaults(void) {
    for (unsigned i = 0; i < KEY_COUNT; i++)
        if (keys[i].initial[0] || keys[i].kind == KIND_TEXT)
            set(i, keys[i].initial);
    sim_config.driver = (uint64_t)sim_default_driver;
}

static void list_keys(char *out, size_t room) {
    size_t at = 0;
    for (unsigned i = 0; i < KEY_COUNT && at < room; i++)
        at += (size_t)snprintf(out + at, room - at, "%s%s", i ? ", " : "", keys[i].key);
}

static bool is_name(const char *name, const char *item, size_t length) {
    return strlen(name) == length && !strncmp(name, item, length);
}

/* Returns the row of the key that `item` begins with, or KEY_COUNT if there is none. */
static unsigned find_key(const char *item, size_t length) {
    unsigned key = 0;
    while (key < KEY_COUNT && !is_name(keys[key].key, item, length))
        key++;
    return key;
}

static bool apply_one(const char *item, bool live) {
    const char *colon = strchr(item, ':');
    size_t length = colon ? (size_t)(colon - item) : strlen(item);
    unsigned key = find_key(item, length);
    if (key == KEY_COUNT) {
        char list[512];
        list_keys(list, sizeof list);
        fprintf(stderr, "simcuda: ACCEL_SIM: unknown key \"%.*s\", known are: %s\n", (int)length,
                item, list);
        return false;
    }
    if (live && keys[key].when != LIVE) {
        fprintf(stderr, "simcuda: ACCEL_SIM: %s cannot change after cuInit\n", keys[key].key);
        return false;
    }
    if (!colon || !set(key, colon + 1)) {
        fprintf(stderr, "simcuda: ACCEL_SIM: %s:\"%s\" is not valid, it takes %s\n",
                keys[key].key, colon ? colon + 1 : "", allowed[keys[key].kind]);
        return false;
    }
    return true;
}

bool sim_config_apply(const char *text, bool live) {
    char *copy = strdup(text);
    if (!copy)
        return false;
    bool good = true;
    char *rest = copy;
    for (char *item; good && (item = strsep(&rest, ","));)
        good = !*item || apply_one(item, live);
    free(copy);
    return good;
}

bool sim_config_load(void) {
    set_defaults();
    const char *text = getenv("ACCEL_SIM");
    return !text || sim_config_apply(text, false);
}
