/* Unwinding by libgcc's tables (unwind.h). */
#include "tell/unwind.h"

#include <link.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include <unwind.h>

#include "bind/callers.h"
#include "tell/frame_rules.h"
#include "bind/loader_gate.h"
#include "bind/objects.h"
#include "observe/log.h"
#include "observe/raw.h"
#include "lock.h"

/* ------------------------------------------------------------------ frames */

/* Objects by their number in `callers`, from 1 on. An object that was loaded again at another address
 * has another number, and the same file. */
typedef struct {
    unsigned file;
    uintptr_t base;
} load_t;

enum { LOADS = 1 << AC_CALLERS_BITS };
static ac_callers_t callers;
static load_t loads[LOADS];
static _Atomic unsigned load_count;
static ac_mutex_t lock = AC_MUTEX(LEAF); /* guards additions to `loads` */

static unsigned find_load(unsigned file, uintptr_t base) {
    unsigned count = atomic_load_explicit(&load_count, memory_order_acquire), i = 1;
    while (i <= count && (loads[i].file != file || loads[i].base != base))
        i++;
    return i <= count ? i : 0;
}

/* Returns 0 if there is no room for one more. */
static unsigned load_of(unsigned file, uintptr_t base) {
    unsigned found = find_load(file, base);
    if (found)
        return found;
    ac_lock(&lock);
    found = find_load(file, base);
    unsigned count = atomic_load(&load_count);
    if (!found && count + 1 < LOADS) {
        found = count + 1;
        loads[found] = (load_t){file, base};
        atomic_store_explicit(&load_count, found, memory_order_release);
    }
    ac_unlock(&lock);
    return found;
}

/* Looks up the object of code that `callers` does not know by that word. Returns {0, 0} if another
 * thread forks, or if the code belongs to no object. */
static __attribute__((noinline)) load_t look_at(uintptr_t at, uint64_t word) {
    load_t load = {0, 0};
    int place = ac_loader_try();
    if (place < 0)
        return load;
    ac_object_t object = ac_object_of((const void *)at);
    if (object.dynamic) {
        char id[AC_BUILD_ID];
        ac_object_build_id(&object, id);
        load = (load_t){ac_site_file(object.path ? object.path : "", id), object.base};
    }
    ac_loader_leave(place);
    unsigned number = load.file ? load_of(load.file, load.base) : 0;
    if (number || !object.dynamic) /* without room, the next look-up tries again */
        ac_callers_remember(&callers, word, number);
    return load;
}

/* Returns the object of the code at `at`; {0, 0}: it belongs to no object. */
static load_t load_at(uintptr_t at) {
    uint64_t word = ac_callers_word((const void *)at);
    unsigned number;
    if (!ac_callers_find(&callers, word, &number))
        return look_at(at, word);
    /* The code of `callers` also runs before constructors, and ThreadSanitizer does not see it. This
     * load shows the order. */
    atomic_load_explicit(&load_count, memory_order_acquire);
    return loads[number];
}

static uint64_t frame_at(uintptr_t at) {
    load_t load = load_at(at);
    return ac_frame_code(load.file, at - load.base);
}

uint64_t ac_unwind_frame(const void *pc) {
    return frame_at((uintptr_t)pc - 1); /* the call lies before the address it returns to */
}

/* ------------------------------------------------------------------ the unwinder's needs */

/* The addresses that one walk found. The unwinder's abort() returns through `unwinding` of the thread's
 * record: the library's thread-local storage is only one pointer. */
typedef struct {
    uintptr_t pc[AC_SITE_FRAMES + 16]; /* room for frames of the library and the runtime too */
    unsigned count;
} pcs_t;

/* Replaces abort() (-Wl,--defsym). The unwinder calls it on tables that make no sense, and holds
 * nothing then. Nothing else in the library calls it. */
void ac_unwind_abort(void) __attribute__((noreturn, used));
void ac_unwind_abort(void) {
    ac_thread_t *thread = ac_thread_tls;
    if (thread && thread->unwinding)
        __builtin_longjmp(thread->unwinding, 1);
    for (;;) {
        ac_raw_call(SYS_kill, ac_raw_getpid(), SIGABRT, 0, 0);
        __builtin_trap();
    }
}

/* Type of the C library since 2.35, defined here so that the library runs with older ones. */
typedef struct {
    unsigned long long flags;
    void *begin, *end;
    struct link_map *map;
    void *eh_frame;
    unsigned long long reserved[7];
} found_object_t;

typedef int find_object_fn(void *address, found_object_t *found);
static find_object_fn *find_object;

void ac_unwind_start(void) {
    ac_object_t library = ac_object_by_soname("libc.so.6");
    void *found = library.dynamic ? ac_object_symbol(&library, "_dl_find_object") : NULL;
    memcpy(&find_object, &found, sizeof find_object);
}

typedef struct {
    uintptr_t address;
    found_object_t *found;
} looking_t;

