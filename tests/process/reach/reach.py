#!/usr/bin/env python3
"""Run one reach test: a program bare, then under the library, and compare.

usage: reach.py SETTINGS CASE

SETTINGS is the JSON file that CMake generates: where programs and libraries lie.  For a case in
CASES the program runs twice.  Both runs must print the same, apart from the places of functions:
where the bare run says "driver:SYMBOL", the other must say "shim:SYMBOL" if SYMBOL is in the
hook table and the same if not, so nothing is missed, mixed up or invented.  Then the calls that
the dump counted are compared with the case's.  Exit status 77: cannot be tried here.
"""
import ctypes
import glob
import json
import os
import re
import shutil
import subprocess
import sys

SKIP = 77
USE = {"cuInit": 1, "cuMemAlloc_v2": 2, "cuMemFree_v2": 2}  # what exercise() in reach.h calls


class Case:
    """One program run.  Words of `command` and `env` may name settings as {name}.

    hooks    name -> exact number of calls, or (at least, at most); None: no call may be
             caught, so there is no dump
    natural  the lookups' answers must not be replaced at all
    shims    what LD_PRELOAD holds in the second run; `bare` what it holds in the first
    replaced lines of the bare run that must read differently: {bare: shim}
    counters name -> exact value in the dump
    cudart   the program carries the real cudart: of version 13.0 we know every lookup
    """

    def __init__(self, command, hooks, natural=False, env=None, conf="", bare="", shims="{shim}",
                 stderr=None, status=0, replaced=None, replacing=True, counters=None, cudart=0):
        self.command, self.hooks, self.natural = command.split(), hooks, natural
        self.env, self.conf, self.bare, self.shims = env or {}, conf, bare, shims
        self.stderr, self.status = stderr, status
        self.replaced, self.replacing, self.cudart = replaced or {}, replacing, cudart
        self.counters = counters or {}


def linked(program, **more):
    return Case(program, {**USE, "cuMemAlloc_v2": 3}, **more)


def lookup(mode, hooks=None, **more):
    return Case("{lookup} " + mode, {**USE, "dlopen": 1, **(hooks or {})}, **more)


ANY = (1, 1 << 30)
OLD = {"LD_LIBRARY_PATH": "{sim_old}"}
NO_CUDA = {"LD_LIBRARY_PATH": "/nonexistent"}
STANDIN = {"cuInit": (1, 2), "dlsym": ANY, "dlopen": ANY, "cuMemAlloc_v2": ANY,
           "cuGetProcAddress_v2": (400, 500)}
RUNTIME = {"cudaMalloc": 2, "cudaFree": 2, "cudaSetDevice": 1}
REAL = {"cuInit": (1, 2), "dlopen": ANY, "dlsym": ANY, "cuGetProcAddress_v2": (300, 600)}
SEVERAL = ("{runtimes} {runtimes_12} {runtimes_13} {runtimes_11} {runtimes_indirect} "
           "{runtimes_gone} {runtimes_come}")
BOTH = {"cudaMalloc": 36, "cudaFree": 36, "cudaSetDevice": 13, "cudaGetDriverEntryPoint": 7}
TWO = {"ACCEL_SIM": "devices:2"}
NAMED_TWICE = {name: 2 * calls for name, calls in USE.items()}
SAVER = "saver: 20 20, in order 20 20, host 20 20\n"
# The loader says that a copy is of another size than our function.
RESIZED = r"(\S+: Symbol `cu\w+' has different size in shared object, consider re-linking\n)*"
PYTHON = ("import ctypes; d = ctypes.CDLL('libcuda.so.1'); p = ctypes.c_uint64(); "
          "c = ctypes.c_void_p(); print(d.cuInit(0), "
          "d.cuDevicePrimaryCtxRetain(ctypes.byref(c), 0), d.cuCtxSetCurrent(c), "
          "d.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(1 << 20)), p.value != 0, "
          "d.cuMemFree_v2(p))")

