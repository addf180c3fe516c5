/* Lines of PROTOCOL.md for checks written in C or C++: one JSON object each on standard output,
 * flushed, so that what a check said before it crashed is kept.  Any thread may report. */
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

/* The line `check`: what was seen, why it failed, why it was not tried. */
void report_pass(const char *check, const char *evidence, ...) REPORT_PRINTF(2);
void report_fail(const char *check, const char *reason, ...) REPORT_PRINTF(2);
void report_skip(const char *check, const char *reason, ...) REPORT_PRINTF(2);

/* A question with the answer yes or no, of which the library needs `wanted`: pass or fail. */
void report_answer(const char *check, bool answer, bool wanted, const char *evidence, ...)
    REPORT_PRINTF(4);
/* The same where nothing depends on the answer. */
void report_fact(const char *check, bool answer, const char *evidence, ...) REPORT_PRINTF(3);

/* A measured value. */
void report_value(const char *check, double value, const char *unit, const char *evidence, ...)
    REPORT_PRINTF(4);

/* A measured value with others' in the same unit beside it; `peers` ends with a row without a
 * name, NULL: none.  `most` > 0: pass up to it, fail beyond; else nothing is judged. */
typedef struct {
    const char *name;
    double value;
} report_peer_t;
void report_figure(const char *check, double value, const char *unit, double most,
                   const report_peer_t *peers, const char *evidence, ...) REPORT_PRINTF(6);

/* The exit status that PROTOCOL.md asks for: 1 when a line said fail, else 0. */
int report_end(void);

#ifdef __cplusplus
}
#endif
#endif
