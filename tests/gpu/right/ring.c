/* right_ring: processes that hand memory on by IPC handles, as NCCL and UCX do.
 *
 *   right_ring MEMBERS EXCHANGES [KILLS [SEED]]
 *
 * Each member allocates and fills a block, gets base and size from cuMemGetAddressRange, and exports
 * the base.  The next member opens it, copies the words after the offset, checks every word, and
 * closes it.  Some blocks stay allocated for a while, and some mappings stay open.  Some blocks are
 * freed and replaced by others, before the next member reads them or at the same time.  KILLS times
 * a random member is killed and restarted.  EXCHANGES is the total of all members, without exchanges
 * that a kill interrupted.
 *
 * The first process is not a member and calls no CUDA.  It prints one line on stdout, which never
 * changes.  Exit status 1: contents are wrong, an invalid handle opens, a valid handle does not
 * open, or something stays open.
 *
 * RING_SECONDS: time limit for the whole program, by default 60. */
#include <dirent.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "right.h"
#include "share/ipc_table.h"

enum { MOST = 16, KEPT = 12, OPEN = 4, LARGEST = 1 << 20, SECONDS = 60, PAUSE_NS = 50000 };

typedef enum { EMPTY, FULL, TAKEN } state_t;

/* A message from a member to the next one. */
typedef struct {
    atomic_uint state;
    CUipcMemHandle handle;
    uint64_t offset, words; /* the part to check: `words` 32-bit words from `offset` on */
    uint32_t seed;          /* of the pattern in the block */
    unsigned kills;         /* kills of the sender before it was started */
    bool freed;             /* the block is already freed */
    bool racing;            /* the sender frees it now: its contents are unknown */
} mail_t;

/* Memory that all processes share; it survives when a member is killed. */
typedef struct {
    unsigned members, exchanges; /* exchanges: for each member */
    uint64_t seed;
    atomic_uint kills[MOST], taken[MOST];
    atomic_bool done[MOST];
    atomic_bool over; /* all members are done, and no member will be killed any more */
    mail_t mail[MOST];
} board_t;

typedef struct {
    CUdeviceptr at;
    unsigned words;
    uint32_t seed;
} block_t;

static board_t *board;
static unsigned me, left, my_kills; /* my_kills: before this process was started */
static unsigned long long chance;
static block_t kept[KEPT], posted;
static CUdeviceptr open_at[OPEN], scratch;
static uint32_t *words_here;
static uint32_t made; /* number of blocks that this process made */

#define WRONG(...) (fprintf(stderr, "right_ring: " __VA_ARGS__), _exit(1))

static unsigned below(unsigned n) {
    return right_below(&chance, n);
}

static uint32_t word_of(uint32_t seed, uint64_t i) {
    return seed * 2654435761u + (uint32_t)i;
}

/* ---------------------------------------------------------------- the member: giving */

static block_t block_new(unsigned words) {
    block_t block = {right_alloc(words * sizeof(uint32_t)), words, 0};
    block.seed = me << 28 | (my_kills & 0xff) << 20 | (++made & 0xfffff);
    for (unsigned i = 0; i < words; i++)
        words_here[i] = word_of(block.seed, i);
    MUST(cu.cuMemcpyHtoD_v2(block.at, words_here, words * sizeof(uint32_t)));
    return block;
}

static void block_free(block_t *block) {
    if (block->at)
        MUST(cu.cuMemFree_v2(block->at));
    block->at = 0;
}

static unsigned some_words(void) {
    static const unsigned sizes[] = {64, 1000, 1024, 5000, 16384, 70000, LARGEST / 4, LARGEST};
    unsigned most = sizes[below(32) ? below(6) : below(8)];
    return most - below(most / 4);
}

