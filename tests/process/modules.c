/* Modules of one program that ask for memory, each in its own ways.
 *
 * usage: modules STEP...
 *   open NAME FILE      dlopen a plugin
 *   close NAME
 *   take NAME HOW BYTES as modules.h says; NAME "self": the program itself
 *   thread NAME HOW BYTES
 *                       the same in a thread of its own
 *   paced NAME HOW BYTES
 *                       for each line of input a block, and one of the program's that the
 *                       next round frees; says "+" each time
 *   give NAME INDEX     that module frees the block that was taken as number INDEX, from 0 on
 *   wrong NAME HOW INDEX OFFSET
 *                       that module frees what lies OFFSET bytes behind its begin, HOW: plain, or
 *                       async; says where that is, and what came of it
 *   fork                a child takes a block of the program's and ends
 *   churn               four threads take and give back by every module, until the input ends
 *   wait                until the input ends */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "modules.h"
#include "program.h"

extern const modules_plugin_t modules_self;

enum { MODULES = 8, BLOCKS = 4096, THREADS = 4 };

static struct {
    const char *name;
    void *handle;
    const modules_plugin_t *plugin;
} module[MODULES] = {{"self", NULL, &modules_self}};
static unsigned modules = 1, blocks;
static void *block[BLOCKS];
static atomic_bool ended;

static unsigned index_of(const char *name) {
    for (unsigned i = 0; i < modules; i++)
        if (module[i].plugin && !strcmp(module[i].name, name))
            return i;
    test_stop(TEST_USAGE, "no module %s", name);
}

static void open_module(const char *name, const char *file) {
    module[modules].name = name;
    module[modules].handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!module[modules].handle)
        test_stop(TEST_BROKEN, "%s", dlerror());
    module[modules].plugin = dlsym(module[modules].handle, "plugin");
    printf("%s at %p\n", name, (const void *)module[modules++].plugin);
}

static void close_module(const char *name) {
    unsigned i = index_of(name);
    module[i].plugin = NULL;
    MUST(dlclose(module[i].handle));
}

static void take(char **step) {
    GIVES(module[index_of(step[0])].plugin->take(step[1], strtoull(step[2], NULL, 10),
                                                 &block[blocks]),
          0);
    EXPECT(block[blocks++]);
}

static void *take_apart(void *step) {
    test_device(0);
    take(step);
    return NULL;
}

/* Each stays; the program itself gives back in each round what it took in the one before. */
static void take_paced(char **step) {
    void *round = NULL;
    for (int c; (c = getchar()) != EOF;) {
        if (c != '\n')
            continue;
        if (round)
            GIVES(module[0].plugin->release(round), 0);
        take(step);
        GIVES(module[0].plugin->take("cuMemAlloc", (size_t)1 << (18 + blocks % 3), &round), 0);
        puts("+");
        fflush(stdout);
    }
}

static void take_in_thread(char **step) {
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, take_apart, step));
    MUST(pthread_join(thread, NULL));
}

static void free_wrongly(char **step) {
    const modules_plugin_t *plugin = module[index_of(step[0])].plugin;
    char *pointer = (char *)block[atoi(step[2])] + atoi(step[3]);
    int (*release)(void *) = strcmp(step[1], "async") ? plugin->release : plugin->release_async;
    printf("%p gives %d\n", (void *)pointer, release(pointer));
    fflush(stdout);
}

static void take_in_child(void) {
    void *pointer;
    pid_t child = fork();
    if (child == 0) {
        module[0].plugin->take("cuMemAlloc", 4096, &pointer); /* no child may use CUDA */
        exit(0);
    }
    NEED(child > 0 && waitpid(child, NULL, 0) == child);
}

static void *churn(void *unused) {
    test_device(0);
    for (unsigned i = 0; !atomic_load(&ended); i++) {
        void *kept[3];
        const modules_plugin_t *a = module[i % modules].plugin,
                               *b = module[i / 2 % modules].plugin;
        for (size_t k = 0; k < 3; k++)
            GIVES(a->take("cuMemAlloc", (size_t)1 << (9 + 5 * k), &kept[k]), 0);
        for (size_t k = 0; k < 3; k++)
            GIVES(b->release(kept[k]), 0);
    }
    return unused;
}

static void churn_in_threads(void) {
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++)
        MUST(pthread_create(&thread[i], NULL, churn, NULL));
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF)
        continue;
    atomic_store(&ended, true);
    for (int i = 0; i < THREADS; i++)
        MUST(pthread_join(thread[i], NULL));
}

static void wait_for_end(void) {
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF)
        continue;
}

static int is(const char *step, const char *word, int arguments, int left) {
    return !strcmp(step, word) && arguments < left ? arguments + 1 : 0;
}

int main(int argc, char **argv) {
    if (getenv("MODULES_DRIVER"))
        test_device(0);
    for (int i = 1, words; i < argc; i += words) {
        char **step = argv + i + 1;
        int left = argc - i;
        if ((words = is(argv[i], "open", 2, left)))
            open_module(step[0], step[1]);
        else if ((words = is(argv[i], "close", 1, left)))
            close_module(step[0]);
        else if ((words = is(argv[i], "take", 3, left)))
            take(step);
        else if ((words = is(argv[i], "paced", 3, left)))
            take_paced(step);
        else if ((words = is(argv[i], "thread", 3, left)))
            take_in_thread(step);
        else if ((words = is(argv[i], "give", 2, left)))
            GIVES(module[index_of(step[0])].plugin->release(block[atoi(step[1])]), 0);
        else if ((words = is(argv[i], "wrong", 4, left)))
            free_wrongly(step);
        else if ((words = is(argv[i], "fork", 0, left)))
            take_in_child();
        else if ((words = is(argv[i], "churn", 0, left)))
            churn_in_threads();
        else if ((words = is(argv[i], "wait", 0, left)))
            wait_for_end();
        else
            return TEST_USAGE;
    }
    return 0;
}
