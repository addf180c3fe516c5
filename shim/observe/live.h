/* The live page: all counters of this process in a shared file mapping, so that nothing is lost when
 * the process is killed.
 *
 * The file is DIR/accelcache-<uid>/<space>-<pid>, mode 0400.  DIR is ACCEL_LIVE_DIR or AC_LIVE_DIR.  <space> is
 * the inode number of the process's pid namespace, 0 if /proc does not tell it: processes of several
 * containers that share DIR may have the same pid.  The user's folder has mode 0700, so that no other user can
 * put files into it.  If another user holds its name, the process makes a folder
 * accelcache-<uid>.<6 random characters>; readers look for both.  The library creates the file at the first use
 * of CUDA and removes it after the dump at exit, unless the dump failed.  The folder stays, and its name with the
 * user; an empty one may be removed at any time.  `accelcache stat` renders the file (ac_dump_text), also after
 * a kill.  The layout has a version; the page contains the names of its hooks.
 *
 * Files of killed processes stay until `accelcache stat --remove`.  If a user has more than AC_LIVE_MOST_DEAD files,
 * that user's next process removes the oldest ones when it starts to use CUDA.
 *
 * Readers never map the file, since an access beyond a new end is a signal.  They check that it is a regular file
 * of the folder's user, and copy it by pread.  They follow no link, and no open waits.
 *
 * The process counts by plain stores into the mapping.  If a process of the same user (or root) truncates the
 * file, the next count ends this one by SIGBUS.  The alternatives are worse.  A sealed memfd ends with its
 * process.  A System V segment counts against a limit of all users, and readers that share only the folder do not
 * see it.  If its entry in a folder is lost, it stays until the machine restarts.  Figures in private memory,
 * written from time to time, miss the last ones before a kill.  Mode 0400 keeps all but root from a truncation
 * by mistake ("> file", truncate, a pattern over the files of DIR).  A removal does no harm.  There is no defence
 * against intent: the same users may send SIGKILL.
 *
 * The file has holes: only rows and device entries in use have memory.  It is allocated before the first access,
 * because a full file system answers an access with a signal.  Code that walks them asks ac_live_has_row and
 * ac_live_device first, and does not read the others.
 *
 * Writers: device entries under the device's allocator lock; a counter row by its thread alone, row 0 with atomic
 * additions (for threads without a row, and for ended threads); process fields by activation; the configuration
 * string at each change (ac_live_conf).  Readers of other processes take no lock: sums over rows are exact at
 * rest.  Readers of this process copy device entries under the allocator's lock (dump.h).
 *
 * Thread-safety is stated per function.  This file does not call CUDA. */
#ifndef AC_LIVE_H
#define AC_LIVE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "observe/stats.h"

#define AC_LIVE_MAGIC  0x45564c4143434143ull
#define AC_LIVE_LAYOUT 11 /* of ac_live_t without the rows of the tables */
#define AC_LIVE_DIR    "/dev/shm"

enum {
    AC_LIVE_DEVICES = 64,  /* devices with a higher ordinal share the last entry */
    AC_LIVE_ROWS = 256,    /* counter rows; row 0 is shared */
    AC_LIVE_MORE = 3840,   /* rows in the file next to it (live_rows.c) */
    AC_LIVE_HOOKS = 400,   /* upper bound of hook table rows */
    AC_LIVE_WARNINGS = 16, /* distinct warnings kept */
    AC_LIVE_TEXT = 192,    /* bytes of one warning, NUL included */
    AC_LIVE_NAMES = 8192,  /* bytes of all hook names, NULs included */
    AC_LIVE_MODULE = 128,  /* bytes of a module's name, NUL included */
    AC_LIVE_CONF = 4096,   /* bytes of the configuration string kept */
    AC_LIVE_MOST_DEAD = 64 /* files in a user's folder before the oldest dead ones are removed */
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

/* Caches of one thread (one per context) with a tally in the page; further ones have none. */
enum { AC_LIVE_CACHES = 4 };

typedef struct {
    uint64_t counter[AC_LIVE_COUNTERS];
    ac_cache_tally_t cache[AC_LIVE_CACHES];
} ac_live_row_t;

/* Members that every program needs come first, then members with holes: a program with one thread and one device
 * uses none of these. */
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
    uint32_t rows_more;   /* rows of the file next to it that were ever used */
    uint32_t rows_beside; /* threads with a private row, in neither file */
    uint64_t total_memory[AC_LIVE_DEVICES]; /* bytes; by device */
    uint32_t row_owner[AC_LIVE_ROWS]; /* ac_live_owner_t; row 0, which all may use, stays FRESH */
    char rank[32];                    /* from the launcher's environment, empty when unknown */
    char host[256];
    char exe[1024];  /* as it was started; see ac_live_exe */
    char argv[2048]; /* NUL-separated, as in /proc/<pid>/cmdline, ends with two NULs */
    char hook_names[AC_LIVE_NAMES]; /* one after the other, each with its NUL */
    char conf[AC_LIVE_CONF];        /* ACCEL_ALLOC_CONF as given, zeros behind it */
    char warning[AC_LIVE_WARNINGS][AC_LIVE_TEXT];
    /* File names of modules from number 1 on, as the loader has them; a long name keeps its end; empty: the
     * program itself. */
    uint32_t module_state[AC_MODULES]; /* ac_live_naming_t */
    char module[AC_MODULES][AC_LIVE_MODULE];
    ac_host_stats_t pinned; /* under the lock of the pinned memory's pool */
    ac_live_device_t first_device;
    ac_live_row_t row[AC_LIVE_ROWS];
    ac_live_device_t device[AC_LIVE_DEVICES]; /* number 0 is `first_device` */
} ac_live_t;

