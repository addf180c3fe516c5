#!/usr/bin/env bash
# Runs an installation in a root with an older glibc and no other software: no shell, compiler or library.
# usage: older.sh CMAKE BUILD     in a folder of the test; exits 77 if no root with an older glibc is available
set -eu
cmake=$1 build=$2
here=$(cd "$(dirname "$0")" && pwd)
space=(unshare --user --map-root-user --mount)
"${space[@]}" true 2>log || { echo "no namespaces here: $(cat log)"; exit 77; }
"$here/older_root" "$(dpkg --print-architecture 2>/dev/null)" root
rm -rf root/usr/bin root/usr/lib/accelcache* root/tmp/*
"$cmake" --install "$build" --prefix root/usr >install.log
inside() {
    # shellcheck disable=SC2016
    "${space[@]}" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin sh -c \
        'mount --rbind /proc root/proc && exec chroot root "$@"' sh "$@"
}
for conf in expandable_segments:false expandable_segments:true; do
    inside /usr/bin/accelcache run --sim --conf "$conf" --dump /tmp/d.json -- \
           /usr/bin/accelcache-demo --iterations 20 >out
    grep -q "^wrong results  *0$" out || { cat out; exit 1; }
    inside /usr/bin/accelcache stat /tmp/d.json >shown
    grep -q "from cache *[1-9]" shown || { cat shown; exit 1; }
done
