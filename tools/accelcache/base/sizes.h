/* Sizes on the command line. */
#ifndef CMD_SIZES_H
#define CMD_SIZES_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes with K, M, G or T behind them (powers of 1024; B or iB may follow), or a multiple of
 * `unit` with an x.  Decimal fractions are understood.  False for anything else and for results
 * below 1 or above 2^47. */
bool cmd_size_parse(const char *text, uint64_t unit, uint64_t *bytes);

#endif
