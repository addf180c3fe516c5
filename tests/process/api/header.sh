#!/usr/bin/env bash
# usage: header.sh FOLDER CC [CXX]     compiles each header of FOLDER alone, by every standard that it suits,
#                                      with the initialisers of its structures
set -eu
folder=$1 cc=$2 cxx=${3-}
flags=(-Wall -Wextra -Wpedantic -Wshadow -Werror -fsyntax-only -I "$folder")
compile() { # compiler, language, standard, header
    {
        echo "#include \"$4\""
        sed -n 's/^#define ACCEL_\(\w*\)_INIT .*/\1/p' "$folder/$4" | while read -r name; do
            echo "accel_${name,,}_t make_$name(void); accel_${name,,}_t make_$name(void) {"
            echo "    accel_${name,,}_t made = ACCEL_${name}_INIT; return made; }"
        done
    } | "$1" "-std=$3" "${flags[@]}" -x "$2" -
}
for header in accelcache.h accelcache_pools.h accelcache_torch.h; do
    for standard in c11 c17 gnu17; do
        compile "$cc" c $standard $header
    done
done
[ -n "$cxx" ] || exit 0
for header in accelcache.h accelcache_pools.h accelcache_torch.h accelcache.hpp; do
    for standard in c++11 c++14 c++17 c++20; do
        compile "$cxx" c++ $standard $header
    done
done
for standard in c++17 c++20; do
    compile "$cxx" c++ $standard accelcache_rmm.hpp
done
