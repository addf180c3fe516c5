"""accelcache: a caching allocator under unmodified CUDA programs.  `accelcache run -- PROGRAM`, or
`python -m accelcache run -- PROGRAM`; accelcache.library() is the path for LD_PRELOAD."""
from accelcache.__main__ import library

__all__ = ["library"]
