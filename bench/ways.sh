#!/bin/bash
# The cost of the ways to a volume, as docs/performance.md reports it; one command, two Markdown tables.
#
#   bench/ways.sh [ROUNDS [SECONDS]]          as root, with fio; nbdkit and nbdfuse for the peer
#
# 1. raid0 through `ravelin bench`, and fio on the same raw drives, in turn in each round.
# 2. A volume as a file through FUSE with a loop device over it, compared with nbdkit and nbdfuse.
#
# Wall-clock rates on a shared machine vary much, CPU time per request less, and ratios inside one
# round least. Printed are medians over the rounds. CPU time in the second table is that of the
# server's processes and of the kernel's workers, which do a loop device's I/O; fio's is not included.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-7} seconds=${2:-2}
ravelin=${RAVELIN:-target/release/ravelin}
[ -x "$ravelin" ] || cargo build --release -p ravelin
ravelin=$(realpath "$ravelin")
work=$(mktemp -d /dev/shm/ravelin-ways.XXXXXX)
export RAVELIN_SOCKET=$work/socket
loops=() zrams=() processes=()

clean_up() {
    set +e
    for device in "${loops[@]}"; do losetup -d "$device" 2>/dev/null; done
    sleep 0.3
    for process in "${processes[@]}"; do kill "$process" 2>/dev/null; done
    wait 2>/dev/null
    for number in "${zrams[@]}"; do
        echo 1 >"/sys/block/zram$number/reset"
        echo "$number" >/sys/class/zram-control/hot_remove
    done
    umount -l "$work/peer" 2>/dev/null
    rm -rf "$work"
}
trap clean_up EXIT

# NAME FILE: a loop device, in the variable NAME; removed at the end.
make_loop() {
    local made
    made=$(losetup --direct-io=on -f --show "$2")
    loops+=("$made")
    printf -v "$1" %s "$made"
}

# Column $2 of fio's terse output version 3 for a run on the files $1 (joined by colons).
fio_run() {
    local files=$1 rw=$2 depth=$3
    fio --name=bench --filename="$files" --rw="$rw" --bs=4k --iodepth="$depth" --ioengine=io_uring \
        --direct=1 --time_based=1 --runtime="$seconds" --norandommap=1 --minimal 2>/dev/null |
        awk -F';' -v rw="$rw" '{ print rw ~ /read/ ? $8 : $49 }'
}

# The requests per second and CPU microseconds per request of `ravelin bench`.
bench_run() {
    "$ravelin" --json bench "$1" --rw "$2" --bs 4k --iodepth 32 --time "$seconds" --yes |
        tr ',{}' '\n' | awk -F: '/"iops"/ { i = $2 } /"cpu_us_per_io"/ { c = $2 } END { print i, c }'
}

