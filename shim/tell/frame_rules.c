/* Unwind rules by return address (frame_rules.h). */
#include "tell/frame_rules.h"

#include <link.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/auxv.h>

#include "bind/callers.h"
#include "bind/loader_gate.h"
#include "bind/objects.h"
#include "bind/resolve.h"

#if defined(__x86_64__) || defined(__aarch64__)

#if defined(__x86_64__)
enum { REG_FP = 6, REG_SP = 7, REG_RA = 16 };
#else
enum { REG_FP = 29, REG_SP = 31, REG_RA = 30 };
#endif

/* ------------------------------------------------------------------ rules */

typedef enum {
    NO_RULE,  /* the compiler's unwinder must do it */
    BY_SP,    /* the frame ends at sp + end */
    BY_FP,    /* the frame ends at fp + end */
    AT_FP,    /* the frame ends at the address stored at fp + end */
    OUTERMOST /* there is no caller */
} end_kind_t;

typedef enum { FP_SAME, FP_BY_END, FP_BY_FP } fp_kind_t; /* kept; stored at end + fp; stored at fp + fp */

typedef struct {
    uint8_t kind, fp_kind; /* end_kind_t, fp_kind_t */
    int16_t ra, fp;        /* bytes; the return address lies at end + ra */
    int32_t end;           /* bytes, of 24 bits */
} rule_t;

enum { END_BITS = 24 };

enum { LOOSE = 8 }; /* bit of a packed rule: its code may be unloaded */

static uint64_t pack(const rule_t *rule) {
    return (uint64_t)(uint16_t)rule->ra << 48 | (uint64_t)(uint16_t)rule->fp << 32 |
           (uint64_t)((uint32_t)rule->end & ((1u << END_BITS) - 1)) << 8 |
           (uint64_t)rule->fp_kind << 4 | rule->kind;
}

static rule_t unpack(uint64_t word) {
    return (rule_t){.kind = word & 7,
                    .fp_kind = word >> 4 & 15,
                    .ra = (int16_t)(word >> 48),
                    .fp = (int16_t)(word >> 32),
                    .end = (int32_t)(uint32_t)(word >> 8 << 8) >> (32 - END_BITS)};
}

/* ------------------------------------------------------------------ unwind tables */

typedef struct {
    const unsigned char *at, *end;
    bool bad; /* set after a read beyond the end, or at an encoding that is not supported */
} reader_t;

static uint64_t read_bytes(reader_t *r, unsigned count) {
    uint64_t value = 0;
    if (r->bad || (size_t)(r->end - r->at) < count) {
        r->bad = true;
        return 0;
    }
    for (unsigned i = 0; i < count; i++)
        value |= (uint64_t)*r->at++ << 8 * i;
    return value;
}

static uint64_t read_uleb(reader_t *r) {
    uint64_t value = 0, byte = 0x80;
    for (unsigned shift = 0; byte & 0x80 && !r->bad; shift += 7) {
        byte = read_bytes(r, 1);
        if (shift < 64)
            value |= (byte & 0x7f) << shift;
    }
    return value;
}

static int64_t read_sleb(reader_t *r) {
    uint64_t value = 0, byte = 0x80;
    unsigned shift = 0;
    for (; byte & 0x80 && !r->bad; shift += 7) {
        byte = read_bytes(r, 1);
        if (shift < 64)
            value |= (byte & 0x7f) << shift;
    }
    if (byte & 0x40 && shift < 64)
        value |= ~(uint64_t)0 << shift;
    return (int64_t)value;
}

static reader_t read_block(reader_t *r) {
    uint64_t length = read_uleb(r);
    reader_t block = {r->at, r->at, r->bad || length > (uint64_t)(r->end - r->at)};
    if (block.bad) {
        r->bad = true;
        return block;
    }
    block.end = r->at += length;
    return block;
}

/* Returns the size of a pointer with that encoding; 0: not supported. */
static unsigned encoded_size(unsigned encoding) {
    static const unsigned char sizes[16] = {8, 0, 2, 4, 8, 0, 0, 0, 0, 0, 2, 4, 8};
    return (encoding & 0x70) == 0x50 ? 0 : sizes[encoding & 15];
}

/* Contents of the unwind tables for one place in the code. */
typedef enum { SAVED_NOT, SAVED_BY_END, SAVED_BY_FP, SAVED_UNDEFINED, SAVED_OTHERWISE } saved_t;
typedef struct {
    end_kind_t kind;
    int64_t end;
    saved_t ra, fp;
    int64_t ra_at, fp_at;
} state_t;

