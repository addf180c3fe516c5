/* `accelcache-dev bench`: checks that the measured files stay the same; see bench.h.
 *
 * A build or an installation during the run replaces the files one after the other.  Figures of two builds would
 * then stand in one table.  If the library is gone, its programs run without it. */
#include "bench.h"
#include "command.h"

#include <string.h>
#include <sys/stat.h>

/* Returns a text that differs if another file replaces this one; NULL: there is no file.  malloc'd. */
static char *identity(const char *path) {
    struct stat st;
    if (stat(path, &st) != 0)
        return NULL;
    return cmd_format("%lld %lld %lld %lld.%09ld", (long long)st.st_dev, (long long)st.st_ino,
                      (long long)st.st_size, (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
}

/* Returns true if the file is the same as at its first use.  Other code reports a file that never existed. */
static bool is_same(bench_t *b, const char *path) {
    const char *known = json_string_value(json_object_get(b->files, path));
    char *now = identity(path);
    bool same = known ? now && !strcmp(known, now) : !b->changed;
    if (!known && now)
        json_object_set_new(b->files, path, json_string(now));
    if (!same && !b->changed)
        b->changed = cmd_format("%s %s while this ran. What was measured before that stands, nothing after it; "
                                "end what builds or installs there, and start again",
                                path, now ? "was replaced" : "was removed");
    free(now);
    return same;
}

static bool is_same_in(bench_t *b, const char *folder, const char *name) {
    char *path = cmd_format("%s/%s", folder, name);
    bool same = is_same(b, path);
    free(path);
    return same;
}

bool bench_files_same(bench_t *b, const bench_child_t *child, const char *program) {
    bool same = !b->changed && is_same(b, program);
    if (child->preload)
        same = same && is_same(b, b->library);
    if (b->simulator)
        same = same && is_same_in(b, child->sim ? b->simulator : b->free_driver, "libcuda.so.1") &&
               is_same_in(b, b->simulator, "libcudart.so.13");
    if (b->runtime)
        same = same && is_same(b, b->runtime);
    return same;
}

void bench_files_missed(bench_t *b, const char *program) {
    const char *path;
    json_t *known;
    json_object_foreach(b->files, path, known) {
        const char *name = strrchr(path, '/');
        if (name && !strcmp(name + 1, program))
            is_same(b, path);
    }
}
