# Cross build for aarch64 on Debian: `cmake --preset aarch64`.
#   dpkg --add-architecture arm64 && apt-get update
#   apt-get install gcc-aarch64-linux-gnu qemu-user libjansson-dev:arm64 zlib1g-dev:arm64
#       libncurses-dev:arm64 check:arm64
# Programs run by qemu-user: unit tests, and the command whose help texts become manual pages.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)
# A toolkit found here is for this machine.
set(AC_CUDA_INCLUDE_DIR "" CACHE PATH "CUDA headers for aarch64")
set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)
