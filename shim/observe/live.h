/* The live page: everything that is counted in this process, in one shared file mapping,
 * so that nothing is lost when the process is killed.
 *
 * The file is DIR/accelcache-<uid>/<space>-<pid>, mode 0400, where DIR is ACCEL_LIVE_DIR or
 * AC_LIVE_DIR, and <space> the inode number of the process's pid namespace (0 where /proc does
 * not tell): processes of several containers that share DIR may have the same pid.  The folder of
 * the user has mode 0700, so that no other user can put anything into it; how many names others
 * put into DIR does not matter.  Where another user holds its name, the process makes a folder of
 * its own, accelcache-<uid>.<6 random characters>; readers look for both.  The shim creates the
 * file at the first CUDA use and removes it after the dump at exit, unless that failed.  The
 * folder stays, so that its name stays the user's; an empty one may be removed at any time.
 * `accelcache stat` renders the file (ac_dump_text), also when the process was killed.  The
 * layout is versioned and self-describing as far as names go: hook names travel in the page.
 *
 * Files of killed processes stay until `accelcache stat --remove`; beyond AC_LIVE_MOST_DEAD of a
 * user, the next process of that user that starts to use CUDA removes the oldest.
 *
 * Readers never map the file: it may be cut short at any time, and a touch behind its end is a
 * signal.  They copy it by pread, after they have seen that it is a regular file of its folder's
 * user.  Nothing is opened that is not, no link is followed, no open waits.
 *
 * The process itself counts by plain stores into the mapping, and a process of the same user (or
 * root) that cuts the file short ends it by SIGBUS at its next count.  What could prevent that
 * was weighed: a sealed memfd is gone with its process, and so are the figures of a killed one; a
 * System V segment stays, but until the machine restarts if its entry in a folder is lost, counts
 * against a limit that all users share, and is not seen by who shares the folder alone; figures
 * that are counted in private memory and written out now and then miss those before the kill.  So
 * mode 0400 keeps all but root from doing it by mistake ("> file", truncate), and a pattern over
 * the files of DIR does not reach it; removing the file does no harm.  Against intent there is
 * nothing to defend: who may do this may send SIGKILL.
 *
 * The file has holes: of rows and device entries only those in use have memory, which is had
 * before the first access, because a full file system answers an access with a signal.  So code
 * that walks them asks first (ac_live_has_row, ac_live_device), and does not even read the
 * others.
 *
 * Writers: device entries under the device's allocator lock; counter rows by their thread
 * alone (row 0 with atomic additions: threads without a row of their own, and threads that
 * have ended); process fields by activation, the configuration string again at each change
 * (ac_live_conf).  Readers of another process take no lock: sums over rows are exact at rest.
 * Readers of this one copy device entries under the allocator's lock (dump.h).
 *
 * Thread-safety is stated per function.  Nothing here calls CUDA. */
#ifndef AC_LIVE_H
#define AC_LIVE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "observe/stats.h"

#define AC_LIVE_MAGIC  0x45564c4143434143ull
#define AC_LIVE_LAYOUT 11 /* of ac_live_t but for the rows of the tables */
#define AC_LIVE_DIR    "/dev/shm"

enum {
    AC_LIVE_DEVICES = 64,  /* devices with a higher ordinal share the last entry */
    AC_LIVE_ROWS = 256,    /* counter rows; row 0 is shared */
    AC_LIVE_MORE = 3840,   /* in the file beside it (live_rows.c) */
    AC_LIVE_HOOKS = 400,   /* upper bound of hook table rows */
    AC_LIVE_WARNINGS = 16, /* distinct warnings kept */
    AC_LIVE_TEXT = 192,    /* bytes of one warning, NUL included */
    AC_LIVE_NAMES = 8192,  /* bytes of all hook names, NULs included */
    AC_LIVE_MODULE = 128,  /* bytes of a module's name, NUL included */
    AC_LIVE_CONF = 4096,   /* bytes of the configuration string kept */
    AC_LIVE_MOST_DEAD = 64 /* files in the folder of a user before the oldest dead ones go */
};

/* Process counters first, then one per hook row. */
enum {
#define PROCESS_COUNTER(name, unit, doc) AC_COUNT_##name,
#include "observe/counters.def"
    AC_COUNT_HOOKS,
    AC_LIVE_COUNTERS = AC_COUNT_HOOKS + AC_LIVE_HOOKS
};

typedef enum { AC_LIVE_RUNNING = 1, AC_LIVE_EXITED = 2 } ac_live_state_t;

typedef enum { AC_LIVE_FRESH, AC_LIVE_TAKEN, AC_LIVE_RETURNED } ac_live_owner_t;

typedef enum { AC_LIVE_NAMELESS, AC_LIVE_NAMING, AC_LIVE_NAMED } ac_live_naming_t;

typedef struct {
    int32_t ordinal;
    char name[96];
    unsigned char uuid[16];
    ac_device_stats_t stats;
    ac_device_counters_t counters;
} ac_live_device_t;

