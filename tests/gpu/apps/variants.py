"""The applications and how each is run; apps.py and traces read this table.

Roles: `own`, the framework's own allocator without the library, is what the others are held against;
`ours` has the framework's cache off, under the library; `bare` has it off without the library;
`beside` leaves it on under the library; `plugged` has the library as the framework's pluggable
allocator."""
from runs import App, Variant

OFF = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
# Compile in the process itself, and keep what was compiled for the next run.
COMPILED = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
PLATFORM = {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}


def roles(off):
    """The usual four, by what matters most; those that are compared come twice."""
    own, ours = Variant("own"), Variant("ours", off, True)
    return (own, ours, Variant("beside", {}, True), own, ours, Variant("bare", off))


APPS = {
    "torch": App("torch_train.py", ("transformer", "resnet", "streams"), roles(OFF),
                 judged=("transformer", "resnet")),
    # Graphs need PyTorch's cache, whose pools they are recorded from.
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
