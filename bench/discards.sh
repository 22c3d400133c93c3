#!/bin/bash
# What drives keep of a volume that was filled, after all of it is discarded and after it is deleted; one command, a Markdown table.
#
#   bench/discards.sh [--size GiB] [--scheme SCHEME]
#
# Six sparse files on the file system of $TMPDIR (/tmp), which must have twice the size and punch holes. The volume is a
# loop device over FUSE, so this takes root. Asked is every second what the files occupy, for a minute at most.
set -euo pipefail
cd "$(dirname "$0")/.."
size=4 scheme=raid6
while [ $# -gt 0 ]; do
    case $1 in
        --size) size=$2; shift ;;
        --scheme) scheme=$2; shift ;;
        *) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2 ;;
    esac
    shift
done
. bench/daemon.sh
files=$(mktemp -d "${TMPDIR:-/tmp}/ravelin-discards.XXXXXX")
trap 'clean_up; rm -rf "$files"' EXIT

used() { du -s --block-size=1M "$files" | cut -f1; }

attach() { "$ravelin" volume attach s/v --fuse "$work/v" --loop >/dev/null; }
detach() { "$ravelin" volume detach s/v >/dev/null; }
device() { losetup --noheadings --output NAME --associated "$work/v"; }

# WHAT COMMAND…: a row about a filled volume.
row() {
    local what=$1 full begun seconds=0 left
    shift
    attach
    dd if=/dev/urandom bs=1M count=64 of="$work/block" 2>/dev/null
    for index in $(seq 0 $((size * 16 - 1))); do
        dd if="$work/block" of="$(device)" bs=1M seek=$((index * 64)) conv=notrunc oflag=direct 2>/dev/null
    done
    sync "$(device)"
    full=$(used)
    begun=$(date +%s)
    "$@"
    while left=$(used); [ $((left * 20)) -gt "$full" ] && [ $(($(date +%s) - begun)) -lt 60 ]; do sleep 1; done
    seconds=$(($(date +%s) - begun))
    echo "| $what | $full | $left | $(awk -v l="$left" -v f="$full" 'BEGIN { printf "%.1f %%", 100 * l / f }') | $seconds s |"
}

discard() { blkdiscard "$(device)"; }
delete() { detach; "$ravelin" volume delete s/v --yes >/dev/null; }

drives=()
for index in $(seq 6); do truncate -s 8G "$files/d$index"; drives+=("$files/d$index"); done
"$ravelin" pool create s "$scheme" "${drives[@]}" --yes >/dev/null
"$ravelin" volume create s/v --size "${size}G" >/dev/null
machine
echo
echo "| after | MiB when full | MiB left | | within |"
echo "| --- | --: | --: | --: | --: |"
row "\`blkdiscard\` of all of it" discard
detach
row "\`volume delete\`" delete
