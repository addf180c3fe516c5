/* Readers and writers of the value types; see value.h.  Numbers are read by hand: strtoull takes
 * signs and strtod takes the host's locale, exponents and "nan". */
#include "config/value.h"

#include <inttypes.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "observe/start.h"

enum {
    DIGITS = 15
}; /* of a decimal number: 10^15 < 2^53, so one division reads it exactly */

static const double power_of_ten[DIGITS + 1] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                                1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};

AC_START char ac_lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

AC_START bool ac_token_is(ac_token_t token, const char *word) {
    size_t i = 0;
    while (i < token.length && word[i] && ac_lower(token.at[i]) == ac_lower(word[i]))
        i++;
    return i == token.length && !word[i];
}

AC_START bool ac_is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

AC_START ac_token_t ac_token_trim(ac_token_t token) {
    while (token.length && ac_is_space(token.at[0])) {
        token.at++;
        token.length--;
    }
    while (token.length && ac_is_space(token.at[token.length - 1]))
        token.length--;
    return token;
}

AC_START static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool refuse(ac_refusal_t *refusal, const char *at, const char *hint) {
    refusal->at = at;
    refusal->hint = hint;
    return false;
}

AC_START static bool read_integer(ac_token_t token, uint64_t *value) {
    *value = 0;
    for (size_t i = 0; i < token.length; i++) {
        if (!is_digit(token.at[i]) || *value > (UINT64_MAX - 9) / 10)
            return false;
        *value = *value * 10 + (uint64_t)(token.at[i] - '0');
    }
    return token.length > 0;
}

AC_START static bool is_power_of_two(uint64_t n) {
    return n != 0 && (n & (n - 1)) == 0;
}

/* ---- units ---- */

typedef struct {
    char name[4];
    uint64_t size;
} unit_t;

#define POWER(letter, shift)                                                                     \
    {letter, (uint64_t)1 << (shift)}, {letter "B", (uint64_t)1 << (shift)}, {                    \
        letter "iB", (uint64_t)1 << (shift)                                                      \
    }
static const unit_t size_units[] = {{"B", 1},      POWER("K", 10), POWER("M", 20),
                                    POWER("G", 30), POWER("T", 40), {"", 0}};
static const unit_t time_units[] = {
    {"ms", 1}, {"s", 1000}, {"min", 60000}, {"h", 3600000}, {"", 0}};

/* Cuts the unit off the end of a token and returns its size; 0: it ends in a digit, or in no unit. */
AC_START static uint64_t take_unit(const unit_t *units, ac_token_t *token) {
    size_t length = token->length;
    while (length && !is_digit(token->at[length - 1]))
        length--;
    ac_token_t name = {token->at + length, token->length - length};
    for (; *units->name; units++) {
        if (ac_token_is(name, units->name)) {
            token->length = length;
            return units->size;
        }
    }
    return 0;
}

/* ---- bool ---- */

AC_START static bool read_switch(ac_token_t token, bool *on) {
    static const char words[8][6] = {"true", "yes", "on", "1", "false", "no", "off", "0"};
    for (int i = 0; i < 8; i++) {
        if (ac_token_is(token, words[i])) {
            *on = i < 4;
            return true;
        }
    }
    return false;
}

AC_START static bool read_bool(ac_token_t token, ac_bounds_t bounds, void *field,
                               ac_refusal_t *refusal) {
    (void)bounds;
    return read_switch(token, field) || refuse(refusal, token.at, NULL);
}

static int write_bool(const void *field, char *text, size_t size) {
    return snprintf(text, size, "%s", *(const bool *)field ? "true" : "false");
}

/* ---- sizes ---- */

/* Reads a size in bytes.  A number without a unit counts in units of `own` bytes. */
AC_START static bool read_size(ac_token_t token, uint64_t own, uint64_t *bytes) {
    uint64_t n, unit = take_unit(size_units, &token);
    if (!unit)
        unit = own;
    if (!read_integer(token, &n) || n > UINT64_MAX / unit)
        return false;
    *bytes = n * unit;
    return true;
}

AC_START static bool read_megabytes(ac_token_t token, ac_bounds_t bounds, void *field,
                                    ac_refusal_t *refusal) {
    const uint64_t mib = 1 << 20;
    uint64_t n;
    if (!read_size(token, mib, &n) || n % mib || (double)(n / mib) < bounds.low ||
        (double)(n / mib) > bounds.high)
        return refuse(refusal, token.at, NULL);
    *(uint64_t *)field = n;
    return true;
}