/* Caches of one thread (one per context) whose tally the page keeps; beyond, it has none. */
enum { AC_LIVE_CACHES = 4 };

typedef struct {
    uint64_t counter[AC_LIVE_COUNTERS];
    ac_cache_tally_t cache[AC_LIVE_CACHES];
} ac_live_row_t;

/* What is needed at once comes first, then what has holes: a program of one thread on one device
 * uses nothing of it. */
typedef struct {
    uint64_t magic;
    uint32_t version; /* ac_live_version of the writer: a reader rejects any other */
    uint32_t size;    /* of this structure, likewise */
    uint32_t state;
    int32_t pid, ppid;
    uint32_t conf_turn;      /* odd: `conf` is being written; grows with each change */
    uint64_t space;          /* inode number of the pid namespace that pid is of; 0: unknown */
    uint64_t opened_ns;      /* CLOCK_BOOTTIME at activation: a later start is a reused pid */
    int64_t start_time_ns;   /* CLOCK_REALTIME at activation */
    uint64_t devices;        /* bit i: device[i] is in use */
    uint32_t driver_version; /* cuDriverGetVersion, 0 when unknown */
    uint32_t warning_count;  /* atomically taken; may exceed AC_LIVE_WARNINGS */
    uint32_t hook_count;
    uint32_t rows_more;   /* rows of the file beside it that were ever used */
    uint32_t rows_beside; /* threads whose row is in neither */
    uint64_t total_memory[AC_LIVE_DEVICES]; /* bytes; by device */
    uint32_t row_owner[AC_LIVE_ROWS]; /* ac_live_owner_t; row 0, which all may use, stays FRESH */
    char rank[32];                    /* from the launcher's environment, empty when unknown */
    char host[256];
    char exe[1024];  /* as it was started; see ac_live_exe */
    char argv[2048]; /* NUL-separated, as in /proc/<pid>/cmdline, ends with two NULs */
    char hook_names[AC_LIVE_NAMES]; /* one after the other, each with its NUL */
    char conf[AC_LIVE_CONF];        /* ACCEL_ALLOC_CONF as given, zeros behind it */
    char warning[AC_LIVE_WARNINGS][AC_LIVE_TEXT];
    /* By number, from 1 on: the file's name as the loader has it, the end of one that is too long;
     * empty: the program itself. */
    uint32_t module_state[AC_MODULES]; /* ac_live_naming_t */
    char module[AC_MODULES][AC_LIVE_MODULE];
    ac_host_stats_t pinned; /* under the lock of the pinned memory's pool */
    ac_live_device_t first_device;
    ac_live_row_t row[AC_LIVE_ROWS];
    ac_live_device_t device[AC_LIVE_DEVICES]; /* number 0 is `first_device` */
} ac_live_t;

/* The version of the layout: AC_LIVE_LAYOUT, and the names and order of all rows. */
uint32_t ac_live_version(void);

/* The page of this process; never NULL, and always the same address.  Before ac_live_open, and
 * after a failure of it, it is private memory, so that counting never needs a check; pointers
 * into it (rows, device entries) stay good across ac_live_open and fork. */
extern ac_live_t *ac_live;

/* Where those count (atomically) that have no row of their own: a row beside the page until it is
 * shared, because what is added to the page while it is copied would be lost; then row 0. */
extern _Atomic(ac_live_row_t *) ac_live_common;

/* Whether any thread did so: code that adds to ac_live_common sets it. */
extern _Atomic bool ac_live_added;
static inline void ac_live_note_added(void) {
    if (!atomic_load_explicit(&ac_live_added, memory_order_relaxed))
        atomic_store_explicit(&ac_live_added, true, memory_order_relaxed);
}

/* Add what came into the row beside the page after all; before a dump. */
void ac_live_gather(void);

/* Create the shared page, with memory for all that is needed at once; copy what was counted so
 * far, fill the process fields.  `conf` is the configuration string or NULL; `hook_names` has
 * `hook_count` names, one after the other, in `bytes` bytes.  Returns 0; or an errno value, and
 * then the private page stays in use (the caller says so once).  Call once, from activation. */
int ac_live_open(const char *conf, const char *hook_names, size_t bytes, unsigned hook_count);

/* Record the configuration string that is in force from now on. Not against itself. */
void ac_live_set_conf(const char *conf);

/* Copy the configuration string of `page`, whose process may change it meanwhile.  False: it may be
 * parts of two, as the writer was killed, or kept from running, between them. */
bool ac_live_conf(const ac_live_t *page, char conf[AC_LIVE_CONF]);

/* Mark the page as exited and remove its file.  No allocation, no lock: safe at exit. */
void ac_live_close(void);

/* In a fork child: put private zero memory in place of the shared mapping, so that the child
 * cannot write into its parent's figures.  Async-signal-safe. */
void ac_live_fork_child(void);

/* A counter row for the calling thread: an own one, in the file beside the page when all are taken, or row
 * 0 when the file system is full (*shared is set: additions must be atomic).  Give it back at thread
 * end: its figures are added to row 0.  Where that file cannot be had, or is full, the row is private:
 * other processes see what it has from then on, and never where the process is killed before.  While
 * `rows_beside` is not 0 they are told so, and get no figures of modules, which would not add up. */
