/* See control.h. */
#include "read/control.h"
#include "command.h"
#include "base/conf.h"
#include "config/config.h"
#include "read/document.h"
#include "share/ipc_fds.h"
#include "share/ipc_socket.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LIMIT_NS = 900000000 }; /* with what is done before and after it, a second */

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The letter of a process's state in /proc; '?': it is not there. */
static char state_of(int pid) {
    char *path = cmd_format("/proc/%d/stat", pid), *text = cmd_file_read(path, NULL);
    const char *at = text ? strrchr(text, ')') : NULL;
    char state = at && at[1] == ' ' ? at[2] : '?';
    free(path);
    free(text);
    return state;
}

/* Why nothing answers.  Its advice about /proc holds for our own pid namespace. */
static char *silence(const ac_live_name_t *name, bool connected) {
    char state = name->here ? state_of(name->pid) : 'S';
    if (state == 'T' || state == 't')
        return cmd_format("process %d is stopped: let it go on (kill -CONT %d), then ask again",
                          name->pid, name->pid);
    if (state == '?' || state == 'Z' || state == 'X')
        return cmd_format("process %d has ended", name->pid);
    if (connected)
        return cmd_format(
            "process %d has not answered within a second: it is about to end, or is "
            "doing it still",
            name->pid);
    return cmd_format(
        "process %d does not listen: start it with control:true in ACCEL_ALLOC_CONF", name->pid);
}

/* Another user's process has a page that is not shown to us. */
static bool is_of_another(int pid) {
    struct stat status;
    char *path = cmd_format("/proc/%d", pid);
    bool other = geteuid() && stat(path, &status) == 0 && status.st_uid != geteuid();
    free(path);
    return other;
}

bool cmd_control_find(int pid, uint64_t space, ac_live_name_t *name, char **error) {
    if (!space && is_of_another(pid)) {
        *error =
            cmd_format("process %d belongs to another user: it listens to that user alone", pid);
        return false;
    }
    return cmd_page_find(pid, space, name, error);
}

/* The copy of the page of a process that runs; NULL: *error. */
static const ac_live_t *running_page(const ac_live_name_t *name, char **error) {
    char why[1200];
    bool alive;
    if (name->user != geteuid()) {
        *error = cmd_format("process %d belongs to user %u: it listens to that user alone",
                            name->pid, name->user);
        return NULL;
    }
    const ac_live_t *page = ac_live_read(name, &alive, why, sizeof why);
    if (page && alive)
        return page;
    *error = page ? cmd_format("process %d has ended", name->pid) : cmd_format("%s", why);
    if (page)
        ac_live_free(page);
    return NULL;
}

bool cmd_control(const ac_live_name_t *name, ac_control_verb_t verb, const char *text,
                 ac_control_answer_t *answer, char **error) {
    ac_control_ask_t ask = {.verb = (uint32_t)verb};
    int64_t until = now_ns() + LIMIT_NS;
    const ac_live_t *page = running_page(name, error);
    if (!page)
        return false;
    ac_live_free(page);
    if (text && strlen(text) >= sizeof ask.text) {
        *error = cmd_format("the settings are too long (%d bytes at most)", AC_CONTROL_TEXT - 1);
        return false;
    }
    strcpy(ask.text, text ? text : "");
    char *table = cmd_format("%s/%s/%s.ipc", ac_live_dir(), name->home, name->file);
    int fd = ac_ipc_connect(table, name->here ? name->pid : 0, until);
    free(table);
    int failure = fd < 0 ? ENOENT : ac_control_request(fd, &ask, answer, until);
    if (fd >= 0)
        ac_fds_close(fd);
    if (failure) {
        *error = silence(name, fd >= 0);
        return false;
    }
    if (answer->error)
        *error = cmd_format("process %d refuses: %s%s%s", name->pid, answer->text,
                            *answer->text ? ": " : "", strerror(answer->error));
    return !answer->error;
}

char *cmd_control_settings(const ac_live_name_t *name, const char *change, char **error) {
    ac_config_t config;
    ac_config_error_t wrong;
    char conf[AC_LIVE_CONF];
    if (ac_config_parse(change, &config, &wrong, NULL)) {
        *error = cmd_format("%s", wrong.text);
        return NULL;
    }
    const ac_live_t *page = running_page(name, error);
    if (!page)
        return NULL;
    ac_live_conf(page, conf);
    ac_live_free(page);
    return cmd_conf_merge(conf, change);
}
