/* `accelcache run` and `record`: start a program under libaccelcache.so. */
#include "base/child.h"
#include "command.h"
#include "base/conf.h"
#include "config/config.h"
#include "run/place.h"
#include "run/program.h"
#include "run/run.h"
#include "base/sizes.h"

#include <errno.h>
#include "base/option.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "Usage: accelcache run [OPTION...] [--] PROGRAM [ARGUMENT...]\n"
    "Runs PROGRAM with libaccelcache.so preloaded, before what LD_PRELOAD names\n"
    "unless that names it, too.\n"
    "\n"
    "  --conf STRING    ACCEL_ALLOC_CONF for the program, instead of the\n"
    "                   environment's\n"
    "  --dump FILE      where its statistics go (key `dump`), e.g. stats-%p.json;\n"
    "                   relative to this folder, wherever the program goes\n"
    "  --trace FILE     record its allocations (key `trace`), e.g. run-%p.trace; see\n"
    "                   accelcache trace\n"
    "  --lib FILE       the library to preload, instead of the one next to this\n"
    "                   command\n"
    "  --sim[=SPEC]     use the simulated device; SPEC becomes ACCEL_SIM\n"
    "                   (devices:2,memory:16G); with --compare, and no costs: in\n"
    "                   SPEC, calls cost what publications say\n"
    "  --compare        run it with caching off, then on, and print what caching\n"
    "                   changes\n"
    "  --repeat N       --compare: N runs each way, in turn; figures are medians (5\n"
    "                   for runs below a second, 3 below ten, else 1)\n"
    "  --warm-up N      --compare: N runs first, with caching off, that do not count\n"
    "                   (1)\n"
    "  --strict         --compare: end with status 117 if what they print on stdout\n"
    "                   differs between the settings, and not also between runs of\n"
    "                   one of them\n"
    "  --max-peak SIZE  end with status 118 if a process held more on a device at\n"
    "                   a time (bytes after rounding; K, M, G, T)\n"
    "  --fail-on-leak   end with status 119 if a process held memory when it\n"
    "                   exited\n"
    "  --junit FILE     with one of these: the result as JUnit's XML, for CI\n"
    "  --keep DIR       leave dumps (--compare: and outputs) in a new folder in DIR:\n"
    "                   run-1, ..\n"
    "  --stdin FILE     --compare: every run reads FILE (default: nothing)\n"
    "  --json           --compare: the result as JSON; --max-peak and\n"
    "                   --fail-on-leak: the same, behind what the program prints\n"
    "\n"
    "The program takes the place of this command: process id, signals and status are\n"
    "its own.  If stderr is a terminal, this command starts the program, passes\n"
    "signals on, ends as the program did, and says in one line what the cache served\n"
    "and where the statistics are.  It also starts the program with --max-peak and\n"
    "--fail-on-leak.\n"
    "With --compare the program's output is captured: it is shown if a run fails\n"
    "or if the runs differ, and kept with --keep.  The status is then 0, or that\n"
    "of the first failed run (128 + number for a signal).  Processes of it that end\n"
    "by a signal or by _exit write no statistics: their figures are read from their\n"
    "counters in shared memory.\n"
    "\n"
    "Exit status: the program's; 1 the library was not found, 2 wrong usage, 126 the\n"
    "program cannot run under the library (static, setuid, another architecture, not\n"
    "executable), 127 there is no such program; 117 --strict, and the outputs\n"
    "differ; 118 --max-peak, 119 --fail-on-leak, once the program itself ended with\n"
    "0 (and 1 if no process of it was measured, so that nothing can be said).\n";

static const char record_help[] =
    "Usage: accelcache record [OPTION...] [--] PROGRAM [ARGUMENT...]\n"
    "Runs PROGRAM under the library and records every allocation and free with its\n"
    "call stack.  Ends with three lines: how much the cache served, the peak with\n"
    "the call site that held most of it, and the command to type next.\n"
    "\n"
    "  -o, --output FILE  the recording, a trace (accelcache-%p.trace); %p stands\n"
    "                     for the process id.  Without %p the last process takes\n"
    "                     the name; of those that run at the same time the\n"
    "                     others get their id behind it\n"
    "  --conf STRING      ACCEL_ALLOC_CONF for the program, instead of the\n"
    "                     environment's; trace and stacks are added to it, and dump\n"
    "                     is not used\n"
    "  --lib FILE         the library to preload, instead of the one next to this\n"
    "                     command\n"
    "  --sim[=SPEC]       use the simulated device; SPEC becomes ACCEL_SIM\n"
    "\n"
    "Exit status: the program's (128 + number for a signal); 1 nothing was recorded;\n"
    "2, 126 and 127 as of accelcache run.\n";

