/* `accelcache-dev bench`: costs of calls with the library, compared with other allocators. */
#include "bench.h"
#include "command.h"
#include "base/conf.h"
#include "config/config.h"
#include "run/place.h"
#include "base/terminal.h"

#include "base/option.h"
#include <stdlib.h>
#include <string.h>

static const char help_head[] =
    "Usage: accelcache-dev bench [OPTION...]\n"
    "       accelcache-dev bench --only PART...\n"
    "Measures allocation calls with the library, and beside it in the same run the bare driver,\n"
    "CUB's CachingDeviceAllocator, RMM's pool, glibc's malloc and mimalloc where they were "
    "found.\n"
    "Without a GPU all run on a driver whose calls return at once and cost nothing: the figures\n"
    "are the host's side alone.\n\n"
    "  --quick         fewer and shorter passes: some two minutes\n"
    "  --only PART...  these parts or rows alone (also with commas between them)\n"
    "  --instructions  count the instructions of the rows as well, by valgrind\n"
    "  --observe       what traces, dumps, guard and other ways of observing cost, each against\n"
    "                  everything off, as --only observe --instructions\n"
    "  --without PEER  leave these out, by their names in JSON, with commas between them\n"
    "  --sim           no GPU's driver, though one is there\n"
    "  --conf STRING   ACCEL_ALLOC_CONF for the library, instead of the environment's\n"
    "  --lib FILE      the library to measure, instead of the one beside this command\n"
    "  --rounds N      how often every part is run, in turns (7; --quick 3)\n"
    "  --pass-us N     how long a pass lasts, about, in microseconds (10000; --quick 2000)\n"
    "  --pairs N       pairs of a pass, instead of as many as fit; few make no good figures\n"
    "  --json          JSON instead of tables\n"
    "  --spread        behind each figure the least and the greatest pass, in wide tables\n"
    "  --markdown      tables in Markdown, with them\n\n"
    "Parts:\n";

static const char help_tail[] =
    "\nEvery figure is the median of all passes of all rounds.\nColumns: accelcache is the "
    "exported cudaMalloc of a preloaded "
    "program,\n"
    "static cudart one with the runtime linked in, cuMemAlloc the driver's call.  On a GPU\n"
    "cudaMallocAsync, RMM and PyTorch are added, the last two called from Python, and NVIDIA's\n"
    "static runtime takes the place of the stand-in where it was there to link.\n\n"
    "JSON, peers being accelcache, bare, cub, rmm_pool, glibc and mimalloc:\n"
    "  machine         {cpu, cpus, load_before, load_after, noise_mean, noise_worst: CPU time "
    "of\n"
    "                  the same loop, to its least; waited: its wall time to its CPU time}\n"
    "  rows            {row: {peer: ns of a pair}}; row_instructions: the same\n"
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
    "  pinned          {bytes: {bare_ns, accelcache_ns}}: pinned host memory, pinned_cache:true\n"
    "  multistream     {way: {PEER_us, PEER_ratio: to buffers kept on the bare driver}}\n"
    "  instructions    {bytes: {peer: instructions per pair}}\n"
    "  observe         {row: {hit_ns, hit_added_ns: to the row \"off\", hit_instructions, and "
    "the "
    "same\n"
    "                  of miss: 200 sizes in turn}}\n"
    "  startup         {program: {bare_ms, accelcache_ms, added_ms, ..._cpu_ms: CPU time of the\n"
    "                  same}}; cuda_dump is with statistics written at the end\n"
    "  memory          {small_cuda: {PEER_kib: resident, added_kib}, blocks_BYTES:\n"
    "                  {accelcache_kib, percent: of the device memory in the blocks}}\n"
    "  skipped         {peer, part or part/peer: reason}\n"
    "  passes          least, greatest and number for each figure, in the same places\n"
    "  stopped         why nothing more was measured: the library or a program was replaced or\n"
    "                  removed meanwhile, so that figures of two builds would stand together\n\n"
    "Exit status: 0 done, 1 the library could not be measured, or not to the end, 2 wrong usage.\n";

static void print_rows(bool shapes) {
    for (int i = 0; i < BENCH_ROW_COUNT; i++)
        if ((bench_rows[i].counted == BENCH_SHAPE) == shapes)
            printf("  %-19s %s\n", bench_rows[i].id, bench_rows[i].what);
}

static int print_help(void) {
    fputs(help_head, stdout);
    for (int i = 0; i < bench_part_count; i++)
        printf("  %-15s %s\n", bench_parts[i].name, bench_parts[i].what);
    puts("\nRows of the part \"observe\":");
    for (int i = 0; i < BENCH_OBSERVE_COUNT; i++)
        printf("  %-19s %s\n", bench_observe[i].id, bench_observe[i].what);
    puts("\nRows, ns of a pair:");
    print_rows(false);
    puts("\nShapes, rows that are measured only if they are named:");
    print_rows(true);
    fputs(help_tail, stdout);
    return CMD_OK;
}

static bool is_name(const char *name, const char *text, size_t length) {
    return !strncmp(name, text, length) && !name[length];
}

/* Adds a part, or a row of the part "rows"; false: there is no part or row of that name. */
static bool add_part(bench_t *b, const char *name, size_t length) {
    for (int part = 0; part < bench_part_count; part++)
        if (is_name(bench_parts[part].name, name, length)) {
            b->only |= 1u << part;
            return true;
        }
    for (int row = 0; row < BENCH_ROW_COUNT; row++)
        if (is_name(bench_rows[row].id, name, length)) {
            b->only_rows |= UINT64_C(1) << row;
            return true;
        }
    return false;
}

