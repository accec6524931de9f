#!/bin/sh
# Packs a directory into a dated archive, reads the archive back, and writes a line to a log.
#
#     archive.sh DIRECTORY DESTINATION LOG
#
# Two of these at once would fight over the same files: run it through distlock, as in
# examples/crontab. The fencing token goes into the log, so that the order of runs can be told
# whatever the hosts' clocks say.
set -eu

usage="usage: archive.sh DIRECTORY DESTINATION LOG"
directory=${1:?$usage}
destination=${2:?$usage}
log=${3:?$usage}
archive=$destination/$(basename "$directory")-$(date -u +%Y%m%dT%H%M%SZ).tar.gz

trap 'rm -f "$archive.part"' EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

tar -czf "$archive.part" -C "$(dirname "$directory")" "$(basename "$directory")"
tar -tzf "$archive.part" >/dev/null
mv "$archive.part" "$archive"

printf '%s %s fence=%s %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$(uname -n)" \
    "${DISTLOCK_FENCE:-none}" "$archive" >>"$log"
