/* See host_memory.h. */
#include "observe/host_memory.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#include "observe/filter.h"
#include "observe/raw.h"

enum { TEXT = 8192, PATH = 1024 };

static const uint64_t unlimited = UINT64_MAX;

/* The file as text; false: it cannot be read. */
static bool read_text(const char *root, const char *folder, const char *name, char text[TEXT]) {
    char path[PATH];
    int length = snprintf(path, sizeof path, "%s%s%s", root, folder, name);
    if (length < 0 || length >= PATH)
        return false;
    int fd = ac_raw_open(path, O_RDONLY | O_CLOEXEC, 0);
    ssize_t size = fd < 0 ? -1 : ac_raw_read(fd, text, TEXT - 1);
    if (fd >= 0)
        ac_raw_close(fd);
    if (size < 0)
        return false;
    text[size] = '\0';
    return true;
}

/* The number behind `name` at the beginning of a line. */
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

/* Where a version of control groups has its figures, and how memory.stat calls the files' pages that
 * were not used of late. */
typedef struct {
    const char *mount, *limit, *usage, *reclaimable;
} ac_groups_t;

static const ac_groups_t version_1 = {"/sys/fs/cgroup/memory", "/memory.limit_in_bytes",
                                      "/memory.usage_in_bytes", "total_inactive_file "};
static const ac_groups_t version_2 = {"/sys/fs/cgroup", "/memory.max", "/memory.current",
                                      "inactive_file "};

/* What is left of a limit; `unlimited` where there is none.  The usage counts pages of files, which
 * the kernel takes back before the limit refuses anything. */
static uint64_t left_in(const char *root, const char *folder, const ac_groups_t *groups) {
    char text[TEXT];
    uint64_t most, used, files;
    if (!read_text(root, folder, groups->limit, text) || !number_of(text, "", &most) ||
        !read_text(root, folder, groups->usage, text) || !number_of(text, "", &used))
        return unlimited; /* also where version 2 says "max" */
    if (read_text(root, folder, "/memory.stat", text) &&
        number_of(text, groups->reclaimable, &files))
        used -= lower(used, files);
    return most > used ? most - used : 0;
}

/* From the folder of a group to that of the one above it; false: there is none. */
static bool go_up(char *folder, const char *mount) {
    char *slash = strrchr(folder, '/');
    if (!slash || slash < folder + strlen(mount))
        return false;
    *slash = '\0';
    return true;
}

/* The group and those above it: a limit of any holds. */
static uint64_t left_in_groups(const char *root, const ac_groups_t *groups, const char *group) {
    char folder[PATH];
    uint64_t left = unlimited;
    int length = snprintf(folder, sizeof folder, "%s%s", groups->mount, group);
    if (length < 0 || length >= PATH)
        return unlimited;
    do
        left = lower(left, left_in(root, folder, groups));
    while (go_up(folder, groups->mount));
    return left;
}

uint64_t ac_host_memory_below(const char *root) {
    char text[TEXT];
    uint64_t kib, left;
    if (!read_text(root, "/proc", "/meminfo", text) || !number_of(text, "MemAvailable:", &kib))
        return 0;
    left = kib * 1024;
    if (!read_text(root, "/proc", "/self/cgroup", text))
        return left;
    for (char *line = text, *end; line && *line; line = end) {
        end = strchr(line, '\n');
        if (end)
            *end++ = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        if (controllers[1] == '\0')
            left = lower(left, left_in_groups(root, &version_2, group));
        else if (strstr(controllers + 1, "memory"))
            left = lower(left, left_in_groups(root, &version_1, group));
    }
    return left;
}

uint64_t ac_host_memory_left(void) {
    enum { FRESH_NS = 100000000 };
    static _Atomic int64_t asked;
    static _Atomic uint64_t known;
    int64_t now = ac_raw_ns(CLOCK_MONOTONIC), before = atomic_load(&asked);
    if ((!before || now - before > FRESH_NS) &&
        atomic_compare_exchange_strong(&asked, &before, now) && !ac_filter_now())
        atomic_store(&known, ac_host_memory_below(""));
    return atomic_load(&known);
}

/* --- pressure --- */

/* How often the group and those above it came to their limits, version 2. */
static uint64_t events_in_groups(const char *root) {
    static const char mount[] = "/sys/fs/cgroup", own[] = "0::";
    char text[TEXT], folder[PATH];
    uint64_t events = 0, number;
    const char *line = read_text(root, "/proc", "/self/cgroup", text) ? text : NULL;
    while (line && strncmp(line, own, strlen(own)) != 0) {
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    if (!line)
        return 0;
    line += strlen(own);
    int length = snprintf(folder, sizeof folder, "%s%.*s", mount, (int)strcspn(line, "\n"), line);
    if (length < 0 || length >= PATH)
        return 0;
    do {
        if (!read_text(root, folder, "/memory.events", text))
            continue;
        if (number_of(text, "high ", &number))
            events += number;
        if (number_of(text, "max ", &number))
            events += number;
    } while (go_up(folder, mount));
    return events;
}

bool ac_host_pressure_below(const char *root, int64_t now_ns, ac_host_pressure_t *last) {
    enum { SHARE = 20 }; /* of the time, in which some task waited for memory */
    char text[TEXT];
    ac_host_pressure_t now = {.asked_ns = now_ns, .events = events_in_groups(root)};
    if (read_text(root, "/proc", "/pressure/memory", text)) { /* "some" comes first */
        const char *total = strstr(text, "total=");
        if (total)
            number_of(total, "total=", &now.stalled_us);
    }
    uint64_t passed_us = (uint64_t)(now_ns - last->asked_ns) / 1000;
    bool pressed = last->asked_ns && (now.events > last->events ||
                                      (now.stalled_us > last->stalled_us &&
                                       now.stalled_us - last->stalled_us >= passed_us / SHARE));
    *last = now;
    return pressed;
}

bool ac_host_memory_pressed(void) {
    static ac_host_pressure_t last;
    return !ac_filter_now() && ac_host_pressure_below("", ac_raw_ns(CLOCK_MONOTONIC), &last);
}

/* --- nodes --- */

enum { NODES_UNKNOWN, NODES_ONE, NODES_SEVERAL };

static int count_nodes(void) {
    static _Atomic int nodes;
    char text[TEXT];
    int known = atomic_load(&nodes);
    if (known != NODES_UNKNOWN || ac_filter_now())
        return known;
    known = read_text("", "/sys/devices/system/node", "/online", text) && strpbrk(text, "-,")
                ? NODES_SEVERAL
                : NODES_ONE;
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
    syscall(SYS_get_mempolicy, &policy, mask, sizeof mask * 8, NULL, 0);
    if (policy == DEFAULT) {
        syscall(SYS_getcpu, &cpu, &node, NULL);
        return node;
    }
    uint64_t hash = (uint64_t)policy;
    for (int i = 0; i < MASK_WORDS; i++)
        hash = (hash ^ mask[i]) * 0x9e3779b97f4a7c15u;
    return of_policy | (uint32_t)(hash >> 33);
}
