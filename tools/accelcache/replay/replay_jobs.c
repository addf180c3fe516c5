/* Replays in processes of their own, on all cores; and the search for the least capacity. */
#include "command.h"
#include "replay/replay.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE AC_SEGMENT_ALIGN

enum { MOST_WORKERS = 64 };

typedef struct {
    cmd_replay_job_t *job; /* NULL: idle */
    pid_t pid;
    int out; /* the pipe that its figures come through */
} worker_t;

static void child(const cmd_replay_job_t *job, int out) {
    cmd_replay_figures_t figures;
    cmd_replay_run(job->trace, job->plan, &figures);
    const char *at = (const char *)&figures;
    for (size_t left = sizeof figures; left;) {
        ssize_t n = write(out, at, left);
        if (n <= 0)
            _exit(1);
        at += n;
        left -= (size_t)n;
    }
    _exit(0);
}

static void job_failed(cmd_replay_job_t *job, const char *why) {
    job->figures = (cmd_replay_figures_t){.end = CMD_REPLAY_FAILED, .ops = job->trace->count};
    snprintf(job->figures.why, sizeof job->figures.why, "%s", why);
}

/* False: no process could be had; the job has failed. */
static bool start(worker_t *worker, cmd_replay_job_t *job) {
    int ends[2];
    fflush(NULL); /* or the child would print what waits in the buffers */
    if (pipe(ends)) {
        job_failed(job, strerror(errno));
        return false;
    }
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        child(job, ends[1]);
    }
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        job_failed(job, strerror(errno));
        return false;
    }
    *worker = (worker_t){job, pid, ends[0]};
    return true;
}

static void finish(worker_t *worker) {
    char *at = (char *)&worker->job->figures;
    size_t left = sizeof worker->job->figures;
    while (left) {
        ssize_t n = read(worker->out, at, left);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        at += n;
        left -= (size_t)n;
    }
    close(worker->out);
    int status = 0;
    while (waitpid(worker->pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (left) {
        char why[80];
        if (WIFSIGNALED(status))
            snprintf(why, sizeof why, "its process was killed by signal %d", WTERMSIG(status));
        else
            snprintf(why, sizeof why, "its process ended early");
        job_failed(worker->job, why);
    }
    worker->job = NULL;
}

static unsigned worker_count(bool alone) {
    long cores = alone ? 1 : sysconf(_SC_NPROCESSORS_ONLN);
    return cores < 1 ? 1 : cores > MOST_WORKERS ? MOST_WORKERS : (unsigned)cores;
}

/* Wait until a worker has figures, `ms` at most (-1: for ever); NULL: none has. */
static worker_t *next_done(worker_t *worker, unsigned workers, int ms) {
    struct pollfd fds[MOST_WORKERS];
    worker_t *owner[MOST_WORKERS];
    for (;;) {
        nfds_t n = 0;
        for (unsigned i = 0; i < workers; i++) {
            if (!worker[i].job)
                continue;
            owner[n] = &worker[i];
            fds[n++] = (struct pollfd){.fd = worker[i].out, .events = POLLIN};
        }
        int ready = poll(fds, n, ms);
        if (ready == 0)
            return NULL;
        if (ready < 0)
            continue;
        for (nfds_t i = 0; i < n; i++)
            if (fds[i].revents)
                return owner[i];
    }
}

void cmd_replay_jobs(cmd_replay_job_t *job, size_t count, bool alone,
                     void (*progress)(size_t done, void *arg), void *arg) {
    enum { PROGRESS_MS = 200 };
    worker_t worker[MOST_WORKERS] = {0};
    unsigned workers = worker_count(alone), running = 0;
    size_t next = 0, done = 0;
    while (done < count) {
        for (unsigned i = 0; i < workers && next < count; i++) {
            if (worker[i].job)
                continue;
            if (start(&worker[i], &job[next++]))
                running++;
            else
                done++;
        }
        if (running) {
            worker_t *ended = next_done(worker, workers, progress ? PROGRESS_MS : -1);
            if (ended) {
                finish(ended);
                running--;
                done++;
            }
        }
        if (progress)
            progress(done, arg);
    }
}

/* ------------------------------------------------------------------ least capacity */

uint64_t cmd_replay_bound(const cmd_ops_t *trace) {
    return (trace->peak_live + PAGE - 1) / PAGE * PAGE;
}

typedef struct {
    const cmd_ops_t *trace;
    const cmd_replay_plan_t *plan;
    void (*progress)(size_t done, void *arg);
    void *arg;
} search_t;

static cmd_replay_end_t try_capacity(const search_t *search, uint64_t capacity, uint64_t *peak) {
    cmd_replay_plan_t limited = *search->plan;
    limited.capacity = capacity;
    limited.repeat = 1;
    cmd_replay_job_t job = {.trace = search->trace, .plan = &limited};
    cmd_replay_jobs(&job, 1, true, search->progress, search->arg);
    *peak = job.figures.peak[0];
    return job.figures.end;
}

uint64_t cmd_replay_least(const cmd_ops_t *trace, const cmd_replay_plan_t *plan,
                          void (*progress)(size_t done, void *arg), void *arg) {
    const search_t search = {trace, plan, progress, arg};
    uint64_t peak, peak_without, low = cmd_replay_bound(trace);
    if (try_capacity(&search, CMD_REPLAY_ROOM, &peak_without) != CMD_REPLAY_DONE)
        return 0;
    if (try_capacity(&search, low, &peak) == CMD_REPLAY_DONE)
        return low;
    /* The bytes that it took without a limit suffice, unless settings follow the capacity. */
    uint64_t high = peak_without;
    while (high < CMD_REPLAY_ROOM && try_capacity(&search, high, &peak) != CMD_REPLAY_DONE)
        high += (high / 8 + PAGE - 1) / PAGE * PAGE;
    while (high - low > PAGE) { /* `low` fails, `high` completes */
        uint64_t middle = low + (high - low) / 2 / PAGE * PAGE;
        if (try_capacity(&search, middle, &peak) == CMD_REPLAY_DONE)
            high = middle;
        else
            low = middle;
    }
    return high;
}