# CPU nanoseconds so far of the given processes and of the kernel's workers.
cpu() {
    local process
    for process in "$@"; do cat /proc/"$process"/task/*/schedstat 2>/dev/null; done |
        awk '{ s += $1 } END { printf "%.0f ", s }'
    for process in /proc/[0-9]*; do
        if [[ $(<"$process/comm") == kworker* ]]; then cat "$process/schedstat"; fi 2>/dev/null
    done 2>/dev/null | awk '{ s += $1 } END { printf "%.0f\n", s }'
}

median() { sort -g | awk '{ v[NR] = $1 } END { printf "%.2f", (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'; }

"$ravelin" daemon >"$work/log" 2>&1 &
daemon=$!
processes+=("$daemon")
for _ in $(seq 100); do "$ravelin" pool list >/dev/null 2>&1 && break || sleep 0.1; done

echo "$(date -u +%F), load $(cut -d' ' -f1-3 /proc/loadavg), $(nproc) CPUs, kernel $(uname -r), $rounds rounds of $seconds s"

# ---- raid0 against its drives.
declare -A drives
for index in 0 1 2 3; do
    truncate -s 256M "$work/file$index"
    make_loop device "$work/file$index"
    drives[loop]+="$device "
    number=$(cat /sys/class/zram-control/hot_add)
    zrams+=("$number")
    echo 256M >"/sys/block/zram$number/disksize"
    drives[zram]+="/dev/zram$number "
done
for kind in loop zram; do
    # shellcheck disable=SC2086
    "$ravelin" pool create "$kind" raid0 ${drives[$kind]} --yes >/dev/null
    "$ravelin" volume create "$kind/v" --size 900M >/dev/null
    # Random bytes everywhere, because zram stores no constant pages.
    "$ravelin" volume attach "$kind/v" --fuse "$work/$kind.img" >/dev/null
    dd if=/dev/urandom of="$work/$kind.img" bs=1M count=900 conv=notrunc status=none
    "$ravelin" volume detach "$kind/v" >/dev/null
done
for round in $(seq "$rounds"); do
    for kind in loop zram; do
        raw=$(fio_run "$(echo ${drives[$kind]} | tr ' ' :)" randread 32)
        read -r rate cost < <(bench_run "$kind/v" randread)
        echo "$raw" >>"$work/$kind.raw"
        echo "$rate" >>"$work/$kind.rate"
        echo "$cost" >>"$work/$kind.cost"
        awk "BEGIN { print $rate / $raw }" >>"$work/$kind.ratio"
    done
done
echo
echo "| 4 KiB random reads, depth 32, one job | raw drives, by fio /s | raid0, by \`ravelin bench\` /s | ratio | CPU µs per read, generator included |"
echo "| --- | --: | --: | --: | --: |"
for kind in loop zram; do
    echo "| four $kind devices | $(median <"$work/$kind.raw") | $(median <"$work/$kind.rate") | $(median <"$work/$kind.ratio") | $(median <"$work/$kind.cost") |"
done

# ---- FUSE and loop, beside nbdkit and nbdfuse.
"$ravelin" pool create fuse raid0 mem:160M mem:160M mem:160M mem:160M >/dev/null
"$ravelin" volume create fuse/v --size 256M >/dev/null
"$ravelin" volume attach fuse/v --fuse "$work/volume.img" >/dev/null
make_loop ours "$work/volume.img"
ways=(ours)
declare -A device=([ours]=$ours) server=([ours]=$daemon)
if command -v nbdkit >/dev/null && command -v nbdfuse >/dev/null; then
    nbdkit -f -U "$work/nbdkit" memory 256M &
    processes+=("$!")
    server[peer]=$!
    mkdir "$work/peer"
    for _ in $(seq 50); do [ -S "$work/nbdkit" ] && break || sleep 0.1; done
    nbdfuse "$work/peer/disk" "nbd+unix:///?socket=$work/nbdkit" &
    processes+=("$!")
    server[peer]+=" $!"
    for _ in $(seq 50); do [ -f "$work/peer/disk" ] && break || sleep 0.1; done
    make_loop peer "$work/peer/disk"
    device[peer]=$peer
    ways+=(peer)
else
    echo "skipped: nbdkit or nbdfuse is not installed"
fi
for way in "${ways[@]}"; do fio_run "${device[$way]}" randwrite 32 >/dev/null; done
for round in $(seq "$rounds"); do
    for way in "${ways[@]}"; do
        for rw in randread randwrite; do
            # shellcheck disable=SC2086
            before=$(cpu ${server[$way]})
            rate=$(fio_run "${device[$way]}" "$rw" 32)
            # shellcheck disable=SC2086
            after=$(cpu ${server[$way]})
            echo "$before $after $rate $seconds" | awk '{ n = $5 * $6 * 1000; print ($3 - $1) / n }' >>"$work/$way.$rw.server"
            echo "$before $after $rate $seconds" | awk '{ n = $5 * $6 * 1000; print ($4 - $2) / n }' >>"$work/$way.$rw.kernel"
            echo "$before $after $rate $seconds" | awk '{ n = $5 * $6 * 1000; print ($3 - $1 + $4 - $2) / n }' >>"$work/$way.$rw.sum"
            echo "$rate" >>"$work/$way.$rw.rate"
        done
    done
done
echo
echo "| FUSE file and loop, 4 KiB, depth 32 | server µs | kernel's workers µs | together µs | rate /s |"
echo "| --- | --: | --: | --: | --: |"
for way in "${ways[@]}"; do
    name="Ravelin, raid0 in memory"
    [ "$way" = peer ] && name="nbdkit memory and nbdfuse"
    for rw in randread randwrite; do
        echo "| $name, $rw | $(median <"$work/$way.$rw.server") | $(median <"$work/$way.$rw.kernel") | $(median <"$work/$way.$rw.sum") | $(median <"$work/$way.$rw.rate") |"
    done
done
