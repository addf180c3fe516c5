/* Python frames of a thread that released the interpreter's lock (unwind.h).
 *
 * A chain of frames belongs to a thread state. Only the thread that runs with this state pushes and pops
 * frames. While this thread is inside a foreign call, its chain does not change, with the lock or without.
 * The code objects of running frames, their names and their tables of lines do not change either. The
 * library can read the chain, but must not touch it. It changes no reference count, and calls no function of
 * the interpreter that makes objects.
 *
 * The layouts below are the layouts of final releases, which are fixed within a minor version. Tests run with
 * each of them (tests/process/sites.py). Other versions, free-threaded builds and debug builds are left out.
 *
 * The kernel copies the memory (/proc/thread-self/mem). The copy fails if a load would end the process: an
 * interpreter that shuts down frees the states of threads that are still inside calls. It uses only openat,
 * pread64 and close. The first use of CUDA made these calls (filter.c), so a seccomp filter from before it
 * allows them. The type of each object is checked before the object is used. */
#include "tell/python_own.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "lock.h"
#include "observe/filter.h"
#include "observe/raw.h"

/* Offsets in bytes. */
typedef struct {
    unsigned version;                        /* major and minor, as in Py_Version */
    uint8_t thread, holder, current;         /* of a state; holder: the record with `current`, 0: the state itself */
    uint8_t code, instruction, before, kind; /* of a frame */
    uint8_t on_stack;                        /* kind of a frame that stands for a call from C; 255: no kind does */
    uint8_t first_line, bytecode;            /* of code */
    uint8_t ascii, wide;                     /* of a text: start of its characters */
} layout_t;

static const layout_t layouts[] = {
    {0x030b, 152, 56, 8, 32, 56, 48, 69, 255, 72, 184, 48, 72},
    {0x030c, 136, 56, 0, 0, 56, 8, 70, 3, 68, 192, 40, 56},
    {0x030d, 152, 0, 72, 0, 56, 8, 70, 3, 68, 200, 40, 56},
};
enum { TYPE = 8, LENGTH = 16, CODE_FILE = 112, CODE_NAME = 120, CODE_LINES = 136, BYTES = 32, TEXT_STATE = 32 };
enum { FRAME_SIZE = 80, CODE_SIZE = 144, TEXT_SIZE = 40 };

/* ------------------------------------------------------------------ memory that may be unmapped */

/* Copies memory of the process; `memory` is a descriptor of it. */
static bool copy(int memory, uintptr_t from, void *to, size_t size) {
    return ac_raw_call(SYS_pread64, memory, AC_RAW_POINTER(to), (long)size, (long)from) == (long)size;
}

