#!/bin/sh
#SBATCH --job-name=accelcache
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-task=1
# A batch script: each task of the program runs under the library, srun itself does not.
#
# usage: sbatch slurm.sh PROGRAM [ARGUMENT...]
#
# The dumps of all tasks lie in accelcache-JOB, one for each host and rank.
set -eu
dumps=${SLURM_SUBMIT_DIR:-$PWD}/accelcache-${SLURM_JOB_ID:-0}
mkdir -p "$dumps"
conf=dump:$dumps/accelcache-%h-%r.json${ACCEL_ALLOC_CONF:+,$ACCEL_ALLOC_CONF}
status=0
srun accelcache run --conf "$conf" -- "$@" || status=$?
# Once a node: tasks that were killed there (scancel, out of memory) wrote no file, but their figures
# are still in the memory of that node.
srun --ntasks-per-node=1 accelcache stat --summary "$dumps" || true
exit $status
