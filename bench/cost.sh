#!/bin/bash
# The cost of journal and checksums, as docs/performance.md reports it; one command, Markdown tables.
#
#   bench/cost.sh [ROUNDS [SECONDS]]      as root, with fio and btrfs-progs for the second and third
#
# 1. raid5 and raid6 on memory drives, with both and with neither: 4 KiB writes and reads at random.
# 2. Four loop devices on tmpfs, 4 KiB at random, depth 32: raid5 and raid6 with everything on
#    (through `ravelin bench`), btrfs (raid5, raid6; nodatacow, on a preallocated file) and one raw
#    loop device (both by fio).
# 3. The same reads of a pool that has no checksum in memory yet, and again a second later.
#
# Everything runs in turn in each round. Printed are medians over the rounds, also of the ratios within a
# round. CPU time in the first table is the process's, generator included. The other tables show rates by the
# clock, because btrfs does its work in the kernel's workers.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5} seconds=${2:-1}
ravelin=${RAVELIN:-target/release/ravelin}
pool_cost=${POOL_COST:-target/release/examples/pool_cost}
if ! [ -x "$ravelin" ] || ! [ -x "$pool_cost" ]; then
    cargo build --release -p ravelin -p ravelin-engine --bin ravelin --example pool_cost
fi
ravelin=$(realpath "$ravelin")

echo "$(date -u +%F), load $(cut -d' ' -f1-3 /proc/loadavg), $(nproc) CPUs, kernel $(uname -r), $rounds rounds of $seconds s"
echo
"$pool_cost" --rounds "$rounds" --seconds "$seconds" raid5 raid6

for tool in fio losetup; do
    if ! command -v $tool >/dev/null || [ "$(id -u)" != 0 ]; then
        echo "skipped: $tool is not installed, or this is not root"
        exit 0
    fi
done
work=$(mktemp -d /dev/shm/ravelin-cost.XXXXXX)
export RAVELIN_SOCKET=$work/socket
loops=() mounts=() daemon=
clean_up() {
    set +e
    for mount in "${mounts[@]}"; do umount "$mount"; done
    [ -n "$daemon" ] && kill "$daemon" && wait "$daemon"
    for device in "${loops[@]}"; do losetup -d "$device"; done
    sleep 0.3
    rm -rf "$work"
} 2>/dev/null
trap clean_up EXIT
trap "exit 1" INT TERM

# NAME SIZE: four loop devices on tmpfs, in the variable NAME.
make_loops() {
    local index device all=()
    for index in 0 1 2 3; do
        truncate -s "$2" "$work/$1$index"
        device=$(losetup --direct-io=on -f --show "$work/$1$index")
        loops+=("$device")
        all+=("$device")
    done
    printf -v "$1" %s "${all[*]}"
}

# Requests per second of fio on a file.
fio_run() {
    fio --name=bench --filename="$1" --rw="$2" --bs=4k --iodepth=32 --ioengine=io_uring --direct=1 \
        --size="${3:-100%}" --time_based=1 --runtime="$seconds" --norandommap=1 --minimal 2>/dev/null |
        awk -F';' -v rw="$2" '{ print rw ~ /read/ ? $8 : $49 }'
}

bench_run() {
    "$ravelin" --json bench "$1" --rw "$2" --bs 4k --iodepth 32 --time "$seconds" --yes |
        tr ',{}' '\n' | awk -F: '/"iops"/ { print $2 }'
}

# NAME COMMAND…: keeps the rate that the command prints, and its ratio to the raw device's rate of this round.
keep() {
    local name=$1 rate
    shift
    rate=$("$@")
    [[ $name == raw-* ]] && raw=$rate
    echo "$rate" >>"$work/$name.rate"
    awk "BEGIN { print $rate / $raw }" >>"$work/$name.ratio"
}

median() { sort -g | awk '{ v[NR] = $1 } END { printf "%.*f", d, (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }' d="$1"; }

"$ravelin" daemon >"$work/log" 2>&1 &
daemon=$!
for _ in $(seq 100); do "$ravelin" pool list >/dev/null 2>&1 && break || sleep 0.1; done

