"""The table of the miniature framework, in the form of ../variants.py."""
from runs import App, Variant

OFF = {"FAKEFRAME_CACHE": "off"}
APPS = {"fake": App("fake_train.py", ("line", "curve"), (
    Variant("own"), Variant("ours", OFF, True), Variant("own"), Variant("beside", {}, True),
    Variant("bare", OFF)))}
