#!/bin/bash
# `bench/pools.sh grow`: a pool of twelve drives gets a thirteenth.
set -euo pipefail
cd "$(dirname "$0")/.."
json=
if [ "${1:-}" = --json ]; then json=1; fi
. bench/daemon.sh

bandwidth=25000000 # of a drive, bytes a second
drives=12
used=600    # MiB of each drive that hold data and parity
size=1000   # MiB of a drive
piece=4     # MiB
scheme=ddp:8d

now() { date +%s.%N; }
calc() { awk "BEGIN { printf \"%.${2:-3}f\", $1 }"; }
holds() { awk "BEGIN { print ($1) ? \"yes\" : \"no\" }"; }
drive() { echo "slow:$work/d$1?bandwidth=$bandwidth"; }

# Data of so many MiB: ten columns, eight of them data.
user=$((used * drives * 8 / 10))
region=$((user - user % 64))

make_pool() {
    local index all=()
    for index in $(seq "$drives"); do
        truncate -s "${size}M" "$work/d$index"
        all+=("$(drive "$index")")
    done
    truncate -s "${size}M" "$work/d$((drives + 1))"
    "$ravelin" pool create tank "$scheme" "${all[@]}" -o "piece=${piece}M" --yes >/dev/null
    "$ravelin" volume create tank/v --size "${user}M" >/dev/null
}

end_pool() {
    "$ravelin" pool destroy tank --yes >/dev/null
    rm -f "$work"/d*
}

fill() {
    "$ravelin" --json bench tank/v --rw write --bs 8m --iodepth 16 --compressible 0 --total "${user}M" --yes >/dev/null
    # What is logged is put in place, so that it does not compete with the pieces.
    sleep 3
}

expand() { "$ravelin" --json pool expand tank "$(drive $((drives + 1)))"; }
copied() {
    local status
    status=$("$ravelin" --json pool status tank)
    field copied_bytes <<<"$status"
}

# Rows of the table are printed as they are measured.
row() { [ -n "$json" ] || echo "| $1 | $2 | ${3:-} |"; }
if [ -z "$json" ]; then
    machine
    echo
    echo "| \`$scheme\`, 12 → 13 drives, $used MiB in use on each, ${bandwidth%000000} MB/s a drive | | |"
    echo "| --- | --: | --- |"
fi

# ---- Without clients.

make_pool
fill
begun=$(now)
plan=$(expand)
"$ravelin" pool wait tank --for expand >/dev/null
took=$(calc "$(now) - $begun")
moved=$(copied)
pieces=$(field pieces <<<"$plan")
# Every drive holds as many pieces; a thirteenth of them all is the new drive's share.
all_pieces=$((user / (8 * piece) * 10))
least=$(awk "BEGIN { printf \"%d\", int($all_pieces / ($drives + 1)) }")
of_least=$(calc "$pieces / $least")
of_time=$(calc "$took / ($moved / $bandwidth)")
end_pool
row "pieces that moved, by the least ($pieces of $least)" "$of_least" "≤ 1.02: $(holds "$of_least <= 1.02")"
row "time by what moved ÷ rate ($took s for $(calc "$moved / 1e6" 0) MB)" "$of_time" "≤ 1.3: $(holds "$of_time <= 1.3")"

# ---- With clients that verify what they read and wrote, and three crashes of the daemon.

