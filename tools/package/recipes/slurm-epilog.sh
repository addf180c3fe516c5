#!/bin/sh
# Epilog of slurm.conf: once a node, as root, when a job ends.  Tasks that were killed (scancel, time
# limit, out of memory) wrote no dump, but their figures are still in /dev/shm: they go into a file of
# the node, read with the rights of the job's user.  A Prolog is not needed.
#
# What killed tasks of other jobs of that user left is in the file as well.  It stays where it is until
# the user removes it (accelcache stat --remove), 64 files at most.  Whatever goes wrong, the node
# stays in service: status 0.
dumps=${ACCELCACHE_EPILOG_DIR:-/var/log/accelcache}
uid=${SLURM_JOB_UID:-}
[ -n "$uid" ] && [ -d "${ACCEL_LIVE_DIR:-/dev/shm}/accelcache-$uid" ] || exit 0
mkdir -p "$dumps" || exit 0
timeout 20 setpriv --reuid "$uid" --clear-groups accelcache stat --json \
    >"$dumps/job-${SLURM_JOB_ID:-0}-$(hostname -s).json" 2>/dev/null
exit 0