static int write_megabytes(const void *field, char *text, size_t size) {
    return snprintf(text, size, "%" PRIu64, *(const uint64_t *)field >> 20);
}

AC_START static bool read_megabytes_or_none(ac_token_t token, ac_bounds_t bounds, void *field,
                                            ac_refusal_t *refusal) {
    if (!ac_token_is(token, "none"))
        return read_megabytes(token, bounds, field, refusal);
    *(uint64_t *)field = UINT64_MAX;
    return true;
}

static int write_megabytes_or_none(const void *field, char *text, size_t size) {
    if (*(const uint64_t *)field == UINT64_MAX)
        return snprintf(text, size, "none");
    return write_megabytes(field, text, size);
}

AC_START static bool read_bytes(ac_token_t token, ac_bounds_t bounds, void *field,
                                ac_refusal_t *refusal) {
    uint64_t n;
    if (!read_size(token, 1, &n) ||
        (n != 0 && ((double)n < bounds.low || (double)n > bounds.high)))
        return refuse(refusal, token.at, NULL);
    *(uint64_t *)field = n;
    return true;
}

static int write_bytes(const void *field, char *text, size_t size) {
    static const char suffixes[] = "KMGT";
    uint64_t n = *(const uint64_t *)field;
    unsigned power = 0;
    while (power < 4 && n != 0 && n % 1024 == 0) {
        n /= 1024;
        power++;
    }
    char suffix[2] = {power ? suffixes[power - 1] : '\0', '\0'};
    return snprintf(text, size, "%" PRIu64 "%s", n, suffix);
}

/* ---- a size, or true or false ---- */

AC_START static bool read_bool_or_bytes(ac_token_t token, ac_bounds_t bounds, void *field,
                                        ac_refusal_t *refusal) {
    bool yes;
    if (!read_switch(token, &yes))
        return read_bytes(token, bounds, field, refusal);
    *(uint64_t *)field = yes ? UINT64_MAX : 0;
    return true;
}

static int write_bool_or_bytes(const void *field, char *text, size_t size) {
    uint64_t n = *(const uint64_t *)field;
    return n && n != UINT64_MAX ? write_bytes(field, text, size)
                                : snprintf(text, size, "%s", n ? "true" : "false");
}

AC_START static bool read_number(ac_token_t token, ac_bounds_t bounds, void *field,
                                 ac_refusal_t *refusal) {
    uint64_t n;
    if (!read_integer(token, &n) ||
        (n != 0 && ((double)n < bounds.low || (double)n > bounds.high)))
        return refuse(refusal, token.at, NULL);
    *(uint64_t *)field = n;
    return true;
}

static int write_number(const void *field, char *text, size_t size) {
    return snprintf(text, size, "%" PRIu64, *(const uint64_t *)field);
}

/* ---- roundup_power2_divisions ----
 *
 * Slot i stands for sizes from 2^i MiB to below 2^(i+1) MiB, the first slot also for smaller and the last
 * also for larger ones.  In the list form the first key fills every slot up to its own, and `>` every slot
 * after the last key.  A slot without a key is 0. */

static bool read_division(ac_token_t token, ac_bounds_t bounds, uint32_t *n) {
    uint64_t value;
    if (!read_integer(token, &value) || (value != 0 && !is_power_of_two(value)) ||
        (double)value > bounds.high)
        return false;
    *n = (uint32_t)value;
    return true;
}

static const char pair_expected[] =
    "K:N pairs separated by commas, K a power of two from 1 to "
    "32768 (MiB) or > at the end, N a power of two up to 1024 or 0";

