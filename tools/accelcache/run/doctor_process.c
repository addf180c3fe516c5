/* `accelcache doctor PID`: does the library work in that process, may its signal be sent. */
#include "command.h"
#include "config/config.h"
#include "run/doctor.h"
#include "read/document.h"
#include "observe/live.h"
#include "run/program.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A mask line of a status file, e.g. "SigCgt"; 0 when it is not there. */
static uint64_t status_mask(const char *status, const char *key) {
    const char *line = strstr(status, key);
    return line ? strtoull(line + strlen(key) + 1, NULL, 16) : 0;
}

/* Returns true if every thread blocks the signal. */
static bool blocked_everywhere(int pid, uint64_t bit) {
    char *folder = cmd_format("/proc/%d/task", pid);
    DIR *tasks = opendir(folder);
    bool open_somewhere = !tasks;
    const struct dirent *entry;
    while (tasks && !open_somewhere && (entry = readdir(tasks))) {
        if (entry->d_name[0] == '.')
            continue;
        char *path = cmd_format("%s/%s/status", folder, entry->d_name);
        char *status = cmd_file_read(path, NULL);
        open_somewhere = status && !(status_mask(status, "SigBlk:") & bit);
        free(status);
        free(path);
    }
    if (tasks)
        closedir(tasks);
    free(folder);
    return !open_somewhere;
}

static void check_signal(cmd_findings_t *findings, int pid, const ac_live_t *page) {
    ac_config_t config;
    ac_config_error_t error;
    char conf[AC_LIVE_CONF];
    ac_live_conf(page, conf);
    ac_config_default(&config);
    ac_config_parse(conf, &config, &error, NULL);
    if (!config.dump_signal) {
        cmd_finding(findings, CMD_FINDING_NOTE, "signal",
                    "dump_signal is none: no signal writes a dump; accelcache stat %d shows the "
                    "figures without one",
                    pid);
        return;
    }
    char name[32] = "?", *path = cmd_format("/proc/%d/status", pid);
    ac_config_value(&config, "dump_signal", name, sizeof name);
    char *status = cmd_file_read(path, NULL);
    uint64_t bit = 1ull << (config.dump_signal - 1);
    if (!status)
        cmd_finding(findings, CMD_FINDING_NOTE, "signal", "%s cannot be read (%s)", path,
                    strerror(errno));
    else if (status_mask(status, "SigIgn:") & bit)
        cmd_finding(findings, CMD_FINDING_NOTE, "signal",
                    "%s is ignored by the program: sending it does nothing", name);
    else if (!(status_mask(status, "SigCgt:") & bit))
        cmd_finding(findings, CMD_FINDING_NOTE, "signal",
                    "do not send %s: nothing handles it, it would end the process", name);
    else if (blocked_everywhere(pid, bit))
        cmd_finding(findings, CMD_FINDING_NOTE, "signal",
                    "every thread blocks %s: it would stay pending and write nothing", name);
    else
        cmd_finding(findings, CMD_FINDING_OK, "signal",
                    "kill -%s %d should write a dump (a handler is installed; from outside it "
                    "cannot be told whether it is ours)",
                    name, pid);
    free(status);
    free(path);
}

/* Returns the first mapped file with a base name that begins with `start`; malloc'd or NULL. */
static char *mapped(const char *maps, const char *start) {
    for (const char *line = maps; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        size_t length = strcspn(line, "\n");
        const char *path = memchr(line, '/', length), *base = NULL;
        if (!path)
            continue;
        for (const char *at = path; at < line + length; at++)
            if (*at == '/')
                base = at + 1;
        if ((size_t)(line + length - base) >= strlen(start) &&
            !strncmp(base, start, strlen(start)))
            return cmd_format("%.*s", (int)(line + length - path), path);
    }
    return NULL;
}

/* LD_PRELOAD as the process was started with it; malloc'd, NULL: without. */
static char *preload_of(int pid) {
    char *path = cmd_format("/proc/%d/environ", pid), *preload = NULL;
    size_t length = 0;
    char *environment = cmd_file_read(path, &length);
    for (size_t at = 0; environment && at < length; at += strlen(environment + at) + 1)
        if (!preload && !strncmp(environment + at, "LD_PRELOAD=", 11))
            preload = cmd_format("%s", environment + at + 11);
    free(environment);
    free(path);
    return preload;
}

/* Why the library is not there. */
static void explain_absence(cmd_findings_t *findings, const char *preload) {
    cmd_finding(findings, CMD_FINDING_PROBLEM, "library",
                preload && strstr(preload, "libaccelcache.so")
                    ? "LD_PRELOAD names libaccelcache.so, and the loader did not load it: the "
                      "file is not readable there, or the program is static or setuid"
                    : "libaccelcache.so is not in this process: it was started without it "
                      "(sudo, ssh and mpirun drop LD_PRELOAD); start it with accelcache run");
}