ac_live_row_t *ac_live_row_take(bool *shared);
void ac_live_row_return(ac_live_row_t *row);

/* Whether row `i` may be looked at; row 0 always may. */
static inline bool ac_live_has_row(const ac_live_t *page, int i) {
    return i == 0 || __atomic_load_n(&page->row_owner[i], __ATOMIC_ACQUIRE) != AC_LIVE_FRESH;
}

/* Where the entry of a device lies. */
static inline ac_live_device_t *ac_live_device_at(ac_live_t *page, unsigned device) {
    return device ? &page->device[device] : &page->first_device;
}

/* The entry of a device, to be filled and then published.  Where the file system is full it is
 * one beside the page, which this process's dumps show and other readers do not see (*private_p
 * is set); NULL where there is no memory either. */
ac_live_device_t *ac_live_device_take(unsigned device, bool *private_p);
void ac_live_device_publish(unsigned device);

/* The entry of a device that is in use, or NULL. */
const ac_live_device_t *ac_live_device(const ac_live_t *page, unsigned device);

/* Names of hooks in the order of their counters: the first for NULL; NULL behind the last. */
const char *ac_live_hook_next(const ac_live_t *page, const char *name);

/* What the caches of threads did on the device of entry `device` and its statistics do not show
 * yet. */
void ac_live_caches(const ac_live_t *page, unsigned device, ac_cache_sum_t *sum);

/* The number of the module of that name, which has one from now on.  False: another thread is
 * naming one and was kept from running; AC_MODULE_UNKNOWN where there are no more numbers.
 * Thread-safe, no lock. */
bool ac_live_module(const char *name, unsigned *number);

/* Add what the caches of threads have of the modules on the device of entry `device`. */
void ac_live_modules(const ac_live_t *page, unsigned device, ac_modules_t *modules);

/* Sum of one counter over all rows of `page`. */
uint64_t ac_live_sum(const ac_live_t *page, unsigned counter);

/* The program's file.  Asking the kernel costs more than most of the page, so it waits until
 * a dump or `accelcache stat` asks: until then, and of a process that was killed, there is the
 * name by which the program was started. */
enum { AC_LIVE_EXE = sizeof((ac_live_t *)NULL)->exe };
void ac_live_exe(const ac_live_t *page, char exe[AC_LIVE_EXE]);

/* Add a warning (truncated) to the page; equal texts once.  Thread-safe. */
void ac_live_warn(const char *text);

/* Remember where the kernel put the program's arguments: glibc gives them to constructors.
 * Without, they are read from /proc. */
void ac_live_arguments(int argc, char **argv);

/* The folder of live pages: ACCEL_LIVE_DIR where that is one (never for setuid programs), else
 * AC_LIVE_DIR. */
const char *ac_live_dir(void);

/* What ACCEL_LIVE_DIR names and is no folder; NULL. */
const char *ac_live_dir_missing(void);

/* Whether the page that ac_live_open made lies in a folder of its own, for another user holds the
 * name of this user's. */
extern bool ac_live_strayed;

/* Files in the folder where this process has its page, but at most `most` + 1. */
int ac_live_count(int most);

/* Beyond AC_LIVE_MOST_DEAD files in the folder where this process has its page, remove the oldest
 * of dead processes, a few at each call. */
void ac_live_tidy(void);

/* ---- for readers; they allocate ---- */

/* A page's file. */
typedef struct {
    int pid;        /* in its own pid namespace */
    bool here;      /* that namespace is the caller's as well */
    uint64_t space; /* inode number of that namespace, 0 when unknown */
    unsigned user;  /* owner of the folder and of the file */
    char home[64];  /* the folder, below that of live pages */
    char file[64];  /* the file in it */
} ac_live_name_t;

/* Call `visit` for each page of this user, or for root of each user; return how many. */
int ac_live_each(void (*visit)(const ac_live_name_t *name, void *arg), void *arg);

/* The page of process `pid`.  `space` is a namespace, or 0 for the caller's own and, where that
 * has no such page, any.  Of several the one that is most surely that process's: alive, with an
 * owner who owns the process, the newest.  False: there is none. */
bool ac_live_find(int pid, uint64_t space, ac_live_name_t *name);

/* A copy of the page, with `rows_more` rows behind it; ac_live_free releases it.  NULL and a message in `error` when there is none
 * or it is not ours.  Sets *alive to whether its process still runs.  Texts of the copy end with
 * a NUL, and its `exe` is the program's real file where that is known.  64-bit figures are copied
 * by the kernel, which does not promise to copy each at once. */
const ac_live_t *ac_live_read(const ac_live_name_t *name, bool *alive, char *error,
                              size_t error_size);
void ac_live_free(const ac_live_t *page);

/* Remove the page of a process that was killed. Returns 0; EBUSY where it may still run; or
 * another errno value. */
int ac_live_remove(const ac_live_name_t *name);

#endif
