"""What tests/gpu/qualify runs: parts, their budgets, and one row per program that is started.
PROTOCOL.md explains the fields."""
from typing import NamedTuple, Optional


class Check(NamedTuple):
    part: int
    name: str
    command: tuple
    limit: float                   # seconds; --seconds scales it with the budgets
    lines: tuple = ()              # same=True: the name alone
    optional: Optional[str] = None
    needs: Optional[str] = None    # a key of NOT_BUILT
    sim: bool = True
    same: bool = False
    tolerance: float = 0.0
    conf: str = ""                 # same=True: settings of the library


# part: (title, seconds).  Together they stay below eight minutes.
PARTS = {
    1: ("Does the real stack behave as the design assumes?", 55),
    2: ("Right", 145),
    3: ("Real applications", 135),
    4: ("Costs", 40),
    5: ("Traces", 25),
    6: ("Speed", 60),
}

# Features that some rows need and the library does not have yet.
NOT_BUILT = {
    "ipc_tokens": "IPC handles for blocks inside a segment",
    "pluggable": "the library as a framework's pluggable allocator",
}

# stream_stress: name, settings of the library, options.  Without the library every free waits for
# the device: little is allocated there.
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

CHECKS = (
    # ---------------------------------------------------------------- 1: facts (facts/)

    # ---------------------------------------------------------------- 2: right: driver programs
    *(Check(part=2, name="stress_" + name, limit=4, lines=("stress_" + name,),
            command=("{python}", "{gpu}/rows.py", "stress", name, *given))
      for name, *given in STRESS),
    *(Check(part=2, name="litmus_" + name, limit=14, lines=("litmus_" + name,),
            command=("{python}", "{gpu}/rows.py", "litmus", name, conf))
      for name, conf in LITMUS),

    # ---------------------------------------------------------------- 2: right (right/)

    # ---------------------------------------------------------------- 3: applications (apps/)

    # ---------------------------------------------------------------- 4: costs (costs/)

    # ---------------------------------------------------------------- 5: traces

    # ---------------------------------------------------------------- 6: speed
)
