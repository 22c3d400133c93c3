#!/bin/bash
# First writes to a new volume beside the same writes to one whose groups have all been written before; one command, a Markdown table.
#
#   bench/first_writes.sh [--rounds N] [--size SIZE] [--seconds N] [--slow RATE] [--mkfs SIZE] [--only WORD]
#
# `raid6` on six sparse files of 4 TiB on tmpfs behind `slow:` (`bandwidth=100M&iops=500`). Rows:
# - random: 4 KiB, depth 16, three runs one after the other. The volume (--size, 256G: 5.5 GB of tmpfs) is new, or has one block
#   written in every 32 MiB.
# - stream: 1 MiB, depth 8, to a new volume of 10 TiB and to one of 4 GiB.
# - mkfs: `mkfs.ext4` of a new volume (--mkfs, 10T: 4 GB of tmpfs), and once more. Needs root.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=3 size=256G seconds=12 slow='bandwidth=100M&iops=500' mkfs=10T only=
while [ $# -gt 0 ]; do
    case $1 in
        --rounds) rounds=$2; shift ;;
        --size) size=$2; shift ;;
        --seconds) seconds=$2; shift ;;
        --slow) slow=$2; shift ;;
        --mkfs) mkfs=$2; shift ;;
        --only) only=$2; shift ;;
        *) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2 ;;
    esac
    shift
done
. bench/daemon.sh

# SIZE: a pool with one volume of this size.
pool() {
    local drives=()
    for drive in 1 2 3 4 5 6; do
        rm -f "$work/d$drive"
        truncate -s 4T "$work/d$drive"
        drives+=("slow:$work/d$drive?$slow")
    done
    "$ravelin" pool create s raid6 "${drives[@]}" --yes >/dev/null
    "$ravelin" volume create s/v --size "$1" >/dev/null
}
gone() { "$ravelin" pool destroy s --yes >/dev/null; }

# A block in every 32 MiB of the volume, which no group is smaller than.
touch_groups() {
    "$ravelin" volume attach s/v --fuse "$work/v" >/dev/null
    fio --name=touch --filename="$work/v" --direct=1 --ioengine=io_uring --iodepth=32 --bs=4k --rw=write --zonemode=strided \
        --zonesize=4k --zonerange=32m --number_ios=$(($(stat --format %s "$work/v") >> 25)) >"$work/fio" 2>&1
    "$ravelin" volume detach s/v >/dev/null
    sleep 10
}

# MODE BYTES DEPTH: requests a second, and the 99th percentile of their latency in milliseconds.
load() {
    local out
    out=$("$ravelin" --json bench s/v --rw "$1" --bs "$2" --iodepth "$3" --time "$seconds" --yes)
    echo "$(field iops <<<"$out" | cut -d. -f1) $(field p99_us <<<"$out" | awk '{ printf "%.0f", $1 / 1000 }')"
}

# FILE COLUMN: the median.
of() { awk -v column="$2" '{ print $column }' "$work/$1" | median 0; }

random() {
    local run
    pool "$size"
    [ "$1" = new ] || touch_groups
    for run in 1 2 3; do load randwrite 4k 16 >>"$work/random-$1-$run"; done
    gone
}

stream() {
    pool "$2"
    load write 1m 8 >>"$work/stream-$1"
    gone
}

format() {
    local device begun which
    pool "$mkfs"
    "$ravelin" volume attach s/v --fuse "$work/v" --loop >/dev/null
    device=$(losetup --noheadings --output NAME --associated "$work/v")
    for which in new written; do
        begun=$(date +%s%N)
        mkfs.ext4 -q -F -E nodiscard "$device"
        sync "$device"
        echo "$((($(date +%s%N) - begun) / 1000000)) $(du -c --block-size=1M "$work"/d? | tail -1 | cut -f1)" >>"$work/mkfs-$which"
    done
    "$ravelin" volume detach s/v >/dev/null
    gone
}

wanted() { [[ $1 == *"$only"* ]]; }
for _ in $(seq "$rounds"); do
    if wanted random; then
        random new
        random written
    fi
    if wanted stream; then
        stream new 10T
        stream small 4G
    fi
    if wanted mkfs; then format; fi
done

machine
echo
echo "| load | new volume | written before |"
echo "| --- | --- | --- |"
if wanted random; then
    for run in 1 2 3; do
        row="| 4 KiB at random, depth 16, run $run |"
        for which in new written; do
            row+=" $(of "random-$which-$run" 1) /s, p99 $(of "random-$which-$run" 2) ms |"
        done
        echo "$row"
    done
fi
if wanted stream; then echo "| 1 MiB, depth 8; beside it a new volume of 4 GiB | $(of stream-new 1) MiB/s | $(of stream-small 1) MiB/s |"; fi
if wanted mkfs; then
    echo "| \`mkfs.ext4\`, $mkfs | $(of mkfs-new 1) ms, $(of mkfs-new 2) MiB on the drives | $(of mkfs-written 1) ms |"
fi
