/* Finds NVIDIA's libraries at run time: by the loader, in a CUDA installation, or among Python's
 * packages. */
#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "right.h"

enum { PATHS = 1024 };

/* The loader's message for the last library that was found but could not be loaded. */
static char refused[PATHS];

/* Opens a library.  If that fails, first loads its companions from its own folder, which the loader
 * may not search. */
static void *open_file(const char *path) {
    static const char *const companions[] = {"libcublasLt", "libnvJitLink", "libcublas",
                                             "libcusparse"};
    char pattern[2 * PATHS];
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    glob_t found;
    for (size_t i = 0; i < sizeof companions / sizeof *companions && !library; i++) {
        snprintf(pattern, sizeof pattern, "%.*s/%s.so.*", (int)(strrchr(path, '/') - path), path,
                 companions[i]);
        if (glob(pattern, 0, NULL, &found))
            continue;
        dlopen(found.gl_pathv[0], RTLD_NOW | RTLD_GLOBAL);
        globfree(&found);
        library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    }
    if (!library)
        snprintf(refused, sizeof refused, ": %s", dlerror());
    return library;
}

static void *open_in(const char *folder, const char *soname) {
    char pattern[2 * PATHS];
    glob_t found;
    void *library = NULL;
    snprintf(pattern, sizeof pattern, "%s/%s", folder, soname);
    if (glob(pattern, 0, NULL, &found))
        return NULL;
    for (size_t i = 0; i < found.gl_pathc && !library; i++)
        library = open_file(found.gl_pathv[i]);
    globfree(&found);
    return library;
}

/* Wheels put libraries into nvidia/NAME/lib, in a folder of Python's search path. */
static void *open_in_python(const char *soname) {
    const char *python = getenv("QUALIFY_PYTHON");
    char command[PATHS], line[PATHS], folder[PATHS + 32];
    void *library = NULL;
    snprintf(command, sizeof command,
             "LD_PRELOAD= '%s' -c 'import sys; print(*sys.path, sep=\"\\n\")' 2>/dev/null",
             python ? python : "python3");
    FILE *from = popen(command, "r");
    while (from && !library && fgets(line, sizeof line, from)) {
        line[strcspn(line, "\n")] = '\0';
        snprintf(folder, sizeof folder, "%s/nvidia/*/lib", line);
        if (*line)
            library = open_in(folder, soname);
    }
    if (from)
        pclose(from);
    return library;
}

void *right_library(const char *what, const char *const *sonames) {
    static const char *const folders[] = {"/usr/local/cuda/lib64", "/usr/local/cuda*/lib64",
                                          "/usr/lib/x86_64-linux-gnu", "/opt/cuda/lib64"};
    void *library = NULL;
    for (int i = 0; sonames[i] && !library; i++) {
        library = dlopen(sonames[i], RTLD_NOW | RTLD_GLOBAL);
        for (size_t j = 0; j < sizeof folders / sizeof *folders && !library; j++)
            library = open_in(folders[j], sonames[i]);
    }
    for (int i = 0; sonames[i] && !library; i++)
        library = open_in_python(sonames[i]);
    if (!library)
        right_skip("%s is not on this machine%s", what, refused);
    return library;
}

void right_find(void *library, const char *name, void *slot) {
    void *found = dlsym(library, name);
    if (!found) {
        fprintf(stderr, "the library has no %s\n", name);
        exit(1);
    }
    memcpy(slot, &found, sizeof found);
}

void right_library_must(int status, const char *call) {
    if (!status)
        return;
    if (gpu.simulated)
        right_skip("needs a GPU: NVIDIA's library does not run on the simulated device (%s: %d)",
                   call, status);
    test_stop(TEST_BROKEN, "%s: %d", call, status);
}

CUdeviceptr right_floats(size_t n, unsigned long long seed) {
    float *values = malloc(n * sizeof *values);
    CUdeviceptr memory = right_alloc(n * sizeof *values);
    if (!values)
        exit(1);
    for (size_t i = 0; i < n; i++)
        values[i] = (float)right_below(&seed, 20001) / 10000.0f - 1.0f;
    MUST(cu.cuMemcpyHtoD_v2(memory, values, n * sizeof *values));
    free(values);
    return memory;
}

unsigned long long right_floats_end(CUdeviceptr at, size_t n) {
    MUST(cu.cuCtxSynchronize());
    unsigned long long sum = right_sum(at, (unsigned)n, RIGHT_LANE(NULL));
    MUST(cu.cuMemFree_v2(at));
    return sum;
}
