/* Vector clocks over chains. */
#include "past.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool past_has(const past_t *past, point_t point) {
    return !point.chain || (point.chain < past->count && past->at[point.chain] >= point.pos);
}

bool past_covers(const past_t *past, const past_t *other) {
    for (uint32_t i = 1; i < other->count; i++)
        if (!past_has(past, (point_t){other->at[i] ? i : 0, other->at[i]}))
            return false;
    return true;
}

static void grow(past_t *past, uint32_t count) {
    if (past->count >= count)
        return;
    past->at = realloc(past->at, count * sizeof *past->at);
    if (!past->at) {
        fputs("programs: out of memory\n", stderr);
        exit(2);
    }
    memset(past->at + past->count, 0, (count - past->count) * sizeof *past->at);
    past->count = count;
}

void past_raise(past_t *past, point_t point) {
    grow(past, point.chain + 1);
    if (past->at[point.chain] < point.pos)
        past->at[point.chain] = point.pos;
}

void past_join(past_t *past, const past_t *other) {
    grow(past, other->count);
    for (uint32_t i = 0; i < other->count; i++)
        if (past->at[i] < other->at[i])
            past->at[i] = other->at[i];
}

void past_set(past_t *past, const past_t *other) {
    past_clear(past);
    past_join(past, other);
}

void past_clear(past_t *past) {
    if (past->count)
        memset(past->at, 0, past->count * sizeof *past->at);
}

void past_free(past_t *past) {
    free(past->at);
    *past = (past_t){0};
}
