#!/bin/sh
# TaskProlog of slurm.conf: every task of jobs that ask for it (sbatch --export=ALL,ACCELCACHE=1)
# runs under the library.  Slurm reads the lines "export NAME=VALUE", without a shell.
[ "${ACCELCACHE:-0}" = 1 ] || exit 0
accelcache env --format plain --conf "dump:${SLURM_SUBMIT_DIR:-/tmp}/accelcache-%h-%r-%p.json" |
    sed 's/^/export /'
