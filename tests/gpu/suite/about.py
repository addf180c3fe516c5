"""Describes a run: the machine, and the versions of the software.

No framework is started for this."""
import os
import platform
import re
import subprocess

MODULES = ("torch", "cupy", "jax", "jaxlib", "numba", "rmm", "numpy", "triton")


def first_line(command, timeout=20):
    """Returns the first line that a command prints; None if it is missing, fails or is too slow."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False,
                              stdin=subprocess.DEVNULL, timeout=timeout)
    except (OSError, subprocess.TimeoutExpired):
        return None
    rows = done.stdout.strip().splitlines()
    return rows[0] if done.returncode == 0 and rows else None


def field(path, key):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for row in file:
                name, _, value = row.partition("=" if "=" in row else ":")
                if name.strip() == key:
                    return value.strip().strip('"')
    except OSError:
        pass
    return None


def machine():
    memory = field("/proc/meminfo", "MemTotal")
    return {"cpu": field("/proc/cpuinfo", "model name"), "cores": os.cpu_count(),
            "memory_gib": round(int(memory.split()[0]) / 2**20, 1) if memory else None,
            "system": field("/etc/os-release", "PRETTY_NAME"), "kernel": platform.release(),
            "libc": " ".join(platform.libc_ver()), "arch": platform.machine()}


def python_modules(python):
    program = ("import importlib.metadata as m, platform\n"
               "print(platform.python_version(), end='')\n"
               "for d in m.distributions():\n"
               "    n = (d.metadata['Name'] or '').lower()\n"
               "    if any(n == w or n.startswith(w + '-cu') for w in %r):\n"
               "        print('|' + n + '=' + d.version, end='')" % (MODULES,))
    parts = (first_line([python, "-c", program]) or "").split("|")
    found = {"python": parts[0] or None}
    found.update(part.split("=", 1) for part in sorted(parts[1:]))
    return found


def runtime(build):
    """Returns the version in the name of the build's libcudart."""
    path = os.path.realpath(os.path.join(build, "tests", "gpu", "lib", "libcudart.so.13"))
    found = re.search(r"libcudart\.so\.([\d.]+)$", path)
    return found.group(1) if found and os.path.exists(path) else None


def source(top):
    """Returns the commit of the checkout or of the bundle."""
    try:
        with open(os.path.join(top, "SOURCE"), encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        pass
    commit = first_line(["git", "--no-optional-locks", "-C", top, "describe", "--always", "--dirty",
                         "--abbrev=12"])
    return commit or "unknown"


def versions(top, build, python, nvcc):
    found = {"accelcache": (first_line([os.path.join(build, "bin", "accelcache"), "--version"]) or
                            "").replace("accelcache ", ""),
             "source": source(top), "carried cudart": runtime(build)}
    if nvcc:
        try:
            text = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False,
                                  timeout=20).stdout
        except (OSError, subprocess.TimeoutExpired):
            text = ""
        release = re.search(r"release [\d.]+, V([\d.]+)", text)
        found["nvcc"] = release.group(1) if release else None
    found.update(python_modules(python))
    return {key: value for key, value in found.items() if value}
