#!/bin/bash
# The space that drives still use after all of a full volume is discarded, and after the volume is deleted, and the rate of a client of
# another volume meanwhile; one command, a Markdown table.
#
#   bench/discards.sh [--size GiB] [--scheme SCHEME] [--slow RATE]
#
# Six sparse files on the file system of $TMPDIR (/tmp), which must have room for twice the size and support holes. With --slow the files
# are behind `slow:` with this rate (`bandwidth=100M&iops=500`). The volume is a loop device over FUSE, so the script needs root. The
# volume is written twice, so that stripes have moved. Every second, for a minute at most, the script reads how much space the files
# occupy. The client writes 4 KiB at random, each write durable when it is answered: for five seconds before the discard, and for five
# seconds from the discard on.
set -euo pipefail
cd "$(dirname "$0")/.."
size=4 scheme=raid6 slow=
while [ $# -gt 0 ]; do
    case $1 in
        --size) size=$2; shift ;;
        --scheme) scheme=$2; shift ;;
        --slow) slow=$2; shift ;;
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

fill() {
    dd if=/dev/urandom bs=1M count=64 of="$work/block" 2>/dev/null
    for index in $(seq 0 $((size * 16 - 1))); do
        dd if="$work/block" of="$(device)" bs=1M seek=$((index * 64)) conv=notrunc oflag=direct 2>/dev/null
    done
    sync "$(device)"
}

# Commits a second, and the 99th percentile of their latency in milliseconds.
commits() {
    local out
    out=$("$ravelin" --json bench s/b --bs 4k --rw randwrite --iodepth 1 --sync --time 5 --yes)
    echo "$(field iops <<<"$out" | cut -d. -f1) ($(field p99_us <<<"$out" | awk '{ printf "%.1f", $1 / 1000 }'))"
}

# WHAT COMMAND…: a row about a filled volume.
row() {
    local what=$1 full begun seconds=0 left alone beside client
    shift
    attach
    fill
    fill
    alone=$(commits)
    full=$(used)
    begun=$(date +%s)
    commits >"$work/beside" &
    client=$!
    "$@"
    while left=$(used); [ $((left * 20)) -gt "$full" ] && [ $(($(date +%s) - begun)) -lt 60 ]; do sleep 1; done
    seconds=$(($(date +%s) - begun))
    wait "$client"
    beside=$(cat "$work/beside")
    echo "| $what | $full | $left | $(awk -v l="$left" -v f="$full" 'BEGIN { printf "%.1f %%", 100 * l / f }') | $seconds s | $alone | $beside |"
}

discard() { blkdiscard "$(device)"; }
delete() { detach; "$ravelin" volume delete s/v --yes >/dev/null; }

drives=()
for index in $(seq 6); do
    truncate -s 8G "$files/d$index"
    drives+=("${slow:+slow:}$files/d$index${slow:+?$slow}")
done
"$ravelin" pool create s "$scheme" "${drives[@]}" --yes >/dev/null
"$ravelin" volume create s/v --size "${size}G" >/dev/null
"$ravelin" volume create s/b --size 64M >/dev/null
machine
echo
echo "| after | MiB when full | MiB left | | within | commits of another client, /s (p99, ms) | beside |"
echo "| --- | --: | --: | --: | --: | --: | --: |"
row "\`blkdiscard\` of all of it" discard
detach
row "\`volume delete\`" delete
