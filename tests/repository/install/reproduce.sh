#!/usr/bin/env bash
# Builds the library in two folders. The results must be equal byte for byte, with debug information.
# usage: reproduce.sh CMAKE SOURCE CC     run in an empty folder of the test
#
# The builds are not optimised, to save time: names of folders appear at any level of optimisation.
set -eu
cmake=$1 source=$2 cc=$3
export CCACHE_DISABLE=1
for place in one "another/much longer/place"; do
    rm -rf "$place"
    mkdir -p "$place/source"
    for part in CMakeLists.txt LICENSE README.md .github include shim tools; do
        cp -R "$source/$part" "$place/source/$part"
    done
    "$cmake" -S "$place/source" -B "$place/build" -DCMAKE_C_COMPILER="$cc" -DBUILD_TESTING=OFF \
             -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE="-O0 -g" >"$place/log"
    "$cmake" --build "$place/build" --target accelcache --parallel 2 >>"$place/log"
done
cmp "one/build/lib/libaccelcache.so" "another/much longer/place/build/lib/libaccelcache.so"
if grep -aqF "$PWD" one/build/lib/libaccelcache.so; then
    echo "the library names the folder that it was built in: $PWD" >&2
    exit 1
fi
readelf -SW one/build/lib/libaccelcache.so | grep -q '\.debug_info' ||
    { echo "there is no debug information that could name a folder" >&2; exit 2; }
