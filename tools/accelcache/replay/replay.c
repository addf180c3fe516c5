/* `accelcache replay`: a trace through the allocator, and what it would take. */
#include "replay/replay.h"
#include "command.h"
#include "replay/replay_options.h"
#include "base/terminal.h"

#include "base/option.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "Usage: accelcache replay [OPTION...] TRACE\n"
    "Runs the operations of a trace through the library's own allocator, over a\n"
    "modelled device.  A table gives the cost of its driver calls: the replay needs\n"
    "no GPU and does not sleep.  TRACE is a text trace (accelcache-dev gen), a\n"
    "binary one (accelcache run --trace), the CSV of RMM's log, or PyTorch's memory\n"
    "snapshot; - is the standard input.\n"
    "\n"
    "  --conf STRING     ACCEL_ALLOC_CONF for the replay, instead of the\n"
    "                    environment's; a table compares several\n"
    "  --capacity SIZE   memory of the device: bytes with K, M, G or T behind them,\n"
    "                    or 1.05x for that multiple of the trace's peak; without it\n"
    "                    there is always enough\n"
    "  --min-capacity    also find the least capacity that completes, by bisection\n"
    "  --repeat N        replays in a row by one allocator (2); the first finds it\n"
    "                    empty\n"
    "  --pending K       the device uses a freed block for K more operations\n"
    "  --streams real    requests and frees name the trace's streams, and kernels\n"
    "                    run on them\n"
    "  --costs FILE      other costs of driver calls, as CSV: call,ns_fixed,\n"
    "                    ns_per_mib,ns_per_page,source, or a table of the simulated\n"
    "                    device, measured on a GPU\n"
    "  --device          the driver's first device instead of a modelled one: calls\n"
    "                    are made and timed, no kernel runs; --capacity is a limit\n"
    "                    then\n"
    "  --ordinal N       the operations of this device of the trace, instead of the\n"
    "                    busiest one\n"
    "  --json            JSON instead of a table; an array of objects for several\n"
    "                    --conf\n"
    "\n"
    "Without --pending and --streams a freed block is available at once.\n"
    "\n"
    "Columns of the table, and their names in JSON:\n"
    "  reserved, /live    peak_reserved, ratio; later: ratio_second\n"
    "  least, least/live  min_capacity, min_capacity_ratio\n"
    "  calls              driver_calls, all together\n"
    "  ms/1000, ms later  driver_ms_per_1000_ops: first, steady\n"
    "  waits, ns/op       waits, ns_per_op\n"
    "\n"
    "JSON:\n"
    "  ops, ns_per_op        operations of one replay; CPU time of each in the\n"
    "                        fastest replay\n"
    "  peak_live             the most bytes that the program held\n"
    "  peak_reserved, ratio  the most bytes taken from the device, and by peak_live\n"
    "  ratio_second          the ratio of the replays after the first\n"
    "  driver_calls          {call: times in the first replay}; driver_calls_steady:\n"
    "                        later\n"
    "  driver_ms_per_1000_ops  {first, steady}: modelled, without waits\n"
    "  waits, stream_waits   times that the host, or another stream, waited for\n"
    "                        work; first replay\n"
    "  min_capacity, min_capacity_ratio   with --min-capacity, else null\n"
    "  bound                 the least that any allocator could reserve: peak_live\n"
    "                        in whole pages\n"
    "  completed, failed_at  whether memory sufficed, and the operation at which it\n"
    "                        did not\n"
    "  second_failed_at      the operation at which memory did not suffice for a\n"
    "                        later replay\n"
    "  simulated, conf, trace\n"
    "\n"
    "Exit status: 0 done, 1 the trace could not be read or memory did not suffice,\n"
    "2 wrong usage.\n";

typedef struct {
    const char *path;
    cmd_ops_t *trace;
    cmd_costs_t costs;
    unsigned count; /* of configurations */
    const char **conf;
    cmd_replay_plan_t *plan;
    cmd_replay_job_t *job;
    uint64_t *least; /* 0: not asked for, or there is none */
    bool search, json;
    unsigned searched; /* configurations with a known least capacity */
} replays_t;

