/* `accelcache top`: a live view of the processes under the library. */
#include "show/top.h"
#include "command.h"
#include "base/option.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char help[] =
    "Usage: accelcache top [--interval SECONDS] [--sort COLUMN] [--json]\n"
    "Shows devices and the processes of this user (for root: of every user) under\n"
    "the library, again and again.  If stdout is no terminal, or with --json, it\n"
    "prints once, with rates of one interval.\n"
    "\n"
    "  RESERVED   memory that the library has from the driver\n"
    "  ALLOCATED  memory of it that the program holds; PEAK the most that it held\n"
    "  REQ/S      requests for memory a second\n"
    "  HIT        requests served without a driver call, of those in the interval\n"
    "             (of all requests if the interval has none)\n"
    "  FRAG       free memory in segments in use, of the reserved memory\n"
    "  OOM        requests that failed for lack of memory\n"
    "\n"
    "  --interval SECONDS  from one look to the next: 0.1 to 3600 (1)\n"
    "  --sort COLUMN       reserved, allocated, rate, hit, fragmentation or pid\n"
    "  --json              one look as JSON\n"
    "\n"
    "Keys: up and down choose a process; s sorts by the next column; space looks at\n"
    "once; q ends.  With control:true the process writes its dump (d), returns idle\n"
    "memory (t), or resets its peaks (r), as with accelcache ctl.\n"
    "\n"
    "Exit status: 0 done, 1 there is no terminal that can be drawn on, or the\n"
    "figures of a process cannot be read (the others are shown), 2 wrong usage,\n"
    "128 + number for a signal.\n";

static int take_sort(const char *name, void *by) {
    for (int i = 0; i < TOP_SORTS; i++)
        if (!strcmp(name, top_sort_names[i])) {
            *(top_sort_t *)by = (top_sort_t)i;
            return CMD_OK;
        }
    return cmd_usage("--sort %s: reserved, allocated, rate, hit, fragmentation or pid", name);
}

static void print_tables(const top_sample_t *sample) {
    char text[4][CMD_FIGURE];
    cmd_table_t *table = cmd_table_new("lrrrrl");
    cmd_table_row(table, "device", "memory", "reserved", "allocated", "frag", "name");
    for (unsigned i = 0; i < sample->devices; i++) {
        const top_device_t *d = &sample->device[i];
        double split = d->reserved ? 100 * (double)d->split / (double)d->reserved : 0;
        char ordinal[CMD_FIGURE];
        snprintf(ordinal, sizeof ordinal, "%lld", (long long)d->ordinal);
        snprintf(text[3], CMD_FIGURE, "%.0f %%", split);
        cmd_table_row(table, ordinal, cmd_text_bytes(text[0], d->total),
                      cmd_text_bytes(text[1], d->reserved), cmd_text_bytes(text[2], d->allocated),
                      text[3], d->name);
    }
    cmd_table_print(table, 0);
    putchar('\n');
    table = cmd_table_new("lrrrrrrrl");
    cmd_table_row(table, "pid", "reserved", "allocated", "peak", "req/s", "hit", "frag", "oom",
                  "program");
    for (unsigned i = 0; i < sample->count; i++) {
        const top_process_t *p = &sample->process[i];
        char rate[CMD_FIGURE] = "-", hit[CMD_FIGURE], split[CMD_FIGURE];
        if (p->per_s >= 0)
            snprintf(rate, sizeof rate, "%.0f", p->per_s);
        snprintf(hit, sizeof hit, "%.1f %%", p->hit);
        snprintf(split, sizeof split, "%.0f %%", p->fragmentation);
        cmd_table_row(table, p->id, cmd_text_bytes(text[0], p->reserved),
                      cmd_text_bytes(text[1], p->allocated), cmd_text_bytes(text[2], p->peak),
                      rate, hit, split, cmd_text_count(text[3], p->ooms), p->program);
    }
    cmd_table_print(table, 0);
}

static int print_once(double seconds, top_sort_t by, bool json) {
    top_sample_t before, sample;
    struct timespec pause = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    int status = CMD_OK;
    top_look(&before, NULL, true); /* the second one says it */
    nanosleep(&pause, NULL);
    top_look(&sample, &before, false);
    top_sort(&sample, by);
    if (json)
        status = cmd_print_json(top_json(&sample), JSON_REAL_PRECISION(6));
    else if (sample.count)
        print_tables(&sample);
    else
        puts("no process runs under accelcache");
    if (sample.unread)
        status = CMD_FAILED;
    top_clear(&before);
    top_clear(&sample);
    return status;
}

int cmd_top(int argc, char **argv) {
    double seconds = 1;
    top_sort_t by = TOP_RESERVED;
    bool json = false;
    int status;
    const cmd_option_t options[] = {
        {"interval", .real = &seconds, .low = 0.1, .high = 3600, .expected = "seconds from 0.1 to 3600"},
        {"sort", .take = take_sort, .arg = &by},
        {"json", 'j', .flag = &json},
        {.name = NULL}};
    if (!cmd_options(argc, argv, options, help, &status))
        return status;
    if (optind < argc)
        return cmd_usage("%s: takes no argument; accelcache stat PID shows one process",
                         argv[optind]);
    return json || !isatty(STDOUT_FILENO) ? print_once(seconds, by, json) : top_run(seconds, by);
}
