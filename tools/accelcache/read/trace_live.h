/* The blocks that are live at one point of a trace, by address. */
#ifndef CMD_TRACE_LIVE_H
#define CMD_TRACE_LIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint64_t address, id, bytes;
    uint32_t context;
    int32_t device;
    bool managed;
} cmd_live_block_t;

/* Zero at first; open addressing, at most half full. */
typedef struct {
    cmd_live_block_t *slot;
    unsigned char *used;
    size_t slots, count;
} cmd_live_t;

cmd_live_block_t *cmd_live_find(const cmd_live_t *live, uint64_t address);
/* Nothing lies at its address. */
void cmd_live_add(cmd_live_t *live, const cmd_live_block_t *block);
void cmd_live_remove(cmd_live_t *live, cmd_live_block_t *block);
/* Take out every block of the context (malloc'd, by id, *count of them); NULL for none. */
cmd_live_block_t *cmd_live_take(cmd_live_t *live, uint32_t context, size_t *count);
void cmd_live_clear(cmd_live_t *live);

#endif
