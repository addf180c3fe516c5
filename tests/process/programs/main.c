/* Random programs over the driver API, under the library and the race detector.
 *
 *   programs test [--seed N] [--programs N] [--operations N] [--slow] [--least N]
 *       Runs programs of --operations operations with seeds N, N + 1, ... Some run twice, and
 *       both runs must have one result, unless contexts end, or the machine is so busy that waits
 *       run out of time. Some run without the library, and must report nothing. A program that
 *       fails is shrunk and written to a file. --least: fails with fewer operations in total.
 *   programs catch [--seed N] [--programs N] [--operations N] [--longest N]
 *       For a library with a fault: passes if a program fails and can be shrunk to at most
 *       --longest operations.
 *   programs generate SEED [--operations N]     prints the program
 *   programs run FILE [--plain]                 runs it once
 *   programs shrink FILE [--plain]              shrinks it; the result is FILE.short
 *   programs execute FILE                       runs it in this process; used by the others
 *
 * --library PATH: instead of libaccelcache.so. Exit status 0 passed, 1 failed, 2 misused. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "execute.h"
#include "generate.h"
#include "model.h"
#include "runner.h"
#include "shrink.h"

typedef struct {
    const char *command, *name, *library;
    unsigned long seed, programs, operations, least, longest;
    bool slow, plain;
} options_t;

typedef struct {
    const char *library;
    unsigned long runs;
    char kind[80];
} again_t;

static const char *const folder = ".";

enum { TWICE_EVERY = 16, PLAIN_EVERY = 8, SHRINK_MOST = 3000 };

/* Copies the kind of failure: the line that reports it, without figures and names. */
static void kind_of(const outcome_t *outcome, char *out, size_t room) {
    const char *line = strstr(outcome->said, "failed: ");
    if (!line)
        line = strstr(outcome->said, "ended by");
    size_t used = 0;
    unsigned depth = 0;
    for (; line && *line && *line != '\n' && used + 1 < room; line++) {
        depth += (*line == '(') - (*line == ')');
        if (!depth && (*line < '0' || *line > '9'))
            out[used++] = *line;
    }
    out[used] = 0;
}

static bool fails_so(const program_t *program, void *argument) {
    again_t *again = argument;
    outcome_t outcome;
    char kind[sizeof again->kind];
    if (again->runs++ >= SHRINK_MOST)
        return false;
    runner_run(program, again->library, folder, &outcome);
    kind_of(&outcome, kind, sizeof kind);
    return !outcome.passed && !strcmp(kind, again->kind);
}

/* Writes the shortest form to a file and prints it. Returns the number of its operations. */
static size_t shrink_and_tell(program_t *program, const char *library, const outcome_t *first,
                              const char *path) {
    again_t again = {.library = library};
    outcome_t outcome;
    char note[5000];
    size_t before = program->count;
    kind_of(first, again.kind, sizeof again.kind);
    model_filter(program);
    shrink(program, fails_so, &again);
    runner_run(program, library, folder, &outcome);
    snprintf(note, sizeof note,
             "Shrunk from %zu operations of seed %lu in %lu runs%s.\n"
             "programs run FILE%s shows:\n%s",
             before, program->seed, again.runs, library ? "" : ", without the library",
             library ? "" : " --plain", outcome.said);
    if (!program_write(program, path, note))
        exit(2);
    printf("%s:\n", path);
    FILE *in = fopen(path, "r");
    for (int c; in && (c = fgetc(in)) != EOF;)
        putchar(c);
    if (in)
        fclose(in);
    fflush(stdout);
    return program->count;
}

static int failed(program_t *program, const char *library, const outcome_t *outcome) {
    char path[400];
    snprintf(path, sizeof path, "%s/failed-%lu%s.program", folder, program->seed,
             library ? "" : "-plain");
    program_write(program, path, NULL);
    printf("seed %lu fails%s (%s):\n%s", program->seed, library ? "" : " without the library",
           path, outcome->said);
    snprintf(path, sizeof path, "%s/failed-%lu%s.short", folder, program->seed,
             library ? "" : "-plain");
    shrink_and_tell(program, library, outcome, path);
    return 1;
}

/* Returns true if a context ends in the program. The library then waits by the wall clock. Each
 * poll moves the device's clock, so the load of the machine changes the result. */
static bool waits_by_the_wall(const program_t *program) {
    for (size_t i = 0; i < program->count; i++)
        if (program->ops[i].code == OP_DROPCTX || program->ops[i].code == OP_RESET)
            return true;
    return false;
}

/* Returns false after it has printed the reason. */
static bool repeats_itself(const options_t *o, const program_t *program,
                           const outcome_t *outcome) {
    outcome_t other;
    runner_run(program, o->library, folder, &other);
    if (other.passed && (other.hash == outcome->hash || waits_by_the_wall(program)))
        return true;
    if (other.passed && (outcome->late || other.late)) {
        printf("seed %lu is not compared: %lu and %lu operations lasted as long as waits with a "
               "limit may, so that real time decided\n",
               program->seed, outcome->late, other.late);
        return true;
    }
    printf("seed %lu is not repeated: hash %016llx, then %016llx\n%s", program->seed,
           outcome->hash, other.hash, other.said);
    return false;
}

