#!/usr/bin/env python3
"""Runs the commands of a page for users.

usage: commands.py ROOT PAGE APP       runs each ```sh block of the page, one after another

The environment names AC_COMMAND, AC_LIBRARY and AC_SIM_DIR. The blocks run in one folder with the
files that the pages name: ./app, its dump, and recordings. A process runs that has control:true and
stands for PID 4711. Each command must end with status 0. NOT_HERE lists the commands that need a
network, root or an installation, each with the test that runs them. The command must know the
subcommands and options that the page names between ` `.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

COMMAND, LIBRARY, SIM = (os.environ[name] for name in ("AC_COMMAND", "AC_LIBRARY", "AC_SIM_DIR"))
BIN = os.path.dirname(COMMAND)

CHARTS = "/usr/share/javascript/dygraphs"  # without it `report` draws with an empty stand-in

NOT_HERE = [  # a pattern, and the file of the test that runs such commands
    (r"git clone|tools/quickstart|cmake |sudo cmake|cd build", "tests/repository/install/fresh"),
    (r"cc app\.c .*pkg-config", "tests/repository/install/consumer"),
    (r"cpack |\.\./\.\./tools/package/wheel", "tests/repository/install/package.py"),
    (r"sudo apt install", "tests/repository/install/package.py"),
    (r"accelcache run --sim --compare -- accelcache-demo", "tests/repository/install/package.py"),
]
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.M | re.S)
INLINE = re.compile(r"`(accelcache(?: [^`]*)?)`")


def blocks(text):
    """Yields the number of the first line and the text of each block of commands."""
    for block in BLOCK.finditer(text):
        yield text.count("\n", 0, block.start(1)) + 1, block.group(1)


def run_here(block):
    return "".join(line for line in block.splitlines(keepends=True)
                   if not any(re.match(pattern, line) for pattern, _ in NOT_HERE))


class Scene:
    """The folder in which the commands run, and the process that they observe."""

    def __init__(self, folder, app):
        self.folder = folder
        shutil.copy(app, self.path("app"))
        self.variables = {key: value for key, value in os.environ.items()
                          if key not in ("LD_PRELOAD", "ACCEL_ALLOC_CONF")}
        self.variables.update(PATH=BIN + os.pathsep + os.environ["PATH"], LD_LIBRARY_PATH=SIM,
                              ACCEL_CONF_FILE="none", ACCEL_SIM="clock:virtual", HOME=folder)
        for name in ("before", "after", "out/accelcache-1", "out/accelcache-2", "accelcache-4711"):
            os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
            self.shell(f"accelcache run --dump {name}.json -- ./app")
        for name in ("dygraph.min.js", "dygraph.min.css"):
            with open(self.path(name), "w", encoding="ascii") as file:
                file.write("/* nothing */\n")
        for name in ("before", "app"):
            self.shell(f"accelcache record -o {name}.trace -- ./app")
        self.process = subprocess.Popen(
            ["./app", "stay"], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**self.variables, "LD_PRELOAD": LIBRARY,
                 "ACCEL_ALLOC_CONF": "control:true,stacks:sampled,dump:4711.json"})
        self.address = self.process.stdout.readline().strip()
        for name in ("a", "b"):
            self.shell(f"accelcache ctl {self.process.pid} snapshot {name}.json")

    def path(self, name):
        return os.path.join(self.folder, name)

    def end(self):
        self.process.communicate(timeout=60)

    def shell(self, script):
        variables = dict(self.variables)
        if "oom_dump" in script:
            variables["APP_GREEDY"] = "1"
        done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", script], cwd=self.folder, text=True,
                              env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=200, check=False)
        if done.returncode:
            raise RuntimeError(f"ends with {done.returncode}:\n{script}\n{done.stdout[-3000:]}")

    def run(self, block):
        for told, here in (("/path/to/libaccelcache.so", LIBRARY), ("0x7f3c40000400", self.address),
                           ("/var/lib/node_exporter/textfile_collector", self.folder)):
            block = block.replace(told, here)
        if not os.path.isdir(CHARTS):
            block = block.replace("accelcache report ", "accelcache report --library . ")
        self.shell(re.sub(r"(?<![-\w.])(?:4711|PID)(?![-\w.])", str(self.process.pid), block))


def unknown(span):
    """Yields the words of `accelcache ...` that the command does not know."""
    words = span.split()[1:]
    if not words or not re.fullmatch(r"[a-z]+", words[0]):
        return
    mine = words[:words.index("--")] if "--" in words else words
    done = subprocess.run([COMMAND, words[0], "--help"], capture_output=True, text=True, check=False)
    if done.returncode:
        yield f"there is no subcommand {words[0]}"
    for option in mine[1:]:
        if option.startswith("-") and not re.search(re.escape(option.split("=")[0]) + r"\b", done.stdout):
            yield f"{words[0]} has no option {option}"


def main(root, page, app):
    with open(os.path.join(root, page), encoding="utf-8") as file:
        text = file.read()
    faults = [f"{path} runs commands of the pages and is not there" for _, path in NOT_HERE
              if not os.path.exists(os.path.join(root, path))]
    faults += [f"{page}: {span}: {fault}" for span in INLINE.findall(text) for fault in unknown(span)]
    ran = 0
    with tempfile.TemporaryDirectory(prefix="accelcache-pages-") as folder:
        scene = Scene(folder, app)
        for line, block in blocks(text):
            block = run_here(block)
            if not block.strip():
                continue
            try:
                scene.run(block)
                ran += 1
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                faults.append(f"{page}:{line}: {error}")
        scene.end()
    print("\n".join(faults), f"{ran} blocks of {page} ran", sep="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
