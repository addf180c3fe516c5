"""Call sites of requests and frees, by name: history, stacks, and the commands that show them (sites.c)."""


import glob
import re
import resource
import shutil
import struct
import sys
import time
from random import Random

from host import *

PLUGIN = program("libsites_plugin.so")
MIB = 1 << 20
PLACE = r"\((?:\S+\+0x[0-9a-f]+|\S+:\d+)\)"  # as the command reads lines, or not
LEAF = r"(\S+(?: \S+)*?) \(\S+\+0x[0-9a-f]+\)"
GROW = "model::Layer<float>::grow(unsigned long)"
GROW_SITE = "model::Layer<float>::grow < model::build < plugin_take"


class SitesTest(HostTest):
    def run_sites(self, *steps, conf="stacks:all", **env):
        pid, out, err = self.run_program(program("sites"), PLUGIN, *(str(s) for s in steps),
                                         env=self.environment(conf, **env))
        return pid, out, err

    def command(self, *arguments, status=0):
        env = self.environment(LD_PRELOAD=None)
        done = subprocess.run([COMMAND, *arguments], env=env, cwd=self.work, text=True,
                              capture_output=True, timeout=LIMIT, check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout

    def dump_of(self, pid):
        return self.read_dump(f"accelcache-{pid}.json")

    def site_of(self, dump, stack):
        """Returns the function of the innermost frame; None: not recorded."""
        if not stack:
            return None
        file, offset = dump["recorded"]["stack"][stack - 1]["frames"][:2]
        return self.function(dump["recorded"]["files"][file - 1], offset)

    def function(self, path, offset):
        table = subprocess.run(["nm", "-S", path], check=True, capture_output=True, text=True).stdout
        for address, size, name in re.findall(r"^(\w+) (\w+) [tT] (\w+)$", table, re.M):
            if int(address, 16) <= offset < int(address, 16) + int(size, 16):
                return name
        return "?"

    def plain(self, site):
        """Returns the site's functions, without the place of the innermost one."""
        return re.sub(f" {PLACE}", "", site)

    def sites(self, text, heading):
        """Returns {name without place: (bytes, blocks)} of a table of call sites."""
        rows = {}
        for line in text[text.index(heading):].split("\n")[1:]:
            if not line.strip():
                break
            size, blocks, name = re.match(
                rf"\s*([\d.,]+ \w+)(?:\s+[\d.]+ %)?\s+([\d,]+) blocks?\s+(.*)$", line).groups()
            rows[self.plain(name)] = (size, int(blocks))
        return rows

    def held(self, dump):
        """Returns the call sites of the dump. Their bytes and blocks add up to the statistics of each device."""
        for device in dump["devices"]:
            mine = [s for s in dump["recorded"]["sites"] if s["device"] == device["ordinal"]]
            for field, name in (("bytes", "allocated_bytes"), ("blocks", "allocation")):
                self.assertEqual(sum(s[field] for s in mine),
                                 device["stats"][name]["all"]["current"], mine)
        return dump["recorded"]["sites"]


class Stacks(SitesTest):
    def test_a_load_that_no_hook_sees(self):
        """Another library's code is at the same address, with a larger frame. Its callers are still found."""
        self.swapped("swap", "libsites_swap_3000.so")

    def test_a_load_into_another_namespace(self):
        """The load lowers the C library's count of unloads. The library names no file for this code."""
        self.swapped("swap_namespace", "")

    def swapped(self, step, second):
        pid, _, err = self.run_sites(step)
        self.assertEqual(err, "")
        dump = self.dump_of(pid)
        callers, names = [], []
        for site in self.held(dump):
            frames = dump["recorded"]["stack"][site["stack"] - 1]["frames"]
            files = ["", *dump["recorded"]["files"]]
            names.append(os.path.basename(files[frames[0]]))
            callers.append([self.function(files[frames[i]], frames[i + 1]) for i in (2, 4)])
        self.assertEqual(names.count("libsites_swap_1000.so") + names.count(second), len(names), names)
        self.assertIn(second, names)
        self.assertEqual(callers, [["take_by_swap", "main"]] * len(callers))

    def test_names_and_sums(self):
        """C, C++ of a plug-in, a signal handler, a thread with the least stack; and what the loader
        took away before anything was written."""
        pid, _, err = self.run_sites("keep", 3, 100000, "lose", 2, 300000, "plugin", 50000, "drop",
                                     0, "small", "signal", "close")
        self.assertEqual(err, "")
        self.assertEqual(len(self.held(self.dump_of(pid))), 5)
        shown = self.sites(self.command("stat", f"accelcache-{pid}.json"),
                           "at the end, by call site")
        self.assertEqual(shown, {"lose_buffers < main": ("586 KiB", 2), "keep_buffers < main": ("195 KiB", 2),
                                 GROW_SITE: ("48.8 KiB", 1),
                                 "on_signal < main": ("4.88 KiB", 1), "in_small_stack": ("2.93 KiB", 1)})

    def test_whole_stacks(self):
        pid, _, _ = self.run_sites("keep", 2, 100000, "plugin", 40000)
        folded = self.command("export", "-f", "folded", f"accelcache-{pid}.json")
        stacks = {tuple(re.sub(r" \(.*?\)$", "", f) for f in line.rsplit(" ", 1)[0].split(";")):
                  int(line.rsplit(" ", 1)[1]) for line in folded.splitlines()}
        stacks = {stack[stack.index("main"):]: n for stack, n in stacks.items()}
        self.assertEqual(stacks, {("main", "keep_buffers"): 200000,
                                  ("main", "take_by_plugin", "plugin_take", "model::build(unsigned long)", GROW):
                                  40000})

    def test_code_that_cannot_be_unwound(self):
        """The stack ends at this code, and the program continues."""
        pid, _, err = self.run_sites("broken", "senseless", "blind", "keep", 1, 4096)
        self.assertEqual(err, "")
        dump = self.dump_of(pid)
        self.assertEqual(sum(s["blocks"] for s in self.held(dump)), 4)
        short = sorted(len(s["frames"]) // 2 for s in dump["recorded"]["stack"])
        self.assertEqual(short[0], 1, dump["recorded"]["stack"])

    def test_a_file_that_was_built_anew(self):
        """Functions of a former file get no names of the rebuilt one. Unchanged files keep their names."""
        copy = os.path.join(self.work, "libcopy.so")
        for conf, name in (("stacks:all,dump:d.json", "d.json"), ("stacks:all,trace:t.trace,dump:none", "t.trace")):
            shutil.copy(PLUGIN, copy)
            self.run_program(program("sites"), copy, "plugin", "50000", "keep", "1", "1000",
                             env=self.environment(conf))
            with open(os.path.join(self.work, name), "rb") as file:
                if name == "d.json":
                    recorded = json.load(file)["recorded"]
                    ids = dict(zip(recorded["files"], recorded["build_ids"]))
                    if not ids[copy]:
                        self.skipTest("this compiler gives no build IDs")
                    notes = subprocess.run(["readelf", "-n", PLUGIN], check=True, capture_output=True,
                                           text=True).stdout
                    self.assertIn(f"Build ID: {ids[copy]}\n", notes)
            before = self.command("export", "-f", "folded", name)
            self.assertIn(f";{GROW} (", before)
            os.remove(copy)
            shutil.copy(program("libmodules_driver.so"), copy)
            env = self.environment(LD_PRELOAD=None)
            done = subprocess.run([COMMAND, "export", "-f", "folded", name], env=env, cwd=self.work, text=True,
                                  capture_output=True, timeout=LIMIT, check=True)
            self.assertRegex(done.stderr, r"^accelcache export: \S+/libcopy\.so was rebuilt since \(build ID "
                                          r"[0-9a-f]{12}\.\. then, [0-9a-f]{12}\.\. now\): its functions stay "
                                          r"without names; put the old file back to see them\n$")
            self.assertRegex(done.stdout, r"(?m);libcopy\.so\+0x[0-9a-f]+ 5\d+$")
            self.assertIn(";keep_buffers (", done.stdout)

    def test_notes_of_other_linkers(self):
        """A segment of notes that is not loaded is not read. One with alignment 8 gives the same ID."""
        notes = subprocess.run(["readelf", "-n", PLUGIN], check=True, capture_output=True, text=True).stdout
        found = re.search(r"Build ID: ([0-9a-f]+)", notes)
        if not found:
            self.skipTest("this compiler gives no build IDs")
        copy = os.path.join(self.work, "libnotes.so")
        for field, value, build_id in ((16, 1 << 44, None), (48, 8, found[1])): # p_vaddr, p_align
            with open(PLUGIN, "rb") as file:
                elf = bytearray(file.read())
            begin, = struct.unpack_from("<Q", elf, 32)
            size, count = struct.unpack_from("<HH", elf, 54)
            for at in range(begin, begin + size * count, size):
                if struct.unpack_from("<I", elf, at)[0] == 4 and struct.unpack_from("<Q", elf, at + 48)[0] == 4:
                    struct.pack_into("<Q", elf, at + field, value)
            with open(copy, "wb") as file:
                file.write(elf)
            self.run_program(program("sites"), copy, "plugin", "50000", env=self.environment("stacks:all,dump:d.json"))
            with open(os.path.join(self.work, "d.json"), encoding="utf-8") as file:
                recorded = json.load(file)["recorded"]
            self.assertEqual(dict(zip(recorded["files"], recorded["build_ids"]))[copy], build_id)
            self.assertIn(f";{GROW} (", self.command("export", "-f", "folded", "d.json"))
            os.remove(os.path.join(self.work, "d.json"))
            os.remove(copy)

    def test_one_frame(self):
        """If only the history is on, a site is the innermost frame."""
        pid, _, _ = self.run_sites("keep", 2, 4096, "plugin", 8192, conf="history:100")
        dump = self.dump_of(pid)
        self.held(dump)
        self.assertEqual({len(s["frames"]) for s in dump["recorded"]["stack"]}, {2})
        shown = self.sites(self.command("stat", f"accelcache-{pid}.json"),
                           "at the end, by call site")
        self.assertEqual(set(shown), {"keep_buffers", GROW_SITE.split(" < ", maxsplit=1)[0]})

    def test_samples(self):
        """Misses are always sampled.  Each other sample stands for the bytes of the requests that it was drawn from."""
        count = 2000
        pid, _, _ = self.run_sites("keep", count, 65536, conf="stacks:sampled")
        dump = self.dump_of(pid)
        sites = self.held(dump)
        estimated, true = sum(s["estimated"] for s in sites), count * 65536
        self.assertEqual(dump["recorded"]["sample_bytes"], 512 << 10)
        self.assertLess(abs(estimated - true), true * 0.15, sites)
        whole = [s for s in dump["recorded"]["stack"] if len(s["frames"]) > 2]
        self.assertTrue(whole)
        self.assertLess(sum(s["requests"] for s in whole), count // 2)

    def test_off(self):
        pid, _, _ = self.run_sites("keep", 2, 4096, conf=None)
        dump = self.dump_of(pid)
        self.assertEqual({"recorded", "history"} & set(dump), set())

    def test_threads(self):
        pid, _, err = self.run_sites("keep", 5, 1000, "threads", 4,
                                     conf="stacks:all,history:1000000")
        dump = self.dump_of(pid)
        self.assertEqual(err, "")
        self.assertEqual(sum(s["blocks"] for s in self.held(dump)), 5)
        recorded, (history,) = dump["recorded"], dump["history"]
        self.assertEqual((recorded["lost_blocks"], recorded["lost_stacks"]), (0, 0))
        kinds = [e[0] for e in history["event"]]
        self.assertEqual((kinds.count("alloc"), kinds.count("free"), history["dropped"]),
                         (36005, 36000, 0))
        live = {}
        for kind, _, address, size, *_ in history["event"]:
            if kind == "alloc":
                self.assertNotIn(address, live, "handed out twice")
                live[address] = size
            elif kind == "free":
                self.assertEqual(live.pop(address), size)
        self.assertEqual(sorted(live.values()), [1000] * 5)

    def test_a_fork_child(self):
        pid, _, err = self.run_sites("keep", 2, 1000, "fork", "keep", 1, 1000)
        self.assertEqual((err, self.dumps()), ("", [f"accelcache-{pid}.json"]))
        self.assertEqual(sum(s["blocks"] for s in self.held(self.dump_of(pid))), 3)

    def test_expandable_segments(self):
        pid, _, _ = self.run_sites("keep", 3, 3 * MIB, "drop", 1, conf="expandable_segments:true,"
                                   "stacks:all,history:100")
        dump = self.dump_of(pid)
        self.assertEqual(sum(s["bytes"] for s in self.held(dump)), 6 * MIB)
        self.assertIn("segment_map", [e[0] for e in dump["history"][0]["event"]])


@unittest.skipIf(EMULATED, "the machine's Python is of another architecture")
class Python(SitesTest):
    """Frames of a Python interpreter, with its lock and without."""

    SOURCE = """
import ctypes, sys
library = getattr(ctypes, sys.argv[1])("libcuda.so.1")
def prepare():
    context = ctypes.c_void_p()
    assert not library.cuInit(0)
    assert not library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    assert not library.cuCtxSetCurrent(context)
def innermost(pointer):
    return library.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(12345))
def outer():
    pointer = ctypes.c_ulonglong()
    assert not innermost(pointer)
prepare()
outer()
"""

    def run_script(self, kind, source, interpreter=sys.executable):
        script = os.path.join(self.work, "train.py")
        with open(script, "w", encoding="utf-8") as file:
            file.write(source)
        child = self.start(interpreter, script, kind, env=self.environment(
            "stacks:all,dump:python.json", PYTHONDONTWRITEBYTECODE="1", LC_ALL="C.UTF-8"))
        out, _ = self.finish(child)
        folded = self.command("export", "-f", "folded", "python.json")
        return [re.sub(r"/\S*/", "", line) for line in folded.splitlines()], out

    def run_python(self, kind):
        return self.run_script(kind, self.SOURCE)[0]

    @unittest.skipIf(SANITIZED, "the interpreter is not built for it")
    def test_with_its_lock(self):
        (line,) = self.run_python("PyDLL")
        names = [f.split(" ")[0] for f in line.split(";")[1:]]
        self.assertEqual(names[:3], ["<module>", "outer", "innermost"], line)
        self.assertIn("innermost (train.py:10)", line)

    @unittest.skipIf(SANITIZED, "the interpreter is not built for it")
    def test_no_collection_inside_a_request(self):
        """If a walk of frames creates objects, a threshold of 5 would start a collection each time."""
        end = """
import gc
seen = []
def deep(n):
    if n:
        return deep(n - 1)
    pointer = ctypes.c_ulonglong()
    take, reference, size = library.cuMemAlloc_v2, ctypes.byref(pointer), ctypes.c_size_t(54321)
    gc.callbacks.append(lambda phase, info: seen.append(phase))
    gc.set_threshold(5)
    assert not take(reference, size)
    gc.set_threshold(0)
    gc.callbacks.clear()
deep(50)
print(len(seen), gc.isenabled())
gc.disable()
deep(5)
print(gc.isenabled())
"""
        _, out = self.run_script("PyDLL", self.SOURCE + end)
        count, *enabled = out.split()
        self.assertLessEqual(int(count), 2)
        self.assertEqual(enabled, ["True", "False"])

    NESTED = """
import threading
def größe(pointer):
    size = ctypes.c_size_t(54321)

    return library.cuMemAlloc_v2(ctypes.byref(pointer), size)
class Model:
    def メモリ(self):
        pointer = ctypes.c_ulonglong()
        for _ in range(1):
            assert not größe(pointer)
def generator():
    Model().メモリ()
    yield 1
def nested():
    list(map(lambda i: next(generator()), [1]))
"""

    def interpreters(self):
        """Returns {(3, 11, 0): path}: each version's first interpreter. The third number is Py_GIL_DISABLED."""
        found = {}
        folders = glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin")) + ["/usr/bin", "/usr/local/bin"]
        tell = "import sys, sysconfig; print(*sys.version_info[:2], sysconfig.get_config_var('Py_GIL_DISABLED') or 0)"
        for path in (sys.executable, *(os.path.join(f, "python3") for f in folders)):
            done = subprocess.run([path, "-c", tell], capture_output=True, text=True, check=False) \
                if os.path.exists(path) else None
            if done and done.returncode == 0:
                found.setdefault(tuple(map(int, done.stdout.split())), path)
        return found

    @unittest.skipIf(SANITIZED, "the interpreter is not built for it")
    def test_without_its_lock(self):
        """The frames and lines that it has with the lock, in each thread; of versions that are not known, none."""
        source = self.SOURCE + self.NESTED + """
nested()
thread = threading.Thread(target=lambda: (prepare(), nested()))
thread.start()
thread.join()
"""
        frames = ("nested (train.py:31);<lambda> (train.py:31);generator (train.py:28);メモリ (train.py:26);"
                  "größe (train.py:21)")
        for (major, minor, free), path in self.interpreters().items():
            with self.subTest(interpreter=path):
                lines, _ = self.run_script("CDLL", source, path)
                if (major, minor) not in ((3, 11), (3, 12), (3, 13)) or free:
                    self.assertFalse([line for line in lines if "train.py" in line])
                    continue
                self.assertEqual(lines, self.run_script("PyDLL", source, path)[0])
                self.assertIn(f"device 0;<module> (train.py:33);{frames} 54321", lines)
                self.assertTrue([line for line in lines if line.startswith("device 0;_bootstrap (threading.py:")
                                 and line.endswith(f"<lambda> (train.py:34);{frames} 54321")], lines)

    @unittest.skipIf(SANITIZED, "the interpreter is not built for it")
    def test_without_its_lock_behind_a_filter(self):
        """A seccomp filter, set before the first use of CUDA, ends a process that reads memory as debuggers do."""
        number = {"x86_64": 310, "aarch64": 270}[os.uname().machine]  # process_vm_readv
        filtered = f"""
import ctypes, struct
rules = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *rule) for rule in (
    (0x20, 0, 0, 0), (0x15, 0, 1, {number}), (0x06, 0, 0, 0x80000000), (0x06, 0, 0, 0x7fff0000))))
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("rules", ctypes.c_void_p)]
prctl = ctypes.CDLL(None).prctl
assert prctl(38, 1, 0, 0, 0) == 0
assert prctl(22, 2, ctypes.byref(Program(4, ctypes.addressof(rules))), 0, 0) == 0
"""
        for (major, minor, free), path in self.interpreters().items():
            if (major, minor) in ((3, 11), (3, 12), (3, 13)) and not free:
                with self.subTest(interpreter=path):
                    lines, _ = self.run_script("CDLL", filtered + self.SOURCE, path)
                    self.assertTrue([line for line in lines if "innermost (train.py:" in line], lines)

    @unittest.skipIf(SANITIZED, "the interpreter is not built for it")
    def test_without_its_lock_while_others_run(self):
        """Threads that collect garbage, look at all frames, make and drop code and trace change nothing of a chain that
        is inside a call."""
        source = self.SOURCE + """
import gc, threading
stop = False
def disturb():
    while not stop:
        names = {}
        exec("def made(n):\\n    return made(n - 1) if n else [object() for _ in range(50)]", names)
        names["made"](20)
        [frame.f_lineno for frame in sys._current_frames().values()]
        sys.settrace(lambda *a: None)
        names["made"](3)
        sys.settrace(None)
        gc.collect(0)
def make(depth):
    chain = {}
    for i in range(depth):
        call = f"f{depth}_{i - 1}()" if i else "leaf()"
        exec(f"def f{depth}_{i}():\\n    return {call}", chain)
    def leaf():
        pointers = [ctypes.c_ulonglong() for _ in range(300)]
        for pointer in pointers:
            assert not library.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(512))
    chain["leaf"] = leaf
    return chain[f"f{depth}_{depth - 1}"]
def work(depth):
    prepare()
    make(depth)()
sys.setswitchinterval(1e-5)
others = [threading.Thread(target=disturb) for _ in range(2)]
workers = [threading.Thread(target=work, args=(depth,)) for depth in (3, 9, 20)]
for thread in others + workers:
    thread.start()
for thread in workers:
    thread.join()
stop = True
for thread in others:
    thread.join()
"""
        for (major, minor, free), path in self.interpreters().items():
            if (major, minor) not in ((3, 11), (3, 12), (3, 13)) or free:
                continue
            with self.subTest(interpreter=path):
                lines, _ = self.run_script("CDLL", source, path)
                made = {}
                for line in lines:
                    stack = re.sub(r" \([^;]*\)", "", line).split(";")
                    if "work" in stack:
                        tail, size = stack[stack.index("work"):], int(stack[-1].rsplit(" ", 1)[1])
                        made[";".join(tail).rsplit(" ", 1)[0]] = size
                wanted = {";".join(["work", *(f"f{depth}_{i}" for i in reversed(range(depth))), "leaf"]): 300 * 512
                          for depth in (3, 9, 20)}
                self.assertEqual(made, wanted)


class Failures(SitesTest):
    def test_more_than_the_device_has(self):
        """It counts as out of memory if the driver refuses it. Some drivers serve it from host memory."""
        for steps, fault, count in (("huge",), "", 1), (("keep", 1, 1 << 45), ",fail:cuMemAlloc_v2@1=0", 0):
            pid, _, _ = self.run_sites(*steps, conf=None, ACCEL_SIM="clock:virtual" + fault)
            (device,) = self.dump_of(pid)["devices"]
            self.assertEqual(device["stats"]["num_ooms"], count, fault)


class Leaks(SitesTest):
    def test_frees_say_both_places(self):
        pid, _, err = self.run_sites("keep", 1, 100000, "lose", 1, 100000, "drop", 0, "again", 0,
                                     "inside", 1, conf="history:100")
        err = re.sub(r"\+0x[0-9a-f]+", "+OFFSET", re.sub(r"freed 0x[0-9a-f]+", "freed ADDRESS", err))
        at = "sites+OFFSET"
        self.assertEqual(err.splitlines(), [
            f"accelcache: double free: sites freed ADDRESS at {at}, which is free already: it was "
            f"freed at {at}; sites had asked for it at {at}. The call returned an error. Later ones "
            "are counted (double_frees)",
            f"accelcache: interior free: sites freed ADDRESS at {at}, which is 512 bytes into a block "
            f"of 100000 bytes that sites asked for at {at}; the call returned an error, the block "
            "stays. Later ones are counted (interior_frees)"])

    def test_the_search_is_made_once(self):
        """The library prints one message and searches its history of 144,000 events once."""
        def seconds(times):
            before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            self.run_sites("keep", 1, 40 * MIB, "drop", 0, "threads", 8, *("again", 0) * times,
                           conf="history:200000,dump:none")
            return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
        self.assertLess(seconds(1000), 2 * seconds(1) + 0.3)

    def test_these_places_are_right(self):
        _, _, err = self.run_sites("keep", 1, 100000, "drop", 0, "again", 0, conf="history:100")
        offsets = [int(o, 16) for o in re.findall(r"sites\+0x([0-9a-f]+)", err)]
        table = subprocess.run(["nm", "-S", program("sites")], check=True, capture_output=True,
                               text=True).stdout
        places = []
        for offset in offsets:
            for address, size, name in re.findall(r"^(\w+) (\w+) [tT] (\w+)$", table, re.M):
                if int(address, 16) <= offset < int(address, 16) + int(size, 16):
                    places.append(name)
        self.assertEqual(places, ["free_again", "drop_buffer", "keep_buffers"])

    def test_leak_report(self):
        _, _, err = self.run_sites("keep", 2, 1000, "lose", 3, 2000,
                                   conf="leak_report:true,stacks:all")
        self.assertRegex(err, r"^accelcache: leak: 5 blocks .*; the largest site is "
                              r"sites\+0x[0-9a-f]+ \(3 blocks, 6144 bytes\)\n$")


class Peaks(SitesTest):
    """Sites with memory at the peak and at the end. A trace, a history and a dump without either agree with a count of
    the program's steps."""

    SITES = {"keep": "keep_buffers", "lose": "lose_buffers", "plugin": GROW_SITE.split(" < ")[0]}

    def steps(self, seed):
        """Returns random steps, and the bytes of each site after each step."""
        random = Random(seed)
        steps, blocks, live, moments = [], [], [], [{}]
        for i in range(120):
            if live and random.random() < (0.35 if i % 60 < 40 else 0.75):
                index = live.pop(random.randrange(len(live)))
                steps += ["drop", index]
                blocks[index] = (blocks[index][0], 0)
            else:
                site = random.choice(sorted(self.SITES))  # the plug-in takes whole floats
                size = random.choice((random.randrange(1, 4000), random.randrange(1, 4 * MIB)))
                size = size if site != "plugin" else size // 64 * 64 + 64
                steps += [site, 1, size] if site != "plugin" else [site, size]
                live.append(len(blocks))
                blocks.append((self.SITES[site], size))
            held = {}
            for site, size in blocks:
                if size:
                    held[site] = held.get(site, 0) + size
            moments.append(held)
        return steps, moments

    def told(self, name):
        """{moment: {site: bytes}}"""
        document = json.loads(self.command("stat", "--sites", "--json", name))
        held = {}
        for moment in ("peak", "end"):
            held[moment] = {}
            for site in document[moment]["sites"]:
                function = self.plain(site["site"]).split(" < ")[0]
                held[moment][function] = held[moment].get(function, 0) + site["bytes"]
        return held

    def without(self, name, *keys):
        """Returns the dump without some of its records."""
        dump = self.read_dump(name)
        for key in keys:
            (dump["recorded"] if key == "peak" else dump).pop(key)
        with open(os.path.join(self.work, "less.json"), "w", encoding="utf-8") as file:
            json.dump(dump, file)
        return "less.json"

    def test_ten_programs(self):
        for seed in range(10):
            steps, moments = self.steps(seed)
            want = {"peak": max(moments, key=lambda held: sum(held.values())), "end": moments[-1]}
            ends = seed % 3 == 0  # its context takes along what is left
            if ends:
                steps, want["end"] = [*steps, "reset"], {}
            self.run_sites(*steps, conf="stacks:all,history:1000,dump:d.json,trace:t.trace")
            self.assertEqual(self.told("t.trace"), want, seed)
            self.assertEqual(self.told("d.json"), want, seed)
            self.assertEqual(self.told(self.without("d.json", "peak")), want, seed)
            self.assertEqual(self.told(self.without("d.json", "history", "layout")), want, seed)
            self.run_sites(*steps, conf="stacks:sampled,dump:s.json")
            self.assertEqual(self.told("s.json"), want, seed)

    def test_a_history_that_begins_late(self):
        """The dump has the peak of the whole run. Its history has the peak of the remaining events."""
        self.run_sites("keep", 3, MIB, "drop", 0, "drop", 1, *("lose", 1, 1000) * 20,
                       conf="stacks:all,history:16,dump:d.json")
        self.assertEqual(self.told("d.json")["peak"], {"keep_buffers": 3 * MIB})

    def test_threads(self):
        """With several threads the sites at the peak add up to the library's count, and nothing is held at the end."""
        self.run_sites("threads", 4, conf="stacks:all,dump:d.json")
        peak = self.read_dump("d.json")["recorded"]["peak"]
        self.assertLess(abs(sum(site["requested"] for site in peak["sites"]) - peak["requested"]), 64 * 3 * MIB)
        self.run_sites("threads", 1, conf="stacks:all,dump:d.json")
        peak = self.read_dump("d.json")["recorded"]["peak"]
        self.assertEqual(sum(site["requested"] for site in peak["sites"]), peak["requested"])


class Growth(SitesTest):
    def test_the_site_that_forgets(self):
        """keep_buffers frees its blocks, lose_buffers does not."""
        steps = []
        for i in range(6):
            steps += ["keep", 1, 3 * MIB, "lose", 1, 100000, "pause", "drop", 2 * i]
        child = self.start(program("sites"), PLUGIN, *(str(s) for s in steps),
                           env=self.environment("control:true,stacks:all"))
        files = []
        for i in range(6):
            self.assertEqual(child.stdout.readline(), "paused\n")
            files.append(f"look{i}.json")
            self.command("ctl", str(child.pid), "snapshot", files[-1])
            child.stdin.write("\n")
            child.stdin.flush()
        self.finish(child)
        growth = json.loads(self.command("stat", "--growth", "--json", *files))
        rising = [s["name"].split(" (")[0] for s in growth["sites"] if s["rises"]]
        self.assertEqual(rising, ["lose_buffers"])
        self.assertEqual(len(growth["sites"]), 2)
        self.assertRegex(self.command("stat", "--growth", *files),
                         rf"(?m)^  call site +device .*\n  lose_buffers {PLACE}")


    def test_a_running_process(self):
        """The command asks the process, because its page has no call sites. The request leaves no file."""
        steps = []
        for i in range(2000):
            steps += ["keep", 1, 3 * MIB, "lose", 1, 100000, "pause", "drop", 2 * i]
        child = self.start(program("sites"), PLUGIN, *(str(s) for s in steps), "wait",
                           env=self.environment("control:true,stacks:all,history:100"))
        self.assertEqual(child.stdout.readline(), "paused\n")
        env = self.environment(LD_PRELOAD=None, TMPDIR=self.work)
        before = set(os.listdir(self.work))
        for _ in range(5):
            watch = subprocess.Popen([COMMAND, "stat", "--growth", "--json", "--looks", "6",
                                      "--interval", "0.2", str(child.pid)], env=env, cwd=self.work,
                                     text=True, stdout=subprocess.PIPE)
            self.addCleanup(self.end, watch)
            while watch.poll() is None:
                time.sleep(0.04)
                child.stdin.write("\n")
                child.stdin.flush()
                self.assertEqual(child.stdout.readline(), "paused\n")
            growth = json.loads(watch.stdout.read())
            self.assertEqual((watch.returncode, growth["sites_unknown"]), (0, None))
            rising = [s["name"].split(" (")[0] for s in growth["sites"] if s["rises"]]
            if rising:  # on a busy machine no step may pass between two looks
                break
        self.assertEqual(rising, ["lose_buffers"], growth["sites"])
        self.assertEqual(set(os.listdir(self.work)), before)
        child.kill()
        child.wait()


class Trace(SitesTest):
    def folded(self, *arguments):
        stacks = {}
        for line in self.command("export", "-f", "folded", *arguments).splitlines():
            stack, size = line.rsplit(" ", 1)
            names = [re.sub(r" \(.*?\)$", "", f) for f in stack.split(";")]
            stacks[tuple(names[names.index("main"):])] = int(size)
        return stacks

    def test_traces_have_the_stacks(self):
        self.run_sites("keep", 2, 100000, "plugin", 40000, "lose", 1, 300000, "drop", 0, "small",
                       conf="stacks:all,trace:t.trace,dump:none")
        self.assertEqual(self.command("export", "-f", "folded", "t.trace").count("in_small_stack"), 1)
        self.run_sites("keep", 2, 100000, "plugin", 40000, "lose", 1, 300000, "drop", 0,
                       conf="stacks:all,trace:u.trace,dump:none")
        self.assertEqual(self.folded("u.trace"), {
            ("main", "keep_buffers"): 100000, ("main", "lose_buffers"): 300000,
            ("main", "take_by_plugin", "plugin_take", "model::build(unsigned long)", GROW): 40000})
        for name in ("dygraph.min.js", "dygraph.min.css"):
            with open(os.path.join(self.work, name), "w", encoding="utf-8") as file:
                file.write("/* the library */")
        self.command("export", "-f", "torch-snapshot", "u.trace", "-o", "u.pickle")
        import pickle
        with open(os.path.join(self.work, "u.pickle"), "rb") as file:
            snapshot = pickle.load(file)
        (trace,) = snapshot["device_traces"]
        self.assertEqual([e["frames"][0]["name"] for e in trace if e["action"] == "alloc"],
                         ["keep_buffers", "keep_buffers", GROW, "lose_buffers"])
        held = [b for s in snapshot["segments"] for b in s["blocks"] if b["state"] == "active_allocated"]
        self.assertEqual(sorted(b["frames"][0]["name"] for b in held),
                         sorted(["keep_buffers", GROW, "lose_buffers"]))
        self.command("report", "u.trace", "-o", "u.html", "--library", self.work)
        with open(os.path.join(self.work, "u.html"), encoding="utf-8") as file:
            self.assertIn("lose_buffers", file.read())

    def tracks(self, source):
        """Returns {name: bytes after each change} of the call sites of device 0."""
        events = json.loads(self.command("export", "-f", "perfetto", source))["traceEvents"]
        tracks = {}
        for event in events:
            if event["ph"] == "C" and (name := event["name"].removeprefix("device 0 ")) not in (
                    "allocated", "blocks", "reserved"):
                self.assertEqual(list(event["args"]), ["bytes"])
                tracks.setdefault(self.plain(name), []).append(event["args"]["bytes"])
        return tracks

    def test_tracks_by_site(self):
        steps = ("keep", 2, 100000, "plugin", 40000, "lose", 1, 300000, "drop", 0)
        expected = {"keep_buffers < main": [0, 100000, 200000, 100000], GROW_SITE: [0, 40000],
                    "lose_buffers < main": [0, 300000]}
        self.run_sites(*steps, conf="stacks:all,trace:t.trace,dump:none")
        self.assertEqual(self.tracks("t.trace"), expected)
        pid, _, _ = self.run_sites(*steps, conf="stacks:all,history:100")
        self.assertEqual(self.tracks(f"accelcache-{pid}.json"), expected)

    def test_tracks_of_the_largest(self):
        """A trace has tracks of at most 24 sites: the ones with the highest peaks, even if they end with nothing."""
        self.run_sites("lose", 1, 9 * MIB, "drop", 0, "keep", 1, 5000,
                       conf="stacks:all,trace:t.trace,dump:none")
        self.assertEqual(self.tracks("t.trace"), {"lose_buffers < main": [0, 9 * MIB, 0],
                                                   "keep_buffers < main": [0, 5000]})

    def test_versions(self):
        """A trace with stacks has another version.  Readers that do not know stacks would report damage."""
        def version(name):
            with open(os.path.join(self.work, name), "rb") as file:
                return int.from_bytes(file.read(12)[8:], sys.byteorder)
        self.run_sites("keep", 1, 100000, conf="trace:plain.trace,dump:none")
        self.run_sites("keep", 1, 100000, conf="stacks:all,trace:sites.trace,dump:none")
        self.assertEqual((version("plain.trace"), version("sites.trace")), (1, 2))
        self.assertEqual(self.folded("sites.trace"), {("main", "keep_buffers"): 100000})
        with open(os.path.join(self.work, "sites.trace"), "r+b") as file:
            for number, status in ((3, 1), (0, 1), (1, 0)): # 1: as it was written before there was another
                file.seek(8)
                file.write(number.to_bytes(4, sys.byteorder))
                file.flush()
                self.command("export", "-f", "folded", "sites.trace", status=status)

    def test_many_stacks_in_small_chunks(self):
        """Definitions continue in the next chunk, and every thread's lane has its own."""
        self.run_sites("threads", 3, "keep", 1500, 512,
                       conf="stacks:all,trace:t.trace,dump:none")
        self.assertEqual(self.folded("t.trace"), {("main", "keep_buffers"): 1500 * 512})

    def test_a_killed_program(self):
        child = self.start(program("sites"), PLUGIN, "keep", "3", "5000", "wait",
                           env=self.environment("stacks:all,trace:t.trace,dump:none"))
        while child.stdout.readline() != "ready\n":
            continue
        child.kill()
        child.wait()
        self.assertEqual(self.folded("t.trace"), {("main", "keep_buffers"): 15000})

    def test_one_frame_with_the_history(self):
        self.run_sites("keep", 2, 4096, conf="history:100,trace:t.trace,dump:none")
        text = self.command("export", "-f", "folded", "t.trace")
        self.assertRegex(text, r"^device 0;keep_buffers \((sites|sites\.c:\d+)\) 8192\n$")


if __name__ == "__main__":
    if not os.path.exists(PLUGIN):
        print("the plug-in was not built: there is no C++ compiler")
        sys.exit(77)
    unittest.main()