enum { KEPT = 4 };
typedef struct {
    uint64_t code_align;
    int64_t data_align;
    uintptr_t at, wanted; /* addresses in code: start of the row; the wanted place */
    state_t now, first, kept[KEPT];
    unsigned kept_count;
} machine_t;

static void set_saved(machine_t *m, uint64_t reg, saved_t how, int64_t at) {
    if (reg == REG_RA) {
        m->now.ra = how;
        m->now.ra_at = at;
    } else if (reg == REG_FP) {
        m->now.fp = how;
        m->now.fp_at = at;
    }
}

static void restore(machine_t *m, uint64_t reg) {
    if (reg == REG_RA)
        set_saved(m, reg, m->first.ra, m->first.ra_at);
    else if (reg == REG_FP)
        set_saved(m, reg, m->first.fp, m->first.fp_at);
}

static void set_end(machine_t *m, uint64_t reg, int64_t offset) {
    m->now.kind = reg == REG_SP ? BY_SP : reg == REG_FP ? BY_FP : NO_RULE;
    m->now.end = offset;
}

enum { OP_DEREF = 0x06, OP_BREG0 = 0x70 };

/* Returns true if the expression is fp + *offset and nothing more, or with `deref` the word stored there. */
static bool is_by_fp(reader_t block, bool deref, int64_t *offset) {
    bool is = read_bytes(&block, 1) == OP_BREG0 + REG_FP;
    *offset = read_sleb(&block);
    is &= !deref || read_bytes(&block, 1) == OP_DEREF;
    return is && !block.bad && block.at == block.end;
}

/* Runs an instruction of the tables below 0x40: its lower bits hold no operand. */
static void run_long(machine_t *m, reader_t *r, unsigned op) {
    uint64_t reg;
    int64_t offset = 0;
    reader_t block;
    switch (op) {
    case 0x00: /* nop */
        break;
    case 0x02: /* advance_loc1, 2, 4 */
    case 0x03:
    case 0x04:
        m->at += read_bytes(r, 1u << (op - 2)) * m->code_align;
        break;
    case 0x05: /* offset_extended */
        reg = read_uleb(r);
        set_saved(m, reg, SAVED_BY_END, (int64_t)read_uleb(r) * m->data_align);
        break;
    case 0x06: /* restore_extended */
        restore(m, read_uleb(r));
        break;
    case 0x07: /* undefined */
        set_saved(m, read_uleb(r), SAVED_UNDEFINED, 0);
        break;
    case 0x08: /* same_value */
        set_saved(m, read_uleb(r), SAVED_NOT, 0);
        break;
    case 0x0a: /* remember_state */
        if (m->kept_count == KEPT)
            r->bad = true;
        else
            m->kept[m->kept_count++] = m->now;
        break;
    case 0x0b: /* restore_state */
        if (!m->kept_count)
            r->bad = true;
        else
            m->now = m->kept[--m->kept_count];
        break;
    case 0x0c: /* def_cfa */
        reg = read_uleb(r);
        set_end(m, reg, (int64_t)read_uleb(r));
        break;
    case 0x0d: /* def_cfa_register */
        set_end(m, read_uleb(r), m->now.end);
        break;
    case 0x0e: /* def_cfa_offset */
        m->now.end = (int64_t)read_uleb(r);
        break;
    case 0x0f: /* def_cfa_expression */
        block = read_block(r);
        m->now.kind = is_by_fp(block, true, &m->now.end) ? AT_FP : NO_RULE;
        break;
    case 0x10: /* expression */
        reg = read_uleb(r);
        block = read_block(r);
        set_saved(m, reg, is_by_fp(block, false, &offset) ? SAVED_BY_FP : SAVED_OTHERWISE,
                  offset);
        break;
    case 0x11: /* offset_extended_sf */
        reg = read_uleb(r);
        set_saved(m, reg, SAVED_BY_END, read_sleb(r) * m->data_align);
        break;
    case 0x12: /* def_cfa_sf */
        reg = read_uleb(r);
        set_end(m, reg, read_sleb(r) * m->data_align);
        break;
    case 0x13: /* def_cfa_offset_sf */
        m->now.end = read_sleb(r) * m->data_align;
        break;
    case 0x16: /* val_expression */
        reg = read_uleb(r);
        read_block(r);
        set_saved(m, reg, SAVED_OTHERWISE, 0);
        break;
    case 0x2e: /* GNU_args_size */
        read_uleb(r);
        break;
    default:
        r->bad = true;
        break;
    }
}

