/* Properties of a program, found without running it: can a preloaded library reach it, and how does it get to
 * CUDA.  For `run` (refusals, --sim) and `doctor`. */
#ifndef CMD_PROGRAM_H
#define CMD_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>

#include "read/elf.h"

/* Why the preload cannot work, worst first found. */
typedef enum {
    CMD_PROGRAM_FINE,
    CMD_PROGRAM_MISSING,  /* the program was not found */
    CMD_PROGRAM_UNUSABLE, /* a folder, not executable, cut short */
    CMD_PROGRAM_SETUID,   /* the loader ignores LD_PRELOAD when ids change */
    CMD_PROGRAM_STATIC,   /* no loader runs at all */
    CMD_PROGRAM_FOREIGN,  /* another architecture, word size, or loader than ours */
} cmd_problem_t;

typedef enum {
    CMD_RUNTIME_UNSEEN,  /* no CUDA library found: it may load one later */
    CMD_RUNTIME_SHARED,  /* needs libcudart.so.N */
    CMD_RUNTIME_STATIC,  /* NVIDIA's libcudart_static.a is linked in */
    CMD_RUNTIME_STANDIN, /* the stand-in libcudart_static.a of the simulated device is */
    CMD_RUNTIME_DRIVER,  /* needs libcuda.so.1 alone */
    CMD_RUNTIME_DLOPEN,  /* names libcuda.so.1 or libcudart.so in its constants */
} cmd_runtime_t;

typedef struct {
    char *path;        /* the file found, NULL: none */
    char *interpreter; /* path is a script for this program; NULL: it is none */
    cmd_problem_t problem;
    char *problem_text; /* cause and remedy, one line; NULL: no problem */
    cmd_runtime_t runtime;
    char *runtime_name;    /* of SHARED: "libcudart.so.13" */
    char *runtime_in;      /* the library through which it comes, NULL: the program itself */
    char *static_in;       /* a library with a static runtime inside, in addition to `runtime`; or NULL */
    char *pinned;          /* a libcudart that DT_RPATH puts before LD_LIBRARY_PATH; or NULL */
    char *unresolved;      /* a needed CUDA library found in no folder; or NULL */
    char *variable;        /* "NAME in LIBRARY": a library's variable with the name of a function of ours; or NULL */
    const char *sanitizer; /* "AddressSanitizer" etc., if its runtime is in the program; or NULL */
    char *sanitizer_file; /* that runtime, if it is a library that must be the first one: its path, or its name if no
                           * folder has it; NULL: linked in */
} cmd_program_t;

/* Look at `name` as execvp would find it.  Never fails: problems are part of the result. */
void cmd_program_inspect(cmd_program_t *program, const char *name);
void cmd_program_clear(cmd_program_t *program);

/* "NAME in PATH" if the library exports a variable with the name of one of our functions, else NULL.  malloc'd. */
char *cmd_program_variable(const cmd_elf_t *elf, const char *path);

/* A function of the library that has the name of one of ours; NULL: none, or it is the CUDA runtime.  The name is
 * the file's. */
const char *cmd_program_namesake(const cmd_elf_t *elf);

/* Is the file, an entry of LD_PRELOAD of `length` bytes, the runtime of a sanitizer? */
bool cmd_program_is_sanitizer(const char *entry, size_t length);

/* One line: how this program reaches CUDA.  malloc'd. */
char *cmd_program_describe(const cmd_program_t *program);
/* One word for JSON: "shared", "static", "static-standin", "driver", "dlopen", "unseen". */
const char *cmd_program_word(cmd_runtime_t runtime);

#endif
