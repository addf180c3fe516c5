# Licence: Apache-2.0.
#
# From a checkout:  spack develop --path CHECKOUT accelcache@main && spack install
from spack.package import *

try:  # Spack 1.0 and later keeps the class there
    from spack_repo.builtin.build_systems.cmake import CMakePackage
except ImportError:
    pass


class Accelcache(CMakePackage):
    """A stream-aware caching allocator under any unmodified CUDA program, by LD_PRELOAD."""

    homepage = "https://example.org/accelcache"
    license("Apache-2.0")

    version("main")  # the tree that `spack develop` names

    depends_on("c", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("python@3.7:", type="build")  # manual pages and completions
    depends_on("jansson")
    depends_on("zlib-api")
    depends_on("ncurses")

    conflicts("platform=darwin", msg="it preloads into programs of Linux with glibc")
    conflicts("platform=windows", msg="it preloads into programs of Linux with glibc")

    def cmake_args(self):
        return [
            self.define("BUILD_TESTING", False),
            self.define("AC_SHARED_DEPENDENCIES", True),
        ]

    def setup_run_environment(self, env):
        env.set("ACCELCACHE_LIBRARY", self.prefix.lib.join("libaccelcache.so"))
