/* `accelcache doctor`: can the library work here, with this program, in that process. */
#include "run/doctor.h"
#include "command.h"
#include "read/elf.h"
#include "observe/live.h"
#include "run/place.h"
#include "read/processes.h"
#include "run/program.h"
#include "run/settings.h"

#include <errno.h>
#include "base/option.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

static const char help[] =
    "Usage: accelcache doctor [OPTION...] [PID | [--] PROGRAM [ARGUMENT...]]\n"
    "Checks whether the library can work on this machine.  With PROGRAM, which is\n"
    "not run: whether preloading reaches it and how it gets to CUDA.  With PID:\n"
    "whether the library is active in that process, whether the dump signal may be\n"
    "sent to it, and what its figures advise, for example free_sync:true.  It also\n"
    "names the blocks that other processes may open (CUDA IPC), and their cost.\n"
    "\n"
    "  --dump FILE  what the figures in a statistics dump advise, and nothing else\n"
    "  --lib FILE   the library to check, instead of the one next to this command\n"
    "  --sim        check the simulated device instead of the machine's driver\n"
    "  --json       the findings as JSON\n"
    "\n"
    "Exit status: 0, 1 if something keeps accelcache from working, 2 wrong usage.\n";

struct cmd_findings {
    struct {
        cmd_level_t level;
        const char *topic;
        char *text;
    } * row;
    unsigned count, problems;
};

void cmd_finding(cmd_findings_t *findings, cmd_level_t level, const char *topic,
                 const char *format, ...) {
    va_list args;
    char *text;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        text = cmd_format("(out of memory)");
    va_end(args);
    findings->row = cmd_resize(findings->row, (findings->count + 1) * sizeof *findings->row);
    findings->row[findings->count].level = level;
    findings->row[findings->count].topic = topic;
    findings->row[findings->count++].text = text;
    findings->problems += level == CMD_FINDING_PROBLEM;
}

static const char *const level_words[] = {"ok", "note", "problem"};

/* ------------------------------------------------------------------ this machine */

static void check_library(cmd_findings_t *findings, const char *given) {
    char *why, *path = cmd_place_library(given, &why);
    if (!path) {
        cmd_finding(findings, CMD_FINDING_PROBLEM, "library", "%s", why);
        free(why);
        return;
    }
    cmd_elf_t elf;
    int error = cmd_elf_open(&elf, path);
    if (error || !elf.is_elf || !elf.bits64)
        cmd_finding(findings, CMD_FINDING_PROBLEM, "library", "%s is no usable library: %s", path,
                    error ? strerror(error) : "not a 64-bit ELF file");
    else if (!cmd_elf_has_symbol(&elf, "cuMemAlloc_v2", true))
        cmd_finding(findings, CMD_FINDING_PROBLEM, "library",
                    "%s does not export cuMemAlloc_v2: it is another library", path);
    else
        cmd_finding(findings, CMD_FINDING_OK, "library", "%s", path);
    if (!error)
        cmd_elf_close(&elf);
    free(path);
}

static void check_config(cmd_findings_t *findings) {
    static cmd_settings_t here;
    cmd_settings_read(&here);
    if (here.refused)
        cmd_finding(findings, CMD_FINDING_PROBLEM, "config", "%s would not be applied: %s",
                    here.refused, here.why);
    bool wrong = here.error.text[0];
    if (wrong)
        cmd_finding(findings, CMD_FINDING_PROBLEM, "config",
                    "ACCEL_ALLOC_CONF is wrong, and none of it would be applied: %s",
                    here.error.text);
    for (unsigned i = 0; i < here.warnings_of_file.count; i++)
        cmd_finding(findings, CMD_FINDING_NOTE, "config", "%s: %s", here.file,
                    here.warnings_of_file.text[i]);
    for (unsigned i = 0; i < here.warnings.count; i++)
        cmd_finding(findings, CMD_FINDING_NOTE, "config", "%s", here.warnings.text[i]);
    const char *enabled = cmd_settings_source(&here, "enabled");
    bool set = here.string && *here.string && !wrong;
    if (!here.config.enabled)
        cmd_finding(findings, CMD_FINDING_PROBLEM, "config",
                    "%s has enabled:false: nothing is cached", enabled);
    else if (here.file)
        cmd_finding(findings, CMD_FINDING_OK, "config", "%s is applied%s%s", here.file,
                    set ? ", and ACCEL_ALLOC_CONF over it; of the file are left: " : ": ",
                    *here.from_file ? here.from_file : "nothing");
    else if (!wrong)
        cmd_finding(findings, CMD_FINDING_OK, "config",
                    set ? "ACCEL_ALLOC_CONF is applied as it stands"
                        : "ACCEL_ALLOC_CONF is not set: defaults");
}