/* Runs the rows that begin at the place or before it. */
static bool run(machine_t *m, reader_t *r) {
    while (!r->bad && r->at < r->end && m->at <= m->wanted) {
        unsigned op = (unsigned)read_bytes(r, 1), low = op & 0x3f;
        if (op >> 6 == 1)
            m->at += low * m->code_align;
        else if (op >> 6 == 2)
            set_saved(m, low, SAVED_BY_END, (int64_t)read_uleb(r) * m->data_align);
        else if (op >> 6 == 3)
            restore(m, low);
        else
            run_long(m, r, op);
    }
    return !r->bad;
}

/* Reads the head of a group of entries (CIE). Returns false if it is not supported. */
static bool read_head(const uint32_t *head, machine_t *m, unsigned *encoding, bool *sized,
                      reader_t *rows) {
    reader_t r = {(const unsigned char *)(head + 2), (const unsigned char *)(head + 1) + *head,
                  false};
    unsigned version = (unsigned)read_bytes(&r, 1);
    const char *word = (const char *)r.at;
    while (read_bytes(&r, 1))
        continue;
    if (*head == UINT32_MAX || (version != 1 && version != 3))
        return false;
    m->code_align = read_uleb(&r);
    m->data_align = read_sleb(&r);
    if ((version == 1 ? read_bytes(&r, 1) : read_uleb(&r)) != REG_RA)
        return false;
    *encoding = 0;
    *sized = *word == 'z';
    if (!*sized && *word)
        return false;
    reader_t more = {r.at, r.at, false};
    if (*sized)
        more = read_block(&r);
    for (word += *sized; *word; word++) {
        unsigned byte = (unsigned)read_bytes(&more, 1);
        if (*word == 'R')
            *encoding = byte;
        else if (*word == 'P' && encoded_size(byte))
            read_bytes(&more, encoded_size(byte));
        else if (*word != 'L')
            return false; /* S: a signal's frame; B: signed return addresses */
    }
    *rows = r;
    return !r.bad && !more.bad;
}

static bool fits(int64_t value, unsigned bits) {
    return value >= -((int64_t)1 << (bits - 1)) && value < (int64_t)1 << (bits - 1);
}

static rule_t rule_from(const state_t *state) {
    rule_t rule = {.kind = NO_RULE};
    if (state->ra == SAVED_UNDEFINED)
        rule.kind = OUTERMOST;
    if (state->ra != SAVED_BY_END || !fits(state->end, END_BITS) || !fits(state->ra_at, 16) ||
        !fits(state->fp_at, 16) || state->fp > SAVED_BY_FP)
        return rule;
    return (rule_t){.kind = (uint8_t)state->kind,
                    .fp_kind = state->fp == SAVED_BY_END  ? FP_BY_END
                               : state->fp == SAVED_BY_FP ? FP_BY_FP
                                                          : FP_SAME,
                    .ra = (int16_t)state->ra_at,
                    .fp = (int16_t)state->fp_at,
                    .end = (int32_t)state->end};
}

/* A function of the compiler's unwinder that finds the tables of code; NULL: there are none. */
struct dwarf_eh_bases {
    void *tbase, *dbase, *func;
};
extern const uint32_t *_Unwind_Find_FDE(void *pc, struct dwarf_eh_bases *bases);

typedef struct {
    const uint32_t *entry; /* NULL: there is none, or the search ended in abort() */
    struct dwarf_eh_bases bases;
} found_entry_t;

/* A separate function, like walk() of unwind.c, for __builtin_setjmp. Tables that make no sense end the
 * search in the unwinder's abort(). */
static __attribute__((noinline)) void find_entry(ac_thread_t *thread, uintptr_t at,
                                                 found_entry_t *found) {
    void *back[5];
    found->entry = NULL;
    if (!__builtin_setjmp(back)) {
        thread->unwinding = back;
        found->entry = _Unwind_Find_FDE((void *)at, &found->bases);
    }
    thread->unwinding = NULL;
}

/* Returns true if the code stays loaded as long as the process: the program itself, this library, its C
 * library. The C library of another namespace may be unloaded with that namespace. */
static bool is_bound(uintptr_t at) {
    ac_object_t object = ac_object_of((const void *)at);
    return object.dynamic && object.path &&
           (!*object.path || ac_is_ourselves(&object) ||
            object.dynamic == ac_object_of((const void *)(uintptr_t)getauxval).dynamic);
}

