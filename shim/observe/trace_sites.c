/* Stacks in traces (trace_format.h): each lane defines what it uses. */
#include <string.h>

#include "observe/trace_file.h"
#include "observe/trace_int.h"

/* Marks a number as defined.  Returns true if it was not defined in the lane before. */
static bool note(uint64_t *bits, size_t words, uint32_t number) {
    uint64_t *word = &bits[number / 64], bit = (uint64_t)1 << number % 64;
    bool fresh = number / 64 < words && !(*word & bit);
    if (fresh)
        *word |= bit;
    return fresh;
}

static void define_name(ac_trace_lane_t *lane, bool text, uint32_t number, const char *name,
                        const char *id) {
    char whole[AC_SITE_TEXT] = "";
    if (!name)
        return;
    size_t length = strnlen(name, sizeof whole - 1) + 1, more = strlen(id) + 1;
    memcpy(whole, name, length - 1);
    if (*id && length + more <= sizeof whole) {
        memcpy(whole + length, id, more);
        length += more;
    }
    for (size_t at = 0; at < length && ac_trace_has_room(lane); at += 16) {
        uint64_t word[2] = {0, 0};
        memcpy(word, whole + at, length - at < sizeof word ? length - at : sizeof word);
        ac_trace_put3(lane, ac_trace_piece_word(text, number, (unsigned)(at / 16)), word[0],
                      word[1]);
    }
}

static void define_names(ac_trace_lane_t *lane, uint64_t frame) {
    ac_trace_known_t *known = ac_trace_known(lane);
    uint32_t text = (uint32_t)((frame & ~AC_FRAME_TEXT) >> 32);
    unsigned file = ac_frame_file(frame);
    if (frame & AC_FRAME_TEXT) {
        if (note(known->text, sizeof known->text / sizeof *known->text, text))
            define_name(lane, true, text, ac_site_text_of(text), "");
    } else if (note(known->file, sizeof known->file / sizeof *known->file, file)) {
        define_name(lane, false, file, ac_site_file_path(file), ac_site_file_id(file));
    }
}

void ac_trace_write_site(ac_trace_lane_t *lane, uint32_t stack) {
    ac_trace_known_t *known = ac_trace_known(lane);
    ac_site_t site;
    if (!ac_site_get(stack, &site))
        return;
    if (note(known->stack, sizeof known->stack / sizeof *known->stack, stack)) {
        if (ac_trace_has_room(lane)) /* before the first event that tells of a stack */
            __atomic_store_n(&ac_trace_header->version, AC_TRACE_VERSION_SITES, __ATOMIC_RELEASE);
        for (unsigned i = 0; i < site.count; i++) {
            define_names(lane, site.frame[i]);
            if (ac_trace_has_room(lane))
                ac_trace_put2(lane, ac_trace_frame_word(stack, i, site.count), site.frame[i]);
        }
    }
    if (ac_trace_has_room(lane))
        ac_trace_put2(lane, ac_trace_word(AC_TRACE_SITE, stack), 0);
}
