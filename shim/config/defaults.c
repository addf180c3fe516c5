/* See defaults.h. */
#include "config/defaults.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "observe/raw.h"
#include "observe/start.h"

static const char usual[] = "/etc/accelcache.conf";

const char *ac_defaults_path(void) {
    const char *named = secure_getenv("ACCEL_CONF_FILE");
    if (getauxval(AT_SECURE))
        return NULL;
    if (!named || !*named)
        return usual;
    return strcmp(named, "none") ? named : NULL;
}

AC_START bool ac_defaults_strict(void) {
    const char *variable = secure_getenv("ACCEL_CONF_STRICT");
    char entry[32];
    if (!variable || !*variable)
        return false;
    snprintf(entry, sizeof entry, "strict:%s", variable);
    return ac_config_is_strict(entry, false);
}

/* Returns why the file may not be used, NULL if it may. */
static const char *fault(const struct stat *file, char why[AC_DEFAULTS_WHY]) {
    if (!S_ISREG(file->st_mode))
        return "it is no regular file";
    if (file->st_uid != 0 && file->st_uid != ac_raw_geteuid()) {
        snprintf(why, AC_DEFAULTS_WHY, "it belongs to another user (%u): make root its owner",
                 (unsigned)file->st_uid);
        return why;
    }
    if (file->st_mode & (S_IWGRP | S_IWOTH))
        return "others may write to it: chmod go-w";
    return NULL;
}

bool ac_defaults_read(const char *path, char *text, size_t size, char why[AC_DEFAULTS_WHY]) {
    size_t used = 0;
    ssize_t n = 0;
    text[0] = '\0';
    /* Without O_NONBLOCK a pipe waits for a writer. */
    int fd = ac_raw_open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR) && !strcmp(path, usual))
        return true;
    if (fd < 0) {
        snprintf(why, AC_DEFAULTS_WHY, "it cannot be opened: %s", strerror(errno));
        return false;
    }
    struct stat file;
    const char *wrong = ac_raw_fstat(fd, &file) ? strerror(errno) : fault(&file, why);
    while (!wrong && used < size &&
           ((n = ac_raw_read(fd, text + used, size - used)) > 0 || (n < 0 && errno == EINTR)))
        used += n > 0 ? (size_t)n : 0;
    if (!wrong && n < 0)
        wrong = strerror(errno);
    ac_raw_close(fd);
    if (!wrong && used == size) {
        snprintf(why, AC_DEFAULTS_WHY, "it is longer than %zu bytes", size - 1);
        wrong = why;
    }
    if (!wrong && memchr(text, '\0', used))
        wrong = "it is no text (it has a byte 0)";
    text[wrong ? 0 : used] = '\0';
    if (wrong && wrong != why)
        snprintf(why, AC_DEFAULTS_WHY, "%s", wrong);
    return !wrong;
}