static uintptr_t word_of(const unsigned char *at) {
    uintptr_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

static unsigned number_of(const unsigned char *at) {
    unsigned number;
    memcpy(&number, at, sizeof number);
    return number;
}

static bool copy_object(int memory, uintptr_t from, const void *type, unsigned char *to, size_t size) {
    return from && from % sizeof from == 0 && copy(memory, from, to, size) && word_of(to + TYPE) == (uintptr_t)type;
}

/* Reader of memory, byte by byte; it copies some bytes at a time. */
typedef struct {
    int memory;
    uintptr_t at, end;
    unsigned char data[128];
    unsigned count, next;
} bytes_t;

static int next_byte(bytes_t *bytes) {
    if (bytes->next == bytes->count) {
        size_t left = bytes->end - bytes->at;
        bytes->count = left < sizeof bytes->data ? (unsigned)left : sizeof bytes->data;
        bytes->next = 0;
        if (!bytes->count || !copy(bytes->memory, bytes->at, bytes->data, bytes->count))
            return -1;
        bytes->at += bytes->count;
    }
    return bytes->data[bytes->next++];
}

/* ------------------------------------------------------------------ texts */

static unsigned put_character(char *to, unsigned character) {
    if (character < 0x80) {
        to[0] = (char)character;
        return 1;
    }
    unsigned more = character < 0x800 ? 1 : character < 0x10000 ? 2 : 3;
    to[0] = (char)((0xff00u >> (more + 1) & 0xff) | character >> 6 * more);
    for (unsigned i = 1; i <= more; i++)
        to[i] = (char)(0x80 | (character >> 6 * (more - i) & 0x3f));
    return more + 1;
}

/* Copies a text as UTF-8, cut to `size`; "?" if the object is no text. */
static void copy_text(const ac_python_own_t *own, const layout_t *layout, uintptr_t from, char *text, size_t size) {
    unsigned char head[TEXT_SIZE];
    size_t used = 0;
    snprintf(text, size, "?");
    if (!copy_object(own->memory, from, own->text_type, head, sizeof head))
        return;
    unsigned state = number_of(head + TEXT_STATE), width = state >> 2 & 7;
    bool compact = state >> 5 & 1, ascii = state >> 6 & 1;
    if (!compact || (width != 1 && width != 2 && width != 4))
        return;
    uintptr_t begin = from + (ascii ? layout->ascii : layout->wide);
    bytes_t bytes = {.memory = own->memory, .at = begin, .end = begin + width * word_of(head + LENGTH)};
    for (int byte = 0; used + 5 < size;) {
        unsigned character = 0;
        for (unsigned i = 0; i < width && byte >= 0; i++)
            if ((byte = next_byte(&bytes)) >= 0)
                character |= (unsigned)byte << 8 * i;
        if (byte < 0)
            break;
        used += put_character(text + used, character);
    }
    text[used] = '\0';
}

/* ------------------------------------------------------------------ lines */

/* Reads a number of six bits in each byte, the low bits first. */
static unsigned next_number(bytes_t *bytes) {
    unsigned number = 0, shift = 0;
    int byte;
    do {
        byte = next_byte(bytes);
        if (byte < 0 || shift > 24)
            return number;
        number |= (unsigned)(byte & 0x3f) << shift;
        shift += 6;
    } while (byte & 0x40);
    return number;
}

/* Returns the line of the instruction at `offset` in bytes; 0: it has none. */
static unsigned line_at(const ac_python_own_t *own, uintptr_t table, unsigned line, uintptr_t offset) {
    enum { ONE_LINE = 10, NO_COLUMNS = 13, LONG = 14, NONE = 15, UNIT = 2 };
    unsigned char head[BYTES];
    if (!copy_object(own->memory, table, own->bytes_type, head, sizeof head))
        return 0;
    bytes_t bytes = {.memory = own->memory, .at = table + BYTES, .end = table + BYTES + word_of(head + LENGTH)};
    uintptr_t end = 0;
    for (int first; (first = next_byte(&bytes)) >= 0;) {
        unsigned code = (unsigned)first >> 3 & 15, skipped = code < ONE_LINE ? 1 : code < NO_COLUMNS ? 2 : 0;
        if (code == NO_COLUMNS || code == LONG) {
            unsigned change = next_number(&bytes);
            line = change & 1 ? line - (change >> 1) : line + (change >> 1);
        } else if (code >= ONE_LINE && code < NO_COLUMNS) {
            line += code - ONE_LINE;
        }
        for (unsigned i = 0; i < (code == LONG ? 3 : 0); i++)
            next_number(&bytes);
        for (unsigned i = 0; i < skipped; i++)
            next_byte(&bytes);
        end += UNIT * (((unsigned)first & 7) + 1);
        if (offset < end)
            return code == NONE ? 0 : line;
    }
    return 0;
}

/* ------------------------------------------------------------------ frames */

/* Frames that were read. All bytes of the code object except its reference count are compared: another code
 * object may later lie at its address. */
enum { KNOWN = 512, COUNTED = 8 };
static struct {
    uintptr_t code, instruction;
    unsigned char raw[CODE_SIZE];
    uint64_t frame;
} known[KNOWN];
static ac_mutex_t lock = AC_MUTEX(LEAF);

static size_t place_of(uintptr_t code, uintptr_t instruction) {
    return (code >> 6 ^ instruction >> 1) % KNOWN;
}

/* Returns 0 if the frame was not read yet. */
static uint64_t find_known(uintptr_t code, uintptr_t instruction, const unsigned char *raw) {
    size_t i = place_of(code, instruction);
    ac_lock(&lock);
    bool same = known[i].code == code && known[i].instruction == instruction &&
                !memcmp(known[i].raw + COUNTED, raw + COUNTED, CODE_SIZE - COUNTED);
    uint64_t frame = same ? known[i].frame : 0;
    ac_unlock(&lock);
    return frame;
}

static void add_known(uintptr_t code, uintptr_t instruction, const unsigned char *raw, uint64_t frame) {
    size_t i = place_of(code, instruction);
    ac_lock(&lock);
    known[i].code = code;
    known[i].instruction = instruction;
    memcpy(known[i].raw, raw, CODE_SIZE);
    known[i].frame = frame;
    ac_unlock(&lock);
}

/* Returns 0 if the object is no code. */
static uint64_t frame_of(const ac_python_own_t *own, const layout_t *layout, uintptr_t code, uintptr_t instruction) {
    enum { PART = 500 };
    unsigned char raw[CODE_SIZE];
    char text[2 * PART + 2];
    if (!copy_object(own->memory, code, own->code_type, raw, sizeof raw))
        return 0;
    uint64_t frame = find_known(code, instruction, raw);
    if (frame)
        return frame;
    copy_text(own, layout, word_of(raw + CODE_NAME), text, PART);
    size_t length = strlen(text);
    text[length++] = '\n';
    copy_text(own, layout, word_of(raw + CODE_FILE), text + length, PART);
    unsigned line = line_at(own, word_of(raw + CODE_LINES), number_of(raw + layout->first_line),
                            instruction - code - layout->bytecode);
    frame = ac_frame_text(ac_site_text(text), line);
    add_known(code, instruction, raw, frame);
    return frame;
}

static const layout_t *layout_of(unsigned long version) {
    enum { FINAL = 0xf0 };
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i].version == version >> 16 && (version & FINAL) == FINAL)
            return &layouts[i];
    return NULL;
}