static double ratio(uint64_t bytes, const cmd_ops_t *trace) {
    return trace->peak_live ? (double)bytes / (double)trace->peak_live : 0;
}

static const char *conf_name(const char *conf) {
    return conf && *conf ? conf : "(default)";
}

/* ------------------------------------------------------------------ human */

static char *decimal(char text[CMD_FIGURE], double value, int digits) {
    snprintf(text, CMD_FIGURE, "%.*f", digits, value);
    return text;
}

static void print_head(const replays_t *r) {
    char ops[CMD_FIGURE], live[CMD_FIGURE], bound[CMD_FIGURE];
    const cmd_ops_t *trace = r->trace;
    char *head = cmd_format("%s: %s, %s operations, %u stream%s, peak live %s, bound %s%s",
                            r->path, trace->format, cmd_text_count(ops, (int64_t)trace->count),
                            trace->streams, trace->streams == 1 ? "" : "s",
                            cmd_text_bytes(live, (int64_t)trace->peak_live),
                            cmd_text_bytes(bound, (int64_t)cmd_replay_bound(trace)),
                            r->job[0].figures.simulated ? " (simulated)" : "");
    fputs(cmd_bold(), stdout);
    cmd_print_hanging(head, 0, 2);
    fputs(cmd_plain(), stdout);
    free(head);
    if (trace->devices > 1)
        printf("  the operations of device %d, one of %u\n", trace->device, trace->devices);
}

static uint64_t calls_of(const cmd_replay_figures_t *f, unsigned later) {
    uint64_t calls = 0;
    for (unsigned i = 0; i < CMD_CALLS; i++)
        calls += f->call[later][i];
    return calls;
}

static void print_table(const replays_t *r) {
    bool repeated = r->plan->repeat > 1;
    cmd_table_t *table = cmd_table_new("lrrrrrrrrrrl");
    cmd_table_row(table, "configuration", "reserved", "/live", repeated ? "later" : "",
                  r->search ? "least" : "", r->search ? "least/live" : "", "calls", "ms/1000",
                  repeated ? "ms later" : "", "waits", "ns/op", NULL);
    for (unsigned i = 0; i < r->count; i++) {
        char t[10][CMD_FIGURE];
        const cmd_replay_figures_t *f = &r->job[i].figures;
        char *note = NULL;
        if (f->end == CMD_REPLAY_OOM)
            note =
                cmd_format("out of memory at operation %llu", (unsigned long long)f->failed_at);
        else if (f->end == CMD_REPLAY_FAILED)
            note = cmd_format("failed: %s", f->why);
        else if (f->later_failed_at)
            note = cmd_format("completed; again in the same process: out of memory at operation %llu",
                              (unsigned long long)f->later_failed_at);
        cmd_table_row(table, conf_name(r->conf[i]), cmd_text_bytes(t[0], (int64_t)f->peak[0]),
                      decimal(t[1], ratio(f->peak[0], r->trace), 3),
                      repeated ? decimal(t[2], ratio(f->peak[1], r->trace), 3) : "",
                      !r->search     ? ""
                      : !r->least[i] ? "-"
                                     : cmd_text_bytes(t[3], (int64_t)r->least[i]),
                      !r->search     ? ""
                      : !r->least[i] ? "-"
                                     : decimal(t[4], ratio(r->least[i], r->trace), 3),
                      cmd_text_count(t[5], (int64_t)calls_of(f, 0)),
                      decimal(t[6], f->driver_ms[0], 2),
                      repeated ? decimal(t[7], f->driver_ms[1], 2) : "",
                      cmd_text_count(t[8], (int64_t)f->waits[0]), decimal(t[9], f->ns, 0),
                      note ? note : NULL);
        free(note);
    }
    cmd_table_print(table, 0);
}

/* ------------------------------------------------------------------ JSON */

static json_t *calls_json(const cmd_replay_figures_t *f, unsigned later) {
    json_t *json = json_object();
    for (unsigned i = 0; i < CMD_CALLS; i++)
        if (f->call[later][i])
            json_object_set_new(json, cmd_call_names[i],
                                json_integer((json_int_t)f->call[later][i]));
    return json;
}

