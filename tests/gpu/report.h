/* Prints lines of PROTOCOL.md for checks written in C or C++.
 *
 * Each line is one JSON object on standard output and is flushed at once, so that a crash loses no
 * line.  Any thread may report. */
#ifndef GPU_REPORT_H
#define GPU_REPORT_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __GNUC__
#define REPORT_PRINTF(at) __attribute__((format(printf, at, at + 1)))
#else
#define REPORT_PRINTF(at)
#endif

/* Prints the line `check` with the evidence of a pass, or the reason of a failure or a skip. */
void report_pass(const char *check, const char *evidence, ...) REPORT_PRINTF(2);
void report_fail(const char *check, const char *reason, ...) REPORT_PRINTF(2);
void report_skip(const char *check, const char *reason, ...) REPORT_PRINTF(2);

/* Prints the answer to a yes-or-no question: pass if it is `wanted`, which the library needs, else
 * fail. */
void report_answer(const char *check, bool answer, bool wanted, const char *evidence, ...)
    REPORT_PRINTF(4);
/* Prints the answer to a yes-or-no question on which nothing depends: always a fact. */
void report_fact(const char *check, bool answer, const char *evidence, ...) REPORT_PRINTF(3);

/* Prints a measured value as a fact. */
void report_value(const char *check, double value, const char *unit, const char *evidence, ...)
    REPORT_PRINTF(4);

/* A value of another allocator, in the unit of the line. */
typedef struct {
    const char *name;
    double value;
} report_peer_t;
/* Prints a measured value and values to compare it with.  `peers` is NULL or ends with a row
 * without a name.  If `most` > 0, values up to it pass and greater ones fail; else the line is a
 * fact. */
void report_figure(const char *check, double value, const char *unit, double most,
                   const report_peer_t *peers, const char *evidence, ...) REPORT_PRINTF(6);

/* Returns the exit status of PROTOCOL.md: 1 if a line failed, else 0. */
int report_end(void);

#ifdef __cplusplus
}
#endif
#endif
