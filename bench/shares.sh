#!/bin/bash
# What clients get beside other work; one command, Markdown tables.
#
#   bench/shares.sh [--rounds N] [--seconds N] [--only commits|rebuild]
#
# commits   `raid6` on six files on tmpfs behind `slow:`. A client writes 4 KiB at random on one volume, each write durable
#           when it is answered: alone, and while another one writes 1 MiB at depth 8 on another volume.
# rebuild   Thirteen files, 25 MB/s and 125 operations a second each, `pddl2:4d:13c:1s`. A client reads 4 KiB at random,
#           depth 4: first of the healthy pool, then while what one drive held is rebuilt onto distributed space. `rebuilt`
#           is how many of the lost cells were done when the client stopped, and `then alone` how long the rest took
#           without it.
#
# Printed are medians over the rounds. A round takes two minutes and a half: the pools are filled through their throttled drives.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=3 seconds=8 only=
while [ $# -gt 0 ]; do
    case $1 in
        --rounds) rounds=$2; shift ;;
        --seconds) seconds=$2; shift ;;
        --only) only=$2; shift ;;
        *) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2 ;;
    esac
    shift
done
. bench/daemon.sh

# SCHEME DRIVES BYTES RATE OPTION…: a pool of throttled files.
pool() {
    local index scheme=$1 count=$2 bytes=$3 rate=$4 drives=()
    for index in $(seq "$count"); do
        truncate -s "$bytes" "$work/d$index"
        drives+=("slow:$work/d$index?$rate")
    done
    "$ravelin" pool create s "$scheme" "${drives[@]}" "${@:5}" --yes >/dev/null
}

end_pool() {
    "$ravelin" pool destroy s --yes >/dev/null
    rm -f "$work"/d*
}

# VOLUME OPTION…: requests a second, and the 99th percentile of their latency in milliseconds.
load() {
    local out
    out=$("$ravelin" --json bench "s/$1" --bs 4k --time "$seconds" --yes "${@:2}")
    echo "$(field iops <<<"$out") $(field p99_us <<<"$out" | awk '{ print $1 / 1000 }')"
}

# SECONDS: MiB/s of a stream.
stream() {
    "$ravelin" --json bench s/a --rw write --bs 1m --iodepth 8 --time "$1" --yes | field bytes_per_second |
        awk '{ print $1 / 1048576 }'
}

commits() {
    local commit=(--rw randwrite --iodepth 1 --sync) alone beside quiet writer
    pool raid6 6 1G "$2"
    "$ravelin" volume create s/a --size 1000M >/dev/null
    "$ravelin" volume create s/b --size 64M >/dev/null
    quiet=$(stream "$seconds")
    alone=$(load b "${commit[@]}")
    stream $((seconds + 4)) >"$work/stream" &
    writer=$!
    sleep 2
    beside=$(load b "${commit[@]}")
    wait "$writer"
    echo "$alone $beside $quiet $(cat "$work/stream")" >>"$work/commits-$1"
    end_pool
}

rebuild() {
    local reads=(--rw randread --iodepth 4) healthy beside done total begin
    pool pddl2:4d:13c:1s 13 600M "bandwidth=25M&iops=125" -o cell=16M
    "$ravelin" volume create s/v --size 3000M >/dev/null
    # What was not written is read without a drive.
    "$ravelin" bench s/v --rw write --bs 1m --iodepth 8 --time 70 --yes >/dev/null
    healthy=$(load v "${reads[@]}")
    "$ravelin" drive fail s 3 >/dev/null
    beside=$(load v "${reads[@]}")
    read -r done total < <("$ravelin" --json status | tr ',{}' '\n' |
        awk -F: '/"cells_done"/ { d = $2 } /"cells_total"/ { t = $2 } END { print d + 0, t + 0 }')
    begin=$(date +%s.%N)
    "$ravelin" pool wait s --for rebuild >/dev/null
    echo "$healthy $beside $done $total $(awk "BEGIN { print $(date +%s.%N) - $begin }")" >>"$work/rebuild"
    end_pool
}

# FILE COLUMN DIGITS
column() { cut -d' ' -f"$2" <"$work/$1" | median "$3"; }

flash="latency=80us&iops=50000&bandwidth=500M" disk="bandwidth=100M&iops=500"
for _ in $(seq "$rounds"); do
    if [ "$only" != rebuild ]; then
        commits flash "$flash"
        commits disk "$disk"
    fi
    [ "$only" = commits ] || rebuild
done
echo "$(machine), $rounds rounds of $seconds s"
if [ "$only" != rebuild ]; then
    echo
    echo "| \`raid6\`, six drives, 4 KiB commits | alone, /s | p99, ms | beside a stream | p99, ms | stream alone, MiB/s | beside commits |"
    echo "| --- | --: | --: | --: | --: | --: | --: |"
    for kind in flash disk; do
        at=commits-$kind
        echo "| \`${!kind}\` | $(column $at 1 0) | $(column $at 2 1) | $(column $at 3 0) | $(column $at 4 1) | $(column $at 5 0) | $(column $at 6 0) |"
    done
fi
if [ "$only" != commits ]; then
    echo
    echo "| 4 KiB reads, depth 4 | healthy | p99, ms | during the rebuild | p99, ms | rebuilt | then alone, s |"
    echo "| --- | --: | --: | --: | --: | --: | --: |"
    echo "| pddl2:4d:13c:1s, 25 MB/s, 125/s | $(column rebuild 1 0) | $(column rebuild 2 0) | $(column rebuild 3 0) | $(column rebuild 4 0) | $(column rebuild 5 0) of $(column rebuild 6 0) | $(column rebuild 7 1) |"
fi
