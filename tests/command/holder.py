"""A test case with a program that allocates and frees blocks on the simulated device."""

import subprocess
import unittest

import base

PLUGIN = """
    #include <stddef.h>
    extern int cuMemAlloc_v2(unsigned long long *, size_t);
    int plugin_take(unsigned long long *block, size_t bytes);
    int plugin_take(unsigned long long *block, size_t bytes) {
        int status = cuMemAlloc_v2(block, bytes);
        return status + 0 * (int)bytes;
    }
"""

PROGRAM = """
    #include <dlfcn.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <unistd.h>
    typedef unsigned long long ptr;
    extern int cuInit(unsigned), cuDeviceGet(int *, int), cuCtxSetCurrent(void *);
    extern int cuDevicePrimaryCtxRetain(void **, int);
    extern int cuMemAlloc_v2(ptr *, size_t), cuMemFree_v2(ptr);
    extern int cuStreamCreate(void **, unsigned), cuMemAllocAsync(ptr *, size_t, void *);
    extern int cuMemFreeAsync(ptr, void *), cuMemsetD8Async(ptr, unsigned char, size_t, void *);
    extern int cuStreamBeginCapture_v2(void *, int);
    extern int cuStreamWaitValue32_v2(void *, ptr, unsigned, unsigned);
    enum { MOST = 4096 };
    static ptr block[MOST];
    static unsigned blocks;
    static void linger(void) {
        puts("lingers");
        fflush(stdout);
        sleep(60);
    }
    static void keep(ptr at) {
        printf("%u at %llu\\n", blocks, at);
        block[blocks++] = at;
    }
    /* take BYTES | fill BYTES COUNT | plugin FILE BYTES | give INDEX | every N (of the filled ones,
     * each that is no N-th one goes back) | async BYTES | drop INDEX (on the stream) |
     * capture (on the stream, relaxed) | hold (the stream, for ever) | use INDEX (on the stream) |
     * linger (an exit that says "lingers" and takes a minute) | try BYTES | wait */
    int main(int argc, char **argv) {
        int device, status;
        void *context, *stream;
        ptr at;
        unsigned first = 0;
        if (cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device) ||
            cuCtxSetCurrent(context) || cuStreamCreate(&stream, 1))
            return 2;
        for (char **step = argv + 1; step < argv + argc; step++) {
            if (!strcmp(*step, "take")) {
                if ((status = cuMemAlloc_v2(&at, strtoull(*++step, NULL, 10))))
                    return 3;
                keep(at);
            } else if (!strcmp(*step, "fill")) {
                size_t bytes = strtoull(step[1], NULL, 10);
                first = blocks;
                for (int i = atoi(step[2]); i; i--) {
                    if (cuMemAlloc_v2(&at, bytes))
                        return 3;
                    block[blocks++] = at;
                }
                step += 2;
            } else if (!strcmp(*step, "every")) {
                unsigned n = (unsigned)atoi(*++step);
                for (unsigned i = first; i < blocks; i++)
                    if ((i - first) % n && cuMemFree_v2(block[i]))
                        return 4;
            } else if (!strcmp(*step, "plugin")) {
                void *handle = dlopen(step[1], RTLD_NOW);
                int (*take)(ptr *, size_t) =
                    handle ? (int (*)(ptr *, size_t))dlsym(handle, "plugin_take") : NULL;
                if (!take || take(&at, strtoull(step[2], NULL, 10)))
                    return 3;
                keep(at);
                step += 2;
            } else if (!strcmp(*step, "give")) {
                if (cuMemFree_v2(block[atoi(*++step)]))
                    return 4;
            } else if (!strcmp(*step, "async")) {
                if (cuMemAllocAsync(&at, strtoull(*++step, NULL, 10), stream))
                    return 3;
                keep(at);
            } else if (!strcmp(*step, "drop")) {
                if (cuMemsetD8Async(block[atoi(step[1])], 0, 1, stream) ||
                    cuMemFreeAsync(block[atoi(step[1])], stream))
                    return 4;
                step++;
            } else if (!strcmp(*step, "capture")) {
                if (cuStreamBeginCapture_v2(stream, 2))
                    return 4;
            } else if (!strcmp(*step, "hold")) {
                if (cuMemAlloc_v2(&at, 4) || cuStreamWaitValue32_v2(stream, at, 7, 1))
                    return 4;
            } else if (!strcmp(*step, "use")) {
                if (cuMemsetD8Async(block[atoi(*++step)], 0, 1, stream))
                    return 4;
            } else if (!strcmp(*step, "linger")) {
                atexit(linger);
            } else if (!strcmp(*step, "try")) {
                puts(cuMemAlloc_v2(&at, strtoull(*++step, NULL, 10)) ? "failed" : "served");
            } else {
                char letter;
                puts("ready");
                fflush(stdout);
                if (read(0, &letter, 1) < 0)
                    return 5;
            }
        }
        return 0;
    }
"""


@unittest.skipUnless(base.LIBRARY and base.SIM_DIR,
                     "needs the library and the simulated device")
class HolderTest(base.CommandTest):
    def setUp(self):
        super().setUp()
        driver = ("-L" + base.SIM_DIR, "-l:libcuda.so.1")
        self.plugin = self.compile("libplugin.so", PLUGIN, "-shared", "-fPIC", *driver)
        self.program = self.compile("holder", PROGRAM, "-ldl", *driver)
        self.assertIsNotNone(self.program)
        self.assertIsNotNone(self.plugin)

    def words(self, steps, conf, sim):
        return [self.tool, "run", "--sim=" + sim, "--conf", conf, "--", self.program,
                *(str(word) for word in steps)]

    def hold(self, *steps, conf="dump:none", sim="clock:virtual,memory:256M"):
        """Runs the program to its end. The result has its output."""
        done = subprocess.run(self.words(steps, conf, sim), cwd=self.folder, text=True,
                              env=self.environment, stdin=subprocess.DEVNULL, timeout=200,
                              capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, (done.stdout, done.stderr))
        return done

    def start(self, *steps, conf="control:true,dump:none", sim="clock:virtual,memory:256M", **more):
        """Runs the program until it waits. Returns the process and addresses of blocks."""
        process = subprocess.Popen(self.words((*steps, "wait"), conf, sim), cwd=self.folder,
                                   env=self.environment, stdin=subprocess.PIPE, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, **more)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.stdout.close)
        taken = []
        for line in process.stdout:
            if line == "ready\n":
                return process, taken
            if " at " in line:
                taken.append(int(line.split()[-1]))
        self.fail("it ended before it was ready")
        return None