/* Returns the innermost frame of the calling thread; 0: it has none, or the state belongs to another
 * thread. */
static uintptr_t innermost(int memory, const layout_t *layout, uintptr_t state) {
    uintptr_t thread, holder = state, frame;
    if (!copy(memory, state + layout->thread, &thread, sizeof thread) || thread != (uintptr_t)pthread_self())
        return 0;
    if (layout->holder && !copy(memory, state + layout->holder, &holder, sizeof holder))
        return 0;
    return copy(memory, holder + layout->current, &frame, sizeof frame) ? frame : 0;
}

static unsigned frames_from(const ac_python_own_t *own, const layout_t *layout, uintptr_t at, uint64_t *frame,
                            unsigned room) {
    enum { FURTHEST = 256 };
    unsigned count = 0;
    for (unsigned i = 0; at && count < room && i < FURTHEST; i++) {
        unsigned char raw[FRAME_SIZE];
        if (at % sizeof at || !copy(own->memory, at, raw, sizeof raw))
            break;
        if (raw[layout->kind] != layout->on_stack) {
            frame[count] = frame_of(own, layout, word_of(raw + layout->code), word_of(raw + layout->instruction));
            if (!frame[count++])
                return 0;
        }
        at = word_of(raw + layout->before);
    }
    return count;
}

unsigned ac_python_own_frames(const ac_python_own_t *own, void *state, uint64_t *frame, unsigned room) {
    const layout_t *layout = layout_of(own->version);
    if (!layout || !state || ac_filter_now())
        return 0;
    int saved = errno;
    unsigned count = 0;
    ac_python_own_t opened = *own;
    opened.memory = ac_raw_open("/proc/thread-self/mem", O_RDONLY | O_CLOEXEC, 0);
    if (opened.memory >= 0) {
        count = frames_from(&opened, layout, innermost(opened.memory, layout, (uintptr_t)state), frame, room);
        ac_raw_close(opened.memory);
    }
    errno = saved;
    return count;
}