static bool read_division_list(ac_token_t token, ac_bounds_t bounds, uint32_t *slots,
                               ac_refusal_t *refusal) {
    const char *at = token.at + 1, *end = token.at + token.length - 1; /* inside the brackets */
    int last = -1;
    bool closed = false; /* `>` was seen */
    memset(slots, 0, AC_CONFIG_DIVISIONS * sizeof *slots);
    for (;;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *stop = comma ? comma : end;
        const char *colon = memchr(at, ':', (size_t)(stop - at));
        if (!colon)
            return refuse(refusal, at, pair_expected);
        ac_token_t key = ac_token_trim((ac_token_t){at, (size_t)(colon - at)});
        ac_token_t division = ac_token_trim((ac_token_t){colon + 1, (size_t)(stop - colon - 1)});
        uint32_t n;
        if (!read_division(division, bounds, &n))
            return refuse(refusal, division.at, "N to be a power of two up to 1024, or 0");
        if (closed)
            return refuse(refusal, key.at, "nothing after >, which must come last");
        if (ac_token_is(key, ">")) {
            if (last < 0)
                return refuse(refusal, key.at, "a size before >; N alone speaks for all sizes");
            for (int i = last + 1; i < AC_CONFIG_DIVISIONS; i++)
                slots[i] = n;
            closed = true;
        } else {
            uint64_t size;
            if (!read_integer(key, &size) || !is_power_of_two(size) ||
                size >> AC_CONFIG_DIVISIONS != 0)
                return refuse(refusal, key.at,
                              "K to be a power of two from 1 to 32768 (MiB), or >");
            int slot = __builtin_ctzll(size);
            if (slot <= last)
                return refuse(refusal, key.at, "sizes in rising order");
            for (int i = last < 0 ? 0 : slot; i <= slot; i++)
                slots[i] = n;
            last = slot;
        }
        if (!comma)
            return true;
        at = comma + 1;
    }
}

static bool read_divisions(ac_token_t token, ac_bounds_t bounds, void *field,
                           ac_refusal_t *refusal) {
    uint32_t *slots = field;
    if (token.length >= 2 && token.at[0] == '[')
        return read_division_list(token, bounds, slots, refusal);
    uint32_t n;
    if (!read_division(token, bounds, &n))
        return refuse(refusal, token.at, NULL);
    for (int i = 0; i < AC_CONFIG_DIVISIONS; i++)
        slots[i] = n;
    return true;
}

static int write_divisions(const void *field, char *text, size_t size) {
    const uint32_t *slots = field;
    int first = 0, tail = AC_CONFIG_DIVISIONS - 1;
    while (first < AC_CONFIG_DIVISIONS - 1 && slots[first + 1] == slots[0])
        first++;
    if (first == AC_CONFIG_DIVISIONS - 1)
        return snprintf(text, size, "%" PRIu32, slots[0]);
    while (slots[tail - 1] == slots[AC_CONFIG_DIVISIONS - 1])
        tail--;
    int length = 0;
    for (int i = first; i < AC_CONFIG_DIVISIONS; i++) {
        size_t room = (size_t)length < size ? size - (size_t)length : 0;
        char *at = room ? text + length : NULL;
        const char *before = i == first ? "[" : ",";
        if (i == tail && slots[i] == 0)
            break;
        if (i == tail) {
            length += snprintf(at, room, "%s>:%" PRIu32, before, slots[i]);
            break;
        }
        length += snprintf(at, room, "%s%d:%" PRIu32, before, 1 << i, slots[i]);
    }
    size_t room = (size_t)length < size ? size - (size_t)length : 0;
    return length + snprintf(room ? text + length : NULL, room, "]");
}

/* ---- decimal numbers ---- */

AC_START static bool read_decimal(ac_token_t token, double *value) {
    uint64_t n = 0; /* without the point */
    size_t decimals = 0;
    bool point = false;
    for (size_t i = 0; i < token.length; i++) {
        char c = token.at[i];
        if (c == '.' && !point && i > 0 && i + 1 < token.length) {
            point = true;
            continue;
        }
        decimals += point;
        if (!is_digit(c) || n >= 100000000000000 || decimals > DIGITS)
            return false;
        n = n * 10 + (uint64_t)(c - '0');
    }
    *value = (double)n / power_of_ten[decimals];
    return token.length > 0;
}

AC_START static bool read_fraction(ac_token_t token, ac_bounds_t bounds, void *field,
                                   ac_refusal_t *refusal) {
    double value;
    if (!read_decimal(token, &value) || value < bounds.low || value > bounds.high)
        return refuse(refusal, token.at, NULL);
    *(double *)field = value;
    return true;
}

/* Reads a time.  `own` is the key's unit in milliseconds, for the value and for a number without a unit. */
AC_START static bool read_time(ac_token_t token, double own, ac_bounds_t bounds, double *value) {
    uint64_t unit = take_unit(time_units, &token);
    if (!read_decimal(token, value))
        return false;
    if (unit)
        *value = *value * (double)unit / own;
    return *value == 0 || (*value >= bounds.low && *value <= bounds.high);
}

AC_START static bool read_seconds(ac_token_t token, ac_bounds_t bounds, void *field,
                                  ac_refusal_t *refusal) {
    double value;
    if (!read_time(token, 1000, bounds, &value))
        return refuse(refusal, token.at, NULL);
    *(double *)field = value;
    return true;
}

