/* `accelcache bench`: what calls cost with the library, beside other allocators. */
#include "bench.h"
#include "command.h"
#include "config/config.h"
#include "place.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

static const char help_head[] =
    "Usage: accelcache bench [OPTION...]\n"
    "       accelcache bench --only PART...\n"
    "Measures allocation calls with the library, and beside it in the same run the bare driver,\n"
    "CUB's CachingDeviceAllocator, glibc's malloc and mimalloc where they were found.  Without "
    "a\n"
    "GPU it uses the simulated device, whose driver calls cost nothing here: the figures are "
    "the\n"
    "host's side alone.\n\n"
    "  --quick         fewer and shorter passes: half a minute\n"
    "  --only PART...  these parts alone (also with commas between them)\n"
    "  --without PEER  leave these out, by their names in JSON, with commas between them\n"
    "  --sim           the simulated device, though a driver is there\n"
    "  --conf STRING   ACCEL_ALLOC_CONF for the library, instead of the environment's\n"
    "  --lib FILE      the library to measure, instead of the one beside this command\n"
    "  --rounds N      how often every part is run, in turns (7; --quick 3)\n"
    "  --pass-us N     how long a pass lasts, about, in microseconds (10000; --quick 2000)\n"
    "  --pairs N       pairs of a pass, instead of as many as fit; few make no good figures\n"
    "  --json          JSON instead of tables\n"
    "  --markdown      tables in Markdown\n\n"
    "Parts:\n";

static const char help_tail[] =
    "\nEvery figure is the median of all passes of all rounds; the tables show the least and "
    "the\n"
    "greatest behind it.  Columns: accelcache is the exported cudaMalloc of a preloaded "
    "program,\n"
    "static cudart one with the runtime linked in, cuMemAlloc the driver's call.  On a GPU\n"
    "cudaMallocAsync, RMM and PyTorch are added, the last two called from Python, and NVIDIA's\n"
    "static runtime takes the place of the stand-in where it was there to link.\n\n"
    "JSON, peers being accelcache, bare, cub, glibc and mimalloc:\n"
    "  hot_pair        {bytes: {PEER_ns, static_ns, driver_ns, instructions: of accelcache}}\n"
    "  replace_ns      {peer: ns}\n"
    "  threads         {count: {peer: ns of CPU time per pair}}\n"
    "  blocks          {count: ns of a pair}; blocks_replace: of a replacement\n"
    "  cross_ns        {peer: ns of CPU time}\n"
    "  tail            {peer: {p50_ns, p99_ns, p999_ns, clock_ns: reading the clock, which is "
    "in\n"
    "                  them, quiet_...: while nothing is launched}}\n"
    "  launch          {streams: {bare_launch_ns, pair_ns, pair_launch_ns, beyond_ns: the last\n"
    "                  less the other two, fences_per_64: frees}}\n"
    "  hooks           {call: {bare_ns, accelcache_ns, added_ns}}\n"
    "  multistream     {way: {PEER_us, PEER_ratio: to buffers kept on the bare driver}}\n"
    "  instructions    {bytes: {peer: instructions per pair}}\n"
    "  startup         {program: {bare_ms, accelcache_ms, added_ms, ..._cpu_ms: CPU time of the\n"
    "                  same}}; cuda_dump is with statistics written at the end\n"
    "  memory          {small_cuda: {PEER_kib: resident, added_kib}, blocks_BYTES:\n"
    "                  {accelcache_kib, percent: of the device memory in the blocks}}\n"
    "  skipped         {peer, part or part/peer: reason}\n"
    "  passes          least, greatest and number for each figure, in the same places\n\n"
    "Exit status: 0 done, 1 the library could not be measured, 2 wrong usage.\n";

enum {
    OPT_QUICK = 256,
    OPT_ONLY,
    OPT_WITHOUT,
    OPT_SIM,
    OPT_CONF,
    OPT_LIB,
    OPT_ROUNDS,
    OPT_PASS_US,
    OPT_PAIRS,
    OPT_MARKDOWN
};

static const struct option options[] = {{"quick", no_argument, NULL, OPT_QUICK},
                                        {"only", required_argument, NULL, OPT_ONLY},
                                        {"without", required_argument, NULL, OPT_WITHOUT},
                                        {"sim", no_argument, NULL, OPT_SIM},
                                        {"conf", required_argument, NULL, OPT_CONF},
                                        {"lib", required_argument, NULL, OPT_LIB},
                                        {"rounds", required_argument, NULL, OPT_ROUNDS},
                                        {"pass-us", required_argument, NULL, OPT_PASS_US},
                                        {"pairs", required_argument, NULL, OPT_PAIRS},
                                        {"markdown", no_argument, NULL, OPT_MARKDOWN},
                                        {"json", no_argument, NULL, 'j'},
                                        {"help", no_argument, NULL, 'h'},
                                        {NULL, 0, NULL, 0}};

static void print_help(void) {
    fputs(help_head, stdout);
    for (int i = 0; i < bench_part_count; i++)
        printf("  %-15s %s\n", bench_parts[i].name, bench_parts[i].what);
    fputs(help_tail, stdout);
}

