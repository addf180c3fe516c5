/* See host_memory.h. */
#include "observe/host_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#include "observe/filter.h"
#include "observe/raw.h"
#include "observe/scratch.h"

enum { TEXT = 8192, PATH = 1024 };

/* Buffers of one check, which may be too large for a stack. */
typedef struct {
    char groups[TEXT]; /* /proc/self/cgroup */
    char text[TEXT];   /* any other file */
    char folder[PATH], path[PATH];
} ac_look_t;
_Static_assert(sizeof(ac_look_t) <= AC_SCRATCH, "a look has no room");

static const uint64_t unlimited = UINT64_MAX;

/* Reads a file as text.  Returns false if it cannot be read.  Keeps errno. */
static bool read_text(ac_look_t *look, const char *root, const char *folder, const char *name,
                      char text[TEXT]) {
    int length = snprintf(look->path, sizeof look->path, "%s%s%s", root, folder, name);
    if (length < 0 || length >= PATH)
        return false;
    int saved = errno;
    int fd = ac_raw_open(look->path, O_RDONLY | O_CLOEXEC, 0);
    ssize_t size = fd < 0 ? -1 : ac_raw_read(fd, text, TEXT - 1);
    if (fd >= 0)
        ac_raw_close(fd);
    errno = saved;
    if (size < 0)
        return false;
    text[size] = '\0';
    return true;
}

/* Reads the number after `name` at the start of a line. */
static bool number_of(const char *text, const char *name, uint64_t *number) {
    size_t length = strlen(name);
    while (text && strncmp(text, name, length) != 0) {
        text = strchr(text, '\n');
        text = text ? text + 1 : NULL;
    }
    if (!text)
        return false;
    text += length;
    while (*text == ' ' || *text == '\t')
        text++;
    if (*text < '0' || *text > '9')
        return false;
    for (*number = 0; *text >= '0' && *text <= '9'; text++)
        *number =
            *number > UINT64_MAX / 16 ? UINT64_MAX / 2 : *number * 10 + (uint64_t)(*text - '0');
    return true;
}

