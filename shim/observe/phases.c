/* Open phases of threads (phases.h). */
#include "observe/phases.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "observe/sites.h"

#define PREFIX "phase "

typedef struct {
    const void *domain;
    uint32_t text; /* sites.h; 0: no request needed it yet */
    char name[AC_PHASE_NAME];
} phase_t;

typedef struct {
    unsigned depth; /* beyond AC_PHASES only counted */
    phase_t open[AC_PHASES];
} phases_t;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
_Atomic bool ac_phases_used; /* with it: the key */

static void make_key(void) {
    atomic_store(&ac_phases_used, !pthread_key_create(&key, free));
}

static phases_t *mine(void) {
    return ac_has_phases() ? pthread_getspecific(key) : NULL;
}

static phases_t *make(void) {
    pthread_once(&once, make_key);
    phases_t *phases = ac_has_phases() ? calloc(1, sizeof *phases) : NULL;
    if (phases && pthread_setspecific(key, phases)) {
        free(phases);
        return NULL;
    }
    return phases;
}

/* ------------------------------------------------------------------ texts */

/* Limit of names.  A program may open a range for each step, with the step's number in the name, and must not fill
 * the tables of texts and stacks.  After PLAIN names, numbers in names become '#'.  After PLAIN of these names,
 * all further ones become one name. */
enum { PLAIN = 256 };

/* Returns true if there is room for one more name. */
static bool count(_Atomic unsigned *names) {
    return atomic_load_explicit(names, memory_order_relaxed) < PLAIN && atomic_fetch_add(names, 1) < PLAIN;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static void hide_numbers(char *text) {
    char *to = text;
    for (const char *from = text; *from; from++)
        if (!is_digit(*from))
            *to++ = *from;
        else if (to == text || to[-1] != '#')
            *to++ = '#';
    *to = '\0';
}

static uint32_t text_of(const char *name) {
    static _Atomic unsigned names, hidden;
    char text[sizeof PREFIX + AC_PHASE_NAME] = PREFIX;
    strncpy(text + sizeof PREFIX - 1, name, AC_PHASE_NAME - 1);
    for (char *at = text; *at; at++)
        *at = (unsigned char)*at < ' ' ? ' ' : *at; /* a line break divides a text from its file */
    uint32_t number = ac_site_text_known(text);
    if (number || count(&names))
        return number ? number : ac_site_text(text);
    hide_numbers(text);
    number = ac_site_text_known(text);
    if (number || count(&hidden))
        return number ? number : ac_site_text(text);
    return ac_site_text(PREFIX "(other)");
}

const char *ac_phase_keep(const char *name) {
    const char *text = ac_site_text_of(text_of(name));
    return text ? text + sizeof PREFIX - 1 : NULL;
}

/* ------------------------------------------------------------------ of the calling thread */

int ac_phase_push(const void *domain, const char *name) {
    phases_t *phases = mine();
    if (!phases && !(phases = make()))
        return -1;
    if (phases->depth < AC_PHASES) {
        phase_t *phase = &phases->open[phases->depth];
        phase->domain = domain;
        phase->text = 0;
        strncpy(phase->name, name, sizeof phase->name - 1);
    }
    return (int)phases->depth++;
}

int ac_phase_pop(const void *domain) {
    phases_t *phases = mine();
    if (!phases || !phases->depth)
        return -1;
    if (phases->depth > AC_PHASES)
        return (int)--phases->depth;
    unsigned at = phases->depth;
    while (at && phases->open[at - 1].domain != domain)
        at--;
    if (!at)
        return -1;
    phases->depth--;
    memmove(&phases->open[at - 1], &phases->open[at], (phases->depth - (at - 1)) * sizeof *phases->open);
    return (int)phases->depth;
}

unsigned ac_phase_frames(uint64_t *frame, unsigned room) {
    phases_t *phases = mine();
    unsigned written = 0;
    if (!phases)
        return 0;
    for (unsigned at = phases->depth < AC_PHASES ? phases->depth : AC_PHASES; at-- > 0 && written < room;) {
        phase_t *phase = &phases->open[at];
        if (!phase->text)
            phase->text = text_of(phase->name);
        if (phase->text)
            frame[written++] = ac_frame_text(phase->text, 0);
    }
    return written;
}
