"""Writes sweep_rows.inc: one row for each hooked driver function, with the types of its arguments.

usage: sweep_rows.py cuda_functions.def OUTPUT

A new hook needs no change here.  If its signature has a type without a kind of argument, this script
fails, and the build with it."""
import re
import sys

# Type of a parameter -> kind of argument in sweep.c.
KINDS = {
    "size_t": "SIZE", "unsigned long long": "WIDE", "cuuint64_t": "WIDE",
    "unsigned": "NUMBER", "int": "NUMBER", "cuuint32_t": "NUMBER",
    "unsigned short": "NUMBER", "unsigned char": "NUMBER",
    "CUdevice": "DEVICE", "CUdeviceptr": "ADDRESS", "CUdeviceptr_v1": "ADDRESS32",
    "CUstream": "STREAM", "CUcontext": "CONTEXT", "CUevent": "EVENT", "CUarray": "ARRAY",
    "CUfunction": "FUNCTION", "CUgraph": "GRAPH", "CUgraphExec": "GRAPH_EXEC",
    "CUgraphNode": "HANDLE", "CUmipmappedArray": "HANDLE",
    "CUmemoryPool": "POOL", "CUmodule": "HANDLE", "CUgreenCtx": "HANDLE",
    "CUdevResourceDesc": "HANDLE", "CUexternalMemory": "HANDLE", "CUmipmappedArray": "HANDLE",
    "CUmemGenericAllocationHandle": "HANDLE64",
    "CUstreamCallback": "CALLBACK", "CUhostFn": "HOST_FN",
    "CUpointer_attribute": "ATTRIBUTE", "CUlimit": "NUMBER", "CUfunction_attribute": "NUMBER", "CUfunc_cache": "NUMBER",
    "CUkernel": "HANDLE", "CUdeviceptr_v1 *": "OUT_INT", "int *": "OUT_INT", "CUstreamCaptureMode": "NUMBER",
    "CUmemAllocationHandleType": "NUMBER", "CUmemRangeHandleType": "RANGE_TYPE",
    "CUmemLocation": "VALUE_LOCATION", "CUipcMemHandle": "VALUE_IPC",
    "const char *": "NAME", "const void *": "CONST_BYTES", "void *": "BYTES",
    "void **": "OUT_HANDLE", "size_t *": "OUT_SIZE", "char *": "OUT_BYTES",
    "CUdeviceptr *": "OUT_ADDRESS", "CUmemGenericAllocationHandle *": "OUT_HANDLE",
    "unsigned *": "OUT_INT", "unsigned long long *": "OUT_SIZE", "CUdriverProcAddressQueryResult *": "OUT_INT", "CUgraphExecUpdateResult *": "OUT_INT",
    "CUipcMemHandle *": "OUT_BYTES", "CUgraphNode *": "OUT_HANDLE",
    "CUpointer_attribute *": "IN_ATTRIBUTES", "const CUDA_MEMCPY2D *": "IN_COPY2D",
    "const CUDA_MEMCPY3D *": "IN_COPY3D", "const CUlaunchConfig *": "IN_LAUNCH",
    "const CUDA_ARRAY_DESCRIPTOR *": "IN_ARRAY", "const CUDA_ARRAY3D_DESCRIPTOR *": "IN_ARRAY3D",
    "const CUmemAllocationProp *": "IN_PROP", "const CUmemAccessDesc *": "IN_ACCESS",
    "const CUmemPoolProps *": "IN_POOL",
    "CUmemPool_attribute": "NUMBER", "CUmemAllocationType": "NUMBER",
    "CUmulticastGranularity_flags": "NUMBER",
    "CUkernelNodeAttrID": "NUMBER", "CUmemAccess_flags *": "OUT_INT",
    "CUmemPoolPtrExportData *": "OUT_BYTES", "CUipcEventHandle *": "OUT_BYTES",
    "CUipcEventHandle": "VALUE_IPC",
    "const void **": "OUT_HANDLE", "const CUuuid *": "CONST_BYTES",
}
OUT_HANDLES = {"CUcontext", "CUstream", "CUevent", "CUgraph", "CUgraphExec", "CUmodule",
               "CUlibrary", "CUarray", "CUmipmappedArray", "CUmemoryPool", "CUgreenCtx",
               "CUexternalMemory", "CUuserObject", "CUfunction", "CUkernel",
               "CUexternalSemaphore"}
