/* The command `accelcache-dev`, which packages leave out.  It measures the library, and makes
 * traces to develop it with. */
#include "command.h"

const char cmd_about[] = "Benchmarks of accelcache, and traces of kinds of programs.";
const char cmd_statuses[] = "Exit status: 0 done, 1 failed, 2 wrong usage.\n";

const cmd_subcommand_t cmd_subcommands[] = {
    {"bench", "measure what calls cost with the library, beside other allocators", cmd_bench},
    {"gen", "write an allocation trace of a kind of program", cmd_gen},
    {NULL, NULL, NULL}};