/* Reads a number of runs.  Returns 0, or the exit status after a message. */
static int take_runs(const char *option, const char *text, int least, int *runs) {
    char *end;
    long number = strtol(text, &end, 10);
    *runs = (int)number;
    if (!*end && end != text && number >= least && number <= 1000)
        return 0;
    return cmd_usage("%s: expected a number from %d to 1000, got \"%s\"", option, least, text);
}

static int take_repeat(const char *text, void *runs) {
    return take_runs("--repeat", text, 1, runs);
}

static int take_warm_up(const char *text, void *runs) {
    return take_runs("--warm-up", text, 0, runs);
}

static int take_peak(const char *text, void *bytes) {
    if (strchr(text, 'x') || !cmd_size_parse(text, 1, bytes))
        return cmd_usage("--max-peak %s: expected bytes, as 500M or 1.5G", text);
    return CMD_OK;
}

/* Is the program's memory judged? */
static bool is_check(const cmd_run_t *run) {
    return run->max_peak || run->fail_on_leak;
}

/* Checks options that exclude each other; 0, or the exit status after a message. */
static int check_options(cmd_run_t *run) {
    bool check = is_check(run);
    if (!run->compare && (run->repeat || run->warm_up >= 0 || run->strict || run->input))
        return cmd_usage("--repeat, --warm-up, --strict and --stdin belong to --compare");
    if (!run->compare && !check && (run->json || run->keep))
        return cmd_usage("--json and --keep belong to --compare, --max-peak and --fail-on-leak");
    if (run->junit && !check)
        return cmd_usage("--junit belongs to --max-peak and --fail-on-leak");
    if (run->compare && check)
        return cmd_usage("--max-peak and --fail-on-leak do not go with --compare");
    if (check && run->dump)
        return cmd_usage("--dump does not go with --max-peak and --fail-on-leak: use --keep DIR");
    run->warm_up = run->warm_up < 0 ? 1 : run->warm_up;
    if (run->compare && run->dump)
        return cmd_usage("--dump does not go with --compare: use --keep DIR");
    if (run->compare && run->trace)
        return cmd_usage("--trace does not go with --compare");
    return 0;
}

static int print_help(void) {
    fputs(help, stdout);
    fputs("\nFigures of --compare:", stdout);
    cmd_compare_print_measures();
    return CMD_OK;
}

/* The string with one key set; both are malloc'd, and `conf` is freed. NULL after a message. */
static char *set_key(char *conf, const char *key, const char *value) {
    ac_config_t config;
    ac_config_error_t error;
    char *changed = cmd_conf_set(conf, key, value);
    free(conf);
    if (!ac_config_parse(changed, &config, &error, NULL))
        return changed;
    cmd_say("--%s: %s", key, error.text);
    free(changed);
    return NULL;
}

/* A relative name means the user's current folder, even if the program (a script) changes its folder first.  If
 * the folder's name does not fit into the string, the name stays as it is.  malloc'd. */
static char *absolute(const char *key, const char *name) {
    char folder[AC_CONFIG_PATH], escaped[2 * AC_CONFIG_PATH];
    ac_config_t config;
    ac_config_error_t error;
    size_t used = 0;
    if (*name == '/' || !*name || !strcmp(name, "none") || !getcwd(folder, sizeof folder) ||
        *folder != '/')
        return cmd_format("%s", name);
    for (const char *at = folder; *at; at++) {
        if (*at == '%')
            escaped[used++] = '%';
        escaped[used++] = *at;
    }
    escaped[used] = '\0';
    char *whole = cmd_format("%s%s%s", escaped, used > 1 ? "/" : "", name);
    char *conf = cmd_format("%s:%s", key, whole);
    bool fits = !strchr(folder, ',') && ac_config_parse(conf, &config, &error, NULL) == 0 &&
                !strcmp(strcmp(key, "dump") ? config.trace : config.dump, whole);
    free(conf);
    if (fits)
        return whole;
    free(whole);
    return cmd_format("%s", name);
}

static char *set_file(char *conf, const char *key, const char *name) {
    char *file = absolute(key, name);
    conf = set_key(conf, key, file);
    free(file);
    return conf;
}