CASES = {
    # linked with the driver
    "linked": linked("{linked}"),
    "linked_now": linked("{linked_now}"),
    "linked_noplt": linked("{linked_noplt}"),
    # found with dlopen and dlsym
    "dlsym": lookup("dlsym", {"dlsym": 20}),
    "dlsym_deepbind": lookup("deepbind"),
    "suffixed": lookup("suffixed", {"dlsym": 9}),
    # cuGetProcAddress
    "proc_address_v1": lookup("v1", {"cuGetProcAddress": 5}),
    "proc_address_v2": lookup("v2", {"cuGetProcAddress_v2": 5}),
    "proc_address_itself": lookup("self", {"cuGetProcAddress": 1, "cuGetProcAddress_v2": 10}),
    "proc_address_flags": lookup("flags", {"cuGetProcAddress_v2": 35}),
    "proc_address_versions": lookup("versions", {"cuGetProcAddress_v2": 133}),
    "proc_address_arguments": lookup("arguments", {"cuGetProcAddress_v2": 13}),
    # a driver from before cuGetProcAddress
    "old_linked": linked("{linked}", env=OLD),
    "old_suffixed": Case("{lookup} suffixed", {**USE, "dlsym": 9}, env=OLD),
    "old_runtime_static": Case("{runtime_static}", {"cuMemAlloc_v2": ANY, "dlsym": (300, 500)},
                               env=OLD),
    "old_runtime_shared": Case("{runtime_shared}", {**RUNTIME, "cuMemAlloc_v2": ANY,
                                                    "dlsym": (300, 500)},
                               env={"LD_LIBRARY_PATH": "{sim_old}:{sim}"}),
    # the runtime
    "runtime_static": Case("{runtime_static}", {**STANDIN, "cuMemAlloc_v2": 2, "cuMemFree_v2": 2}),
    "runtime_shared": Case("{runtime_shared}", {**STANDIN, **RUNTIME},
                           counters={"deepbind_stripped": 0, "unknown_functions": 0}),
    "entry_points": Case("{entry_points}",
                         {**STANDIN, **RUNTIME, "cuGetProcAddress_v2": 513,
                          "cudaGetDriverEntryPoint": 19,
                          "cudaGetDriverEntryPoint_ptsz": 18,
                          "cudaGetDriverEntryPointByVersion": 18,
                          "cudaGetDriverEntryPointByVersion_ptsz": 18}),
    "ctypes": Case("{python} -c PYTHON", {"cuInit": 1, "cuMemAlloc_v2": 1, "cuMemFree_v2": 1}),
    # plugins
    "plugin_local": Case("{host} local {plugin}", {**USE, "dlopen": 3}),
    "plugin_lazy": Case("{host} lazy {plugin}", {**USE, "dlopen": 3}),
    "plugin_global": Case("{host} global {plugin}", {**USE, "dlopen": 3}),
    "plugin_after_driver": Case("{host} after {plugin}", {**USE, "dlopen": 4}),
    "plugin_deepbind": Case("{host} deepbind {plugin}", {**USE, "dlopen": 3},
                            counters={"deepbind_stripped": 1, "unknown_functions": 0}),
    "plugin_deepbind_kept": Case("{host} deepbind {plugin}", {"cuMemAlloc_v2": 0},
                                 conf="deepbind:keep", natural=True,
                                 counters={"deepbind_stripped": 0},
                                 replaced={"host plugin handle cuMemAlloc_v2 -> "
                                           "driver:cuMemAlloc_v2":
                                           "host plugin handle cuMemAlloc_v2 -> "
                                           "shim:cuMemAlloc_v2"}),
    "plugin_namespace": Case("{host} namespace {plugin}", None, natural=True),
    "plugin_runtime": Case("{host} local {plugin_runtime}", {**STANDIN, **RUNTIME}),
    "plugin_runtime_12": Case("{host} local {plugin_runtime_12}", {**STANDIN, **RUNTIME}),
    # A fast hit: in each of 10 mixed rounds the free by the runtime that allocated last, both
    # calls of 5 rounds of one runtime alone, three frees beside the device that is pending.
    # A fast hit: in each of 10 mixed rounds the free by the runtime that allocated last, both
    # calls of 5 rounds of one runtime alone, three frees beside the device that is pending.
    "plugin_runtimes": Case(SEVERAL, {**BOTH, "dlopen": 12}, env=TWO, counters={"fast_hits": 21}),
    "global_runtimes": Case(SEVERAL + " libcudart.so.12", {**BOTH, "dlopen": 13}, env=TWO,
                            counters={"fast_hits": 21}),
    "unseen_context": Case("{unseen}", {"cudaMalloc": 7, "cuCtxSetCurrent": (0, 1)}, env=TWO,
                           counters={"fast_hits": 1, "unknown_functions": 0}),
    "exempt_caller": Case("{host} local {ucm} lookups", None, natural=True,
                          replaced={"host plugin handle cuMemAlloc_v2 -> driver:cuMemAlloc_v2":
                                    "host plugin handle cuMemAlloc_v2 -> shim:cuMemAlloc_v2"}),
    # variables with the driver's names
    "named_opened": Case("{named_host} {named} named_use", USE),
    "named_called_back": Case("{named_host} {named} -", USE),
    "named_searched": Case("{named_host} libreach_named.so named_use", USE),
    "named_early": Case("{named_host} {named_early} named_use", USE),
    "named_two": Case("{named_host} {named} named_use {named_early} named_use", NAMED_TWICE),
    "named_user": Case("{named_host} {named_user} named_use_elsewhere", USE),
    "named_threads": Case("{named_host} {named} {named_early}", None),
    "named_spaced": Case("{named_host} +{named} named_use", USE),
    "named_spaced_called_back": Case("{named_host} +{named} -", USE),
    "named_spaced_searched": Case("{named_host} +libreach_named.so named_use", USE),
    # another preload library wraps dlopen and dlmopen; one that is no tail call is the loader's caller
    "wrapped_before": Case("{named_host} {named} named_use +{named_early} named_use", NAMED_TWICE,
                           bare="{wrap}", shims="{wrap}:{shim}"),
    "wrapped_after": Case("{named_host} {named} named_use +{named_early} named_use", NAMED_TWICE,
                          bare="{wrap}", shims="{shim}:{wrap}"),
    "wrapped_before_searched": Case("{named_host} libreach_named.so -", None, bare="{wrap}",
                                    shims="{wrap}:{shim}", status=2),
    "wrapped_after_searched": Case("{named_host} libreach_named.so -", None, bare="{wrap}",
                                   shims="{shim}:{wrap}", status=2),
    "wrapped_tail_before": Case("{named_host} libreach_named.so named_use", USE, bare="{wrap_tail}",
                                shims="{wrap_tail}:{shim}"),
    "wrapped_tail_after": Case("{named_host} libreach_named.so named_use", USE, bare="{wrap_tail}",
                               shims="{shim}:{wrap_tail}"),
    "named_failed": Case("{named_host} /missing/libreach_named.so -", None, status=2),
    "named_linked": Case("{named_linked}", NAMED_TWICE),
    "named_copied_pie": Case("{named_copied_pie}", NAMED_TWICE, stderr=RESIZED),
    "named_copied_no_pie": Case("{named_copied_no_pie}", NAMED_TWICE, stderr=RESIZED),
    "named_disabled": Case("{named_host} {named} named_use", USE, conf="enabled:false"),
    "named_linked_disabled": Case("{named_linked}", NAMED_TWICE, conf="enabled:false"),
    # scopes: RTLD_DEFAULT, RTLD_NEXT, the program's own handle
    "scopes_linked": Case("{scopes_linked}", None),
    "scopes_probe": Case("{scopes_bare}", None, env=NO_CUDA),
    "scopes_probe_loaded": Case("{scopes_bare} libcuda.so.1", None),
    # another preload library, before and after
    "other_before": linked("{linked}", bare="{other}", shims="{other}:{shim}",
                           stderr="other: 3 driver, 0 runtime\n"),
    "other_after": linked("{linked}", bare="{other}", shims="{shim}:{other}",
                          stderr=r"other: \d driver, 0 runtime\n"),
    "other_before_lookup": lookup("dlsym", bare="{other}", shims="{other}:{shim}"),
    "other_after_lookup": lookup("dlsym", bare="{other}", shims="{shim}:{other}"),
    "other_before_scopes": Case("{scopes_linked}", None, bare="{other}", shims="{other}:{shim}"),
    "other_after_scopes": Case("{scopes_linked}", None, bare="{other}", shims="{shim}:{other}"),
    "other_before_probe": Case("{scopes_bare}", None, env=NO_CUDA, bare="{other}",
                               shims="{other}:{shim}"),
    "other_after_probe": Case("{scopes_bare}", None, env=NO_CUDA, bare="{other}",
                              shims="{shim}:{other}"),
    "other_before_runtime": Case("{runtime_shared}", {**STANDIN, **RUNTIME}, bare="{other}",
                                 shims="{other}:{shim}",
                                 stderr=r"other: \d driver, 2 runtime\n"),
    "other_after_runtime": Case("{runtime_shared}", {**STANDIN, **RUNTIME}, bare="{other}",
                                shims="{shim}:{other}",
                                stderr=r"other: \d driver, 2 runtime\n"),
    # one that has to see each call of the runtime
    "saver_behind": Case("{saved}", {"cuMemAlloc_v2": 20, "cuMemFree_v2": 20}, bare="{saver}",
                         shims="{shim}:{saver}", stderr=SAVER, conf="pinned_cache:true",
                         counters={"fast_hits": 0}),
    "saver_before": Case("{saved}", {"cudaMalloc": 20, "cudaFree": 20}, bare="{saver}",
                         shims="{saver}:{shim}", stderr=SAVER, conf="pinned_cache:true",
                         counters={"fast_hits": 116}),
    # the library without LD_PRELOAD
    "carried_linked": Case("{carried_linked}", USE, shims="", replacing=False),
    "carried_opened": Case("{carried_opened} {shim}", USE, shims="", replacing=False),
    "carried_dropped": Case("{carried_dropped}", USE, shims="", env=NO_CUDA, replacing=False),
    "carried_dropped_api": Case("{carried_dropped} api", {**USE, "cuInit": 2}, shims="", env=NO_CUDA,
                                replacing=False),
    "carried_dropped_lookup": Case("{carried_dropped} lookup", {**USE, "cuGetProcAddress_v2": 1}, shims="",
                                   env=NO_CUDA, replacing=False),
    "carried_dropped_library": Case("{carried_opened} {user_dropped}", USE, shims="", env=NO_CUDA,
                                    replacing=False),
    "carried_nowhere": Case("{carried_nowhere}", None, shims="", env=NO_CUDA, replacing=False, status=1,
                            stderr="accelcache: .*found none.*LD_LIBRARY_PATH.*\n"),
    # out of reach, and unharmed
    "static": Case("{plain_static}", None),
    # sanitizers and valgrind
    "asan": linked("{linked_asan}", shims="{libasan}:{shim}", bare="{libasan}"),
    "asan_static": linked("{linked_asan_static}"),
    "asan_clang": linked("{linked_asan_clang}"),
    "tsan": linked("{linked_tsan}"),
    "tsan_clang": linked("{linked_tsan_clang}"),
    "ubsan": linked("{linked_ubsan}"),
    # (without the leak check: it would read through the simulated device's memory)
    "valgrind": linked("{valgrind} -q --leak-check=no --error-exitcode=9 {linked}"),
    # NVIDIA's own libraries, as far as they go on the simulated driver; `cudart` counts the
    # lookups beside those of the runtime: dlsym of cuGetProcAddress_v2, of cuInit by runtime.c
    "real_cudart_static": Case("{real_static}", REAL, cudart=2),
    "real_cudart_shared": Case("{real_shared}", {**REAL, **RUNTIME},
                               cudart=2),
    "real_cudart_old": Case("{real_static}", {"cuInit": 1, "dlsym": (300, 600)}, env=OLD),
    "real_cublas": Case("{libraries} cublas {cublas}", REAL, cudart=1),
    "real_nccl": Case("{libraries} nccl {nccl}", REAL, cudart=1),
}


