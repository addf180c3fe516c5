/* See processes.h. */
#include "read/processes.h"
#include "command.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void add_dead(cmd_processes_t *list, const ac_live_name_t *name) {
    if (name->user != geteuid()) /* root names pages of other users one by one */
        return;
    list->dead = cmd_resize(list->dead, (list->dead_count + 1) * sizeof *list->dead);
    list->dead[list->dead_count++] = *name;
}

/* Files that cannot be read are named as far as this; another version may have left hundreds. */
enum { UNREAD_SHOWN = 2 };

/* Its process has ended since the folder was listed, and wrote its dump. */
static bool is_gone(const ac_live_name_t *name) {
    char *path = cmd_format("%s/%s/%s", ac_live_dir(), name->home, name->file);
    bool gone = access(path, F_OK) != 0 && errno == ENOENT;
    free(path);
    return gone;
}

static void add(const ac_live_name_t *name, void *arg) {
    cmd_processes_t *list = arg;
    bool alive;
    char *error;
    json_t *document = cmd_document_live(name, &alive, &error);
    if (!document && is_gone(name)) {
        free(error);
        return;
    }
    if (!document) {
        if (list->unread++ < UNREAD_SHOWN && !list->quiet)
            cmd_say("%s", error);
        free(error);
        add_dead(list, name); /* otherwise it is not removed */
        return;
    }
    if (!alive)
        add_dead(list, name);
    list->process = cmd_resize(list->process, (list->count + 1) * sizeof *list->process);
    list->process[list->count++] = (cmd_process_t){*name, alive, document};
}

static const char *text_of(const cmd_process_t *process, const char *key) {
    const char *text =
        json_string_value(json_object_get(json_object_get(process->document, "process"), key));
    return text ? text : "";
}

const char *cmd_process_start_time(const cmd_process_t *process) {
    return text_of(process, "start_time");
}

const char *cmd_process_exe(const cmd_process_t *process) {
    return text_of(process, "exe");
}

const char *cmd_process_state(const cmd_process_t *process) {
    return process->alive ? "running" : "killed";
}

char *cmd_process_id(char text[CMD_PROCESS_ID], const cmd_process_t *process) {
    const ac_live_name_t *name = &process->name;
    if (name->space && !name->here)
        snprintf(text, CMD_PROCESS_ID, "%d@%llu", name->pid, (unsigned long long)name->space);
    else
        snprintf(text, CMD_PROCESS_ID, "%d", name->pid);
    return text;
}

static int by_age(const void *a, const void *b) {
    const cmd_process_t *x = a, *y = b;
    if (x->alive != y->alive)
        return x->alive ? -1 : 1;
    int order = strcmp(cmd_process_start_time(y), cmd_process_start_time(x));
    return order ? order : y->name.pid - x->name.pid;
}

void cmd_processes_find(cmd_processes_t *processes) {
    *processes = (cmd_processes_t){.quiet = processes->quiet};
    ac_live_each(add, processes);
    if (processes->unread > UNREAD_SHOWN && !processes->quiet)
        cmd_say("%u more like it; accelcache stat --remove removes what killed processes left",
                processes->unread - UNREAD_SHOWN);
    if (processes->count)
        qsort(processes->process, processes->count, sizeof *processes->process, by_age);
}

void cmd_processes_clear(cmd_processes_t *processes) {
    for (unsigned i = 0; i < processes->count; i++)
        json_decref(processes->process[i].document);
    free(processes->process);
    free(processes->dead);
}

json_t *cmd_processes_json(const cmd_processes_t *processes, bool running) {
    json_t *whole = json_array();
    for (unsigned i = 0; i < processes->count; i++) {
        const cmd_process_t *process = &processes->process[i];
        const ac_live_name_t *name = &process->name;
        if (running && !process->alive)
            continue;
        json_t *inner = json_object_get(process->document, "process");
        json_t *space = name->space ? json_integer((json_int_t)name->space) : json_null();
        cmd_figures_t f = {0};
        cmd_figures_add(&f, process->document);
        json_array_append_new(
            whole,
            json_pack(
                "{s:i, s:o, s:I, s:s, s:O?, s:s, s:I, s:I, s:I, s:I, s:I}", "pid", name->pid,
                "pid_namespace", space, "user", (json_int_t)name->user, "state",
                cmd_process_state(process), "exe", json_object_get(inner, "exe"), "start_time",
                cmd_process_start_time(process), "reserved_bytes", (json_int_t)f.reserved,
                "allocated_bytes", (json_int_t)f.allocated, "reserved_bytes_peak",
                (json_int_t)f.reserved_peak, "allocated_bytes_peak", (json_int_t)f.allocated_peak,
                "devices",
                (json_int_t)json_array_size(json_object_get(process->document, "devices"))));
    }
    return whole;
}

bool cmd_process_read(const char *text, int *pid, uint64_t *space) {
    char *end;
    long number = strtol(text, &end, 10);
    *pid = (int)number;
    *space = 0;
    if (*text < '1' || *text > '9' || number > INT_MAX)
        return false;
    if (*end == '@' && end[1] >= '1' && end[1] <= '9')
        *space = strtoull(end + 1, &end, 10);
    return !*end;
}
