/* Reads entry and variable names from PTX text.  It is no assembler: it recognises declarations
 * at module level and skips bodies.  Global lock (interned names). */
#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "image.h"

typedef struct name_node {
    struct name_node *next;
    char text[];
} name_node_t;

const char *sim_intern(const char *name, size_t length) {
    static name_node_t *buckets[256];
    unsigned hash = 2166136261u;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)name[i]) * 16777619u;
    name_node_t **bucket = &buckets[hash % 256];
    for (name_node_t *node = *bucket; node; node = node->next)
        if (!strncmp(node->text, name, length) && !node->text[length])
            return node->text;
    name_node_t *node = malloc(sizeof *node + length + 1);
    if (!node)
        return NULL;
    memcpy(node->text, name, length);
    node->text[length] = 0;
    node->next = *bucket;
    *bucket = node;
    return node->text;
}

/* ---- tokens: words with dots and dollar signs, and single other characters ---- */

typedef struct {
    const char *at, *token;
    size_t length;
} scanner_t;

static bool word(char c) {
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '.' || c == '%';
}

static void skip_space(scanner_t *s) {
    for (;;) {
        while (isspace((unsigned char)*s->at))
            s->at++;
        if (s->at[0] == '/' && s->at[1] == '/') {
            s->at += strcspn(s->at, "\n");
        } else if (s->at[0] == '/' && s->at[1] == '*') {
            const char *end = strstr(s->at + 2, "*/");
            s->at = end ? end + 2 : s->at + strlen(s->at);
        } else {
            return;
        }
    }
}

static bool next(scanner_t *s) {
    skip_space(s);
    if (!*s->at)
        return false;
    s->token = s->at;
    if (*s->at == '"') {
        s->at += 1 + strcspn(s->at + 1, "\"");
        s->at += *s->at == '"';
    } else if (word(*s->at)) {
        while (word(*s->at))
            s->at++;
    } else {
        s->at++;
    }
    s->length = (size_t)(s->at - s->token);
    return true;
}

static bool is(const scanner_t *s, const char *text) {
    return s->length == strlen(text) && !strncmp(s->token, text, s->length);
}

/* Returns the bytes of a type word like .u64, .f16x2, .b8; 0 for anything else. */
static size_t type_bytes(const scanner_t *s) {
    if (s->length < 3 || s->token[0] != '.' || !strchr("usbf", s->token[1]) ||
        !isdigit((unsigned char)s->token[2]))
        return 0;
    char *end;
    size_t bits = strtoul(s->token + 2, &end, 10);
    if (*end == 'x')
        bits *= strtoul(end + 1, &end, 10);
    return end == s->at ? bits / 8 : 0;
}

typedef struct {
    const char *name;
    size_t name_length, bytes, align;
    bool managed;
} declaration_t;

/* Returns the product, or SIZE_MAX if it overflows; no buffer has that size. */
static size_t times(size_t a, size_t b) {
    return __builtin_mul_overflow(a, b, &a) ? SIZE_MAX : a;
}

/* Reads one declaration up to `,`, `)`, `;` or `=`: attributes, type, name, dimensions. */
static bool declaration(scanner_t *s, declaration_t *out) {
    memset(out, 0, sizeof *out);
    size_t element = 0, count = 1;
    bool pointer = false; /* .ptr is followed by the alignment of its target */
    while (next(s)) {
        if (is(s, ",") || is(s, ")") || is(s, ";") || is(s, "="))
            break;
        if (is(s, ".align")) {
            if (!next(s))
                return false;
            if (!pointer)
                out->align = strtoul(s->token, NULL, 10);
        } else if (is(s, ".ptr")) {
            pointer = true;
        } else if (is(s, "[")) {
            if (!next(s))
                return false;
            if (!is(s, "]")) {
                count = times(count, strtoul(s->token, NULL, 0));
                if (!next(s))
                    return false;
            }
        } else if (is(s, ".attribute")) {
            while (next(s) && !is(s, ")"))
                out->managed |= is(s, ".managed");
        } else if (*s->token == '.') {
            size_t bytes = type_bytes(s);
            if (bytes)
                element = bytes;
            else if (is(s, ".v2") || is(s, ".v4"))
                count = times(count, (size_t)(s->token[2] - '0'));
        } else if (word(*s->token) && !isdigit((unsigned char)*s->token)) {
            out->name = s->token;
            out->name_length = s->length;
        }
    }
    out->bytes = times(element, count);
    if (!out->align)
        out->align = element ? element : 1;
    return out->name && out->bytes;
}