static void check_cuda(cmd_findings_t *findings, int pid, const char *maps) {
    char *runtime = mapped(maps, "libcudart.so"), *driver = mapped(maps, "libcuda.so");
    char *exe = cmd_format("/proc/%d/exe", pid);
    cmd_program_t program;
    cmd_program_inspect(&program, exe);
    if (runtime)
        cmd_finding(findings, CMD_FINDING_OK, "runtime", "shared CUDA runtime %s", runtime);
    else if (program.runtime == CMD_RUNTIME_STATIC || program.runtime == CMD_RUNTIME_STANDIN)
        cmd_finding(findings, CMD_FINDING_OK, "runtime",
                    "static CUDA runtime, reached through dlsym");
    else
        cmd_finding(findings, CMD_FINDING_NOTE, "runtime",
                    "no CUDA runtime is loaded: the driver API alone, a library with a runtime "
                    "inside, or no CUDA");
    if (driver)
        cmd_finding(findings, CMD_FINDING_OK, "driver", "%s is loaded", driver);
    else
        cmd_finding(findings, CMD_FINDING_NOTE, "driver",
                    "libcuda.so.1 is not loaded: the process has not used CUDA so far");
    cmd_program_clear(&program);
    free(exe);
    free(driver);
    free(runtime);
}

/* Returns the first mapped library with a variable of this kind. */
static void check_variables(cmd_findings_t *findings, const char *maps) {
    char *last = cmd_format("%s", ""), *variable = NULL;
    for (const char *line = maps; *line && !variable;
         line += strcspn(line, "\n"), line += *line == '\n') {
        size_t length = strcspn(line, "\n");
        const char *path = memchr(line, '/', length);
        cmd_elf_t elf;
        char *file = path ? cmd_format("%.*s", (int)(line + length - path), path) : NULL;
        if (file && strcmp(file, last) != 0 && strstr(file, ".so") && !cmd_elf_open(&elf, file)) {
            variable = cmd_program_variable(&elf, file);
            cmd_elf_close(&elf);
        }
        if (file) {
            free(last);
            last = file;
        }
    }
    cmd_doctor_variable(findings, variable);
    free(last);
}

static void check_figures(cmd_findings_t *findings, const ac_live_name_t *name) {
    bool alive;
    char *error = NULL;
    json_t *document = cmd_document_live(name, &alive, &error);
    if (!document)
        cmd_finding(findings, CMD_FINDING_NOTE, "figures", "%s", error);
    else
        cmd_doctor_figures(findings, document);
    json_decref(document);
    free(error);
}

void cmd_doctor_process(cmd_findings_t *findings, int pid) {
    char why[1200], *path = cmd_format("/proc/%d/maps", pid), *absent = NULL;
    bool alive = false;
    ac_live_name_t name;
    const ac_live_t *page = NULL;
    /* /proc shows processes of this pid namespace only. */
    if (cmd_page_find(pid, 0, &name, &absent) && (name.here || !name.space))
        page = ac_live_read(&name, &alive, why, sizeof why);
    else
        snprintf(why, sizeof why, "%s",
                 absent ? absent : "its figures are of a process in another container");
    free(absent);
    if (page && !alive) {
        cmd_finding(findings, CMD_FINDING_PROBLEM, "process",
                    "%d was killed; accelcache stat %d shows what it left", pid, pid);
        ac_live_free(page);
        free(path);
        return;
    }
    char *maps = cmd_file_read(path, NULL);
    if (!maps) {
        cmd_finding(findings, CMD_FINDING_PROBLEM, "process", "%s: %s%s", path,
                    errno == ENOENT ? "there is no such process" : strerror(errno),
                    errno == EACCES || errno == EPERM ? "; ask as its user or as root" : "");
    } else {
        char *library = mapped(maps, "libaccelcache.so"), *preload = preload_of(pid);
        if (library)
            cmd_finding(findings, CMD_FINDING_OK, "library", "%s is loaded", library);
        else
            explain_absence(findings, preload);
        if (library)
            cmd_doctor_preloads(findings, preload);
        check_cuda(findings, pid, maps);
        check_variables(findings, maps);
        if (page) {
            cmd_finding(findings, CMD_FINDING_OK, "active",
                        "yes: accelcache stat %d shows its figures now", pid);
            check_signal(findings, pid, page);
            check_figures(findings, &name);
            cmd_doctor_exports(findings, &name);
        } else if (library) {
            cmd_finding(findings, CMD_FINDING_NOTE, "active", "not yet: %s", why);
        }
        free(preload);
        free(library);
    }
    if (page)
        ac_live_free(page);
    free(maps);
    free(path);
}