def run(case, settings, preload, dump):
    def fill(text):
        return text.format(**settings)

    env = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "ACCEL_ALLOC_CONF")}
    env["LD_LIBRARY_PATH"] = settings["sim"]
    env["ASAN_OPTIONS"] = "detect_leaks=0"
    env.update({k: fill(v) for k, v in case.env.items()})
    runtime = settings.get("sanitizer_runtime")
    preloads = [fill(preload)] if preload else []
    if runtime:
        preloads.insert(0, runtime)
    if preloads:
        env["LD_PRELOAD"] = ":".join(preloads)
    conf = [case.conf] if case.conf else []
    env["ACCEL_ALLOC_CONF"] = ",".join(conf + [f"dump:{dump}"])
    command = [PYTHON if word == "PYTHON" else fill(word) for word in case.command]
    # ThreadSanitizer's address layout does not go with much randomness: none for all.
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=200,
                          preexec_fn=lambda: ctypes.CDLL(None).personality(0x0040000))
    return done.returncode, done.stdout, done.stderr


def expected_output(case, bare, hooks):
    def replace(match):
        return ("shim:" if match[1] in hooks else "driver:") + match[1]

    lines = []
    for line in bare.splitlines():
        if line in case.replaced:
            line = case.replaced[line]
        elif not case.natural:
            line = re.sub(r"\bdriver:(\w+)", replace, line)
        lines.append(line)
    return lines


