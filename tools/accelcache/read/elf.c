/* See elf.h. */
#include "read/elf.h"
#include "command.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Returns `count` objects of `size` bytes at `offset`.  NULL: the file does not hold them, or they are not
 * aligned. */
static const void *elf_at(const cmd_elf_t *elf, uint64_t offset, uint64_t count, uint64_t size) {
    if (offset > elf->size || (size && count > (elf->size - offset) / size))
        return NULL;
    if (size >= 8 && offset % 8 != 0)
        return NULL;
    return elf->bytes + offset;
}

/* A NUL-terminated string inside [offset, offset + limit), or NULL. */
static const char *elf_string(const cmd_elf_t *elf, uint64_t offset, uint64_t limit) {
    const char *text = elf_at(elf, offset, 0, 0);
    if (!text || offset == elf->size)
        return NULL;
    if (limit > elf->size - offset)
        limit = elf->size - offset;
    return memchr(text, '\0', limit) ? text : NULL;
}

static const Elf64_Phdr *elf_segments(const cmd_elf_t *elf, unsigned *count) {
    const Elf64_Ehdr *header = (const void *)elf->bytes;
    *count = header->e_phnum;
    if (header->e_phentsize != sizeof(Elf64_Phdr))
        *count = 0;
    return elf_at(elf, header->e_phoff, *count, sizeof(Elf64_Phdr));
}

static bool elf_file_offset(const cmd_elf_t *elf, uint64_t address, uint64_t *offset) {
    unsigned count;
    const Elf64_Phdr *segment = elf_segments(elf, &count);
    for (unsigned i = 0; segment && i < count; i++) {
        if (segment[i].p_type == PT_LOAD && address >= segment[i].p_vaddr &&
            address - segment[i].p_vaddr < segment[i].p_filesz) {
            *offset = segment[i].p_offset + (address - segment[i].p_vaddr);
            return true;
        }
    }
    return false;
}

static int elf_read_dynamic(cmd_elf_t *elf, const Elf64_Phdr *segment) {
    uint64_t count = segment->p_filesz / sizeof(Elf64_Dyn);
    const Elf64_Dyn *entry = elf_at(elf, segment->p_offset, count, sizeof *entry);
    if (!entry)
        return EBADMSG;
    uint64_t strings = 0, length = 0;
    for (uint64_t i = 0; i < count && entry[i].d_tag != DT_NULL; i++) {
        if (entry[i].d_tag == DT_STRTAB && !elf_file_offset(elf, entry[i].d_un.d_ptr, &strings))
            return EBADMSG;
        if (entry[i].d_tag == DT_STRSZ)
            length = entry[i].d_un.d_val;
    }
    for (uint64_t i = 0; i < count && entry[i].d_tag != DT_NULL; i++) {
        int64_t tag = entry[i].d_tag;
        if (tag != DT_NEEDED && tag != DT_SONAME && tag != DT_RPATH && tag != DT_RUNPATH)
            continue;
        uint64_t at = entry[i].d_un.d_val;
        const char *text = at < length ? elf_string(elf, strings + at, length - at) : NULL;
        if (!text)
            return EBADMSG;
        if (tag == DT_NEEDED) {
            elf->needed = cmd_resize(elf->needed, (elf->needed_count + 1) * sizeof *elf->needed);
            elf->needed[elf->needed_count++] = text;
        } else {
            *(tag == DT_SONAME  ? &elf->soname
              : tag == DT_RPATH ? &elf->rpath
                                : &elf->runpath) = text;
        }
    }
    return 0;
}

static int elf_read(cmd_elf_t *elf) {
    if (elf->size < EI_NIDENT || memcmp(elf->bytes, ELFMAG, SELFMAG) != 0)
        return 0;
    elf->is_elf = true;
    elf->bits64 = elf->bytes[EI_CLASS] == ELFCLASS64;
    elf->little = elf->bytes[EI_DATA] == ELFDATA2LSB;
    if (!elf->bits64 || !elf->little)
        return 0;
    const Elf64_Ehdr *header = elf_at(elf, 0, 1, sizeof *header);
    if (!header)
        return EBADMSG;
    elf->machine = header->e_machine;
    elf->type = header->e_type;
    unsigned count;
    const Elf64_Phdr *segment = elf_segments(elf, &count);
    if (!segment)
        return EBADMSG;
    for (unsigned i = 0; i < count; i++) {
        if (!segment[i].p_filesz) /* in a file of debug information */
            continue;
        if (segment[i].p_type == PT_INTERP) {
            elf->interp = elf_string(elf, segment[i].p_offset, segment[i].p_filesz);
            if (!elf->interp)
                return EBADMSG;
        } else if (segment[i].p_type == PT_DYNAMIC) {
            elf->dynamic = true;
            int error = elf_read_dynamic(elf, &segment[i]);
            if (error)
                return error;
        }
    }
    return 0;
}