AC_START static bool read_milliseconds(ac_token_t token, ac_bounds_t bounds, void *field,
                                       ac_refusal_t *refusal) {
    double value;
    if (!read_time(token, 1, bounds, &value) || value != (double)(uint64_t)value)
        return refuse(refusal, token.at, NULL);
    *(uint64_t *)field = (uint64_t)value;
    return true;
}

/* Writes the fewest decimals that read back as the same number, else all 15 digits. */
static int write_decimal(const void *field, char *text, size_t size) {
    double value = *(const double *)field;
    if (!(value > 0) || value >= 1e9)
        return snprintf(text, size, value >= 1e9 ? "999999999" : "0");
    uint64_t n = 0;
    int decimals = 0;
    for (int i = 0; i <= DIGITS && value * power_of_ten[i] < 1e15 - 1; i++) {
        n = (uint64_t)(value * power_of_ten[i] + 0.5);
        decimals = i;
        if ((double)n / power_of_ten[i] == value)
            break;
    }
    uint64_t unit = (uint64_t)power_of_ten[decimals];
    if (decimals == 0)
        return snprintf(text, size, "%" PRIu64, n);
    return snprintf(text, size, "%" PRIu64 ".%0*" PRIu64, n / unit, decimals, n % unit);
}

/* ---- words: stored as int or as an enumeration of int's size ---- */

typedef struct {
    char word[12]; /* empty: the end */
    int value;
} word_t;

static const word_t fence_words[] = {{"auto", AC_FENCE_AUTO},
                                     {"ctx", AC_FENCE_CTX},
                                     {"streams", AC_FENCE_STREAMS},
                                     {"sync", AC_FENCE_SYNC},
                                     {"", 0}};
static const word_t deepbind_words[] = {
    {"strip", AC_DEEPBIND_STRIP}, {"keep", AC_DEEPBIND_KEEP}, {"", 0}};
static const word_t ipc_words[] = {
    {"auto", AC_IPC_AUTO}, {"native", AC_IPC_OWN_SEGMENTS}, {"off", AC_IPC_OFF}, {"", 0}};
static const word_t view_words[] = {
    {"limit", AC_VIEW_LIMIT}, {"device", AC_VIEW_DEVICE}, {"", 0}};
static const word_t dump_format_words[] = {
    {"json", AC_DUMP_JSON}, {"prometheus", AC_DUMP_PROMETHEUS}, {"", 0}};
static const word_t pages_words[] = {
    {"false", AC_PAGES_OFF}, {"true", AC_PAGES_ON}, {"auto", AC_PAGES_AUTO}, {"", 0}};
static const word_t free_sync_words[] = {{"false", AC_FREE_SYNC_OFF},
                                         {"true", AC_FREE_SYNC_ON},
                                         {"auto", AC_FREE_SYNC_AUTO},
                                         {"", 0}};
static const word_t leak_report_words[] = {
    {"false", AC_LEAKS_OFF}, {"true", AC_LEAKS_SAY}, {"dump", AC_LEAKS_DUMP}, {"", 0}};
static const word_t stacks_words[] = {
    {"none", AC_STACKS_NONE}, {"sampled", AC_STACKS_SAMPLED}, {"all", AC_STACKS_ALL}, {"", 0}};
