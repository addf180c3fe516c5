/* See symbols.h. */
#include "read/symbols.h"
#include "command.h"
#include "read/elf.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

typedef struct file {
    char *path;
    cmd_elf_t elf;
    cmd_elf_function_t *function; /* by address */
    size_t functions;
    cmd_lines_t *lines;    /* NULL: there are none */
    char id[CMD_BUILD_ID]; /* "": none */
    bool told;             /* that it is another one */
    struct file *next;
} file_t;

static int by_address(const void *a, const void *b) {
    const cmd_elf_function_t *x = a, *y = b;
    return (x->address > y->address) - (x->address < y->address);
}

static file_t *file_of(const char *path) {
    static file_t *files;
    for (file_t *file = files; file; file = file->next)
        if (!strcmp(file->path, path))
            return file;
    file_t *file = cmd_alloc(sizeof *file);
    *file = (file_t){.path = cmd_format("%s", path), .next = files};
    if (*path == '/' && cmd_elf_open(&file->elf, path) == 0 && file->elf.is_elf) {
        cmd_elf_build_id(&file->elf, file->id);
        file->function = cmd_elf_functions(&file->elf, &file->functions);
        if (file->functions)
            qsort(file->function, file->functions, sizeof *file->function, by_address);
        file->lines = cmd_lines_open(path);
    }
    files = file;
    return file;
}

/* Demangles with the C++ library, if it is loaded: the command does without. */
typedef char *demangle_fn(const char *name, char *buffer, size_t *length, int *status);

static char *demangled(const char *name) {
    static demangle_fn *demangle;
    static int looked;
    if (!looked++) {
        void *library = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_LOCAL);
        void *found = library ? dlsym(library, "__cxa_demangle") : NULL;
        if (!found && (library = dlopen("libc++abi.so.1", RTLD_NOW | RTLD_LOCAL)))
            found = dlsym(library, "__cxa_demangle");
        memcpy(&demangle, &found, sizeof demangle);
    }
    int status = -1;
    char *plain =
        demangle && !strncmp(name, "_Z", 2) ? demangle(name, NULL, NULL, &status) : NULL;
    char *clone = plain ? strstr(plain, " [clone ") : NULL; /* the compiler's own copy of it */
    if (clone)
        *clone = '\0';
    return plain ? plain : cmd_format("%s", name);
}

/* The file with the debug information of that build ID; NULL: none is installed. */
static file_t *file_by_id(const char *id) {
    if (strlen(id) < 3 || id[strspn(id, "0123456789abcdef")])
        return NULL;
    char *path = cmd_format("/usr/lib/debug/.build-id/%.2s/%s.debug", id, id + 2);
    file_t *file = file_of(path);
    free(path);
    return strcmp(id, file->id) ? NULL : file;
}

/* The file of the code, as far as it is known; NULL: it is another one by now. */
static file_t *file_that_ran(const char *path, const char *id) {
    file_t *file = file_of(path);
    if (!id || !strcmp(id, file->id))
        return file;
    file_t *kept = file_by_id(id);
    if (!kept && file->elf.bytes && !file->told) {
        file->told = true;
        cmd_say("%s was rebuilt since (build ID %.12s.. then, %.12s%s now): its functions stay "
                "without names; put the old file back to see them",
                file->path, id, *file->id ? file->id : "none", *file->id ? ".." : "");
    }
    return kept;
}

/* The function at the offset, by the symbol table; NULL: none is known. */
static const char *symbol_at(const file_t *file, uint64_t offset) {
    size_t low = 0, high = file->functions;
    while (low < high) { /* the last one that begins at the offset or before */
        size_t middle = low + (high - low) / 2;
        if (file->function[middle].address <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    if (!low)
        return NULL;
    const cmd_elf_function_t *function = &file->function[low - 1];
    /* Hand-written code gives no size. */
    bool inside = function->size ? offset - function->address < function->size
                                 : low == file->functions || offset - function->address < 4096;
    return inside ? function->name : NULL;
}

size_t cmd_symbols_at(const char *path, const char *id, uint64_t offset, cmd_line_t line[CMD_LINES]) {
    file_t *file = file_that_ran(path, id);
    size_t count = file && file->lines ? cmd_lines_at(file->lines, offset, line) : 0;
    const char *symbol = file ? symbol_at(file, offset) : NULL;
    if (!count && symbol)
        line[count++] = (cmd_line_t){0};
    for (size_t i = 0; i < count; i++) {
        const char *name = line[i].function ? line[i].function : i + 1 == count ? symbol : NULL;
        char *plain = name ? demangled(name) : NULL;
        free(line[i].function);
        line[i].function = plain;
    }
    return count;
}