static json_t *number_or_null(bool known, double value) {
    return known ? json_real(value) : json_null();
}

static json_t *integer_or_null(bool known, uint64_t value) {
    return known ? json_integer((json_int_t)value) : json_null();
}

static json_t *replay_json(const replays_t *r, unsigned i) {
    const cmd_replay_figures_t *f = &r->job[i].figures;
    bool again = r->plan->repeat > 1 && f->end == CMD_REPLAY_DONE && !f->later_failed_at;
    json_t *json = json_object();
    json_object_set_new(json, "trace", cmd_json_text(r->path));
    json_object_set_new(json, "format", json_string(r->trace->format));
    json_object_set_new(json, "conf", cmd_json_text(r->conf[i] ? r->conf[i] : ""));
    json_object_set_new(json, "simulated", json_boolean(f->simulated));
    json_object_set_new(json, "completed", json_boolean(f->end == CMD_REPLAY_DONE));
    json_object_set_new(json, "failed_at",
                        integer_or_null(f->end != CMD_REPLAY_DONE, f->failed_at));
    json_object_set_new(json, "second_failed_at",
                        integer_or_null(f->later_failed_at != 0, f->later_failed_at));
    json_object_set_new(json, "error",
                        f->end == CMD_REPLAY_DONE  ? json_null()
                        : f->end == CMD_REPLAY_OOM ? json_string("out of memory")
                                                   : cmd_json_text(f->why));
    json_object_set_new(json, "ops", json_integer((json_int_t)f->ops));
    json_object_set_new(json, "ns_per_op", json_real(f->ns));
    json_object_set_new(json, "peak_live", json_integer((json_int_t)r->trace->peak_live));
    json_object_set_new(json, "peak_reserved", json_integer((json_int_t)f->peak[0]));
    json_object_set_new(json, "ratio", json_real(ratio(f->peak[0], r->trace)));
    json_object_set_new(json, "ratio_second", number_or_null(again, ratio(f->peak[1], r->trace)));
    json_object_set_new(json, "driver_calls", calls_json(f, 0));
    json_object_set_new(json, "driver_calls_steady", calls_json(f, 1));
    json_object_set_new(json, "driver_ms_per_1000_ops",
                        json_pack("{s:f, s:o}", "first", f->driver_ms[0], "steady",
                                  number_or_null(again, f->driver_ms[1])));
    json_object_set_new(json, "waits", json_integer((json_int_t)f->waits[0]));
    json_object_set_new(json, "stream_waits", json_integer((json_int_t)f->stream_waits[0]));
    json_object_set_new(json, "min_capacity", integer_or_null(r->least[i] != 0, r->least[i]));
    json_object_set_new(json, "min_capacity_ratio",
                        number_or_null(r->least[i] != 0, ratio(r->least[i], r->trace)));
    json_object_set_new(json, "bound", json_integer((json_int_t)cmd_replay_bound(r->trace)));
    return json;
}

static int print_json(const replays_t *r) {
    json_t *whole = r->count == 1 ? replay_json(r, 0) : json_array();
    for (unsigned i = 0; r->count > 1 && i < r->count; i++)
        json_array_append_new(whole, replay_json(r, i));
    return cmd_print_json(whole, JSON_REAL_PRECISION(6));
}

/* ------------------------------------------------------------------ running */

static void show_jobs(size_t done, void *arg) {
    const replays_t *r = arg;
    double steps = r->count * (r->search ? 2.0 : 1);
    size_t under_way = done < r->count ? done + 1 : done;
    cmd_bar((double)done / steps, "replay %zu of %u", under_way, r->count);
}

static void show_search(size_t done, void *arg) {
    const replays_t *r = arg;
    (void)done;
    cmd_bar(0.5 + 0.5 * r->searched / r->count, "least capacity %u of %u", r->searched + 1,
            r->count);
}

