"""The table of the framework in miniature; see ../variants.py."""
from typing import NamedTuple


class Variant(NamedTuple):
    role: str
    env: dict = {}
    preload: bool = False


class App(NamedTuple):
    program: str
    cases: tuple
    variants: tuple
    judged: tuple = ()
    tolerance: float = 1e-3
    scale: float = 1.0


OFF = {"FAKEFRAME_CACHE": "off"}
APPS = {"fake": App("fake_train.py", ("line", "curve"), (
    Variant("own"), Variant("ours", OFF, True), Variant("own"), Variant("beside", {}, True),
    Variant("bare", OFF)))}
