/* `accelcache-dev bench`: whether the files that are measured stay what they were; see bench.h.
 *
 * A build or an installation beside the run replaces them one after the other: figures of two builds would stand
 * in one table, and where the library is gone its programs run without it. */
#include "bench.h"
#include "command.h"

#include <string.h>
#include <sys/stat.h>

/* What tells a file from the one that came in its place; NULL: there is none.  malloc'd. */
static char *identity(const char *path) {
    struct stat st;
    if (stat(path, &st) != 0)
        return NULL;
    return cmd_format("%lld %lld %lld %lld.%09ld", (long long)st.st_dev, (long long)st.st_ino,
                      (long long)st.st_size, (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
}

/* As when it was first looked at.  What was never there is for others to tell of. */
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
