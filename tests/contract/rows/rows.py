"""Writes rows.inc: the facts of each row for its test, from the driver's signatures alone.

usage: rows.py cuda_functions.def OUTPUT

One line for each CU_SUBMIT and CU_RETRY row of cuda_functions.def and each body that submits:

    ROW(kind, symbol, (parameters), (arguments), stream, per thread, addresses, many, slow, call)

This script reads only the kind from the hooks' columns.  It derives the stream and the memory from the
types of the parameters, so a row with a wrong stream or a missing address differs from its line here.
If a type is unknown, or a function that submits has no row, this script fails, and the build with
it."""
import re
import sys

# Functions that submit and have a hand-written body: the stream as an expression over the parameters.
BODIES = {
    "cuLaunchKernelEx": "a ? a->hStream : NULL",
    "cuLaunchKernelEx_ptsz": "a ? a->hStream : NULL",
    "cuLaunchCooperativeKernelMultiDevice": "a[1].hStream",  # and a[0].hStream before it
}
# Functions of a stream that give it no work: they query, or they order existing work.
NO_WORK = re.compile(
    r"cuStream(Get|Set|Copy|Is)\w+|cu(Mem(Alloc|Free)|EventRecord|StreamWaitEvent|StreamDestroy|"
    r"StreamSynchronize|StreamQuery|StreamBeginCapture|StreamEndCapture|"
    r"StreamUpdateCaptureDependencies)\w*")
# Functions with work that may wait, on its stream, for another action of the program.
HOLDS = re.compile(r"cu(LaunchHostFunc|LaunchCooperativeKernel|StreamAddCallback|StreamWaitValue|"
                   r"StreamBatchMemOp|WaitExternalSemaphores)")
# Structures and arrays that may point to memory of any context.
MANY = re.compile(r"(const )?CUDA_MEMCPY[23]D\w* \*|CUDA_MEMCPY3D_BATCH_OP \*|CUdeviceptr \*|"
                  r"CUmemDecompressParams \*|CUstreamBatchMemOpParams \*|CUDA_LAUNCH_PARAMS \*")
# Types of parameters that no code reads before the stand-in.
NUMBERS = {"unsigned", "int", "size_t", "cuuint32_t", "cuuint64_t", "unsigned short",
           "unsigned char", "unsigned long long", "CUdevice", "CUlimit", "CUdeviceptr_v1",
           "CUmemAllocationHandleType", "CUfunction_attribute", "CUfunc_cache"}
HANDLES = {"CUstreamCallback", "CUhostFn", "CUfunction", "CUgraphExec", "CUarray", "CUcontext",
           "CUexternalMemory", "CUmodule", "CUkernel", "CUlibrary", "CUgraph"}
VALUES = {"CUmemLocation", "CUipcMemHandle"}


def value(symbol, text, at):
    if text == "CUstream":
        return "t->stream"
    if text == "CUdeviceptr":
        return f"t->address[{at}]"
    if text == "const CUlaunchConfig *":
        return "&t->config"
    if text == "CUDA_LAUNCH_PARAMS *":
        return "t->launches"
    if text == "unsigned" and symbol == "cuLaunchCooperativeKernelMultiDevice":
        return "2"
    if text in NUMBERS:
        return f"({text}){0 if text == 'CUlimit' else 2}"
    if text in HANDLES:
        return f"({text})(uintptr_t)t->room"
    if text == "CUmemGenericAllocationHandle":
        return "1"
    if text in VALUES:
        return f"({text}){{0}}"
    if text.endswith("*"):
        return f"({text})(uintptr_t)t->room"
    sys.exit(f"rows.py: no argument stands for the type '{text}' of {symbol}")


def submits(symbol, types):
    return not NO_WORK.fullmatch(symbol) and (
        "CUstream" in types or re.match(r"cu(Memcpy|Memset|Launch)", symbol))


def main():
    functions_path, output = sys.argv[1:]
    with open(functions_path) as file:
        functions = re.findall(
            r"^CU_(FN|HOOK|SUBMIT|RETRY)\((\w+),\s*\w+,\s*\d+,\s*(\w+),\s*\((.*?)\),"
            r"\s*\(([^()]*)\)[,)]", file.read(), re.M | re.S)
    rows = []
    for kind, symbol, mode, params, args in functions:
        params = re.sub(r"\s+", " ", params)
        types = [re.sub(r"\b[a-k]$", "", p.strip()).strip() for p in params.split(",")]
        if symbol in BODIES and kind == "HOOK":
            kind = "BODY"
        if submits(symbol, types) and kind not in ("SUBMIT", "BODY"):
            sys.exit(f"rows.py: {symbol} seems to give work to a stream, and is no CU_SUBMIT row")
        if kind == "RETRY":
            stream = "NULL"
        elif kind in ("SUBMIT", "BODY"):
            named = [p.split()[-1] for p, text in zip(params.split(","), types)
                     if text == "CUstream"]
            stream = BODIES.get(symbol) or (named[0] if named else "NULL")
        else:
            continue
        values, addresses = [], 0
        for text in types:
            values.append(value(symbol, text, addresses))
            addresses += text == "CUdeviceptr"
        many = any(MANY.fullmatch(text) for text in types) or "GraphLaunch" in symbol
        slow = bool(HOLDS.match(symbol))
        rows.append(f"ROW({kind}, {symbol}, ({params}), ({args}), {stream},\n"
                    f"    {int(mode == 'PTDS')}, {addresses}, {int(many)}, {int(slow)}, "
                    f"({', '.join(values)}))\n")
    if len(functions) < 600:
        sys.exit(f"rows.py: only {len(functions)} rows in {functions_path}")
    with open(output, "w") as out:
        out.writelines(rows)


main()
