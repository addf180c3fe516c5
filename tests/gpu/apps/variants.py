"""The table of applications and of the roles in which they run, for apps.py and traces.

    own       the framework's own allocator without the library: the reference for all others
    ours      the framework's cache is off; the library is loaded
    bare      the framework's cache is off; the library is not loaded
    beside    the framework's cache is on; the library is loaded
    plugged   the library is the framework's pluggable allocator
    driver    RMM with the driver's own pool (async); the library is not loaded"""
from runs import App, Variant

OFF = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
# Compiles in the process itself, without worker processes.
COMPILED = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
PLATFORM = {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}


def roles(off):
    """Returns the usual runs, the most important first; `own` and `ours` come twice."""
    own, ours = Variant("own"), Variant("ours", off, True)
    return (own, ours, Variant("beside", {}, True), own, ours, Variant("bare", off))


APPS = {
    "torch": App("torch_train.py", ("transformer", "resnet", "streams"), roles(OFF),
                 judged=("transformer", "resnet")),
    # CUDA graphs need PyTorch's cache, because they are recorded from its pools.
    "torch_compile": App("torch_train.py", ("compiled",),
                         (Variant("own", COMPILED), Variant("beside", COMPILED, True),
                          Variant("own", COMPILED)), scale=0.3),
    "torch_plugged": App("torch_train.py", ("transformer", "resnet"),
                         (Variant("own"),
                          Variant("plugged", {"ACCEL_TORCH_ALLOCATOR": "{library}"}),
                          Variant("own")), judged=("transformer", "resnet")),
    "cupy": App("cupy_work.py", ("filters",), roles({"ACCEL_CUPY_POOL": "off"})),
    "jax": App("jax_train.py", ("mlp",), roles(PLATFORM)),
    "numba": App("numba_work.py", ("kernels",),
                 (Variant("own"), Variant("ours", {}, True), Variant("own"),
                  Variant("ours", {}, True))),
    "rmm": App("rmm_work.py", ("buffers",),
               (Variant("own", {"ACCEL_RMM": "pool"}), Variant("ours", {"ACCEL_RMM": "cuda"}, True),
                Variant("own", {"ACCEL_RMM": "pool"}),
                Variant("beside", {"ACCEL_RMM": "pool"}, True),
                Variant("driver", {"ACCEL_RMM": "async"}), Variant("bare", {"ACCEL_RMM": "cuda"}))),
}
