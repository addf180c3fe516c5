/* The screen of `top`; see top.h.  Without ncurses it says what to install. */
#include "show/top.h"
#include "command.h"

#ifndef AC_NCURSES

int top_run(double seconds, top_sort_t by) {
    (void)seconds;
    (void)by;
    cmd_say("built without ncurses: install libncurses-dev and build again; --json and "
            "`accelcache top | cat` print one look");
    return CMD_FAILED;
}

#else

#include "read/control.h"

#include <locale.h>
#include <ncurses.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { HEAD = 1, MESSAGE = 200 };

typedef struct {
    top_sample_t sample;
    top_sort_t by;
    ac_live_name_t chosen; /* of the process under the bar */
    unsigned row; /* its row; if it is gone, the row in its place */
    char message[MESSAGE];
} screen_t;

/* A line of the window, cut at its edge and filled with blanks. */
static void put_line(int y, attr_t attributes, const char *text) {
    if (y < 0 || y >= LINES)
        return;
    move(y, 0);
    clrtoeol();
    attrset(attributes);
    char *safe = cmd_safe(text);
    mvprintw(y, 0, "%-*.*s", attributes & A_REVERSE ? COLS : 0, COLS, safe);
    free(safe);
    attrset(A_NORMAL);
}

static void put_device(int y, const top_device_t *d) {
    char text[3][CMD_FIGURE];
    double split = d->reserved ? 100 * (double)d->split / (double)d->reserved : 0;
    char *line =
        cmd_format("%8lld %9s %9s %9s %5.0f %5u  %s", (long long)d->ordinal,
                   cmd_text_bytes(text[0], d->total), cmd_text_bytes(text[1], d->reserved),
                   cmd_text_bytes(text[2], d->allocated), split, d->processes, d->name);
    put_line(y, A_NORMAL, line);
    free(line);
}

static void put_process(int y, const top_process_t *p, bool chosen) {
    char text[3][CMD_FIGURE], rate[CMD_FIGURE] = "-";
    if (p->per_s >= 0)
        cmd_text_count(rate, (int64_t)(p->per_s + 0.5));
    char *line = cmd_format(
        "%8s %9s %9s %9s %8s %5.1f %5.0f %4lld  %s", p->id, cmd_text_bytes(text[0], p->reserved),
        cmd_text_bytes(text[1], p->allocated), cmd_text_bytes(text[2], p->peak), rate, p->hit,
        p->fragmentation, (long long)p->ooms, p->program);
    put_line(y, chosen ? A_REVERSE : A_NORMAL, line);
    free(line);
}

/* Some rows have no room. */
static void put_cut(int y, unsigned shown, unsigned all, const char *what) {
    char *line = cmd_format("  %u of %u %s: a larger window or --json shows more", shown, all, what);
    put_line(y, A_DIM, line);
    free(line);
}

static void put_head(const screen_t *s, double seconds) {
    char clock[20];
    time_t now = time(NULL);
    struct tm local;
    strftime(clock, sizeof clock, "%H:%M:%S", localtime_r(&now, &local));
    char *line = cmd_format("accelcache top  %s  %u process%s on %u device%s, every %g s", clock,
                            s->sample.count, s->sample.count == 1 ? "" : "es", s->sample.devices,
                            s->sample.devices == 1 ? "" : "s", seconds);
    if (s->sample.unread) {
        char *longer = cmd_format("%s; %u cannot be read (accelcache ps says why)", line,
                                  s->sample.unread);
        free(line);
        line = longer;
    }
    put_line(0, A_BOLD, line);
    free(line);
}

/* The row of the process under the bar; the bar stays with its process wherever that is sorted. */
static void find_chosen(screen_t *s) {
    for (unsigned i = 0; i < s->sample.count; i++)
        if (s->sample.process[i].name.pid == s->chosen.pid &&
            s->sample.process[i].name.space == s->chosen.space) {
            s->row = i;
            return;
        }
    if (s->row >= s->sample.count)
        s->row = s->sample.count ? s->sample.count - 1 : 0;
    if (s->sample.count)
        s->chosen = s->sample.process[s->row].name;
}

