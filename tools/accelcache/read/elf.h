/* Our own small reader of ELF files: what `run` and `doctor` must know of a program without
 * running it.  Nothing in a file is trusted: every offset is checked against its length. */
#ifndef CMD_ELF_H
#define CMD_ELF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    bool is_elf;         /* else nothing below is set */
    bool bits64, little; /* other files are not read further */
    uint16_t machine;    /* EM_X86_64, EM_AARCH64, ... */
    uint16_t type;       /* ET_EXEC, ET_DYN, ... */
    bool dynamic;        /* has a dynamic section */
    const char *interp;  /* the loader it asks for, NULL: none */
    const char *soname;  /* NULL: none */
    const char *rpath;   /* DT_RPATH: searched before LD_LIBRARY_PATH; NULL: none */
    const char *runpath; /* DT_RUNPATH: searched after it; NULL: none */
    const char **needed; /* DT_NEEDED names */
    unsigned needed_count;
    /* Inside. */
    const unsigned char *bytes;
    size_t size;
} cmd_elf_t;

/* Map and read `path`.  Returns 0 or an errno value; a file that is no ELF gives 0 and
 * is_elf false, one cut short or out of order EBADMSG. */
int cmd_elf_open(cmd_elf_t *elf, const char *path);
void cmd_elf_close(cmd_elf_t *elf);

/* Does the file define, or only use (`defined` false), a symbol of this name; with a `*` at
 * the end: of any name that begins so.  Symbol tables that were stripped answer no. */
bool cmd_elf_has_symbol(const cmd_elf_t *elf, const char *name, bool defined);

/* A symbol of this type (STT_FUNC, STT_OBJECT) that the file exports under a name that is `wanted`; NULL: none. */
const char *cmd_elf_export(const cmd_elf_t *elf, unsigned type, bool (*wanted)(const char *name));

/* Its build ID in hexadecimal digits, the first of one that is too long; "": it has none. */
enum { CMD_BUILD_ID = 41 };
void cmd_elf_build_id(const cmd_elf_t *elf, char id[CMD_BUILD_ID]);

/* Returns the functions that the file defines, by its full symbol table, or by the loader's if the file is
 * stripped.  malloc'd; the names are the file's. */
typedef struct {
    uint64_t address, size;
    const char *name;
} cmd_elf_function_t;
cmd_elf_function_t *cmd_elf_functions(const cmd_elf_t *elf, size_t *count);

/* Whether the file has a section of that name. */
bool cmd_elf_has_section(const cmd_elf_t *elf, const char *name);

/* Does `text` occur in the file's constants (its first 256 MiB)? */
bool cmd_elf_has_text(const cmd_elf_t *elf, const char *text);

#endif
