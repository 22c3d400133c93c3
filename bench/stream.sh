#!/bin/bash
# Rates of streams on throttled drives, as docs/performance.md reports them; one command, a Markdown table.
#
#   bench/stream.sh [--json] [--rounds N] [--seconds N] [--size MIB] [--only WORD] [--bs BYTES] [--iodepth N]
#
# Files on tmpfs behind `slow:`, so that the drives are the same on every machine:
#   A  16 MiB/s each, any number of operations
#   B  100 MiB/s each and 500 operations a second, like disks
# The files are sparse and of 4 GiB, so that cells have their usual 16 MiB, and groups their free stripes, unless a row says otherwise.
# For each scheme, a pool with journal and checksums and one without both take turns. A round makes the pool, writes its
# volume for the first time (1 MiB at depth 8, or as the options say), fills the rest, overwrites the volume, and reads it. Printed are
# medians over the rounds in MiB/s. The bound is the rate of the drives with operations of 256 KiB; for writes, without the share
# of parity. `operation` is the mean length of the drives' own operations in the first writes.
#
# A run of first writes that is longer than the volume goes on with overwrites: choose `--size` as the rate times `--seconds`, or more.
#
# The defaults, five rounds of 5 s on volumes of 600 MiB, take an hour and a half. docs/performance.md names the shorter run
# that its rows come from.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=5 seconds=5 size=600 only= json= bs=1m depth=8
while [ $# -gt 0 ]; do
    case $1 in
        --json) json=1 ;;
        --rounds) rounds=$2; shift ;;
        --seconds) seconds=$2; shift ;;
        --size) size=$2; shift ;;
        --only) only=$2; shift ;;
        --bs) bs=$2; shift ;;
        --iodepth) depth=$2; shift ;;
        *) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2 ;;
    esac
    shift
done
. bench/daemon.sh

# Scheme, drives, data and all columns of a stripe, options.
schemes=(
    "raid0 6 1 1"
    "raid5 6 5 6"
    "raid6 6 4 6"
    "raid10 6 1 2"
    "pddl2:4d:13c:1s 13 4 6 -o cell=16M"
    "ddp:4d:2p:13c:1s 13 4 6 -o cell=16M"
    "raid6:dcode:7c 7 5 7"
)
declare -A rate=([A]="bandwidth=16M" [B]="bandwidth=100M&iops=500")
# MiB/s of one drive with operations of 256 KiB.
declare -A each=([A]=16 [B]=$(awk 'BEGIN { print 0.25 / (0.25 / 100 + 1 / 500) }'))

# RW SECONDS: MiB/s of a run on the pool's volume.
run() {
    "$ravelin" --json bench s/v --rw "$1" --bs "$bs" --iodepth "$depth" --time "$2" --yes | field bytes_per_second |
        awk '{ printf "%.1f\n", $1 / 1048576 }'
}

# Bytes and operations that the pool's drives have written.
written() {
    "$ravelin" --json pool iostat s | tr ',{}' '\n' |
        awk -F: '/"volumes"/ { exit } /"write_bytes"/ { b += $2 } /"writes"/ { n += $2 } END { print b + 0, n + 0 }'
}

# NAME SCHEME RATE DRIVES OPTIONS…: one round.
round() {
    local name=$1 scheme=$2 throttle=$3 count=$4 drives=() index rates before after
    shift 4
    for index in $(seq "$count"); do
        truncate -s 4G "$work/d$index"
        drives+=("slow:$work/d$index?$throttle")
    done
    "$ravelin" pool create s "$scheme" "${drives[@]}" "$@" --yes >/dev/null
    "$ravelin" volume create s/v --size "${size}M" >/dev/null
    read -r -a before < <(written)
    rates=$(run write "$seconds")
    read -r -a after < <(written)
    # Fills the rest, because unwritten blocks are read without a drive.
    run write "$(awk "BEGIN { print int($size / ($rates + 0.1)) + 1 }")" >/dev/null
    echo "$rates $(run write "$seconds") $(run read "$seconds") $(awk "BEGIN { n = ${after[1]} - ${before[1]}; print (n > 0 ? (${after[0]} - ${before[0]}) / n / 1024 : 0) }")" >>"$work/$name.rates"
    "$ravelin" pool destroy s --yes >/dev/null
    rm -f "$work"/d*
}

# FILE COLUMN: the median.
column() { cut -d' ' -f"$2" <"$1" | median 1; }

rows=()
for drives in A B; do
    for entry in "${schemes[@]}"; do
        read -r scheme count data all options <<<"$entry"
        [[ "$drives $scheme" == *$only* ]] || continue
        for _ in $(seq "$rounds"); do
            # shellcheck disable=SC2086
            round "$drives-$scheme-with" "$scheme" "${rate[$drives]}" "$count" $options
            # shellcheck disable=SC2086
            round "$drives-$scheme-without" "$scheme" "${rate[$drives]}" "$count" $options -o journal=intent -o checksum=off
        done
        for kind in with without; do
            file=$work/$drives-$scheme-$kind.rates
            bound=$(awk "BEGIN { printf \"%.1f\", $count * ${each[$drives]} }")
            share=$(awk "BEGIN { printf \"%.1f\", $bound * $data / $all }")
            rows+=("$drives $scheme $kind $(column "$file" 1) $(column "$file" 2) $share $(column "$file" 3) $bound $(column "$file" 4)")
        done
    done
done

if [ -n "$json" ]; then
    printf '%s\n' "${rows[@]}" | awk '
        BEGIN { printf "[" }
        { printf "%s\n  {\"drives\": \"%s\", \"scheme\": \"%s\", \"journal_and_checksums\": %s, \"first_writes\": %s, \"overwrites\": %s, \"write_bound\": %s, \"reads\": %s, \"read_bound\": %s, \"operation_kib\": %s}",
            (NR > 1 ? "," : ""), $1, $2, ($3 == "with" ? "true" : "false"), $4, $5, $6, $7, $8, $9 }
        END { print "\n]" }'
    exit
fi
echo "$(machine), $rounds rounds of $seconds s, requests of $bs at depth $depth, volumes of $size MiB"
echo
echo "| drives | scheme | journal and checksums | first writes | overwrites | bound | reads | bound | operation, KiB |"
echo "| --- | --- | --- | --: | --: | --: | --: | --: | --: |"
printf '%s\n' "${rows[@]}" | sed 's/^/| /; s/ / | /2g; s/$/ |/'
