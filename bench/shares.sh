#!/bin/bash
# Rates and latencies of clients beside other work; one command, Markdown tables.
#
#   bench/shares.sh [--json] [--rounds N] [--seconds N] [--only commits|neighbour|after|random|mixed|clients|rebuild|spare|copyback|scrub]
#
# commits   `raid6` on six files of 4 GiB on tmpfs behind `slow:`. A client writes 4 KiB at random on one volume, each write
#           durable when it is answered: alone, and while another client writes 1 MiB at depth 8 on another volume.
# neighbour The same client alone, and while another client writes 64 KiB at random, depth 32, on another volume: faster than
#           checkpoints put the blocks in place.
# after     The same client in each of six seconds after 64 MiB were written to another volume; the slowest second counts.
# random    4 KiB at random, depth 16, of volumes that are full: with journal and checksums, and without both.
# mixed     `raid6` on drives of 500 MB/s. 70 % reads and 30 % writes at random, depth 32, of 4 KiB and 64 KiB, by fio through
#           NBD; and the CPU time of a request, in the daemon and in the client.
# clients   The same with 70 % of 4 KiB: two clients, and eight, each with a connection of its own and depth 32.
# rebuild   Thirteen files, 25 MB/s and 125 operations a second each, `pddl2:4d:13c:1s`. A client reads 4 KiB at random,
#           depth 4: first from the healthy pool, then while the cells of a failed drive are rebuilt onto distributed space.
#           `cells done` is how many of the lost cells were rebuilt when the client stopped, and `then alone` how long the
#           rest took without the client.
# spare     The same with `raid6` on thirteen drives; a spare takes the seat of the failed drive.
# copyback  The same after a rebuild onto distributed space, while these cells are copied back to a new drive.
# scrub     The same reads from the pool of `rebuild`: alone, and during a scrub of the 10 GiB on the drives.
#           This needs 12 GiB of tmpfs; the others need 8.
#
# Printed are medians over the rounds. All pools are filled through their throttled drives, so a round takes some time.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=3 seconds=8 only= json=
while [ $# -gt 0 ]; do
    case $1 in
        --json) json=1 ;;
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

commit=(--rw randwrite --iodepth 1 --sync)

# A volume for a stream, and a full one for commits.
two_volumes() {
    "$ravelin" volume create s/a --size 1000M >/dev/null
    "$ravelin" volume create s/b --size 64M >/dev/null
    fill b 64
}

# VOLUME MIB: fills a volume, because unwritten blocks are read without a drive.
fill() {
    "$ravelin" volume attach "s/$1" --nbd "unix:$work/nbd" >/dev/null
    fio --name=fill --ioengine=nbd --uri="nbd+unix:///s%2F$1?socket=$work/nbd" --rw=write --bs=1m --iodepth=16 \
        --size="$2M" --refill_buffers --end_fsync=1 --output=/dev/null
    "$ravelin" volume detach "s/$1" >/dev/null
}

