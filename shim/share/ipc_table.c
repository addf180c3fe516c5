/* See ipc_table.h. */
#include "share/ipc_table.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lock.h"
#include "observe/filter.h"
#include "observe/live_file.h"
#include "observe/raw.h"
#include "observe/write.h"
#include "share/ipc_home.h"

/* Empty slots, and which were never used.  Nothing is read back from the file, which others may
 * write to. */
static ac_mutex_t slots_lock = AC_MUTEX(LEAF);
static ac_mutex_t grow_lock = AC_MUTEX(IPC);
static unsigned char *_Atomic chunk[AC_IPC_CHUNKS];
static uint32_t next_empty[AC_IPC_CHUNKS * AC_IPC_SLOTS]; /* of a list; untouched where unused */
static uint32_t first_empty, fresh, end; /* slots from `fresh` to `end` were never used */

static struct {
    char name[512];
    dev_t device;
    ino_t inode;
    pid_t pid;
    _Atomic uint64_t nonce; /* 0: there is no file */
    uint32_t space;
} table;

static ac_ipc_entry_t *entry_of(uint32_t slot) {
    return (ac_ipc_entry_t *)(void *)(atomic_load(&chunk[slot / AC_IPC_SLOTS]) +
                                      ac_ipc_slot_at(slot) % AC_IPC_CHUNK);
}

/* ---- the file ---- */

/* A file of this name belongs to a dead process with this pid, or to a living process of another pid
 * namespace if namespaces are not known. */
static int remove_stale(const char *name, uint64_t space) {
    struct stat st;
    int fd = ac_live_file_open(AT_FDCWD, name, geteuid(), &st);
    if (fd < 0 && errno != EPERM)
        return errno == ENOENT ? 0 : errno;
    bool gone = space || fd < 0 || ac_live_gone(fd, false, 0, 0);
    if (fd >= 0)
        close(fd);
    return !gone ? EEXIST : unlink(name) == 0 || errno == ENOENT ? 0 : errno;
}

