#!/usr/bin/env python3
"""Training steps with PyTorch; app.py documents the options.

    transformer   a small decoder, sequences of 128 to 256 tokens
    resnet        an 18-layer ResNet on pictures of 128 x 128
    streams       four networks on a stream each
    compiled      the transformer with one length, by torch.compile with CUDA graphs

ACCEL_TORCH_ALLOCATOR=FILE makes the library in FILE PyTorch's pluggable allocator."""
import gc
import os
import sys

import app

# Makes cuBLAS add in one order; must be set before PyTorch starts cuBLAS.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
try:
    import torch
except ImportError as error:
    app.leave(f"no PyTorch in Python: {error}")

CASES = ("transformer", "resnet", "streams", "compiled")
EXAMPLES = 12


def plug(path):
    """Makes the library in `path` PyTorch's pluggable allocator."""
    import ctypes
    library = ctypes.CDLL(path)
    for name in ("accel_torch_alloc", "accel_torch_free"):
        if not hasattr(library, name):
            app.leave(f"the library has no {name}: not built")
    allocator = torch.cuda.memory.CUDAPluggableAllocator(path, "accel_torch_alloc",
                                                         "accel_torch_free")
    torch.cuda.memory.change_current_allocator(allocator)


def prepare(options):
    if options.device == "cuda":
        if not torch.cuda.is_available():
            app.leave("PyTorch finds no GPU")
        if os.environ.get("ACCEL_TORCH_ALLOCATOR"):
            plug(os.environ["ACCEL_TORCH_ALLOCATOR"])
    else:
        torch.set_num_threads(2)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # as usual programs have it
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False


class Training:
    def __init__(self, case, options):
        import torch_models
        self.device = torch.device(options.device)
        torch.manual_seed(options.seed)
        self.random = torch.Generator().manual_seed(options.seed)
        self.model = torch_models.CASES["transformer" if case == "compiled" else case](options.scale)
        # The model with several streams copies its input itself; the others get it on the device.
        self.on_host = case == "streams"
        self.pinned = options.device == "cuda"
        self.model.to(self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.loss = self.model.loss
        if case == "compiled":
            self.loss = torch.compile(self.model.loss, mode="reduce-overhead", dynamic=False)
        self.examples = [self.make_example(case == "compiled") for _ in range(EXAMPLES)]

    def make_example(self, same_size):
        """Makes an example in page-locked host memory, outside the steps, because it is slow."""
        values = self.model.example(self.random)
        if same_size:
            values = torch.randint(self.model.tokens, (self.model.batch, self.model.longest),
                                   generator=self.random)
        values = values if isinstance(values, tuple) else (values,)
        return tuple(value.pin_memory() for value in values) if self.pinned else values

    def example(self, number):
        values = self.examples[number % EXAMPLES]
        last = values[-1].to(self.device, non_blocking=True)
        if self.on_host:
            return (*values[:-1], last)
        return (*(value.to(self.device, non_blocking=True) for value in values[:-1]), last)

    def step(self, number):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(*self.example(number))
        loss.backward()
        self.optimizer.step()
        return loss.detach().clone()


def peak():
    """Returns the peak of PyTorch's own allocator; None if another allocator is used."""
    if os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING", "0") not in ("", "0") or \
            os.environ.get("ACCEL_TORCH_ALLOCATOR"):
        return None
    return torch.cuda.max_memory_reserved()


def run(case, options):
    """Runs one case. Frees the previous case's memory first, so that peaks are not mixed."""
    gc.collect()
    cuda = options.device == "cuda"
    if cuda and peak() is not None:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    app.library.fresh()
    try:
        training = Training(case, options)
        fields = app.measure(options, case, training.step,
                             torch.cuda.synchronize if cuda else lambda: None,
                             value=lambda loss: loss.item())
    except Exception as error:  # compiling needs a compiler and more on the machine
        if case != "compiled" or not type(error).__module__.startswith(("torch._", "triton")):
            raise
        app.leave(f"torch.compile does not work here: {str(error)[:300]}")
    fields["peak"] = peak() if cuda else None
    fields["device"] = torch.cuda.get_device_name() if cuda else "cpu"
    fields["versions"] = {"torch": torch.__version__, "cuda": torch.version.cuda or "none",
                          "cudnn": str(torch.backends.cudnn.version()) if cuda else "none"}
    app.tell(fields)


def main():
    options = app.options(__doc__, CASES)
    prepare(options)
    for case in options.case:
        run(case, options)


if __name__ == "__main__":
    sys.exit(main())
