#!/usr/bin/env python3
"""Calls every row of reference.py in C and in Python, and compares the answers.

usage: run_reference.py LIBRARY PACKAGES

A row also fails if it did not call the functions that it names.
"""
import contextlib
import ctypes
import functools
import json
import os
import re
import subprocess
import sys
import types

HERE = os.path.dirname(os.path.abspath(__file__))


class World:
    """The argument of every row.  a: the package; l: its ctypes declarations; stream: a stream of device 0."""

    OUT = object()  # an argument that out() replaces

    def __init__(self, accelcache):
        self.a, self.l = accelcache, accelcache._library
        self.called = set()
        accelcache.set_device(0)
        handle = ctypes.c_void_p()
        if ctypes.CDLL("libcuda.so.1").cuStreamCreate(ctypes.byref(handle), 1):
            sys.exit("no stream")
        self.stream = accelcache.Stream(handle.value, 0)

    def c(self, name, *arguments):
        """Calls a C function and returns its result."""
        self.called.add(name)
        return getattr(self.l.lib(), name)(*arguments)

    def ok(self, name, *arguments):
        status = self.c(name, *arguments)
        if status:
            raise AssertionError(f"{name}: status {status}")

    def out(self, kind, name, *arguments):
        """Calls a C function and returns the value that it writes to OUT."""
        value = kind()
        self.ok(name, *(ctypes.byref(value) if one is self.OUT else one for one in arguments))
        return value

    def pair(self, name):
        """Returns two sizes of device 0."""
        first, second = ctypes.c_size_t(), ctypes.c_size_t()
        self.ok(name, 0, ctypes.byref(first), ctypes.byref(second))
        return first.value, second.value

    def status(self, function, *arguments):
        """Calls a Python function and returns the status of its error, 0 for none."""
        try:
            function(*arguments)
        except self.a.Error as error:
            return error.status
        return 0

    def function(self, name, result, *arguments):
        """Returns a C function without declared types in the package."""
        self.called.add(name)
        return ctypes.CFUNCTYPE(result, *arguments)((name, self.l.lib()))

    def address(self, name):
        self.called.add(name)
        return ctypes.cast(getattr(self.l.lib(), name), ctypes.c_void_p).value

    def c_stats(self, device):
        """Returns accel_device_stats_t as a dictionary, by the members of the header."""
        stat = "current", "peak", "allocated", "freed"
        kinds = {"int64_t": lambda: take(1)[0],
                 "accel_stat_t": lambda: dict(zip(stat, take(4))),
                 "accel_pool_stat_t": lambda: {pool: dict(zip(stat, take(4))) for pool in (
                     "all", "small_pool", "large_pool")}}
        words = (ctypes.c_int64 * 512)(512 * 8)
        self.called.add("accel_device_stats_t")
        library = ctypes.CDLL(self.a.library_path())
        self.called.add("accel_get_device_stats")
        if library.accel_get_device_stats(device, words):
            raise AssertionError("accel_get_device_stats")
        rest = iter(words)
        next(rest)

        def take(count):
            return [next(rest) for _ in range(count)]
        return {name: kinds[kind]() for kind, name in members()}

    def c_snapshot(self):
        text = self.out(ctypes.c_void_p, "accel_snapshot", self.l.PoolId(), self.OUT)
        whole = json.loads(ctypes.string_at(text))
        self.l.free_text(text)
        return whole

    @contextlib.contextmanager
    def stand_in(self, name, **members):
        module = types.ModuleType(name)
        module.__dict__.update(members)
        sys.modules[name] = module
        try:
            yield
        finally:
            del sys.modules[name]


@functools.lru_cache(None)
def members():
    """Returns (type, name) of each member of accel_device_stats_t."""
    header = os.path.join(HERE, "..", "..", "..", "include", "accelcache.h")
    with open(header, encoding="utf-8") as file:
        text = file.read()
    text = text[text.index("begin:stats"):text.index("end:stats")]
    return re.findall(r"^ +(\w+) (\w+);$", text, re.M)


def codes(accelcache):
    """Returns the code of each public function and method, with its name."""
    found = {}

    def add(name, function):
        function = getattr(function, "__wrapped__", function)  # of a context manager
        if hasattr(function, "__code__"):
            found[function.__code__] = name
    for name in accelcache.__all__:
        public = getattr(accelcache, name)
        add(name, public)
        for member, function in vars(public).items() if isinstance(public, type) else ():
            add(name if member == "__init__" else f"{name}.{member}",
                function.fget if isinstance(function, property) else function)
    return found


def answers(row, world, known):
    """Calls the row and returns its faults as a list."""
    called = set()
    world.called.clear()
    world.a.set_device(0)
    world.a.set_stream(None, 0)
    sys.setprofile(lambda frame, event, _: event == "call" and called.add(known.get(frame.f_code)))
    try:
        c, python = row.call(world)
    except Exception as error:
        return [f"{error!r}"]
    finally:
        sys.setprofile(None)
    wrong = []
    if c != python:
        wrong.append(f"{c!r} in C, {python!r} in Python")
    if re.match(r"\w+", row.c).group() not in world.called:
        wrong.append(f"{row.c} was not called")
    if re.match(r"[\w.]+", row.python).group() not in called:
        wrong.append(f"{row.python} was not called in Python")
    return wrong


def tried(row):
    """Returns true if the suite that the row names mentions the C function or structure."""
    name = re.match(r"\w+", row.c).group()
    with open(os.path.join(HERE, row.suite), encoding="utf-8") as file:
        return re.search(rf"\b{name}\b", file.read())


def main(library, packages):
    if "AC_REFERENCE_CHILD" not in os.environ:
        environment = dict(os.environ, AC_REFERENCE_CHILD="1", PYTHONDONTWRITEBYTECODE="1",
                           LD_PRELOAD=library)
        return subprocess.run([sys.executable, *sys.argv], env=environment, check=False).returncode
    sys.path[:0] = [packages, HERE]
    import accelcache
    import reference
    world, known, faults, count = World(accelcache), codes(accelcache), [], 0
    # Blocks of both pools, and a request that fails. Without them most figures are 0.
    held = [accelcache.allocate(size) for size in (1000, 3 << 20, 40 << 20)]
    world.status(accelcache.allocate, 1 << 40)
    for title, rows in reference.GROUPS:
        for row in rows:
            count += 1
            name = f"{title}: {row.reference}"
            faults += [f"{name}: {what}" for what in answers(row, world, known)]
            if not tried(row):
                faults.append(f"{name}: {row.suite} does not call {row.c}")
    del held
    accelcache.check()
    print("\n".join(faults + [f"{count} rows"]))
    return 1 if faults or count < 90 else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
