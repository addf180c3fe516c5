/* See ipc_lookup.h. */
#include "share/ipc_lookup.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "observe/live_file.h"

/* Reads all bytes in one call.  A shorter file was truncated. */
static bool read_at(int fd, void *data, size_t size, uint64_t at) {
    ssize_t n;
    do
        n = pread(fd, data, size, (off_t)at);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)size;
}

static ac_ipc_answer_t read_entry(int fd, const ac_ipc_token_t *token, ac_ipc_entry_t *entry) {
    ac_ipc_header_t header;
    if (!read_at(fd, &header, sizeof header, 0) || header.magic != AC_IPC_TABLE_MAGIC)
        return AC_IPC_BAD;
    if (header.nonce != token->nonce)
        return AC_IPC_HIDDEN; /* of another process image with this pid: see is_anothers */
    if (header.version != AC_IPC_TABLE_VERSION || header.entry != sizeof *entry || !token->slot ||
        !read_at(fd, entry, sizeof *entry, ac_ipc_slot_at(token->slot)))
        return AC_IPC_BAD;
    if (entry->serial != token->serial)
        return AC_IPC_FREED;
    bool inside = entry->size && entry->size <= entry->mapping &&
                  entry->offset <= entry->mapping - entry->size;
    return inside ? AC_IPC_FOUND : AC_IPC_BAD;
}

/* The name of the exporter's table, with `end`, or of its live page. */
static bool name_of(char *name, size_t size, const char *root, const char *folder,
                    const ac_ipc_token_t *token, const char *end) {
    int n = snprintf(name, size, "%s%s/accelcache-%u%s%s/%u-%d%s", root, folder,
                     (unsigned)geteuid(), token->stray[0] ? "." : "", token->stray,
                     (unsigned)token->space, (int)token->pid, end);
    return n >= 0 && (size_t)n < size;
}

static ac_ipc_answer_t look_in(const char *root, const char *folder, const ac_ipc_token_t *token,
                               ac_ipc_source_t *source, ac_ipc_entry_t *entry) {
    struct stat st;
    if (!name_of(source->name, sizeof source->name, root, folder, token, ".ipc"))
        return AC_IPC_HIDDEN;
    source->fd = ac_live_file_open(AT_FDCWD, source->name, geteuid(), &st);
    if (source->fd < 0)
        return errno == EPERM ? AC_IPC_BAD : AC_IPC_HIDDEN;
    ac_ipc_answer_t answer = read_entry(source->fd, token, entry);
    if (answer != AC_IPC_FOUND)
        close(source->fd);
    return answer;
}

/* Returns true if the process image that now has the neighbour's pid keeps its live page in that folder.
 * Its table would lie next to the page.  If the token names another table, the token's image has ended: by exec, or
 * because another process got the pid. */
static bool is_anothers(const char *root, const char *folder, const ac_ipc_token_t *token) {
    char name[sizeof((ac_ipc_source_t *)NULL)->name];
    uint64_t opened_ns;
    struct stat st;
    int fd = name_of(name, sizeof name, root, folder, token, "")
                 ? ac_live_file_open(AT_FDCWD, name, geteuid(), &st)
                 : -1;
    if (fd < 0)
        return false;
    bool runs = read_at(fd, &opened_ns, sizeof opened_ns, offsetof(ac_live_t, opened_ns)) &&
                !ac_live_gone(fd, true, (int)token->pid, opened_ns);
    close(fd);
    return runs;
}

/* Returns true if the process may be looked into: a process of another user could have file systems that do
 * not answer. */
static bool is_of_this_user(int pid) {
    char name[32];
    struct stat st;
    snprintf(name, sizeof name, "/proc/%d", pid);
    return stat(name, &st) == 0 && st.st_uid == geteuid();
}

static bool is_neighbour(const ac_ipc_token_t *token) {
    uint64_t space = ac_live_space();
    return space && (uint32_t)space == token->space;
}

ac_ipc_answer_t ac_ipc_lookup(const ac_ipc_token_t *token, ac_ipc_source_t *source,
                              ac_ipc_entry_t *entry) {
    const char *const folder[] = {ac_live_dir(), AC_LIVE_DIR};
    int saved = errno, folders = strcmp(folder[0], folder[1]) ? 2 : 1;
    bool neighbour = is_neighbour(token) && ac_live_proc_is_ours(), ended = false;
    ac_ipc_answer_t answer = AC_IPC_HIDDEN, worst = AC_IPC_HIDDEN;
    char root[32] = "";
    int turns = neighbour && is_of_this_user(token->pid) ? 2 * folders : folders;
    for (int turn = 0; turn < turns; turn++) {
        if (turn == folders)
            snprintf(root, sizeof root, "/proc/%d/root", (int)token->pid);
        answer = look_in(root, folder[turn % folders], token, source, entry);
        if (answer == AC_IPC_FOUND || answer == AC_IPC_FREED)
            break;
        if (answer == AC_IPC_BAD)
            worst = answer;
        else
            ended |= neighbour && is_anothers(root, folder[turn % folders], token);
        answer = worst;
    }
    if (answer == AC_IPC_HIDDEN && neighbour &&
        (ended || (kill(token->pid, 0) != 0 && errno == ESRCH)))
        answer = AC_IPC_ENDED;
    errno = saved;
    return answer;
}

bool ac_ipc_lookup_again(const ac_ipc_source_t *source, const ac_ipc_token_t *token) {
    uint64_t serial;
    int saved = errno;
    bool same = read_at(source->fd, &serial, sizeof serial, ac_ipc_slot_at(token->slot)) &&
                serial == token->serial;
    errno = saved;
    return same;
}

void ac_ipc_lookup_end(ac_ipc_source_t *source, const ac_ipc_token_t *token, bool tidy) {
    int saved = errno;
    /* While a process has the pid, the name may be its own table's from one moment to the next. */
    if (tidy && is_neighbour(token) && kill(token->pid, 0) != 0 && errno == ESRCH)
        unlink(source->name);
    close(source->fd);
    errno = saved;
}
