#!/usr/bin/env python3
"""Checks dumps against shim/observe/dump.schema.json, which tests/repository/readme/tables.py generates.

usage: dump_schema.py ROOT DUMP_PROGRAM      exit status 77: python3-jsonschema is missing
"""
import copy
import json
import os
import subprocess
import sys
import tempfile

root, program = sys.argv[1:3]
with open(os.path.join(root, "shim/observe/dump.schema.json"), encoding="utf-8") as file:
    schema = json.load(file)


folder = tempfile.mkdtemp()
os.environ["ACCEL_LIVE_DIR"] = tempfile.mkdtemp()
os.environ["RANK"] = "3"
for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"):
    os.environ.pop(name, None)


def dump(*conf):
    run = subprocess.run([program, os.path.join(folder, "%e-%r-%p.json"), *conf], check=True,
                         stdout=subprocess.PIPE)
    path = run.stdout.decode().strip()
    with open(path, encoding="utf-8") as file:
        text = file.read()
    assert text.endswith("}\n")
    return path, json.loads(text)


path, plain = dump()
assert os.path.basename(path) == f"{os.path.basename(program)}-3-{plain['process']['pid']}.json"
assert plain["process"]["rank"] == 3 and plain["process"]["argv"][0] == program
assert plain["process"]["ppid"] == os.getpid()
assert plain["config"]["error"] is None
assert plain["config"]["effective"]["large_segment_size_mb"] == "20"
assert [d["ordinal"] for d in plain["devices"]] == [0, 3]
assert plain["devices"][0]["uuid"] is None
assert plain["devices"][1]["uuid"] == "GPU-a5a5a5a5-a5a5-a5a5-a5a5-a5a5a5a5a5a5"
assert plain["devices"][0]["name"] == 'Device "\ufffd" of tests'
assert plain["devices"][0]["total_memory"] == 80 << 30
assert plain["devices"][0]["stats"]["max_split_size"] == -1
assert plain["devices"][0]["stats"]["allocated_bytes"]["small_pool"] == {
    "current": 512, "peak": 512, "allocated": 512, "freed": 0}
assert plain["devices"][0]["counters"]["cached_allocs"] == 11
assert plain["counters"]["submissions"] == 7
assert plain["hooks"] == {"cudaMalloc": 5} and plain["hook_count"] == 3
assert plain["warnings"][0] == "warning 0"
assert plain["warnings"][-1] == "2 more warnings were not kept"
_, tuned = dump("garbage_collection_threshold:0.8,memory_limit:3G,dump_interval:1.5")
effective = tuned["config"]["effective"]
assert effective["garbage_collection_threshold"] == "0.8", "the host's locale shows"
assert effective["memory_limit"] == "3G" and effective["dump_interval"] == "1.5"
_, wrong = dump("fence:no")
assert wrong["config"]["string"] == "fence:no" and "position 6" in wrong["config"]["error"]
assert wrong["config"]["effective"]["fence"] == "auto"
assert sorted(os.listdir(folder)) == sorted(
    f"{os.path.basename(program)}-3-{d['process']['pid']}.json" for d in (plain, tuned, wrong)), \
    "leftover files"

try:
    import jsonschema
except ImportError:
    print("python3-jsonschema is missing: contents compared, schema not applied")
    sys.exit(77)
jsonschema.Draft7Validator.check_schema(schema)
validator = jsonschema.Draft7Validator(schema)
laid = copy.deepcopy(plain)
laid.update(reason="out of memory", module_names=[None, "app"], out_of_memory={
    "device": 0, "bytes": 5, "module": 1, "thread": 9, "async": False, "at_limit": False,
    "limit": None, "device_free": 7, "other_processes": 1,
    "others": [{"pid": 1, "same_namespace": True, "program": "app", "reserved": 3}]},
    recorded={
        "stacks": "sampled", "sample_bytes": 524288, "history": 16, "time_ns": 1, "lost_blocks": 0,
        "lost_stacks": 0, "files": ["/a.so"], "build_ids": ["0a1b"], "texts": [["train", "train.py"]],
        "sites": [{"device": 0, "stack": 1, "blocks": 1, "bytes": 512, "requested": 5,
                   "estimated": 524288}],
        "peak": {"requested": 9, "sites": [{"device": 0, "stack": 1, "blocks": 1, "requested": 9, "estimated": 524288}]},
        "stack": [{"frames": [1, 4096, -1, 12], "requests": 2, "bytes": 10}]},
    history=[{"device": 0, "events": 2, "dropped": 0,
              "event": [["alloc", 1, 4096, 5, 0, 1, 99], ["snapshot", 2, 0, 0, 0, 0, 99]]}],
    layout=[{"device": 0, "address": 4096, "size": 1024, "pool": "small", "expandable": False,
             "exported": False, "blocks": [
                 {"address": 4096, "size": 512, "state": "allocated", "requested": 5, "module": 1,
                  "stack": 1, "since_ns": 1},
                 {"address": 4608, "size": 512, "state": "free"}]},
            {"device": 0, "address": 8192, "size": 2048, "pool": "large", "expandable": True,
             "exported": False, "guarded": True, "blocks": [
                 {"address": 8192, "size": 512, "state": "unmapped", "requested": 5, "module": 1,
                  "asked_ago_ms": 9, "freed_ago_ms": 7, "freed_by": 0}]}],
    layout_partial=True)
for document in (plain, tuned, wrong, laid):
    errors = [f"{list(e.path)}: {e.message}" for e in validator.iter_errors(document)]
    assert not errors, errors

# The schema must refuse each of these changes.
breakages = [
    lambda d: d.pop("reason"),
    lambda d: d.update(reason="because"),
    lambda d: d.update(more=1),
    lambda d: d.update(version=2),
    lambda d: d["devices"][0]["stats"].pop("num_ooms"),
    lambda d: d["devices"][0]["stats"]["segment"]["all"].update(current=-1),
    lambda d: d["devices"][0]["counters"].update(unknown=1),
    lambda d: d["hooks"].update(cuMemFree_v2=0),
    lambda d: d["config"]["effective"].update(fence=1),
    lambda d: d.update(time="yesterday"),
]
for number, breakage in enumerate(breakages):
    document = copy.deepcopy(plain)
    breakage(document)
    assert not validator.is_valid(document), f"breakage {number} was accepted"
print(f"{len(breakages)} breakages refused, 3 dumps valid")
