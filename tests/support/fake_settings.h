/* Settings for allocators on the fake device. They come from a configuration string; a setting
 * that the string does not name has the product's default (config.def). */
#ifndef FAKE_SETTINGS_H
#define FAKE_SETTINGS_H

#include <stdio.h>
#include <stdlib.h>

#include "allocator/allocator.h"

static inline ac_settings_t fake_settings(const char *conf) {
    ac_config_t config;
    ac_config_error_t error;
    if (ac_config_parse(conf, &config, &error, NULL) != 0) {
        fprintf(stderr, "%s: %s\n", conf, error.text);
        abort();
    }
    return ac_settings_from(&config, 0);
}

#endif
