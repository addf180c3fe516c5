/* See naming.h. */
#include "read/naming.h"
#include "command.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ ranks */

typedef enum { PROGRAM, LIBRARY, WRAPPER, PHASE } rank_t;

#define PHASE_PREFIX "phase "

/* A pattern of fnmatch.  The first row that matches decides; a frame that matches none is the program's. */
typedef struct {
    rank_t rank;
    const char *pattern;
} rule_t;

/* Rules for functions, without result type and parameters. */
static const rule_t function_rules[] = {
    /* The CUDA runtime, its header's templates, and the static runtime's inner functions. */
    {WRAPPER, "cudaMalloc*"},
    {WRAPPER, "cudaHostAlloc*"},
    {WRAPPER, "cudaFree*"},
    {WRAPPER, "cudaMemPool*"},
    {WRAPPER, "cudart::*"},
    {WRAPPER, "__cudart*"},
    {WRAPPER, "libcudart_static_*"},
    {WRAPPER, "cuMem[A-Z]*"},
    {WRAPPER, "cuArray*"},
    /* Allocators of C++. */
    {WRAPPER, "operator new*"},
    {WRAPPER, "operator delete*"},
    {WRAPPER, "__gnu_cxx::*"},
    {WRAPPER, "std::allocator*"},
    {WRAPPER, "std::__new_allocator*"},
    {WRAPPER, "std::pmr::*"},
    {LIBRARY, "std::*"},
    {LIBRARY, "thrust::*"},
    {LIBRARY, "cub::*"},
    {LIBRARY, "rmm::*"},
    /* PyTorch: the recording of the stack, the allocator, the operators. */
    {WRAPPER, "torch::unwind::*"},
    {WRAPPER, "torch::CapturedTraceback::*"},
    {WRAPPER, "torch::cuda::*gather*"},
    {WRAPPER, "c10::*"},
    {LIBRARY, "at::*"},
    {LIBRARY, "torch::*"},
    {LIBRARY, "caffe2::*"},
    {LIBRARY, "THP*"},
    {LIBRARY, "pybind11::*"},
    {LIBRARY, "__pyx_*"},
    /* The interpreter. */
    {WRAPPER, "_Py*"},
    {WRAPPER, "Py_*"},
    {WRAPPER, "Py[A-Z]*_*"},
    {WRAPPER, "ffi_call*"},
    /* The callers of main and of a thread's function; code without a name. */
    {WRAPPER, "_start"},
    {WRAPPER, "__libc_start*"},
    {WRAPPER, "start_thread"},
    {WRAPPER, "clone"},
    {WRAPPER, "clone3"},
    {WRAPPER, "[?][?]"},
    {LIBRARY, "code of no file"},
};

/* Rules for the file name of the object that has the code. */
static const rule_t object_rules[] = {
    {WRAPPER, "libcudart.so*"},
    {WRAPPER, "libcuda.so*"},
    {WRAPPER, "libaccelcache.so*"},
    {WRAPPER, "libffi.so*"},
    {WRAPPER, "libffi-*"},
    {WRAPPER, "_ctypes.*"},
    {WRAPPER, "_cffi_backend.*"},
    {WRAPPER, "libpython[0-9]*"},
    {WRAPPER, "python[0-9]*"},
    {WRAPPER, "python"},
    {WRAPPER, "libc10*"},
    {WRAPPER, "libc.so*"},
    {WRAPPER, "libc-2*"},
    {WRAPPER, "libpthread*"},
    {WRAPPER, "ld-linux*"},
    {WRAPPER, "libstdc++.so*"},
    {WRAPPER, "libc++*"},
    {LIBRARY, "libtorch*"},
};

/* Rules for paths of sources and objects: the interpreter, and packages between the program and CUDA. */
static const rule_t path_rules[] = {
    {WRAPPER, "*/Python/*.c"},
    {WRAPPER, "*/Objects/*.c"},
    {WRAPPER, "*/Modules/main.c"},
    {WRAPPER, "*/Modules/_ctypes/*"},
    {WRAPPER, "*/ctypes/__init__.py"},
    {WRAPPER, "<frozen *"},
    {LIBRARY, "*-packages/accelcache/*"},
    {LIBRARY, "*-packages/cuda/*"},
    {LIBRARY, "*-packages/cupy*/*"},
    {LIBRARY, "*-packages/jax/*"},
    {LIBRARY, "*-packages/jaxlib/*"},
    {LIBRARY, "*-packages/numba/*"},
    {LIBRARY, "*-packages/numba_cuda/*"},
    {LIBRARY, "*-packages/pycuda/*"},
    {LIBRARY, "*-packages/rmm/*"},
    {LIBRARY, "*-packages/torch/*"},
    {LIBRARY, "*/pytorch/torch/*"},
    {PROGRAM, "*-packages/*"},
    {LIBRARY, "*/lib/python[0-9]*/*.py"},
};

