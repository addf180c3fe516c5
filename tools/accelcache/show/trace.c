/* `accelcache trace`: a recorded trace as text, or its figures. */
#include "command.h"
#include "read/trace_read.h"

#include "base/option.h"
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "Usage: accelcache trace [OPTION...] FILE\n"
    "Prints a recorded trace (ACCEL_ALLOC_CONF=trace:FILE, or accelcache run\n"
    "--trace FILE), also of a process that was killed or still runs.  One operation\n"
    "a line, in order:\n"
    "\n"
    "  a ID BYTES STREAM   an allocation (STREAM -: the call names none)\n"
    "  f ID                its free\n"
    "  s                   the program waited for all work of a context\n"
    "  # ...               a comment: waits for streams and events, failed requests,\n"
    "                      managed memory\n"
    "\n"
    "  -l, --long      after each operation time, thread, device and address, as a\n"
    "                  comment\n"
    "  -s, --summary   figures instead of operations\n"
    "  --json          these figures as JSON\n"
    "\n"
    "Exit status: 0 done, 1 the file cannot be read or is damaged, 2 wrong usage.\n";

typedef struct {
    uint64_t allocs, frees, failed, syncs, stream_syncs, event_syncs;
    uint64_t live, live_bytes, peak_live, most_live, largest;
    uint64_t threads, streams, contexts;
    int64_t last_ns;
} figures_t;

