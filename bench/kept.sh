#!/bin/bash
# What it costs that a supervisor keeps the files of volumes: requests are read into memory that outlives the daemon.
#
#   bench/kept.sh [ROUNDS [SECONDS]]      as root, with fio and python3
#
# Two daemons run side by side, one of them under a small supervisor that keeps its descriptors as systemd does. Each has
# a pool of memory drives and a volume on a loop device. In each round every workload runs on both, by turns; printed
# are medians over the rounds, also of the ratio within a round. CPU time is the daemon's, per request: on a shared machine
# it varies least.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-7} seconds=${2:-3}
ravelin=$(realpath "${RAVELIN:-target/release/ravelin}")
work=$(mktemp -d /dev/shm/ravelin-kept.XXXXXX)
pids=()
clean_up() {
    set +e
    for way in plain kept; do RAVELIN_SOCKET=$work/$way.sock "$ravelin" pool export --force tank-$way; done
    for pid in "${pids[@]}"; do kill "$pid" && wait "$pid"; done
    rm -rf "$work"
} >/dev/null 2>&1
trap clean_up EXIT
trap "exit 1" INT TERM

cat >"$work/supervisor.py" <<'END'
import os, socket, sys
if len(sys.argv) > 2:
    os.environ.update(NOTIFY_SOCKET=sys.argv[1], RAVELIN_FDSTORE="1", RAVELIN_UNIT="ravelin.service")
    os.execv(sys.argv[2], sys.argv[2:])
here = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
here.bind(sys.argv[1])
kept = []
while True:
    text, descriptors, _, _ = socket.recv_fds(here, 4096, 8)
    kept += descriptors
    print(text, flush=True)
END
python3 "$work/supervisor.py" "$work/notify" >"$work/notified" &
pids+=($!)
until [ -S "$work/notify" ]; do sleep 0.1; done

# Starts the daemon of a way, with a pool of memory drives, and prints the volume's device.
start() {
    local way=$1
    shift
    RAVELIN_SOCKET=$work/$way.sock "$@" "$ravelin" daemon --state "$work/$way.state" >"$work/$way.log" 2>&1 &
    pids+=($!)
    echo $! >"$work/$way.pid"
    export RAVELIN_SOCKET=$work/$way.sock
    until "$ravelin" pool list >/dev/null 2>&1; do sleep 0.1; done
    "$ravelin" pool create tank-$way raid5 mem:256M mem:256M mem:256M mem:256M >/dev/null
    "$ravelin" volume create tank-$way/v --size 256M >/dev/null
    "$ravelin" volume attach tank-$way/v --fuse "$work/$way.img" --loop >/dev/null
    "$ravelin" volume list --json | grep -o '/dev/loop[0-9]*' | head -n 1 >"$work/$way.device"
}
start plain env
start kept python3 "$work/supervisor.py" "$work/notify"
grep -q FDSTORE "$work/notified" || { echo "nothing is kept: $(tail -n 3 "$work/kept.log")" >&2; exit 1; }

# CPU time so far of a daemon, in hundredths of a second.
cpu() { awk '{ print $14 + $15 }' "/proc/$(cat "$work/$1.pid")/stat"; }

# WORKLOAD WAY: requests a second, and microseconds of CPU for each.
rate() {
    local device before
    device=$(cat "$work/$2.device")
    before=$(cpu $2)
    fio --name=x --filename="$device" --direct=1 --ioengine=libaio --time_based --runtime="$seconds" \
        --output-format=json $1 >"$work/fio.json"
    python3 - "$work/fio.json" $(($(cpu $2) - before)) <<'END'
import json, sys
job = json.load(open(sys.argv[1]))["jobs"][0]
count = job["read"]["total_ios"] + job["write"]["total_ios"]
print(job["read"]["iops"] + job["write"]["iops"], int(sys.argv[2]) * 10_000 / count, sep=";")
END
}
declare -A workloads=(
    ["write 4 KiB, depth 1"]="--rw=randwrite --bs=4k --iodepth=1"
    ["write 4 KiB, depth 32"]="--rw=randwrite --bs=4k --iodepth=32"
    ["read 4 KiB, depth 32"]="--rw=randread --bs=4k --iodepth=32"
    ["write 1 MiB, depth 4"]="--rw=write --bs=1M --iodepth=4"
    ["read 1 MiB, depth 4"]="--rw=read --bs=1M --iodepth=4"
)
# One of them only.
if [ -n "${ONLY:-}" ]; then
    only=${workloads[$ONLY]}
    workloads=(["$ONLY"]=$only)
fi
for way in plain kept; do rate "--rw=write --bs=1M --iodepth=4" $way >/dev/null; done
for round in $(seq "$rounds"); do
    for name in "${!workloads[@]}"; do
        order="plain kept"
        [ $((round % 2)) = 0 ] || order="kept plain"
        for way in $order; do
            echo "$name;$round;$way;$(rate "${workloads[$name]}" $way)" >>"$work/rates"
            [ -z "${SHOW:-}" ] || tail -n 1 "$work/rates" >&2
        done
    done
done
echo "$(date -u +%F), load $(cut -d' ' -f1-3 /proc/loadavg), $(nproc) CPUs, kernel $(uname -r), $rounds rounds of $seconds s"
echo
python3 - "$work/rates" <<'END'
import collections, statistics, sys
rates = collections.defaultdict(dict)
for line in open(sys.argv[1]):
    name, number, way, rate, cpu = line.strip().split(";")
    rates[name].setdefault(number, {})[way] = float(rate), float(cpu)
print("| workload | requests/s | with a supervisor | ratio | CPU of a request | with a supervisor | ratio |")
print("| --- | --- | --- | --- | --- | --- | --- |")
for name, rounds in sorted(rates.items()):
    median = lambda of: statistics.median(map(of, rounds.values()))
    cells = [name]
    for part, unit in (0, ""), (1, " us"):
        cells += [f"{median(lambda r: r[way][part]):,.{part}f}{unit}" for way in ("plain", "kept")]
        cells.append(f"{median(lambda r: r['kept'][part] / r['plain'][part]):.3f}")
    print("|", " | ".join(cells), "|")
END
