# Cross build for aarch64 on Debian: `cmake --preset aarch64`, or all of it by `tests/aarch64`.
#   dpkg --add-architecture arm64 && apt-get update
#   apt-get install g++-aarch64-linux-gnu qemu-user-static libjansson-dev:arm64 zlib1g-dev:arm64
#       libncurses-dev:arm64 check:arm64 libstdc++6:arm64
# qemu runs unit tests, and the command: its help texts become manual pages.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
# The emulator is static: LD_PRELOAD is for the program, not for the emulator.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)
set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)
# A toolkit, valgrind or Fortran compiler found here is for the build machine.
foreach(name CMAKE_Fortran_COMPILER AC_CUDA_INCLUDE_DIR AC_NVCC AC_PTXAS AC_VALGRIND AC_CUDART_STATIC CUDART_ORIGINAL)
    set(${name} "" CACHE STRING "none for aarch64")
endforeach()
