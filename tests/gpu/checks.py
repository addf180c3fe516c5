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
    1: ("Does the real stack behave as the design assumes?", 60),
    2: ("Right", 130),
    3: ("Real applications", 140),
    4: ("Costs", 40),
    5: ("Traces", 30),
    6: ("Speed", 60),
}

# Features that some rows need and the library does not have yet.
NOT_BUILT = {
    "ipc_tokens": "IPC handles for blocks inside a segment",
    "pluggable": "the library as a framework's pluggable allocator",
}

CHECKS = (
    # ---------------------------------------------------------------- 1: facts (facts/)

    # ---------------------------------------------------------------- 2: right: driver programs

    # ---------------------------------------------------------------- 2: right (right/)

    # ---------------------------------------------------------------- 3: applications (apps/)

    # ---------------------------------------------------------------- 4: costs (costs/)
    Check(part=4, name="costs", command=("{python}", "{gpu}/costs/costs.py"), limit=40,
          lines=("cost.table", "cost.*", "hook.*")),

    # ---------------------------------------------------------------- 5: traces

    # ---------------------------------------------------------------- 6: speed
)
