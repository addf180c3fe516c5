#!/bin/sh
# By rattler-build, which sets SRC_DIR, PREFIX, CPU_COUNT and CMAKE_ARGS: conda has jansson, zlib and
# ncurses as shared libraries.
set -eu
# shellcheck disable=SC2086
cmake -S "$SRC_DIR" -B conda-build ${CMAKE_ARGS:-} -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_INSTALL_PREFIX="$PREFIX" -DCMAKE_INSTALL_LIBDIR=lib -DBUILD_TESTING=OFF \
    -DAC_SHARED_DEPENDENCIES=ON
cmake --build conda-build --target product --parallel "${CPU_COUNT:-2}"
cmake --install conda-build