def complain(title, *texts):
    print(title)
    for text in texts:
        print(text if isinstance(text, str) else "\n".join(text))
    return 1


def check_cudart(case, settings, document):
    """All lookups of cudart 13.0 were seen, and those of the hook table substituted."""
    path = os.path.join(settings["source"], "tools/simcuda/cudart/lookups.def")
    with open(path, encoding="utf-8") as file:
        symbols = re.findall(r"^RT_LOOKUP\((\w+)", file.read(), re.M)
    # Before those rows: "".
    expected = {"lookups": len(symbols) + 1 + case.cudart,
                "lookups_substituted": len([s for s in symbols if s in hook_names(settings)])
                + case.cudart}
    got = {name: document["counters"][name] for name in expected}
    extra = {got[name] - expected[name] for name in expected}
    # cuBLAS looks more symbols up by itself: all of them must have got hooks, too.
    most = 100 if "{libraries}" in case.command else 0
    if (len(extra) != 1 or not 0 <= extra.pop() <= most
            or document["hooks"]["cuGetProcAddress_v2"] != len(symbols) + 1):
        return complain("lookups of cudart differ", f"expected {expected}", f"got {got}",
                        f"{document['hooks']}")
    return 0


def check_dump(case, settings, dump):
    if case.hooks is None:
        return complain("a dump was written without a use of CUDA") if os.path.exists(dump) else 0
    if not os.path.exists(dump):
        if not any(case.hooks.values()):
            return 0
        return complain(f"no dump was written: {dump}")
    with open(dump, encoding="utf-8") as file:
        document = json.load(file)
    counted = document["hooks"]
    wrong = []
    for name, calls in case.hooks.items():
        low, high = calls if isinstance(calls, tuple) else (calls, calls)
        if name == "dlsym" and "sanitizer_runtime" in settings:
            high = 1 << 30  # the sanitizer's own lookups come on top
        if not low <= counted.get(name, 0) <= high:
            wrong.append(f"{name}: {counted.get(name, 0)} calls caught, expected {calls}")
    for name, value in case.counters.items():
        if document["counters"][name] != value:
            wrong.append(f"{name}: {document['counters'][name]}, expected {value}")
    if wrong:
        return complain("counts differ", wrong, f"all: {counted}")
    if case.cudart and settings.get("cudart_version") == "13000":
        return check_cudart(case, settings, document)
    return 0