static uint64_t greater(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static void add(figures_t *figures, const cmd_trace_event_t *event) {
    switch (event->kind) {
    case CMD_TRACE_ALLOC:
        figures->allocs++;
        figures->live++;
        figures->live_bytes += event->bytes;
        figures->largest = greater(figures->largest, event->bytes);
        break;
    case CMD_TRACE_FREE:
        figures->frees++;
        figures->live--;
        figures->live_bytes -= event->bytes;
        break;
    case CMD_TRACE_FAILED:
        figures->failed++;
        break;
    case CMD_TRACE_SYNC:
        figures->syncs++;
        break;
    case CMD_TRACE_SYNC_STREAM:
        figures->stream_syncs++;
        break;
    case CMD_TRACE_SYNC_EVENT:
        figures->event_syncs++;
        break;
    }
    figures->most_live = greater(figures->most_live, figures->live);
    figures->peak_live = greater(figures->peak_live, figures->live_bytes);
    figures->threads = greater(figures->threads, event->thread);
    figures->streams = greater(figures->streams, event->stream);
    figures->contexts = greater(figures->contexts, event->context);
    if (event->time_ns > figures->last_ns)
        figures->last_ns = event->time_ns;
}

/* Managed memory is the driver's: a comment, so that a replay of the text is one of the trace. */
static void print_event(const cmd_trace_event_t *event, bool details) {
    const char *left_out = event->managed ? "# " : "";
    switch (event->kind) {
    case CMD_TRACE_ALLOC:
        printf("%sa %" PRIu64 " %" PRIu64, left_out, event->id, event->bytes);
        if (event->stream)
            printf(" %" PRIu32, event->stream);
        else
            fputs(" -", stdout);
        break;
    case CMD_TRACE_FREE:
        printf("%sf %" PRIu64, left_out, event->id);
        break;
    case CMD_TRACE_FAILED:
        printf("# failed with error %d: %" PRIu64 " bytes, stream %" PRIu32, event->error,
               event->bytes, event->stream);
        break;
    case CMD_TRACE_SYNC:
        putchar('s');
        break;
    case CMD_TRACE_SYNC_STREAM:
        printf("# waited for stream %" PRIu32, event->stream);
        break;
    case CMD_TRACE_SYNC_EVENT:
        printf("# waited for event 0x%" PRIx64, event->address);
        break;
    }
    if (details) {
        printf(" # %.3f us, thread %" PRIu64, (double)event->time_ns / 1e3, event->thread);
        if (event->device >= 0)
            printf(", device %d, context %" PRIu32, event->device, event->context);
        if (event->kind == CMD_TRACE_FREE && event->stream)
            printf(", stream %" PRIu32, event->stream);
        if (event->kind == CMD_TRACE_ALLOC || event->kind == CMD_TRACE_FREE)
            printf(", 0x%" PRIx64 "%s%s", event->address, event->managed ? ", managed" : "",
                   event->implied ? ", no free of it was seen" : "");
    }
    putchar('\n');
}

static const char *state_word(const ac_trace_header_t *header) {
    switch (header->state) {
    case AC_TRACE_COMPLETE:
        return "complete";
    case AC_TRACE_STOPPED:
        return "stopped";
    default:
        return "open"; /* it still runs, or was killed */
    }
}

static const char *state_text(const ac_trace_header_t *header) {
    switch (header->state) {
    case AC_TRACE_COMPLETE:
        return "the process ended normally";
    case AC_TRACE_STOPPED:
        return "recording ended early, the rest is missing";
    default:
        return "the process still runs, or was killed";
    }
}

static void print_head(const ac_trace_header_t *header) {
    char *command = cmd_trace_command(header);
    char *host = cmd_format("%.*s", (int)sizeof header->host, header->host);
    fputs("# ", stdout);
    cmd_print_safe(command);
    printf("\n# process %d on ", (int)header->pid);
    cmd_print_safe(host);
    printf("; %s\n", state_text(header));
    free(command);
    free(host);
}

static void row(cmd_table_t *table, const char *name, uint64_t n) {
    char text[CMD_FIGURE];
    cmd_table_row(table, name, cmd_text_count(text, (int64_t)n), NULL);
}

static void row_bytes(cmd_table_t *table, const char *name, uint64_t n) {
    char text[CMD_FIGURE];
    cmd_table_row(table, name, cmd_text_bytes(text, (int64_t)n), NULL);
}

static void print_summary(const ac_trace_header_t *header, const figures_t *figures,
                          const cmd_trace_counts_t *counts) {
    char text[CMD_FIGURE], *command = cmd_trace_command(header);
    cmd_print_hanging(command, 0, 2);
    free(command);
    printf("process %d; %s\n", (int)header->pid, state_text(header));
    cmd_table_t *table = cmd_table_new("lr");
    cmd_table_row(table, "time", cmd_text_ns(text, figures->last_ns), NULL);
    row(table, "allocations", figures->allocs);
    row(table, "frees", figures->frees);
    if (counts->implied_frees)
        row(table, "  of them by the end of a context, or unseen", counts->implied_frees);
    row(table, "failed requests", figures->failed);
    row(table, "waits for a context", figures->syncs);
    row(table, "waits for a stream", figures->stream_syncs);
    row(table, "waits for an event", figures->event_syncs);
    row_bytes(table, "largest block", figures->largest);
    row_bytes(table, "most bytes in use", figures->peak_live);
    row(table, "most blocks in use", figures->most_live);
    row(table, "blocks in use at the end", figures->live);
    row_bytes(table, "bytes in use at the end", figures->live_bytes);
    row(table, "threads", figures->threads);
    row(table, "streams named", figures->streams);
    row(table, "contexts", figures->contexts);
    if (counts->unknown_frees)
        row(table, "frees of other memory, left out", counts->unknown_frees);
    if (counts->refused_frees)
        row(table, "frees that were refused, left out", counts->refused_frees);
    cmd_table_print(table, 2);
}

static int print_json(const ac_trace_header_t *header, const figures_t *figures,
                      const cmd_trace_counts_t *counts) {
    char *command = cmd_trace_command(header);
    json_t *root = json_object();
    json_object_set_new(root, "command", cmd_json_text(command));
    free(command);
    json_object_set_new(root, "pid", json_integer(header->pid));
    json_object_set_new(root, "state", json_string(state_word(header)));
    json_object_set_new(root, "stop_error", json_integer(header->stop_error));
#define PUT(key, value) json_object_set_new(root, key, json_integer((json_int_t)(value)))
    PUT("start_time_ns", header->start_time_ns);
    PUT("time_ns", figures->last_ns);
    PUT("allocs", figures->allocs);
    PUT("frees", figures->frees);
    PUT("implied_frees", counts->implied_frees);
    PUT("unknown_frees", counts->unknown_frees);
    PUT("refused_frees", counts->refused_frees);
    PUT("failed", figures->failed);
    PUT("syncs", figures->syncs);
    PUT("stream_syncs", figures->stream_syncs);
    PUT("event_syncs", figures->event_syncs);
    PUT("largest", figures->largest);
    PUT("peak_live", figures->peak_live);
    PUT("peak_blocks", figures->most_live);
    PUT("live_bytes", figures->live_bytes);
    PUT("live_blocks", figures->live);
    PUT("threads", figures->threads);
    PUT("streams", figures->streams);
    PUT("contexts", figures->contexts);
#undef PUT
    return cmd_print_json(root, 0);
}

int cmd_trace(int argc, char **argv) {
    bool details = false, summary = false, json = false;
    int status;
    const cmd_option_t options[] = {{"long", 'l', .flag = &details},
                                    {"summary", 's', .flag = &summary},
                                    {"json", .flag = &json},
                                    {.name = NULL}};
    if (!cmd_options(argc, argv, options, help, &status))
        return status;
    if (argc - optind != 1)
        return cmd_usage(optind == argc ? "FILE is missing" : "one FILE at a time");
    if (details && (summary || json))
        return cmd_usage("--long does not go with --summary and --json");
    char *error;
    cmd_trace_t *trace = cmd_trace_open(argv[optind], &error);
    if (!trace) {
        cmd_say("%s", error);
        free(error);
        return CMD_FAILED;
    }
    const ac_trace_header_t *header = cmd_trace_header(trace);
    figures_t figures = {.allocs = 0};
    cmd_trace_event_t event;
    bool operations = !summary && !json;
    if (operations)
        print_head(header);
    while (cmd_trace_next(trace, &event)) {
        add(&figures, &event);
        if (operations)
            print_event(&event, details);
    }
    cmd_trace_counts_t counts = cmd_trace_counts(trace);
    if (json)
        status = print_json(header, &figures, &counts);
    else if (summary)
        print_summary(header, &figures, &counts);
    if (counts.damaged_lanes) {
        cmd_say("%s: damaged: some events could not be read", argv[optind]);
        status = CMD_FAILED;
    }
    cmd_trace_close(trace);
    return status;
}
