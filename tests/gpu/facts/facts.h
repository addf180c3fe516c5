/* Common functions of the facts: they judge and report answers.
 *
 * facts.c         arguments, judging
 * fact_lookup.c   1 addresses, 2 the version table
 * fact_runtime.c  3 the real runtime, by programs under the library
 * fact_wait.c     4 cuMemFree, 8 unmapping, 12 cuMemGetInfo
 * fact_order.c    5 cuCtxRecordEvent, 10 across contexts, 11 programmatic launches
 * fact_memory.c   6 identity, 7 mappings
 * fact_capture.c  9 captures
 */
#ifndef FACTS_H
#define FACTS_H

#include <stdarg.h>

#include "gpu.h"
#include "report.h"

typedef enum {
#define CLAIM(fact, name, wanted, question, depends) CLAIM_##fact##_##name,
#include "claims.def"
#undef CLAIM
    CLAIMS
} claim_t;

/* Reports the answer to a claim, once per claim.  A claim without an answer fails at the end. */
void fact_answer(claim_t claim, bool answer, const char *evidence, ...) REPORT_PRINTF(3);
void fact_figure(claim_t claim, double value, const char *unit, const char *evidence, ...)
    REPORT_PRINTF(4);
/* Skips a claim that cannot be tested here or has no clear answer. */
void fact_skip(claim_t claim, const char *reason, ...) REPORT_PRINTF(2);
/* Skips the claim if `there` is false.  Returns `there`. */
bool fact_needs(claim_t claim, bool there, const char *what);

/* Answers the claim with whether `call` waits for the stream's kernel. */
void fact_waits(claim_t claim, CUstream stream, gpu_kernel_t slow, CUcontext other,
                gpu_call_t *call, void *arg);

void fact_1(void);
void fact_2(void);
void fact_3(void);
void fact_4(void);
void fact_5(void);
void fact_6(void);
void fact_7(void);
void fact_8(void);
void fact_9(void);
void fact_10(void);
void fact_11(void);
void fact_12(void);

/* gpu_facts --open HANDLE: opens an IPC handle (hexadecimal) in this process and prints the
 * result. */
int fact_open(const char *handle);

#endif
