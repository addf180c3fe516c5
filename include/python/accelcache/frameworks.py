"""Memory of the cache in frameworks that have a slot for an allocator.

Each function imports its framework when it is called.  If memory is short they raise MemoryError,
PyTorch RuntimeError.
Frees need nothing of the program: with a stream they are in its order, and without one all work that
was submitted before is waited for, on the device, before the memory serves again.
"""
import contextlib
import ctypes
import os
import sys
import warnings

from . import memory_info
from ._library import (BUSY, CUDA, INVALID, NO_DRIVER, UNSUPPORTED, call, check, error, handle_of, lib,
                       library_path, serves_all)
from .devices import current_device, set_device

__all__ = ["MemPool", "cuda_core_resource", "numba_manager", "pluggable_allocator", "rmm_resource",
           "use_in_cuda_core", "use_in_cupy", "use_in_jax", "use_in_numba", "use_in_rmm",
           "use_in_torch", "use_mem_pool"]


def _malloc(size):
    pointer = ctypes.c_void_p()
    call("accel_malloc", ctypes.byref(pointer), size)
    return pointer.value or 0


def _malloc_async(size, stream):
    pointer = ctypes.c_void_p()
    call("accel_malloc_async", ctypes.byref(pointer), size, stream or None)
    return pointer.value or 0


def _free(pointer):
    call("accel_free", pointer or None)


def _free_async(pointer, stream):
    """Frees in the order of the stream, or after all work if the stream was destroyed or captures."""
    status = lib().accel_free_async(pointer or None, stream or None)
    if status in (INVALID, CUDA):
        _free(pointer)
    else:
        check(status, "accel_free_async")


class _Block:
    """Memory that is freed with this object."""

    def __init__(self, size):
        self.pointer = _malloc(size)

    def __del__(self, free=_free):  # at the end of the interpreter globals are gone
        pointer = getattr(self, "pointer", 0)
        if pointer:
            free(pointer)


# --- PyTorch ---

# PyTorch's setters, and what they are given; older versions lack some.
_SETTERS = {
    "set_init_fn": "accel_torch_init",
    "set_reset_fn": "accel_torch_reset",
    "set_memory_fraction_fn": "accel_torch_memory_fraction",
    "set_base_alloc_fn": "accel_torch_base_alloc",
    "set_record_stream_fn": "accel_torch_record_stream",
    "set_begin_allocate_to_pool": "accel_torch_begin_allocate_to_pool",
    "set_end_allocate_to_pool_fn": "accel_torch_end_allocate_to_pool",
    "set_release_pool": "accel_torch_release_pool",
}
# Without this one memory could serve again while another stream works with it.
_NEEDED = {"set_record_stream_fn"}


def pluggable_allocator(throws=False):
    """A torch.cuda.memory.CUDAPluggableAllocator that serves from the cache.  `throws`: where there is no
    memory PyTorch raises; else it is told, and only its pools look at that."""
    import torch
    library = lib()
    malloc = "accel_torch_malloc_or_throw" if throws else "accel_torch_malloc"
    allocator = torch.cuda.memory.CUDAPluggableAllocator(library_path(), malloc,
                                                         "accel_torch_free")
    inner = allocator.allocator()
    for setter, symbol in _SETTERS.items():
        set_function = getattr(inner, setter, None)
        if set_function is not None:
            set_function(ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value)
        elif setter in _NEEDED:
            raise error(UNSUPPORTED, f"this version of PyTorch has no {setter}")
    return allocator


def use_in_torch():
    """PyTorch takes all its device memory from the cache.  Call it before PyTorch uses CUDA, as
    torch.cuda.memory.change_current_allocator demands."""
    import torch
    allocator = pluggable_allocator(throws=True)
    torch.cuda.memory.change_current_allocator(allocator)
    return allocator


def autoload():
    """The `torch.backends` entry point, which `import torch` calls: use_in_torch() if ACCELCACHE_TORCH is 1.

    A failure is a warning, and PyTorch keeps its own cache."""
    if os.environ.get("ACCELCACHE_TORCH") != "1":
        return
    try:
        use_in_torch()
    except Exception as failure:
        warnings.warn(f"ACCELCACHE_TORCH=1 has no effect: {failure}", RuntimeWarning, stacklevel=2)


def MemPool(**options):
    """A torch.cuda.MemPool with memory of the cache; PyTorch caches above it."""
    import torch
    allocator = pluggable_allocator()
    pool = torch.cuda.MemPool(allocator.allocator(), **options)
    pool.accelcache_allocator = allocator  # which has to stay as long as the pool
    return pool


