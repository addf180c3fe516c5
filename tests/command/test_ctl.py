"""accelcache ctl: the program does what a request asks, or an error names the process within 1 s."""

import json
import os
import signal
import subprocess
import unittest

import base
import live

MIB = 1 << 20
# Library that makes pthread_create fail for the library's first thread, which serves requests.
REFUSER = r"""
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <errno.h>
    #include <pthread.h>
    #include <string.h>
    int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *arg) {
        static int refused;
        int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
        void *found = dlsym(RTLD_NEXT, "pthread_create");
        Dl_info caller;
        memcpy(&real, &found, sizeof real);
        if (dladdr(__builtin_return_address(0), &caller) && caller.dli_fname &&
            strstr(caller.dli_fname, "libaccelcache.so") && !refused++)
            return EAGAIN;
        return real(thread, how, run, arg);
    }
"""


class Requests(live.LiveTest):
    def figures(self, process):
        document = json.loads(self.expect(0, "stat", "--json", str(process.pid)).stdout)
        return document, document["devices"][0]["stats"]

    def ask(self, process, *request):
        return self.answer(0, "ctl", "--json", str(process.pid), *request)

    def test_trim(self):
        process = self.start()
        before = self.figures(process)[1]["reserved_bytes"]["all"]["current"]
        answer = self.ask(process, "trim")
        after = self.figures(process)[1]["reserved_bytes"]["all"]["current"]
        self.assertGreaterEqual(answer["trimmed_bytes"], 64 * MIB)
        self.assertEqual(before - after, answer["trimmed_bytes"])
        self.assertIn("gave back 0 B", self.expect(0, "ctl", str(process.pid), "trim").stdout)

    def test_trim_of_pinned_memory(self):
        process = self.start("pinned", conf="control:true,pinned_cache:true")

        def pinned():
            return self.figures(process)[0]["pinned"]["stats"]
        self.assertEqual(pinned()["allocated_bytes"]["current"], 2 * MIB)
        self.ask(process, "trim")
        self.assertEqual(pinned()["allocated_bytes"]["current"], 0)
        self.assertEqual((pinned()["num_host_alloc"], pinned()["num_host_free"]), (1, 1))

    def test_reset_peaks(self):
        process = self.start()
        self.assertEqual(self.figures(process)[1]["allocated_bytes"]["all"]["peak"], 68 * MIB)
        self.assertTrue(self.ask(process, "reset-peaks")["done"])
        self.assertEqual(self.figures(process)[1]["allocated_bytes"]["all"]["peak"], 4 * MIB)

    def test_dump(self):
        process = self.start(conf=f"control:true,dump:{self.folder}/now-%p.json")
        path = self.path(f"now-{process.pid}.json")
        self.assertEqual(self.ask(process, "dump")["dump"], path)
        with open(path, encoding="utf-8") as file:
            self.assertEqual(json.load(file)["reason"], "request")
        os.remove(path)
        self.assertIn(f"wrote {path}", self.expect(0, "ctl", str(process.pid), "dump").stdout)
        process = self.start(conf="control:true,dump:none")
        self.assertIn("the key dump is none there",
                      self.expect(1, "ctl", str(process.pid), "dump").stderr)

    def test_dump_that_cannot_be_written(self):
        process = self.start(conf="control:true,dump:none/x.json")
        error = self.expect(1, "ctl", str(process.pid), "dump").stderr
        self.assertIn("No such file", error)

    def test_set(self):
        process = self.start(conf="control:true,memory_limit:2G")
        pid = str(process.pid)
        self.expect(0, "ctl", pid, "set", "roundup_power2_divisions:[1:4,>:8],free_sync:true")
        string = self.figures(process)[0]["config"]["string"]
        self.assertEqual(string, "control:true,memory_limit:2G,roundup_power2_divisions:[1:4,>:8],"
                                 "free_sync:true")
        self.expect(0, "ctl", pid, "set", "memory_limit:2G, ")
        self.expect(0, "ctl", pid, "set", "memory_limit:1G")
        string = self.figures(process)[0]["config"]["string"]
        self.assertIn("memory_limit:1G", string)
        self.assertNotIn("memory_limit:2G", string)
        refused = self.expect(1, "ctl", pid, "set", "memory_limit:3M").stderr  # the program holds 4 MiB
        self.assertIn("holds 4.00 MiB on device 0, more than memory_limit 3.00 MiB", refused)
        self.assertEqual(self.figures(process)[0]["config"]["string"], string)
        self.assertIn("more than memory_limit 3.00 MiB", self.expect(1, "ctl", pid, "set", "Memory_Limit:3M").stderr)
        self.assertEqual(self.figures(process)[0]["config"]["string"], string)
        self.expect(0, "ctl", "--force", pid, "set", "memory_limit:3M")
        self.expect(0, "ctl", pid, "set", "free_sync:false")  # sets no limit
        self.assertIn("memory_limit:3M", self.figures(process)[0]["config"]["string"])
        self.expect(0, "ctl", pid, "set", "memory_limit:1G")
        self.expect(0, "ctl", pid, "set", "MEMORY_LIMIT:2G,Free_Sync:true")  # in place of the old entries
        string = self.figures(process)[0]["config"]["string"]
        self.assertEqual(string.lower().count("memory_limit:"), 1, string)
        self.assertEqual(string.lower().count("free_sync:"), 1, string)
        self.assertIn("MEMORY_LIMIT:2G,Free_Sync:true", string)
        self.expect(0, "ctl", pid, "set", "memory_limit : 1G")  # a blank is no part of the key
        self.assertIn("--force goes with set", self.expect(2, "ctl", "--force", pid, "trim").stderr)
        string = self.figures(process)[0]["config"]["string"]
        for wrong, said in (("fence:sync", "fence"), ("memory_limt:1G", "nearest known key"),
                            ("memory_limit", "expected :")):
            self.assertIn(said, self.expect(1, "ctl", pid, "set", wrong).stderr)
        self.assertEqual(self.figures(process)[0]["config"]["string"], string)
        failed = self.expect(1, "ctl", "--json", pid, "set", "fence:sync")
        self.assertIn("refuses", failed.stderr)
        self.assertFalse(json.loads(failed.stdout)["done"])

    def test_without_a_thread(self):
        """If the thread that serves requests could not start, each request fails with that reason."""
        preload = self.compile("refuser", REFUSER, "-shared", "-fPIC", "-ldl")
        process = self.start(preload=preload)
        for _ in range(3):
            self.assertIn("it has no thread for that",
                          self.expect(1, "ctl", str(process.pid), "trim").stderr)

    def test_many_at_a_time(self):
        """A request that arrives while another is in progress is served, or fails with a reason."""
        process = self.start("busy")
        asked = [subprocess.Popen([base.COMMAND, "ctl", str(process.pid), request],
                                  env=self.environment, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True)
                 for request in 5 * ("trim", "reset-peaks")]
        done = 0
        for one in asked:
            out, error = one.communicate(timeout=120)
            done += one.returncode == 0
            self.assertTrue(out or "another one asked" in error or "not answered" in error, error)
        self.assertGreater(done, 0)
        self.assertIsNone(process.poll())

    def refusal(self, pid, said, *request, **more):
        error = self.soon(lambda: self.expect(1, "ctl", str(pid), *(request or ("trim",)),
                                              **more).stderr)
        self.assertIn(said, error)
        self.assertEqual(error.count("\n"), 1)

    def test_without_the_key(self):
        process = self.start(conf="memory_limit:2G")
        self.refusal(process.pid, "does not listen: start it with control:true")

    def test_stopped(self):
        process = self.start()
        process.send_signal(signal.SIGSTOP)
        self.refusal(process.pid, "is stopped")
        self.refusal(process.pid, "is stopped", "dump")
        process.send_signal(signal.SIGCONT)
        self.expect(0, "ctl", str(process.pid), "trim")

    def test_killed(self):
        process = self.start()
        process.kill()
        process.wait()
        self.refusal(process.pid, "has ended")

    def test_gone(self):
        process = self.start()
        self.end(process)
        process.wait()
        self.refusal(process.pid, "shows no figures")

    def test_dying(self):
        """A request fails if the program is in a slow exit, but the command does not wait for it."""
        process = self.start()
        self.end(process, b"x")
        self.assertEqual(process.stdout.readline(), b"lingers\n")
        self.refusal(process.pid, f"process {process.pid}")
        self.assertIsNone(process.poll())

    def test_no_socket_stays(self):
        process = self.start()
        home = self.path(os.path.join("live", os.listdir(self.live)[0]))
        self.assertTrue([name for name in os.listdir(home) if name.endswith(".sock")])
        self.end(process)
        process.wait()
        self.assertEqual(os.listdir(home) if os.path.exists(home) else [], [])

    def test_fork_child_is_not_asked(self):
        """A request changes only the process that it names."""
        first, second = self.start(), self.start()
        self.ask(first, "reset-peaks")
        self.assertEqual(self.figures(first)[1]["allocated_bytes"]["all"]["peak"], 4 * MIB)
        self.assertEqual(self.figures(second)[1]["allocated_bytes"]["all"]["peak"], 68 * MIB)

    @unittest.skipUnless(os.geteuid() == 0, "needs root to be another user")
    def test_another_user(self):
        self.open_to_all()
        process = self.start(user=65534, group=65534, extra_groups=[])
        self.refusal(process.pid, "belongs to user 65534")
        ours = self.start()
        done = self.soon(lambda: subprocess.run(
            [self.tool, "ctl", str(ours.pid), "trim"], env=self.environment, user=65534, group=65534,
            extra_groups=[], stderr=subprocess.PIPE, text=True, timeout=120, check=False))
        self.assertEqual(done.returncode, 1)
        self.assertIn("belongs to another user", done.stderr)


class Usage(base.CommandTest):
    def test_usage(self):
        for arguments, said in (((), "PID is missing"), (("x", "trim"), "no process id"),
                                (("12",), "trim, reset-peaks, set or history"),
                                (("12", "tirm"), 'did you mean "trim"?'),
                                (("12", "trim", "now"), "takes nothing behind it"),
                                (("12", "set"), "set takes KEY:VALUE")):
            self.assertIn(said, self.expect(2, "ctl", *arguments).stderr)
        self.assertIn("shows no figures", self.expect(1, "ctl", str(os.getpid()), "trim").stderr)


if __name__ == "__main__":
    base.main()
