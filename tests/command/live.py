"""A test case with a program that runs under the library on the simulated device."""

import subprocess
import unittest

import base

PROGRAM = """
    #include <poll.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <unistd.h>
    typedef unsigned long long ptr;
    extern int cuInit(unsigned), cuDeviceGet(int *, int), cuCtxSetCurrent(void *);
    extern int cuDevicePrimaryCtxRetain(void **, int);
    extern int cuMemAlloc_v2(ptr *, size_t), cuMemFree_v2(ptr);
    extern int cuMemHostAlloc(void **, size_t, unsigned), cuMemFreeHost(void *);
    static int answer;
    static void linger(void) {
        if (!answer) return;
        puts("lingers");
        fflush(stdout);
        sleep(60);
    }
    static void take(size_t mib, ptr *held) {
        if (cuMemAlloc_v2(held, mib << 20)) exit(3);
    }
    /* Holds 4 MiB, has held 68; "busy": goes on allocating and freeing 1 MiB; "pinned": has freed 2 MiB of
     * pinned memory.  A letter ends it,
     * "x" with an exit that says "lingers" and takes a minute. */
    int main(int argc, char **argv) {
        struct pollfd in = {.fd = 0, .events = POLLIN};
        int device, busy = argc > 1 && !strcmp(argv[1], "busy");
        void *context, *pinned;
        ptr kept, block;
        atexit(linger);
        if (cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device) ||
            cuCtxSetCurrent(context))
            return 2;
        take(4, &kept);
        take(64, &block);
        cuMemFree_v2(block);
        if (argc > 1 && !strcmp(argv[1], "pinned") &&
            (cuMemHostAlloc(&pinned, 2 << 20, 0) || cuMemFreeHost(pinned)))
            return 4;
        puts("ready");
        fflush(stdout);
        while (poll(&in, 1, busy ? 1 : -1) == 0) {
            take(1, &block);
            cuMemFree_v2(block);
        }
        char letter = 0;
        if (read(0, &letter, 1) == 1 && letter == 'x')
            answer = 1;
        return 0;
    }
"""


@unittest.skipUnless(base.LIBRARY and base.SIM_DIR,
                     "needs the library and the simulated device")
class LiveTest(base.CommandTest):
    def setUp(self):
        super().setUp()
        self.program = self.compile("worker", PROGRAM, "-L" + base.SIM_DIR, "-l:libcuda.so.1")
        self.assertIsNotNone(self.program)

    def start(self, *arguments, conf="control:true", preload="", **more):
        environment = dict(self.environment)
        if preload:
            environment["LD_PRELOAD"] = ":".join(
                filter(None, (environment.get("LD_PRELOAD"), preload)))
        process = subprocess.Popen(
            [self.tool, "run", "--sim", "--conf", conf, "--", self.program, *arguments],
            cwd=self.folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, **more)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.stdout.close)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        return process

    def end(self, process, letter=b"q"):
        process.stdin.write(letter)
        process.stdin.flush()