static int run_all(replays_t *r) {
    r->job = cmd_alloc(r->count * sizeof *r->job);
    r->least = cmd_alloc(r->count * sizeof *r->least);
    for (unsigned i = 0; i < r->count; i++)
        r->job[i] = (cmd_replay_job_t){.trace = r->trace, .plan = &r->plan[i]};
    cmd_bar_begin();
    cmd_replay_jobs(r->job, r->count, true, show_jobs, r);
    for (r->searched = 0; r->search && r->searched < r->count; r->searched++)
        r->least[r->searched] = cmd_replay_least(r->trace, &r->plan[r->searched], show_search, r);
    cmd_bar_end();
    int status = CMD_OK;
    if (r->json)
        status = print_json(r);
    else {
        print_head(r);
        print_table(r);
    }
    for (unsigned i = 0; i < r->count; i++)
        if (r->job[i].figures.end != CMD_REPLAY_DONE)
            status = CMD_FAILED;
    return status;
}

typedef struct {
    cmd_replay_plan_t plan;
    const char *capacity, *costs;
    int ordinal;
    bool given; /* a --conf */
} options_t;

static int replay_all(replays_t *r, const options_t *o) {
    if (!cmd_replay_costs(&r->costs, o->costs))
        return CMD_FAILED;
    r->trace = cmd_replay_trace(r->path, o->ordinal);
    if (!r->trace)
        return CMD_FAILED;
    r->plan = cmd_alloc(r->count * sizeof *r->plan);
    int status = CMD_OK;
    for (unsigned i = 0; i < r->count && status == CMD_OK; i++) {
        cmd_replay_plan_t *plan = &r->plan[i];
        *plan = o->plan;
        plan->costs = &r->costs;
        if (!cmd_replay_conf(r->conf[i], o->given ? "--conf" : "ACCEL_ALLOC_CONF", &plan->config))
            status = CMD_FAILED;
        else if (o->capacity)
            status = cmd_replay_capacity(o->capacity, r->trace, &plan->capacity);
    }
    if (status == CMD_OK) /* the replay still tells how far it gets */
        cmd_replay_fits(r->path, r->trace, r->plan[0].capacity);
    if (status == CMD_OK)
        status = run_all(r);
    cmd_ops_free(r->trace);
    free(r->plan);
    free(r->job);
    free(r->least);
    return status;
}

static int take_conf(const char *value, void *replays) {
    replays_t *r = replays;
    r->conf[r->count++] = value;
    return CMD_OK;
}

static int read_and_replay(replays_t *r, int argc, char **argv) {
    options_t o = {.plan = {.repeat = 2}, .ordinal = -1};
    uint64_t repeat = 2;
    int status;
    const cmd_option_t options[] = {
        {"conf", .take = take_conf, .arg = r},
        {"capacity", .text = &o.capacity},
        {"min-capacity", .flag = &r->search},
        {"repeat", .number = &repeat, .low = 1, .high = 1000, .expected = "a whole number from 1 to 1000"},
        {"pending", .take = cmd_replay_pending, .arg = &o.plan},
        {"streams", .take = cmd_replay_streams, .arg = &o.plan},
        {"costs", .text = &o.costs},
        {"ordinal", .take = cmd_replay_ordinal, .arg = &o.ordinal},
        {"device", .flag = &o.plan.real},
        {"json", .flag = &r->json},
        {.name = NULL}};
    if (!cmd_options(argc, argv, options, help, &status))
        return status;
    o.plan.repeat = (unsigned)repeat;
    o.given = r->count > 0;
    if (o.plan.real && (o.plan.work != CMD_WORK_NONE || r->search || o.costs))
        return cmd_usage("--device goes without --pending, --streams, --min-capacity and "
                         "--costs: no work is submitted, and time is measured");
    if (argc - optind != 1)
        return cmd_usage(optind == argc ? "TRACE is missing" : "one TRACE at a time");
    if (r->count == 0)
        r->conf[r->count++] = getenv("ACCEL_ALLOC_CONF");
    r->path = argv[optind];
    return replay_all(r, &o);
}

int cmd_replay(int argc, char **argv) {
    replays_t r = {.conf = cmd_alloc(((size_t)argc + 1) * sizeof *r.conf)};
    int status = read_and_replay(&r, argc, argv);
    free(r.conf);
    return status;
}
