/* Declared in harness.h: the threads of this process as the kernel shows them. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

/* Returns the number after `name` in the lines of a status file; 0: there is none. */
static long number_of(const char *status, const char *name) {
    const char *line = strstr(status, name);
    return line ? strtol(line + strlen(name), NULL, 10) : 0;
}

size_t test_threads(test_thread_t *threads, size_t room) {
    size_t count = 0;
    DIR *tasks = opendir("/proc/self/task");
    NEED(tasks);
    for (struct dirent *task; (task = readdir(tasks));) {
        char path[300], status[4096];
        snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        FILE *file = task->d_name[0] != '.' ? fopen(path, "r") : NULL;
        if (!file)
            continue;
        status[fread(status, 1, sizeof status - 1, file)] = 0;
        fclose(file);
        if (!status[0])
            continue; /* it has ended meanwhile */
        NEED(count < room);
        threads[count++] = (test_thread_t){(pid_t)atoi(task->d_name),
                                           strstr(status, "\nState:\tS") != NULL,
                                           number_of(status, "\nvoluntary_ctxt_switches:")};
    }
    closedir(tasks);
    return count;
}
