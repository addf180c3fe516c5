/* `accelcache stat` of what is no dump, and `stat --sites`: memory by call site. */
#include "command.h"
#include "read/sites.h"
#include "show/stat_sites.h"
#include "base/terminal.h"

#include <limits.h>
#include <stdlib.h>

typedef struct {
    int64_t requests, failed, bytes; /* bytes: of all requests */
} requests_t;

static requests_t requests_of(const cmd_history_t *history) {
    requests_t of = {0};
    for (size_t i = 0; i < history->events; i++) {
        const cmd_event_t *event = &history->event[i];
        of.failed += event->kind == CMD_EVENT_FAILED;
        of.requests += event->kind == CMD_EVENT_ALLOC;
        if (event->kind == CMD_EVENT_ALLOC)
            of.bytes = cmd_sum(of.bytes, (int64_t)event->bytes, 1);
    }
    return of;
}

static void print_head(const cmd_history_t *history, const char *source) {
    requests_t of = requests_of(history);
    char count[CMD_FIGURE], failed[CMD_FIGURE], bytes[CMD_FIGURE];
    printf("%s%s", cmd_bold(), history->format);
    if (history->pid)
        printf(" of process %d", history->pid);
    printf("%s  ", cmd_plain());
    cmd_print_safe(history->command && *history->command ? history->command : source);
    putchar('\n');
    if (history->events)
        printf("%s request%s for %s, %s failed\n", cmd_text_count(count, of.requests),
               of.requests == 1 ? "" : "s", cmd_text_bytes(bytes, of.bytes),
               cmd_text_count(failed, of.failed));
    if (history->note)
        cmd_print_paragraph(history->note, 0);
}

static int print_json(const cmd_history_t *history, const char *source) {
    requests_t of = requests_of(history);
    json_t *whole =
        json_pack("{s:s, s:i, s:o, s:s, s:I, s:I}", "schema", "accelcache-sites", "version", 1,
                  "source", cmd_json_text(source), "format", history->format, "requests",
                  (json_int_t)of.requests, "failed", (json_int_t)of.failed);
    json_t *sites = cmd_sites_json(history);
    json_object_update(whole, sites);
    json_decref(sites);
    return cmd_print_json(whole, JSON_PRESERVE_ORDER);
}

int cmd_stat_sites(const cmd_history_t *history, const char *source, bool json, bool whole) {
    enum { MOST = 10 };
    cmd_bar_end();
    if (json)
        return print_json(history, source);
    if (!whole)
        cmd_page_begin();
    print_head(history, source);
    cmd_sites_print(history, whole ? UINT_MAX : MOST);
    cmd_page_end("accelcache stat --all shows everything");
    return CMD_OK;
}
