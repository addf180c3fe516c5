/* See program.h. */
#include "run/program.h"
#include "command.h"
#include "read/elf.h"

#include <elf.h>
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#if defined(__x86_64__)
enum { OUR_MACHINE = EM_X86_64 };
#define OUR_MACHINE_NAME "x86-64"
#define OUR_TRIPLET      "x86_64-linux-gnu"
#elif defined(__aarch64__)
enum { OUR_MACHINE = EM_AARCH64 };
#define OUR_MACHINE_NAME "aarch64"
#define OUR_TRIPLET      "aarch64-linux-gnu"
#else
#error "accelcache runs on x86-64 and aarch64"
#endif

/* How all functions of the stand-in runtime begin; a stripped program looks like one with NVIDIA's. */
#define STANDIN_SYMBOLS "simrt_*"

static void set_problem(cmd_program_t *program, cmd_problem_t problem, char *text) {
    if (program->problem == CMD_PROGRAM_FINE) {
        program->problem = problem;
        program->problem_text = text;
    } else {
        free(text);
    }
}

/* ------------------------------------------------------------------ finding the file */

static bool is_file(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

/* The first executable file `name` in PATH, or the path itself when it has a slash. */
static char *find_program(const char *name) {
    if (strchr(name, '/'))
        return access(name, F_OK) == 0 ? cmd_format("%s", name) : NULL;
    const char *path = getenv("PATH");
    if (!path || !*path)
        path = "/bin:/usr/bin";
    char *unusable = NULL;
    while (*name) {
        size_t length = strcspn(path, ":");
        char *file =
            length ? cmd_format("%.*s/%s", (int)length, path, name) : cmd_format("./%s", name);
        if (is_file(file)) {
            if (access(file, X_OK) == 0) {
                free(unusable);
                return file;
            }
            if (!unusable) {
                unusable = file;
                file = NULL;
            }
        }
        free(file);
        if (!path[length])
            break;
        path += length + 1;
    }
    return unusable;
}

/* Returns the interpreter that #! at the start of `path` names: the interpreter, or behind `env` the program
 * that env would start.  malloc'd; NULL when the file is no script. */
static char *script_interpreter(const char *path) {
    FILE *file = fopen(path, "re");
    char line[512] = "";
    if (!file)
        return NULL;
    size_t length = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    if (length < 3 || line[0] != '#' || line[1] != '!')
        return NULL;
    line[strcspn(line, "\n")] = '\0';
    char *rest = line + 2, *word = strtok_r(rest, " \t\r", &rest);
    if (!word)
        return NULL;
    const char *found = word;
    if (!strcmp(cmd_base_name(word), "env")) {
        while ((word = strtok_r(NULL, " \t\r", &rest))) {
            if (word[0] != '-' && !strchr(word, '=')) {
                found = word;
                break;
            }
        }
    }
    char *result = find_program(found);
    return result ? result : cmd_format("%s", found);
}

/* ------------------------------------------------------------------ its libraries */

typedef struct {
    char **path;
    unsigned count;
} path_list_t;

static void list_add(path_list_t *list, char *path) {
    list->path = cmd_resize(list->path, (list->count + 1) * sizeof *list->path);
    list->path[list->count++] = path;
}

static void list_clear(path_list_t *list) {
    for (unsigned i = 0; i < list->count; i++)
        free(list->path[i]);
    free(list->path);
    *list = (path_list_t){0};
}

/* Folders that the loader searches without being told, as far as files of its configuration
 * list them.  Its cache may know more; then a library counts as not found, no more. */
static const path_list_t *system_folders(void) {
    static path_list_t folders;
    if (folders.count)
        return &folders;
    static const char *const patterns[] = {"/etc/ld.so.conf", "/etc/ld.so.conf.d/*.conf"};
    for (unsigned p = 0; p < 2; p++) {
        glob_t found;
        if (glob(patterns[p], 0, NULL, &found))
            continue;
        for (size_t i = 0; i < found.gl_pathc; i++) {
            char *text = cmd_file_read(found.gl_pathv[i], NULL), *rest = text, *word;
            while (text && (word = strtok_r(rest, " \t\n", &rest)))
                if (word[0] == '/')
                    list_add(&folders, cmd_format("%s", word));
            free(text);
        }
        globfree(&found);
    }
    static const char *const usual[] = {
        "/lib/" OUR_TRIPLET, "/usr/lib/" OUR_TRIPLET, "/lib64", "/usr/lib64", "/lib", "/usr/lib"};
    for (unsigned i = 0; i < sizeof usual / sizeof usual[0]; i++)
        list_add(&folders, cmd_format("%s", usual[i]));
    return &folders;
}

/* The file `name` in one of the colon-separated `folders`; $ORIGIN is the folder of `origin`. */
static char *find_in(const char *folders, const char *name, const char *origin) {
    while (folders && *folders) {
        size_t length = strcspn(folders, ":");
        const char *start = folders;
        int origin_length = (int)(cmd_base_name(origin) - origin);
        char *file;
        size_t skip = !strncmp(start, "$ORIGIN", 7) ? 7 : !strncmp(start, "${ORIGIN}", 9) ? 9 : 0;
        if (skip && skip <= length)
            file = cmd_format("%.*s./%.*s/%s", origin_length, origin, (int)(length - skip),
                              start + skip, name);
        else
            file = cmd_format("%.*s/%s", (int)length, start, name);
        if (is_file(file))
            return file;
        free(file);
        folders += length + (folders[length] == ':');
    }
    return NULL;
}

static char *find_library(const cmd_elf_t *elf, const char *path, const char *name,
                          bool *pinned) {
    *pinned = false;
    if (strchr(name, '/'))
        return is_file(name) ? cmd_format("%s", name) : NULL;
    char *file = elf->runpath ? NULL : find_in(elf->rpath, name, path);
    if (file) {
        *pinned = true;
        return file;
    }
    file = find_in(getenv("LD_LIBRARY_PATH"), name, path);
    if (!file)
        file = find_in(elf->runpath, name, path);
    const path_list_t *folders = system_folders();
    for (unsigned i = 0; !file && i < folders->count; i++) {
        char *candidate = cmd_format("%s/%s", folders->path[i], name);
        if (is_file(candidate))
            file = candidate;
        else
            free(candidate);
    }
    return file;
}

static bool begins(const char *text, const char *start) {
    return !strncmp(text, start, strlen(start));
}

/* Libraries that certainly hold no CUDA: not worth opening. */
static bool is_plain_library(const char *name) {
    static const char *const starts[] = {"libc.so",       "libm.so",   "libdl.so",   "librt.so",
                                         "libpthread.so", "libgcc_s.", "libstdc++.", "ld-linux"};
    for (unsigned i = 0; i < sizeof starts / sizeof starts[0]; i++)
        if (begins(name, starts[i]))
            return true;
    return false;
}

/* ------------------------------------------------------------------ sanitizers */

/* Runtimes of gcc and of clang: start of the name, a symbol that they define if linked in, and true if one must
 * come before every other library: its hooks are not called otherwise, and most end the program at once then. */
static const struct {
    const char *gcc, *clang, *symbol, *name;
    bool first;
} sanitizers[] = {
    {"libasan.", "libclang_rt.asan", "__asan_init", "AddressSanitizer", true},
    {"libhwasan.", "libclang_rt.hwasan", "__hwasan_init", "HWAddressSanitizer", true},
    {"libtsan.", "libclang_rt.tsan", "__tsan_init", "ThreadSanitizer", true},
    {"liblsan.", "libclang_rt.lsan", "__lsan_init", "LeakSanitizer", true},
    {"libubsan.", "libclang_rt.", NULL, "UndefinedBehaviorSanitizer", false},
};
enum { SANITIZERS = sizeof sanitizers / sizeof sanitizers[0] };

/* Returns the number of the sanitizer with this runtime; SANITIZERS: none. */
static int sanitizer_of(const char *name) {
    int i = 0;
    while (i < SANITIZERS && !begins(name, sanitizers[i].gcc) &&
           !begins(name, sanitizers[i].clang))
        i++;
    return i;
}

bool cmd_program_is_sanitizer(const char *entry, size_t length) {
    char *file = cmd_format("%.*s", (int)length, entry);
    bool found = sanitizer_of(cmd_base_name(file)) < SANITIZERS;
    free(file);
    return found;
}

/* `file` is the path of the library `name`, which the program or one of its libraries needs. */
static void note_sanitizer(cmd_program_t *program, const char *name, const char *file) {
    int i = sanitizer_of(name);
    if (i == SANITIZERS || !sanitizers[i].first || program->sanitizer)
        return;
    program->sanitizer = sanitizers[i].name;
    program->sanitizer_file = cmd_format("%s", file ? file : name);
}

static void note_static_sanitizer(cmd_program_t *program, const cmd_elf_t *elf) {
    for (int i = 0; i < SANITIZERS && !program->sanitizer; i++)
        if (sanitizers[i].first && cmd_elf_has_symbol(elf, sanitizers[i].symbol, true))
            program->sanitizer = sanitizers[i].name;
}

/* ------------------------------------------------------------------ names of ours elsewhere */

static bool is_hook(const char *name) {
    static const char *const hooks[] = {
#define HOOK_RUNTIME(symbol, params) #symbol,
#define HOOK_DRIVER(symbol)          #symbol,
#include "bind/hooks.def"
    };
    for (unsigned i = 0; i < sizeof hooks / sizeof *hooks; i++)
        if (!strcmp(hooks[i], name))
            return true;
    return false;
}

char *cmd_program_variable(const cmd_elf_t *elf, const char *path) {
    const char *name = cmd_elf_export(elf, STT_OBJECT, is_hook);
    return name ? cmd_format("%s in %s", name, path) : NULL;
}

const char *cmd_program_namesake(const cmd_elf_t *elf) {
    if (cmd_elf_has_symbol(elf, "__cudaRegisterFatBinary", true))
        return NULL;
    return cmd_elf_export(elf, STT_FUNC, is_hook);
}

/* ------------------------------------------------------------------ the runtime inside */

/* A runtime linked in keeps its error names and the driver's soname even when stripped. */
static cmd_runtime_t static_runtime(const cmd_elf_t *elf) {
    bool runtime = cmd_elf_has_symbol(elf, "libcudart_static_*", true) ||
                   (cmd_elf_has_text(elf, "cudaErrorCudartUnloading") &&
                    cmd_elf_has_text(elf, "libcuda.so.1"));
    if (!runtime && cmd_elf_has_symbol(elf, "__cudaRegisterFatBinary", true))
        runtime = !elf->soname || !begins(elf->soname, "libcudart.so");
    if (!runtime)
        return CMD_RUNTIME_UNSEEN;
    return cmd_elf_has_symbol(elf, STANDIN_SYMBOLS, true) ? CMD_RUNTIME_STANDIN
                                                          : CMD_RUNTIME_STATIC;
}

static bool names_cuda(const cmd_elf_t *elf) {
    return cmd_elf_has_text(elf, "libcuda.so") || cmd_elf_has_text(elf, "libcudart.so");
}

/* Take what `elf` shows; `in` is the library it is, NULL for the program.  The program's own
 * answer wins over that of its libraries, and a linked runtime over a name in a constant. */
static void note_runtime(cmd_program_t *program, const cmd_elf_t *elf, const char *in) {
    static const int rank[] = {
        [CMD_RUNTIME_UNSEEN] = 0, [CMD_RUNTIME_DLOPEN] = 1,  [CMD_RUNTIME_DRIVER] = 2,
        [CMD_RUNTIME_STATIC] = 3, [CMD_RUNTIME_STANDIN] = 3, [CMD_RUNTIME_SHARED] = 4};
    cmd_runtime_t runtime = CMD_RUNTIME_UNSEEN;
    const char *name = NULL;
    for (unsigned i = 0; i < elf->needed_count; i++) {
        if (begins(elf->needed[i], "libcudart.so")) {
            runtime = CMD_RUNTIME_SHARED;
            name = elf->needed[i];
        } else if (begins(elf->needed[i], "libcuda.so") && runtime != CMD_RUNTIME_SHARED) {
            runtime = CMD_RUNTIME_DRIVER;
        }
    }
    if (elf->soname && begins(elf->soname, "libcuda"))
        return; /* the runtime or the driver itself */
    if (runtime != CMD_RUNTIME_SHARED) {
        cmd_runtime_t inside = static_runtime(elf);
        if (inside == CMD_RUNTIME_STATIC && in && !program->static_in)
            program->static_in = cmd_format("%s", in);
        if (inside != CMD_RUNTIME_UNSEEN)
            runtime = inside;
        else if (runtime == CMD_RUNTIME_UNSEEN && names_cuda(elf))
            runtime = CMD_RUNTIME_DLOPEN;
    }
    bool own = in && !program->runtime_in && rank[program->runtime] >= rank[CMD_RUNTIME_STATIC];
    if (own || rank[runtime] <= rank[program->runtime])
        return;
    program->runtime = runtime;
    free(program->runtime_name);
    program->runtime_name = name ? cmd_format("%s", name) : NULL;
    free(program->runtime_in);
    program->runtime_in = in ? cmd_format("%s", cmd_base_name(in)) : NULL;
}

/* The program and the libraries it needs, breadth first. */
static void inspect_libraries(cmd_program_t *program, const char *image) {
    enum { MOST = 300 };
    path_list_t seen = {0};
    list_add(&seen, cmd_format("%s", image));
    for (unsigned at = 0; at < seen.count; at++) {
        cmd_elf_t elf;
        if (cmd_elf_open(&elf, seen.path[at]))
            continue;
        if (elf.is_elf && elf.bits64 && elf.little)
            note_runtime(program, &elf, at ? seen.path[at] : NULL);
        if (elf.is_elf && at && !program->variable)
            program->variable = cmd_program_variable(&elf, seen.path[at]);
        if (elf.is_elf && at == 0)
            note_static_sanitizer(program, &elf);
        for (unsigned i = 0; i < elf.needed_count && seen.count < MOST; i++) {
            const char *name = elf.needed[i];
            bool known = is_plain_library(name), pinned;
            for (unsigned k = 1; k < seen.count && !known; k++)
                known = !strcmp(cmd_base_name(seen.path[k]), name);
            if (known)
                continue;
            char *file = find_library(&elf, seen.path[at], name, &pinned);
            bool cuda = begins(name, "libcud");
            note_sanitizer(program, name, file);
            if (pinned && begins(name, "libcudart.so") && !program->pinned)
                program->pinned = cmd_format("%s", file);
            if (!file && cuda && !program->unresolved)
                program->unresolved = cmd_format("%s", name);
            if (file)
                list_add(&seen, file);
        }
        cmd_elf_close(&elf);
    }
    list_clear(&seen);
}

/* ------------------------------------------------------------------ can a preload reach it */

static void check_privileges(cmd_program_t *program, const char *path) {
    struct stat status;
    if (stat(path, &status))
        return;
    bool uid = (status.st_mode & S_ISUID) && status.st_uid != getuid();
    bool gid =
        (status.st_mode & S_ISGID) && (status.st_mode & S_IXGRP) && status.st_gid != getgid();
    bool capable = getuid() != 0 && getxattr(path, "security.capability", NULL, 0) > 0;
    if (uid || gid || capable)
        set_problem(program, CMD_PROGRAM_SETUID,
                    cmd_format("%s %s: the loader ignores LD_PRELOAD there; start the program "
                               "behind it instead, with the library named inside",
                               path,
                               uid   ? "is setuid"
                               : gid ? "is setgid"
                                     : "has file capabilities"));
}

static void check_image(cmd_program_t *program, const char *path) {
    cmd_elf_t elf;
    int error = cmd_elf_open(&elf, path);
    if (error == EACCES || error == EPERM)
        return; /* executable but not readable: nothing is known, and it may well work */
    if (error) {
        set_problem(program, CMD_PROGRAM_UNUSABLE,
                    cmd_format("%s is no program: %s", path,
                               error == EBADMSG ? "the ELF file is damaged or cut short"
                                                : strerror(error)));
        return;
    }
    if (!elf.is_elf) {
        /* The file is neither ELF nor a script: execvp hands it to the shell. */
    } else if (!elf.bits64 || !elf.little || elf.machine != OUR_MACHINE) {
        set_problem(program, CMD_PROGRAM_FOREIGN,
                    cmd_format("%s is built for another architecture (%s, machine %u): the "
                               "library is 64-bit " OUR_MACHINE_NAME " and cannot load there",
                               path, elf.bits64 ? "64-bit" : "32-bit", elf.machine));
    } else if (!elf.interp) {
        set_problem(program, CMD_PROGRAM_STATIC,
                    cmd_format("%s is a static executable: LD_PRELOAD has no effect; link it "
                               "dynamically (without -static)",
                               path));
    } else if (strstr(elf.interp, "musl") || strstr(elf.interp, "ld-android") ||
               strstr(elf.interp, "uClibc")) {
        set_problem(program, CMD_PROGRAM_FOREIGN,
                    cmd_format("%s uses the loader %s: the library needs glibc, as NVIDIA's "
                               "driver does",
                               path, elf.interp));
    }
    cmd_elf_close(&elf);
}

void cmd_program_inspect(cmd_program_t *program, const char *name) {
    memset(program, 0, sizeof *program);
    program->path = find_program(name);
    struct stat status;
    if (!program->path) {
        set_problem(program, CMD_PROGRAM_MISSING,
                    strchr(name, '/') ? cmd_format("%s: %s", name, strerror(errno))
                                      : cmd_format("%s: no such program in PATH", name));
        return;
    }
    if (stat(program->path, &status) == 0 && S_ISDIR(status.st_mode)) {
        set_problem(program, CMD_PROGRAM_UNUSABLE, cmd_format("%s is a folder", program->path));
        return;
    }
    if (access(program->path, X_OK)) {
        set_problem(program, CMD_PROGRAM_UNUSABLE,
                    cmd_format("%s is not executable (%s); is chmod +x missing?", program->path,
                               strerror(errno)));
        return;
    }
    program->interpreter = script_interpreter(program->path);
    const char *image = program->interpreter ? program->interpreter : program->path;
    if (program->interpreter && access(image, X_OK)) {
        set_problem(
            program, CMD_PROGRAM_MISSING,
            cmd_format("%s is a script for %s, which is not there", program->path, image));
        return;
    }
    if (!program->interpreter)
        check_privileges(program, program->path); /* on scripts the kernel ignores the bits */
    else
        check_privileges(program, image);
    check_image(program, image);
    if (program->problem == CMD_PROGRAM_FINE)
        inspect_libraries(program, image);
}

void cmd_program_clear(cmd_program_t *program) {
    char *const owned[] = {program->path,         program->interpreter, program->problem_text,
                           program->runtime_name, program->runtime_in,  program->static_in,
                           program->pinned,       program->unresolved,  program->sanitizer_file,
                           program->variable};
    for (unsigned i = 0; i < sizeof owned / sizeof owned[0]; i++)
        free(owned[i]);
    memset(program, 0, sizeof *program);
}

/* ------------------------------------------------------------------ saying it */

const char *cmd_program_word(cmd_runtime_t runtime) {
    static const char *const words[] = {
        [CMD_RUNTIME_UNSEEN] = "unseen", [CMD_RUNTIME_SHARED] = "shared",
        [CMD_RUNTIME_STATIC] = "static", [CMD_RUNTIME_STANDIN] = "static-standin",
        [CMD_RUNTIME_DRIVER] = "driver", [CMD_RUNTIME_DLOPEN] = "dlopen"};
    return words[runtime];
}

char *cmd_program_describe(const cmd_program_t *program) {
    char *script = program->interpreter ? cmd_format("a script for %s; ", program->interpreter)
                                        : cmd_format("%s", "");
    char *through = program->runtime_in ? cmd_format(" (through %s)", program->runtime_in)
                                        : cmd_format("%s", "");
    char *text;
    switch (program->runtime) {
    case CMD_RUNTIME_SHARED:
        text = cmd_format("%sshared CUDA runtime %s%s", script, program->runtime_name, through);
        break;
    case CMD_RUNTIME_STATIC:
        text = cmd_format("%sstatic CUDA runtime linked in%s", script, through);
        break;
    case CMD_RUNTIME_STANDIN:
        text = cmd_format("%sstatic stand-in runtime linked in%s", script, through);
        break;
    case CMD_RUNTIME_DRIVER:
        text = cmd_format("%sdriver API, linked to libcuda.so.1%s", script, through);
        break;
    case CMD_RUNTIME_DLOPEN:
        text = cmd_format("%sloads CUDA at run time with dlopen%s", script, through);
        break;
    default:
        text = cmd_format("%sno CUDA library found in it (it may load one later)", script);
    }
    free(script);
    free(through);
    return text;
}
