/* See place.h. */
#include "run/place.h"
#include "command.h"
#include "run/program.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Seen from the folder of this command; the first that exists counts. */
static const char *const library_places[] = {"../lib/libaccelcache.so",
                                             "../lib64/libaccelcache.so",
#if defined(__x86_64__)
                                             "../lib/x86_64-linux-gnu/libaccelcache.so",
#else
                                             "../lib/aarch64-linux-gnu/libaccelcache.so",
#endif
                                             NULL};
static const char *const simulator_places[] = {
    "../sim/libcuda.so.1", "../lib/accelcache/sim/libcuda.so.1",
    "../lib64/accelcache/sim/libcuda.so.1",
#if defined(__x86_64__)
    "../lib/x86_64-linux-gnu/accelcache/sim/libcuda.so.1",
#else
    "../lib/aarch64-linux-gnu/accelcache/sim/libcuda.so.1",
#endif
    NULL};

/* The absolute name of the first place that exists.  Links inside the last name are kept:
 * libcuda.so.1 must not become the name of the file that it links to. */
static char *find_place(const char *const *places, const char *what, char **error) {
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0) {
        *error = cmd_format("cannot find %s: /proc/self/exe is not readable (is /proc mounted?)",
                            what);
        return NULL;
    }
    self[length] = '\0';
    *strrchr(self, '/') = '\0';
    for (; *places; places++) {
        char *path = cmd_format("%s/%s", self, *places);
        if (access(path, R_OK) == 0) {
            char *name = strrchr(path, '/');
            *name++ = '\0';
            char *folder = realpath(path, NULL);
            char *result = cmd_format("%s/%s", folder ? folder : path, name);
            free(folder);
            free(path);
            return result;
        }
        free(path);
    }
    *error = cmd_format("%s was not found next to the command (%s), neither as a build tree has "
                        "it nor as an installation does; build or install all of accelcache",
                        what, self);
    return NULL;
}

char *cmd_place_library(const char *given, char **error) {
    char *library;
    if (given) {
        library = realpath(given, NULL);
        if (!library)
            *error = cmd_format("the library %s does not exist", given);
    } else {
        library = find_place(library_places, "libaccelcache.so", error);
    }
    if (library && strpbrk(library, ": \t")) {
        *error = cmd_format("%s: LD_PRELOAD cannot hold a path with a blank or a colon; move the "
                            "installation, or name a copy of the library with --lib",
                            library);
        free(library);
        return NULL;
    }
    return library;
}

char *cmd_place_simulator(char **error) {
    char *path = find_place(simulator_places, "the simulated device (libcuda.so.1)", error);
    if (path)
        *strrchr(path, '/') = '\0';
    return path;
}

char *cmd_place_helper(const char *name, char **error) {
    char *beside = cmd_format("../libexec/accelcache/%s", name);
    const char *const places[] = {beside, name, NULL};
    char *path = find_place(places, name, error);
    free(beside);
    return path;
}

char *cmd_place_prepend(const char *folder, const char *existing) {
    return existing && *existing ? cmd_format("%s:%s", folder, existing)
                                 : cmd_format("%s", folder);
}

char *cmd_place_preload(const char *library, const char *existing) {
    char *first = cmd_format("%s", ""), *rest = cmd_format("%s", "");
    bool named = false;
    while (existing && *existing) {
        size_t length = strcspn(existing, ": \t");
        bool same = length == strlen(library) && !strncmp(existing, library, length);
        if (length && !(same && named)) {
            char **list = cmd_program_is_sanitizer(existing, length) ? &first : &rest;
            char *joined = cmd_format("%s%.*s:", *list, (int)length, existing);
            free(*list);
            *list = joined;
            named |= same;
        }
        existing += length + (existing[length] != '\0');
    }
    char *result = cmd_format("%s%s%s%s", first, named ? "" : library, named ? "" : ":", rest);
    result[strlen(result) - 1] = '\0'; /* the last colon */
    free(first);
    free(rest);
    return result;
}
