/* See settings.h. */
#include "run/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void cmd_settings_read(cmd_settings_t *settings) {
    static char text[AC_DEFAULTS_TEXT];
    ac_config_error_t error;
    cmd_settings_t *s = settings;
    memset(s, 0, sizeof *s);
    s->string = getenv("ACCEL_ALLOC_CONF");
    ac_config_default(&s->config);
    bool good = ac_config_parse(s->string, &s->config, &s->error, &s->warnings) == 0;
    const char *path = ac_defaults_path();
    if (!path)
        return;
    bool read = ac_defaults_read(path, text, sizeof text, s->why);
    if (read && !*text)
        return;
    /* A string that is wrong gives nothing. */
    const char *given = good && s->string ? s->string : "";
    char *whole = s->from_file;
    if (read &&
        ac_config_merge(text, given, whole, sizeof s->from_file, &error, &s->warnings_of_file) == 0 &&
        ac_config_parse(whole, &s->config, &error, NULL) == 0) {
        s->file = path;
        whole[strlen(whole) - strlen(given)] = '\0';
        return;
    }
    *whole = '\0';
    s->warnings_of_file.count = 0;
    s->refused = path;
    if (read)
        snprintf(s->why, sizeof s->why, "%s", error.text);
}

const char *cmd_settings_source(const cmd_settings_t *settings, const char *key) {
    size_t length = strlen(key);
    const char *at = settings->from_file;
    while ((at = strstr(at, key))) {
        if ((at == settings->from_file || at[-1] == ',') && at[length] == ':')
            return settings->file;
        at += length;
    }
    ac_config_t usual;
    char value[AC_CONFIG_PATH] = "", other[AC_CONFIG_PATH] = "";
    ac_config_default(&usual);
    ac_config_value(&settings->config, key, value, sizeof value);
    ac_config_value(&usual, key, other, sizeof other);
    return strcmp(value, other) ? "ACCEL_ALLOC_CONF" : NULL;
}