int cmd_elf_open(cmd_elf_t *elf, const char *path) {
    memset(elf, 0, sizeof *elf);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno;
    struct stat status;
    int error = 0;
    if (fstat(fd, &status))
        error = errno;
    else if (!S_ISREG(status.st_mode))
        error = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
    if (!error && status.st_size > 0) {
        void *bytes = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (bytes == MAP_FAILED) {
            error = errno;
        } else {
            elf->bytes = bytes;
            elf->size = (size_t)status.st_size;
            error = elf_read(elf);
        }
    }
    close(fd);
    if (error)
        cmd_elf_close(elf);
    return error;
}

void cmd_elf_close(cmd_elf_t *elf) {
    if (elf->bytes)
        munmap((void *)(uintptr_t)elf->bytes, elf->size);
    free(elf->needed);
    memset(elf, 0, sizeof *elf);
}

/* The note of that kind in [offset, offset + size) of the file. */
static bool elf_find_build_id(const cmd_elf_t *elf, uint64_t offset, uint64_t size, uint64_t align,
                              char *id) {
    for (uint64_t at = 0; at < size;) {
        const Elf64_Nhdr *note = elf_at(elf, offset + at, sizeof *note, 1);
        if (!note || (offset + at) % 4 || at + sizeof *note > size)
            return false;
        uint64_t name = (sizeof *note + (uint64_t)note->n_namesz + align - 1) & ~(align - 1);
        uint64_t whole = name + ((note->n_descsz + align - 1) & ~(align - 1));
        const unsigned char *byte = elf_at(elf, offset + at + name, note->n_descsz, 1);
        const char *owner = elf_at(elf, offset + at + sizeof *note, note->n_namesz, 1);
        if (!byte || !owner)
            return false;
        if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && !memcmp(owner, "GNU", 4)) {
            for (size_t i = 0; i < note->n_descsz && 2 * i + 2 < CMD_BUILD_ID; i++)
                snprintf(id + 2 * i, 3, "%02x", byte[i]);
            return true;
        }
        at += whole;
    }
    return false;
}

void cmd_elf_build_id(const cmd_elf_t *elf, char id[CMD_BUILD_ID]) {
    unsigned count = 0;
    const Elf64_Phdr *segment =
        elf->bits64 && elf->little ? elf_segments(elf, &count) : NULL;
    *id = '\0';
    for (unsigned i = 0; segment && i < count; i++)
        if (segment[i].p_type == PT_NOTE &&
            elf_find_build_id(elf, segment[i].p_offset, segment[i].p_filesz,
                              segment[i].p_align == 8 ? 8 : 4, id))
            return;
}

static const Elf64_Shdr *elf_sections(const cmd_elf_t *elf, unsigned *count) {
    *count = 0;
    if (!elf->bits64 || !elf->little || elf->size < sizeof(Elf64_Ehdr))
        return NULL;
    const Elf64_Ehdr *header = (const void *)elf->bytes;
    if (!header->e_shoff || header->e_shentsize != sizeof(Elf64_Shdr))
        return NULL;
    *count = header->e_shnum;
    return elf_at(elf, header->e_shoff, *count, sizeof(Elf64_Shdr));
}

bool cmd_elf_has_section(const cmd_elf_t *elf, const char *name) {
    unsigned count;
    const Elf64_Shdr *section = elf_sections(elf, &count);
    const Elf64_Ehdr *header = (const void *)elf->bytes;
    if (!section || header->e_shstrndx >= count)
        return false;
    const Elf64_Shdr *names = &section[header->e_shstrndx];
    for (unsigned i = 0; i < count; i++) {
        const char *text = section[i].sh_name < names->sh_size
                               ? elf_string(elf, names->sh_offset + section[i].sh_name,
                                            names->sh_size - section[i].sh_name)
                               : NULL;
        if (text && !strcmp(text, name))
            return true;
    }
    return false;
}