static void post(void) {
    mail_t *mail = &board->mail[me];
    CUdeviceptr base;
    size_t bytes;
    posted = block_new(some_words());
    uint64_t inside = below(posted.words / 2) & ~63u;
    MUST(cu.cuMemGetAddressRange_v2(&base, &bytes, posted.at + inside * sizeof(uint32_t)));
    MUST(cu.cuIpcGetMemHandle(&mail->handle, base));
    mail->offset = posted.at + inside * sizeof(uint32_t) - base;
    mail->words = posted.words - inside;
    mail->seed = posted.seed;
    mail->kills = my_kills;
    mail->freed = !below(16);
    mail->racing = !mail->freed && !below(16);
    if (base + bytes < posted.at + posted.words * sizeof(uint32_t) || base > posted.at)
        WRONG("the range of a block is not around it\n");
    if (mail->offset != inside * sizeof(uint32_t))
        WRONG("a block begins at +%llu of its range\n", (unsigned long long)(posted.at - base));
    if (mail->freed) {
        unsigned words = posted.words;
        block_free(&posted);
        posted = block_new(words); /* usually at the old address */
    }
    mail->offset = inside; /* in words, from the start of the exported memory */
    MUST(cu.cuCtxSynchronize());
    bool racing = mail->racing;
    atomic_store(&mail->state, FULL);
    if (racing) {
        unsigned words = posted.words;
        block_free(&posted);
        posted = block_new(words);
    }
}

/* Handles a block that the next member has read: frees it or keeps it for a while. */
static void settle(void) {
    block_t *place = &kept[below(KEPT)];
    if (below(2)) {
        block_free(place);
        *place = posted;
        posted.at = 0;
    }
    block_free(&posted);
    atomic_store(&board->mail[me].state, EMPTY);
}

static bool give(bool more) {
    unsigned state = atomic_load(&board->mail[me].state);
    if (state == TAKEN)
        settle();
    else if (state == EMPTY && more)
        post();
    return state == TAKEN || (state == EMPTY && more);
}

/* ---------------------------------------------------------------- the member: taking */

static void look(const mail_t *mail, CUdeviceptr opened) {
    size_t bytes = mail->words * sizeof(uint32_t);
    CUdeviceptr from = opened + mail->offset * sizeof(uint32_t);
    MUST(cu.cuMemcpyDtoDAsync_v2(scratch, from, bytes, NULL));
    MUST(cu.cuMemcpyDtoH_v2(words_here, scratch, bytes));
    for (uint64_t i = 0; i < mail->words; i++)
        if (words_here[i] != word_of(mail->seed, mail->offset + i))
            WRONG("member %u: word %llu of block %08x of member %u is %08x instead of %08x\n", me,
                  (unsigned long long)i, mail->seed, left, words_here[i],
                  word_of(mail->seed, mail->offset + i));
}

static void close_later(CUdeviceptr opened) {
    unsigned at = below(OPEN);
    if (below(4)) {
        MUST(cu.cuIpcCloseMemHandle(opened));
        return;
    }
    if (open_at[at])
        MUST(cu.cuIpcCloseMemHandle(open_at[at]));
    open_at[at] = opened;
}

/* Opens, checks and closes a block.  Returns true if the exchange counts. */
static bool take_block(const mail_t *mail) {
    CUdeviceptr opened = 0, again = 0;
    const unsigned flag = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
    CUresult result = cu.cuIpcOpenMemHandle_v2(&opened, mail->handle, flag);
    bool killed = mail->kills != atomic_load(&board->kills[left]);
    if (result && !mail->freed && !mail->racing && !killed)
        WRONG("member %u: opening block %08x of member %u: %s\n", me, mail->seed, left,
              gpu_error(result));
    if (!result && mail->freed && gpu.simulated)
        WRONG("member %u: a freed block of member %u was opened\n", me, left);
    if (result)
        return !killed;
    if (!below(8)) {
        result = cu.cuIpcOpenMemHandle_v2(&again, mail->handle, flag);
        killed = mail->kills != atomic_load(&board->kills[left]);
        if (!killed && !mail->racing && (result || again != opened))
            WRONG("member %u: a second opening: %s, %s address\n", me, gpu_error(result),
                  again == opened ? "the same" : "another");
        if (!result)
            MUST(cu.cuIpcCloseMemHandle(again));
    }
    /* After a kill, the contents of the sender's memory are known only on the simulated device. */
    if (!mail->freed && !mail->racing && (gpu.simulated || !killed))
        look(mail, opened);
    close_later(opened);
    return true;
}

static bool take(void) {
    mail_t *mail = &board->mail[left];
    if (atomic_load(&mail->state) != FULL)
        return false;
    if (take_block(mail))
        atomic_fetch_add(&board->taken[me], 1);
    atomic_store(&mail->state, TAKEN);
    return true;
}