@contextlib.contextmanager
def use_mem_pool(pool=None):
    """Directs PyTorch's requests of this thread to the pool."""
    import torch
    pool = MemPool() if pool is None else pool
    with torch.cuda.use_mem_pool(pool):
        yield pool


# --- JAX ---

# JAX accepts no functions of other allocators, but lets XLA's allocator be chosen.
_JAX = {"XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


def use_in_jax():
    """JAX asks the driver for memory in the order of its streams, which the cache serves, in place of a part
    of the device at its start.  Call it before JAX uses a device, in a program that was started under the
    library."""
    if not serves_all():
        raise error(NO_DRIVER, "the library has to be there from the start: accelcache run -- python ...")
    bridge = sys.modules.get("jax._src.xla_bridge")
    if bridge is not None and getattr(bridge, "_backends", None):
        raise error(BUSY, "JAX has its device already: call use_in_jax() before")
    os.environ.update(_JAX)


# --- CuPy ---

def _cupy_allocate(size):
    import cupy
    device = current_device()
    if device < 0:
        set_device(0)
        device = 0
    block = _Block(size)
    memory = cupy.cuda.UnownedMemory(block.pointer, size, block, device)
    return cupy.cuda.MemoryPointer(memory, 0)


def use_in_cupy():
    """CuPy takes its device memory from the cache, in place of its own pool."""
    import cupy
    cupy.cuda.set_allocator(_cupy_allocate)


# --- RMM ---

def rmm_resource():
    """An rmm.mr.CallbackMemoryResource: memory in the order of the stream that RMM names."""
    import rmm
    return rmm.mr.CallbackMemoryResource(
        lambda size, stream: _malloc_async(size, handle_of(stream)),
        lambda pointer, size, stream: _free_async(pointer, handle_of(stream)))


def use_in_rmm():
    """Makes the cache RMM's default resource of the current device."""
    import rmm
    resource = rmm_resource()
    rmm.mr.set_current_device_resource(resource)
    return resource


# --- Numba ---

def numba_manager():
    """A class for numba.cuda.set_memory_manager: device memory is the cache's, host memory Numba's."""
    from numba import cuda

    class Manager(cuda.HostOnlyCUDAMemoryManager):
        """Numba frees when no array needs the memory, and says nothing of streams."""

        interface_version = 1

        def initialize(self):
            pass

        def memalloc(self, size):
            block = _Block(size)
            address = block.pointer
            self.allocations[address] = block
            held = self.allocations  # of the context, which is cleared with it
            return cuda.MemoryPointer(self.context, _numba_pointer(address), size,
                                      finalizer=lambda: held.pop(address, None))

        def get_ipc_handle(self, memory):
            # The library exports a block as an allocation of its own.
            base, _ = cuda.cudadrv.driver.device_extents(memory)
            handle = _numba_ipc_handle(base)
            identity = cuda.current_context().device.get_device_identity()
            return cuda.IpcHandle(memory, handle, memory.size, identity,
                                  offset=int(memory.handle) - int(base))

        def get_memory_info(self):
            return cuda.MemoryInfo(*memory_info())

    return Manager


def _numba_pointer(address):
    from cuda.bindings.driver import CUdeviceptr
    return CUdeviceptr(address)


def _numba_ipc_handle(base):
    from cuda.bindings.driver import cuIpcGetMemHandle
    status, handle = cuIpcGetMemHandle(base)
    check(int(status) and CUDA, "cuIpcGetMemHandle", status.name)
    return handle


def use_in_numba():
    """numba.cuda takes its device memory from the cache.  Call it before a context is in use."""
    from numba import cuda
    manager = numba_manager()
    cuda.set_memory_manager(manager)
    return manager


# --- cuda.core ---

def cuda_core_resource(device_id=0):
    """A cuda.core.MemoryResource of a device: memory in the order of the stream that is named."""
    from cuda.core import Buffer, MemoryResource

    class Resource(MemoryResource):
        is_device_accessible = True
        is_host_accessible = False
        is_managed = False

        @property
        def device_id(self):
            return device_id

        def allocate(self, size, *, stream):
            pointer = _malloc_async(size, handle_of(stream))
            return Buffer.from_handle(pointer, size, self, stream=stream)

        def deallocate(self, ptr, size, *, stream):
            _free_async(int(ptr), handle_of(stream))

    return Resource()


def use_in_cuda_core(device_id=0):
    """The device's default resource for cuda.core's buffers."""
    from cuda.core import Device
    resource = cuda_core_resource(device_id)
    Device(device_id).memory_resource = resource
    return resource
