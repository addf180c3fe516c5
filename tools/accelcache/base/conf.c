/* See conf.h. */
#include "base/conf.h"
#include "command.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Entries are separated by commas outside of lists.  A key may appear only once, in any case of its
 * letters, so an old entry of `key` goes. */
char *cmd_conf_set(const char *conf, const char *key, const char *value) {
    char *result = cmd_format("%s", "");
    while (conf && *conf) {
        size_t length = 0, depth = 0;
        for (; conf[length] && (conf[length] != ',' || depth); length++)
            depth += (conf[length] == '[') - (conf[length] == ']' && depth);
        const char *start = conf + strspn(conf, " \t\n");
        bool same = !strncasecmp(start, key, strlen(key)) &&
                    start[strlen(key) + strspn(start + strlen(key), " \t\n")] == ':';
        if (length && !same) {
            char *longer = cmd_format("%s%.*s,", result, (int)length, conf);
            free(result);
            result = longer;
        }
        conf += length + (conf[length] == ',');
    }
    char *whole = cmd_format("%s%s:%s", result, key, value);
    free(result);
    return whole;
}

/* Copies the first "KEY:VALUE" of `text`, which has a colon, to *key and *value, malloc'd.  Returns the start of the
 * next entry; blanks may follow the last one. */
static const char *take_entry(const char *text, char **key, char **value) {
    size_t colon = strcspn(text, ":"), end = colon, depth = 0;
    for (; text[end] && (text[end] != ',' || depth); end++)
        depth += (text[end] == '[') - (text[end] == ']' && depth);
    size_t name = colon;
    while (name && strchr(" \t\n", text[name - 1]))
        name--;
    *key = cmd_format("%.*s", (int)name, text);
    *value = cmd_format("%.*s", (int)(end - colon - 1), text + colon + 1);
    text += end + (text[end] == ',');
    return text + strspn(text, " \t\n");
}

char *cmd_conf_merge(const char *conf, const char *changes) {
    char *whole = cmd_format("%s", conf);
    changes += strspn(changes, " \t\n");
    while (*changes) {
        char *key, *value;
        changes = take_entry(changes, &key, &value);
        char *longer = cmd_conf_set(whole, key, value);
        free(whole);
        free(key);
        free(value);
        whole = longer;
    }
    return whole;
}