/* ---------------------------------------------------------------- the member */

/* Returns the number of live objects of the simulated device; 0 on a GPU. */
static unsigned long long live(const char *kind) {
    unsigned long long (*count)(const char *);
    *(void **)&count = dlsym(RTLD_DEFAULT, "simcuda_live");
    void *driver = count ? NULL : dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (driver)
        *(void **)&count = dlsym(driver, "simcuda_live");
    return gpu.simulated && count ? count(kind) : 0;
}

static unsigned entries_in(const char *path) {
    static unsigned char chunk[AC_IPC_CHUNK];
    unsigned used = 0;
    FILE *file = fopen(path, "r");
    for (bool first = true; file && fread(chunk, sizeof chunk, 1, file) == 1; first = false)
        for (size_t at = first ? sizeof(ac_ipc_header_t) : 0;
             at + sizeof(ac_ipc_entry_t) <= sizeof chunk; at += sizeof(ac_ipc_entry_t)) {
            uint64_t serial;
            memcpy(&serial, chunk + at, sizeof serial);
            used += serial != 0;
        }
    if (file)
        fclose(file);
    return used;
}

/* Returns the number of blocks that the library still shows to other processes; 0 if ACCEL_LIVE_DIR
 * does not name the folder of its tables. */
static unsigned entries_left(void) {
    char folder[512], own[64], path[1024];
    const char *live_dir = getenv("ACCEL_LIVE_DIR");
    snprintf(folder, sizeof folder, "%s/accelcache-%u", live_dir ? live_dir : "",
             (unsigned)geteuid());
    snprintf(own, sizeof own, "-%d.ipc", (int)getpid());
    DIR *names = live_dir ? opendir(folder) : NULL;
    unsigned used = 0;
    for (const struct dirent *name; names && (name = readdir(names));) {
        size_t length = strlen(name->d_name), tail = strlen(own);
        if (length < tail || strcmp(name->d_name + length - tail, own) != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, name->d_name);
        used += entries_in(path);
    }
    if (names)
        closedir(names);
    return used;
}

static void tidy(void) {
    for (unsigned i = 0; i < OPEN; i++)
        if (open_at[i])
            MUST(cu.cuIpcCloseMemHandle(open_at[i]));
    for (unsigned i = 0; i < KEPT; i++)
        block_free(&kept[i]);
    block_free(&posted);
    if (live("imports"))
        WRONG("member %u: %llu allocations of others are open\n", me, live("imports"));
    if (entries_left())
        WRONG("member %u: %u entries are left in its table\n", me, entries_left());
}

static bool all_done(void) {
    unsigned i = 0;
    while (i < board->members && atomic_load(&board->done[i]))
        i++;
    return i == board->members;
}

static int member(void) {
    left = (me + board->members - 1) % board->members;
    my_kills = atomic_load(&board->kills[me]);
    chance = board->seed + me * 1000003ull + my_kills * 7919ull;
    words_here = malloc(LARGEST * sizeof(uint32_t));
    if (!words_here)
        return 1;
    right_open();
    scratch = right_alloc(LARGEST * sizeof(uint32_t));
    unsigned next = (me + 1) % board->members;
    while (!atomic_load(&board->over) || atomic_load(&board->mail[me].state)) {
        bool more = atomic_load(&board->taken[next]) < board->exchanges;
        bool moved = give(more);
        moved |= take();
        if (atomic_load(&board->taken[me]) >= board->exchanges)
            atomic_store(&board->done[me], true);
        if (!moved)
            nanosleep(&(struct timespec){0, PAUSE_NS}, NULL);
    }
    tidy();
    MUST(cu.cuMemFree_v2(scratch));
    return 0;
}

/* ---------------------------------------------------------------- the first process */

static pid_t start(unsigned which, int fd, unsigned seconds) {
    pid_t parent = getpid(), process = fork();
    if (process)
        return process;
    char number[16], file[16];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    alarm(seconds); /* remains active after exec */
    snprintf(number, sizeof number, "%u", which);
    snprintf(file, sizeof file, "%d", fd);
    execl("/proc/self/exe", "right_ring", "member", number, file, (char *)NULL);
    _exit(126);
}

