/* `accelcache-dev bench`: starting the programs that measure; see bench.h. */
#include "bench.h"
#include "base/child.h"
#include "command.h"
#include "run/place.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_ARGUMENTS = 24, MAX_SECONDS = 300, OPTIONS = 5 /* of valgrind, its own name included */ };

typedef struct {
    char *text; /* buffer of the pointers below */
    char *argument[MAX_ARGUMENTS + 1];
    int count;
} words_t;

static void add_words(words_t *words) {
    char *state, *word = strtok_r(words->text, " ", &state);
    for (; word && words->count < MAX_ARGUMENTS; word = strtok_r(NULL, " ", &state))
        words->argument[words->count++] = word;
}

/* Runs in the child.  The alarm survives exec and ends a program that hangs. */
static void become(const bench_t *b, const bench_child_t *child, char *const *argument, int out,
                   int err) {
    if (b->simulator) {
        char *path = cmd_place_prepend(b->simulator, getenv("LD_LIBRARY_PATH"));
        setenv("LD_LIBRARY_PATH", child->sim ? path : cmd_place_prepend(b->free_driver, path), 1);
        setenv("ACCEL_SIM", child->sim ? child->sim : "", 1);
    }
    const char *preload = getenv("LD_PRELOAD");
    if (child->preload) {
        setenv("ACCEL_ALLOC_CONF", child->conf ? child->conf : b->conf, 1);
        preload = cmd_place_preload(b->library, preload);
    }
    if (b->runtime) /* behind the library: its functions come before the runtime's */
        preload = preload ? cmd_place_prepend(preload, b->runtime) : b->runtime;
    if (preload)
        setenv("LD_PRELOAD", preload, 1);
    alarm(MAX_SECONDS);
    if (dup2(out, STDOUT_FILENO) < 0 || dup2(err, STDERR_FILENO) < 0)
        _exit(CMD_CANNOT_RUN);
    execvp(argument[0], argument);
    int error = errno;
    dprintf(STDERR_FILENO, "%s: %s\n", argument[0], strerror(error));
    _exit(error == ENOENT ? CMD_NOT_FOUND : CMD_CANNOT_RUN);
}

static pid_t start(const bench_t *b, const bench_child_t *child, char *const *argument, int out,
                   int err) {
    fflush(NULL);
    pid_t ours = getpid(), pid = fork();
    if (pid == 0) {
        cmd_child_bind(ours);
        become(b, child, argument, out, err);
    }
    return pid;
}

