/* Stacks and texts, each stored once (sites.h). */
#include "observe/sites.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include "failpoint.h"
#include "lock.h"

typedef struct {
    _Atomic int64_t blocks, bytes, estimate;
} amounts_t;

/* The holdings of a stack on a device.  `was` has the holdings at peak number `peak`.  The first change after a peak
 * writes it.  So a new peak only increments a number and visits no stack. */
typedef struct held {
    struct held *next; /* of another device */
    unsigned device;
    _Atomic uint64_t peak;
    amounts_t now, was;
} held_t;

/* A numbered sequence of words.  `hash` and `word` never change once the entry is in its table. */
typedef struct {
    uint64_t hash;
    uint32_t number, count;
    _Atomic uint64_t allocs, bytes;
    held_t *_Atomic held;
    uint64_t word[];
} entry_t;

/* A table of entries by hash.  An entry never leaves its place, so that readers need no lock.  A reader sees a whole
 * entry or none. */
typedef struct {
    unsigned bits;
    uint32_t most, used;       /* entries; `most` is half the number of places */
    _Atomic(entry_t *) *place; /* [1 << bits], then by number from 1 on; NULL: not mapped yet */
} table_t;

static ac_mutex_t lock = AC_MUTEX(LEAF); /* of changes */
static table_t stacks = {.bits = 17, .most = 1 << 16}, texts = {.bits = 15, .most = 1 << 14};
static const char *_Atomic files[AC_SITE_FILES]; /* path and build ID, each with its 0 byte */
static char *piece;                              /* of memory for entries, never given back */
static size_t left;
static _Atomic uint64_t lost;
static held_t *_Atomic unknown; /* of stack 0 */
static _Atomic int64_t live, most;
_Atomic bool ac_sites_followed;
static _Atomic uint64_t peak; /* number of high-water marks so far */

/* ------------------------------------------------------------------ memory, under the lock */

static void *map(size_t bytes) {
    int saved = errno;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    errno = saved;
    return memory == MAP_FAILED ? NULL : memory;
}

static void *cut(size_t bytes) {
    enum { PIECE = 256 << 10 };
    bytes = (bytes + 7) & ~(size_t)7;
    if (bytes > left) {
        piece = map(PIECE);
        left = piece ? PIECE : 0;
    }
    if (bytes > left)
        return NULL;
    void *memory = piece;
    piece += bytes;
    left -= bytes;
    return memory;
}

/* ------------------------------------------------------------------ tables */