static pid_t processes[MOST];

static int stop_all(void) {
    for (unsigned i = 0; i < board->members; i++)
        if (processes[i] > 0) {
            kill(processes[i], SIGKILL);
            waitpid(processes[i], NULL, 0);
        }
    return 1;
}

static unsigned progress(void) {
    unsigned sum = 0;
    for (unsigned i = 0; i < board->members; i++)
        sum += atomic_load(&board->taken[i]);
    return sum;
}

/* Kills and restarts a random member, unless it is done.  A member may become done while it is killed.
 * Its neighbours stay until the whole ring is over, so that they can serve it once more. */
static bool kill_one(int fd, unsigned seconds) {
    unsigned which = below(board->members);
    if (atomic_load(&board->taken[which]) >= board->exchanges)
        return false;
    atomic_fetch_add(&board->kills[which], 1);
    kill(processes[which], SIGKILL);
    waitpid(processes[which], NULL, 0);
    /* If it completed its last exchange, it must repeat it, so that it sets `done` itself. */
    if (atomic_load(&board->taken[which]) >= board->exchanges)
        atomic_store(&board->taken[which], board->exchanges - 1);
    atomic_store(&board->done[which], false);
    processes[which] = start(which, fd, seconds);
    return true;
}

static int ring(unsigned kills, int fd, unsigned seconds) {
    unsigned killed = 0, ended = 0, total = board->members * board->exchanges;
    time_t limit = time(NULL) + seconds;
    for (unsigned i = 0; i < board->members; i++)
        processes[i] = start(i, fd, seconds);
    while (ended < board->members) {
        int status = 0;
        if (all_done())
            atomic_store(&board->over, true);
        else if (killed < kills && progress() > (total / (kills + 1)) * (killed + 1) &&
            (kill_one(fd, seconds) || progress() >= total - board->members))
            killed++;
        pid_t process = waitpid(-1, &status, WNOHANG);
        if (process == 0) {
            if (time(NULL) > limit) {
                fprintf(stderr, "right_ring: not over after %u s: %u of %u exchanges\n", seconds,
                        progress(), total);
                return stop_all();
            }
            nanosleep(&(struct timespec){0, PAUSE_NS}, NULL);
            continue;
        }
        for (unsigned i = 0; i < board->members; i++)
            if (processes[i] == process)
                processes[i] = 0;
        if (process < 0 || !WIFEXITED(status) || WEXITSTATUS(status)) {
            fprintf(stderr, "right_ring: a member ended with status %#x after %u exchanges\n",
                    (unsigned)status, progress());
            stop_all();
            return WIFEXITED(status) && WEXITSTATUS(status) == 77 ? 77 : 1;
        }
        ended++;
    }
    printf("%u members, %u exchanges, %u kills: contents right, nothing open\n", board->members,
           total, kills);
    return 0;
}

static unsigned number(const char *text, unsigned least, unsigned most) {
    unsigned long value = strtoul(text, NULL, 10);
    if (value < least || value > most) {
        fprintf(stderr, "usage: right_ring MEMBERS EXCHANGES [KILLS [SEED]]\n");
        exit(2);
    }
    return (unsigned)value;
}

static bool share(int fd) {
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return board != MAP_FAILED;
}

int main(int argc, char **argv) {
    if (argc == 4 && !strcmp(argv[1], "member")) {
        me = (unsigned)atoi(argv[2]);
        return share(atoi(argv[3])) ? member() : 1;
    }
    if (argc < 3 || argc > 5)
        number("", 1, 0);
    unsigned members = number(argv[1], 2, MOST);
    unsigned exchanges = number(argv[2], members, 100000000) / members;
    unsigned kills = argc > 3 ? number(argv[3], 0, 100000) : 0;
    const char *seconds = getenv("RING_SECONDS");
    int fd = memfd_create("ring", 0); /* remains open after exec */
    if (fd < 0 || ftruncate(fd, sizeof *board) || !share(fd))
        return 1;
    board->members = members;
    board->exchanges = exchanges;
    board->seed = chance = argc > 4 ? number(argv[4], 0, 1u << 30) : 1;
    return ring(kills, fd, seconds ? number(seconds, 1, 100000) : SECONDS);
}
