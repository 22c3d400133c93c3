#!/bin/bash
# What clients get beside other work; one command, Markdown tables.
#
#   bench/shares.sh [--json] [--rounds N] [--seconds N] [--only commits|after|random|rebuild|scrub]
#
# commits   `raid6` on six files of 4 GiB on tmpfs behind `slow:`. A client writes 4 KiB at random on one volume, each write
#           durable when it is answered: alone, and while another one writes 1 MiB at depth 8 on another volume.
# after     The same client in each of six seconds after 64 MiB were written to another volume; the slowest second counts.
# random    4 KiB at random, depth 16, of volumes that are full: with journal and checksums, and without both.
# rebuild   Thirteen files, 25 MB/s and 125 operations a second each, `pddl2:4d:13c:1s`. A client reads 4 KiB at random,
#           depth 4: first of the healthy pool, then while what one drive held is rebuilt onto distributed space. `rebuilt`
#           is how many of the lost cells were done when the client stopped, and `then alone` how long the rest took
#           without it.
# scrub     The same reads of the same pool: while nothing else is done, and while it is scrubbed.
#
# Printed are medians over the rounds. A round takes eight minutes: the pools are filled through their throttled drives.
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

# One for a stream, and one that is full for commits.
two_volumes() {
    "$ravelin" volume create s/a --size 1000M >/dev/null
    "$ravelin" volume create s/b --size 64M >/dev/null
    fill b 64
}

# VOLUME MIB: what was not written is read without a drive. Copied from a file, so that requests go side by side and it ends
# with the last byte.
fill() {
    "$ravelin" volume attach "s/$1" --nbd "unix:$work/nbd" >/dev/null
    head -c "${2}M" /dev/urandom >"$work/source"
    nbdcopy --flush "$work/source" "nbd+unix:///s%2F$1?socket=$work/nbd"
    rm "$work/source"
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

# A full volume on thirteen drives.
thirteen() {
    pool pddl2:4d:13c:1s 13 600M "$wide" -o cell=16M
    "$ravelin" volume create s/v --size 3000M >/dev/null
    fill v 3000
    sleep 3
}

scrub() {
    local healthy beside ended
    thirteen
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

rebuild() {
    local healthy beside done total begin
    thirteen
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

flash="latency=80us&iops=50000&bandwidth=500M" disk="bandwidth=100M&iops=500" old="latency=5ms&iops=150" wide="bandwidth=25M&iops=125"
asked() { [ -z "$only" ] || [ "$only" = "$1" ]; }
for _ in $(seq "$rounds"); do
    if asked commits; then
        for kind in flash disk; do commits $kind "${!kind}"; done
    fi
    if asked after; then
        for kind in disk old; do for scheme in raid5 raid6 raid10; do after $kind "${!kind}" $scheme; done; done
    fi
    if asked random; then
        for scheme in raid6 raid10; do random disk "$disk" $scheme; done
    fi
    if asked rebuild; then rebuild; fi
    if asked scrub; then scrub; fi
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

[ -n "$json" ] || echo "$(machine), $rounds rounds of $seconds s"
if asked commits; then
    rows=()
    for kind in flash disk; do
        at=commits-$kind
        rows+=("${!kind}|$(column $at 1 0)|$(column $at 2 1)|$(column $at 3 0)|$(column $at 4 1)|$(column $at 5 0)|$(column $at 6 0)")
    done
    table "raid6, six drives, 4 KiB commits|alone, /s|p99, ms|beside a stream, /s|p99 beside, ms|stream alone, MiB/s|beside commits, MiB/s" "${rows[@]}"
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
if asked rebuild; then
    table "4 KiB reads, depth 4, pddl2:4d:13c:1s, 25 MB/s, 125/s|healthy, /s|p99, ms|during the rebuild, /s|p99 during, ms|cells rebuilt|cells|then alone, s" \
        "thirteen drives|$(column rebuild 1 0)|$(column rebuild 2 0)|$(column rebuild 3 0)|$(column rebuild 4 0)|$(column rebuild 5 0)|$(column rebuild 6 0)|$(column rebuild 7 1)"
fi
if asked scrub; then
    table "4 KiB reads, depth 4, pddl2:4d:13c:1s, 25 MB/s, 125/s|healthy, /s|p99, ms|during a scrub, /s|p99 during, ms" \
        "thirteen drives|$(column scrub 1 0)|$(column scrub 2 0)|$(column scrub 3 0)|$(column scrub 4 0)"
fi