static uint64_t lower(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* File names of a version of control groups, and the name of inactive file pages in its memory.stat. */
typedef struct {
    const char *mount, *limit, *usage, *reclaimable;
} ac_groups_t;

static const ac_groups_t version_1 = {"/sys/fs/cgroup/memory", "/memory.limit_in_bytes",
                                      "/memory.usage_in_bytes", "total_inactive_file "};
static const ac_groups_t version_2 = {"/sys/fs/cgroup", "/memory.max", "/memory.current",
                                      "inactive_file "};

/* Returns the rest of a group's limit; `unlimited` if it has none.  Inactive file pages do not count as used: the
 * kernel reclaims them before the limit refuses an allocation. */
static uint64_t left_in(ac_look_t *look, const char *root, const ac_groups_t *groups) {
    char *text = look->text;
    uint64_t most, used, files;
    if (!read_text(look, root, look->folder, groups->limit, text) || !number_of(text, "", &most) ||
        !read_text(look, root, look->folder, groups->usage, text) || !number_of(text, "", &used))
        return unlimited; /* also for "max" of version 2 */
    if (read_text(look, root, look->folder, "/memory.stat", text) &&
        number_of(text, groups->reclaimable, &files))
        used -= lower(used, files);
    return most > used ? most - used : 0;
}

/* Changes `folder` to that of the parent group.  Returns false if there is none. */
static bool go_up(char *folder, const char *mount) {
    char *slash = strrchr(folder, '/');
    if (!slash || slash < folder + strlen(mount))
        return false;
    *slash = '\0';
    return true;
}

/* Returns the smallest rest of the limits of the group and its ancestors. */
static uint64_t left_in_groups(ac_look_t *look, const char *root, const ac_groups_t *groups,
                               const char *group) {
    uint64_t left = unlimited;
    int length = snprintf(look->folder, sizeof look->folder, "%s%s", groups->mount, group);
    if (length < 0 || length >= PATH)
        return unlimited;
    do
        left = lower(left, left_in(look, root, groups));
    while (go_up(look->folder, groups->mount));
    return left;
}

static uint64_t memory_below(ac_look_t *look, const char *root) {
    uint64_t kib, left;
    if (!read_text(look, root, "/proc", "/meminfo", look->text) ||
        !number_of(look->text, "MemAvailable:", &kib))
        return 0;
    left = kib * 1024;
    if (!read_text(look, root, "/proc", "/self/cgroup", look->groups))
        return left;
    for (char *line = look->groups, *end; line && *line; line = end) {
        end = strchr(line, '\n');
        if (end)
            *end++ = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        if (controllers[1] == '\0')
            left = lower(left, left_in_groups(look, root, &version_2, group));
        else if (strstr(controllers + 1, "memory"))
            left = lower(left, left_in_groups(look, root, &version_1, group));
    }
    return left;
}

uint64_t ac_host_memory_below(const char *root) {
    ac_look_t *look = ac_scratch_take();
    uint64_t left = look ? memory_below(look, root) : 0;
    ac_scratch_give(look);
    return left;
}

/* One thread reads a new figure, while others use the last one.  Before the first figure, each thread reads. */
uint64_t ac_host_memory_left(void) {
    enum { FRESH_NS = 100000000 };
    static _Atomic int64_t asked; /* 0: never */
    static _Atomic uint64_t known;
    int64_t now = ac_raw_ns(CLOCK_MONOTONIC), before = atomic_load(&asked);
    bool looks = !before || (now - before > FRESH_NS &&
                             atomic_compare_exchange_strong(&asked, &before, now));
    ac_look_t *look = looks && !ac_filter_now() ? ac_scratch_take() : NULL;
    if (look) {
        atomic_store(&known, memory_below(look, ""));
        atomic_store(&asked, now); /* last: a thread that finds it set uses the figure */
    }
    ac_scratch_give(look);
    return atomic_load(&known);
}

/* --- pressure --- */

enum { SHARE = 20 }; /* of the time, in which some task waited for memory */

/* Returns true if tasks waited for more than that share since the last read of this file.  If the file cannot be
 * read, *last is unchanged. */
static bool is_stalled(ac_look_t *look, const char *root, const char *folder, const char *name,
                       int64_t now_ns, ac_host_stall_t *last) {
    char *text = look->text;
    const char *total = read_text(look, root, folder, name, text) ? strstr(text, "total=") : NULL;
    ac_host_stall_t now = {.asked_ns = now_ns}, before = *last; /* "some" comes first */
    if (!total || !number_of(total, "total=", &now.us))
        return false;
    *last = now;
    return before.asked_ns && now.us > before.us &&
           now.us - before.us >= (uint64_t)(now_ns - before.asked_ns) / 1000 / SHARE;
}

/* Returns true if the group reached memory.high or memory.max since the last read. */
static bool came_to_limit(ac_look_t *look, const char *root, ac_host_group_t *last) {
    char *text = look->text;
    uint64_t high, max, before = last->events;
    if (!read_text(look, root, look->folder, "/memory.events", text) ||
        !number_of(text, "high ", &high) ||
        !number_of(text, "max ", &max))
        return false;
    bool known = last->known;
    last->events = high + max;
    last->known = true;
    return known && last->events > before;
}

/* Returns true if memory is short in the group or an ancestor (version 2).  A group also reaches its limit when the
 * kernel reclaims its file pages.  So memory counts as short only if tasks of the group also wait. */
static bool groups_are_short(ac_look_t *look, const char *root, int64_t now_ns,
                             ac_host_pressure_t *last) {
    static const char own[] = "0::";
    const char *line =
        read_text(look, root, "/proc", "/self/cgroup", look->groups) ? look->groups : NULL;
    while (line && strncmp(line, own, strlen(own)) != 0) {
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    if (!line)
        return false;
    line += strlen(own);
    int length = snprintf(look->folder, sizeof look->folder, "%s%.*s", version_2.mount,
                          (int)strcspn(line, "\n"), line);
    bool any = false;
    if (length < 0 || length >= PATH)
        return false;
    for (int i = 0; i < AC_HOST_GROUPS; i++) {
        ac_host_group_t *group = &last->group[i];
        bool limited = came_to_limit(look, root, group);
        bool stalled =
            is_stalled(look, root, look->folder, "/memory.pressure", now_ns, &group->stall);
        any |= limited && stalled;
        if (!go_up(look->folder, version_2.mount))
            break;
    }
    return any;
}

bool ac_host_pressure_below(const char *root, int64_t now_ns, ac_host_pressure_t *last) {
    ac_look_t *look = ac_scratch_take();
    bool groups = look && groups_are_short(look, root, now_ns, last);
    bool machine =
        look && is_stalled(look, root, "/proc", "/pressure/memory", now_ns, &last->machine);
    ac_scratch_give(look);
    return groups || machine;
}

bool ac_host_memory_pressed(void) {
    static ac_host_pressure_t last;
    return !ac_filter_now() && ac_host_pressure_below("", ac_raw_ns(CLOCK_MONOTONIC), &last);
}

/* --- nodes --- */

enum { NODES_UNKNOWN, NODES_ONE, NODES_SEVERAL };

static int count_nodes(void) {
    static _Atomic int nodes;
    int known = atomic_load(&nodes);
    if (known != NODES_UNKNOWN || ac_filter_now())
        return known;
    ac_look_t *look = ac_scratch_take();
    if (!look)
        return known;
    known = read_text(look, "", "/sys/devices/system/node", "/online", look->text) &&
                    strpbrk(look->text, "-,")
                ? NODES_SEVERAL
                : NODES_ONE;
    ac_scratch_give(look);
    atomic_store(&nodes, known);
    return known;
}

uint32_t ac_host_memory_node(void) {
    enum { MASK_WORDS = 16, DEFAULT = 0 };
    const uint32_t of_policy = 1u << 31;
    unsigned long mask[MASK_WORDS] = {0};
    unsigned cpu = 0, node = 0;
    int policy = DEFAULT;
    if (count_nodes() == NODES_ONE || ac_filter_now())
        return 0;
    int saved = errno;
    syscall(SYS_get_mempolicy, &policy, mask, sizeof mask * 8, NULL, 0);
    if (policy == DEFAULT)
        syscall(SYS_getcpu, &cpu, &node, NULL);
    errno = saved;
    if (policy == DEFAULT)
        return node;
    uint64_t hash = (uint64_t)policy;
    for (int i = 0; i < MASK_WORDS; i++)
        hash = (hash ^ mask[i]) * 0x9e3779b97f4a7c15u;
    return of_policy | (uint32_t)(hash >> 33);
}