static bool fits(const declaration_t *param, size_t start) {
    return param->align <= SIM_PARAM_BYTES && param->bytes <= SIM_PARAM_BYTES &&
           start <= SIM_PARAM_BYTES - param->bytes;
}

static bool add_param(sim_image_kernel_t *kernel, const declaration_t *param, size_t start) {
    size_t count = kernel->param_count + 1;
    unsigned short *bytes = realloc(kernel->param_bytes, count * sizeof *bytes);
    if (bytes)
        kernel->param_bytes = bytes;
    unsigned short *offset = realloc(kernel->param_offset, count * sizeof *offset);
    if (offset)
        kernel->param_offset = offset;
    if (!bytes || !offset)
        return false;
    bytes[count - 1] = (unsigned short)param->bytes;
    offset[count - 1] = (unsigned short)start;
    kernel->param_count++;
    return true;
}

/* After `.entry`. */
static bool entry(scanner_t *s, sim_image_t *image) {
    if (!next(s))
        return true;
    sim_image_kernel_t *grown =
        realloc(image->kernels, (image->kernel_count + 1) * sizeof *grown);
    if (!grown)
        return false;
    image->kernels = grown;
    sim_image_kernel_t *kernel = &grown[image->kernel_count++];
    memset(kernel, 0, sizeof *kernel);
    kernel->name = sim_intern(s->token, s->length);
    if (!kernel->name)
        return false;
    skip_space(s);
    if (*s->at != '(')
        return true;
    next(s);
    size_t end = 0;
    for (declaration_t param; !is(s, ")") && declaration(s, &param);) {
        size_t start = (end + param.align - 1) / param.align * param.align;
        if (!fits(&param, start))
            image->refused = true;
        else if (!add_param(kernel, &param, start))
            return false;
        end = image->refused ? end : start + param.bytes;
    }
    return true;
}

static bool variable(scanner_t *s, sim_image_t *image) {
    declaration_t found;
    if (!declaration(s, &found))
        return true;
    sim_image_variable_t *grown =
        realloc(image->variables, (image->variable_count + 1) * sizeof *grown);
    if (!grown)
        return false;
    image->variables = grown;
    sim_image_variable_t *v = &grown[image->variable_count++];
    v->name = sim_intern(found.name, found.name_length);
    v->bytes = found.bytes;
    v->managed = found.managed;
    return v->name;
}

static bool parse(sim_image_t *image, const char *text) {
    scanner_t s = {.at = text};
    unsigned depth = 0;
    while (next(&s)) {
        if (is(&s, "{"))
            depth++;
        else if (is(&s, "}"))
            depth -= depth > 0;
        else if (depth)
            continue;
        else if (is(&s, ".entry") && !entry(&s, image))
            return false;
        else if ((is(&s, ".global") || is(&s, ".const")) && !variable(&s, image))
            return false;
    }
    return true;
}

static bool is_text(const char *data) {
    scanner_t s = {.at = data};
    while (isspace((unsigned char)*s.at))
        s.at++;
    if (*s.at != '.' && *s.at != '/')
        return false;
    return next(&s) && is(&s, ".version");
}

sim_image_t *sim_image_parse(const void *data) {
    sim_image_t *image = calloc(1, sizeof *image);
    if (!image)
        return NULL;
    image->refs = 1;
    image->known = is_text(data);
    if (image->known && !parse(image, data)) {
        sim_image_unref(image);
        return NULL;
    }
    return image;
}

sim_image_t *sim_image_ref(sim_image_t *image) {
    image->refs++;
    return image;
}

void sim_image_unref(sim_image_t *image) {
    if (!image || --image->refs)
        return;
    for (unsigned i = 0; i < image->kernel_count; i++) {
        free(image->kernels[i].param_bytes);
        free(image->kernels[i].param_offset);
    }
    free(image->kernels);
    free(image->variables);
    free(image);
}

const sim_image_kernel_t *sim_image_kernel(const sim_image_t *image, const char *name) {
    for (unsigned i = 0; i < image->kernel_count; i++)
        if (!strcmp(image->kernels[i].name, name))
            return &image->kernels[i];
    return NULL;
}

const sim_image_variable_t *sim_image_variable(const sim_image_t *image, const char *name) {
    for (unsigned i = 0; i < image->variable_count; i++)
        if (!strcmp(image->variables[i].name, name))
            return &image->variables[i];
    return NULL;
}
