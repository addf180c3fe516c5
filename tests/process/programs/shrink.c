/* Delta debugging of programs. The model removes from each candidate the operations without
 * objects or order, so every candidate is correct. */
#include "shrink.h"

#include <stdlib.h>
#include <string.h>

#include "model.h"

typedef struct {
    program_t *program;
    bool (*fails)(const program_t *, void *);
    void *argument;
} shrink_t;

/* Returns true if no earlier operation allocates this number of bytes. */
static bool new_size(const program_t *p, size_t at) {
    for (size_t i = 0; i < at; i++)
        if (op_allocates(p->ops[i].code) && p->ops[i].at[1] == p->ops[at].at[1])
            return false;
    return op_allocates(p->ops[at].code);
}

/* Size of a program without its operations. */
static size_t settings_size(const program_t *p) {
    size_t sizes = 0;
    for (size_t i = 0; i < p->count; i++)
        sizes += new_size(p, i);
    return sizes + p->threads + p->devices + strlen(p->sim) + strlen(p->conf) + p->slow +
           p->loose;
}

/* Replaces the program by the candidate if that is smaller and still fails. */
static bool accept(shrink_t *s, program_t *candidate) {
    model_filter(candidate);
    bool smaller = candidate->count < s->program->count ||
                   (candidate->count == s->program->count &&
                    settings_size(candidate) <= settings_size(s->program));
    bool taken = smaller && s->fails(candidate, s->argument);
    if (taken) {
        program_free(s->program);
        *s->program = *candidate;
    } else {
        program_free(candidate);
    }
    return taken;
}

static bool without(shrink_t *s, size_t from, size_t count) {
    program_t candidate;
    program_copy(&candidate, s->program);
    size_t end = from + count < candidate.count ? from + count : candidate.count;
    memmove(candidate.ops + from, candidate.ops + end,
            (candidate.count - end) * sizeof *candidate.ops);
    candidate.count -= end - from;
    return accept(s, &candidate);
}

/* Drops operations from the end, because operations after the failure are not needed. */
static bool drop_operations(shrink_t *s) {
    size_t before = s->program->count;
    for (size_t chunk = (s->program->count + 1) / 2; chunk; chunk /= 2)
        for (size_t at = s->program->count; at;) {
            at = at > chunk ? at - chunk : 0;
            if (at < s->program->count)
                without(s, at, chunk);
            if (at > s->program->count)
                at = s->program->count;
        }
    return s->program->count < before;
}

/* Drops pairs of operations that belong together: one creates an object, the other destroys
 * it. */
static bool drop_pairs(shrink_t *s) {
    enum { FEW = 60 };
    bool any = false;
    for (size_t i = 0; s->program->count <= FEW && i < s->program->count; i++)
        for (size_t j = i + 1; j < s->program->count; j++) {
            program_t candidate;
            program_copy(&candidate, s->program);
            memmove(candidate.ops + j, candidate.ops + j + 1,
                    (candidate.count - j - 1) * sizeof *candidate.ops);
            memmove(candidate.ops + i, candidate.ops + i + 1,
                    (candidate.count - i - 2) * sizeof *candidate.ops);
            candidate.count -= 2;
            any |= accept(s, &candidate);
        }
    return any;
}

/* Gives all allocations one size. Memory of one size is reused at once, memory of many sizes
 * only under load. */
static bool unify_sizes(shrink_t *s) {
    bool any = false;
    for (size_t i = 0; i < s->program->count; i++) {
        if (!new_size(s->program, i))
            continue;
        program_t candidate;
        program_copy(&candidate, s->program);
        for (size_t j = 0; j < candidate.count; j++)
            if (op_allocates(candidate.ops[j].code))
                candidate.ops[j].at[1] = s->program->ops[i].at[1];
        any |= accept(s, &candidate);
    }
    for (size_t i = 0; i < s->program->count; i++)
        for (size_t j = 0; op_allocates(s->program->ops[i].code) && j < s->program->count; j++) {
            if (!new_size(s->program, j) || s->program->ops[i].at[1] == s->program->ops[j].at[1])
                continue;
            program_t candidate;
            program_copy(&candidate, s->program);
            candidate.ops[i].at[1] = candidate.ops[j].at[1];
            size_t before = settings_size(s->program);
            if (settings_size(&candidate) < before)
                any |= accept(s, &candidate);
            else
                program_free(&candidate);
        }
    return any;
}

static bool fold_threads(shrink_t *s) {
    bool any = false;
    for (unsigned from = s->program->threads; from-- > 1;) {
        program_t candidate;
        program_copy(&candidate, s->program);
        for (size_t i = 0; i < candidate.count; i++)
            if (candidate.ops[i].thread == from)
                candidate.ops[i].thread = 0;
        if (from == candidate.threads - 1)
            candidate.threads--;
        any |= accept(s, &candidate);
    }
    return any;
}

static bool fold_devices(shrink_t *s) {
    bool any = false;
    while (s->program->devices > 1) {
        program_t candidate;
        program_copy(&candidate, s->program);
        candidate.devices--;
        if (!accept(s, &candidate))
            break;
        any = true;
    }
    return any;
}

/* Removes entry number `at` of a list with commas outside brackets. Returns false if there is
 * none. */
static bool cut_entry(char *text, unsigned at) {
    char *begin = text, *end = text;
    int depth = 0;
    if (!*text)
        return false;
    for (;; end++) {
        depth += (*end == '[') - (*end == ']');
        if (*end && (*end != ',' || depth))
            continue;
        if (!at--)
            break;
        if (!*end)
            return false;
        begin = end + 1;
    }
    if (*end)
        memmove(begin, end + 1, strlen(end + 1) + 1);
    else
        begin[begin > text ? -1 : 0] = 0;
    return true;
}

static bool drop_settings(shrink_t *s) {
    bool any = false;
    for (unsigned which = 0; which < 4; which++)
        for (unsigned at = 0; at < 12;) {
            program_t candidate;
            program_copy(&candidate, s->program);
            bool cut = which == 0   ? cut_entry(candidate.conf, at)
                       : which == 1 ? cut_entry(candidate.sim, at)
                       : at         ? false
                                    : true;
            if (which == 2)
                candidate.slow = false;
            if (which == 3)
                candidate.loose = false;
            if (!cut || (which > 1 && candidate.slow == s->program->slow &&
                         candidate.loose == s->program->loose)) {
                program_free(&candidate);
                break;
            }
            if (accept(s, &candidate))
                any = true;
            else
                at++;
        }
    return any;
}

void shrink(program_t *program, bool (*fails)(const program_t *, void *), void *argument) {
    shrink_t s = {program, fails, argument};
    bool any = true;
    for (unsigned round = 0; any && round < 8; round++) {
        any = drop_operations(&s);
        any |= unify_sizes(&s);
        any |= fold_threads(&s);
        any |= fold_devices(&s);
        any |= drop_settings(&s);
        if (!any)
            any = drop_pairs(&s);
    }
}
