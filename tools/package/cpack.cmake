# Packages: `cpack -G DEB` and `cpack -G TXZ` in a build folder.  finish.cmake strips the installed
# files and makes their times the same in every build.
set(CPACK_PACKAGE_NAME accelcache)
set(CPACK_PACKAGE_VENDOR accelcache)
set(CPACK_PACKAGE_CONTACT "accelcache packagers <accelcache@example.org>"
    CACHE STRING "Maintainer that packages and their changelog name")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "stream-aware caching allocator for CUDA programs")
set(CPACK_PACKAGE_DESCRIPTION
"Preloaded into an unmodified CUDA program, the library serves cudaMalloc,
cudaMallocAsync and cuMemAlloc from memory that the program freed before, as
soon as the GPU is done with it, and writes statistics when the program exits.
.
The package holds the library, its header, the command accelcache, and a
simulated CUDA device, on which programs run where there is no GPU.")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_PACKAGE_CHECKSUM SHA256)
set(CPACK_GENERATOR "DEB;TXZ" CACHE STRING "Kinds of packages that cpack makes")
set(CPACK_SYSTEM_NAME ${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_THREADS 0)

# For finish.cmake.
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_SOURCE_DIR}/finish.cmake)
set(CPACK_AC_STRIP ${CMAKE_STRIP})
set(CPACK_AC_DEBIAN ${CMAKE_CURRENT_SOURCE_DIR}/debian)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
# Dependencies of programs that link the library.  CPack's own list would also name the simulated
# driver, and programs that need a driver must not depend on this package.
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/shlibs @ONLY
     CONTENT "libaccelcache @PROJECT_VERSION_MAJOR@ accelcache (>= @PROJECT_VERSION@)\n")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_SOURCE_DIR}/debian/triggers
    ${CMAKE_CURRENT_BINARY_DIR}/shlibs)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libdw1") # source lines of call sites
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libjs-dygraphs, python3, valgrind")
# The needed libraries and versions are read from the symbols, with exceptions: dpkg-shlibdeps would require
# 2.34 for functions that moved between glibc's own libraries then.  The package contains the drivers and
# runtimes that its programs load.
find_program(AC_SHLIBDEPS dpkg-shlibdeps)
if(AC_GLIBC_LINK)
    set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= ${AC_GLIBC})")
elseif(AC_SHLIBDEPS)
    set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
    set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${AC_SIM_DIR} ${CMAKE_BINARY_DIR}/lib
        ${CMAKE_BINARY_DIR}/libexec/accelcache/free)
endif()

include(CPack)