static __attribute__((noinline)) rule_t make_rule(ac_thread_t *thread, uintptr_t at) {
    const rule_t none = {.kind = NO_RULE};
    found_entry_t found;
    find_entry(thread, at, &found);
    const uint32_t *entry = found.entry;
    if (!entry || *entry == UINT32_MAX)
        return none;
    const uint32_t *head = (const void *)((const char *)(entry + 1) - (int32_t)entry[1]);
    machine_t m = {.wanted = UINTPTR_MAX};
    unsigned encoding;
    bool sized;
    reader_t rows;
    if (!read_head(head, &m, &encoding, &sized, &rows) || !encoded_size(encoding) ||
        !run(&m, &rows))
        return none;
    m.first = m.now;
    m.at = (uintptr_t)found.bases.func;
    m.wanted = at;
    rows = (reader_t){(const unsigned char *)(entry + 2) + 2 * (size_t)encoded_size(encoding),
                      (const unsigned char *)(entry + 1) + *entry, false};
    if (sized)
        read_block(&rows);
    return run(&m, &rows) ? rule_from(&m.now) : none;
}

/* ------------------------------------------------------------------ the table of rules */

/* Table of rules. `check` is key ^ rule, so the words of two writers never make a valid rule together. A key
 * holds an address of 48 bits, the most that Linux gives to programs that do not ask for more. The bits of a
 * higher address can at most be mistaken for another generation. Rules of code that is never unloaded have
 * generation 0, and hold for every generation. */
enum { PLACES = 1 << 12, DLOPEN_BITS = 16, GENERATION = (1 << DLOPEN_BITS) - 1 };
static struct { _Atomic uint64_t check, rule; } known[PLACES];

/* Returns the packed rule of the code at `at`, from the table if it is there. */
static uint64_t rule_of(ac_thread_t *thread, uintptr_t at, uint32_t dlopens) {
    uint64_t bound = (uint64_t)at << DLOPEN_BITS | (uint64_t)at >> (64 - DLOPEN_BITS);
    uint64_t key = bound ^ (dlopens & GENERATION);
    size_t place = (size_t)((uint64_t)at * 0x9e3779b97f4a7c15u >> 52) % PLACES;
    uint64_t word = atomic_load_explicit(&known[place].rule, memory_order_relaxed);
    if ((atomic_load_explicit(&known[place].check, memory_order_relaxed) ^ word) ==
        (word & LOOSE ? key : bound))
        return word;
    rule_t rule = make_rule(thread, at);
    word = pack(&rule) | (is_bound(at) ? 0 : LOOSE);
    atomic_store_explicit(&known[place].rule, word, memory_order_relaxed);
    atomic_store_explicit(&known[place].check, (word & LOOSE ? key : bound) ^ word, memory_order_relaxed);
    return word;
}

/* ------------------------------------------------------------------ loads that no hook sees */

/* A generation, and the loader's counts before the first rule of the generation was made. */
enum { LOADS_BITS = 16 };
static _Atomic uint64_t first_loads;

/* Keeps the counts of loads and unloads separately, not their sum. The C library derives dlpi_subs from a
 * count of objects that counts objects of further namespaces several times. Therefore dlpi_subs may fall with
 * a load. */
static int count_loads(struct dl_phdr_info *info, size_t size, void *arg) {
    if (size >= offsetof(struct dl_phdr_info, dlpi_subs) + sizeof info->dlpi_subs)
        *(uint64_t *)arg = info->dlpi_adds << LOADS_BITS | (uint16_t)info->dlpi_subs;
    return 1;
}

/* Takes the lock of the loader's list of objects. The loader runs only callbacks of dl_iterate_phdr under
 * this lock. */
static uint64_t loads_now(uint32_t dlopens) {
    uint64_t loads = 0;
    dl_iterate_phdr(count_loads, &loads);
    return loads << 32 | dlopens;
}

/* Stores the counts of a new generation once, by the first thread. It never goes back to an older generation:
 * another thread may still make rules of that one. */
static void begin_generation(uint32_t dlopens) {
    uint64_t before = atomic_load(&first_loads);
    if ((int32_t)(dlopens - (uint32_t)before) > 0)
        atomic_compare_exchange_strong(&first_loads, &before, loads_now(dlopens));
}

