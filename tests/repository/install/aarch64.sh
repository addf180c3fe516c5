#!/usr/bin/env bash
# Builds the library and the simulated device for aarch64, and runs a program with them under qemu: with
# pages of 4 KiB and of 64 KiB, and with an older glibc. `tests/run --aarch64` runs all other tests.
# usage: aarch64.sh CMAKE SOURCE      in a folder of the test; exits 77 without cross toolchain or qemu
set -eu
cmake=$1 source=$2
for need in aarch64-linux-gnu-gcc qemu-aarch64-static; do
    command -v $need >/dev/null || { echo "$need is missing: tests/run --aarch64 installs it"; exit 77; }
done
[ -e /usr/lib/aarch64-linux-gnu/pkgconfig/jansson.pc ] ||
    { echo "libjansson-dev:arm64 is missing: tests/run --aarch64 installs it"; exit 77; }
command -v ccache >/dev/null && export CMAKE_C_COMPILER_LAUNCHER=ccache
"$cmake" -S "$source" -B build -DCMAKE_TOOLCHAIN_FILE="$source/tools/package/aarch64.cmake" \
         -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE=-O1 -DBUILD_TESTING=OFF >log
"$cmake" --build build --target accelcache simcuda demo accelcache_command --parallel 2 >>log
here=$(cd "$(dirname "$0")" && pwd)
python3 "$here/needs.py" readelf 2.28 build/lib/libaccelcache.so.0 build/sim build/bin/demo build/bin/accelcache
pages=(4096 65536)
"$here/older_root" arm64 older && pages+=(older)
for page in "${pages[@]}"; do
    # Programs find libc6:arm64 in the root; libjansson needs it. The loader must come from there too: with
    # the loader of the cross compiler, pthread_create never returns, because their shared data differ.
    root=/
    if [ "$page" = older ]; then root=$PWD/older page=4096; fi
    for conf in expandable_segments:false expandable_segments:true; do
        rm -f dump.json
        out=$(QEMU_LD_PREFIX=$root QEMU_PAGESIZE=$page SIMCUDA_SPACE_GB=8 LD_LIBRARY_PATH=$PWD/build/sim \
              ACCEL_LIVE_DIR=$PWD ACCEL_CONF_FILE=none ACCEL_ALLOC_CONF="dump:$PWD/dump.json,$conf" \
              timeout -k 5 120 qemu-aarch64-static -E LD_PRELOAD="$PWD/build/lib/libaccelcache.so" \
              build/bin/demo --iterations 20 2>messages) || { echo "$page, $conf: status $?"; cat messages; exit 1; }
        grep -q "^wrong results  *0$" <<<"$out" || { echo "$page, $conf: $out"; exit 1; }
        # The demo prints times to this file. The library prints only errors.
        ! grep "^accelcache" messages || { echo "$page, $conf"; exit 1; }
        qemu-aarch64-static build/bin/accelcache stat dump.json >shown
        grep -q "from cache *[1-9]" shown || { echo "$page, $conf:"; cat shown; exit 1; }
    done
done
