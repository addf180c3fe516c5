/* See document.h. */
#include "read/document.h"
#include "command.h"
#include "observe/dump.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/stat.h>
#include <unistd.h>

int64_t cmd_document_stat(const json_t *device, const char *name, const char *pool,
                          const char *field) {
    const json_t *value = json_object_get(json_object_get(device, "stats"), name);
    if (pool)
        value = json_object_get(value, pool);
    if (field)
        value = json_object_get(value, field);
    return json_integer_value(value);
}

int64_t cmd_document_counter(const json_t *holder, const char *name) {
    return cmd_integer(json_object_get(holder, "counters"), name);
}

/* ------------------------------------------------------------------ checking */

static bool is_stat(const json_t *stat) {
    static const char *const fields[] = {"current", "peak", "allocated", "freed"};
    for (unsigned i = 0; i < 4; i++)
        if (!json_is_integer(json_object_get(stat, fields[i])))
            return false;
    return true;
}

static bool is_pools(const json_t *pools) {
    return is_stat(json_object_get(pools, "all")) &&
           is_stat(json_object_get(pools, "small_pool")) &&
           is_stat(json_object_get(pools, "large_pool"));
}

/* The name of a statistic that is missing or misshapen, NULL when all are there. */
static const char *wrong_stat(const json_t *stats) {
#define STAT_COUNT(name, doc)                                                                    \
    if (!json_is_integer(json_object_get(stats, #name)))                                         \
        return #name;
#define STAT_POOLS(name, unit, doc)                                                              \
    if (!is_pools(json_object_get(stats, #name)))                                                \
        return #name;
#define STAT_SINGLE(name, unit, doc)                                                             \
    if (!is_stat(json_object_get(stats, #name)))                                                 \
        return #name;
#include "observe/stats.def"
    return NULL;
}

/* One line about what keeps `document` from being one of ours; NULL: nothing. */
static char *document_fault(const json_t *document) {
    const json_t *schema = json_object_get(document, "schema");
    if (!json_is_string(schema) || strcmp(json_string_value(schema), "accelcache-dump") != 0)
        return cmd_format("this is no accelcache dump (its \"schema\" is not accelcache-dump)");
    const json_t *version = json_object_get(document, "version");
    if (!json_is_integer(version) || json_integer_value(version) != 1)
        return cmd_format("written in version %lld of the format, and this command reads "
                          "version 1: use the accelcache of the same release",
                          (long long)json_integer_value(version));
    const json_t *process = json_object_get(document, "process");
    const json_t *devices = json_object_get(document, "devices");
    if (!json_is_integer(json_object_get(process, "pid")) || !json_is_array(devices) ||
        !json_is_object(json_object_get(document, "counters")) ||
        !json_is_object(json_object_get(document, "hooks")) ||
        !json_is_array(json_object_get(document, "warnings")))
        return cmd_format("process.pid, devices, counters, hooks or warnings is missing: the "
                          "file was changed after it was written");
    size_t index;
    const json_t *device;
    json_array_foreach((json_t *)(uintptr_t)devices, index, device) {
        const char *name = wrong_stat(json_object_get(device, "stats"));
        if (name)
            return cmd_format("devices[%zu].stats.%s is missing or has another form: the file "
                              "was changed after it was written",
                              index, name);
        if (!json_is_object(json_object_get(device, "counters")))
            return cmd_format("devices[%zu].counters is missing", index);
    }
    return NULL;
}

json_t *cmd_document_parse(const char *text, size_t length, char **error) {
    json_error_t at;
    if (length == 0) {
        *error = cmd_format("the file is empty: it was not written by accelcache, or lost in a "
                            "crash of the machine; run the program again");
        return NULL;
    }
    json_t *document = json_loadb(text, length, 0, &at);
    if (!document) {
        bool cut = json_error_code(&at) == json_error_premature_end_of_input;
        *error = cmd_format("%s at line %d, column %d (%s): %s",
                            cut ? "the JSON ends too early" : "not valid JSON", at.line,
                            at.column, at.text,
                            cut ? "the copy is incomplete; copy it again or run the program again"
                                : "accelcache did not write this; is it the right file?");
        return NULL;
    }
    *error = document_fault(document);
    if (*error) {
        json_decref(document);
        return NULL;
    }
    return document;
}

/* ------------------------------------------------------------------ loading */

/* Returns true if the user means the data of a pipe.  Only these of /dev: any user may put a pipe into /dev/shm. */
static bool is_stream(const char *path) {
    return !strcmp(path, "/dev/stdin") || !strncmp(path, "/dev/fd/", 8) ||
           !strncmp(path, "/proc/self/fd/", 14);
}

/* Returns true if the file begins with bytes that neither text nor a pickle has. */
static bool is_binary(int fd) {
    unsigned char first[4096];
    ssize_t n = pread(fd, first, sizeof first, 0);
    for (ssize_t i = 0; i < n && first[0] != 0x80; i++)
        if (first[i] < ' ' && (!first[i] || !strchr("\t\n\v\f\r\033", first[i])))
            return true;
    return false;
}

/* Returns NULL, or why the file is not read.  A reader could wait for ever for what is no regular file, and a
 * large file would fill the memory before its reader refuses it. */
static const char *unfit(int fd, size_t most) {
    struct stat status;
    if (fstat(fd, &status) != 0)
        return "cannot be looked at";
    if (S_ISDIR(status.st_mode))
        return "a folder, and a file is wanted";
    if (!S_ISREG(status.st_mode))
        return "not a regular file; a pipe can be read as /dev/stdin";
    if (most && (size_t)status.st_size > most)
        return "larger than 256 MiB: accelcache did not write this";
    return is_binary(fd) ? "this is neither text, nor a pickle, nor a binary trace that this command knows; "
                           "--help lists the formats"
                         : NULL;
}

char *cmd_document_text(const char *path, size_t most, size_t *length, char **error) {
    bool stream = is_stream(path);
    int fd =
        open(path, stream ? O_RDONLY | O_CLOEXEC : O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    const char *fault = fd < 0 || stream ? NULL : unfit(fd, most);
    if (fault) {
        *error = cmd_format("%s", fault);
        close(fd);
        return NULL;
    }
    char *text = fd < 0 ? NULL : cmd_file_take(fd, length);
    if (!text)
        *error = cmd_format("%s%s", strerror(errno), errno == ENOENT ? ": is the name right?" : "");
    return text;
}

json_t *cmd_document_load(const char *path, char **error) {
    enum { MOST = 256 << 20 };
    size_t length;
    char *text = cmd_document_text(path, MOST, &length, error);
    if (!text)
        return NULL;
    json_t *document = cmd_document_parse(text, length, error);
    free(text);
    return document;
}

bool cmd_page_find(int pid, uint64_t space, ac_live_name_t *name, char **error) {
    if (ac_live_find(pid, space, name))
        return true;
    *error = cmd_format("process %d shows no figures: it does not run under accelcache, has not "
                        "used CUDA, is another user's, or has ended and written its dump",
                        pid);
    return false;
}

/* The document of a page, which is released. */
static json_t *document_of_page(const ac_live_t *page, bool alive, char **error) {
    size_t length;
    char *text = ac_dump_text(page, alive ? "running" : "killed", &length);
    ac_live_free(page);
    if (!text) {
        *error = cmd_format("out of memory");
        return NULL;
    }
    json_t *document = cmd_document_parse(text, length, error);
    free(text);
    return document;
}

json_t *cmd_document_live(const ac_live_name_t *name, bool *alive, char **error) {
    char why[1200];
    const ac_live_t *page = ac_live_read(name, alive, why, sizeof why);
    if (!page) {
        *error = cmd_format("%s", why);
        return NULL;
    }
    return document_of_page(page, *alive, error);
}

/* ------------------------------------------------------------------ pages of a folder */

typedef struct {
    struct stat folder;
    cmd_page_fn *visit;
    void *arg;
} page_walk_t;

/* The name of the file in the folder that the page's process writes its dump to; malloc'd; NULL: it writes
 * elsewhere. */
static char *dump_in_folder(const page_walk_t *walk, const ac_live_t *page) {
    char conf[AC_LIVE_CONF], path[AC_LIVE_EXE + AC_CONFIG_PATH];
    struct stat folder;
    ac_config_t config;
    ac_config_error_t error;
    ac_live_conf(page, conf);
    if (ac_config_parse(conf, &config, &error, NULL) || config.dump[0] != '/' ||
        ac_dump_path(config.dump, page, path, sizeof path))
        return NULL;
    char *file = strrchr(path, '/') + 1, *name = cmd_format("%s", file);
    *file = '\0';
    if (*name && stat(path, &folder) == 0 && folder.st_dev == walk->folder.st_dev &&
        folder.st_ino == walk->folder.st_ino)
        return name;
    free(name);
    return NULL;
}

static void visit_page(const ac_live_name_t *name, void *arg) {
    const page_walk_t *walk = arg;
    char why[1200], *error = NULL;
    bool alive;
    if (name->user != geteuid()) /* root sees pages of other users, which may claim any folder */
        return;
    const ac_live_t *page = ac_live_read(name, &alive, why, sizeof why);
    char *file = page ? dump_in_folder(walk, page) : NULL;
    if (!file) {
        if (page)
            ac_live_free(page);
        return;
    }
    json_t *document = document_of_page(page, alive, &error);
    if (document)
        walk->visit(name, document, alive, file, walk->arg);
    else
        cmd_say("%s: %s", file, error);
    free(error);
    free(file);
}

void cmd_pages_of_folder(const char *folder, cmd_page_fn *visit, void *arg) {
    page_walk_t walk = {.visit = visit, .arg = arg};
    if (stat(folder, &walk.folder) == 0)
        ac_live_each(visit_page, &walk);
}

/* ------------------------------------------------------------------ sums */

static void add(int64_t *sum, int64_t value) {
    *sum = cmd_sum(*sum, value, 1);
}

void cmd_figures_add(cmd_figures_t *figures, const json_t *document) {
    const json_t *devices = json_object_get(document, "devices");
    for (size_t i = 0; i < json_array_size(devices); i++) {
        const json_t *device = json_array_get(devices, i);
        add(&figures->allocated, cmd_document_stat(device, "allocated_bytes", "all", "current"));
        add(&figures->allocated_peak,
            cmd_document_stat(device, "allocated_bytes", "all", "peak"));
        add(&figures->reserved, cmd_document_stat(device, "reserved_bytes", "all", "current"));
        add(&figures->reserved_peak, cmd_document_stat(device, "reserved_bytes", "all", "peak"));
        add(&figures->ooms, cmd_document_stat(device, "num_ooms", NULL, NULL));
#define DEVICE_COUNTER(name, unit, doc)                                                          \
    figures->device.name += (uint64_t)cmd_document_counter(device, #name);
#include "observe/counters.def"
    }
#define PROCESS_COUNTER(name, unit, doc)                                                         \
    figures->process[AC_COUNT_##name] += (uint64_t)cmd_document_counter(document, #name);
#include "observe/counters.def"
}

double cmd_document_seconds(const char *text) {
    struct tm tm = {0};
    double seconds;
    if (sscanf(text, "%d-%d-%dT%d:%d:%lf", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour,
               &tm.tm_min, &seconds) != 6)
        return 0;
    tm.tm_year -= 1900;
    tm.tm_mon--;
    return (double)timegm(&tm) + seconds;
}
