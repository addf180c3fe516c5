#!/usr/bin/env python3
"""Tests others.py with shell scripts as the programs, which fail as the variable FAKE demands.

usage: check_others.py"""
import json
import os
import stat
import subprocess
import sys
import tempfile

OTHERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "others.py")
# This script replaces server, client and the programs of nccl-tests.
FAKE = """#!/bin/sh
echo "$0 $*" "${LD_PRELOAD:+under the library}"
case "$FAKE" in
always) exit 3;;
library) test -z "$LD_PRELOAD" || exit 4;;
hang) test -z "$LD_PRELOAD" || exec /bin/sleep 30;;
esac
"""


def run(folder, what, fake, seconds="20"):
    env = dict(os.environ, PATH=folder, FAKE=fake, QUALIFY_SECONDS=seconds,
               QUALIFY_LIBRARY=os.environ["FAKE_LIBRARY"])
    done = subprocess.run([sys.executable, OTHERS, what], env=env, capture_output=True, text=True,
                          check=False, timeout=60)
    results = {json.loads(line)["result"] for line in done.stdout.splitlines()}
    return done.returncode, results


def main():
    wrong = []

    def expect(what, got, wanted):
        if got != wanted:
            wrong.append("%s: %s, not %s" % (what, got, wanted))

    with tempfile.TemporaryDirectory() as folder:
        expect("nothing installed", run(folder, "ucx", "")[0], 77)
        for name in ("ucx_perftest", "all_reduce_perf", "alltoall_perf", "sendrecv_perf"):
            path = os.path.join(folder, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write(FAKE)
            os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
        for what in ("ucx", "nccl"):
            expect(what, run(folder, what, ""), (0, {"pass"}))
            expect(what + " that fails", run(folder, what, "always"), (0, {"skip"}))
            expect(what + " that fails under the library", run(folder, what, "library"),
                   (1, {"fail"}))
        expect("one that hangs", run(folder, "nccl", "hang", "3"), (1, {"fail"}))
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
