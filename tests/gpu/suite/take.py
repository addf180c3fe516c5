"""Copies the output of a run on a GPU into the checkout: results, their page, and kept files."""
import json
import os
import shutil
import subprocess
import sys

import results

# Maps a folder of kept files to its folder in the tree.
PLACES = {"costs": "tools/simcuda/costs", "traces": "tests/command/traces"}
MOST = 8 << 20


def find(folder):
    """Returns the folder with results.json: `folder`, or tests/gpu in a bundle; None if absent."""
    for place in (folder, os.path.join(folder, "tests", "gpu")):
        if os.path.exists(os.path.join(place, "results.json")):
            return place
    return None


def take(folder, gpu, top):
    """Copies results and kept files. Returns 0; or prints why nothing was copied and returns 1."""
    place = find(folder)
    if not place:
        print("qualify: %s holds no results.json" % folder)
        return 1
    with open(os.path.join(place, "results.json"), encoding="utf-8") as file:
        result = json.load(file)
    if result.get("schema") != "accelcache-qualify" or result["simulated"]:
        print("qualify: %s is not of a run on a GPU" % place)
        return 1
    results.write(gpu, result)
    print("results of %s, %s" % (result["driver"]["devices"][0]["name"], result["date"]))
    kept = os.path.join(place, "kept")
    for name in sorted(os.listdir(kept)) if os.path.isdir(kept) else ():
        source = os.path.join(kept, name)
        if name not in PLACES or not os.path.isdir(source):
            print("left where it is: %s" % source)
            continue
        for file in sorted(os.listdir(source)):
            path = os.path.join(source, file)
            if not os.path.isfile(path) or os.path.getsize(path) > MOST:
                print("left where it is, no file of at most 8 MiB: %s" % path)
                continue
            target = os.path.join(top, PLACES[name])
            os.makedirs(target, exist_ok=True)
            shutil.copyfile(path, os.path.join(target, file))
            print("%s/%s" % (PLACES[name], file))
        if name == "traces":  # the folder's page is made from its notes
            subprocess.run([sys.executable, os.path.join(gpu, "traces"), "page",
                            os.path.join(top, PLACES[name])], check=True)
    return 0