def hook_names(settings):
    names = set()
    for table in "bind/hooks.def", "device/cuda_functions.def":
        with open(os.path.join(settings["source"], "shim", table), encoding="utf-8") as file:
            names.update(re.findall(r"^(?:HOOK_\w+|CU_(?:HOOK|SUBMIT|RETRY))\((\w+)", file.read(),
                                    re.M))
    return names


def check_case(case, settings, name):
    dump = os.path.abspath(f"dump-{name}.json")
    if os.path.exists(dump):
        os.remove(dump)
    bare_status, bare, bare_error = 0, "", ""
    if case.replacing:
        bare_status, bare, bare_error = run(case, settings, case.bare, dump)
        if bare_status == SKIP:
            return SKIP
        if bare_status and "{valgrind}" in case.command:
            print("valgrind cannot run this program here:", bare_error)
            return SKIP
    status, output, error = run(case, settings, case.shims, dump)
    if status != (bare_status if case.replacing else case.status):
        return complain(f"exit status {status}, bare {bare_status}", bare, bare_error,
                        "--- under the library", output, error)
    if case.replacing:
        expected = expected_output(case, bare, hook_names(settings))
        if output.splitlines() != expected:
            import difflib
            return complain("output differs", difflib.unified_diff(
                expected, output.splitlines(), "expected", "got", lineterm="", n=1), error)
    if case.stderr is not None and not re.fullmatch(case.stderr, error):
        return complain(f"stderr is {error!r}, expected {case.stderr!r}")
    if case.stderr is None and case.replacing and error != bare_error:
        return complain("stderr differs", bare_error, "--- under the library", error)
    print(output, end="")
    return check_dump(case, settings, dump)