/* The symbols of a table; NULL: the section is none, or the file does not hold it. */
static const Elf64_Sym *elf_symbols(const cmd_elf_t *elf, const Elf64_Shdr *section,
                                    unsigned sections, unsigned i, uint64_t *count) {
    if ((section[i].sh_type != SHT_SYMTAB && section[i].sh_type != SHT_DYNSYM) ||
        section[i].sh_link >= sections)
        return NULL;
    const Elf64_Shdr *strings = &section[section[i].sh_link];
    *count = section[i].sh_size / sizeof(Elf64_Sym);
    const Elf64_Sym *symbol = elf_at(elf, section[i].sh_offset, *count, sizeof *symbol);
    return elf_at(elf, strings->sh_offset, strings->sh_size, 1) ? symbol : NULL;
}

static const char *elf_symbol_name(const cmd_elf_t *elf, const Elf64_Shdr *strings,
                                   const Elf64_Sym *symbol) {
    return symbol->st_name < strings->sh_size
               ? elf_string(elf, strings->sh_offset + symbol->st_name,
                            strings->sh_size - symbol->st_name)
               : NULL;
}

bool cmd_elf_has_symbol(const cmd_elf_t *elf, const char *name, bool defined) {
    unsigned count;
    const Elf64_Shdr *section = elf_sections(elf, &count);
    size_t length = strlen(name);
    bool prefix = length > 0 && name[length - 1] == '*';
    for (unsigned i = 0; section && i < count; i++) {
        uint64_t symbols;
        const Elf64_Sym *symbol = elf_symbols(elf, section, count, i, &symbols);
        for (uint64_t s = 0; symbol && s < symbols; s++) {
            if ((symbol[s].st_shndx != SHN_UNDEF) != defined)
                continue;
            const char *text = elf_symbol_name(elf, &section[section[i].sh_link], &symbol[s]);
            if (text && (prefix ? !strncmp(text, name, length - 1) : !strcmp(text, name)))
                return true;
        }
    }
    return false;
}

const char *cmd_elf_export(const cmd_elf_t *elf, unsigned type, bool (*wanted)(const char *name)) {
    unsigned sections;
    const Elf64_Shdr *section = elf_sections(elf, &sections);
    for (unsigned i = 0; section && i < sections; i++) {
        uint64_t symbols;
        const Elf64_Sym *symbol = elf_symbols(elf, section, sections, i, &symbols);
        for (uint64_t s = 0; symbol && section[i].sh_type == SHT_DYNSYM && s < symbols; s++) {
            bool exported = symbol[s].st_shndx != SHN_UNDEF &&
                            ELF64_ST_TYPE(symbol[s].st_info) == type &&
                            ELF64_ST_BIND(symbol[s].st_info) != STB_LOCAL;
            const char *name =
                exported ? elf_symbol_name(elf, &section[section[i].sh_link], &symbol[s]) : NULL;
            if (name && wanted(name))
                return name;
        }
    }
    return NULL;
}

cmd_elf_function_t *cmd_elf_functions(const cmd_elf_t *elf, size_t *count) {
    unsigned sections;
    const Elf64_Shdr *section = elf_sections(elf, &sections);
    cmd_elf_function_t *function = NULL;
    *count = 0;
    for (int full = 1; full >= 0 && !*count; full--)
        for (unsigned i = 0; section && i < sections; i++) {
            uint64_t symbols;
            const Elf64_Sym *symbol = elf_symbols(elf, section, sections, i, &symbols);
            if (!symbol || section[i].sh_type != (full ? SHT_SYMTAB : SHT_DYNSYM))
                continue;
            function = cmd_resize(function, (*count + symbols + 1) * sizeof *function);
            for (uint64_t s = 0; s < symbols; s++) {
                unsigned type = ELF64_ST_TYPE(symbol[s].st_info);
                const char *name =
                    symbol[s].st_shndx != SHN_UNDEF && (type == STT_FUNC || type == STT_GNU_IFUNC)
                        ? elf_symbol_name(elf, &section[section[i].sh_link], &symbol[s])
                        : NULL;
                if (name && *name)
                    function[(*count)++] =
                        (cmd_elf_function_t){symbol[s].st_value, symbol[s].st_size, name};
            }
        }
    return function;
}

bool cmd_elf_has_text(const cmd_elf_t *elf, const char *text) {
    /* A library of several GB is mostly GPU code; the runtime's constants come early. */
    size_t size = elf->size < (256u << 20) ? elf->size : 256u << 20;
    return elf->bytes && memmem(elf->bytes, size, text, strlen(text)) != NULL;
}
