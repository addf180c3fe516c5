#!/bin/sh
# Runs an MPI program with the library under every rank, and nothing of it in mpirun itself.
#
# usage: mpirun.sh RANKS PROGRAM [ARGUMENT...]
#
# One file of statistics for each host and rank appears in the folder that DUMPS names
# (accelcache-dumps); `accelcache stat` shows them in a line each, with those that stand apart.
set -eu
ranks=$1
shift
dumps=${DUMPS:-accelcache-dumps}
mkdir -p "$dumps"
conf=dump:$(cd "$dumps" && pwd)/accelcache-%h-%r.json${ACCEL_ALLOC_CONF:+,$ACCEL_ALLOC_CONF}
library=$(accelcache env --format plain | sed -n 's/^LD_PRELOAD=//p')

if mpirun --version 2>&1 | grep -q "Open MPI"; then
    mpirun -n "$ranks" -x "LD_PRELOAD=$library" -x "ACCEL_ALLOC_CONF=$conf" "$@"
else # MPICH, Intel MPI
    mpirun -n "$ranks" -genv LD_PRELOAD "$library" -genv ACCEL_ALLOC_CONF "$conf" "$@"
fi
accelcache stat "$dumps"