def check_carried_opened(settings, name):
    """Opened by the program: its own handle gives the hooks, nothing else changes."""
    failed = check_case(CASES[name], settings, name)
    _, output, _ = run(CASES[name], settings, "", "none")
    for line in ("library cuMemAlloc_v2 -> shim:cuMemAlloc_v2",
                 "driver cuMemAlloc_v2 -> driver:cuMemAlloc_v2",
                 "default cuMemAlloc_v2 -> null"):
        if line not in output:
            failed = complain(f"missing: {line}", output)
    return failed


def check_carried_linked(settings, name):
    failed = check_case(CASES[name], settings, name)
    _, output, _ = run(CASES[name], settings, "", "none")
    if "default cuMemAlloc_v2 -> shim:cuMemAlloc_v2" not in output:
        failed = complain("the linked library does not answer", output)
    return failed


def check_renamed_runtime(settings, name):
    """A runtime under another name, as wheels have it, is one all the same: its hits are served."""
    folder = os.path.abspath("renamed")
    os.makedirs(folder, exist_ok=True)
    for path in (settings["runtime_shared"], os.path.join(settings["sim"], "libcudart.so.13")):
        with open(path, "rb") as file:
            content = file.read().replace(b"libcudart.so.13", b"libkudart.so.13")
        copy = os.path.join(folder, os.path.basename(path).replace("libcudart", "libkudart"))
        with open(copy, "wb") as file:
            file.write(content)
        os.chmod(copy, 0o755)
    case = Case(os.path.join(folder, os.path.basename(settings["runtime_shared"])), RUNTIME,
                env={"LD_LIBRARY_PATH": "{sim}:" + folder}, counters={"fast_hits": 2})
    return check_case(case, settings, name)


def check_user_libraries(settings, _):
    """A library that needs ours leads to the hooks if it also leads to the driver."""
    failed = 0
    for library, answer in (("user_driver", "shim:cuMemAlloc_v2"), ("user_bare", "null")):
        case = Case("{host} local {%s} handle" % library, None)
        status, output, error = run(case, settings, "{shim}", "none")
        if status or f"host plugin handle cuMemAlloc_v2 -> {answer}\n" not in output:
            failed = complain(f"{library}: not {answer}", output, error)
        if answer == "null" and "undefined symbol: cuMemAlloc_v2" not in output:
            failed = complain(f"{library}: dlerror() does not say so", output)
    return failed


