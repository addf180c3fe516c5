/* Stacks and texts, each stored once (sites.h). */
#include "observe/sites.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include "failpoint.h"
#include "lock.h"

/* Words under a number.  `hash` and `word` never change once the entry is in its table. */
typedef struct {
    uint64_t hash;
    uint32_t number, count;
    _Atomic uint64_t allocs, bytes;
    uint64_t word[];
} entry_t;

/* Entries by their hash, in places that are never left again, so that a reader needs no lock: it sees
 * an entry whole or not at all. */
typedef struct {
    unsigned bits;
    uint32_t most, used;       /* entries: half of the places at the most */
    _Atomic(entry_t *) *place; /* [1 << bits], then by number from 1 on; NULL: not mapped yet */
} table_t;

static ac_mutex_t lock = AC_MUTEX(LEAF); /* of changes */
static table_t stacks = {.bits = 17, .most = 1 << 16}, texts = {.bits = 15, .most = 1 << 14};
static const char *_Atomic files[AC_SITE_FILES]; /* path and build ID, each with its 0 byte */
static char *piece;                              /* of memory for entries, never given back */
static size_t left;
static _Atomic uint64_t lost;

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

/* The entry, or the place where it belongs. */
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

/* Under the lock. */
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

uint32_t ac_site_text(const char *text) {
    uint64_t word[AC_SITE_TEXT / sizeof(uint64_t)] = {0};
    size_t length = strnlen(text, sizeof word - 1);
    memcpy(word, text, length);
    return number_of(&texts, word, (unsigned)(length / sizeof *word + 1));
}

const char *ac_site_text_of(uint32_t text) {
    const entry_t *entry = entry_of(&texts, text);
    return entry ? (const char *)entry->word : NULL;
}

/* Behind the 0 byte of the path. */
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
