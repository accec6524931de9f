#!/bin/bash
# A locked command in the middle of a pipeline: stdin and stdout are its own, untouched. bash,
# because its pipefail makes the status of distlock that of the pipeline.
#
#     produce | pipeline.sh NAME OUTPUT
#
# Sorts what comes in, compresses it, and puts it in place as a whole or not at all.
set -euo pipefail

usage="usage: produce | pipeline.sh NAME OUTPUT"
name=${1:?$usage}
output=${2:?$usage}
trap 'rm -f "$output.part"' EXIT

status=0
distlock run --name "$name" -- sort -u | gzip >"$output.part" || status=$?
case $status in
    0) mv "$output.part" "$output" ;;
    75) echo "pipeline.sh: another host is at it; nothing done" >&2 ;;
    79) echo "pipeline.sh: the lock was lost on the way; output thrown away" >&2 ;;
    *) echo "pipeline.sh: failed ($status); output thrown away" >&2 ;;
esac
exit "$status"