static int create(uint64_t space, int *fd) {
    const char *home;
    int none = ac_ipc_home(&home);
    if (none)
        return none;
    int n = snprintf(table.name, sizeof table.name, "%s/%u-%d.ipc", home, (unsigned)space,
                     (int)getpid());
    if (n < 0 || (size_t)n >= sizeof table.name)
        return ENAMETOOLONG;
    for (int attempt = 0;; attempt++) {
        *fd = ac_open_above(table.name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (*fd >= 0)
            return 0;
        int failure = errno == EEXIST && attempt == 0 ? remove_stale(table.name, space) : errno;
        if (failure)
            return failure;
    }
}

static int open_again(int *fd) {
    struct stat st;
    *fd = ac_open_above(table.name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0);
    if (*fd < 0)
        return errno;
    if (fstat(*fd, &st) == 0 && st.st_dev == table.device && st.st_ino == table.inode)
        return 0;
    close(*fd);
    return ESTALE;
}

/* One more chunk has memory and is mapped. */
static int add_chunk(int fd, unsigned number) {
    off_t at = (off_t)number * AC_IPC_CHUNK;
    int failure;
    do
        failure = posix_fallocate(fd, at, AC_IPC_CHUNK);
    while (failure == EINTR);
    if (failure)
        return failure;
    void *memory = mmap(NULL, AC_IPC_CHUNK, PROT_READ | PROT_WRITE, MAP_SHARED, fd, at);
    if (memory == MAP_FAILED)
        return errno;
    atomic_store(&chunk[number], memory);
    return 0;
}

/* The file becomes that of this process with its magic, last. */
static int start(int fd, uint64_t space) {
    struct stat st;
    uint64_t nonce = 0;
    if (fstat(fd, &st) != 0)
        return errno;
    if (getrandom(&nonce, sizeof nonce, GRND_NONBLOCK) != (ssize_t)sizeof nonce || !nonce)
        return EAGAIN;
    table.device = st.st_dev;
    table.inode = st.st_ino;
    table.space = (uint32_t)space;
    table.pid = getpid();
    ac_ipc_header_t *header = (ac_ipc_header_t *)(void *)atomic_load(&chunk[0]);
    header->version = AC_IPC_TABLE_VERSION;
    header->uid = (uint32_t)geteuid();
    header->pid = (int32_t)table.pid;
    header->entry = sizeof(ac_ipc_entry_t);
    header->nonce = nonce;
    header->opened_ns = ac_live->opened_ns;
    __atomic_store_n(&header->magic, AC_IPC_TABLE_MAGIC, __ATOMIC_RELEASE);
    atomic_store(&table.nonce, nonce);
    return 0;
}

static int make(unsigned number) {
    int fd = -1;
    uint64_t space = ac_live_space();
    int failure = number == 0 ? create(space, &fd) : open_again(&fd);
    if (failure)
        return failure;
    failure = add_chunk(fd, number);
    if (!failure && number == 0)
        failure = start(fd, space);
    close(fd);
    if (failure && number == 0) {
        unlink(table.name);
        if (atomic_load(&chunk[0]))
            munmap(atomic_exchange(&chunk[0], NULL), AC_IPC_CHUNK);
    }
    return failure;
}

/* ---- slots ---- */

static bool take(uint32_t *slot) {
    ac_lock(&slots_lock);
    *slot = first_empty;
    if (*slot)
        first_empty = next_empty[*slot];
    else if (fresh < end)
        *slot = fresh++;
    ac_unlock(&slots_lock);
    return *slot;
}

static int grow(void) {
    ac_signal_hold_t hold;
    unsigned number = end / AC_IPC_SLOTS;
    if (number == AC_IPC_CHUNKS)
        return ENOSPC;
    if (ac_filter_now()) /* the program may have forbidden these system calls */
        return EPERM;
    ac_signals_hold(&hold); /* a file size limit sends one */
    int failure = make(number);
    ac_signals_release(&hold);
    if (failure)
        return failure;
    ac_lock(&slots_lock);
    fresh = number * AC_IPC_SLOTS + (number == 0); /* behind the header */
    end = (number + 1) * AC_IPC_SLOTS;
    ac_unlock(&slots_lock);
    return 0;
}

int ac_ipc_table_reserve(uint32_t *slot) {
    int saved = errno, failure = 0;
    if (take(slot))
        return 0;
    ac_lock(&grow_lock);
    while (!failure && !take(slot)) /* another thread may have made room */
        failure = grow();
    ac_unlock(&grow_lock);
    errno = saved;
    return failure;
}

void ac_ipc_table_fill(uint32_t slot, const ac_ipc_entry_t *entry) {
    ac_ipc_entry_t *to = entry_of(slot);
    memcpy((char *)to + sizeof to->serial, (const char *)entry + sizeof entry->serial,
           sizeof *to - sizeof to->serial);
}

void ac_ipc_table_publish(uint32_t slot, uint64_t serial) {
    ac_lock(&slots_lock);
    if (slot && slot < end) {
        __atomic_store_n(&entry_of(slot)->serial, serial, __ATOMIC_SEQ_CST);
        if (!serial) {
            next_empty[slot] = first_empty;
            first_empty = slot;
        }
    }
    ac_unlock(&slots_lock);
}

void ac_ipc_table_token(int kind, uint32_t slot, uint64_t serial,
                        unsigned char bytes[AC_IPC_TOKEN]) {
    ac_ipc_token_t token = {.kind = (uint8_t)kind,
                            .pid = (int32_t)table.pid,
                            .space = table.space,
                            .slot = slot,
                            .nonce = atomic_load(&table.nonce),
                            .serial = serial};
    if (ac_live_strayed && ac_live_file.name[0])
        memcpy(token.stray, ac_live_file.home + strlen(ac_live_file.home) - AC_IPC_STRAY,
               AC_IPC_STRAY);
    ac_ipc_token_write(&token, bytes);
}

bool ac_ipc_table_find(const ac_ipc_token_t *token, ac_ipc_entry_t *entry) {
    uint64_t nonce = atomic_load(&table.nonce);
    if (!nonce || token->nonce != nonce)
        return false;
    ac_lock(&slots_lock);
    if (token->slot && token->slot < end)
        *entry = *entry_of(token->slot);
    else
        memset(entry, 0, sizeof *entry);
    ac_unlock(&slots_lock);
    return true;
}

/* ---- the end ---- */

void ac_ipc_table_close(void) {
    struct stat st;
    if (!atomic_load(&table.nonce) || table.pid != ac_raw_getpid())
        return;
    if (ac_raw_lstat(table.name, &st) == 0 && st.st_dev == table.device &&
        st.st_ino == table.inode)
        ac_raw_unlink(table.name);
}

void ac_ipc_table_fork_child(void) {
    slots_lock = (ac_mutex_t)AC_MUTEX(LEAF);
    grow_lock = (ac_mutex_t)AC_MUTEX(IPC);
    for (unsigned i = 0; i < AC_IPC_CHUNKS && atomic_load(&chunk[i]); i++) {
        munmap(atomic_load(&chunk[i]), AC_IPC_CHUNK);
        atomic_store(&chunk[i], NULL);
    }
    first_empty = fresh = end = 0;
    atomic_store(&table.nonce, 0);
    ac_ipc_home_fork_child();
}
