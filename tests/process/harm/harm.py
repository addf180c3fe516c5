"""1,000 shell commands behave byte for byte the same with the library preloaded.

Each is run bare and preloaded in the same folder with the same environment: stdout, stderr and
exit status must be equal, the folder and the folder of live pages as they were.  The commands are
templates with arguments from a seeded generator: the same ones in every run.

usage: harm.py LIBRARY [LAST-NUMBER]"""

import concurrent.futures
import os
import random
import shutil
import subprocess
import sys
import tempfile

COMMANDS = 1000
WORKERS = 2
LIMIT = 240  # seconds until a command that hangs is ended

# (weight, template).  {n} a small number, {N} a large one, {w} a word, {f} a file of the folder,
# {s} an exit status.  Nothing that names a process, a time or LD_PRELOAD.
SHELL = [
    (6, "ls"), (4, "ls -la {f}"), (4, "ls -R . /nonexistent-{w}"), (3, "cat {f}"),
    (3, "cat /nonexistent-{w}"), (4, "echo {w} {n}"), (2, "printf '%s-%d\\n' {w} {n}"),
    (4, "grep -n {w} {f}"), (3, "grep -c a *.txt | sort"), (2, "grep {w} < /dev/null"),
    (3, "awk '{{ s += length($0) }} END {{ print s * {n} }}' {f}"),
    (3, "sort {f} | uniq -c | sort -rn | head -{n}"), (2, "seq {N} | sort -rn | tail -{n}"),
    (2, "seq {N} | md5sum"), (2, "head -c {N} /dev/zero | od -c | tail -{n}"),
    (3, "find . -name '*{n}*' | sort"), (2, "find . -type f -exec wc -c {{}} + | sort"),
    (2, "find . -print0 | xargs -0 -n {n} echo | sort"), (2, "tr a-z A-Z < {f}"),
    (3, "sed 's/{w}/<&>/g' {f}"), (2, "cut -d' ' -f1 {f} | paste -s -"),
    (2, "env | grep -v ^LD_ | sort"), (2, "env -i A={w} env"), (2, "env A={n} sh -c 'echo $A'"),
    (2, "tar cf - *.txt | tar tvf -"), (2, "tar cf {w}.tar {f}; tar tf {w}.tar; rm {w}.tar"),
    (2, "gzip -nc {f} | gunzip | cmp - {f}"), (2, "cp {f} {w}.copy; cmp {f} {w}.copy; rm {w}.copy"),
    (3, "exit {s}"), (3, "false; echo $?"), (3, "true && exit {s} || exit 1"),
    (3, "(echo {w}; exit {s}); echo $?"), (3, "(cd /; pwd; (echo $BASH_SUBSHELL))"),
    (3, "x=$(echo {w} | rev); echo $x$x"), (2, "echo {w} | (read a; echo \"<$a>\")"),
    (3, "echo {w} & wait; echo done"), (2, "(exit {s}) & wait $!; echo $?"),
    (2, "for i in 1 2 3; do (exit $i) & p=$!; wait $p; echo $?; done"),
    (2, "kill -TERM $BASHPID"), (1, "kill -KILL $BASHPID"), (2, "kill -USR2 $BASHPID"),
    (2, "trap 'echo caught' USR2; kill -USR2 $BASHPID; echo after"),
    (2, "trap 'echo leaving {w}' EXIT; exit {s}"), (1, "ulimit -c 0; kill -ABRT $BASHPID"),
    (1, "{{ bash -c 'ulimit -c 0; kill -SEGV $$'; }} 2>/dev/null; echo $?"),
    (1, "yes {w} | head -n {N} | wc -c"), (1, "yes | head -n {n}; echo ${{PIPESTATUS[@]}}"),
    (2, "cat <<END\n{w} {n}\n$(seq {n})\nEND"), (2, "cat <<< '{w}'"),
    (2, "diff <(seq {n}) <(seq 3)"), (1, "seq {N}"), (2, "echo {w} >&2; exit {s}"),
    (2, "nonexistent-{w} {n}"), (1, "/dev/null"), (2, "exec echo {w}"), (2, "exec 3<{f}; cat <&3"),
    (1, "exec 2>&-; ls /nonexistent-{w}; echo $?"), (1, "exec >&-; echo {w}; echo $? >&2"),
    (1, "exec <&-; cat; echo $?"), (2, "ls /proc/self/fd"), (2, "grep Threads /proc/self/status"),
    (2, "while read a b; do [ $a = Threads: ] && echo $b; done < /proc/$$/status"),
    (2, "git --version"), (1, "git -C / status"), (1, "git hash-object {f}"),
    (1, "timeout 0.02 sleep 5; echo $?"), (1, "sh -c 'sh -c \"sh -c \\\"exit {s}\\\"\"'; echo $?"),
    (2, "test -f {f} -a {n} -lt 5; echo $?"), (2, "expr {n} \\* {n} + 1"), (1, "date -d @{N} -u"),
    (1, "stat -c '%s %a %F' {f}"), (1, "dd if={f} bs=1 count={n} status=none"),
    (1, "tee {w}.tee < {f} | wc -l; rm {w}.tee"), (1, "mktemp -u {w}.XXXX | wc -c"),
    (1, "mkfifo {w}.p; cat {w}.p & echo {n} > {w}.p; wait; rm {w}.p"),
    (1, "set -e; false; echo never"), (1, "set -u; echo $unset_{w}"), (1, "if then {w}"),
]
PYTHON = [
    (4, "print({n} * '{w}')"), (2, "import sys; sys.exit({s})"), (2, "raise ValueError('{w}')"),
    (2, "import os; os._exit({s})"), (2, "import os; print(sorted(os.listdir('.')))"),
    (2, "import threading as t; x = t.Thread(target=print, args=('{w}',)); x.start(); x.join()"),
    (3, "print([l for l in open('/proc/self/status') if l.startswith('Threads')])"),
    (2, "import subprocess as s; print(s.run(['sh', '-c', 'echo {w}; exit {s}'],"
        " capture_output=True))"),
    (2, "import os\nif os.fork() == 0: print('{w}', flush=True); os._exit({s})\n"
        "print(os.WEXITSTATUS(os.wait()[1]))"),
    (2, "import ctypes; print(ctypes.CDLL(None).abs(-{n}))"),
    (1, "import ctypes; print(hasattr(ctypes.CDLL(None), 'none_{w}'))"),
    (2, "import ctypes\ntry: ctypes.CDLL('lib{w}.so')\nexcept OSError as e: print(e)"),
    (1, "import os, signal; os.kill(os.getpid(), signal.SIGUSR2)"),
    (1, "import signal; print(signal.getsignal(signal.SIGUSR2))"),
    (1, "import atexit; atexit.register(print, '{w}')"), (1, "import json; print(json.dumps({n}))"),
    (1, "import math, decimal, hashlib, sqlite3; print(hashlib.md5(b'{w}').hexdigest())"),
    (1, "print(len(open('{f}').read()), file=__import__('sys').stderr)"), (1, "syntax error {w}"),
]
WORDS = ["alpha", "beta", "gamma", "delta", "epsilon zeta", "eta", "theta", "iota"]
FILES = ["one.txt", "two.txt", "three.txt", "sub/four.txt"]