static void draw(screen_t *s, double seconds) {
    int y = HEAD, footer = LINES - 1;
    erase();
    put_head(s, seconds);
    put_line(++y, A_UNDERLINE, "  DEVICE    MEMORY  RESERVED ALLOCATED FRAG% PROCS  NAME");
    /* Processes matter more, but two devices have room on any window. */
    int most = (LINES - 8) / 2 > 2 ? (LINES - 8) / 2 : 2;
    for (unsigned i = 0; i < s->sample.devices && (int)i < most; i++)
        put_device(++y, &s->sample.device[i]);
    if ((int)s->sample.devices > most)
        put_cut(++y, (unsigned)most, s->sample.devices, "devices");
    y += 2;
    put_line(y, A_UNDERLINE,
             "     PID  RESERVED ALLOCATED      PEAK    REQ/S  HIT% FRAG%  OOM  PROGRAM");
    find_chosen(s);
    int room = footer - 1 - (y + 1);
    if ((int)s->sample.count > room)
        put_cut(footer - 1, (unsigned)(room > 0 ? room : 0), s->sample.count, "processes");
    unsigned first = room > 0 && (int)s->row >= room ? s->row - (unsigned)room + 1 : 0;
    for (unsigned i = first; i < s->sample.count && (int)(i - first) < room; i++)
        put_process(++y, &s->sample.process[i], i == s->row);
    if (!s->sample.count)
        put_line(y + 1, A_NORMAL, "no process runs under accelcache");
    if (*s->message)
        put_line(footer - 1, A_NORMAL, s->message);
    char *keys = cmd_format("q quit  arrows choose  s sort: %s  d dump  t trim  r reset peaks",
                            top_sort_names[s->by]);
    put_line(footer, A_BOLD, keys);
    free(keys);
    refresh();
}

static void look(screen_t *s) {
    top_sample_t next;
    top_look(&next, s->sample.at > 0 ? &s->sample : NULL, true);
    top_clear(&s->sample);
    s->sample = next;
    top_sort(&s->sample, s->by);
}

static void ask(screen_t *s, ac_control_verb_t verb) {
    ac_control_answer_t answer;
    char *error = NULL, bytes[CMD_FIGURE];
    if (!s->sample.count)
        return;
    int pid = s->chosen.pid;
    if (!cmd_control(&s->chosen, verb, NULL, &answer, &error)) {
        char *safe = cmd_safe(error);
        snprintf(s->message, sizeof s->message, "%s", safe);
        free(safe);
    } else if (verb == AC_CONTROL_DUMP) {
        char *safe = cmd_safe(answer.text);
        snprintf(s->message, sizeof s->message, "process %d wrote %s", pid, safe);
        free(safe);
    } else if (verb == AC_CONTROL_TRIM) {
        snprintf(s->message, sizeof s->message, "process %d gave back %s", pid,
                 cmd_text_bytes(bytes, (int64_t)answer.bytes));
    } else {
        snprintf(s->message, sizeof s->message, "process %d: peaks are reset", pid);
    }
    free(error);
}

static void move_bar(screen_t *s, int by) {
    if (by < 0 ? s->row == 0 : s->row + 1 >= s->sample.count)
        return;
    s->row = by < 0 ? s->row - 1 : s->row + 1;
    s->chosen = s->sample.process[s->row].name;
}

/* False: the user ends it.  *again: a look is wanted now. */
static bool press(screen_t *s, int key, bool *again) {
    switch (key) {
    case 'q':
    case 'Q':
        return false;
    case KEY_UP:
    case 'k':
        move_bar(s, -1);
        break;
    case KEY_DOWN:
    case 'j':
        move_bar(s, 1);
        break;
    case 's':
        s->by = (top_sort_t)((s->by + 1) % TOP_SORTS);
        top_sort(&s->sample, s->by);
        break;
    case 'd':
        ask(s, AC_CONTROL_DUMP);
        break;
    case 't':
        ask(s, AC_CONTROL_TRIM);
        break;
    case 'r':
        ask(s, AC_CONTROL_RESET_PEAKS);
        break;
    default:
        break;
    }
    *again = key == ' ' || key == 'd' || key == 't' || key == 'r';
    return true;
}

static volatile sig_atomic_t stopped;

static void on_signal(int number) {
    stopped = number;
}

static int milliseconds_left(const screen_t *s, double seconds) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    double left = s->sample.at + seconds - ((double)t.tv_sec + (double)t.tv_nsec / 1e9);
    return left <= 0 ? 0 : (int)(left * 1000) + 1;
}

/* ERR: none came so far.  If stdin is no terminal, there is nothing to read. */
static int key_of(int ms) {
    if (!isatty(STDIN_FILENO)) {
        poll(NULL, 0, ms);
        return ERR;
    }
    timeout(ms);
    return getch();
}

int top_run(double seconds, top_sort_t by) {
    screen_t s = {.by = by};
    const struct sigaction action = {.sa_handler = on_signal};
    setlocale(LC_CTYPE, "");
    SCREEN *terminal = newterm(NULL, stdout, stdin);
    if (!terminal) {
        cmd_say(
            "this terminal (TERM) cannot be drawn on: --json and `accelcache top | cat` print "
            "one look");
        return CMD_FAILED;
    }
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    cbreak();
    noecho();
    keypad(stdscr, TRUE);
    curs_set(0);
    look(&s);
    for (bool going = true; going && !stopped;) {
        bool again = false;
        draw(&s, seconds);
        int key = key_of(milliseconds_left(&s, seconds));
        if (key != ERR)
            going = press(&s, key, &again);
        if (going && (again || !milliseconds_left(&s, seconds)))
            look(&s);
    }
    endwin();
    delscreen(terminal);
    top_clear(&s.sample);
    return stopped ? 128 + stopped : CMD_OK;
}

#endif