# Structures that the driver reads: the sweep passes zero-filled ones.
IN_ZERO = {"CUDA_HOST_NODE_PARAMS", "CUDA_MEMSET_NODE_PARAMS", "CUDA_BATCH_MEM_OP_NODE_PARAMS",
           "CUDA_EXT_SEM_WAIT_NODE_PARAMS", "CUjit_option", "CUlibraryOption", "CUgraphNode", "CUgraphEdgeData", "CUgraphNodeParams",
           "CUstreamBatchMemOpParams", "CUDA_MEMCPY3D_BATCH_OP", "CUDA_MEMCPY3D_PEER",
           "CUmemcpyAttributes", "CUmemLocation", "CUgraphicsResource", "CUexternalSemaphore",
           "CUDA_MEMCPY2D_v1", "CUDA_MEMCPY3D_v1", "CUDA_GRAPH_INSTANTIATE_PARAMS",
           "CUmemDecompressParams", "CUarrayMapInfo", "CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS",
           "CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS", "CUexecAffinityParam", "CUctxCreateParams",
           "CUDA_EXTERNAL_MEMORY_HANDLE_DESC", "CUDA_EXTERNAL_MEMORY_BUFFER_DESC",
           "CUgraphExecUpdateResultInfo", "CUDA_LAUNCH_PARAMS",
           "CUkernelNodeAttrValue", "CUmulticastObjectProp", "CUDA_MEM_ALLOC_NODE_PARAMS",
           "CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC", "CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC"}


def kind_of(symbol, text):
    if "Batch" in symbol and text in ("CUdeviceptr *", "size_t *"):
        return "IN_ADDRESSES" if text == "CUdeviceptr *" else "IN_SIZES"
    if symbol.startswith(("cuMemcpy_", "cuMemcpyAsync")) or symbol == "cuMemcpy":
        if text == "CUdeviceptr":
            return "ANY_ADDRESS"
    if text in KINDS:
        return KINDS[text]
    pointed = re.fullmatch(r"(?:const )?(\w+) \*", text)
    if pointed and not text.startswith("const") and pointed[1] in OUT_HANDLES:
        return "OUT_HANDLE"
    if pointed and pointed[1] in IN_ZERO:
        return "IN_ZERO"
    if text == "CUlibrary":
        return "HANDLE"
    sys.exit(f"sweep_rows.py: no kind of argument stands for the type '{text}' of {symbol}")


def main():
    functions_path, output = sys.argv[1:]
    with open(functions_path) as file:
        hooks = re.findall(
            r"^CU_(HOOK|SUBMIT|RETRY)\((\w+),\s*\w+,\s*\d+,\s*\w+,\s*\((.*?)\),\s*\([^()]*\)[,)]",
            file.read(), re.M | re.S)
    with open(output, "w") as out:
        for hook, symbol, params in hooks:
            types, kinds, values = [], [], []
            for i, parameter in enumerate(params.split(",")):
                parameter = re.sub(r"\s+", " ", parameter.strip())
                if parameter == "void":
                    break
                types.append(re.sub(r"\b[a-k]$", "", parameter).strip())
                kinds.append(kind_of(symbol, types[-1]))
                by_value = kinds[-1].startswith("VALUE_")
                cast = f"*({types[-1]} *)(uintptr_t)" if by_value else f"({types[-1]})"
                if "*" in types[-1] or kinds[-1] in (
                        "STREAM", "CONTEXT", "EVENT", "ARRAY", "FUNCTION", "GRAPH", "GRAPH_EXEC",
                        "POOL", "HANDLE", "CALLBACK", "HOST_FN"):
                    cast += "(uintptr_t)"
                values.append(f"{cast}arg[{i}]")
            unused = "" if values else " (void)arg;"
            listed = ", ".join("ARG_" + kind for kind in kinds) or "ARG_COUNT"
            out.write(f"ROW({hook}, {symbol}, {len(kinds)}, ({listed}),\n"
                      f"    {{{unused} return {symbol}({', '.join(values)}); }})\n")
    print(f"{len(hooks)} rows")


main()