def check_setuid(settings, _):
    """A setuid copy ignores the preload and works; without the bit the same copy is caught."""
    if os.geteuid() != 0:
        return SKIP
    folder = f"/var/tmp/accelcache-setuid-{os.getpid()}"
    os.mkdir(folder)
    os.chmod(folder, 0o777)
    try:
        if os.statvfs(folder).f_flag & os.ST_NOSUID:
            return SKIP
        program = shutil.copy(settings["linked"], folder)  # its RUNPATH leads to the driver
        shim = shutil.copy(settings["shim"], folder)
        os.chmod(shim, 0o755)
        dump = os.path.join(folder, "dump.json")
        for mode, reached in ((0o755, True), (0o4755, False)):
            os.chmod(program, mode)
            if os.path.exists(dump):
                os.remove(dump)
            env = {"LD_PRELOAD": shim, "ACCEL_ALLOC_CONF": f"dump:{dump}"}
            done = subprocess.run([program], env=env, user=65534, group=65534, cwd=folder,
                                  capture_output=True, text=True, check=False, timeout=200)
            if reached and done.returncode == 127:
                print("the simulated driver cannot be read by others:", done.stderr)
                return SKIP
            if done.returncode or "used the driver: ok" not in done.stdout:
                return complain(f"mode {mode:o}: status {done.returncode}", done.stdout,
                                done.stderr)
            if os.path.exists(dump) != reached:
                return complain(f"mode {mode:o}: " + ("no dump" if reached else "a dump"),
                                done.stderr)
    finally:
        shutil.rmtree(folder)
    return 0


def check_exports(settings, _):
    """The library exports the hook table and the public API, and needs libc alone."""
    def tool(*words):
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout

    exported = {line.split()[-1].split("@")[0]
                for line in tool("nm", "-D", "--defined-only", settings["shim"]).splitlines()}
    expected = hook_names(settings) | {"InitializeInjectionNvtx2"}
    for header in glob.glob(os.path.join(settings["source"], "include/*.h")):
        with open(header, encoding="utf-8") as file:
            text = re.sub(r"/\*.*?\*/|//[^\n]*", "", file.read(), flags=re.S)
        expected |= set(re.findall(r"\b(accel_\w+)\s*\(", text))
    failed = 0
    if exported != expected:
        failed = complain("exports differ", f"too many: {sorted(exported - expected)}",
                          f"missing: {sorted(expected - exported)}")
    dynamic = tool("readelf", "-d", settings["shim"])
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
    allowed = re.compile(r"lib(c|dl|pthread|m|rt)\.so\.\d+|ld-linux.*\.so\.\d+")
    wrong = [name for name in needed if not allowed.fullmatch(name)]
    if wrong:
        failed = complain(f"needs more than libc: {wrong}")
    versions = tool("readelf", "--version-info", settings["shim"])
    if "Version definition section" in versions:
        failed = complain("the exports carry a version: they would not bind", versions)
    return failed


# With the whole build under a sanitizer these fail by the sanitizer's own rules.
UNSANITIZED = {"setuid", "exports", "plugin_deepbind", "plugin_deepbind_kept", "plugin_namespace",
               "dlsym_deepbind", "named_searched"}  # and a Python not built for it does not start under TSan

SPECIAL = {"setuid": check_setuid, "exports": check_exports,
           "user_libraries": check_user_libraries, "renamed_runtime": check_renamed_runtime,
           "carried_opened": check_carried_opened, "carried_linked": check_carried_linked}


def main():
    if len(sys.argv) == 2 and sys.argv[1] == "--list":
        print(";".join(sorted(set(CASES) | set(SPECIAL))), end="")
        return 0
    with open(sys.argv[1], encoding="utf-8") as file:
        settings = {k: v for k, v in json.load(file).items() if v and "NOTFOUND" not in v}
    name = sys.argv[2]
    runtime = settings.get("sanitizer_runtime")
    if runtime and (name in UNSANITIZED or name == "ctypes" and "tsan" in runtime):
        return SKIP
    if name in SPECIAL:
        return SPECIAL[name](settings, name)
    case = CASES[name]
    words = " ".join(case.command + [case.bare, case.shims] + list(case.env.values()))
    missing = [word for word in re.findall(r"\{(\w+)\}", words) if word not in settings]
    if missing:
        print("not here:", *missing)
        return SKIP
    return check_case(case, settings, name)


if __name__ == "__main__":
    sys.exit(main())