/* Returns the version of the layout, made of AC_LIVE_LAYOUT and the names and order of all rows. */
uint32_t ac_live_version(void);

/* The page of this process; never NULL, and always at the same address.  Before ac_live_open, and after it
 * failed, the page is private memory, so that counting never needs a check.  Pointers into it (rows, device
 * entries) stay valid across ac_live_open and fork. */
extern ac_live_t *ac_live;

/* The row in which threads without one count, atomically.  It is a row outside of the page until the page is shared,
 * because additions during the copy would be lost; then row 0. */
extern _Atomic(ac_live_row_t *) ac_live_common;

/* True once a thread added to ac_live_common; the adding code sets it. */
extern _Atomic bool ac_live_added;
static inline void ac_live_note_added(void) {
    if (!atomic_load_explicit(&ac_live_added, memory_order_relaxed))
        atomic_store_explicit(&ac_live_added, true, memory_order_relaxed);
}

/* Adds late counts of the row outside of the page to row 0; called before a dump. */
void ac_live_gather(void);

/* Creates the shared page with memory for its first members, copies the counters so far, and fills the process
 * fields.  `conf` is the configuration string or NULL; `hook_names` has
 * `hook_count` names, one after the other, in `bytes` bytes.  Returns 0; or an errno value, and
 * then the private page stays in use (the caller says so once).  Call once, from activation. */
int ac_live_open(const char *conf, const char *hook_names, size_t bytes, unsigned hook_count);

/* Records the configuration string in force.  One thread at a time. */
void ac_live_set_conf(const char *conf);

/* Copies the configuration string of `page`; its process may change it meanwhile.  False: the copy may be a mix of
 * two strings, because the writer was killed or does not run. */
bool ac_live_conf(const ac_live_t *page, char conf[AC_LIVE_CONF]);

/* Marks the page as exited and removes its file.  Safe at exit: it takes no lock and allocates nothing. */
void ac_live_close(void);

/* Called in a fork child: replaces the shared mapping by private zero memory, so that the child cannot write into its
 * parent's figures.  Async-signal-safe. */
void ac_live_fork_child(void);

/* Takes a counter row for the calling thread, from the page or from the file next to it.  If the file system is full,
 * it returns row 0 and sets *shared: additions must be atomic.  If the other file cannot be made or is full, the row
 * is private.  Other processes see the figures of a private row after _return, and never if the process is killed
 * before.  While `rows_beside` is not 0, readers report that, and show no figures of modules, which would not add up.
 * _return gives the row back when the thread ends, and adds its figures to row 0. */
ac_live_row_t *ac_live_row_take(bool *shared);
void ac_live_row_return(ac_live_row_t *row);

/* Returns true if row `i` may be read; row 0 always may. */
static inline bool ac_live_has_row(const ac_live_t *page, int i) {
    return i == 0 || __atomic_load_n(&page->row_owner[i], __ATOMIC_ACQUIRE) != AC_LIVE_FRESH;
}

