"""Manual pages, and completion for bash, zsh and fish: they contain exactly the help texts' options."""

import glob
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import time
import unittest

import base


def pages():
    return sorted(glob.glob(os.path.join(base.SHARE, "man", "*", "*")))


class Pages(base.CommandTest):
    def run_tool(self, *words):
        """Runs a tool without the sanitizer's runtime, which would report errors of that tool."""
        return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=200, check=False,
                              env={**self.environment, "LC_ALL": "C.UTF-8", "MANWIDTH": "100",
                                   "LD_PRELOAD": ""})

    def shown(self, name):
        """Returns the text of a manual page with each run of blanks as one blank."""
        page = next(page for page in pages() if os.path.basename(page) == name)
        out = self.run_tool("man", "-l", page).stdout
        return " ".join(re.sub(r".\x08", "", out).split())

    def test_all_there(self):
        self.assertEqual([os.path.basename(page) for page in pages()],
                         ["accelcache-demo.1", "accelcache.1", "accelcache.h.3",
                          "accelcache_pools.h.3", "libaccelcache.7"])

    @unittest.skipUnless(shutil.which("man"), "needs man")
    def test_no_warnings(self):
        for page in pages():
            done = self.run_tool("man", "--warnings", "-E", "UTF-8", "-Tutf8", "-Z", "-l", page)
            warnings = [line for line in done.stdout.split("\n") if "warning" in line.lower()
                        and line.startswith(("<standard input>", "troff", "an.tmac", "man:"))]
            self.assertEqual((done.returncode, warnings), (0, []), page)

    @unittest.skipUnless(shutil.which("mandoc"), "needs mandoc")
    def test_mandoc_lint(self):
        for page in pages():
            done = self.run_tool("mandoc", "-T", "lint", "-W", "style", page)
            self.assertEqual((done.returncode, done.stdout), (0, ""), page)

    @unittest.skipUnless(shutil.which("man"), "needs man")
    def test_command_page(self):
        """The page has every subcommand, option and item of the help texts."""
        shown = self.shown("accelcache.1")
        listed = re.findall(r"(?m)^  ([a-z]+) +(\S.*)", self.expect(0, "--help").stdout)
        self.assertGreater(len(listed), 10)
        for name, summary in listed:
            self.assertIn(f"{name} {' '.join(summary.split())}", shown)
            for line in self.expect(0, name, "--help").stdout.split("\n"):
                for word in line.split()[:3]:
                    self.assertIn(word.replace("Usage:", ""), shown, (name, line))

    @unittest.skipUnless(shutil.which("man"), "needs man")
    def test_library_page(self):
        shown = self.shown("libaccelcache.7")
        rows = json.loads(self.expect(0, "config", "--json").stdout)["keys"]
        self.assertGreater(len(rows), 20)
        for row in rows:
            self.assertIn(row["key"], shown)
            if not row["foreign"]:
                self.assertIn(" ".join(row["doc"].split()), shown)
        for rows in json.loads(self.expect(0, "config", "--json",
                                                "--stats").stdout).values():
            for row in rows if isinstance(rows, list) else ():
                self.assertIn(row["name"], shown)

    @unittest.skipUnless(shutil.which("man"), "needs man")
    def test_header_page(self):
        for name in ("accelcache.h", "accelcache_pools.h"):
            shown = self.shown(name + ".3")
            with open(os.path.join(os.path.dirname(__file__), "../../include", name),
                      encoding="utf-8") as file:
                header = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
            functions = re.findall(r"\baccel_\w+\([^;{]*\);", header)
            self.assertGreater(len(functions), 10)
            for function in functions:
                self.assertIn(" ".join(function.split()), shown)
            for error in re.findall(r"\bACCEL_ERROR_\w+", header):
                self.assertIn(error, shown)