fio_runs=no
if fio --enghelp=nbd >/dev/null 2>&1; then
    fio_runs=yes
    job() { # NAME OPTION…: a job on the volume, its output as JSON
        local name=$1
        shift
        ${limit:+timeout -k 1 "$limit"} fio --name="$name" --ioengine=nbd --uri="nbd+unix:///?socket=$work/nbd" --size="${region}M" \
            --direct=1 --thread --bs=64k --iodepth=16 --verify=pattern --verify_pattern=%o --verify_fatal=1 --output-format=json "$@"
    }
    make_pool
    "$ravelin" volume attach tank/v --nbd "unix:$work/nbd" >/dev/null
    job fill --rw=write --do_verify=0 >"$work/fill.json"
    sleep 3
    # What the pool gives to such clients.
    "$ravelin" --json bench tank/v --rw randread --bs 64k --iodepth 16 --time 5 --force >"$work/gives.json"
    gives=$(field bytes_per_second <"$work/gives.json")
    rate=$(awk "BEGIN { printf \"%d\", $gives * 0.3 }")

    # Reads and verifies at the rate until $work/stop is there; a line for each run: bytes and seconds in which it ran.
    clients() {
        while [ ! -e "$work/stop" ]; do
            # The daemon has crashed in the middle of a run whose output is of no use; what it had verified does not count. fio
            # may wait for ever for an answer of that daemon.
            if limit=15 job reads --rw=randread --rate="$rate" --rate_process=poisson --time_based --runtime=4 \
                >"$work/reads.json" 2>"$work/reads.err"; then
                awk '/"read" : / { in_read = 1 }
                    in_read && /"io_bytes"/ { gsub(/[^0-9]/, ""); bytes = $0 }
                    in_read && /"runtime"/ { gsub(/[^0-9]/, ""); print bytes, $0 / 1000; exit }' "$work/reads.json"
            elif grep -qi "got pattern" "$work/reads.err"; then
                echo "wrong"
            else
                sleep 0.3
            fi
        done >"$work/clients"
    }
    rm -f "$work/stop"
    clients &
    client=$!
    sleep 2
    begun=$(now)
    expand >/dev/null
    for _ in 1 2 3; do
        sleep 7
        kill -9 "$daemon"
        wait "$daemon" 2>/dev/null || true
        "$ravelin" daemon >>"$work/log" 2>&1 &
        daemon=$!
        for _ in $(seq 200); do "$ravelin" pool status tank >/dev/null 2>&1 && break || sleep 0.1; done
    done
    "$ravelin" pool wait tank --for expand >/dev/null
    took_loaded=$(calc "$(now) - $begun")
    touch "$work/stop"
    wait "$client" || true
    # Every block is as it was written.
    wrong=$(grep -c wrong "$work/clients" || true)
    job all --rw=read >"$work/all.json" 2>"$work/all.err" || wrong=$((wrong + 1))
    of_rate=$(awk -v rate="$rate" '$1 != "wrong" { bytes += $1; seconds += $2 } END { printf "%.3f", seconds ? bytes / seconds / rate : 0 }' "$work/clients")
    end_pool
    row "clients at 30 % ($(calc "$rate / 1e6" 1) MB/s), three crashes, $took_loaded s: wrong" "$wrong" "$(holds "$wrong == 0")"
    row "their rate by what they ask" "$of_rate" "≥ 0.9: $(holds "$of_rate >= 0.9")"
else
    echo "skipped: clients (fio has no engine for NBD)" >&2
fi

# ---- Beside it: btrfs, as many loop devices with the same fill.

btrfs_bytes=
has_btrfs() { grep -q btrfs /proc/filesystems || modprobe btrfs 2>/dev/null; }
if command -v mkfs.btrfs >/dev/null && losetup -f >/dev/null 2>&1 && has_btrfs; then
    loops=()
    for index in $(seq $((drives + 1))); do
        truncate -s "${size}M" "$work/b$index"
        loops+=("$(losetup --show -f "$work/b$index")")
    done
    written() { for loop in "${loops[@]}"; do awk '{ print $7 }' "/sys/block/${loop#/dev/}/stat"; done | awk '{ n += $1 } END { printf "%.0f", n * 512 }'; }
    mkdir "$work/mnt"
    if mkfs.btrfs -q -f -d raid6 -m raid1c3 "${loops[@]:0:drives}" && mount "${loops[0]}" "$work/mnt"; then
        head -c "${region}M" /dev/urandom >"$work/mnt/data" || true
        sync
        before=$(written)
        btrfs device add -f "${loops[drives]}" "$work/mnt" >/dev/null
        btrfs balance start --full-balance "$work/mnt" >/dev/null
        sync
        btrfs_bytes=$(($(written) - before))
        umount "$work/mnt"
    fi
    losetup -d "${loops[@]}"
fi

if [ -n "$btrfs_bytes" ]; then
    row "written by btrfs (device add, balance), by what moved here" "$(calc "$btrfs_bytes / $moved" 1)"
fi
if [ -n "$json" ]; then
    cat <<END
{"bench": "pools grow", "pieces": $pieces, "least_pieces": $least, "moved_bytes": $moved, "seconds": $took, "of_least": $of_least,
 "of_time": $of_time, "loaded": $([ "$fio_runs" = yes ] && echo "{\"seconds\": $took_loaded, \"wrong\": $wrong, \"of_rate\": $of_rate}" || echo null),
 "btrfs_bytes": ${btrfs_bytes:-null}}
END
fi