/* False: the settings are wrong, or record no stacks. */
static bool has_stacks(const char *conf, bool history_too) {
    ac_config_t config;
    ac_config_error_t error;
    return !ac_config_parse(conf, &config, &error, NULL) &&
           (config.stacks != AC_STACKS_NONE || (history_too && config.history));
}

/* `conf` is freed.  The user's own key `stacks` stays. */
static char *with_stacks(char *conf) {
    char *whole =
        has_stacks(conf, false) ? cmd_format("%s", conf) : cmd_conf_set(conf, "stacks", "all");
    free(conf);
    return whole;
}

/* ACCEL_ALLOC_CONF of the program, malloc'd, or NULL after a message.  A string from the
 * environment that is wrong stays: the library says so itself, and runs on defaults. */
static char *build_conf(const cmd_run_t *run) {
    ac_config_t config;
    ac_config_error_t error;
    const char *given = run->conf ? run->conf : getenv("ACCEL_ALLOC_CONF");
    bool valid = ac_config_parse(given, &config, &error, NULL) == 0;
    if (!valid && run->conf) {
        cmd_say("--conf: %s", error.text);
        return NULL;
    }
    if (!valid && (run->dump || run->trace || run->compare || is_check(run))) {
        cmd_say("ACCEL_ALLOC_CONF: %s", error.text);
        return NULL;
    }
    char *conf = cmd_format("%s", given ? given : "");
    if (conf && run->dump)
        conf = set_file(conf, "dump", run->dump);
    if (conf && run->trace)
        conf = set_file(conf, "trace", run->trace);
    return conf && run->record ? with_stacks(conf) : conf;
}

/* ------------------------------------------------------------------ the simulated device */

/* One line: which case this program is, and what follows. */
static void say_simulated(const cmd_program_t *program, const char *folder) {
    static const char kernels[] = "kernels do not compute unless registered as host functions";
    char *case_text = cmd_program_describe(program);
    switch (program->runtime) {
    case CMD_RUNTIME_SHARED: {
        char *stand_in = cmd_format("%s/%s", folder, program->runtime_name);
        if (program->pinned)
            cmd_say("simulated device: %s, but its RPATH finds %s first; NVIDIA's runtime does "
                    "not work here: remove the RPATH (patchelf --remove-rpath) or relink",
                    case_text, program->pinned);
        else if (access(stand_in, R_OK))
            cmd_say("simulated device: %s, and there is no stand-in of that version in %s: "
                    "relink with another",
                    case_text, folder);
        else if (program->static_in)
            cmd_say("simulated device: %s, replaced by the stand-in; %s holds NVIDIA's static "
                    "runtime, whose calls will fail; %s",
                    case_text, program->static_in, kernels);
        else
            cmd_say("simulated device: %s, replaced by the stand-in; %s", case_text, kernels);
        free(stand_in);
        break;
    }
    case CMD_RUNTIME_STATIC:
        cmd_say(
            "simulated device: %s: its CUDA calls will fail; relink with nvcc -cudart shared, "
            "or with the stand-in %s/static/libcudart_static.a",
            case_text, folder);
        break;
    default:
        cmd_say("simulated device: %s; %s", case_text, kernels);
        break;
    }
    free(case_text);
}

static int set_simulated(const cmd_run_t *run, const cmd_program_t *program) {
    char *error, *folder = cmd_place_simulator(&error);
    if (!folder) {
        cmd_say("%s", error);
        free(error);
        return CMD_FAILED;
    }
    char *path = cmd_place_prepend(folder, getenv("LD_LIBRARY_PATH"));
    setenv("LD_LIBRARY_PATH", path, 1);
    const char *given = run->sim ? run->sim : getenv("ACCEL_SIM");
    char *spec = cmd_format("%s", given ? given : "");
    /* If calls cost nothing, only their number can be compared. */
    if (run->compare && !strstr(spec, "costs:")) {
        char *costly = cmd_format("%s%scosts:published", spec, *spec ? "," : "");
        free(spec);
        spec = costly;
    }
    if (*spec)
        setenv("ACCEL_SIM", spec, 1);
    free(spec);
    say_simulated(program, folder);
    free(path);
    free(folder);
    return CMD_OK;
}

/* ------------------------------------------------------------------ running */

/* The status of a program that cannot run; 0 when it can. */
static int refuse(const cmd_program_t *program) {
    if (program->problem == CMD_PROGRAM_FINE)
        return 0;
    cmd_say("%s", program->problem_text);
    return program->problem == CMD_PROGRAM_MISSING ? CMD_NOT_FOUND : CMD_CANNOT_RUN;
}