/* Returns the place of a device's entry. */
static inline ac_live_device_t *ac_live_device_at(ac_live_t *page, unsigned device) {
    return device ? &page->device[device] : &page->first_device;
}

/* Takes the entry of a device, to be filled and then published.  If the file system is full it is a private one (then
 * *private_p is set): this process's dumps show it, other readers do not see it.  NULL if there is no memory
 * either. */
ac_live_device_t *ac_live_device_take(unsigned device, bool *private_p);
void ac_live_device_publish(unsigned device);

/* Returns the entry of a device in use, or NULL. */
const ac_live_device_t *ac_live_device(const ac_live_t *page, unsigned device);

/* Returns the next hook name in the order of counters: the first for NULL; NULL after the last. */
const char *ac_live_hook_next(const ac_live_t *page, const char *name);

/* Adds to *sum what the caches of threads counted on the device of entry `device` beyond its statistics. */
void ac_live_caches(const ac_live_t *page, unsigned device, ac_cache_sum_t *sum);

/* Reads the number of the module of that name, and gives it one if needed; AC_MODULE_UNKNOWN if there are no more
 * numbers.  False: another thread is naming a module and does not run.  Thread-safe, no lock. */
bool ac_live_module(const char *name, unsigned *number);

/* Adds the figures of modules from the caches of threads on the device of entry `device`. */
void ac_live_modules(const ac_live_t *page, unsigned device, ac_modules_t *modules);

/* Returns the sum of one counter over all rows of `page`. */
uint64_t ac_live_sum(const ac_live_t *page, unsigned counter);

/* Reads the program's file from the kernel.  The call is costly, so only a dump or `accelcache stat` makes it.  The
 * page, also of a killed process, has the name by which the program was started. */
enum { AC_LIVE_EXE = sizeof((ac_live_t *)NULL)->exe };
void ac_live_exe(const ac_live_t *page, char exe[AC_LIVE_EXE]);

/* Adds a warning (truncated) to the page; equal texts once.  Thread-safe. */
void ac_live_warn(const char *text);

/* Notes the addresses of the program's arguments, which glibc passes to constructors.  Without them they are read
 * from /proc. */
void ac_live_arguments(int argc, char **argv);

/* Returns the folder of live pages: ACCEL_LIVE_DIR if that is a folder (never for setuid programs), else
 * AC_LIVE_DIR. */
const char *ac_live_dir(void);

/* Returns ACCEL_LIVE_DIR if it names no folder, else NULL. */
const char *ac_live_dir_missing(void);

/* True if the page of ac_live_open lies in a folder with random characters, because another user holds the usual
 * name. */
extern bool ac_live_strayed;

/* Returns the number of files in the folder of this process's page, at most `most` + 1. */
int ac_live_count(int most);

/* Removes the oldest files of dead processes, a few at each call, if the folder of this process's page has more than
 * AC_LIVE_MOST_DEAD files. */
void ac_live_tidy(void);

/* ---- for readers; they allocate ---- */

/* A page's file. */
typedef struct {
    int pid;        /* in its own pid namespace */
    bool here;      /* that namespace is also the caller's */
    uint64_t space; /* inode number of that namespace, 0 when unknown */
    unsigned user;  /* owner of the folder and of the file */
    char home[64];  /* the folder, below that of live pages */
    char file[64];  /* the file in it */
} ac_live_name_t;

/* Calls `visit` for each page of this user, or for root of each user.  Returns their number. */
int ac_live_each(void (*visit)(const ac_live_name_t *name, void *arg), void *arg);

/* Finds the page of process `pid` in the namespace `space`.  0 means the caller's namespace, then any other.  Prefers
 * pages of living processes, then pages with the process's owner, then the newest.  False: there is none. */
bool ac_live_find(int pid, uint64_t space, ac_live_name_t *name);

/* Copies the page, with its `rows_more` rows after it; ac_live_free releases the copy.  Returns NULL and a message in
 * `error` if there is no page of this library.  Sets *alive to true if its process still runs.  Texts of the
 * copy end with a NUL, and `exe` is the program's real file if that is known.  The kernel does not promise to copy a
 * 64-bit figure in one piece. */
const ac_live_t *ac_live_read(const ac_live_name_t *name, bool *alive, char *error,
                              size_t error_size);
void ac_live_free(const ac_live_t *page);

/* Removes the page of a killed process.  Returns 0; EBUSY if it may still run; or another errno value. */
int ac_live_remove(const ac_live_name_t *name);

#endif
