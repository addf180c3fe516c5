#!/usr/bin/env python3
"""Runs frameworks under the library on the simulated device, with their own caches and with the library's.

usage: frameworks.py NAME...      of FRAMEWORKS; exit status 77 if one is not installed (`install`)
       frameworks.py --table      the bytes that the library served each with, as Markdown

The environment names the built files: AC_LIBRARY, AC_SIM_DIR, AC_STANDINS (the folder of the other libraries
that PyTorch needs), AC_FRAMEWORKS (the folder of `install`), PYTHONPATH (the package), AC_PATTERNS and
AC_RMM_POOL (programs; the second one may be empty).
"""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.environ["AC_FRAMEWORKS"]
SKIPPED = 77
LIMIT = 240  # seconds


class Skipped(Exception):
    """Raised with the reason if the framework is installed, but stops before it allocates memory."""


class Case:
    """One way to use a framework.  `want` judges its figures."""

    def __init__(self, name, title, want, environment=None):
        self.name, self.title, self.want = name, title, want
        self.environment = environment or {}


def exactly(row):
    """The library serves everything, rounded at most, and nothing is left."""
    return row["served"] == row["asked"] <= row["counted"] < row["asked"] + 4 * 4096 and \
        not row["unseen"] and not row["left"]


def in_segments(row):
    """The framework caches memory itself and asks for segments larger than the program's requests."""
    return row["asked"] <= row["served"] and row["asked"] <= row["counted"] and not row["unseen"]


def given_back(row):
    return in_segments(row) and not row["left"]


def unseen(row):
    return not row["served"] and not row["counted"] and row["unseen"] >= row["asked"]


def alike(row):
    """PyTorch and the package give equal answers."""
    return row["rows"] > 50 and not row["wrong"]


TORCH = [
    Case("torch", "PyTorch's cache", given_back),
    Case("torch", "PyTorch, `backend:cudaMallocAsync`", given_back,
         {"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync"}),
    Case("torch", "PyTorch, `PYTORCH_NO_CUDA_MEMORY_CACHING=1`", exactly,
         {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}),
    Case("torch", "PyTorch, `expandable_segments:True`", unseen,
         {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}),
    Case("torch-adapter", "PyTorch, `use_in_torch`", exactly),
    Case("torch-autoload", "PyTorch, `ACCELCACHE_TORCH=1`", exactly, {"ACCELCACHE_TORCH": "1"}),
    Case("torch-pool", "PyTorch, `use_mem_pool`", in_segments),
]


def jax(title, want, name="jax", **options):
    return Case(name, "JAX" + title, want, {
        **{f"XLA_PYTHON_CLIENT_{name}": value for name, value in options.items()}, "JAX_PLATFORMS": "cuda",
        "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1", "TF_CPP_MIN_LOG_LEVEL": "3"})


PATTERNS = "patterns"  # in place of a module: a program that was built
# name: (packages to install, their environment, cases)
FRAMEWORKS = {
    "torch": ("torch", "torch", TORCH),
    "torch-reference": ("torch", "torch", [
        Case("torch-reference", "PyTorch's answers", alike, {"ACCEL_SIM": "log:none,devices:2"})]),
    "jax": ("jax", "jax", [
        jax("", unseen, name="jax-preallocates"),
        jax(", `XLA_PYTHON_CLIENT_PREALLOCATE=false`", unseen, PREALLOCATE="false"),
        jax(", `XLA_PYTHON_CLIENT_ALLOCATOR=platform`", unseen, ALLOCATOR="platform"),
        jax(", `..._ALLOCATOR=vmm`", unseen, ALLOCATOR="vmm"),
        jax(", `..._ALLOCATOR=cuda_async`", exactly, ALLOCATOR="cuda_async"),
        jax(", `use_in_jax`", exactly, name="jax-adapter")]),
    "cupy": ("cupy", "", [Case("cupy-adapter", "CuPy, `use_in_cupy`", exactly)]),
    "rmm": ("rmm", "", [Case("rmm-adapter", "RMM, `use_in_rmm`", exactly)]),
    "numba": ("numba_cuda", "", [Case("numba", "numba-cuda", exactly),
                                 Case("numba-adapter", "numba-cuda, `use_in_numba`", exactly)]),
    "cuda-core": ("cuda.core", "", [
        Case("cuda-core", "cuda.core's device resource", exactly),
        Case("cuda-core-virtual", "cuda.core's `VirtualMemoryResource`", unseen),
        Case("cuda-core-adapter", "cuda.core, `use_in_cuda_core`", exactly)]),
    "nccl": ("nvidia.nccl", "", [Case("nccl", "NCCL, `ncclMemAlloc`", unseen)]),
    "patterns": (PATTERNS, "AC_PATTERNS", [
        Case("nccl-cumem", "NCCL's buffers *", unseen),
        Case("plain", "NCCL's buffers, `NCCL_CUMEM_ENABLE=0` *", exactly),
        Case("vllm", "vLLM's sleep mode *", unseen),
        Case("llama-vmm", "llama.cpp's pool *", unseen),
        Case("llama-leg", "llama.cpp's pool, `GGML_CUDA_NO_VMM` *", given_back),
        Case("cupy-pool", "CuPy's own pool *", given_back),
        Case("plain", "RMM's `CudaMemoryResource` *", exactly)]),
    "rmm-pool": (PATTERNS, "AC_RMM_POOL", [Case("", "RMM's own pool, in C++", given_back)]),
}