static uint64_t hash_of(const uint64_t *word, unsigned count) {
    uint64_t hash = count;
    for (unsigned i = 0; i < count; i++) {
        hash = (hash ^ word[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    return hash;
}

static _Atomic(entry_t *) *places_of(const table_t *table) {
    return __atomic_load_n(&table->place, __ATOMIC_ACQUIRE);
}

/* Returns the entry; or NULL, and *free_place is the place for it. */
static entry_t *find(const table_t *table, uint64_t hash, const uint64_t *word, unsigned count,
                     _Atomic(entry_t *) **free_place) {
    _Atomic(entry_t *) *place = places_of(table);
    uint64_t mask = ((uint64_t)1 << table->bits) - 1;
    for (uint64_t at = hash; place; at++) {
        entry_t *entry = atomic_load_explicit(&place[at & mask], memory_order_acquire);
        *free_place = &place[at & mask];
        if (!entry || (entry->hash == hash && entry->count == count &&
                       !memcmp(entry->word, word, count * sizeof *word)))
            return entry;
    }
    return NULL;
}

static _Atomic(entry_t *) *by_number(const table_t *table, uint32_t number) {
    _Atomic(entry_t *) *place = places_of(table);
    return place && number && number <= table->most
               ? &place[((size_t)1 << table->bits) + number - 1]
               : NULL;
}

/* Adds an entry; called under the lock. */
static entry_t *insert(table_t *table, uint64_t hash, const uint64_t *word, unsigned count) {
    _Atomic(entry_t *) *place = NULL;
    if (!table->place) {
        void *memory = map((((size_t)1 << table->bits) + table->most) * sizeof *place);
        __atomic_store_n(&table->place, memory, __ATOMIC_RELEASE);
    }
    entry_t *entry = find(table, hash, word, count, &place);
    if (entry || !place || table->used == table->most)
        return entry;
    entry = cut(sizeof *entry + count * sizeof *word);
    if (!entry)
        return NULL;
    entry->hash = hash;
    entry->count = count;
    entry->number = ++table->used;
    memcpy(entry->word, word, count * sizeof *word);
    atomic_store_explicit(by_number(table, entry->number), entry, memory_order_release);
    atomic_store_explicit(place, entry, memory_order_release);
    return entry;
}

static uint32_t number_of(table_t *table, const uint64_t *word, unsigned count) {
    uint64_t hash = hash_of(word, count);
    _Atomic(entry_t *) *place;
    entry_t *entry = count ? find(table, hash, word, count, &place) : NULL;
    if (!entry && count) {
        ac_lock(&lock);
        entry = insert(table, hash, word, count);
        ac_unlock(&lock);
        if (!entry && !AC_FAILPOINT(stack_without_memory))
            atomic_fetch_add_explicit(&lost, 1, memory_order_relaxed);
    }
    return entry ? entry->number : 0;
}

void ac_sites_fork_child(void) {
    lock = (ac_mutex_t)AC_MUTEX(LEAF);
}

static entry_t *entry_of(const table_t *table, uint32_t number) {
    _Atomic(entry_t *) *place = by_number(table, number);
    return place ? atomic_load_explicit(place, memory_order_acquire) : NULL;
}

/* ------------------------------------------------------------------ what they hold */

uint32_t ac_site_of(const uint64_t *frame, unsigned count) {
    return number_of(&stacks, frame, count);
}

void ac_site_count(uint32_t stack, uint64_t bytes) {
    entry_t *entry = entry_of(&stacks, stack);
    if (!entry)
        return;
    atomic_fetch_add_explicit(&entry->allocs, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&entry->bytes, bytes, memory_order_relaxed);
}

bool ac_site_get(uint32_t stack, ac_site_t *site) {
    const entry_t *entry = entry_of(&stacks, stack);
    if (entry)
        *site = (ac_site_t){entry->word, entry->count,
                            atomic_load_explicit(&entry->allocs, memory_order_relaxed),
                            atomic_load_explicit(&entry->bytes, memory_order_relaxed)};
    return entry;
}

/* ------------------------------------------------------------------ what they hold now, and held at the peak */

static held_t *_Atomic *list_of(uint32_t stack) {
    entry_t *entry = entry_of(&stacks, stack);
    return entry ? &entry->held : &unknown;
}

static held_t *find_held(held_t *_Atomic *list, unsigned device) {
    held_t *held = atomic_load_explicit(list, memory_order_acquire);
    while (held && held->device != device)
        held = held->next;
    return held;
}

static held_t *held_of(uint32_t stack, unsigned device) {
    held_t *_Atomic *list = list_of(stack), *held = find_held(list, device);
    if (held)
        return held;
    ac_lock(&lock);
    held = find_held(list, device);
    if (!held && (held = cut(sizeof *held))) {
        held->device = device;
        held->next = atomic_load_explicit(list, memory_order_relaxed);
        atomic_store_explicit(list, held, memory_order_release);
    }
    ac_unlock(&lock);
    return held;
}

static void set(amounts_t *to, const amounts_t *from) {
    atomic_store_explicit(&to->blocks, atomic_load_explicit(&from->blocks, memory_order_relaxed), memory_order_relaxed);
    atomic_store_explicit(&to->bytes, atomic_load_explicit(&from->bytes, memory_order_relaxed), memory_order_relaxed);
    atomic_store_explicit(&to->estimate, atomic_load_explicit(&from->estimate, memory_order_relaxed),
                          memory_order_relaxed);
}

static void add(amounts_t *to, int64_t bytes, int64_t estimate, int sign) {
    atomic_fetch_add_explicit(&to->blocks, sign, memory_order_relaxed);
    atomic_fetch_add_explicit(&to->bytes, sign * bytes, memory_order_relaxed);
    if (estimate)
        atomic_fetch_add_explicit(&to->estimate, sign * estimate, memory_order_relaxed);
}

/* Returns true if the holdings have not changed since the last peak. */
static bool is_at_peak(held_t *held) {
    return atomic_load_explicit(&held->peak, memory_order_relaxed) !=
           atomic_load_explicit(&peak, memory_order_relaxed);
}

static void keep_peak(held_t *held) {
    uint64_t number = atomic_load_explicit(&peak, memory_order_relaxed);
    if (atomic_exchange_explicit(&held->peak, number, memory_order_relaxed) != number)
        set(&held->was, &held->now);
}

static void rise(int64_t bytes) {
    int64_t sum = atomic_fetch_add_explicit(&live, bytes, memory_order_relaxed) + bytes;
    int64_t before = atomic_load_explicit(&most, memory_order_relaxed);
    while (sum > before)
        if (atomic_compare_exchange_weak_explicit(&most, &before, sum, memory_order_relaxed, memory_order_relaxed)) {
            atomic_fetch_add_explicit(&peak, 1, memory_order_relaxed);
            break;
        }
}

void ac_site_hold(uint32_t stack, unsigned device, int64_t bytes, int64_t estimate, int sign) {
    held_t *held = held_of(stack, device);
    if (!held)
        return;
    if (is_at_peak(held))
        keep_peak(held);
    add(&held->now, bytes, estimate, sign);
    rise(sign * bytes);
}

void ac_site_rename(uint32_t from, uint32_t to, unsigned device, int64_t bytes, int64_t estimate) {
    held_t *old = held_of(from, device), *new = held_of(to, device);
    if (!old || !new || old == new)
        return;
    /* The block is part of the peak that its request made, unless that stack changed since. */
    bool part = is_at_peak(old);
    keep_peak(old);
    keep_peak(new);
    add(&old->now, bytes, estimate, -1);
    add(&new->now, bytes, estimate, 1);
    if (part) {
        add(&old->was, bytes, estimate, -1);
        add(&new->was, bytes, estimate, 1);
    }
}

static void empty(held_t *_Atomic *list) {
    static const amounts_t none;
    for (held_t *held = atomic_load(list); held; held = held->next) {
        set(&held->now, &none);
        set(&held->was, &none);
    }
}

void ac_sites_empty(void) {
    empty(&unknown);
    for (uint32_t stack = 1; entry_of(&stacks, stack); stack++)
        empty(list_of(stack));
    atomic_store(&live, 0);
    atomic_store(&most, 0);
}

bool ac_site_peak(uint32_t stack, unsigned at, ac_site_held_t *found) {
    held_t *held = stack && !entry_of(&stacks, stack) ? NULL : atomic_load(list_of(stack));
    while (held && at--)
        held = held->next;
    if (!held)
        return false;
    const amounts_t *then = is_at_peak(held) ? &held->now : &held->was;
    *found = (ac_site_held_t){held->device, atomic_load(&then->blocks), atomic_load(&then->bytes),
                              atomic_load(&then->estimate)};
    return true;
}

int64_t ac_sites_peak(void) {
    return atomic_load(&most);
}

/* Converts a text to words, padded with zeros.  Returns their number. */
static unsigned words_of(const char *text, uint64_t word[AC_SITE_TEXT / sizeof(uint64_t)]) {
    size_t length = strnlen(text, AC_SITE_TEXT - 1);
    memset(word, 0, AC_SITE_TEXT);
    memcpy(word, text, length);
    return (unsigned)(length / sizeof *word + 1);
}

uint32_t ac_site_text(const char *text) {
    uint64_t word[AC_SITE_TEXT / sizeof(uint64_t)];
    return number_of(&texts, word, words_of(text, word));
}

uint32_t ac_site_text_known(const char *text) {
    uint64_t word[AC_SITE_TEXT / sizeof(uint64_t)];
    unsigned count = words_of(text, word);
    _Atomic(entry_t *) *place;
    const entry_t *entry = find(&texts, hash_of(word, count), word, count, &place);
    return entry ? entry->number : 0;
}

const char *ac_site_text_of(uint32_t text) {
    const entry_t *entry = entry_of(&texts, text);
    return entry ? (const char *)entry->word : NULL;
}

/* Returns the build ID, which follows the 0 byte of the path. */
static const char *id_of(const char *file) {
    return file + strlen(file) + 1;
}

unsigned ac_site_file(const char *path, const char *id) {
    unsigned file = 1;
    const char *known;
    ac_lock(&lock);
    while (file < AC_SITE_FILES && (known = atomic_load(&files[file])) &&
           (strcmp(known, path) != 0 || strcmp(id_of(known), id) != 0))
        file++;
    if (file < AC_SITE_FILES && !atomic_load(&files[file])) {
        size_t length = strlen(path) + 1, more = strlen(id) + 1;
        char *copy = cut(length + more);
        if (copy) {
            memcpy(copy, path, length);
            memcpy(copy + length, id, more);
        }
        atomic_store(&files[file], copy);
        file = copy ? file : AC_SITE_FILES;
    }
    ac_unlock(&lock);
    if (file == AC_SITE_FILES && !AC_FAILPOINT(stack_without_memory))
        atomic_fetch_add_explicit(&lost, 1, memory_order_relaxed);
    return file % AC_SITE_FILES;
}

const char *ac_site_file_path(unsigned file) {
    return file && file < AC_SITE_FILES ? atomic_load(&files[file]) : NULL;
}

const char *ac_site_file_id(unsigned file) {
    const char *path = ac_site_file_path(file);
    return path ? id_of(path) : "";
}

uint64_t ac_sites_lost(void) {
    return atomic_load_explicit(&lost, memory_order_relaxed);
}