static void check_environment(cmd_findings_t *findings) {
    struct statvfs space;
    const char *dir = ac_live_dir();
    if (ac_live_dir_missing())
        cmd_finding(findings, CMD_FINDING_NOTE, "live page",
                    "ACCEL_LIVE_DIR names %s, which is no folder: %s serves",
                    ac_live_dir_missing(), dir);
    if (access(dir, W_OK | X_OK) || statvfs(dir, &space))
        cmd_finding(findings, CMD_FINDING_NOTE, "live page",
                    "%s cannot be written (%s): figures of a process are lost when it is killed",
                    dir, strerror(errno));
    else if ((uint64_t)space.f_bavail * space.f_frsize < sizeof(ac_live_t))
        cmd_finding(findings, CMD_FINDING_NOTE, "live page",
                    "%s is full: figures of a process are lost when it is killed", dir);
    else
        cmd_finding(findings, CMD_FINDING_OK, "live page",
                    "%s has room for figures that outlive a kill", dir);
    const char *preload = getenv("LD_PRELOAD");
    if (preload && strstr(preload, "libaccelcache.so"))
        cmd_finding(findings, CMD_FINDING_NOTE, "environment",
                    "LD_PRELOAD names the library already: every program started here gets it");
    cmd_doctor_preloads(findings, preload);
    if (getenv("CUDA_INJECTION64_PATH"))
        cmd_finding(findings, CMD_FINDING_NOTE, "environment",
                    "CUDA_INJECTION64_PATH is set (a profiler): the runtime fast path is off");
    if (getenv("SUDO_COMMAND"))
        cmd_finding(findings, CMD_FINDING_NOTE, "environment",
                    "under sudo: it dropped LD_PRELOAD from outside; write sudo accelcache run "
                    "-- PROGRAM");
    if (access("/.dockerenv", F_OK) == 0)
        cmd_finding(findings, CMD_FINDING_NOTE, "environment",
                    "in a container: set LD_PRELOAD with -e, to a path inside it");
}

/* ------------------------------------------------------------------ a program */

void cmd_doctor_variable(cmd_findings_t *findings, char *where) {
    if (where)
        cmd_finding(findings, CMD_FINDING_NOTE, "variables",
                    "%s is a variable with the name of a function of ours: it works, but for "
                    "constructors that read it before their first dlopen, dlsym or "
                    "cuGetProcAddress; those find code, not their value",
                    where);
    free(where);
}

static const char *place_of(bool before, const char *name) {
    if (before)
        return "before the library: it sees the program's calls first, the library what it "
               "passes on";
    return !strncmp(name, "cuda", 4)
               ? "behind the library, which calls it for each request and free: the runtime's "
                 "fast path is off"
               : "behind the library, which calls the driver itself: it sees no call of the "
                 "program; to have it first, name it before libaccelcache.so";
}

/* If LD_PRELOAD does not name the library, accelcache run puts it in front. */
void cmd_doctor_preloads(cmd_findings_t *findings, const char *preload) {
    const char *ours = preload ? strstr(preload, "libaccelcache.so") : NULL;
    while (preload && *preload) {
        size_t length = strcspn(preload, ": \t");
        char *file = cmd_format("%.*s", (int)length, preload);
        cmd_elf_t elf;
        if (!strstr(file, "libaccelcache.so") && !cmd_elf_open(&elf, file)) {
            const char *name = cmd_program_namesake(&elf);
            if (name)
                cmd_finding(findings, CMD_FINDING_NOTE, "preloaded", "%s has %s as well, and stands %s",
                            file, name, place_of(ours && preload < ours, name));
            cmd_elf_close(&elf);
        }
        free(file);
        preload += length + (preload[length] != '\0');
    }
}

/* Libraries to preload before ours. */
static void check_sanitizer(cmd_findings_t *findings, const cmd_program_t *program,
                            const char *given) {
    const char *file = program->sanitizer_file, *preload = getenv("LD_PRELOAD");
    if (!program->sanitizer)
        return;
    if (!file) {
        cmd_finding(findings, CMD_FINDING_OK, "sanitizer",
                    "%s is linked in: preload libaccelcache.so alone, no second runtime before "
                    "it",
                    program->sanitizer);
        return;
    }
    const char *ours = preload ? strstr(preload, "libaccelcache.so") : NULL;
    const char *base = strrchr(file, '/') ? strrchr(file, '/') + 1 : file;
    const char *theirs = preload ? strstr(preload, base) : NULL;
    bool wrong = ours && (!theirs || theirs > ours);
    char *why, *library = cmd_place_library(given, &why);
    cmd_finding(findings, wrong ? CMD_FINDING_PROBLEM : CMD_FINDING_NOTE, "sanitizer",
                "linked to %s (%s), which has to be the first library of all%s: "
                "LD_PRELOAD=%s:%s, or accelcache run, which does that%s",
                base, program->sanitizer,
                wrong ? ", and LD_PRELOAD here has libaccelcache.so before it, so that the "
                        "sanitizer ends the program or misses what it looks for"
                      : "",
                file, library ? library : "libaccelcache.so",
                strchr(file, '/') ? ""
                                  : "; it was found in no folder of the loader's, and needs its "
                                    "path there (gcc or clang -print-file-name=NAME)");
    if (!library)
        free(why);
    free(library);
}

