#!/usr/bin/env bash
# Installs a build, checks the installed files, and builds a program with pkg-config and with find_package.
# usage: install.sh CMAKE BUILD CC CONSUMER LIBDIR     run in an empty folder of the test
set -eu
cmake=$1 build=$2 cc=$3 consumer=$4 libdir=$5
prefix=$PWD/prefix
rm -rf "$prefix" pkgconfig-consumer cmake-consumer
"$cmake" --install "$build" --prefix "$prefix" >install.log

for file in bin/accelcache include/accelcache.h "$libdir/libaccelcache.so" \
            "$libdir/accelcache/sim/libcuda.so.1" "$libdir/pkgconfig/accelcache.pc" \
            "$libdir/cmake/accelcache/accelcache-config.cmake"; do
    [ -e "$prefix/$file" ] || { echo "not installed: $file" >&2; exit 1; }
done
headers=$(cd "$prefix/include" && find . -type f | LC_ALL=C sort | tr '\n' ' ')
if [ "$headers" != "./accelcache.f90 ./accelcache.h ./accelcache.hpp ./accelcache_pools.h ./accelcache_rmm.hpp ./accelcache_torch.h " ]; then
    echo "not the public headers, and these alone: $headers" >&2
    exit 1
fi
# The prefix of this test is in the build folder. Other paths must not name the build folder.
if cat "$prefix/$libdir"/pkgconfig/* "$prefix/$libdir"/cmake/*/* | sed "s|$prefix||g" |
   grep -F "$build"; then
    echo "the package files name the build folder" >&2
    exit 1
fi

version=$("$prefix/bin/accelcache" --version)
[ -n "$version" ] || { echo "the installed command does not start" >&2; exit 1; }

# A program is built with pkg-config and its own compiler flags.
export PKG_CONFIG_PATH=$prefix/$libdir/pkgconfig
# shellcheck disable=SC2046 # the flags are words
"$cc" -std=c11 -Wall -Wextra -Wpedantic -Werror -o pkgconfig-consumer "$consumer/consumer.c" \
      $(pkg-config --cflags --libs accelcache)
LD_LIBRARY_PATH=$prefix/$libdir ./pkgconfig-consumer

# A program is built with find_package. CMake writes the run path.
"$cmake" -S "$consumer" -B cmake-consumer -DCMAKE_PREFIX_PATH="$prefix" \
         -DCMAKE_C_COMPILER="$cc" >cmake.log
"$cmake" --build cmake-consumer >>cmake.log
./cmake-consumer/consumer