static const word_t signal_words[] = {
    {"none", 0}, {"HUP", SIGHUP}, {"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"", 0}};
/* The order of ac_log_level_t. */
static const word_t log_level_words[] = {{"none", 0}, {"error", 1}, {"warning", 2},
                                         {"info", 3}, {"debug", 4}, {"", 0}};

_Static_assert(sizeof(ac_fence_mode_t) == sizeof(int) && sizeof(ac_deepbind_t) == sizeof(int) &&
                   sizeof(ac_ipc_mode_t) == sizeof(int) && sizeof(ac_view_t) == sizeof(int) &&
                   sizeof(ac_pages_mode_t) == sizeof(int) &&
                   sizeof(ac_free_sync_t) == sizeof(int) && sizeof(ac_stacks_t) == sizeof(int) &&
                   sizeof(ac_leak_report_t) == sizeof(int) &&
                   sizeof(ac_dump_format_t) == sizeof(int),
               "words are stored through an int");

AC_START static bool read_word(const word_t *words, ac_token_t token, void *field) {
    for (; words->word[0]; words++) {
        if (ac_token_is(token, words->word)) {
            memcpy(field, &words->value, sizeof words->value);
            return true;
        }
    }
    return false;
}

static int write_word(const word_t *words, const void *field, char *text, size_t size) {
    int value;
    memcpy(&value, field, sizeof value);
    for (; words->word[0]; words++) {
        if (words->value == value)
            return snprintf(text, size, "%s", words->word);
    }
    return snprintf(text, size, "%d", value);
}

/* In every list with "false" and "true" these are 0 and 1: any word for one of them serves. */
_Static_assert(AC_PAGES_OFF == 0 && AC_PAGES_ON == 1 && AC_FREE_SYNC_OFF == 0 &&
                   AC_FREE_SYNC_ON == 1 && AC_LEAKS_OFF == 0 && AC_LEAKS_SAY == 1,
               "read_switch_word");

AC_START static bool read_switch_word(const word_t *words, ac_token_t token, void *field) {
    bool on;
    int value;
    if (!ac_token_is((ac_token_t){words->word, strlen(words->word)}, "false") ||
        !read_switch(token, &on))
        return false;
    value = on;
    memcpy(field, &value, sizeof value);
    return true;
}

#define WORD_TYPE(type)                                                                          \
    static bool read_##type(ac_token_t token, ac_bounds_t bounds, void *field,                   \
                            ac_refusal_t *refusal) {                                             \
        (void)bounds;                                                                            \
        return read_word(type##_words, token, field) ||                                          \
               read_switch_word(type##_words, token, field) ||                                   \
               refuse(refusal, token.at, NULL);                                                  \
    }                                                                                            \
    static int write_##type(const void *field, char *text, size_t size) {                        \
        return write_word(type##_words, field, text, size);                                      \
    }
WORD_TYPE(fence)
WORD_TYPE(deepbind)
WORD_TYPE(ipc)
WORD_TYPE(view)
WORD_TYPE(dump_format)
WORD_TYPE(pages)
WORD_TYPE(free_sync)
WORD_TYPE(leak_report)
WORD_TYPE(stacks)
WORD_TYPE(log_level)

/* Returns false for signals that cannot be caught, that report a fault at the current instruction (the
 * handler would return to it endlessly), that the kernel sends in normal operation, and that the C
 * library reserves (below SIGRTMIN). */
static bool signal_is_usable(uint64_t number) {
    static const int reserved[] = {SIGKILL, SIGSTOP, SIGSEGV, SIGBUS,  SIGFPE, SIGILL,
                                   SIGTRAP, SIGABRT, SIGSYS,  SIGCHLD, SIGPIPE};
    if (number < 1 || number > 64 || (number >= 32 && number < (uint64_t)SIGRTMIN))
        return false;
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++) {
        if (number == (uint64_t)reserved[i])
            return false;
    }
    return true;
}

AC_START static bool read_signal(ac_token_t token, ac_bounds_t bounds, void *field,
                                 ac_refusal_t *refusal) {
    (void)bounds;
    uint64_t number;
    ac_token_t name = token;
    if (name.length > 3 && ac_token_is((ac_token_t){name.at, 3}, "SIG"))
        name = (ac_token_t){name.at + 3, name.length - 3};
    if (read_word(signal_words, name, field))
        return true;
    if (!read_integer(token, &number) || !signal_is_usable(number))
        return refuse(refusal, token.at, NULL);
    *(int *)field = (int)number;
    return true;
}

static int write_signal(const void *field, char *text, size_t size) {
    return write_word(signal_words, field, text, size);
}

/* ---- fill: a pattern of 1, 2 or 4 bytes, four times, twice or once ---- */

/* All bits set: not a number in every floating-point format that devices have. */
#define FILL_NAN (AC_FILL_SET | UINT32_MAX)

AC_START static bool read_hexadecimal(ac_token_t token, uint32_t *value) {
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    *value = 0;
    for (size_t i = 0; i < token.length; i++) {
        const char *digit = token.at[i] ? strchr(digits, token.at[i]) : NULL;
        if (!digit)
            return false;
        *value = *value << 4 | (uint32_t)((digit - digits) & 15);
    }
    return token.length == 2 || token.length == 4 || token.length == 8;
}

AC_START static bool read_fill(ac_token_t token, ac_bounds_t bounds, void *field,
                               ac_refusal_t *refusal) {
    uint64_t *fill = field;
    uint32_t word;
    (void)bounds;
    if (ac_token_is(token, "none") || ac_token_is(token, "nan")) {
        *fill = ac_token_is(token, "nan") ? FILL_NAN : 0;
        return true;
    }
    if (token.length < 2 || token.at[0] != '0' || token.at[1] != 'x' ||
        !read_hexadecimal((ac_token_t){token.at + 2, token.length - 2}, &word))
        return refuse(refusal, token.at, NULL);
    if (token.length == 4)
        word |= word << 8;
    if (token.length <= 6)
        word |= word << 16;
    *fill = AC_FILL_SET | word;
    return true;
}

static int write_fill(const void *field, char *text, size_t size) {
    uint64_t fill = *(const uint64_t *)field;
    if (!fill || fill == FILL_NAN)
        return snprintf(text, size, "%s", fill ? "nan" : "none");
    return snprintf(text, size, "0x%08" PRIx32, (uint32_t)fill);
}

/* ---- one in N ---- */

AC_START static bool read_sample(ac_token_t token, ac_bounds_t bounds, void *field,
                                 ac_refusal_t *refusal) {
    uint64_t n = 0;
    bool share = token.length > 2 && token.at[0] == '1' && token.at[1] == '/';
    if (!share && !ac_token_is(token, "off"))
        return refuse(refusal, token.at, NULL);
    if (share && (!read_integer((ac_token_t){token.at + 2, token.length - 2}, &n) ||
                  (double)n < bounds.low || (double)n > bounds.high))
        return refuse(refusal, token.at + 2, NULL);
    *(uint64_t *)field = n;
    return true;
}

static int write_sample(const void *field, char *text, size_t size) {
    uint64_t n = *(const uint64_t *)field;
    return n ? snprintf(text, size, "1/%" PRIu64, n) : snprintf(text, size, "off");
}

/* ---- file name patterns ---- */

AC_START static bool read_pattern(ac_token_t token, ac_bounds_t bounds, void *field,
                                  ac_refusal_t *refusal) {
    (void)bounds;
    if (token.length >= AC_CONFIG_PATH)
        return refuse(refusal, token.at, "a path of at most 1023 bytes");
    for (size_t i = 0; i < token.length; i++) {
        if (token.at[i] != '%')
            continue;
        if (i + 1 == token.length || !strchr("phre%", token.at[i + 1]))
            return refuse(refusal, token.at + i, "%p, %h, %r, %e or %% after a percent sign");
        i++;
    }
    memset(field, 0, AC_CONFIG_PATH);
    memcpy(field, token.at, token.length);
    return true;
}

static int write_pattern(const void *field, char *text, size_t size) {
    return snprintf(text, size, "%s", (const char *)field);
}

const ac_value_type_t ac_value_types[AC_VALUE_TYPES] = {
    [AC_VALUE_BOOL] = {read_bool, write_bool},
    [AC_VALUE_MEGABYTES] = {read_megabytes, write_megabytes},
    [AC_VALUE_MEGABYTES_OR_NONE] = {read_megabytes_or_none, write_megabytes_or_none},
    [AC_VALUE_BYTES] = {read_bytes, write_bytes},
    [AC_VALUE_BOOL_OR_BYTES] = {read_bool_or_bytes, write_bool_or_bytes},
    [AC_VALUE_NUMBER] = {read_number, write_number},
    [AC_VALUE_DIVISIONS] = {read_divisions, write_divisions},
    [AC_VALUE_FRACTION] = {read_fraction, write_decimal},
    [AC_VALUE_SECONDS] = {read_seconds, write_decimal},
    [AC_VALUE_MILLISECONDS] = {read_milliseconds, write_number},
    [AC_VALUE_FENCE] = {read_fence, write_fence},
    [AC_VALUE_DEEPBIND] = {read_deepbind, write_deepbind},
    [AC_VALUE_IPC] = {read_ipc, write_ipc},
    [AC_VALUE_VIEW] = {read_view, write_view},
    [AC_VALUE_DUMP_FORMAT] = {read_dump_format, write_dump_format},
    [AC_VALUE_PAGES] = {read_pages, write_pages},
    [AC_VALUE_FREE_SYNC] = {read_free_sync, write_free_sync},
    [AC_VALUE_LEAK_REPORT] = {read_leak_report, write_leak_report},
    [AC_VALUE_STACKS] = {read_stacks, write_stacks},
    [AC_VALUE_FILL] = {read_fill, write_fill},
    [AC_VALUE_SAMPLE] = {read_sample, write_sample},
    [AC_VALUE_PATTERN] = {read_pattern, write_pattern},
    [AC_VALUE_SIGNAL] = {read_signal, write_signal},
    [AC_VALUE_LOG_LEVEL] = {read_log_level, write_log_level},
};