/* If the program is linked to a sanitizer's runtime, that comes first (doctor explains it). */
static void preload_library(const char *library, const cmd_program_t *program) {
    const char *existing = getenv("LD_PRELOAD");
    const char *first = program->sanitizer_file;
    bool named = !first || (existing &&
                            strstr(existing, strrchr(first, '/') ? strrchr(first, '/') : first));
    char *all =
        named ? cmd_format("%s", existing ? existing : "") : cmd_place_prepend(first, existing);
    char *preload = cmd_place_preload(library, all);
    setenv("LD_PRELOAD", preload, 1);
    free(preload);
    free(all);
}

static int start(const cmd_run_t *run, const cmd_program_t *program) {
    char *conf = build_conf(run);
    if (!conf)
        return CMD_USAGE;
    char *error, *library = cmd_place_library(run->library, &error);
    int status = library ? CMD_OK : CMD_FAILED;
    if (!library) {
        cmd_say("%s", error);
        free(error);
    }
    if (!status && run->simulated)
        status = set_simulated(run, program);
    if (!status) {
        preload_library(library, program);
        if (has_stacks(conf, true)) /* ranges of NVTX are phases; another tool's library stays */
            setenv("NVTX_INJECTION64_PATH", library, 0);
        if (run->compare) {
            status = cmd_run_compare(run, program->path, conf);
        } else if (is_check(run)) {
            status = cmd_run_check(run, program->path, conf);
        } else if (run->record) {
            status = cmd_run_record(run, program->path, conf);
        } else if (isatty(STDERR_FILENO)) {
            status = cmd_run_told(run, program->path, conf);
        } else {
            if (*conf)
                setenv("ACCEL_ALLOC_CONF", conf, 1);
            else
                unsetenv("ACCEL_ALLOC_CONF");
            fflush(stdout);
            cmd_child_restore();
            execvp(program->path, run->command);
            int failed = errno; /* the message changes it */
            cmd_say("%s: %s", program->path, strerror(failed));
            status = failed == ENOENT ? CMD_NOT_FOUND : CMD_CANNOT_RUN;
        }
    }
    free(library);
    free(conf);
    return status;
}

static int begin(const cmd_run_t *run) {
    cmd_program_t program;
    cmd_program_inspect(&program, run->command[0]);
    int status = refuse(&program);
    if (!status)
        status = start(run, &program);
    cmd_program_clear(&program);
    return status;
}

int cmd_run(int argc, char **argv) {
    cmd_run_t run = {.warm_up = -1}; /* not given */
    int status;
    const cmd_option_t options[] = {{"conf", .text = &run.conf},
                                    {"dump", .text = &run.dump},
                                    {"trace", .text = &run.trace},
                                    {"lib", .text = &run.library},
                                    {"sim", .flag = &run.simulated, .text = &run.sim},
                                    {"compare", .flag = &run.compare},
                                    {"repeat", .take = take_repeat, .arg = &run.repeat},
                                    {"warm-up", .take = take_warm_up, .arg = &run.warm_up},
                                    {"strict", .flag = &run.strict},
                                    {"keep", .text = &run.keep},
                                    {"stdin", .text = &run.input},
                                    {"max-peak", .take = take_peak, .arg = &run.max_peak},
                                    {"fail-on-leak", .flag = &run.fail_on_leak},
                                    {"junit", .text = &run.junit},
                                    {"json", 'j', .flag = &run.json},
                                    {"help", 'h', .stop = print_help},
                                    {.name = NULL}};
    if (!cmd_options_of_command(argc, argv, options, NULL, &status))
        return status;
    run.command = argv + optind;
    if (!run.command[0])
        return cmd_usage("no program was given");
    status = check_options(&run);
    return status ? status : begin(&run);
}

int cmd_record(int argc, char **argv) {
    cmd_run_t run = {.record = true, .trace = "accelcache-%p.trace"};
    int status;
    const cmd_option_t options[] = {{"output", 'o', .text = &run.trace},
                                    {"conf", .text = &run.conf},
                                    {"lib", .text = &run.library},
                                    {"sim", .flag = &run.simulated, .text = &run.sim},
                                    {.name = NULL}};
    if (!cmd_options_of_command(argc, argv, options, record_help, &status))
        return status;
    run.command = argv + optind;
    return run.command[0] ? begin(&run) : cmd_usage("no program was given");
}