static int look(struct dl_phdr_info *info, size_t size, void *arg) {
    looking_t *looking = arg;
    found_object_t found = {.begin = NULL};
    (void)size;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        char *begin = (char *)(info->dlpi_addr + header->p_vaddr);
        if (header->p_type == PT_LOAD && looking->address - (uintptr_t)begin < header->p_memsz) {
            found.begin = begin;
            found.end = begin + header->p_memsz;
        } else if (header->p_type == PT_GNU_EH_FRAME) {
            found.eh_frame = begin;
        }
    }
    if (!found.begin)
        return 0;
    *looking->found = found;
    return found.eh_frame ? 1 : -1;
}

/* Replaces the C library's _dl_find_object (-Wl,--defsym). */
int ac_unwind_find_object(void *address, found_object_t *found) __attribute__((used));
int ac_unwind_find_object(void *address, found_object_t *found) {
    if (find_object)
        return find_object(address, found);
    looking_t looking = {(uintptr_t)address, found};
    return dl_iterate_phdr(look, &looking) == 1 ? 0 : -1;
}

/* ------------------------------------------------------------------ stacks */

static _Unwind_Reason_Code step(struct _Unwind_Context *context, void *arg) {
    pcs_t *stack = arg;
    int before = 0; /* stays 0 in a signal's frame: pc is the instruction itself */
    uintptr_t pc = _Unwind_GetIPInfo(context, &before);
    if (!pc || stack->count == sizeof stack->pc / sizeof *stack->pc)
        return _URC_END_OF_STACK;
    stack->pc[stack->count++] = pc - !before;
    return _URC_NO_REASON;
}

extern const char ac_image_begin[] __asm__("__ehdr_start") __attribute__((visibility("hidden")));
extern const char ac_image_end[] __asm__("_end") __attribute__((visibility("hidden")));

static bool is_ours(uintptr_t at) {
    return at >= (uintptr_t)ac_image_begin && at < (uintptr_t)ac_image_end;
}

/* A separate function without other local variables, because the unwinder's abort() returns into it. */
static __attribute__((noinline)) void walk(ac_thread_t *thread, pcs_t *stack) {
    void *back[5];
    if (!__builtin_setjmp(back)) {
        thread->unwinding = back;
        _Unwind_Backtrace(step, stack);
    }
    thread->unwinding = NULL;
}

/* Checks, in builds with AC_CHECKED, that the walk by rules finds what the unwinder finds outside the
 * library. */
static void check_walk(ac_thread_t *thread, const pcs_t *stack) {
#ifdef AC_CHECKED
    pcs_t whole;
    whole.count = 0;
    walk(thread, &whole);
    unsigned a = stack->count, b = whole.count;
    while (a && b && stack->pc[a - 1] == whole.pc[b - 1]) {
        a--;
        b--;
    }
    bool same =
        whole.count == sizeof whole.pc / sizeof *whole.pc; /* both lack the outer frames */
    if (!same && (b && !is_ours(whole.pc[b - 1])))
        ac_log(AC_LOG_ERROR, "unwinding by rules differs: %u of %u frames, %u of %u", a,
               stack->count, b, whole.count);
#else
    (void)thread;
    (void)stack;
#endif
}

unsigned ac_unwind(ac_thread_t *thread, const void *caller, uint64_t frame[AC_SITE_FRAMES]) {
    pcs_t stack;
    uint64_t python[AC_SITE_FRAMES];
    uintptr_t interpreter = 0;
    bool locked = false, inside = false; /* inside: a function of the interpreter is on the stack */
    unsigned first = 0, count = 0;
    enum { ROOM = sizeof stack.pc / sizeof *stack.pc };
    stack.count = 0;
    int place = ac_loader_try();
    if (place >= 0) {
        if (!ac_frame_walk(thread, stack.pc, ROOM, &stack.count)) {
            stack.count = 0;
            walk(thread, &stack);
        }
        check_walk(thread, &stack);
        ac_loader_leave(place);
    }
    /* A runtime that serves the program's call may call a hook again. The outermost frame of the
     * library is the program's call. */
    for (unsigned i = 0; i < stack.count; i++)
        if (is_ours(stack.pc[i]))
            first = i + 1;
    if (first == stack.count && caller) /* the stack has no frame outside the library */
        frame[count++] = ac_unwind_frame(caller);
    unsigned pythons = place < 0 ? 0 : ac_python_frames(python, AC_SITE_FRAMES, &interpreter, &locked);
    for (unsigned i = first; i < stack.count && count < AC_SITE_FRAMES; i++) {
        load_t load = load_at(stack.pc[i]);
        inside = pythons && load.base == interpreter;
        if (inside)
            break;
        frame[count++] = ac_frame_code(load.file, stack.pc[i] - load.base);
    }
    for (unsigned i = 0; (locked || inside) && i < pythons && count < AC_SITE_FRAMES; i++)
        frame[count++] = python[i];
    return count;
}
