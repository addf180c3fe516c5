/* Folded stacks: frames with semicolons between them, then the bytes in use. */
#include "write/export.h"
#include "read/stacks.h"

bool cmd_export_folded(const cmd_history_t *history, cmd_moment_t moment, FILE *out, char **error) {
    cmd_stacks_t stacks;
    if (!cmd_stacks(history, moment, &stacks, error))
        return false;
    for (size_t i = 0; i < stacks.count; i++) {
        const cmd_stack_t *stack = &stacks.stack[i];
        if (stack->bytes <= 0)
            continue;
        for (const char *at = stack->frames; *at; at++)
            putc(*at == '\n' ? ';' : *at, out);
        fprintf(out, " %lld\n", (long long)stack->bytes);
    }
    cmd_stacks_free(&stacks);
    return true;
}
