"""Bad input: one clear line on stderr with cause and remedy, the program's own output and status
as without the library, and nothing lost."""

import ctypes
import re
import shutil

from host import *

SIM_OLD = os.environ.get("AC_SIM_OLD", "")
WORK = program("work")
PROBE = program("probe")
CALLS = (19, 19)  # allocations and frees of `work`
DRIVER_HERE = None
try:
    DRIVER_HERE = ctypes.CDLL("libcuda.so.1") if not os.environ.get("LD_LIBRARY_PATH") else None
except OSError:
    pass


def can_mount():
    done = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"],
                          capture_output=True, check=False)
    return done.returncode == 0


CAN_MOUNT = shutil.which("unshare") is not None and can_mount()


class BadInput(HostTest):
    def compare(self, *command, conf=None, cwd=None, lines=1, stderr_too=True, **more):
        """Bare and preloaded; returns the pid and the library's lines."""
        cwd = cwd or self.work
        bare = subprocess.run(command, cwd=cwd, text=True, timeout=LIMIT, check=False,
                              capture_output=True, stdin=subprocess.DEVNULL,
                              env=self.environment(conf, **dict(more, LD_PRELOAD=None)))
        self.reset()
        child = self.start(*command, cwd=cwd, env=self.environment(conf, **more),
                           stdin=subprocess.DEVNULL)
        out, err = child.communicate(timeout=LIMIT)
        ours = [line for line in err.splitlines() if line.startswith("accelcache: ")]
        rest = [line for line in err.splitlines() if not line.startswith("accelcache: ")]
        self.assertEqual((child.returncode, out), (bare.returncode, bare.stdout), err)
        if stderr_too:
            self.assertEqual(rest, bare.stderr.splitlines())
        self.assertEqual(len(ours), lines, err)
        return child.pid, ours

    def reset(self):
        """Between the bare and the preloaded run."""

    def assert_says(self, line, *words):
        for word in words:
            self.assertIn(word, line)

    # ---- configuration

    def test_malformed_configuration(self):
        table = [
            ("enabled:maybe", "enabled", "true or false"),
            ("enabld:true", "enabld", "enabled"),
            ("large_segment_size_mb:1", "large_segment_size_mb", "from 2M to 1G"),
            ("large_segment_size_mb:x", "large_segment_size_mb", "expected"),
            ("large_segment_size_mb:99999999999999999999", "large_segment_size_mb", "expected"),
            ("roundup_power2_divisions:[256:3]", "roundup_power2_divisions", "power of two"),
            ("roundup_power2_divisions:[256:1", "roundup_power2_divisions", "expected"),
            ("memory_limit:-1", "memory_limit", "expected"),
            ("garbage_collection_threshold:1.5", "garbage_collection_threshold", "expected"),
            ("fence:none", "fence", "auto, ctx, streams or sync"),
            ("dump_signal:KILL", "dump_signal", "expected"),
            ("enabled", "enabled", "expected"),
            (":", "expected"),
            ("enabled:true,,fence:auto", "expected"),
            ("enabled:true;fence:auto", "enabled", "expected"),
            ("\x01\x7f\xff", "accelcache config lists the keys"),
            ("dump:" + "x" * 5000, "too long"),
        ]
        for conf, *words in table:
            with self.subTest(conf=conf[:40]):
                pid, (line,) = self.compare(WORK, conf=conf)
                self.assert_says(line, "ACCEL_ALLOC_CONF was not applied, the defaults hold",
                                 *words)
                dump = self.the_dump(pid)  # under the default name: nothing was applied
                self.assert_calls(dump, *CALLS)
                self.assertTrue(any("was not applied" in w for w in dump["warnings"]))
                os.remove(os.path.join(self.work, f"accelcache-{pid}.json"))

    def test_configuration_is_applied_whole_or_not_at_all(self):
        self.compare(WORK, conf="enabled:false,dump:none,fence:wrong")
        self.assertEqual(len(self.dumps()), 1)
        dump = self.read_dump(self.dumps()[0])
        self.assertGreater(dump["devices"][0]["counters"]["cached_allocs"], 0)

    def test_keys_of_others(self):
        _, (line,) = self.compare(WORK, conf="backend:cudaMallocAsync")
        self.assert_says(line, "backend", "no effect")
        _, (line,) = self.compare(WORK, conf="max_non_split_rounding_mb:20")
        self.assert_says(line, "max_non_split_rounding_mb", "no effect")

    def test_quiet_where_asked(self):
        self.compare(WORK, conf="log_level:none,backend:cudaMallocAsync,dump:/nonexistent/x",
                     lines=0)

    # ---- strict settings

    def strict(self, conf=None, file="none", refused=True, **more):
        """Runs under a wrong setting; returns the library's lines."""
        self.reset()
        child = self.start(WORK, cwd=self.work, stdin=subprocess.DEVNULL,
                           env=self.environment(conf, ACCEL_CONF_FILE=file, **more))
        _, err = child.communicate(timeout=LIMIT)
        ours = [line for line in err.splitlines() if line.startswith("accelcache: ")]
        said = [line for line in ours if "every request for device memory fails" in line]
        self.assertEqual((child.returncode != 11, len(said)), (refused, int(refused)), err)
        return ours

    def test_strict_settings_refuse_memory(self):
        lines = self.strict("memory_limit=8G", ACCEL_CONF_STRICT="1")
        self.assert_says(lines[0], "ACCEL_ALLOC_CONF", "write : instead of =")
        self.assert_says(lines[1], "strict", "accelcache config")
        self.strict("memory_limit=8G,strict:true")
        self.strict("x" * 5000, ACCEL_CONF_STRICT="yes")
        file = self.defaults("strict:true\nmemory_limit:2G\n")
        self.strict("memory_limit=8G", file)
        self.strict("memory_limit:4G", self.defaults("memory_limit:4X\nstrict:true\n"))
        self.strict(file=self.root + "/none", ACCEL_CONF_STRICT="on")
        self.strict("enabled:flase", ACCEL_CONF_STRICT="1")

    def test_a_dump_says_what_strict_settings_refuse(self):
        self.reset()
        child = self.start(PROBE, cwd=self.work, stdin=subprocess.DEVNULL,
                           env=self.environment("memory_limit=8G", ACCEL_CONF_FILE="none", ACCEL_CONF_STRICT="1"))
        child.communicate(timeout=LIMIT)
        config = self.read_dump(f"accelcache-{child.pid}.json")["config"]
        self.assertEqual(config["string"], "memory_limit=8G")
        self.assertIn("write : instead of =", config["error"])

    def test_strict_settings_let_right_ones_through(self):
        self.strict("memory_limit:8GB", refused=False, ACCEL_CONF_STRICT="1")
        self.strict("idle_trim_ms:10s", self.defaults("strict:true\n"), refused=False)
        for word in ("0", "no", ""):
            self.strict("memory_limit=8G", refused=False, ACCEL_CONF_STRICT=word)
        self.strict("memory_limit=8G,strict:false", refused=False)

    # ---- the machine's defaults

    def defaults(self, text, mode=0o644):
        path = os.path.join(self.root, "defaults.conf")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, mode)
        return path

    def effective(self, file, conf=None, lines=0):
        """The configuration of a run under these defaults, and the library's lines."""
        pid, ours = self.compare(WORK, conf=conf, lines=lines, ACCEL_CONF_FILE=file)
        return self.read_dump(f"accelcache-{pid}.json")["config"], ours

    def test_defaults_hold_where_the_environment_gives_nothing(self):
        path = self.defaults("# of this cluster\n\n  idle_trim_ms : 10000\nfence:sync, control:true\n"
                             "dump:accelcache-%p.json\n")
        config, _ = self.effective(path)
        effective = config["effective"]
        self.assertEqual((effective["idle_trim_ms"], effective["fence"], effective["control"]),
                         ("10000", "sync", "true"))
        config, _ = self.effective(path, conf="fence:streams,thread_cache_mb:3")
        effective = config["effective"]
        self.assertEqual((effective["idle_trim_ms"], effective["fence"],
                          effective["thread_cache_mb"]), ("10000", "streams", "3"))
        self.assertEqual(config["string"].count("fence:"), 1)
        config, _ = self.effective("none")
        self.assertEqual(config["effective"]["idle_trim_ms"], "0")

    def test_malformed_defaults(self):
        table = [("idle_trim_ms:10000\nfenze:sync\n", "line 2", "fence"),
                 ("idle_trim_ms:1\n", "line 1", "from 10"),
                 ("fence\n", "line 1", "expected :"),
                 ("#\nfence:\n", "line 2", "found the end of the line"),
                 ("fence:sync\nfence:ctx\n", "line 2", "first at line 1"),
                 ("deepbind:keep\n", "line 1", "too late", "ACCEL_ALLOC_CONF"),
                 ("# \0", "no text"),
                 ("#" * 20000, "longer than"),
                 ("dump:/" + "x" * 1000 + "\noom_dump:/" + "y" * 1000, "too long", "ACCEL_ALLOC_CONF")]
        for text, *words in table:
            with self.subTest(text[:40]):

                conf = None if "too long" not in words else "log_level:error," + " " * 2200
                path = self.defaults(text)
                config, (line,) = self.effective(path, conf=conf, lines=1)
                self.assert_says(line, path, "was not applied", *words)
                self.assertEqual(config["effective"]["fence"], "auto")

    def test_defaults_that_do_not_go_with_the_environment(self):
        path = self.defaults("large_segment_size_mb:100\n")
        config, (line,) = self.effective(path, conf="max_split_size_mb:50", lines=1)
        self.assert_says(line, path, "large_segment_size_mb")
        self.assertEqual(config["effective"]["max_split_size_mb"], "50")

    def test_defaults_hold_where_the_environment_is_wrong(self):
        """Each is applied as a whole or not at all."""
        path = self.defaults("idle_trim_ms:10000\n")
        for conf in ("fence:sync,enabld:true", "x" * 5000):
            with self.subTest(conf[:20]):
                config, (line,) = self.effective(path, conf=conf, lines=1)
                self.assert_says(line, "ACCEL_ALLOC_CONF")
                self.assertEqual(config["effective"]["idle_trim_ms"], "10000")
                self.assertEqual(config["effective"]["fence"], "auto")

    def test_warnings_of_defaults(self):
        """As those of the variable: keys that mean nothing here, and what does not go together, but
        not where the variable settles it."""
        path = self.defaults("backend:cudaMallocAsync\nfence:sync\nfree_sync:true\n")
        _, lines = self.effective(path, lines=2)
        self.assert_says(lines[0], path, "backend", "no effect")
        self.assert_says(lines[1], path, "fence has no effect with free_sync:true")
        _, (line,) = self.effective(path, conf="free_sync:false", lines=1)
        self.assert_says(line, path, "backend", "no effect")
        self.effective(path, conf="log_level:none", lines=0)
        env = self.environment(ACCEL_CONF_FILE=path, LD_PRELOAD=None)
        for word in ("config", "doctor"):
            done = subprocess.run([COMMAND, word], env=env, text=True, capture_output=True,
                                  check=False)
            self.assert_says(" ".join((done.stdout + done.stderr).split()), path, "backend",
                             "fence has no effect with free_sync:true")

    def test_what_is_no_file_of_defaults(self):
        pipe = os.path.join(self.root, "pipe")
        os.mkfifo(pipe)
        loop = os.path.join(self.root, "loop")
        os.symlink(loop, loop)
        for path, word in ((pipe, "no regular file"), (self.root, "no regular file"),
                           ("/dev/zero", "no regular file"), (loop, "cannot be opened"),
                           (self.root + "/none", "No such file"),
                           (self.defaults("fence:sync\n", 0o666), "chmod go-w")):
            with self.subTest(path):
                config, (line,) = self.effective(path, lines=1)
                self.assert_says(line, path, word)
                self.assertEqual(config["effective"]["fence"], "auto")

    @unittest.skipUnless(os.geteuid() == 0, "only root gives files away")
    def test_defaults_of_another_user(self):
        path = self.defaults("fence:sync\n")
        os.chown(path, 65534, -1)
        config, (line,) = self.effective(path, lines=1)
        self.assert_says(line, path, "another user (65534)")
        self.assertEqual(config["effective"]["fence"], "auto")

    def test_defaults_are_not_read_without_cuda(self):
        self.compare("sh", "-c", "echo x", lines=0, ACCEL_CONF_FILE=self.defaults("fenze:sync\n"))

    def test_command_says_where_settings_come_from(self):
        path = self.defaults("idle_trim_ms:10000\nfence:sync\n")
        env = self.environment(conf="fence:streams", ACCEL_CONF_FILE=path, LD_PRELOAD=None)
        shown = subprocess.run([COMMAND, "config"], env=env, text=True, capture_output=True,
                               check=True).stdout
        self.assertRegex(shown, r"idle_trim_ms +10000 .*" + re.escape(path))
        self.assertRegex(shown, r"fence +streams .*ACCEL_ALLOC_CONF")
        rows = json.loads(subprocess.run([COMMAND, "config", "--json"], env=env, text=True,
                                         capture_output=True, check=True).stdout)["keys"]
        source = {row["key"]: row["source"] for row in rows}
        self.assertEqual((source["idle_trim_ms"], source["fence"], source["dump"]),
                         (path, "ACCEL_ALLOC_CONF", None))
        doctor = subprocess.run([COMMAND, "doctor"], env=env, text=True, capture_output=True,
                                check=False).stdout
        self.assertIn(path, doctor)
        self.defaults("fenze:sync\n")
        for word in ("config", "doctor"):
            done = subprocess.run([COMMAND, word], env=env, text=True, capture_output=True,
                                  check=False)
            self.assertIn("line 1: unknown key", (done.stdout + done.stderr).replace("\n", " "))
            self.assertEqual(done.returncode, 1)

    # ----

    def test_no_word_without_cuda(self):
        self.compare("/bin/sh", "-c", "echo fine; exit 3", conf="enabled:maybe", lines=0)
        self.assertEqual((self.dumps(), self.pages()), ([], []))

    # ---- drivers

    @unittest.skipIf(DRIVER_HERE, "this machine has a driver")
    def test_no_driver(self):
        _, (line,) = self.compare(PROBE, LD_LIBRARY_PATH=None)
        self.assert_says(line, "libcuda.so.1", "install", "accelcache run --sim")
        self.assertEqual((self.dumps(), self.pages()), ([], []))

    @unittest.skipIf(DRIVER_HERE, "this machine has a driver")
    def test_linked_program_without_driver(self):
        """The loader speaks, and nothing of ours happens."""
        self.compare(WORK, LD_LIBRARY_PATH=None, lines=0)
        self.assertEqual((self.dumps(), self.pages()), ([], []))

    def test_no_device(self):
        for command in (WORK, PROBE):
            _, (line,) = self.compare(command, ACCEL_SIM="devices:0")
            self.assert_says(line, "no CUDA device", "100", "nvidia-smi")
            self.assertEqual((self.dumps(), self.pages()), ([], []))

    def test_driver_that_does_not_start(self):
        for code in (802, 999):
            _, (line,) = self.compare(WORK, ACCEL_SIM=f"fail:cuInit>=1={code}")
            self.assert_says(line, str(code), "accelcache doctor")
        self.assertEqual((self.dumps(), self.pages()), ([], []))

    def test_driver_that_lacks_functions(self):
        _, (line,) = self.compare(PROBE, LD_LIBRARY_PATH=program("lacking"))
        self.assert_says(line, "lacks cu", "the cache is off", "update")
        self.assertEqual((self.dumps(), self.pages()), ([], []))

    @unittest.skipUnless(SIM_OLD, "no old driver was built")
    def test_old_driver(self):
        pid, _ = self.compare(WORK, lines=0, LD_LIBRARY_PATH=SIM_OLD)
        self.assert_calls(self.the_dump(pid), *CALLS)
        os.remove(os.path.join(self.work, self.dumps()[0]))
        _, (line,) = self.compare(WORK, conf="fence:ctx", LD_LIBRARY_PATH=SIM_OLD)
        self.assert_says(line, "fence:ctx", "12.5", "fence:streams")

    # ---- places for the dump

    def unwritable(self, conf, *words, lines=1, command=(WORK,), cwd=None, **more):
        """The line names the place; the figures stay with the command."""
        pid, ours = self.compare(*command, conf=conf, lines=lines, cwd=cwd, **more)
        line = [text for text in ours if "cannot write the statistics" in text][0]
        self.assert_says(line, *words)
        shown = json.loads(self.stat("--json", str(pid))[0])
        self.assert_calls(shown, *CALLS)
        self.assertTrue(any("cannot write the statistics" in w for w in shown["warnings"]))
        self.stat("--json", "--remove", str(pid))
        self.assertEqual(self.pages(), [])
        return line

    def test_unwritable_places(self):
        os.mkdir(os.path.join(self.work, "folder"))
        os.mkfifo(os.path.join(self.work, "fifo"))
        table = [
            ("dump:/nonexistent/x.json", "/nonexistent/x.json", "No such file", "dump:PATH"),
            ("dump:folder", "folder", "Is a directory", "dump:PATH"),
            ("dump:fifo", "fifo", "No such device", "dump:PATH"),
            ("dump:/dev/full", "/dev/full", "No space left", "free space"),
            ("dump:" + "x" * 300, "File name too long", "dump:PATH"),
            ("dump:/proc/x", "/proc/x", "dump:PATH"),
        ]
        for conf, *words in table:
            with self.subTest(conf=conf[:30]):
                self.unwritable(conf, *words, "accelcache stat")
        self.assertEqual(self.dumps(), ["fifo", "folder"])

    def test_folder_that_cannot_be_written_to(self):
        self.unwritable(None, "accelcache-", "dump:PATH", cwd="/proc")

    def test_figures_left_behind_have_a_bound(self):
        """The oldest go; those that a line promises are there, beside however many others."""
        pid, _ = self.compare(WORK, conf="dump:/nonexistent/x")
        for i in range(80): # pids that no process has
            shutil.copy(self.page(pid), self.page((1 << 30) + i))
        pid, (line,) = self.compare(WORK, conf="dump:/nonexistent/x")
        self.assert_says(line, "accelcache stat")
        self.assertEqual(len(self.pages()), 64)
        self.assert_calls(json.loads(self.stat("--json", str(pid))[0]), *CALLS)

    @unittest.skipUnless(CAN_MOUNT, "needs the right to mount")
    def test_full_disk(self):
        self.unwritable(None, "No space left", "free space", command=self.mounted("size=4k"))

    @unittest.skipUnless(CAN_MOUNT, "needs the right to mount")
    def test_read_only_disk(self):
        self.unwritable(None, "Read-only file system", "dump:PATH", command=self.mounted("ro"))

    def mounted(self, options, where=None, then=f"cd . && exec '{WORK}'"):
        where = where or self.work
        return ["unshare", "-m", "/bin/sh", "-c",
                f"mount -t tmpfs -o {options} none '{where}' && cd '{where}' && {then}"]

    def test_file_size_limit(self):
        pid, ours = self.compare(WORK, "fsize", lines=2)
        self.assert_says(ours[0], "no shared page", "File too large", "ulimit -f")
        self.assert_says(ours[1], "cannot write", "File too large", "ulimit -f")
        self.assertNotIn(str(pid), "".join(self.pages()))
        self.unwritable(None, "File too large", "ulimit -f", command=(WORK, "-fsize"))

    def test_no_descriptors(self):
        self.unwritable(None, "Too many open files", "ulimit -n", command=(WORK, "-files"))
        _, ours = self.compare(WORK, "files", lines=2)
        self.assert_says(ours[0], "no shared page", "Too many open files", "ulimit -n")

    @unittest.skipIf(SANITIZED, "sanitizers need address space")
    def test_no_memory(self):
        self.unwritable(None, "Cannot allocate memory", "ulimit -v", command=(WORK, "-memory"))

    def served_natively(self, *command, **more):
        """Every request, though pages were wanted; returns the library's lines."""
        pid, _, err = self.run_program(*command, status=11, env=self.environment(
            "expandable_segments:true", **more))
        dump = self.the_dump(pid)
        os.remove(os.path.join(self.work, self.dumps()[0]))
        self.assertEqual(dump["counters"]["passed_allocs"], 0)
        self.assert_calls(dump, *CALLS)
        return [line for line in err.splitlines() if line.startswith("accelcache: ")]

    @unittest.skipIf(SANITIZED, "sanitizers need address space")
    def test_few_addresses_for_pages(self):
        lines = []
        for kib in range(600000, 850000, 50000):
            limited = self.served_natively("sh", "-c", f"ulimit -v {kib}; exec {WORK}")
            self.assertLessEqual(len(limited), 1)
            lines += limited
        self.assertTrue(lines)
        for line in lines:
            self.assert_says(line, "expandable_segments:true has no effect", "native segments serve",
                             "ulimit -v unlimited")

    def test_no_addresses_for_pages(self):
        (line,) = self.served_natively(WORK, ACCEL_SIM="clock:virtual,fail:cuMemAddressReserve>=1")
        self.assert_says(line, "gives no addresses", "native segments serve", "ulimit -v unlimited")

    # ---- the folder of live pages

    def no_page(self, *words, command=(WORK,), dump=True, **more):
        pid, (line,) = self.compare(*command, **more)
        self.assert_says(line, "no shared page", *words)
        if dump:
            self.assert_calls(self.the_dump(pid), *CALLS)
            os.remove(os.path.join(self.work, self.dumps()[0]))

    def test_folders_without_room_for_pages(self):
        path = os.path.join(self.root, "file")
        with open(path, "w") as file:
            file.write("x")
        self.no_page("/proc", "", "ACCEL_LIVE_DIR", ACCEL_LIVE_DIR="/proc")
        for folder in ("/nonexistent", path, "/" + "x" * 600):
            with self.subTest(folder=folder[:20]):
                pid, (line,) = self.compare(WORK, ACCEL_LIVE_DIR=folder)
                self.assert_says(line, folder[:200], "no folder", "go to /dev/shm")
                self.assert_calls(self.the_dump(pid), *CALLS)
                os.remove(os.path.join(self.work, self.dumps()[0]))

    @unittest.skipUnless(CAN_MOUNT, "needs the right to mount")
    def test_full_folder_of_pages(self):
        command = self.mounted("size=16k", self.live, f"cd '{self.work}' && exec '{WORK}'")
        self.no_page("No space left", "free space", "ACCEL_LIVE_DIR", command=command)

    def litter(self, folder, name):
        """What may lie there under names of pages, and more of it than is kept."""
        for i in range(1, 71):
            os.mkfifo(os.path.join(folder, name.format(i)))
        os.symlink("/dev/zero", os.path.join(folder, name.format(71)))
        os.mkdir(os.path.join(folder, name.format(72)))

    def test_pipes_in_the_folder_of_pages(self):
        """Another user's in the folder of all, and this user's own in its own folder."""
        uid, home = os.geteuid(), os.path.dirname(self.page())
        self.litter(self.live, f"accelcache-{uid}-{{}}")
        self.litter(self.live, f"accelcache-{uid}.{{:06}}")
        os.mkdir(home, 0o700)
        self.litter(home, f"{os.stat('/proc/self/ns/pid').st_ino}-{{}}")
        before = len(self.pages())
        pid, _ = self.compare(WORK, lines=0)
        self.assert_calls(self.the_dump(pid), *CALLS)
        self.assertEqual(len(self.pages()), before)

    def test_taken_name_of_the_folder_of_pages(self):
        home = os.path.dirname(self.page())
        for take in (os.mkfifo, lambda path: os.symlink("/tmp", path),
                     lambda path: (os.mkdir(path), os.chmod(path, 0o777))):
            take(home)
            pid, (line,) = self.compare(WORK)
            self.assert_says(line, "another user holds the name", home + ".", "stat --remove")
            self.assert_calls(self.the_dump(pid), *CALLS)
            os.remove(os.path.join(self.work, self.dumps()[0]))
            self.assertEqual(os.listdir(self.live), [os.path.basename(home)])
            (os.rmdir if os.path.isdir(home) and not os.path.islink(home) else os.remove)(home)

    def exec_over(self, prepare):
        """`prepare` lays something under the page's name before the program has the same pid."""
        page = self.page()
        return ["/bin/sh", "-c", f"mkdir -pm 0700 {os.path.dirname(page)}; "
                                 f"{prepare.format(page=page)}; exec '{WORK}'"]

    def test_page_of_a_former_process(self):
        for prepare in ("echo garbage > {page}", ": > {page}",
                        "head -c 2000000 /dev/urandom > {page}"):
            with self.subTest(prepare=prepare):
                shutil.rmtree(self.live)
                os.mkdir(self.live)
                pid, _ = self.compare(*self.exec_over(prepare), lines=0)
                self.assert_calls(self.the_dump(pid), *CALLS)
                os.remove(os.path.join(self.work, self.dumps()[0]))
                self.assertFalse([p for p in self.pages() if p.endswith(f"-{pid}")])

    def test_link_under_the_name_of_the_page(self):
        victim = os.path.join(self.root, "victim")
        with open(victim, "w") as file:
            file.write("mine")
        self.no_page("File exists", "remove",
                     command=self.exec_over(f"ln -s '{victim}' {{page}}"))
        with open(victim) as file:
            self.assertEqual(file.read(), "mine")
        self.no_page("File exists", "remove", command=self.exec_over("mkdir {page}"))

    # ---- links under the names of the dump

    def victim(self):
        path = os.path.join(self.root, "victim")
        with open(path, "w") as file:
            file.write("mine")
        return path

    def test_link_under_the_temporary_name(self):
        victim = self.victim()
        command = ["/bin/sh", "-c",
                   f"ln -s '{victim}' accelcache-$$.json.$$-0.tmp; exec '{WORK}'"]
        pid, _ = self.compare(*command, lines=0)
        self.assert_calls(self.read_dump(f"accelcache-{pid}.json"), *CALLS)
        with open(victim) as file:
            self.assertEqual(file.read(), "mine")

    @unittest.skipUnless(os.geteuid() == 0, "needs the right to give a link away")
    def test_link_of_another_user_under_the_dumps_name(self):
        victim = self.victim()
        link = os.path.join(self.work, "out.json")
        os.symlink(victim, link)
        os.lchown(link, 12345, 12345)
        self.unwritable("dump:out.json", "out.json", "not permitted", "dump:PATH")
        with open(victim) as file:
            self.assertEqual(file.read(), "mine")

    # ---- closed descriptors

    def test_data_under_number_2(self):
        """The line that would be due goes nowhere but into the dump."""
        pid, _ = self.compare(WORK, "data2", conf="enabled:maybe", lines=0, stderr_too=False)
        with open(os.path.join(self.work, "data")) as file:
            self.assertEqual(file.read(), "data\n")
        dump = self.read_dump(f"accelcache-{pid}.json")
        self.assertTrue(any("was not applied" in w for w in dump["warnings"]))

    def test_closed_from_the_start(self):
        command = ["/bin/sh", "-c", f"exec '{WORK}' data2 2>&-"]
        self.compare(*command, conf="enabled:maybe", lines=0)
        with open(os.path.join(self.work, "data")) as file:
            self.assertEqual(file.read(), "data\n")

    def test_log_under_number_2(self):
        self.compare(WORK, "append2", conf="enabled:maybe", lines=0, stderr_too=False)
        with open(os.path.join(self.work, "data")) as file:
            self.assertIn("data\naccelcache: ACCEL_ALLOC_CONF was not applied", file.read())

    def test_all_closed(self):
        for when in ("close", "-close"):
            pid, _ = self.compare(WORK, when, lines=0)
            self.assert_calls(self.the_dump(pid), *CALLS)
            os.remove(os.path.join(self.work, self.dumps()[0]))

    def test_prints_to_a_closed_number_reach_no_file_of_ours(self):
        child = self.start(WORK, "close", "-scribble")
        self.finish(child, 13)
        self.assert_calls(self.the_dump(child.pid), *CALLS)

    def test_stderr_without_reader(self):
        """The reader is gone: the line is lost, not the program."""
        reader, writer = os.pipe()
        os.close(reader)
        child = self.start(WORK, env=self.environment("enabled:maybe"), stderr=writer,
                           restore_signals=True)
        os.close(writer)
        out, _ = child.communicate(timeout=LIMIT)
        self.assertEqual((child.returncode, out), (11, "sum 65535000\n"))
        self.the_dump(child.pid)

    # ---- no /proc

    @unittest.skipUnless(CAN_MOUNT and not SANITIZED, "needs the right to mount, no sanitizer")
    def test_no_proc(self):
        command = ["unshare", "-m", "/bin/sh", "-c",
                   f"mount -t tmpfs none /proc && exec '{WORK}'"]
        pid, _ = self.compare(*command, lines=0)
        self.assert_calls(self.the_dump(pid), *CALLS)


if __name__ == "__main__":
    unittest.main()