ours=(raid5 raid6) theirs=()
for scheme in raid5 raid6; do
    make_loops "$scheme" 512M
    # shellcheck disable=SC2086
    "$ravelin" pool create $scheme $scheme ${!scheme} --yes >/dev/null
    "$ravelin" volume create $scheme/v --size 256M >/dev/null
done
make_loops single 512M
raw_device=${single%% *}
dd if=/dev/urandom of="$raw_device" bs=1M count=256 oflag=direct status=none
if command -v mkfs.btrfs >/dev/null && { modprobe btrfs 2>/dev/null || grep -q btrfs /proc/filesystems; }; then
    for profile in raid5 raid6; do
        make_loops "btrfs_$profile" 512M
        name=btrfs_$profile
        # shellcheck disable=SC2086
        mkfs.btrfs -q -f -d $profile -m raid1 ${!name} >/dev/null 2>&1
        mkdir "$work/mount-$profile"
        # shellcheck disable=SC2086
        btrfs device scan ${!name} >/dev/null
        mount -o nodatacow "${loops[-4]}" "$work/mount-$profile"
        mounts+=("$work/mount-$profile")
        dd if=/dev/urandom of="$work/mount-$profile/file" bs=1M count=256 status=none
        sync -f "$work/mount-$profile/file"
        theirs+=("$profile")
    done
else
    echo "skipped: btrfs is not there to compare with"
fi
# Everything is written once, because unwritten blocks are read without a drive.
for scheme in "${ours[@]}"; do
    "$ravelin" volume attach $scheme/v --fuse "$work/$scheme.img" >/dev/null
    dd if=/dev/urandom of="$work/$scheme.img" bs=1M count=256 conv=notrunc status=none
    "$ravelin" volume detach $scheme/v >/dev/null
done
sleep 2

for _ in $(seq "$rounds"); do
    for rw in randwrite randread; do
        keep raw-$rw fio_run "$raw_device" $rw 256M
        for scheme in "${ours[@]}"; do keep "$scheme-$rw" bench_run $scheme/v $rw; done
        for profile in "${theirs[@]}"; do keep "btrfs-$profile-$rw" fio_run "$work/mount-$profile/file" $rw; done
        # The checkpoint of these writes must end before the next measurement.
        sleep 1.5
    done
done
echo
echo "| 4 KiB at random, depth 32, four loop devices | overwrites /s | of raw | reads /s | of raw |"
echo "| --- | --: | --: | --: | --: |"
for name in raw "${ours[@]}" "${theirs[@]/#/btrfs-}"; do
    [ -e "$work/$name-randread.rate" ] || continue
    title=$name
    [ "$name" = raw ] && title="one raw loop device"
    line="| $title |"
    for rw in randwrite randread; do
        line+=" $(median 0 <"$work/$name-$rw.rate") | $(median 3 <"$work/$name-$rw.ratio") |"
    done
    echo "$line"
done

# ---- The same reads when no page of checksums is in memory: the first second after an import.
make_loops large 2G
# shellcheck disable=SC2086
"$ravelin" pool create large raid5 $large --yes >/dev/null
"$ravelin" volume create large/v --size 4G >/dev/null
"$ravelin" volume attach large/v --fuse "$work/large.img" >/dev/null
dd if=/dev/zero of="$work/large.img" bs=1M count=4096 conv=notrunc status=none
"$ravelin" volume detach large/v >/dev/null
seconds=1
for _ in $(seq "$rounds"); do
    keep raw-again fio_run "$raw_device" randread 256M
    "$ravelin" pool export large >/dev/null
    # shellcheck disable=SC2086
    "$ravelin" pool import large >/dev/null
    keep large-cold bench_run large/v randread
    keep large-warm bench_run large/v randread
done
echo
echo "| 4 KiB random reads, raid5, 4 GiB written | reads /s | of raw |"
echo "| --- | --: | --: |"
for name in large-warm large-cold; do
    title="the second after"
    [ $name = large-cold ] && title="the first second after an import, no checksum in memory"
    echo "| $title | $(median 0 <"$work/$name.rate") | $(median 3 <"$work/$name.ratio") |"
done
