"""cuda.core: buffers of the default pool and of its own, copies, events, graphs, threads.

Prints what it found, no addresses and no times.
"""
import hashlib
import random
import threading

import numpy
from cuda.core import (Buffer, Device, DeviceMemoryResource, DeviceMemoryResourceOptions,
                       LegacyPinnedMemoryResource, VirtualMemoryResource)


def digest(array):
    return hashlib.md5(array.tobytes()).hexdigest()[:12]


class Host:
    """An array in page-locked memory."""

    def __init__(self, size):
        self.buffer = LegacyPinnedMemoryResource().allocate(size)
        self.array = numpy.from_dlpack(self.buffer).view(numpy.uint8)


def round_trips(name, allocate, stream, sizes):
    """Copies bytes to the device, between buffers, and back. Frees the buffers in any order."""
    order = random.Random(name)
    kept = []
    for number, size in enumerate(sizes):
        there, back = Host(size), Host(size)
        there.array[:] = numpy.arange(size, dtype=numpy.uint64).view(numpy.uint8)[:size] + number
        first, second = allocate(size), allocate(size)
        first.copy_from(there.buffer, stream=stream)
        first.copy_to(second, stream=stream)
        stream.sync()  # mappings end when they are closed, not in the order of a stream
        kept.append((first, second, there, back))
    for first, second, there, back in order.sample(kept, len(kept)):
        first.close()
        second.copy_to(back.buffer, stream=stream)
        stream.sync()
        if not numpy.array_equal(there.array, back.array):
            print(name, "wrong bytes")
        second.close()
    print(name, len(kept), digest(kept[-1][3].array))


def pool_figures(resource, stream):
    stream.sync()
    figures = resource.attributes
    print("pool", figures.used_mem_current, figures.used_mem_high,
          figures.reserved_mem_current >= figures.used_mem_current, figures.release_threshold,
          figures.reuse_allow_opportunistic)


def graphs(device, stream, allocate):
    source, target, back = Host(4096), allocate(4096), Host(4096)
    called = []
    source.array[:] = 7
    builder = device.create_graph_builder()
    builder.begin_building()
    target.copy_from(source.buffer, stream=builder)
    builder.callback(lambda: called.append(1))
    target.copy_to(back.buffer, stream=builder)
    graph = builder.end_building().complete()
    for value in range(3):
        source.array[:] = value
        graph.launch(stream)
        stream.sync()
        print("graph", back.array[0], back.array[-1], len(called))
    graph.close()
    target.close(stream)


def threads(device, allocate):
    def work(number):
        device.set_current()
        stream = device.create_stream()
        there, back = Host(50000), Host(50000)
        for turn in range(20):
            there.array[:] = number * 20 + turn
            buffer = allocate(50000, stream)
            buffer.copy_from(there.buffer, stream=stream)
            buffer.copy_to(back.buffer, stream=stream)
            buffer.close(stream)
            stream.sync()
            if not (back.array == (number * 20 + turn) % 256).all():
                print("thread", number, "wrong bytes")
        stream.close()

    running = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    print("threads", len(running))


def main():
    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    print(device.name, device.compute_capability)
    sizes = [1, 500, 4096, 100000, 1 << 20, (3 << 20) + 5]
    default = device.memory_resource
    round_trips("default", lambda size: default.allocate(size, stream=stream), stream, sizes * 5)
    pool_figures(default, stream)
    own = DeviceMemoryResource(0, DeviceMemoryResourceOptions(max_size=64 << 20))
    round_trips("own", lambda size: own.allocate(size, stream=stream), stream, sizes * 3)
    pool_figures(own, stream)
    own.close()
    virtual = VirtualMemoryResource(device)
    round_trips("virtual", lambda size: virtual.allocate(size, stream=stream), stream,
                [2 << 20, 4 << 20])
    first, second = device.create_event(), stream.record()
    stream.record(first)
    other = device.create_stream()
    other.wait(second)
    other.sync()
    print("event", first.is_done, second.is_done)
    graphs(device, stream, lambda size: default.allocate(size, stream=stream))
    threads(device, lambda size, where: default.allocate(size, stream=where))
    filled = default.allocate(1000, stream=stream)
    filled.fill(3, stream=stream)
    back = Host(1000)
    filled.copy_to(back.buffer, stream=stream)
    stream.sync()
    print("fill", digest(back.array), isinstance(filled, Buffer), filled.size)
    filled.close()
    stream.sync()
    pool_figures(default, stream)


main()
