#!/usr/bin/env python3
"""Checks the exports and dependencies of libaccelcache.so.

usage: exports.py [--self-test] LIBRARY ROOT CC

The dynamic symbols are exactly the rows of hooks.def, the functions of the C headers, and the function that NVTX
calls. They have no versions. The library needs only libc and has no text relocations. Its thread-local storage is
one pointer, which it reaches without a call into the dynamic linker. It does not refer to its own exports: a
reference could bind to another library that comes first and has the name.
"""
import os
import re
import subprocess
import sys
import tempfile

KINDS = ("LOADER", "RUNTIME", "NVML", "DRIVER")
SANITIZERS = r"lib[atu]san\.so|libubsan\.so"
MAY_NEED = re.compile(r"(libc\.so\.6|libdl\.so\.2|libpthread\.so\.0|ld-linux[\w-]*\.so\.\d)$|"
                      + SANITIZERS)


def output(*command, text=None):
    return subprocess.run(command, input=text, check=True, capture_output=True, text=True).stdout


def preprocessed(root, compiler, text):
    return output(compiler, "-E", "-P", "-D_GNU_SOURCE", f"-I{root}/shim", f"-I{root}/include",
                  "-x", "c", "-", text=text)


def declared(root, compiler):
    macros = "".join(f"#define HOOK_{kind}(symbol, ...) hook_row symbol;\n" for kind in KINDS)
    hooks = re.findall(r"hook_row (\w+);", preprocessed(
        root, compiler, macros + '#include "bind/hooks.def"\n'))
    api = re.findall(r"\b(accel_\w+)\s*\(", preprocessed(
        root, compiler, '#include "accelcache_pools.h"\n#include "accelcache_torch.h"\n'))
    if len(hooks) < 5 or not api:
        sys.exit("exports.py: could not read hooks.def or the C headers")
    return {"InitializeInjectionNvtx2", *hooks, *api}


def problems(library, names):
    shown = {}
    for line in output("nm", "-D", "--defined-only", library).splitlines():
        symbol = line.split()[-1]
        shown[symbol.split("@")[0]] = symbol
    for name in sorted(names - shown.keys()):
        yield f"not exported: {name}"
    for name in sorted(shown.keys() - names):
        yield f"exported, but neither a hook nor in a C header: {name}"
    for name, symbol in sorted(shown.items()):
        if "@" in symbol:  # the program's references would never bind to a version
            yield f"exported with a version: {symbol}"
    for needed in re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-dW", library)):
        if not MAY_NEED.match(needed):
            yield f"needs {needed}"
    if "TEXTREL" in output("readelf", "-dW", library):
        yield "has text relocations"
    for symbol in re.findall(r"^[0-9a-f]{16} .* [0-9a-f]{16} +(\w+)(?:@\S+)? \+ ",
                             output("readelf", "-rW", library), re.M):
        if symbol in shown:
            yield f"refers to its own export: {symbol}"
    if "__tls_get_addr" in output("nm", "-D", library):
        yield "reaches thread-local storage through the dynamic linker"
    for size in re.findall(r"^\s+TLS\s+\S+\s+\S+\s+\S+\s+\S+\s+(\S+)",
                           output("readelf", "-lW", library), re.M):
        if int(size, 16) > 8:
            yield f"has {int(size, 16)} bytes of thread-local storage, at most 8"


def self_test(compiler, names):
    """Builds a library with one fault of each kind. Each fault must be reported."""
    source = "".join(f"void {name}(void) {{}}\n" for name in sorted(names)[1:])
    source += "void cuStray(void) {}\nvoid stray_call(void) { cuStray(); }\n_Thread_local char big[64];\n"
    source += "char *stray_tls(void); char *stray_tls(void) { return big; }\n"
    with tempfile.TemporaryDirectory() as folder:
        library = os.path.join(folder, "broken.so")
        output(compiler, "-shared", "-fPIC", "-fno-builtin", "-w", "-o", library, "-x", "c", "-",
               "-Wl,--no-as-needed", "-lm", text=source)
        said = "\n".join(problems(library, names))
    expected = ("not exported: " + sorted(names)[0], "C header: cuStray", "needs libm",
                "its own export: cuStray",
                "64 bytes of thread-local", "through the dynamic linker")
    return [f"not noticed: {text}" for text in expected if text not in said]


def main():
    library, root, compiler = sys.argv[-3:]
    names = declared(root, compiler)
    if sys.argv[1] == "--self-test":
        found = self_test(compiler, names)
    else:
        found = list(problems(library, names))
    print("\n".join(found) or f"{len(names)} symbols as declared")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