static void check_program(cmd_findings_t *findings, const char *name, bool simulated,
                          const char *library) {
    cmd_program_t program;
    cmd_program_inspect(&program, name);
    if (program.problem != CMD_PROGRAM_FINE) {
        cmd_finding(findings, CMD_FINDING_PROBLEM, "preload", "%s", program.problem_text);
    } else {
        char *how = cmd_program_describe(&program);
        cmd_finding(findings, CMD_FINDING_OK, "preload",
                    "works with %s: a dynamic program for this machine's loader",
                    program.interpreter ? program.interpreter : program.path);
        cmd_finding(findings,
                    program.runtime == CMD_RUNTIME_UNSEEN ? CMD_FINDING_NOTE : CMD_FINDING_OK,
                    "runtime", "%s", how);
        if (program.static_in)
            cmd_finding(findings, CMD_FINDING_OK, "runtime",
                        "%s has a static runtime inside; its lookups are seen",
                        program.static_in);
        if (program.unresolved &&
            !(simulated && strstr(program.unresolved, "libcudart"))) /* there the stand-in is */
            cmd_finding(findings, CMD_FINDING_NOTE, "runtime",
                        "%s was found in no folder of the loader's: LD_LIBRARY_PATH may be "
                        "missing",
                        program.unresolved);
        cmd_doctor_variable(findings, program.variable);
        program.variable = NULL;
        check_sanitizer(findings, &program, library);
        if (simulated && program.runtime == CMD_RUNTIME_STATIC)
            cmd_finding(findings, CMD_FINDING_PROBLEM, "simulated",
                        "NVIDIA's static runtime does not work on the simulated device: relink "
                        "with nvcc -cudart shared or static/libcudart_static.a beside the "
                        "simulated libcuda.so.1");
        if (simulated && program.pinned)
            cmd_finding(findings, CMD_FINDING_PROBLEM, "simulated",
                        "RPATH finds %s before the stand-in: remove it or relink",
                        program.pinned);
        free(how);
    }
    cmd_finding(findings, CMD_FINDING_NOTE, "not covered",
                "static executables, setuid programs, other namespaces of dlmopen");
    cmd_program_clear(&program);
}

/* ------------------------------------------------------------------ */

static int print_findings(cmd_findings_t *findings, bool json) {
    int failed = 0;
    if (json) {
        json_t *rows = json_array();
        for (unsigned i = 0; i < findings->count; i++) {
            json_array_append_new(rows, json_pack("{s:s, s:s, s:o}", "level",
                                                  level_words[findings->row[i].level], "topic",
                                                  findings->row[i].topic, "text",
                                                  cmd_json_text(findings->row[i].text)));
        }
        json_t *whole = json_pack("{s:b, s:o}", "ok", findings->problems == 0, "findings", rows);
        failed = cmd_print_json(whole, 0);
    } else {
        cmd_table_t *table = cmd_table_new("lll");
        for (unsigned i = 0; i < findings->count; i++)
            cmd_table_row(table, level_words[findings->row[i].level], findings->row[i].topic,
                          findings->row[i].text);
        cmd_table_print(table, 0);
    }
    for (unsigned i = 0; i < findings->count; i++)
        free(findings->row[i].text);
    free(findings->row);
    return failed || findings->problems ? CMD_FAILED : CMD_OK;
}

int cmd_doctor(int argc, char **argv) {
    const char *library = NULL, *dump = NULL;
    bool simulated = false, json = false;
    int status;
    const cmd_option_t options[] = {{"lib", .text = &library},
                                    {"sim", .flag = &simulated},
                                    {"json", 'j', .flag = &json},
                                    {"dump", .text = &dump},
                                    {"probe-driver", .stop = cmd_doctor_probe},
                                    {.name = NULL}};
    if (!cmd_options_of_command(argc, argv, options, help, &status))
        return status;
    bool divided = optind > 1 && !strcmp(argv[optind - 1], "--");
    int pid = 0;
    uint64_t space = 0;
    if (optind >= argc || divided || !cmd_process_read(argv[optind], &pid, &space))
        pid = 0;
    space = pid ? space : 0;
    if (space)
        return cmd_usage("%s: /proc shows processes of this pid namespace alone; run accelcache "
                         "doctor %d in its container",
                         argv[optind], pid);
    if (pid && optind + 1 < argc)
        return cmd_usage("one PID at a time");
    if (dump && optind < argc)
        return cmd_usage("--dump takes no program and no process beside it");
    cmd_findings_t findings = {0};
    if (dump) {
        cmd_doctor_dump(&findings, dump);
        return print_findings(&findings, json);
    }
    if (pid) {
        cmd_doctor_process(&findings, pid);
        return print_findings(&findings, json);
    }
    check_library(&findings, library);
    char *why = NULL, *folder = simulated ? cmd_place_simulator(&why) : NULL;
    if (simulated && !folder)
        cmd_finding(&findings, CMD_FINDING_PROBLEM, "driver", "%s", why);
    else
        cmd_doctor_driver(&findings, folder);
    free(why);
    free(folder);
    check_config(&findings);
    check_environment(&findings);
    if (optind < argc)
        check_program(&findings, argv[optind], simulated, library);
    return print_findings(&findings, json);
}