static bool matches(const rule_t *rules, size_t count, const char *text, rank_t *rank) {
    for (size_t i = 0; *text && i < count; i++)
        if (!fnmatch(rules[i].pattern, text, 0)) {
            *rank = rules[i].rank;
            return true;
        }
    return false;
}
#define MATCHES(rules, text, rank) matches(rules, sizeof(rules) / sizeof *(rules), text, rank)

/* ------------------------------------------------------------------ functions */

/* The bracket that `end` closes; NULL: none. */
static char *opening(char *text, char *end) {
    int depth = 0;
    for (char *at = end; at >= text; at--) {
        depth += (*at == ')') - (*at == '(');
        if (!depth)
            return at;
    }
    return NULL;
}

static void cut_end(char *text, const char *end) {
    size_t length = strlen(text), tail = strlen(end);
    if (length > tail && !strcmp(text + length - tail, end))
        text[length - tail] = '\0';
}

static void cut_parameters(char *name) {
    cut_end(name, " const");
    size_t length = strlen(name);
    char *open = length && name[length - 1] == ')' ? opening(name, name + length - 1) : NULL;
    bool is_call = open && open - name >= 8 && !strncmp(open - 8, "operator", 8);
    if (open && open > name && !is_call)
        *open = '\0';
}

/* The name behind the result type, which templates alone have: "int f<float>" is f<float>. */
static char *behind_result(char *name) {
    int depth = 0;
    char *begin = name;
    for (char *at = name; *at; at++) {
        if (!strncmp(at, "operator", 8) && (at == name || strchr(" :", at[-1])))
            break; /* brackets and blanks behind it belong to it */
        depth += strchr("<({[", *at) != NULL;
        depth -= strchr(">)}]", *at) != NULL;
        if (*at == ' ' && !depth)
            begin = at + 1;
    }
    return begin;
}

/* "scope::function" of "result scope::function(parameters) const".  malloc'd. */
static char *plain_function(const char *name) {
    char *whole = cmd_format("%s", name);
    if (!strncmp(name, "code of ", 8) || *name == '<')
        return whole;
    cut_parameters(whole);
    char *plain = cmd_format("%s", behind_result(whole));
    free(whole);
    return plain;
}

/* ------------------------------------------------------------------ one frame */

/* The file; "" if PyTorch did not know it. */
static const char *file_of(const json_t *frame) {
    const char *file = cmd_text(frame, "filename");
    return strcmp(file, "??") != 0 ? file : "";
}

static int64_t line_of(const json_t *frame) {
    return cmd_integer(frame, "line");
}

/* The path of the frame's object, without the offset; "" for an interpreter's frame.  malloc'd. */
static char *object_of(const json_t *frame) {
    const char *object = cmd_text(frame, "object"), *file = file_of(frame);
    if (*object || line_of(frame) > 0)
        return cmd_format("%s", object);
    const char *offset = strstr(cmd_base_name(file), "+0x");
    return cmd_format("%.*s", (int)(offset ? (size_t)(offset - file) : strlen(file)), file);
}

static bool is_nameless(const json_t *frame) {
    const char *name = cmd_text(frame, "name");
    return !*name || !strcmp(name, cmd_base_name(file_of(frame)));
}

bool cmd_naming_is_phase(const char *name, const char *file) {
    return !*file && !strncmp(name, PHASE_PREFIX, sizeof PHASE_PREFIX - 1);
}

const char *cmd_naming_phase(const json_t *frame) {
    const char *name = cmd_text(frame, "name");
    return cmd_naming_is_phase(name, cmd_text(frame, "filename")) ? name + sizeof PHASE_PREFIX - 1 : NULL;
}

static rank_t find_rank(const json_t *frame) {
    rank_t rank = PROGRAM;
    if (cmd_naming_phase(frame))
        return PHASE;
    char *object = object_of(frame);
    char *function = is_nameless(frame) ? cmd_format("%s", "") : plain_function(cmd_text(frame, "name"));
    bool known = MATCHES(object_rules, cmd_base_name(object), &rank) ||
                 MATCHES(function_rules, function, &rank) ||
                 MATCHES(path_rules, file_of(frame), &rank) ||
                 MATCHES(path_rules, object, &rank);
    free(function);
    free(object);
    return known ? rank : PROGRAM;
}

