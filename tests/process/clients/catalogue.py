"""The clients that clients.py runs: what each needs, what it runs, how its outcome is read."""
import functools
import glob
import hashlib
import os
import re
import shutil
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.environ.get("AC_CLIENTS", "")  # what `install` made: a virtual environment and more
PYTHON = os.path.join(FOLDER, "bin", "python")


# ---- readers of an outcome: they return lines that must be equal with and without the library

def output(outcome):
    """Returns everything that the client printed. Bytes that are not text become a digest."""
    lines = []
    for text in outcome.outputs:
        try:
            lines += text.decode().splitlines()
        except UnicodeDecodeError:
            lines.append(f"{len(text)} bytes, md5 {hashlib.md5(text).hexdigest()}")
    return lines


def tests(pattern):
    """Reads lines of a test runner, sorted by name. The pattern has groups `test` and `result`."""
    def read(outcome):
        found = set()
        for text in [*outcome.errors, *(out.decode(errors="replace") for out in outcome.outputs)]:
            for match in re.finditer(pattern, text, re.M):
                found.add(": ".join(match.group("test", "result")))
        return sorted(found)
    return read


PYTEST = tests(r"^(?P<result>PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) (?P<test>\S+)")
# A line of the test itself may be between its name and its result.
UNITTEST = tests(r"^\s*(?P<test>test\w+ \(.*?\))(?: \([^)]*\))? \.\.\. "
                 r"(?:(?!test\w+ \().*\n)*?.*?(?P<result>ok|FAIL|ERROR|skipped|expected failure)\b")


def finished(outcome):
    """Returns a benchmark's output without its times."""
    lines = []
    for text in outcome.outputs:
        lines.append(" ".join(re.findall(rb"^Final: +(\d+)", text, re.M)[0:1] and ["finished"]))
    return [f"{number}: {line}" for number, line in enumerate(lines)]


# ---- a client

class Case:
    """One action of a client.  commands(folder) returns its processes, servers first."""

    def __init__(self, title, commands, judge=output, folder=None):
        self.title, self.commands, self.judge, self.folder = title, commands, judge, folder


class Client:
    """needs: (test for its presence, name to install); version: returns the client's version."""

    def __init__(self, name, cases, needs=(), version=None, serves=True, environment=None):
        self.name, self.cases, self.needs, self.serves = name, cases, needs, serves
        self.version_of, self.environment = version, environment or {}

    def missing(self):
        """Returns the reason why the client cannot run here, or None."""
        for there, what in self.needs:
            if not there():
                return f"{what} is not installed"
        return None

    def version(self):
        return self.version_of() if self.version_of else ""


def program(name):
    return lambda: shutil.which(name)


def said(*command, pattern=r"(\d+(?:\.\d+)+\S*)"):
    """Returns a function for the first version number in the output of a command."""
    def ask():
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = re.search(pattern, done.stdout + done.stderr)
        return found.group(1) if found else "?"
    return ask


@functools.lru_cache(None)
def has_module(name):
    """True if the environment has the module. Does not import it: some modules need a device."""
    if not os.path.exists(PYTHON):
        return False
    ask = f"import importlib.util as u, sys; sys.exit(u.find_spec({name!r}) is None)"
    return subprocess.run([PYTHON, "-c", ask], capture_output=True, check=False).returncode == 0


def module(name):
    return (lambda: has_module(name)), f"{name} (see tests/process/clients/install)"


def package_version(name):
    return said(PYTHON, "-c", f"import importlib.metadata as m; print(m.version({name!r}))")


def in_folder(path):
    return (lambda: bool(FOLDER) and os.path.exists(os.path.join(FOLDER, path))), \
        f"{path} (see tests/process/clients/install)"


def script(name, *arguments):
    return lambda folder: [[PYTHON, os.path.join(HERE, name), *arguments]]


def listed(name):
    """Returns the lines of a file in this folder, without comments."""
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        return [line.strip() for line in file if line.strip() and not line.startswith("#")]


# ---- the clients

def ffmpeg(filters, frames=25):
    return lambda folder: [["ffmpeg", "-nostdin", "-v", "error", "-f", "lavfi", "-i",
                            f"testsrc2=size=640x360:rate=25:duration={frames / 25}", "-vf", filters,
                            "-f", "framemd5", "-"]]


def round_trip(filters):
    """Compares frames that went to the device and back with frames that did not, by their digests."""
    def commands(folder):
        return ffmpeg(filters)(folder) + ffmpeg("format=yuv420p")(folder)

    def judge(outcome):
        there, plain = ([line for line in text.decode().splitlines() if not line.startswith("#")]
                        for text in outcome.outputs)
        return [f"{len(there)} frames, as they were: {there == plain}", *there]
    return Case("round trip", commands, judge)


FFMPEG = Client("ffmpeg", [
    Case("frames", ffmpeg("format=yuv420p,hwupload_cuda,hwdownload,format=yuv420p", frames=50)),
    round_trip("format=yuv420p,hwupload_cuda,hwdownload,format=yuv420p"),
    # Kernels do not compute here, so frames hold any content.  Only their number counts.
    Case("filters", lambda folder: [
        *ffmpeg("hwupload_cuda,scale_cuda=320:180,hwdownload,format=yuv420p")(folder),
        *ffmpeg("hwupload_cuda,yadif_cuda,hwdownload,format=yuv420p")(folder)],
         lambda outcome: [f"{text.count(b'0, ')} frames" for text in outcome.outputs]),
], [(program("ffmpeg"), "ffmpeg")], said("ffmpeg", "-version"))