def python(folder):
    return os.path.join(FOLDER, folder, "bin", "python")


def missing(module, folder):
    """Returns true if the framework is not installed, without an import."""
    if module == PATTERNS:
        return not os.environ[folder]
    if not os.path.exists(python(folder)):
        return True
    ask = f"import importlib.util as u, sys; sys.exit(u.find_spec({module!r}) is None)"
    return subprocess.run([python(folder), "-c", ask], check=False,
                          stderr=subprocess.DEVNULL).returncode != 0


def run(case, module, folder):
    """Returns the figures of a case, or a text that names the fault."""
    command = [os.environ[folder]] if module == PATTERNS else [python(folder),
                                                               os.path.join(HERE, "use.py")]
    sim = os.environ["AC_SIM_DIR"]
    preload = [os.environ["AC_LIBRARY"]]
    if folder == "torch":  # its libraries have the runtime beside them, and would find NVIDIA's
        preload += [os.path.join(sim, "libcudart.so.13"),
                    os.path.join(os.environ["AC_STANDINS"], "libcudart_more.so")]
    with tempfile.TemporaryDirectory(prefix="accelcache-framework-") as live:
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("ACCEL_", "LD_", "CUDA_", "PYTORCH_", "NUMBA_", "XLA_", "JAX_",
                                                "NCCL_"))}
        environment.update(LD_PRELOAD=":".join(preload), ACCEL_LIVE_DIR=live,
                           LD_LIBRARY_PATH=":".join([sim, os.environ["AC_STANDINS"]]),
                           ACCEL_ALLOC_CONF="dump:none", ACCEL_SIM="log:none", PYTHONDONTWRITEBYTECODE="1")
        environment.update(case.environment)
        try:
            done = subprocess.run([*command, case.name], env=environment, cwd=live, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, timeout=LIMIT, check=False)
        except subprocess.TimeoutExpired:
            return "hung"
    if done.returncode == SKIPPED:
        raise Skipped(done.stdout.strip())
    if done.returncode:
        return f"status {done.returncode}\n{done.stderr}"
    return json.loads(done.stdout.splitlines()[-1])


def check(name):
    module, folder, cases = FRAMEWORKS[name]
    if missing(module, folder):
        print(f"skipped: {module} is not installed (tests/process/frameworks/install)")
        sys.exit(SKIPPED)
    faults = []
    for case in cases:
        row = run(case, module, folder)
        print(f"{case.title}: {row}")
        if isinstance(row, str) or not case.want(row):
            faults.append(f"{case.title}: not as by {case.want.__name__}: {row}")
    return faults


def table():
    print("| framework | served | counted | unseen |\n|---|---|---|---|")
    for module, folder, cases in FRAMEWORKS.values():
        for case in cases:
            if case.want is alike:
                continue
            try:
                row = "not installed" if missing(module, folder) else run(case, module, folder)
            except Skipped as reason:
                row = str(reason)
            if isinstance(row, str):
                print(f"| {case.title} | {row} | | |")
                continue
            print(f"| {case.title} | " + " | ".join(
                f"{row[name]:,}" for name in ("served", "counted", "unseen")) + " |")
    return 0


def main(arguments):
    if arguments == ["--table"]:
        return table()
    try:
        faults = [fault for name in arguments for fault in check(name)]
    except Skipped as reason:
        print(f"skipped: {reason}")
        return SKIPPED
    print("\n".join(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
