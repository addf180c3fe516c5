"""Python's multiprocessing: children by fork, spawn and a fork server, before and after the parent used
CUDA. Each process has its own figures, and none hangs."""

import sys

from host import *

USE = """
import ctypes, sys, os, multiprocessing

def use(pairs):
    \"\"\"The driver's first answer that is no success, or 0; all calls are made.\"\"\"
    cuda = ctypes.CDLL("libcuda.so.1")
    context, block = ctypes.c_void_p(), ctypes.c_uint64()
    steps = [lambda: cuda.cuInit(0),
             lambda: cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
             lambda: cuda.cuCtxSetCurrent(context)]
    first = 0
    for step in steps + pairs * [lambda: cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(4096)),
                                 lambda: cuda.cuMemFree_v2(block)]:
        answer = step()
        first = first or answer
    return first

def work(pairs):
    return use(pairs), os.getpid()

if __name__ == "__main__":
    way, used_before = sys.argv[1:]
    if used_before == "used":
        assert use(5) == 0
    context = multiprocessing.get_context(way)
    with context.Pool(2) as pool:
        for answer, pid in pool.map(work, [7, 7]):
            print(answer, pid)
        pool.close()
        pool.join()
    if used_before != "used":
        assert use(5) == 0
"""


@unittest.skipIf(SANITIZED, "a sanitizer's runtime under Python is another story")
@unittest.skipIf(EMULATED, "the machine's Python is of another architecture")
class Multiprocess(HostTest):
    def children(self, way, used_before):
        script = os.path.join(self.root, "program.py")
        with open(script, "w") as file:
            file.write(USE)
        pid, out, err = self.run_program(sys.executable, script, way, used_before)
        self.assertEqual(err, "")
        self.assert_calls(self.read_dump(f"accelcache-{pid}.json"), 5)
        return pid, [(int(a), int(p)) for a, p in map(str.split, out.splitlines())]

    def figures(self, pid):
        """Returns the figures of a process: its dump, or its page if it ended by _exit."""
        name = f"accelcache-{pid}.json"
        if name in self.dumps():
            return self.read_dump(name)
        return json.loads(self.stat("--json", str(pid))[0])

    def test_each_has_its_own(self):
        for way, used_before in (("fork", "unused"), ("spawn", "unused"), ("spawn", "used"),
                                 ("forkserver", "unused"), ("forkserver", "used")):
            with self.subTest(way=way, used_before=used_before):
                pid, answers = self.children(way, used_before)
                pids = {child for _, child in answers}
                self.assertNotIn(pid, pids)
                self.assertEqual([answer for answer, _ in answers], [0, 0])
                calls = [self.figures(child)["hooks"]["cuMemAlloc_v2"] for child in pids]
                self.assertEqual(sum(calls), 14)
                self.assertLessEqual(set(self.dumps()),
                                     {f"accelcache-{p}.json" for p in pids | {pid}})
                for path in self.pages() + [os.path.join(self.work, n) for n in self.dumps()]:
                    os.remove(path)

    def test_fork_after_use(self):
        """A child gets the driver's own error, and leaves no file."""
        pid, answers = self.children("fork", "used")
        self.assertEqual([answer for answer, _ in answers], [3, 3])  # NOT_INITIALIZED
        self.assertEqual(self.dumps(), [f"accelcache-{pid}.json"])
        self.assertEqual(self.pages(), [])


if __name__ == "__main__":
    unittest.main()