/* Frames repeat in many stacks, and a match costs some microseconds: each frame is ranked once. */
static rank_t rank_of(const json_t *frame) {
    static json_t *known;
    known = known ? known : json_object();
    char *key = cmd_format("%d %s\n%s\n%s", line_of(frame) > 0, cmd_text(frame, "name"), cmd_text(frame, "filename"),
                           cmd_text(frame, "object"));
    const json_t *found = json_object_get(known, key);
    rank_t rank = found ? (rank_t)json_integer_value(found) : find_rank(frame);
    if (!found)
        json_object_set_new(known, key, json_integer(rank));
    free(key);
    return rank;
}

/* "file.cc:12", "object+0x12", or "".  malloc'd. */
static char *place_of(const json_t *frame) {
    const char *file = cmd_base_name(file_of(frame));
    return line_of(frame) > 0 && *file ? cmd_format("%s:%lld", file, (long long)line_of(frame))
                                       : cmd_format("%s", file);
}

static char *named(const char *name, const json_t *frame, char *place) {
    char *text = !*place || is_nameless(frame) ? cmd_format("%s", *place ? place : name)
                                               : cmd_format("%s (%s)", name, place);
    free(place);
    return text;
}

char *cmd_naming_frame(const json_t *frame) {
    const char *name = cmd_text(frame, "name");
    return named(*name ? name : "?", frame, place_of(frame));
}

char *cmd_naming_box(const json_t *frame) {
    if (line_of(frame) > 0 || is_nameless(frame))
        return cmd_naming_frame(frame);
    char *object = object_of(frame);
    char *text = named(cmd_text(frame, "name"), frame, cmd_format("%s", cmd_base_name(object)));
    free(object);
    return text;
}

/* ------------------------------------------------------------------ sites */

/* The rank that names a site: the most telling one in the stack. */
static rank_t best_rank(const json_t *frames) {
    rank_t best = PHASE;
    for (size_t i = 0; i < json_array_size(frames) && best != PROGRAM; i++) {
        rank_t rank = rank_of(json_array_get(frames, i));
        best = rank < best ? rank : best;
    }
    return best;
}

json_t *cmd_naming_stack(const json_t *frames) {
    bool all = best_rank(frames) == WRAPPER;
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(frames); i++) {
        json_t *frame = json_array_get(frames, i);
        if (all || rank_of(frame) != WRAPPER)
            json_array_append(list, frame);
    }
    return list;
}

/* The first frame has its place, its callers their names. */
static char *part_of_site(const json_t *frame, bool first) {
    char *function = plain_function(cmd_text(frame, "name"));
    char *place = first || is_nameless(frame) ? place_of(frame) : cmd_format("%s", "");
    char *text = named(*function ? function : "?", frame, place);
    free(function);
    return text;
}

/* Takes over `text`, which may be NULL. */
static char *join(char *text, const char *between, const char *more) {
    char *longer = text ? cmd_format("%s%s%s", text, between, more) : cmd_format("%s", more);
    free(text);
    return longer;
}

/* "phase serve/decode"; NULL: the stack has none.  malloc'd. */
static char *phases_of(const json_t *frames) {
    char *phases = NULL;
    for (size_t i = json_array_size(frames); i-- > 0;) {
        const json_t *frame = json_array_get(frames, i);
        if (rank_of(frame) == PHASE)
            phases = join(phases, "/", cmd_text(frame, "name") + (phases ? sizeof PHASE_PREFIX - 1 : 0));
    }
    return phases;
}

char *cmd_naming_site(const json_t *frames) {
    enum { SHOWN = 3 };
    rank_t best = best_rank(frames);
    char *site = NULL, *phases = phases_of(frames);
    size_t shown = 0;
    for (size_t i = 0; i < json_array_size(frames) && shown < SHOWN && best != PHASE; i++) {
        const json_t *frame = json_array_get(frames, i);
        if (rank_of(frame) != best)
            continue;
        char *part = part_of_site(frame, !shown++);
        site = join(site, " < ", part);
        free(part);
    }
    if (phases)
        site = join(site, ", ", phases);
    free(phases);
    return site;
}
