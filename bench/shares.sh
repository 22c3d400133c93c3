#!/bin/bash
# What clients get beside a rebuild; one command, a Markdown table.
#
#   bench/shares.sh [--rounds N] [--seconds N]
#
# Thirteen files on tmpfs behind `slow:`, 25 MB/s and 125 operations a second each, `pddl2:4d:13c:1s`. A client reads
# 4 KiB at random, depth 4: first of the healthy pool, then while what one drive held is rebuilt onto distributed space.
# Printed are medians over the rounds. `rebuilt` is how many of the lost cells were done when the client stopped, and
# `then alone` how long the rest took without it.
#
# The pool is filled through its throttled drives, which takes a minute; a round takes two.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=3 seconds=8
while [ $# -gt 0 ]; do
    case $1 in
        --rounds) rounds=$2; shift ;;
        --seconds) seconds=$2; shift ;;
        *) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2 ;;
    esac
    shift
done
ravelin=${RAVELIN:-target/release/ravelin}
[ -x "$ravelin" ] || cargo build --release -p ravelin
ravelin=$(realpath "$ravelin")

work=$(mktemp -d /dev/shm/ravelin-shares.XXXXXX)
export RAVELIN_SOCKET=$work/socket
daemon=
clean_up() {
    set +e
    [ -n "$daemon" ] && kill "$daemon" && wait "$daemon"
    rm -rf "$work"
} 2>/dev/null
trap clean_up EXIT
trap "exit 1" INT TERM
"$ravelin" daemon >"$work/log" 2>&1 &
daemon=$!
for _ in $(seq 100); do "$ravelin" pool list >/dev/null 2>&1 && break || sleep 0.1; done

field() { tr ',{}' '\n' | awk -F: -v name="\"$1\"" '$1 ~ name { print $2; exit }'; }

# Reads a second, and the 99th percentile of their latency in milliseconds.
reads() {
    local out
    out=$("$ravelin" --json bench s/v --rw randread --bs 4k --iodepth 4 --time "$seconds" --yes)
    echo "$(field iops <<<"$out") $(field p99_us <<<"$out" | awk '{ print $1 / 1000 }')"
}

round() {
    local drives=() index healthy beside done total begin
    for index in $(seq 13); do
        truncate -s 600M "$work/d$index"
        drives+=("slow:$work/d$index?bandwidth=25M&iops=125")
    done
    "$ravelin" pool create s pddl2:4d:13c:1s "${drives[@]}" -o cell=16M --yes >/dev/null
    "$ravelin" volume create s/v --size 3000M >/dev/null
    # What was not written is read without a drive.
    "$ravelin" bench s/v --rw write --bs 1m --iodepth 8 --time 70 --yes >/dev/null
    healthy=$(reads)
    "$ravelin" drive fail s 3 >/dev/null
    beside=$(reads)
    read -r done total < <("$ravelin" --json status | tr ',{}' '\n' |
        awk -F: '/"cells_done"/ { d = $2 } /"cells_total"/ { t = $2 } END { print d + 0, t + 0 }')
    begin=$(date +%s.%N)
    "$ravelin" pool wait s --for rebuild >/dev/null
    echo "$healthy $beside $done $total $(awk "BEGIN { print $(date +%s.%N) - $begin }")" >>"$work/rows"
    "$ravelin" pool destroy s --yes >/dev/null
    rm -f "$work"/d*
}

median() { cut -d' ' -f"$1" <"$work/rows" | sort -g | awk -v d="$2" '{ v[NR] = $1 } END { printf "%.*f", d, (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'; }

for _ in $(seq "$rounds"); do round; done
echo "$(date -u +%F), load $(cut -d' ' -f1-3 /proc/loadavg), $(nproc) CPUs, kernel $(uname -r), $rounds rounds of $seconds s"
echo
echo "| 4 KiB reads, depth 4 | healthy | p99, ms | during the rebuild | p99, ms | rebuilt | then alone, s |"
echo "| --- | --: | --: | --: | --: | --: | --: |"
echo "| pddl2:4d:13c:1s, 25 MB/s, 125/s | $(median 1 0) | $(median 2 0) | $(median 3 0) | $(median 4 0) | $(median 5 0) of $(median 6 0) | $(median 7 1) |"
