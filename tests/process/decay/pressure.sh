#!/bin/sh
# Idle memory of a device that shares the host's goes back when tasks wait for memory: the kernel's
# figures are replaced, in a namespace of the test's own, by some that grow.
# usage: pressure.sh DECAY_PROGRAM
set -u
[ -r /proc/pressure/memory ] || { echo "this kernel tells nothing of pressure"; exit 77; }
if [ "${2:-}" != inside ]; then
    unshare --user --map-root-user --mount true 2>/dev/null || { echo "no namespaces here"; exit 77; }
    exec unshare --user --map-root-user --mount "$0" "$1" inside
fi
figures() { echo "some avg10=1.00 avg60=1.00 avg300=1.00 total=$1"; }
figures 1000000 >pressure
mount --bind pressure /proc/pressure/memory || { echo "no mounts here"; exit 77; }
"$1" stays || exit 1 # long enough for a look
(
    total=1000000
    while [ $total -lt 30000000 ]; do
        total=$((total + 200000))
        figures $total >pressure
        sleep 0.2
    done
) &
"$1" goes
status=$?
kill $! 2>/dev/null
exit $status
