#!/usr/bin/env python3
"""Tests that the library knows every driver function that NVIDIA's headers declare.

usage: known.py ROOT INCLUDE [--but NAME]

INCLUDE holds the headers of a CUDA toolkit.  A function is known if it is a row of
cuda_functions.def, is harmless (harmless.def), or is wrapped by a function of the library (the
MAKERS of lookup.c).  UNSEEN lists functions that end the library's trust in a program at their first
call; harmless.def has the reasons.  No name may be in two of these.  --but leaves a row out, to show
that the test notices its absence.
"""
import os
import re
import sys

HEADERS = ("cuda.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h", "cudaProfiler.h")
UNSEEN = {"cuEGLStreamConsumerAcquireFrame", "cuEGLStreamConsumerReleaseFrame",
          "cuEGLStreamProducerPresentFrame", "cuEGLStreamProducerReturnFrame"}


def text_of(*path):
    with open(os.path.join(*path), encoding="utf-8", errors="replace") as file:
        return re.sub(r"/\*.*?\*/|//[^\n]*", "", file.read(), flags=re.S)


def main():
    root, include = sys.argv[1:3]
    bind = os.path.join(root, "shim/bind")
    rows = re.findall(r"^CU_\w+\((\w+),\s*(\w+)", text_of(root, "shim/device/cuda_functions.def"),
                      re.M)
    sets = {
        "cuda_functions.def": {name for row in rows for name in row},
        "harmless.def": set(re.findall(r"^HARMLESS_FUNCTION\((\w+)\)",
                                       text_of(bind, "harmless.def"), re.M)),
        "lookup.c": set(re.findall(r"\bMAKER\(\w+, (cu[A-Z]\w+),", text_of(bind, "lookup.c"))),
        "known.py": UNSEEN,
    }
    if "--but" in sys.argv:
        for names in sets.values():
            names.discard(sys.argv[-1])
    wrong, declared = [], set()
    for header in HEADERS:
        if os.path.exists(os.path.join(include, header)):
            declared |= set(re.findall(r"CUDAAPI\s+(cu[A-Z]\w*)\s*\(", text_of(include, header)))
    for name in sorted(declared):
        base = re.sub(r"_v\d+$", "", re.sub(r"_pt[ds][sz]$", "", name))
        places = [place for place, names in sets.items() if name in names or base in names]
        if len(places) != 1:
            wrong.append(f"{name}: " + (", ".join(places) or "known nowhere"))
    if len(declared) < 500:
        wrong.append(f"{include}: only {len(declared)} functions found")
    for line in wrong:
        print(line)
    print(f"{len(declared)} functions declared")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
