/* `accelcache-dev bench`: the rows, the library and its peers; see bench.h and bench_rows.def. */
#include "bench.h"
#include "command.h"
#include "base/conf.h"

#include <stdlib.h>
#include <string.h>

const bench_row_t bench_rows[BENCH_ROW_COUNT] = {
#define PEERS BENCH_ROWS
#define ASYNC (BENCH_ROWS | BENCH_ASYNC)
#define ALONE 0
#define CALLS BENCH_COUNTED
#define NOT   BENCH_TIMED
#define SHAPE BENCH_SHAPE
#define BENCH_ROW(id, ours, conf, peers, counted, arguments, what)                               \
    {#id, ours, conf, peers, counted, arguments, what},
#include "bench_rows.def"
#undef BENCH_ROW
#undef PEERS
#undef ASYNC
#undef ALONE
#undef CALLS
#undef NOT
#undef SHAPE
};

_Static_assert(BENCH_ROW_COUNT <= 64, "a bit for each row in only_rows");

static bool takes_part(const bench_t *b, const bench_row_t *row, bench_peer_id_t peer) {
    return peer == BENCH_accelcache || (b->usable[peer] && bench_peers[peer].parts & row->peers);
}

/* Measures passes in a separate program, as samples. */
static void time_row(bench_t *b, const bench_row_t *row, bench_peer_id_t peer,
                     bench_child_t *child) {
    char *error = NULL, *part = cmd_format("rows/%s", row->id);
    size_t name = strcspn(row->arguments, " "), i;
    char *arguments =
        cmd_format("%.*s passes=%d us=%ld pairs=%ld cpu=%d%s", (int)name, row->arguments,
                   b->quick ? 5 : 7, b->pass_us, b->pairs, b->simulated, row->arguments + name);
    json_t *all = bench_child_run(b, child, arguments, &error), *ns;
    if (!all)
        bench_leave_out(b, peer, part, error);
    json_array_foreach(json_object_get(json_array_get(all, 0), "ns"), i, ns) {
        bench_sample(b, json_number_value(ns), "rows/%s/%s", row->id, bench_peers[peer].id);
    }
    json_decref(all);
    free(arguments);
    free(part);
    free(error);
}

static void count_row(bench_t *b, const bench_row_t *row, bench_peer_id_t peer,
                      const bench_child_t *child) {
    char *error = NULL;
    double each;
    if (bench_count(b, child, row->arguments, &each, 1, &error) == 1) {
        bench_sample(b, each, "row_instructions/%s/%s", row->id, bench_peers[peer].id);
    } else {
        char *part = cmd_format("row_instructions/%s", row->id);
        bench_leave_out(b, peer, part, error);
        free(part);
    }
    free(error);
}

/* Runs a row.  `counts`: also counts instructions, which do not vary, so one round is enough. */
static void run_row(bench_t *b, const bench_row_t *row, bool counts) {
    char *conf = *row->conf ? cmd_conf_merge(b->conf, row->conf) : NULL;
    for (bench_peer_id_t peer = 0; peer < BENCH_PEER_COUNT; peer++) {
        bool ours = peer == BENCH_accelcache;
        bench_child_t child = {.program = ours ? row->ours : bench_peers[peer].program,
                               .preload = ours,
                               .conf = ours ? conf : NULL};
        if (!takes_part(b, row, peer))
            continue;
        char *part = cmd_format("rows/%s", row->id);
        if (!bench_is_left_out(b, peer, part)) {
            time_row(b, row, peer, &child);
            if (counts)
                count_row(b, row, peer, &child);
        }
        free(part);
    }
    free(conf);
}

void bench_run_rows(bench_t *b, long round) {
    bool counts = b->instructions && round == 0 && bench_can_count(b, "row_instructions");
    for (int i = 0; i < BENCH_ROW_COUNT; i++) {
        const bench_row_t *row = &bench_rows[i];
        if (b->only_rows ? !(b->only_rows >> i & 1) : row->counted == BENCH_SHAPE)
            continue;
        bench_progress(b, round, row->id);
        run_row(b, row, counts && row->counted != BENCH_TIMED);
    }
}
