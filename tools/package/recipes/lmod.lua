-- Lmod: MODULEPATH/accelcache/0.1.0.lua, for a prefix that `cmake --install` filled.
-- `module load accelcache` gives the command; programs run under the library by
-- `accelcache run -- ./app`, or by `export LD_PRELOAD=$ACCELCACHE_LIBRARY`.
help([[A stream-aware caching allocator under unmodified CUDA programs: accelcache run -- ./app]])
whatis("Name: accelcache")
whatis("Description: caching allocator for GPU memory, by LD_PRELOAD")

local prefix = os.getenv("ACCELCACHE_PREFIX") or "/opt/accelcache/0.1.0"
prepend_path("PATH", pathJoin(prefix, "bin"))
prepend_path("MANPATH", pathJoin(prefix, "share/man"))
prepend_path("PKG_CONFIG_PATH", pathJoin(prefix, "lib/pkgconfig"))
prepend_path("CMAKE_PREFIX_PATH", prefix)
setenv("ACCELCACHE_LIBRARY", pathJoin(prefix, "lib/libaccelcache.so"))
