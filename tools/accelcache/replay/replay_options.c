/* See replay_options.h. */
#include "replay/replay_options.h"
#include "command.h"
#include "base/sizes.h"
#include "base/terminal.h"

#include <stdlib.h>
#include <string.h>

static const char exclude[] = "--pending and --streams real exclude each other";

int cmd_replay_pending(const char *value, void *into) {
    cmd_replay_plan_t *plan = into;
    char *end;
    if (plan->work == CMD_WORK_STREAMS)
        return cmd_usage(exclude);
    plan->delay = strtoull(value, &end, 10);
    if (*end || *value < '0' || *value > '9' || plan->delay > 1000000000)
        return cmd_usage("--pending %s: a number of operations", value);
    plan->work = CMD_WORK_DELAY;
    return CMD_OK;
}

int cmd_replay_streams(const char *value, void *into) {
    cmd_replay_plan_t *plan = into;
    if (strcmp(value, "real") != 0)
        return cmd_usage("--streams %s: only \"real\" is known", value);
    if (plan->work == CMD_WORK_DELAY)
        return cmd_usage(exclude);
    plan->work = CMD_WORK_STREAMS;
    return CMD_OK;
}

int cmd_replay_ordinal(const char *value, void *ordinal) {
    char *end;
    unsigned long number = strtoul(value, &end, 10);
    if (*end || *value < '0' || *value > '9' || number >= CMD_OPS_DEVICES)
        return cmd_usage("--ordinal %s: a device from 0 to %d", value, CMD_OPS_DEVICES - 1);
    *(int *)ordinal = (int)number;
    return CMD_OK;
}

int cmd_replay_capacity(const char *value, const cmd_ops_t *trace, uint64_t *bytes) {
    if (cmd_size_parse(value, trace->peak_live, bytes))
        return CMD_OK;
    return cmd_usage("--capacity %s: a size like 40G, or 1.05x the trace's peak", value);
}

bool cmd_replay_fits(const char *path, const cmd_ops_t *trace, uint64_t capacity) {
    char live[CMD_FIGURE], room[CMD_FIGURE];
    if (!capacity || capacity >= trace->peak_live)
        return true;
    cmd_say("impossible: %s itself holds %s at a time, more than the capacity of %s", path,
            cmd_text_bytes(live, (int64_t)trace->peak_live),
            cmd_text_bytes(room, (int64_t)capacity));
    return false;
}

bool cmd_replay_costs(cmd_costs_t *costs, const char *path) {
    char *error = NULL;
    cmd_costs_default(costs);
    if (!path || cmd_costs_read(costs, path, &error))
        return true;
    cmd_say("--costs %s", error);
    free(error);
    return false;
}

cmd_ops_t *cmd_replay_trace(const char *path, int ordinal) {
    char *error = NULL;
    cmd_ops_t *trace = cmd_ops_read(path, ordinal, &error);
    cmd_bar_end();
    if (!trace)
        cmd_say("%s", error);
    else if (trace->note)
        cmd_say("%s: %s", path, trace->note);
    free(error);
    return trace;
}

bool cmd_replay_conf(const char *conf, const char *source, ac_config_t *config) {
    ac_config_error_t error;
    ac_config_warnings_t warnings = {0};
    if (ac_config_parse(conf, config, &error, &warnings)) {
        cmd_say("%s: %s", source, error.text);
        cmd_say_position(conf, error.position);
        return false;
    }
    for (unsigned i = 0; i < warnings.count; i++)
        cmd_say("%s: %s", source, warnings.text[i]);
    if (!config->enabled) {
        cmd_say("%s: with enabled:false there is no allocator to replay the trace; leave it out",
                source);
        return false;
    }
    return true;
}
