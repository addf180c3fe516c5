"""Source lines and inlined functions of call sites (lines.cc, lines.f90), and files that changed after the run."""


import http.server
import re
import shutil
import sys
import threading

from host import *

HERE = os.path.dirname(os.path.abspath(__file__))
CXX = shutil.which(os.environ.get("CXX", "c++"))
FORTRAN = shutil.which("gfortran")
DEBUG = "/usr/lib/debug/.build-id"


def line(source, mark):
    """Returns the number of the line with the mark."""
    with open(os.path.join(HERE, source), encoding="utf-8") as file:
        return next(i for i, text in enumerate(file, 1) if re.search(rf"[/!] line: {mark}$", text.rstrip()))


def place(mark, source="lines.cc"):
    return f"({source}:{line(source, mark)})"


TENSOR = f"kv::Tensor::Tensor {place('tensor')} < "
APPEND = "kv::Cache::append"


class LinesTest(HostTest):
    def compile(self, name, *flags, compiler=CXX, source="lines.cc"):
        path = os.path.join(self.work, name)
        subprocess.run([compiler, *flags, "-fno-optimize-sibling-calls", "-Wl,--build-id", os.path.join(HERE, source),
                        "-o", path, f"-L{SIM_DIR}", "-lcudart", "-ldl"], check=True)
        return path

    def tool(self, *command):
        subprocess.run(command, check=True, cwd=self.work)

    def record(self, path, *arguments, conf="stacks:all,history:100,dump:d.json"):
        self.run_program(path, *arguments, env=self.environment(conf))

    def command(self, *arguments, **env):
        env = self.environment(LD_PRELOAD=None, **env)
        done = subprocess.run([COMMAND, *arguments], env=env, cwd=self.work, text=True, capture_output=True,
                              timeout=LIMIT, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def sites(self, source="d.json", said="", **env):
        """Returns the names of the call sites, the largest first.  `said` is what the command prints on stderr."""
        out, err = self.command("stat", source, **env)
        self.assertRegex(err, f"^{said}$")
        table = out[out.index("at the end, by call site"):].split("\n\n", maxsplit=1)[0]
        return re.findall(r"(?m)^ +[\d.]+ \w+ +[\d.]+ % +\d+ blocks? +(.*)$", table)


class Code(LinesTest):
    def test_inlined(self):
        """At -O2 the compiler inlines the constructor and make, and the runtime's wrapper too."""
        path = self.compile("lines", "-O2", "-g")
        self.record(path)
        site, new = self.sites()
        self.assertEqual(site, f"{TENSOR}kv::make < {APPEND}")
        self.assertEqual(new, f"take_new {place('new')} < main")
        out, _ = self.command("export", "-f", "folded", "d.json")
        self.assertIn(f"device 0;main {place('main')};{APPEND}(unsigned long) {place('append')};kv::make(unsigned long) "
                      f"{place('make')};kv::Tensor::Tensor(unsigned long) {place('tensor')} 4000\n", out)

    def test_not_inlined(self):
        """At -O0 the template and operator new are functions of the program. Call sites skip them."""
        self.record(self.compile("lines", "-O0", "-g"))
        self.assertEqual(self.sites(), [f"{TENSOR}kv::make < {APPEND}", f"take_new {place('new')} < main"])

    def test_compilers(self):
        """clang writes no table of addresses and nests functions in namespaces. DWARF 4, split, compressed."""
        for compiler, flags in ((shutil.which("clang++"), ("-O2",)), (shutil.which("clang++"), ("-O0",)),
                                (CXX, ("-O2", "-gdwarf-4")), (CXX, ("-O2", "-gsplit-dwarf")), (CXX, ("-O2", "-gz"))):
            if not compiler:
                continue
            with self.subTest(compiler=compiler, flags=flags):
                self.record(self.compile("lines", "-g", *flags, compiler=compiler))
                self.assertEqual(self.sites(), [f"{TENSOR}kv::make < {APPEND}", f"take_new {place('new')} < main"])

    def test_trace_and_where_and_snapshot(self):
        """All readers of a recording name the same functions and lines."""
        self.record(self.compile("lines", "-O2", "-g"), conf="stacks:all,history:100,dump:d.json,trace:t.trace")
        folded = [self.command("export", "-f", "folded", name)[0] for name in ("t.trace", "d.json")]
        self.assertIn(f"Tensor(unsigned long) {place('tensor')} 4", folded[0])
        self.assertEqual(re.sub(r" \d+$", "", folded[0], flags=re.M), re.sub(r" \d+$", "", folded[1], flags=re.M))
        self.command("export", "-f", "torch-snapshot", "d.json", "-o", "s.pickle")
        dump = self.read_dump("d.json")
        address = next(e[2] for e in dump["history"][0]["event"] if e[0] == "alloc")
        out, _ = self.command("where", hex(address), "s.pickle")
        self.assertIn(f"bytes asked for by {TENSOR}", " ".join(out.split()))
        shown = json.loads(self.command("where", "--json", hex(address), "d.json")[0])
        frames = [f for f in shown["alloc"]["frames"] if "(lines.cc:" in f]
        self.assertEqual([re.sub(r"\(unsigned long\)", "", f) for f in frames[-4:]][0::3],
                         [TENSOR.removesuffix(" < "), f"main {place('main')}"])

    def test_plugin(self):
        """The plugin's code is unloaded before the dump is written."""
        plugin = self.compile("plugin.so", "-O2", "-g", "-shared", "-fPIC", "-DLINES_PLUGIN")
        self.record(self.compile("lines", "-O1", "-g"), plugin)
        out, _ = self.command("export", "-f", "folded", "d.json")
        self.assertRegex(out, rf"(?m);main \(lines\.cc:\d+\);plugin_take {re.escape(place('plugin'))};"
                              rf"kv::Cache::append\S+ \w+\) {re.escape(place('append'))};.* 2000$")

    @unittest.skipIf(not FORTRAN, "there is no gfortran")
    def test_fortran(self):
        self.record(self.compile("solver", "-O0", "-g", f"-J{self.work}", compiler=FORTRAN, source="lines.f90"))
        site, = self.sites()
        self.assertEqual(site.split(" < ")[0], f"make_grid {place('grid', 'lines.f90')}")
        self.assertEqual(site.split(" < ")[1], "solver")

    def test_without_the_library(self):
        """Functions come from the symbol tables, and one line gives the reason for missing source lines."""
        self.record(self.compile("lines", "-O0", "-g"))
        os.mkdir(os.path.join(self.work, "none"))
        with open(os.path.join(self.work, "none", "libdw.so.1"), "w", encoding="utf-8") as file:
            file.write("no library")
        sites = self.sites(said=r"accelcache stat: source lines are not shown: .*libdw.*\n",
                           LD_LIBRARY_PATH=f"{self.work}/none")
        self.assertRegex(sites[0], rf"^kv::Tensor::Tensor \(lines\+0x[0-9a-f]+\) < kv::make < {APPEND}$")


class Files(LinesTest):
    """A stripped file, a moved file, and a rebuilt file."""

    def setUp(self):
        super().setUp()
        self.path = self.compile("lines", "-O2", "-g")
        self.record(self.path)
        self.named = self.sites()
        self.assertTrue(self.named[0].startswith(TENSOR), self.named)
        notes = subprocess.run(["readelf", "-n", self.path], check=True, capture_output=True, text=True).stdout
        self.id = re.search(r"Build ID: ([0-9a-f]+)", notes)[1]

    def nameless(self, **env):
        for site in self.sites(**env):
            self.assertRegex(site, r"^lines\+0x[0-9a-f]+( < lines\+0x[0-9a-f]+)+$")

    def test_stripped(self):
        self.tool("objcopy", "--only-keep-debug", "lines", "lines.dbg")
        self.tool("strip", "lines")
        self.nameless()
        self.tool("objcopy", "--add-gnu-debuglink=lines.dbg", "lines")
        self.assertEqual(self.sites(), self.named)

    def test_stripped_of_lines_alone(self):
        self.tool("strip", "-g", "lines")
        self.assertRegex(self.sites()[0], r"^kv::Cache::append \(lines\+0x[0-9a-f]+\) < main$")

    def test_moved(self):
        os.rename(self.path, os.path.join(self.work, "elsewhere"))
        self.nameless()

    @unittest.skipUnless(os.access("/usr/lib", os.W_OK), "only root installs debug files")
    def test_moved_with_its_debug_file(self):
        folder = os.path.join(DEBUG, self.id[:2])
        made = [f for f in ("/usr/lib/debug", DEBUG, folder) if not os.path.exists(f)]
        os.makedirs(folder, exist_ok=True)
        for made_now in made:
            self.addCleanup(os.rmdir, made_now)
        kept = os.path.join(folder, self.id[2:] + ".debug")
        self.tool("objcopy", "--only-keep-debug", "lines", kept)
        self.addCleanup(os.remove, kept)
        for change in ("strip", "move", "replace"):
            with self.subTest(change=change):
                if change == "strip":
                    self.tool("strip", "lines")
                elif change == "move":
                    os.remove(self.path)
                else:
                    self.compile("lines", "-O0", "-g")
                self.assertEqual(self.sites(), self.named)

    def test_built_anew(self):
        """Lines of the rebuilt file would be wrong."""
        self.compile("lines", "-O1", "-g", "-DNEW", "-fno-inline")
        self.nameless(said=rf"accelcache stat: {re.escape(self.path)} was rebuilt since \(build ID "
                           r"[0-9a-f]{12}\.\. then, [0-9a-f]{12}\.\. now\): its functions stay without names; put "
                           r"the old file back to see them\n")

    def test_debuginfod(self):
        """The command asks a configured server for the debug information of this file, by its build ID."""
        self.tool("objcopy", "--only-keep-debug", "lines", "lines.kept")
        self.tool("strip", "lines")
        asked = []
        with open(os.path.join(self.work, "lines.kept"), "rb") as file:
            whole = file.read()
        wanted = f"/buildid/{self.id}/debuginfo"

        class Server(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                asked.append(self.path)
                self.send_response(200 if self.path == wanted else 404)
                body = whole if self.path == wanted else b""
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
        self.addCleanup(server.server_close)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.shutdown)
        env = {"DEBUGINFOD_CACHE_PATH": os.path.join(self.work, "cache"), "DEBUGINFOD_URLS": None}
        self.nameless(**env)
        self.assertEqual(asked, [])
        sites = self.sites(**{**env, "DEBUGINFOD_URLS": f"http://127.0.0.1:{server.server_port}"})
        if not asked:
            self.skipTest("libdw finds no libdebuginfod")
        self.assertEqual(sites, self.named)
        self.assertIn(wanted, asked)


if __name__ == "__main__":
    if not CXX or EMULATED or SANITIZED or not os.environ.get("AC_LIBDW"):
        print("it takes a compiler of C++, programs without sanitizers, and a command with libdw")
        sys.exit(77)
    unittest.main()
