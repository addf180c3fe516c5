/* gpu_facts: tests whether the real driver behaves as the design assumes.
 *
 *   gpu_facts [--judge] NUMBER...      1 to 12; each number in a process of its own is best
 *   gpu_facts --ptx N                  prints text N of the kernels, nothing after the last one
 *   gpu_facts --list                   prints "name<TAB>wanted<TAB>question<TAB>depends"
 *
 * The program prints one line per claim of claims.def (PROTOCOL.md).  The simulated device only
 * repeats its own assumptions, so their lines are skipped there.  With --judge these lines pass,
 * for the tests of this program.
 *
 * Exit status: 0 no claim failed, 1 a claim failed, 2 wrong usage or a necessary call failed, 77 no
 * driver or no device. */
#include "facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum { YES, NO, NOTED, FIGURE } wanted_t;

static const struct {
    int fact;
    const char *name;
    wanted_t wanted;
    const char *question, *depends;
} claims[] = {
#define CLAIM(fact, name, wanted, question, depends) {fact, #name, wanted, question, depends},
#include "claims.def"
#undef CLAIM
};

static bool judge, answered[CLAIMS];

enum { TEXT = 1400, NAME = 80 };

static const char *name_of(claim_t claim) {
    static char name[NAME];
    snprintf(name, sizeof name, "fact%02d.%s", claims[claim].fact, claims[claim].name);
    answered[claim] = true;
    return name;
}

/* Returns the text on what depends on a claim; expands "as above" with the previous row's text. */
static const char *depends_of(claim_t claim) {
    static char text[TEXT];
    const char *rest = claims[claim].depends;
    if (strncmp(rest, "as above", 8))
        return rest;
    claim_t first = claim;
    while (!strncmp(claims[first].depends, "as above", 8))
        first--;
    snprintf(text, sizeof text, "%s%s", claims[first].depends, rest + 8);
    return text;
}

void fact_answer(claim_t claim, bool answer, const char *evidence, ...) {
    char seen[TEXT];
    va_list arguments;
    va_start(arguments, evidence);
    vsnprintf(seen, sizeof seen, evidence, arguments);
    va_end(arguments);
    const char *name = name_of(claim);
    bool noted = claims[claim].wanted == NOTED, wanted = claims[claim].wanted == YES;
    if (!noted && answer != wanted)
        report_fail(name, "%s %s, assumed was %s.  What depends on it: %s.  Seen: %s",
                    claims[claim].question, answer ? "yes" : "no", wanted ? "yes" : "no",
                    depends_of(claim), seen);
    else if (gpu.simulated && !judge)
        report_skip(name, "needs a GPU; the simulated device says: %s (%s)",
                    answer ? "yes" : "no", seen);
    else if (noted)
        report_fact(name, answer, "%s  %s", claims[claim].question, seen);
    else
        report_answer(name, answer, wanted, "%s  %s", claims[claim].question, seen);
}

void fact_figure(claim_t claim, double value, const char *unit, const char *evidence, ...) {
    char seen[TEXT];
    va_list arguments;
    va_start(arguments, evidence);
    vsnprintf(seen, sizeof seen, evidence, arguments);
    va_end(arguments);
    const char *name = name_of(claim);
    if (gpu.simulated && !judge)
        report_skip(name, "needs a GPU");
    else
        report_value(name, value, unit, "%s  %s", claims[claim].question, seen);
}

void fact_skip(claim_t claim, const char *reason, ...) {
    char text[TEXT];
    va_list arguments;
    va_start(arguments, reason);
    vsnprintf(text, sizeof text, reason, arguments);
    va_end(arguments);
    report_skip(name_of(claim), "%s", text);
}

bool fact_needs(claim_t claim, bool there, const char *what) {
    if (!there)
        fact_skip(claim, "not here: %s", what);
    return there;
}

void fact_waits(claim_t claim, CUstream stream, gpu_kernel_t slow, CUcontext other,
                gpu_call_t *call, void *arg) {
    gpu_wait_t seen = gpu_does_wait(stream, slow, other, call, arg);
    if (seen.result)
        fact_skip(claim, "unknown: the call answered %s", gpu_error(seen.result));
    else if (seen.answer == GPU_UNCLEAR)
        fact_skip(claim, "unknown: the call took %.3f ms beside a kernel of %.3f ms",
                  seen.call_ms, seen.kernel_ms);
    else
        fact_answer(claim, seen.answer == GPU_WAITED,
                    "The call took %.3f ms beside a kernel of %.3f ms, which was %s afterwards.",
                    seen.call_ms, seen.kernel_ms,
                    seen.answer == GPU_WAITED ? "over" : "still running");
}

static void list(void) {
    static const char *const wanted[] = {"yes", "no", "noted", "figure"};
    for (int i = 0; i < CLAIMS; i++)
        printf("fact%02d.%s\t%s\t%s\t%s\n", claims[i].fact, claims[i].name,
               wanted[claims[i].wanted], claims[i].question, depends_of((claim_t)i));
}

static void finish(int fact) {
    for (int i = 0; i < CLAIMS; i++)
        if (claims[i].fact == fact && !answered[i])
            report_fail(name_of((claim_t)i), "was not answered");
}

int main(int argc, char **argv) {
    static void (*const facts[])(void) = {fact_1, fact_2, fact_3, fact_4,  fact_5,  fact_6,
                                          fact_7, fact_8, fact_9, fact_10, fact_11, fact_12};
    enum { FACTS = sizeof facts / sizeof *facts };
    int first = 1;
    if (argc == 2 && !strcmp(argv[1], "--list")) {
        list();
        return 0;
    }
    if (argc == 3 && !strcmp(argv[1], "--ptx"))
        return printf("%s", gpu_text((unsigned)atoi(argv[2]))) < 1;
    if (argc == 3 && !strcmp(argv[1], "--open"))
        return fact_open(argv[2]);
    if (argc > 1 && !strcmp(argv[1], "--judge"))
        judge = first++ == 1;
    for (int i = first; i < argc || argc == first; i++)
        if (argc == first || atoi(argv[i]) < 1 || atoi(argv[i]) > FACTS) {
            fprintf(stderr, "usage: gpu_facts [--judge] NUMBER...  (1 to %d)\n", FACTS);
            return 2;
        }
    if (!gpu_open()) {
        fprintf(stderr, "gpu_facts: no CUDA driver, or no device\n");
        return 77;
    }
    for (int i = first; i < argc; i++) {
        facts[atoi(argv[i]) - 1]();
        finish(atoi(argv[i]));
    }
    return report_end();
}
