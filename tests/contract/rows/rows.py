"""Writes rows.inc: what the test of every row knows of it, from the driver's signatures alone.

usage: rows.py hooks.def cuda_functions.def OUTPUT

One line for each HOOK_SUBMIT and HOOK_RETRY row of hooks.def and each body that submits:

    ROW(kind, symbol, (parameters), (arguments), stream, per thread, addresses, many, slow, call)

hooks.def says which rows there are, and nothing else: where the work goes and which memory it names
comes from the types of cuda_functions.def, so that a row with a wrong stream or a forgotten address
differs from what stands here.  A type that is not here, or a function that submits and is no row,
makes this fail, and with it the build."""
import re
import sys

# What submits and has a hand-written body; `stream` as an expression over the parameters.
BODIES = {
    "cuLaunchKernelEx": "a ? a->hStream : NULL",
    "cuLaunchKernelEx_ptsz": "a ? a->hStream : NULL",
    "cuLaunchCooperativeKernelMultiDevice": "a[1].hStream",  # and a[0].hStream before it
}
# Functions of a stream that give it no work: they ask, or they order what is there.
NO_WORK = re.compile(
    r"cuStream(Get|Set|Copy|Is)\w+|cu(Mem(Alloc|Free)|EventRecord|StreamWaitEvent|StreamDestroy|"
    r"StreamSynchronize|StreamQuery|StreamBeginCapture|StreamEndCapture|"
    r"StreamUpdateCaptureDependencies)\w*")
# Work that may wait for something else that the program does, on its stream.
HOLDS = re.compile(r"cu(LaunchHostFunc|LaunchCooperativeKernel|StreamAddCallback|StreamWaitValue|"
                   r"StreamBatchMemOp|WaitExternalSemaphores)")
# Structures, arrays and handles behind which there is memory of any context.
MANY = re.compile(r"(const )?CUDA_MEMCPY[23]D\w* \*|CUDA_MEMCPY3D_BATCH_OP \*|CUdeviceptr \*|"
                  r"CUmemDecompressParams \*|CUstreamBatchMemOpParams \*|CUDA_LAUNCH_PARAMS \*")
# Types of parameters that no driver function would look at before the stand-in does.
NUMBERS = {"unsigned", "int", "size_t", "cuuint32_t", "cuuint64_t", "unsigned short",
           "unsigned char", "unsigned long long", "CUdevice", "CUlimit", "CUdeviceptr_v1",
           "CUmemAllocationHandleType"}
HANDLES = {"CUstreamCallback", "CUhostFn", "CUfunction", "CUgraphExec", "CUarray", "CUcontext",
           "CUexternalMemory"}
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
        return "2" if text != "CUlimit" else "(CUlimit)0"
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
    hooks_path, functions_path, output = sys.argv[1:]
    with open(functions_path) as file:
        functions = re.findall(
            r"^CU_FN\((\w+),\s*\w+,\s*\d+,\s*(\w+),\s*\((.*?)\),\s*\(([^()]*)\)\)$",
            file.read(), re.M | re.S)
    with open(hooks_path) as file:
        kinds = dict((symbol, kind) for kind, symbol in
                     re.findall(r"^HOOK_(SUBMIT|RETRY|BODY)\((\w+)", file.read(), re.M))
    rows = []
    for symbol, mode, params, args in functions:
        params = re.sub(r"\s+", " ", params)
        types = [re.sub(r"\b[a-k]$", "", p.strip()).strip() for p in params.split(",")]
        kind = "BODY" if symbol in BODIES else kinds.get(symbol)
        if submits(symbol, types) and kinds.get(symbol) != "SUBMIT" and symbol not in BODIES:
            sys.exit(f"rows.py: {symbol} seems to give work to a stream, and is no row of its kind")
        if kind == "RETRY":
            stream = "NULL"
        elif kind == "SUBMIT" or symbol in BODIES:
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
        kinds.pop(symbol, None)
    for symbol, kind in kinds.items():
        if kind != "BODY":
            sys.exit(f"rows.py: {symbol} is not in cuda_functions.def")
    with open(output, "w") as out:
        out.writelines(rows)


main()
