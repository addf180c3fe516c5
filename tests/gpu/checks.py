"""The table of tests/gpu/qualify: parts, their budgets, and one row per program.

PROTOCOL.md explains the fields."""
from typing import NamedTuple, Optional


class Check(NamedTuple):
    part: int
    name: str
    command: tuple
    limit: float                   # seconds; --seconds scales it with the budgets
    lines: tuple = ()              # same=True: the line is named as the check
    optional: Optional[str] = None
    needs: Optional[str] = None    # a key of NOT_BUILT
    sim: bool = True
    same: bool = False
    tolerance: float = 0.0
    conf: str = ""                 # same=True: settings of the library
    own_runtime: bool = False      # it has its own libcudart; LD_LIBRARY_PATH omits the build's


# part: (title, seconds).  A part also gets the time that earlier parts left.  The total is eight
# minutes, with 30 s for a compiler.
PARTS = {
    1: ("Does the real stack behave as the design assumes?", 46),
    2: ("Right", 130),
    3: ("Real applications", 154),
    4: ("Costs", 35),
    5: ("Traces", 20),
    6: ("Speed", 65),
}

# Features that some rows need and the library does not have yet.
NOT_BUILT = {
    "pluggable": "the library as a framework's pluggable allocator",
}

SIZES = (512, 65536, 1 << 20, 64 << 20)  # bytes of a pair of malloc and free

# stream_stress: name, settings of the library, options.  Without the library ("none") every free
# waits for the device, so that run allocates little.
STRESS = (
    ("plain", "none"),
    ("auto", "fence:auto"),
    ("ctx", "fence:ctx"),
    ("streams", "fence:streams"),
    ("sync", "fence:sync"),
    ("malloc", "fence:auto", "--async", "0"),
    ("async", "fence:auto", "--plain", "0"),
    ("limited", "memory_limit:1G"),
    ("expandable", "expandable_segments:true"),
    ("many_streams", "single_stream:false"),
)
LITMUS = (
    ("plain", "none"),
    ("auto", "fence:auto"),
    ("streams", "fence:streams"),
)

# Programs of right/, which run three times: seconds, name, argument.
RIGHT = (
    (8, "threads", "own"), (8, "threads", "perthread"), (6, "graphs"), (8, "ordered"),
    (8, "ordered", "plain"), (6, "contexts"),
    # Each of these programs opens the device in two to four processes, one after the other.
    (12, "processes", "ipc"), (15, "processes", "fork"), (18, "processes", "inner"),
    # Each member is a process, and some members are started more than once.
    (40, "ring", "8", "2000", "10"),
    (8, "cublas"), (6, "cufft"), (8, "cusolver"), (12, "cudnn"), (12, "nccl"),
)
# Python applications: name, limit, what they need, cases.
APPS = (
    ("torch", 64, None, "transformer", "resnet", "streams"),
    ("torch_compile", 45, None, "compiled"),
    ("torch_plugged", 40, "pluggable", "transformer", "resnet"),
    ("cupy", 13, None, "filters"),
    ("jax", 20, None, "mlp"),
    ("numba", 12, None, "kernels"),
    ("rmm", 12, None, "buffers"),
)

# Name, seconds, facts.  The facts of a row share a process, so that the device is opened less often.
FACTS = (
    ("lookups", 5, 1, 2),
    ("runtime", 6, 3),
    ("waits", 6, 4, 8, 12),
    ("order", 8, 5, 10, 11),
    ("memory", 8, 6, 7),
    ("capture", 6, 9),
)

CHECKS = (
    # ---------------------------------------------------------------- 1: facts (facts/)
    *(Check(part=1, name="facts_" + name, limit=limit,
            lines=tuple("fact%02d.*" % fact for fact in facts),
            command=("{build}/tests/gpu/gpu_facts", *map(str, facts)))
      for name, limit, *facts in FACTS),
    Check(part=1, name="guesses", limit=25, lines=("guess.*",),
          command=("{build}/tests/gpu/gpu_guesses",)),
    Check(part=1, name="tables", limit=20, command=("{python}", "{gpu}/facts/tables.py"),
          lines=("tables.logged",) + tuple("tables." + name for name in
                                           ("cudart", "cublas", "cudnn", "nccl", "optix", "nvenc"))),
    Check(part=1, name="answers", limit=25, command=("{python}", "{gpu}/facts/answers.py"),
          lines=("answers.same_with_library", "answers.as_simulated")),

    # ---------------------------------------------------------------- 2: right: driver programs
    *(Check(part=2, name="stress_" + name, limit=6, lines=("stress_" + name,),
            command=("{python}", "{gpu}/rows.py", "stress", name, *given))
      for name, *given in STRESS),
    *(Check(part=2, name="litmus_" + name, limit=20, lines=("litmus_" + name,),
            command=("{python}", "{gpu}/rows.py", "litmus", name, conf))
      for name, conf in LITMUS),

    # ---------------------------------------------------------------- 2: right (right/)
    *(Check(part=2, name="right_" + "_".join(words), limit=limit, same=True,
            command=("{build}/tests/gpu/right_" + words[0], *words[1:]))
      for limit, *words in RIGHT),

    *(Check(part=2, name="other_" + what, limit=limit, sim=False, own_runtime=True,
            lines=("other.%s.*" % what,), command=("{python}", "{gpu}/right/others.py", what))
      for what, limit in (("ucx", 40), ("nccl", 40))),

    # ---------------------------------------------------------------- 3: applications (apps/)
    *(Check(part=3, name=name, limit=limit, sim=False, needs=needs, own_runtime=True,
            command=("{python}", "{gpu}/apps/apps.py", name),
            lines=tuple("app.%s.%s.%s" % (name, case, line) for case in cases
                        for line in ("losses", "time", "memory", "waits")))
      for name, limit, needs, *cases in APPS),

    # ---------------------------------------------------------------- 4: costs (costs/)
    Check(part=4, name="costs", command=("{python}", "{gpu}/costs/costs.py"), limit=35,
          lines=("cost.table", "cost.*", "hook.*")),

    # ---------------------------------------------------------------- 5: traces
    Check(part=5, name="traces", limit=120, sim=False, own_runtime=True,
          command=("{python}", "{gpu}/traces", "record"), lines=("trace.*",)),

    # ---------------------------------------------------------------- 6: speed
    # The Python peers come first, because speed_pairs shows their figures, too.
    *(Check(part=6, name="speed_" + module, limit=12, sim=False, own_runtime=True,
            command=("{python}", "{gpu}/speed/speed.py", module),
            lines=tuple("pair_%s_%d" % (module, size) for size in SIZES) + ("replace_" + module,))
      for module in ("rmm", "torch")),
    Check(part=6, name="speed_pairs", limit=25, command=("{python}", "{gpu}/speed/speed.py", "pairs"),
          lines=tuple("pair_%s_%d" % (way, size) for way in ("shared", "driver", "c_api")
                      for size in SIZES) +
          ("pair_bare_ratio", "pair_async_ratio", "replace")),
    Check(part=6, name="speed_static", limit=14,
          command=("{python}", "{gpu}/speed/speed.py", "static"),
          lines=tuple("pair_static_%d" % size for size in SIZES)),
    Check(part=6, name="speed_work", limit=35, command=("{python}", "{gpu}/speed/speed.py", "work"),
          lines=("launch_1_streams", "launch_4_streams", "hook_culaunchkernel",
                 "hook_cumemcpyasync", "multistream_plain", "multistream_async", "threads_*",
                 "work_measured")),
)