/* Returns the status in the form of a shell; -1: there was no process. */
static int finish(pid_t pid, struct rusage *usage) {
    int status;
    if (pid < 0)
        return -1;
    if (cmd_child_wait_bound(pid, &status, usage))
        return -1;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Reads a file in memory as text, malloc'd. */
static char *read_memory(int fd) {
    char *path = cmd_format("/proc/self/fd/%d", fd), *text = cmd_file_read(path, NULL);
    free(path);
    return text ? text : cmd_format("%s", "");
}

/* Returns the last line that a program printed, or a line with its status. */
static char *last_line(const char *text, const char *program, int status) {
    size_t length = strlen(text);
    if (status == 128 + SIGALRM)
        return cmd_format("%s took more than %d s", program, MAX_SECONDS);
    while (length && text[length - 1] == '\n')
        length--;
    size_t begin = length;
    while (begin && text[begin - 1] != '\n')
        begin--;
    return length ? cmd_format("%.*s", (int)(length - begin), text + begin)
                  : cmd_format("%s ended with status %d", program, status);
}

/* Parses all JSON objects of a text into an array; NULL if there is no object. */
static json_t *parse(const char *text) {
    json_t *all = json_array();
    size_t left = strlen(text);
    while (left) {
        json_error_t error;
        json_t *one = json_loadb(text, left, JSON_DISABLE_EOF_CHECK, &error);
        if (!one)
            break;
        json_array_append_new(all, one);
        text += error.position;
        left -= (size_t)error.position;
        size_t blanks = strspn(text, " \n");
        text += blanks;
        left -= blanks;
    }
    if (!left && json_array_size(all))
        return all;
    json_decref(all);
    return NULL;
}

/* Fills absolute name and arguments; false: *error names the missing part. */
static bool make_words(bench_t *b, words_t *words, const bench_child_t *child, const char *arguments,
                       int counted, char **error) {
    size_t name = strcspn(child->program, " ");
    char *program = cmd_format("%.*s", (int)name, child->program), *path = program;
    if (*program != '/') {
        path = cmd_place_helper(program, error);
        if (!path)
            bench_files_missed(b, program);
        free(program);
    }
    if (path && !bench_files_same(b, child, path)) {
        free(path);
        path = NULL;
    }
    if (!path)
        return false;
    /* The path of the helper may contain blanks, so it is added as a whole. */
    words->count = 0;
    words->text = cmd_format("%s %s", child->program + name, arguments);
    if (child->count) {
        static const char *const options[] = {"valgrind", "--tool=callgrind",
                                              "--combine-dumps=yes", "--dump-after=bench_mark"};
        for (unsigned i = 0; i < sizeof options / sizeof *options; i++)
            words->argument[words->count++] = cmd_format("%s", options[i]);
        words->argument[words->count++] =
            cmd_format("--callgrind-out-file=/proc/self/fd/%d", counted);
    }
    words->argument[words->count++] = path;
    add_words(words);
    words->argument[words->count] = NULL;
    return true;
}

/* Returns the program's name among the words of its command line. */
static const char *program_of(const words_t *words, const bench_child_t *child) {
    return words->argument[child->count ? OPTIONS : 0];
}

static void clear_words(words_t *words, const bench_child_t *child) {
    for (int i = 0; i <= (child->count ? OPTIONS : 0); i++)
        free(words->argument[i]);
    free(words->text);
}

json_t *bench_child_run(bench_t *b, bench_child_t *child, const char *arguments,
                        char **error) {
    json_t *result = NULL;
    words_t words;
    int out = memfd_create("out", MFD_CLOEXEC), err = memfd_create("err", MFD_CLOEXEC);
    int counted = child->count ? memfd_create("counted", 0) : -1;
    if (out < 0 || err < 0 || (child->count && counted < 0)) {
        *error = cmd_format("memfd_create: %s", strerror(errno));
    } else if (make_words(b, &words, child, arguments, counted, error)) {
        int status = finish(start(b, child, words.argument, out, err), NULL);
        char *printed = read_memory(out), *said = read_memory(err);
        if (bench_files_same(b, child, program_of(&words, child)) && status == 0)
            result = parse(printed);
        if (!result)
            *error = last_line(said, words.argument[0], status);
        else if (child->count)
            child->counted = read_memory(counted);
        free(printed);
        free(said);
        clear_words(&words, child);
    }
    int all[] = {out, err, counted};
    for (int i = 0; i < 3; i++)
        if (all[i] >= 0)
            close(all[i]);
    return result;
}

static double ns_of(struct timeval time) {
    return (double)time.tv_sec * 1e9 + (double)time.tv_usec * 1e3;
}

bench_time_t bench_child_time(bench_t *b, const bench_child_t *child, const char *arguments) {
    bench_time_t result = {-1, -1};
    struct timespec begin, end;
    struct rusage usage;
    words_t words;
    char *error = NULL;
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null >= 0 && make_words(b, &words, child, arguments, -1, &error)) {
        clock_gettime(CLOCK_MONOTONIC, &begin);
        int status = finish(start(b, child, words.argument, null, null), &usage);
        clock_gettime(CLOCK_MONOTONIC, &end);
        if (bench_files_same(b, child, program_of(&words, child)) && status == 0) {
            result.wall_ns =
                (double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec);
            result.cpu_ns = ns_of(usage.ru_utime) + ns_of(usage.ru_stime);
        }
        clear_words(&words, child);
    }
    free(error);
    if (null >= 0)
        close(null);
    return result;
}
