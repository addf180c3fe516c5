"""`accelcache` and `python -m accelcache`: the command that lies in this package."""
import glob
import os
import sys

PREFIX = os.path.join(os.path.dirname(os.path.abspath(__file__)), "install")


def library():
    """The path for LD_PRELOAD."""
    return glob.glob(os.path.join(PREFIX, "lib*", "**", "libaccelcache.so"), recursive=True)[0]


def main():
    command = os.path.join(PREFIX, "bin", "accelcache")
    try:
        os.execv(command, ["accelcache", *sys.argv[1:]])
    except OSError as error:
        print(f"accelcache: {command}: {error.strerror}", file=sys.stderr)
        return 126
    return 0


if __name__ == "__main__":
    sys.exit(main())
