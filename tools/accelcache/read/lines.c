/* See lines.h. */
#include "read/lines.h"
#include "command.h"
#include "read/elf.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* Says once why there are no lines, if the file has any. */
static void say_none(const char *path, const char *why) {
    static bool said;
    cmd_elf_t elf;
    if (said || cmd_elf_open(&elf, path))
        return;
    said = cmd_elf_has_section(&elf, ".debug_info");
    cmd_elf_close(&elf);
    if (said)
        cmd_say("source lines are not shown: %s", why);
}

#ifdef AC_LIBDW

#include <dwarf.h>
#include <elfutils/libdwfl.h>

#define DW_FUNCTIONS(DW)                                                                                       \
    DW(dwarf_attr)                                                                                             \
    DW(dwarf_attr_integrate)                                                                                   \
    DW(dwarf_child)                                                                                            \
    DW(dwarf_cu_info)                                                                                          \
    DW(dwarf_diecu)                                                                                            \
    DW(dwarf_diename)                                                                                          \
    DW(dwarf_filesrc)                                                                                          \
    DW(dwarf_formstring)                                                                                       \
    DW(dwarf_formref_die)                                                                                      \
    DW(dwarf_formudata)                                                                                        \
    DW(dwarf_getscopes_die)                                                                                    \
    DW(dwarf_getsrc_die)                                                                                       \
    DW(dwarf_getsrcfiles)                                                                                      \
    DW(dwarf_haspc)                                                                                            \
    DW(dwarf_lineno)                                                                                           \
    DW(dwarf_linesrc)                                                                                          \
    DW(dwarf_siblingof)                                                                                        \
    DW(dwarf_srclang)                                                                                          \
    DW(dwarf_tag)                                                                                              \
    DW(dwfl_begin)                                                                                             \
    DW(dwfl_build_id_find_elf)                                                                                 \
    DW(dwfl_module_addrname)                                                                                   \
    DW(dwfl_module_addrdie)                                                                                    \
    DW(dwfl_module_getelf)                                                                                     \
    DW(dwfl_module_nextcu)                                                                                     \
    DW(dwfl_offline_section_address)                                                                           \
    DW(dwfl_report_end)                                                                                        \
    DW(dwfl_report_offline)                                                                                    \
    DW(dwfl_standard_find_debuginfo)

static struct {
#define DW(name) __typeof__(&(name)) name;
    DW_FUNCTIONS(DW)
#undef DW
} dw;

struct cmd_lines {
    Dwfl *dwfl;
    Dwfl_Module *module;
    GElf_Addr bias; /* of an address in `dwfl` over one of the file */
};