/* Returns true if anything was loaded or unloaded since the first rules of `dlopens` were made. The hook of
 * dlopen does not see dlmopen, nor calls that bypass it. It also runs before the object is loaded. */
static bool outdated(uint32_t dlopens) {
    if (ac_callers_now() == dlopens && atomic_load(&first_loads) != loads_now(dlopens))
        ac_callers_forget();
    return ac_callers_now() != dlopens;
}

/* ------------------------------------------------------------------ the walk */

#if defined(__x86_64__)
#define HERE(pc, sp, fp)                                                                         \
    __asm__ volatile("lea 0f(%%rip), %0\n0:\n\tmov %%rsp, %1\n\tmov %%rbp, %2"                   \
                     : "=&r"(pc), "=&r"(sp), "=&r"(fp))
#else
#define HERE(pc, sp, fp)                                                                         \
    __asm__ volatile("adr %0, .\n\tmov %1, sp\n\tmov %2, x29" : "=&r"(pc), "=&r"(sp), "=&r"(fp))
#endif

static uintptr_t word_at(uintptr_t address) {
    return *(const uintptr_t *)address;
}

/* Returns a limit: no frame of a stack with a frame at `sp` ends beyond it. The C library keeps a thread's
 * record above its stack, and the kernel puts the program's name above the first thread's stack. A load that
 * no hook saw may outdate a rule. The walk then ends at the limit, before memory that may not be mapped. */
static uintptr_t stack_limit(uintptr_t sp) {
    enum { LARGEST = 64 << 20 }; /* a deeper stack is left to the unwinder */
    static _Atomic uintptr_t first;
    uintptr_t thread = AC_THREAD_POINTER, end;
    if (thread - sp < LARGEST)
        return thread;
    end = atomic_load_explicit(&first, memory_order_relaxed);
    if (!end) {
        end = getauxval(AT_EXECFN);
        atomic_store_explicit(&first, end, memory_order_relaxed);
    }
    return end - sp < LARGEST ? end : sp + LARGEST;
}

/* The walk reads stack frames of other functions, which sanitizers would report. */
#if defined(__clang__)
#define READS_STACKS __attribute__((no_sanitize("address", "thread", "undefined")))
#else
#define READS_STACKS                                                                             \
    __attribute__((no_sanitize_address, no_sanitize_thread, no_sanitize_undefined))
#endif

READS_STACKS static inline __attribute__((always_inline)) bool
walk(ac_thread_t *thread, uint32_t dlopens, uintptr_t *pc, unsigned room, unsigned *count,
     uint64_t *words) {
    uintptr_t at, sp, fp;
    *count = 0;
    *words = 0;
    HERE(at, sp, fp);
    uintptr_t limit = stack_limit(sp);
    while (*count < room) {
        uint64_t word = rule_of(thread, at, dlopens);
        rule_t rule = unpack(word);
        *words |= word;
        if (rule.kind == OUTERMOST)
            return true;
        if (rule.kind == NO_RULE || (rule.kind != BY_SP && (fp < sp || fp % 8)))
            return false;
        uintptr_t end = (rule.kind == BY_SP ? sp : fp) + (uintptr_t)(intptr_t)rule.end;
        if (rule.kind == AT_FP) {
            if (end > limit)
                return false;
            end = word_at(end);
        }
        if (end <= sp || end > limit || end % 8)
            return false;
        uintptr_t caller = word_at(end + (uintptr_t)(intptr_t)rule.ra);
        if (rule.fp_kind != FP_SAME)
            fp = word_at((rule.fp_kind == FP_BY_END ? end : fp) + (uintptr_t)(intptr_t)rule.fp);
        sp = end;
        if (!caller)
            return true;
        at = caller - 1;
        pc[(*count)++] = at;
    }
    return true;
}

READS_STACKS __attribute__((noinline)) bool ac_frame_walk(ac_thread_t *thread, uintptr_t *pc,
                                                          unsigned room, unsigned *count) {
    enum { TRIES = 3 };
    for (int i = 0; i < TRIES; i++) {
        uint32_t dlopens = ac_callers_now();
        uint64_t words;
        begin_generation(dlopens);
        bool whole = walk(thread, dlopens, pc, room, count, &words);
        if (!(words & LOOSE) || !outdated(dlopens))
            return whole;
    }
    return false;
}

#else

bool ac_frame_walk(ac_thread_t *thread, uintptr_t *pc, unsigned room, unsigned *count) {
    (void)thread;
    (void)pc;
    (void)room;
    *count = 0;
    return false;
}

#endif
