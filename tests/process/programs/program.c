/* Programs in memory, and their text form. */
#include "program.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *operands;
} table[] = {
#define OP(symbol, name, operands, doc) {#name, operands},
#include "ops.def"
#undef OP
};

static const char *const specials[] = {"null", "legacy", "own"};

const char *op_name(unsigned code) {
    return table[code].name;
}

const char *op_operands(unsigned code) {
    return table[code].operands;
}

bool op_allocates(unsigned code) {
    return code == OP_ALLOC || code == OP_ALLOCASYNC || code == OP_ALLOCFROM || code == OP_PIN;
}

void program_init(program_t *program) {
    memset(program, 0, sizeof *program);
    program->threads = program->devices = 1;
}

void program_free(program_t *program) {
    free(program->ops);
    program_init(program);
}

void program_add(program_t *program, op_t op) {
    if (program->count == program->room) {
        program->room = program->room ? 2 * program->room : 1024;
        program->ops = realloc(program->ops, program->room * sizeof *program->ops);
        if (!program->ops) {
            fputs("programs: out of memory\n", stderr);
            exit(2);
        }
    }
    program->ops[program->count++] = op;
}

void program_copy(program_t *to, const program_t *from) {
    *to = *from;
    to->ops = NULL;
    to->count = to->room = 0;
    for (size_t i = 0; i < from->count; i++)
        program_add(to, from->ops[i]);
}

/* ---- writing ---- */

static void print_stream(uint32_t operand, FILE *out) {
    uint32_t which = operand & STREAM_MASK;
    if (which < STREAMS)
        fprintf(out, " s%u", which);
    else
        fprintf(out, " %s", specials[which - STREAM_NULL]);
    if (operand & STREAM_Z)
        fputs(".z", out);
}

void op_print(const op_t *op, FILE *out) {
    fprintf(out, "%u %s", op->thread, op_name(op->code));
    const char *kinds = op_operands(op->code);
    for (unsigned i = 0; kinds[i]; i++) {
        if (kinds[i] == 'S')
            print_stream(op->at[i], out);
        else if (kinds[i] == 'N')
            fprintf(out, " %u", op->at[i]);
        else
            fprintf(out, " %c%u", kinds[i] - 'A' + 'a', op->at[i]);
    }
    fputc('\n', out);
}

static void print_note(const char *note, FILE *out) {
    while (note && *note) {
        size_t length = strcspn(note, "\n");
        fprintf(out, "# %.*s\n", (int)length, note);
        note += length + (note[length] == '\n');
    }
}

bool program_write(const program_t *program, const char *path, const char *note) {
    FILE *out = fopen(path, "w");
    if (!out) {
        fprintf(stderr, "programs: %s: %s\n", path, strerror(errno));
        return false;
    }
    print_note(note, out);
    fprintf(out, "seed %lu\nthreads %u\ndevices %u\n", program->seed, program->threads,
            program->devices);
    if (program->slow)
        fputs("slow\n", out);
    if (program->loose)
        fputs("loose\n", out);
    if (*program->sim)
        fprintf(out, "sim %s\n", program->sim);
    if (*program->conf)
        fprintf(out, "conf %s\n", program->conf);
    for (size_t i = 0; i < program->count; i++)
        op_print(&program->ops[i], out);
    if (!ferror(out) && !fclose(out))
        return true;
    fprintf(stderr, "programs: %s: cannot be written\n", path);
    return false;
}

/* ---- reading ---- */

static bool read_number(const char *word, uint32_t limit, uint32_t *out) {
    char *end;
    errno = 0;
    unsigned long value = strtoul(word, &end, 10);
    if (*word < '0' || *word > '9' || *end || errno || value >= limit)
        return false;
    *out = (uint32_t)value;
    return true;
}

static bool read_stream(char *word, uint32_t *out) {
    char *suffix = strchr(word, '.');
    uint32_t z = 0;
    if (suffix) {
        if (strcmp(suffix, ".z"))
            return false;
        *suffix = 0;
        z = STREAM_Z;
    }
    for (uint32_t i = 0; i < 3; i++)
        if (!strcmp(word, specials[i])) {
            *out = (STREAM_NULL + i) | z;
            return true;
        }
    if (*word != 's' || !read_number(word + 1, STREAMS, out))
        return false;
    *out |= z;
    return true;
}

static bool read_operand(char kind, char *word, uint32_t *out) {
    static const struct {
        char kind;
        uint32_t limit;
    } limits[] = {{'B', BLOCKS}, {'C', CONTEXTS}, {'E', EVENTS},
                  {'G', GRAPHS}, {'K', GREENS},   {'P', POOLS}};
    if (kind == 'S')
        return read_stream(word, out);
    if (kind == 'N')
        return read_number(word, UINT32_MAX, out);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        if (limits[i].kind == kind)
            return *word == kind - 'A' + 'a' && read_number(word + 1, limits[i].limit, out);
    return false;
}

static bool read_op(char *line, op_t *op) {
    char *rest = line, *word = strsep(&rest, " ");
    uint32_t thread;
    *op = (op_t){0};
    if (!read_number(word, THREADS, &thread) || !(word = strsep(&rest, " ")))
        return false;
    op->thread = (uint8_t)thread;
    while (op->code < OP_COUNT && strcmp(word, op_name(op->code)))
        op->code++;
    if (op->code == OP_COUNT)
        return false;
    const char *kinds = op_operands(op->code);
    for (unsigned i = 0; kinds[i]; i++)
        if (!(word = strsep(&rest, " ")) || !read_operand(kinds[i], word, &op->at[i]))
            return false;
    return !rest;
}

static bool read_setting(program_t *program, const char *line) {
    uint32_t number;
    if (sscanf(line, "seed %lu", &program->seed) == 1)
        return true;
    if (!strncmp(line, "threads ", 8) && read_number(line + 8, THREADS + 1, &number) && number)
        program->threads = number;
    else if (!strncmp(line, "devices ", 8) && read_number(line + 8, DEVICES + 1, &number) &&
             number)
        program->devices = number;
    else if (!strcmp(line, "slow"))
        program->slow = true;
    else if (!strcmp(line, "loose"))
        program->loose = true;
    else if (!strncmp(line, "sim ", 4) && strlen(line) < SETTINGS)
        strcpy(program->sim, line + 4);
    else if (!strncmp(line, "conf ", 5) && strlen(line) < SETTINGS)
        strcpy(program->conf, line + 5);
    else
        return false;
    return true;
}

bool program_read(program_t *program, const char *path) {
    char line[SETTINGS + 32];
    unsigned number = 0;
    FILE *in = fopen(path, "r");
    program_init(program);
    if (!in) {
        fprintf(stderr, "programs: %s: %s\n", path, strerror(errno));
        return false;
    }
    while (fgets(line, sizeof line, in)) {
        op_t op;
        number++;
        line[strcspn(line, "#\n")] = 0;
        for (size_t end = strlen(line); end && line[end - 1] == ' ';)
            line[--end] = 0;
        if (!*line || read_setting(program, line))
            continue;
        if (!read_op(line, &op) || op.thread >= program->threads) {
            fprintf(stderr, "programs: %s: line %u is no operation\n", path, number);
            fclose(in);
            return false;
        }
        program_add(program, op);
    }
    fclose(in);
    return true;
}