/* Loads libdw once. */
static bool have_library(void) {
    static int state; /* 0: not tried, 1: loaded, -1: not to be loaded */
    if (state)
        return state > 0;
    void *library = dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
    bool all = library != NULL;
    void *found;
#define DW(name)                                                                                               \
    found = library ? dlsym(library, #name) : NULL;                                                            \
    memcpy(&dw.name, &found, sizeof found);                                                                    \
    all &= found != NULL;
    DW_FUNCTIONS(DW)
#undef DW
    state = all ? 1 : -1;
    return all;
}

cmd_lines_t *cmd_lines_open(const char *path) {
    static Dwfl_Callbacks callbacks;
    if (!have_library()) {
        say_none(path, "libdw.so.1 reads them (apt-get install libdw1)");
        return NULL;
    }
    callbacks.find_elf = dw.dwfl_build_id_find_elf;
    callbacks.find_debuginfo = dw.dwfl_standard_find_debuginfo;
    callbacks.section_address = dw.dwfl_offline_section_address;
    cmd_lines_t lines = {.dwfl = dw.dwfl_begin(&callbacks)};
    if (lines.dwfl)
        lines.module = dw.dwfl_report_offline(lines.dwfl, path, path, -1);
    if (!lines.module || dw.dwfl_report_end(lines.dwfl, NULL, NULL) ||
        !dw.dwfl_module_getelf(lines.module, &lines.bias))
        return NULL; /* libdw's data about it lives as long as the command */
    cmd_lines_t *kept = cmd_alloc(sizeof *kept);
    *kept = lines;
    return kept;
}

static char *copy(const char *text) {
    return text ? cmd_format("%s", text) : NULL;
}

/* The declaration of a function that is inlined, or defined elsewhere. */
static Dwarf_Die origin_of(Dwarf_Die *die) {
    Dwarf_Die origin = *die, next;
    Dwarf_Attribute attribute;
    for (int i = 0; i < 4; i++) { /* as far as compilers go */
        if (!(dw.dwarf_attr(&origin, DW_AT_abstract_origin, &attribute) ||
              dw.dwarf_attr(&origin, DW_AT_specification, &attribute)) ||
            !dw.dwarf_formref_die(&attribute, &next))
            break;
        origin = next;
    }
    return origin;
}

static bool is_scope(int tag) {
    return tag == DW_TAG_namespace || tag == DW_TAG_class_type || tag == DW_TAG_structure_type ||
           tag == DW_TAG_union_type || tag == DW_TAG_subprogram;
}

/* "scope::name" by the scopes of the declaration.  malloc'd. */
static char *scoped_name(Dwarf_Die *die, const char *name) {
    Dwarf_Die origin = origin_of(die), *scopes = NULL;
    int count = dw.dwarf_getscopes_die(&origin, &scopes);
    char *whole = copy(name);
    for (int i = 1; i < count; i++) {
        const char *scope = dw.dwarf_diename(&scopes[i]);
        int tag = dw.dwarf_tag(&scopes[i]);
        if (!is_scope(tag) || (!scope && tag != DW_TAG_namespace))
            continue;
        char *longer = cmd_format("%s::%s", scope ? scope : "(anonymous namespace)", whole);
        free(whole);
        whole = longer;
    }
    free(scopes);
    return whole;
}

static bool is_fortran(int language) {
    return language == DW_LANG_Fortran77 || language == DW_LANG_Fortran90 ||
           language == DW_LANG_Fortran95 || language == DW_LANG_Fortran03 || language == DW_LANG_Fortran08;
}

/* The name for the linker, which has scopes and parameters in C++.  Functions that only their file knows have none
 * there; Fortran's has its compiler's marks. */
static char *name_of(Dwarf_Die *die) {
    Dwarf_Attribute attribute;
    Dwarf_Die unit;
    int language = dw.dwarf_diecu(die, &unit, NULL, NULL) ? dw.dwarf_srclang(&unit) : -1;
    const char *name = dw.dwarf_diename(die), *linkage = NULL;
    if (dw.dwarf_attr_integrate(die, DW_AT_linkage_name, &attribute) ||
        dw.dwarf_attr_integrate(die, DW_AT_MIPS_linkage_name, &attribute))
        linkage = dw.dwarf_formstring(&attribute);
    if (linkage && (!is_fortran(language) || !name))
        return copy(linkage);
    return name && !is_fortran(language) ? scoped_name(die, name) : copy(name);
}

static int64_t number_of(Dwarf_Die *die, unsigned name) {
    Dwarf_Attribute attribute;
    Dwarf_Word value = 0;
    if (!dw.dwarf_attr_integrate(die, name, &attribute) || dw.dwarf_formudata(&attribute, &value))
        return 0;
    return value <= INT32_MAX ? (int64_t)value : 0;
}

/* The call of the inlined function. */
static void take_call(Dwarf_Die *die, cmd_line_t *line) {
    Dwarf_Die unit;
    Dwarf_Files *files;
    size_t count;
    int64_t file = number_of(die, DW_AT_call_file);
    if (dw.dwarf_diecu(die, &unit, NULL, NULL) && !dw.dwarf_getsrcfiles(&unit, &files, &count) &&
        (size_t)file < count)
        line->file = copy(dw.dwarf_filesrc(files, (size_t)file, NULL, NULL));
    line->line = line->file ? number_of(die, DW_AT_call_line) : 0;
}

/* Functions around an address, the outermost first: one, and the functions inlined there. */
typedef struct {
    Dwarf_Die die[CMD_LINES];
    int depth;
} functions_t;

/* Goes down to the address.  Compilers put functions into namespaces and modules, which have no addresses themselves.
 * True: found. */
static bool find_functions(Dwarf_Die *parent, Dwarf_Addr address, functions_t *found, int depth) {
    enum { DEEPEST = 200 }; /* in a file that was not damaged */
    enum { SCOPE, FUNCTION, BLOCK, OTHER } kind;
    Dwarf_Die die;
    for (int more = depth < DEEPEST ? dw.dwarf_child(parent, &die) : 1; !more; more = dw.dwarf_siblingof(&die, &die)) {
        switch (dw.dwarf_tag(&die)) {
        case DW_TAG_namespace:
        case DW_TAG_module:
            kind = SCOPE;
            break;
        case DW_TAG_subprogram:
        case DW_TAG_inlined_subroutine:
            kind = FUNCTION;
            break;
        case DW_TAG_lexical_block:
            kind = BLOCK;
            break;
        default:
            kind = OTHER;
        }
        if (kind == OTHER || (kind != SCOPE && dw.dwarf_haspc(&die, address) <= 0))
            continue;
        if (kind == FUNCTION && found->depth < CMD_LINES)
            found->die[found->depth++] = die;
        if (find_functions(&die, address, found, depth + 1) || kind != SCOPE)
            return true;
    }
    return false;
}

/* The compilation unit of the address; NULL: none.  Some compilers write no table of addresses (.debug_aranges). */
static Dwarf_Die *unit_at(cmd_lines_t *lines, GElf_Addr at, Dwarf_Addr *bias) {
    Dwarf_Die *unit = dw.dwfl_module_addrdie(lines->module, at, bias);
    if (unit)
        return unit;
    while ((unit = dw.dwfl_module_nextcu(lines->module, unit, bias)))
        if (dw.dwarf_haspc(unit, at - *bias) > 0)
            return unit;
    return NULL;
}

/* The part of a unit that has its functions: of -gsplit-dwarf it lies in another file. */
static Dwarf_Die functions_of(Dwarf_Die *unit) {
    Dwarf_Die split;
    memset(&split, 0, sizeof split);
    bool other = !dw.dwarf_cu_info(unit->cu, NULL, NULL, NULL, &split, NULL, NULL, NULL) && split.cu;
    return other ? split : *unit;
}

static void take_source(Dwarf_Die *unit, Dwarf_Addr address, cmd_line_t *line) {
    int number = 0;
    Dwarf_Line *source = dw.dwarf_getsrc_die(unit, address);
    const char *file = source ? dw.dwarf_linesrc(source, NULL, NULL) : NULL;
    if (file && !dw.dwarf_lineno(source, &number) && number > 0)
        *line = (cmd_line_t){NULL, copy(file), number};
}

size_t cmd_lines_at(cmd_lines_t *lines, uint64_t address, cmd_line_t line[CMD_LINES]) {
    GElf_Addr at = address + lines->bias;
    Dwarf_Addr bias;
    Dwarf_Die *unit = unit_at(lines, at, &bias);
    functions_t found = {.depth = 0};
    size_t count = 0;
    line[0] = (cmd_line_t){0};
    if (unit) {
        take_source(unit, at - bias, &line[0]);
        Dwarf_Die functions = functions_of(unit);
        find_functions(&functions, at - bias, &found, 0);
    }
    for (int i = found.depth; i-- > 0;) {
        line[count++].function = name_of(&found.die[i]);
        if (i) {
            line[count] = (cmd_line_t){0};
            take_call(&found.die[i], &line[count]);
        }
    }
    if (!count && line[0].file)
        count++;
    if (!count || !line[count - 1].function) { /* code of an assembler: the symbol, also that of a separate file */
        const char *symbol = dw.dwfl_module_addrname(lines->module, at);
        count += symbol && !count;
        if (count)
            line[count - 1].function = copy(symbol);
    }
    return count;
}

#else

cmd_lines_t *cmd_lines_open(const char *path) {
    say_none(path, "this command was built without libdw (libdw-dev)");
    return NULL;
}

size_t cmd_lines_at(cmd_lines_t *lines, uint64_t address, cmd_line_t line[CMD_LINES]) {
    (void)lines;
    (void)address;
    (void)line;
    return 0;
}

#endif