/* Tests one seed. Returns 0, or 1 after it has printed the reason. */
static int test_one(const options_t *o, unsigned long seed, outcome_t *outcome) {
    program_t program;
    outcome_t plain = {.passed = true};
    int result = 0;
    generate(&program, seed, o->operations);
    program.slow = o->slow;
    runner_run(&program, o->library, folder, outcome);
    if (outcome->passed && seed % PLAIN_EVERY == 0 && !program.loose)
        runner_run(&program, NULL, folder, &plain);
    if (!outcome->passed)
        result = failed(&program, o->library, outcome);
    else if (!plain.passed)
        result = failed(&program, NULL, &plain);
    else if (seed % TWICE_EVERY == 0)
        result = !repeats_itself(o, &program, outcome);
    program_free(&program);
    return result;
}

static int test(const options_t *o) {
    unsigned long operations = 0, skipped = 0;
    for (unsigned long i = 0; i < o->programs; i++) {
        outcome_t outcome;
        if (test_one(o, o->seed + i, &outcome))
            return 1;
        operations += outcome.executed;
        skipped += outcome.skipped;
    }
    printf("%lu programs, seeds %lu to %lu: %lu operations%s, %lu skipped\n", o->programs,
           o->seed, o->seed + o->programs - 1, operations, o->slow ? ", each checked" : "",
           skipped);
    if (operations >= o->least)
        return 0;
    printf("fewer operations than %lu\n", o->least);
    return 1;
}

static int catch_fault(const options_t *o) {
    for (unsigned long i = 0; i < o->programs; i++) {
        program_t program;
        outcome_t outcome;
        generate(&program, o->seed + i, o->operations);
        program.slow = o->slow;
        runner_run(&program, o->library, folder, &outcome);
        if (outcome.passed) {
            program_free(&program);
            continue;
        }
        printf("program %lu, seed %lu, fails:\n%s", i + 1, o->seed + i, outcome.said);
        size_t length = shrink_and_tell(&program, o->library, &outcome, "caught.short");
        printf("%zu operations\n", length);
        program_free(&program);
        if (length <= o->longest)
            return 0; /* some faults need many operations in one program, and few in the next */
    }
    printf("no fault found in %lu programs\n", o->programs);
    return 1;
}

static int run_file(const options_t *o) {
    program_t program;
    outcome_t outcome;
    if (!program_read(&program, o->name))
        return 2;
    size_t dropped = model_filter(&program);
    if (dropped)
        printf("%zu operations are not in order and left out\n", dropped);
    runner_run(&program, o->plain ? NULL : o->library, folder, &outcome);
    fputs(outcome.said, stdout);
    program_free(&program);
    return !outcome.passed;
}

static int shrink_file(const options_t *o) {
    program_t program;
    outcome_t outcome;
    char path[500];
    const char *library = o->plain ? NULL : o->library;
    if (!program_read(&program, o->name))
        return 2;
    runner_run(&program, library, folder, &outcome);
    if (outcome.passed) {
        printf("%s does not fail\n", o->name);
    } else {
        snprintf(path, sizeof path, "%s.short", o->name);
        shrink_and_tell(&program, library, &outcome, path);
    }
    program_free(&program);
    return outcome.passed;
}

static int generate_one(const options_t *o) {
    program_t program;
    generate(&program, strtoul(o->name, NULL, 10), o->operations);
    bool written = program_write(&program, "/dev/stdout", NULL);
    program_free(&program);
    return written ? 0 : 2;
}

static int execute_file(const options_t *o) {
    program_t program;
    return program_read(&program, o->name) ? execute(&program) : 2; /* the program stays in use */
}

static bool read_options(int count, char **list, options_t *o) {
    const struct {
        const char *name;
        unsigned long *out;
    } numbers[] = {{"--seed", &o->seed},
                   {"--programs", &o->programs},
                   {"--operations", &o->operations},
                   {"--least", &o->least},
                   {"--longest", &o->longest}};
    for (int i = 2; i < count; i++) {
        size_t n = 0;
        while (n < 5 && strcmp(list[i], numbers[n].name))
            n++;
        if (n < 5 && i + 1 < count)
            *numbers[n].out = strtoul(list[++i], NULL, 10);
        else if (!strcmp(list[i], "--library") && i + 1 < count)
            o->library = list[++i];
        else if (!strcmp(list[i], "--slow"))
            o->slow = true;
        else if (!strcmp(list[i], "--plain"))
            o->plain = true;
        else if (*list[i] != '-' && !o->name)
            o->name = list[i];
        else
            return false;
    }
    return true;
}

int main(int count, char **list) {
    static const struct {
        const char *command;
        int (*act)(const options_t *);
        bool names;
    } commands[] = {
        {"test", test, false},   {"catch", catch_fault, false}, {"generate", generate_one, true},
        {"run", run_file, true}, {"shrink", shrink_file, true}, {"execute", execute_file, true}};
    options_t o = {.seed = 1,
                   .programs = 10,
                   .operations = 4000,
                   .longest = 40,
                   .library = PROGRAMS_LIBRARY};
    for (size_t i = 0; count > 1 && i < sizeof commands / sizeof *commands; i++)
        if (!strcmp(list[1], commands[i].command)) {
            if (!read_options(count, list, &o) || commands[i].names != !!o.name)
                break;
            return commands[i].act(&o);
        }
    fputs("usage: programs test|catch|generate|run|shrink|execute; see main.c\n", stderr);
    return 2;
}