commits() {
    local alone beside quiet writer
    pool raid6 6 4G "$2"
    two_volumes
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

neighbour() {
    local alone beside quiet writer hog=(--rw randwrite --bs 64k --iodepth 32)
    pool raid6 6 4G "$2"
    two_volumes
    fill a 1000
    sleep 4
    quiet=$("$ravelin" --json bench s/a --time "$seconds" --yes "${hog[@]}" | field iops)
    sleep 4
    alone=$(load b "${commit[@]}")
    "$ravelin" --json bench s/a --time $((seconds + 6)) --yes "${hog[@]}" | field iops >"$work/hog" &
    writer=$!
    sleep 4
    beside=$(load b "${commit[@]}")
    wait "$writer"
    echo "$alone $beside $quiet $(cat "$work/hog")" >>"$work/neighbour-$1"
    end_pool
}

# NAME RATE SCHEME: commits a second in an idle pool, and in the slowest second after a write of 64 MiB.
after() {
    local seconds=1 idle slowest
    pool "$3" 6 4G "$2"
    two_volumes
    sleep 4
    idle=$(for _ in 1 2 3 4 5; do load b "${commit[@]}"; done | median 1)
    fill a 64
    slowest=$(for _ in 1 2 3 4 5 6; do load b "${commit[@]}"; done | sort -g | head -1)
    echo "$idle ${slowest% *}" >>"$work/after-$1-$3"
    end_pool
}

# NAME RATE SCHEME: 4 KiB writes at random with journal and checksums, and without.
random() {
    local all=() options
    for options in "" "-o journal=intent -o checksum=off"; do
        # shellcheck disable=SC2086
        pool "$3" 6 4G "$2" $options
        "$ravelin" volume create s/v --size 400M >/dev/null
        fill v 400
        sleep 3
        all+=("$(load v --rw randwrite --iodepth 16)")
        end_pool
    done
    echo "${all[*]}" >>"$work/random-$1-$3"
}

reads=(--rw randread --iodepth 4)

# Percent of requests of 4 KiB in a mix; the others have 64 KiB.
shorts=(70 50)

# SCHEME MIB BYTES [spare]: a full volume of this size on thirteen drives.
thirteen() {
    local options=(-o cell=16M)
    if [ $# -gt 3 ]; then
        truncate -s "$3" "$work/dspare"
        options+=(spare "slow:$work/dspare?$wide")
    fi
    pool "$1" 13 "$3" "$wide" "${options[@]}"
    "$ravelin" volume create s/v --size "$2M" >/dev/null
    fill v "$2"
    sleep 3
}

# WHAT HEALTHY: notes the client's rate before (HEALTHY), its rate while cells are filled, and the time of the rest without the client.
beside_fills() {
    local beside done total begin
    beside=$(load v "${reads[@]}")
    read -r done total < <("$ravelin" --json status | tr ',{}' '\n' |
        awk -F: '/"cells_done"/ { d = $2 } /"cells_total"/ { t = $2 } END { print d + 0, t + 0 }')
    begin=$(date +%s.%N)
    "$ravelin" pool wait s --for rebuild >/dev/null
    echo "$2 $beside $done $total $(awk "BEGIN { print $(date +%s.%N) - $begin }")" >>"$work/$1"
}

# WHAT SCHEME MIB [spare]: a drive fails, and its cells are rebuilt.
failure() {
    local healthy
    thirteen "$2" "$3" 900M "${@:4}"
    healthy=$(load v "${reads[@]}")
    "$ravelin" drive fail s 3 >/dev/null
    beside_fills "$1" "$healthy"
    end_pool
}

rebuild() { failure rebuild pddl2:4d:13c:1s 4500; }

spare() { failure spare raid6 5000 spare; }

copyback() {
    local healthy
    thirteen pddl2:4d:13c:1s 4500 900M
    "$ravelin" drive fail s 3 >/dev/null
    "$ravelin" pool wait s --for rebuild >/dev/null
    healthy=$(load v "${reads[@]}")
    truncate -s 900M "$work/dnew"
    "$ravelin" drive replace s 3 "slow:$work/dnew?$wide" --yes >/dev/null
    beside_fills copyback "$healthy"
    end_pool
}

scrub() {
    local healthy beside ended
    thirteen pddl2:4d:13c:1s 7000 1100M
    healthy=$(load v "${reads[@]}")
    "$ravelin" pool scrub s --wait >/dev/null &
    ended=$!
    sleep 1
    beside=$(load v "${reads[@]}")
    kill -0 $ended 2>/dev/null || echo "the scrub ended before the client" >&2
    wait $ended
    echo "$healthy $beside" >>"$work/scrub"
    end_pool
}

# The daemon's CPU time, in hundredths of a second.
cpu() { awk '{ print $14 + $15 }' "/proc/$daemon/stat"; }

# PERCENT OPTION…: fio's report of 70 % reads of the volume `v`, so many percent of all requests of 4 KiB, the others of 64 KiB.
# With a random map, which is fio's default, a request is shortened where its next blocks were used before: a client that
# is alone covers more of the volume, so its requests would be shorter than those of each of eight.
mix() {
    fio --name=mix --ioengine=nbd --uri="nbd+unix:///s%2Fv?socket=$work/nbd" --rw=randrw --rwmixread=70 \
        --bssplit="4k/$1:64k/$((100 - $1))" --norandommap=1 --iodepth=32 --time_based --runtime="$seconds" \
        --output-format=terse --terse-version=3 "${@:2}"
}

# The memory that such a load needs is taken once. Until then much of a virtual machine's time goes into that.
warm_up() { mix 70 --numjobs=2 >/dev/null; }

# By the share of 4 KiB: requests a second, and microseconds of CPU of one, the daemon's and the client's.
mixed() {
    local before after out short
    pool raid6 6 4G "$flash"
    "$ravelin" volume create s/v --size 1000M >/dev/null
    fill v 1000
    "$ravelin" volume attach s/v --nbd "unix:$work/nbd" >/dev/null
    warm_up
    for short in "${shorts[@]}"; do
        sleep 3
        before=$(cpu)
        out=$(mix "$short")
        after=$(cpu)
        awk -F';' -v cpu="$((after - before))" -v seconds="$seconds" \
            '/^3;/ { n = $8 + $49; print n, cpu * 10000 / (n * seconds), ($88 + $89) * 1e4 / n }' <<<"$out" >>"$work/mixed-$short"
    done
    "$ravelin" volume detach s/v >/dev/null
    end_pool
}

# Requests a second of two clients together, and of eight.
clients() {
    local count all=()
    pool raid6 6 4G "$flash"
    "$ravelin" volume create s/v --size 1000M >/dev/null
    fill v 1000
    "$ravelin" volume attach s/v --nbd "unix:$work/nbd" >/dev/null
    warm_up
    for count in 2 8; do
        sleep 3
        all+=("$(mix 70 --numjobs="$count" --group_reporting | awk -F';' '/^3;/ { print $8 + $49 }')")
    done
    "$ravelin" volume detach s/v >/dev/null
    echo "${all[*]}" >>"$work/clients"
    end_pool
}

# FILE COLUMN DIGITS
column() { cut -d' ' -f"$2" <"$work/$1" | median "$3"; }

flash="latency=80us&iops=50000&bandwidth=500M" disk="bandwidth=100M&iops=500" old="latency=5ms&iops=150" wide="bandwidth=25M&iops=125"
asked() { [ -z "$only" ] || [ "$only" = "$1" ]; }
for _ in $(seq "$rounds"); do
    if asked commits; then
        for kind in flash disk; do commits $kind "${!kind}"; done
    fi
    if asked neighbour; then
        for kind in flash disk; do neighbour $kind "${!kind}"; done
    fi
    if asked after; then
        for kind in disk old; do for scheme in raid5 raid6 raid10; do after $kind "${!kind}" $scheme; done; done
    fi
    if asked random; then
        for scheme in raid6 raid10; do random disk "$disk" $scheme; done
    fi
    for what in mixed clients rebuild spare copyback scrub; do
        if asked $what; then $what; fi
    done
done

# TITLE|… then rows of `a|b|…`: a Markdown table, or with --json a list of objects.
table() {
    local titles=$1
    shift
    if [ -n "$json" ]; then
        printf '%s\n' "$@" | awk -F'|' -v titles="$titles" '
            BEGIN { split(titles, title, "|"); printf "[" }
            { printf "%s\n  {", (NR > 1 ? "," : "")
              for (i = 1; i <= NF; i++) printf "%s\"%s\": %s", (i > 1 ? ", " : ""), title[i], ($i ~ /^[0-9.]+$/ ? $i : "\"" $i "\"")
              printf "}" }
            END { print "\n]" }'
        return
    fi
    echo
    echo "| ${titles//|/ | } |"
    sed 's/[^|]*/ --- /g; s/^/|/; s/$/|/' <<<"$titles"
    printf '| %s |\n' "${@//|/ | }"
}

# WHAT: `rows` of what a client gets alone and beside another one, and of what that one gets, by kind of drives.
beside_rows() {
    local kind at
    rows=()
    for kind in flash disk; do
        at=$1-$kind
        rows+=("${!kind}|$(column $at 1 0)|$(column $at 2 1)|$(column $at 3 0)|$(column $at 4 1)|$(column $at 5 0)|$(column $at 6 0)")
    done
}

[ -n "$json" ] || echo "$(machine), $rounds rounds of $seconds s"
if asked commits; then
    beside_rows commits
    table "raid6, six drives, 4 KiB commits|alone, /s|p99, ms|beside a stream, /s|p99 beside, ms|stream alone, MiB/s|beside commits, MiB/s" "${rows[@]}"
fi
if asked neighbour; then
    beside_rows neighbour
    table "raid6, six drives, 4 KiB commits|alone, /s|p99, ms|beside random writes, /s|p99 beside, ms|64 KiB writes alone, /s|beside commits, /s" "${rows[@]}"
fi
if asked after; then
    rows=()
    for kind in disk old; do
        for scheme in raid5 raid6 raid10; do
            at=after-$kind-$scheme
            rows+=("${!kind}|$scheme|$(column $at 1 0)|$(column $at 2 0)")
        done
    done
    table "six drives, 4 KiB commits|scheme|idle, /s|slowest second after 64 MiB, /s" "${rows[@]}"
fi
if asked random; then
    rows=()
    for scheme in raid6 raid10; do
        at=random-disk-$scheme
        rows+=("$disk|$scheme|$(column $at 1 0)|$(column $at 2 1)|$(column $at 3 0)|$(column $at 4 1)")
    done
    table "six drives, 4 KiB random writes, depth 16|scheme|journal and checksums, /s|p99, ms|without, /s|p99 without, ms" "${rows[@]}"
fi
if asked mixed; then
    rows=()
    for short in "${shorts[@]}"; do
        at=mixed-$short
        rows+=("$short % of 4 KiB, the others 64 KiB|$(column $at 1 0)|$(column $at 2 0)|$(column $at 3 0)")
    done
    table "70 % reads, 30 % writes, depth 32, raid6, $flash|requests, /s|CPU of the daemon, us a request|of the client" "${rows[@]}"
fi
if asked clients; then
    table "70 % reads, 30 % writes, depth 32 each, raid6, $flash|two clients, /s|eight, /s" "all together|$(column clients 1 0)|$(column clients 2 0)"
fi
rows=()
for what in rebuild spare copyback; do
    if asked $what; then
        rows+=("$what|$(column $what 1 0)|$(column $what 2 0)|$(column $what 3 0)|$(column $what 4 0)|$(column $what 5 0)|$(column $what 6 0)|$(column $what 7 1)")
    fi
done
if [ "${#rows[@]}" -gt 0 ]; then
    table "4 KiB reads, depth 4, thirteen drives, $wide|before, /s|p99, ms|beside, /s|p99 beside, ms|cells done|cells|then alone, s" "${rows[@]}"
fi
if asked scrub; then
    table "4 KiB reads, depth 4, pddl2:4d:13c:1s, $wide|healthy, /s|p99, ms|during a scrub, /s|p99 during, ms" \
        "thirteen drives|$(column scrub 1 0)|$(column scrub 2 0)|$(column scrub 3 0)|$(column scrub 4 0)"
fi