def generate():
    """Different ones, as long as a template has any left."""
    choose = random.Random(20240501)
    result, seen = [], set()
    while len(result) < COMMANDS:
        python = len(result) % 8 == 7  # every eighth: they take longest
        table = PYTHON if python else SHELL
        for _ in range(20):
            template = choose.choices([t for _, t in table], [w for w, _ in table])[0]
            text = template.format(n=choose.randint(1, 30), N=choose.randint(1000, 20000),
                                   w=choose.choice(WORDS).replace(" ", "-" if python else "_"),
                                   f=choose.choice(FILES), s=choose.randint(0, 255))
            if text not in seen:
                break
        seen.add(text)
        result.append([sys.executable, "-c", text] if python else ["/bin/bash", "-c", text])
    return result


def fill(folder):
    os.makedirs(os.path.join(folder, "sub"))
    choose = random.Random(7)
    for name in FILES:
        with open(os.path.join(folder, name), "w") as file:
            for _ in range(40):
                file.write(" ".join(choose.choices(WORDS, k=4)) + "\n")


def tree(folder):
    return sorted((base, sorted(folders), sorted(files))
                  for base, folders, files in os.walk(folder))


class Runner:
    def __init__(self, library, root, live):
        self.library = library
        self.root = root
        self.live = live
        self.folders = []
        for i in range(WORKERS):
            folder = os.path.join(root, f"work{i}")
            fill(folder)
            self.folders.append((folder, tree(folder)))
        self.base = {k: v for k, v in os.environ.items() if not k.startswith(("LD_", "ACCEL_"))}
        self.base.update(ACCEL_LIVE_DIR=live, LC_ALL="C", PYTHONDONTWRITEBYTECODE="1",
                         GIT_CONFIG_NOSYSTEM="1", _="x")

    def run(self, command, folder, preload):
        env = dict(self.base, LD_PRELOAD=self.library) if preload else self.base
        done = subprocess.run(command, env=env, cwd=folder, stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=LIMIT, check=False)
        return done.returncode, done.stdout, done.stderr

    def compare(self, number, command):
        folder, before = self.folders[number % WORKERS]
        bare = self.run(command, folder, False)
        preloaded = self.run(command, folder, True)
        problems = []
        for what, a, b in zip(("status", "stdout", "stderr"), bare, preloaded):
            if a != b:
                problems.append(f"{what}: bare {a!r:.300}, preloaded {b!r:.300}")
        if tree(folder) != before:
            problems.append(f"the folder is now {tree(folder)}")
        return problems


def main():
    library = sys.argv[1]
    last = int(sys.argv[2]) if len(sys.argv) > 2 else COMMANDS
    root = os.path.realpath(tempfile.mkdtemp(prefix="accelcache-harm-"))
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else root
    live = tempfile.mkdtemp(prefix="harm-", dir=shared)
    bad = 0
    try:
        commands = generate()[:last]
        runner = Runner(library, root, live)

        def share(worker):
            return [(i, runner.compare(i, commands[i]))
                    for i in range(worker, len(commands), WORKERS)]

        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            for results in pool.map(share, range(WORKERS)):
                for i, problems in results:
                    if problems:
                        bad += 1
                        print(f"{i}: {commands[i][2]!r}\n    " + "\n    ".join(problems))
        left = os.listdir(live)
        if left:
            print(f"live pages were left: {left}")
            bad += 1
    finally:
        shutil.rmtree(root, True)
        shutil.rmtree(live, True)
    print(f"{len(commands)} commands, {len(set(map(tuple, commands)))} different, {bad} differ")
    return 1 if bad or len(commands) != last else 0


if __name__ == "__main__":
    sys.exit(main())
