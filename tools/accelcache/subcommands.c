/* The command `accelcache`: its subcommands. */
#include "command.h"

const char cmd_about[] = "A stream-aware caching allocator under unmodified CUDA programs.";
const char cmd_statuses[] =
    "Exit status: 0 done, 1 failed, 2 wrong usage; `run` ends with the program's own\n"
    "status (a shell shows 128 + number for a signal), 126 if the program cannot\n"
    "run under the library, 127 if it was not found.\n";

const cmd_subcommand_t cmd_subcommands[] = {
    {"run", "run a program under libaccelcache.so, or compare it with and without", cmd_run},
    {"record", "run a program and record its memory: call sites and times", cmd_record},
    {"stat", "show statistics dumps, running processes and killed ones", cmd_stat},
    {"ps", "list processes that run under the library, a line each, for scripts", cmd_ps},
    {"config", "show the keys of ACCEL_ALLOC_CONF, check a configuration string", cmd_config},
    {"doctor", "check whether the library can work here, and with this program", cmd_doctor},
    {"trace", "show what run --trace recorded: every allocation and free", cmd_trace},
    {"replay", "run a trace through the allocator without a GPU: memory, driver time",
     cmd_replay},
    {"tune", "search for the configuration that a program's traces ask for", cmd_tune},
    {"export",
     "write a recording for PyTorch's viewer, Perfetto, pprof, Prometheus",
     cmd_export},
    {"report", "draw a page: memory over time, sizes, lifetimes, segments, advice", cmd_report},
    {"diff", "compare two recordings by call site: grown, new and gone memory", cmd_diff},
    {"ctl", "make a running process dump, trim, reset peaks, change settings", cmd_ctl},
    {"oom", "explain a failed request: holders of memory, settings that help",
     cmd_oom},
    {"where", "explain a device address: its block, its module, held or freed",
     cmd_where},
    {"top", "watch devices and processes under the library while they run", cmd_top},
    {"env", "print the lines that put the library under all that a shell starts", cmd_env},
    {NULL, NULL, NULL}};