/* Reads names separated by commas.  Returns 0, or the status to end with. */
static int add_parts(const char *names, void *bench) {
    bench_t *b = bench;
    if (!*names)
        return cmd_usage("--only: no part was given");
    while (*names) {
        size_t length = strcspn(names, ",");
        if (!add_part(b, names, length))
            return cmd_usage("--only: there is no part or row \"%.*s\"", (int)length, names);
        names += length + (names[length] == ',');
    }
    return CMD_OK;
}

/* Reads the peers to leave out.  The library cannot be left out, because it is measured. */
static int leave_out_peers(const char *names, void *bench) {
    bench_t *b = bench;
    while (*names) {
        size_t length = strcspn(names, ",");
        bench_peer_id_t peer = BENCH_accelcache + 1;
        while (peer < BENCH_PEER_COUNT && !is_name(bench_peers[peer].id, names, length))
            peer++;
        if (peer == BENCH_PEER_COUNT)
            return cmd_usage("--without: there is no peer \"%.*s\"", (int)length, names);
        b->without |= 1u << peer;
        names += length + (names[length] == ',');
    }
    return CMD_OK;
}

/* Returns false if the subcommand ends with *status. */
static bool read_options(bench_t *b, int argc, char **argv, int *status) {
    bool observe = false;
    uint64_t rounds = 0, pass_us = 0, pairs = 0;
    const cmd_option_t options[] = {
        {"quick", .flag = &b->quick},
        {"only", .take = add_parts, .arg = b},
        {"without", .take = leave_out_peers, .arg = b},
        {"sim", .flag = &b->force_simulated},
        {"conf", .text = &b->conf_given},
        {"lib", .text = &b->library_given},
        {"rounds", .number = &rounds, .low = 1, .high = 1000, .expected = "a number from 1 to 1000"},
        {"pass-us", .number = &pass_us, .low = 1, .high = 10000000, .expected = "a number from 1 to 10000000"},
        {"pairs", .number = &pairs, .low = 1, .high = 100000000, .expected = "a number from 1 to 100000000"},
        {"markdown", .flag = &b->markdown},
        {"spread", .flag = &b->spread},
        {"instructions", .flag = &b->instructions},
        {"observe", .flag = &observe},
        {"json", 'j', .flag = &b->json},
        {"help", 'h', .stop = print_help},
        {.name = NULL}};
    if (!cmd_options(argc, argv, options, NULL, status))
        return false;
    if (observe)
        add_part(b, "observe", strlen("observe"));
    b->instructions |= observe;
    b->spread |= b->markdown;
    b->rounds = rounds ? (long)rounds : b->quick ? 3 : 7;
    b->pass_us = pass_us ? (long)pass_us : b->quick ? 2000 : 10000;
    b->pairs = (long)pairs;
    /* --only PART PART... */
    for (; !*status && optind < argc; optind++)
        *status = b->only || b->only_rows
                      ? add_parts(argv[optind], b)
                      : cmd_usage("\"%s\": parts are named behind --only", argv[optind]);
    if (!*status && b->json && b->markdown)
        *status = cmd_usage("--json and --markdown exclude each other");
    return !*status;
}

/* Statistics stay on, as in any program.  A separate part measures the file at the end. */
static int set_conf(bench_t *b) {
    ac_config_t config;
    ac_config_error_t error;
    const char *given = b->conf_given ? b->conf_given : getenv("ACCEL_ALLOC_CONF");
    if (ac_config_parse(given, &config, &error, NULL))
        return cmd_usage("%s: %s", b->conf_given ? "--conf" : "ACCEL_ALLOC_CONF", error.text);
    b->conf = cmd_conf_set(given, "dump", "none");
    return CMD_OK;
}

/* Returns true if the part runs.  Named rows select their part, which is the first one. */
static bool is_asked_for(const bench_t *b, int part) {
    if (!(b->only || b->only_rows))
        return !bench_parts[part].apart;
    return b->only & 1u << part || (b->only_rows && !part);
}

void bench_progress(const bench_t *b, long round, const char *what) {
    double parts = (double)b->part_count * (double)b->rounds;
    double done = (double)round * b->part_count + b->part;
    cmd_bar(done / parts, "%s: part %d of %d, round %ld of %ld", what, b->part + 1, b->part_count,
            round + 1, b->rounds);
}

static void run_parts(bench_t *b) {
    for (int part = 0; part < bench_part_count; part++)
        b->part_count += is_asked_for(b, part);
    bench_machine_begin(b);
    for (long round = 0; round < b->rounds && !b->changed; round++) {
        bench_sample_noise(b);
        b->round = round;
        b->part = 0;
        for (int part = 0; part < bench_part_count && !b->changed; part++)
            if (is_asked_for(b, part)) {
                bench_progress(b, round, bench_parts[part].name);
                bench_parts[part].run(b, round);
                b->part++;
            }
    }
    cmd_bar_end();
    bench_machine_end(b);
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
    int status;
    if (!read_options(&b, argc, argv, &status))
        return status;
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
        b.files = json_object();
        cmd_bar(0, "looking for a device and other allocators");
        if (bench_probe(&b))
            status = CMD_FAILED;
        else
            run_parts(&b);
        if (!status)
            status = print_result(&b);
        if (!status && b.changed)
            cmd_say("%s", b.changed);
        if (!status && (b.failed || b.changed))
            status = CMD_FAILED;
    }
    free(error);
    json_decref(b.samples);
    json_decref(b.figures);
    json_decref(b.passes);
    json_decref(b.skipped);
    json_decref(b.machine);
    json_decref(b.files);
    free(b.changed);
    free(b.library);
    free(b.free_driver);
    free(b.simulator);
    free(b.runtime);
    free(b.conf);
    return status;
}