/* Names of parts with commas between them; 0 or the status to end with. */
static int add_parts(bench_t *b, const char *names) {
    while (*names) {
        size_t length = strcspn(names, ",");
        int part = 0;
        while (part < bench_part_count &&
               (strncmp(bench_parts[part].name, names, length) || bench_parts[part].name[length]))
            part++;
        if (part == bench_part_count)
            return cmd_usage("--only: there is no part \"%.*s\"", (int)length, names);
        b->only |= 1u << part;
        names += length + (names[length] == ',');
    }
    return CMD_OK;
}

/* The same for peers; the library itself is what is measured. */
static int leave_out_peers(bench_t *b, const char *names) {
    while (*names) {
        size_t length = strcspn(names, ",");
        bench_peer_id_t peer = BENCH_accelcache + 1;
        while (peer < BENCH_PEER_COUNT &&
               (strncmp(bench_peers[peer].id, names, length) || bench_peers[peer].id[length]))
            peer++;
        if (peer == BENCH_PEER_COUNT)
            return cmd_usage("--without: there is no peer \"%.*s\"", (int)length, names);
        b->without |= 1u << peer;
        names += length + (names[length] == ',');
    }
    return CMD_OK;
}

static int read_number(const char *option, const char *text, long most, long *number) {
    char *end;
    *number = strtol(text, &end, 10);
    if (*end || end == text || *number < 1 || *number > most)
        return cmd_usage("%s: expected a number from 1 to %ld, got \"%s\"", option, most, text);
    return CMD_OK;
}

/* 0: go on; else the exit status (negative: 0 after --help). */
static int read_options(bench_t *b, int argc, char **argv) {
    int option, status = CMD_OK;
    while (!status && (option = getopt_long(argc, argv, "hj", options, NULL)) != -1) {
        switch (option) {
        case OPT_QUICK:
            b->quick = true;
            break;
        case OPT_ONLY:
            status = *optarg ? add_parts(b, optarg) : cmd_usage("--only: no part was given");
            break;
        case OPT_WITHOUT:
            status = leave_out_peers(b, optarg);
            break;
        case OPT_SIM:
            b->force_simulated = true;
            break;
        case OPT_CONF:
            b->conf_given = optarg;
            break;
        case OPT_LIB:
            b->library_given = optarg;
            break;
        case OPT_ROUNDS:
            status = read_number("--rounds", optarg, 1000, &b->rounds);
            break;
        case OPT_PASS_US:
            status = read_number("--pass-us", optarg, 10000000, &b->pass_us);
            break;
        case OPT_PAIRS:
            status = read_number("--pairs", optarg, 100000000, &b->pairs);
            break;
        case OPT_MARKDOWN:
            b->markdown = true;
            break;
        case 'j':
            b->json = true;
            break;
        case 'h':
            print_help();
            return -1;
        default:
            return cmd_usage_hint();
        }
    }
    /* --only PART PART... */
    for (; !status && optind < argc; optind++)
        status = b->only ? add_parts(b, argv[optind])
                         : cmd_usage("\"%s\": parts are named behind --only", argv[optind]);
    if (!status && b->json && b->markdown)
        status = cmd_usage("--json and --markdown exclude each other");
    return status;
}

/* Statistics stay on, as in any program; the file at the end is measured by itself. */
static int set_conf(bench_t *b) {
    ac_config_t config;
    ac_config_error_t error;
    const char *given = b->conf_given ? b->conf_given : getenv("ACCEL_ALLOC_CONF");
    if (ac_config_parse(given, &config, &error, NULL))
        return cmd_usage("%s: %s", b->conf_given ? "--conf" : "ACCEL_ALLOC_CONF", error.text);
    b->conf = cmd_place_conf(given, "dump", "none");
    return CMD_OK;
}

static void run_parts(bench_t *b) {
    for (long round = 0; round < b->rounds; round++)
        for (int part = 0; part < bench_part_count; part++)
            if (!b->only || b->only & 1u << part)
                bench_parts[part].run(b, round);
    bench_finish(b);
}

static int print_result(const bench_t *b) {
    if (!b->json) {
        bench_print(b);
        return CMD_OK;
    }
    json_t *whole = bench_document(b);
    return cmd_print_json(whole, JSON_REAL_PRECISION(9));
}

int cmd_bench(int argc, char **argv) {
    bench_t b = {.rounds = 0};
    int status = read_options(&b, argc, argv);
    if (status)
        return status < 0 ? CMD_OK : status;
    if (!b.rounds)
        b.rounds = b.quick ? 3 : 7;
    if (!b.pass_us)
        b.pass_us = b.quick ? 2000 : 10000;
    status = set_conf(&b);
    if (status)
        return status;
    char *error = NULL;
    b.library = cmd_place_library(b.library_given, &error);
    if (!b.library) {
        cmd_say("%s", error);
        status = CMD_FAILED;
    } else {
        free(error);
        error = NULL;
        b.simulator = cmd_place_simulator(&error);
        b.samples = json_object();
        b.figures = json_object();
        b.passes = json_object();
        b.skipped = json_object();
        if (bench_probe(&b))
            status = CMD_FAILED;
        else
            run_parts(&b);
        if (!status)
            status = print_result(&b);
        if (!status && b.failed)
            status = CMD_FAILED;
    }
    free(error);
    json_decref(b.samples);
    json_decref(b.figures);
    json_decref(b.passes);
    json_decref(b.skipped);
    free(b.library);
    free(b.simulator);
    free(b.runtime);
    free(b.conf);
    return status;
}