class Shells(base.CommandTest):
    def options(self, name):
        """Returns the long options at the start of the items of a help text."""
        out = self.expect(0, name, "--help").stdout
        found = set()
        for line in re.findall(r"(?m)^  (-.*)", out):
            head = re.split(r"\s{2,}", line)[0]
            found |= {word for word in re.findall(r"(?<![\w-])--[a-z][a-z-]*", head)}
        return found

    def subcommands(self):
        named = re.findall(r"(?m)^  ([a-z]+) +\S", self.expect(0, "--help").stdout)
        self.assertIn("ps", named)
        return named

    def fish(self, line):
        script = os.path.join(base.SHARE, "completion", "accelcache.fish")
        done = subprocess.run(["fish", "--no-config", "-c", f"source {script}; complete -C {line!r}"],
                              stdout=subprocess.PIPE, text=True, check=True, timeout=200,
                              env={**self.environment, "HOME": self.folder})
        return {row.split("\t")[0] for row in done.stdout.split("\n") if row}

    def test_bash_subcommands(self):
        named = set(self.subcommands())
        self.assertEqual(self.complete(""), named | {"help", "--help", "--version"})
        self.assertEqual(self.complete("help", ""), named)

    def test_bash_options(self):
        """bash completes exactly the options that --help lists."""
        for name in self.subcommands():
            offered = {word for word in self.complete(name, "--") if word.startswith("--")}
            self.assertEqual(offered, self.options(name) | {"--help"}, name)

    def test_bash_values(self):
        for option in ("--warm-up", "--max-peak"):
            self.assertEqual(self.complete("run", option, ""), set())
        self.assertEqual(self.complete("top", "--sort", "r"), {"reserved", "rate"})
        self.assertEqual(self.complete("tune", "--objective", ""), {"memory", "time", "balanced"})
        self.assertEqual(self.complete("replay", "x.trace", "--streams", ""), {"real"})
        for option in ("-f", "--format"):
            self.assertIn("pprof", self.complete("export", option, ""))
        self.assertEqual(self.complete("config", "memory"), {"memory_limit"})
        self.assertEqual(self.complete("ctl", "4711", ""),
                         {"dump", "snapshot", "trim", "reset-peaks", "set", "history"})
        self.assertEqual(self.complete("nothing", ""), set())

    def test_bash_behind_a_program(self):
        """Words after the name of a program belong to that program."""
        here = self.write("a-file", "")
        self.environment["PWD"] = self.folder
        os.chdir(self.folder)
        for words in (("run", "prog", ""), ("run", "--conf", "x", "prog", ""),
                      ("run", "--", "prog", ""), ("stat", ""), ("run", "--dump", "")):
            self.assertIn(os.path.basename(here), self.complete(*words), words)
        self.assertIn("env", self.complete("run", "--conf", "x", "en"))
        self.assertNotIn("env", self.complete("run", "prog", "en"))
        self.assertEqual(self.complete("run", "prog", "--"), set())

    @unittest.skipUnless(shutil.which("fish"), "needs fish")
    def test_fish(self):
        self.assertLessEqual(set(self.subcommands()), self.fish("accelcache "))
        for name in ("run", "stat", "tune"):
            self.assertEqual(self.fish(f"accelcache {name} --"), self.options(name) | {"--help"})
        self.assertEqual(self.fish("accelcache top --sort r"), {"reserved", "rate"})

    @unittest.skipUnless(shutil.which("zsh"), "needs zsh")
    def test_zsh(self):
        """The test starts zsh on a terminal, because its completion works only there."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            os.execvpe("zsh", ["zsh", "-f", "-i"], {**self.environment, "HOME": self.folder,
                                                   "TERM": "dumb", "PS1": "> "})

        def answer(text, wanted):
            os.write(terminal, text.encode())
            out = b""
            end = time.monotonic() + 60
            while wanted not in out and time.monotonic() < end:
                if select.select([terminal], [], [], 0.2)[0]:
                    out += os.read(terminal, 65536)
            self.assertIn(wanted, out, text)

        try:
            answer(f"fpath=({base.SHARE}/completion $fpath); autoload -Uz compinit; compinit -u -D;"
                   " bindkey '^I' complete-word; print ready$((1+1))\n", b"ready2")
            for line, wanted in (("accelcache docto", b"doctor "),
                                 ("accelcache run --max-p", b"--max-peak "),
                                 ("accelcache top --sort fragm", b"fragmentation "),
                                 ("accelcache config memory_", b"memory_limit ")):
                answer(line + "\t", wanted)
                answer("\x15print empty$((1+1))\n", b"empty2")
        finally:
            os.close(terminal)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


if __name__ == "__main__":
    base.main()