def gstreamer(*middle):
    # The bytes go to a file, because the launcher itself prints to stdout.
    return ["gst-launch-1.0", "-q", "videotestsrc", "num-buffers=30", "!",
            "video/x-raw,format=I420,width=640,height=360", "!", *middle, "filesink",
            "location=/dev/stdout"]


def same_bytes(outcome):
    first, second = outcome.outputs
    return [f"{len(first)} bytes, as they were: {first == second}", hashlib.md5(first).hexdigest()]


GSTREAMER = Client("gstreamer", [
    Case("round trip", lambda folder: [
        gstreamer("cudaupload", "!", "video/x-raw(memory:CUDAMemory)", "!", "cudadownload", "!",
                  "video/x-raw", "!"), gstreamer()], same_bytes),
], [(program("gst-launch-1.0"), "gst-launch-1.0 (gstreamer1.0-tools)"),
    (lambda: glob.glob("/usr/lib/*/gstreamer-1.0/libgstnvcodec.so"),
     "its CUDA plugin (gstreamer1.0-plugins-bad)")], said("gst-launch-1.0", "--version",
                                                               pattern=r"version (\S+)"),
    environment={"GST_REGISTRY_FORK": "no"})

CUDA_BINDINGS = Client("cuda-bindings", [Case("driver API", script("use_cuda_bindings.py"))],
                       [module("cuda.bindings")], package_version("cuda-bindings"))

CUDA_CORE = Client("cuda-core", [Case("buffers, graphs", script("use_cuda_core.py"))],
                   [module("cuda.core")], package_version("cuda-core"))

TINYGRAD = Client("tinygrad", [Case("buffers", script("use_tinygrad.py"))], [module("tinygrad")],
                  package_version("tinygrad"))

# Its runner of tests; the processes of the tests of IPC get more than their four seconds to start.
NUMBA_RUNNER = '''
import sys
import numba.cuda.tests.cudapy.test_ipc as ipc
from numba.testing._runtests import _main
ipc.FUTURE_TIMEOUT = 60
sys.exit(not _main(["numba.runtests", "-v", *sys.argv[1:]]))
'''


NUMBA = Client("numba-cuda", [
    Case("its own tests", lambda folder: [
        [PYTHON, "-c", NUMBA_RUNNER, *(f"numba.cuda.tests.{name}" for name in listed("numba.txt"))]],
         UNITTEST),
], [module("numba_cuda"), module("filecheck")], package_version("numba-cuda"))

PYCUDA = Client("pycuda", [
    Case("its own tests", lambda folder: [
        [PYTHON, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-rA", "--tb=line",
         *listed("pycuda.txt")]], PYTEST, os.path.join(FOLDER, "pycuda", "test")),
], [module("pycuda"), module("pytest"), in_folder("pycuda/test/test_driver.py")],
    package_version("pycuda"))


# ---- UCX: its own programs, with the stand-in as CUDA runtime

def ucx_tree(folder):
    """Links the files of the wheel, so that their CUDA runtime can be replaced."""
    place = glob.glob(os.path.join(FOLDER, "lib", "python3*", "site-packages"))[0]
    to = os.path.join(folder, "ucx")
    if not os.path.exists(to):
        for part in ("libucx", "libucx_cu12.libs"):
            shutil.copytree(os.path.join(place, part), os.path.join(to, part), symlinks=True,
                            ignore=shutil.ignore_patterns("*.a", "include", "share", "cmake"))
        for runtime in glob.glob(os.path.join(to, "libucx_cu12.libs", "libcudart*")):
            os.remove(runtime)
            os.symlink(os.path.join(os.environ["AC_SIM_DIR"], "libcudart.so.12"), runtime)
    return os.path.join(to, "libucx")


def listens(port):
    """Returns a shell command that tests for a listening process, not for an ended connection."""
    return f"grep -qiE ':{port:04x} [0-9a-f]+:0000 0a ' /proc/net/tcp /proc/net/tcp6"


def ucx(test, *arguments):
    """Runs a server, and a client that waits until the server listens."""
    def commands(folder):
        root = ucx_tree(folder)
        port = 20000 + (os.getpid() * 131 + hash(test)) % 10000
        base = [os.path.join(root, "bin", "ucx_perftest"), "-p", str(port), "-t", test, "-n", "50",
                "-w", "5", *arguments]
        prefix = ["env", f"LD_LIBRARY_PATH={os.environ['AC_SIM_DIR']}:{os.environ['AC_STANDINS']}:"
                  + os.path.join(root, "lib")]
        wait = f"for i in $(seq 1000); do {listens(port)} && break; sleep 0.1; done; exec \"$@\""
        return [prefix + base,
                ["sh", "-c", wait, "sh", *prefix, *base[:1], "127.0.0.1", *base[1:]]]
    return Case(" ".join((test, *arguments)), commands, finished)


UCX = Client("ucx", [
    ucx(test, "-m", "cuda", "-s", size)
    for test, size in (("tag_bw", "65536"), ("ucp_put_lat", "4096"), ("ucp_get", "1000000"),
                       ("stream_bw", "8"), ("ucp_am_bw", "65536"))
], [module("libucx")], package_version("libucx-cu12"))

CLIENTS = {client.name: client for client in (FFMPEG, GSTREAMER, CUDA_BINDINGS, CUDA_CORE, NUMBA,
                                              PYCUDA, TINYGRAD, UCX)}
TINYGRAD.environment["DEV"] = "CUDA"
