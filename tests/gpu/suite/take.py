"""What a run on a GPU brought back, into the checkout: results, the page made of them, and the files
that checks kept."""
import json
import os
import shutil
import subprocess
import sys

import results

# Folder among the kept files -> where the tree has such files.
PLACES = {"costs": "tools/simcuda/costs", "traces": "tests/command/traces"}
MOST = 8 << 20


def find(folder):
    """The folder with results.json: given itself, or a bundle's."""
    for place in (folder, os.path.join(folder, "tests", "gpu")):
        if os.path.exists(os.path.join(place, "results.json")):
            return place
    return None


def take(folder, gpu, top):
    """0, or 1 after a word: nothing was taken."""
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
        if name == "traces":  # the page of the folder is made of the notes in it
            subprocess.run([sys.executable, os.path.join(gpu, "traces"), "page",
                            os.path.join(top, PLACES[name])], check=True)
    return 0
