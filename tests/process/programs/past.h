/* The past of an item: its latest predecessor in each chain of work.
 *
 * A chain is a sequence of work in which each item follows the previous one, except
 * programmatic launches. Chain 0 is never used. */
#ifndef PAST_H
#define PAST_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    uint32_t *at, count;
} past_t;

typedef struct {
    uint32_t chain, pos; /* chain 0: nothing */
} point_t;

bool past_has(const past_t *past, point_t point);
bool past_covers(const past_t *past, const past_t *other);
void past_raise(past_t *past, point_t point);
void past_join(past_t *past, const past_t *other);
void past_set(past_t *past, const past_t *other);
void past_clear(past_t *past);
void past_free(past_t *past);

#endif
