#!/bin/bash
# Elastic pools: what copies gain over parity, and what happens as drives that compress fill up; one command, a Markdown table.
#
#   bench/elastic.sh drives|zram|space [--json] [--rounds N] [--seconds N] [--plain]
#
# drives   Three data columns and one parity, chunks of 4 KiB, on memory drives behind `compress:` and `slow:` of 2,000 operations a
#          second. Two `elastic5` pools with volumes of 256 MiB, one all parity and one all copies, take turns: 4 KiB overwrites at
#          random for five times as long as the others, mixes with 30, 50 and 70 % reads, and reads while a drive is away, all at depth
#          32; and overwrites one at a time, on drives of 1 ms. Operations are those of the drives for each request, including what is put in place later.
# zram     The same overwrites and degraded reads on four zram devices, content that is 50 % compressible, where processor time counts;
#          `raid5` and btrfs raid5 (nodatacow) take turns on the same devices. As root, with fio, btrfs-progs and zram.
# space    Three steps on `compress:`. Data of ratio 2 fills the volume: the share of copies beside the formula's, with what the drives
#          have below their lower lines. A part is overwritten with noise at full speed: the share falls, all bytes are right. Noise
#          fills the drives to the end: "no space", no copy is left, no drive was full or goes out, and after a trim there is room again.
#
# Printed are medians over the rounds (five), and medians of the rounds' ratios. Each command ends within five minutes on two CPUs.
# With --plain only the parity side runs, as `raid5`: for versions that do not make elastic pools.
set -euo pipefail
cd "$(dirname "$0")/.."
usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' bench/elastic.sh >&2; exit 2; }
what=${1:-} rounds=5 seconds= json= plain=
case $what in drives | zram | space) shift ;; *) usage ;; esac
while [ $# -gt 0 ]; do
    case $1 in
        --json) json=1 ;;
        --rounds) rounds=$2; shift ;;
        --seconds) seconds=$2; shift ;;
        --plain) plain=1 ;;
        *) usage ;;
    esac
    shift
done
. bench/daemon.sh
ended() { :; }
trap 'set +e; ended; clean_up' EXIT

elastic=elastic5 forms=(parity copies)
[ -n "$plain" ] && elastic=raid5 forms=(parity)

# ---- What elastic pools are asked.

# POOL: the share of written stripes that are copies.
coverage() { "$ravelin" --json pool status "$1" | tr ',{}' '\n' | awk -F: '/"coverage"/ && !n++ { print $2 }'; }

# POOL PERCENT: all of the volume gets this form.
convert() {
    [ -n "$plain" ] && return
    "$ravelin" pool elastic "$1" "$2" >/dev/null
    for _ in $(seq 600); do
        awk "BEGIN { d = $(coverage "$1") - $2 / 100; exit !(d * d < 0.0001) }" && return
        sleep 0.2
    done
    echo "the share of copies is $(coverage "$1") and not $2 %" >&2
    exit 1
}

# ---- What all pools are asked.

# POOL: operations of each drive so far, reads and writes, one drive a line.
operations() {
    "$ravelin" --json pool iostat "$1" | tr ',{}' '\n' | awk -F: '
        /"kind"/ { over = 1 }
        !over && /"queue"/ { own = 1 }
        own && /"reads"/ { n = $2 }
        own && /"writes"/ { print n + $2; own = 0 }'
}

# POOL: waits until the drives have nothing to do, because writes are put in place later.
settle() {
    local before now
    now=$(operations "$1")
    for _ in $(seq 20); do
        before=$now
        sleep 1.2
        now=$(operations "$1")
        [ "$before" = "$now" ] && return
    done
}

# POOL MIB: writes all of the volume, because unwritten blocks are read without a drive. A run begins at the start of the volume: one
# that was too short is made again, longer.
fill() {
    local time=3 rate
    while :; do
        rate=$("$ravelin" --json bench "$1/v" --rw write --bs 1m --iodepth 8 --compressible 50 --time "$time" --yes |
            field bytes_per_second)
        awk "BEGIN { exit !($rate * $time >= $2 * 1048576) }" && break
        time=$(awk "BEGIN { t = int($2 * 1048576 / $rate * 1.3) + 1; u = int($time * 1.5); print (t > u ? t : u) }")
    done
}

# KEY POOL OPTION…: runs a load; appends its rate to KEY.rate, CPU time to KEY.cpu, median latency to KEY.p50, operations of all drives for each
# request to KEY.operations, and how far the busiest drive is above the mean, in percent, to KEY.busiest.
load() {
    local key=$1 pool=$2 out before after time=$seconds
    shift 2
    before=$(operations "$pool")
    [[ $* != *--time* ]] || { time=${*: -1}; set -- "${@:1:$#-2}"; }
    out=$("$ravelin" --json bench "$pool/v" --time "$time" --yes "$@")
    # Reads leave nothing behind, and nothing follows the stream.
    [[ $* == *read\ --bs* || $key == *-stream-write ]] || settle "$pool"
    after=$(operations "$pool")
    field iops <<<"$out" >>"$work/$key.rate"
    field cpu_us_per_io <<<"$out" >>"$work/$key.cpu"
    field p50_us <<<"$out" >>"$work/$key.p50"
    paste <(echo "$before") <(echo "$after") | awk -v rate="$(field iops <<<"$out")" -v seconds="$time" '
        $2 > $1 { d = $2 - $1; all += d; n += 1; if (d > max) max = d }
        END { print all / (rate * seconds), (n ? 100 * (max * n / all - 1) : 0) }' >"$work/load"
    cut -d' ' -f1 "$work/load" >>"$work/$key.operations"
    cut -d' ' -f2 "$work/load" >>"$work/$key.busiest"
}

# KEY POOL SEAT: random reads while a drive is away.
degraded() {
    "$ravelin" drive offline "$2" "$3" >/dev/null
    load "$1" "$2" --rw randread --bs 4k --iodepth 32
    "$ravelin" drive online "$2" "$3" >/dev/null
    "$ravelin" pool wait "$2" --for rebuild >/dev/null
}

overwrites=(--rw randwrite --bs 4k --compressible 50)

# ---- Results.

# FILE DECIMALS: the median of its lines, or a dash.
middle() { if [ -s "$work/$1" ]; then median "$2" <"$work/$1"; else echo -; fi; }

# FILE FILE: the median of the ratios of their lines.
ratio() {
    if [ -s "$work/$1" ] && [ -s "$work/$2" ]; then
        paste "$work/$1" "$work/$2" | awk '{ print $1 / $2 }' | median 3
    else
        echo -
    fi
}

# NAME KEY KEY KIND DECIMALS BOUND PAPER: a row about the second key beside the first. The bound is `>=N`, `<=N` or `-`.
rows=()
row() {
    local is holds
    is=$(ratio "$3.$4" "$2.$4")
    case $6 in
        ">="*) holds=$(awk "BEGIN { print (\"$is\" == \"-\" ? \"-\" : (\"$is\" + 0 >= ${6#>=} ? \"yes\" : \"no\")) }") ;;
        "<="*) holds=$(awk "BEGIN { print (\"$is\" == \"-\" ? \"-\" : (\"$is\" + 0 <= ${6#<=} ? \"yes\" : \"no\")) }") ;;
        *) holds=- ;;
    esac
    rows+=("$1|$(middle "$2.$4" "$5")|$(middle "$3.$4" "$5")|$is|$6|$holds|$7|$(middle "$2.operations" 2)|$(middle "$3.operations" 2)")
}

print_rows() {
    if [ -n "$json" ]; then
        printf '%s\n' "${rows[@]}" | awk -F'|' -v what="$what" '
            function number(text) { return text == "-" ? "null" : text + 0 }
            BEGIN { printf "{\"bench\": \"elastic %s\", \"rows\": [", what }
            {
                printf "%s\n  {\"name\": \"%s\", \"first\": %s, \"second\": %s, \"ratio\": %s, \"bound\": \"%s\", \"holds\": %s, \"paper\": %s, \"operations_first\": %s, \"operations_second\": %s}",
                    (NR > 1 ? "," : ""), $1, number($2), number($3), number($4), $5,
                    ($6 == "yes" ? "true" : $6 == "no" ? "false" : "null"), number($7), number($8), number($9)
            }
            END { print "\n]}" }'
        return
    fi
    echo "$(machine), $rounds rounds of $seconds s"
    echo
    echo "| 4 KiB | $1 | $2 | ratio | bound | holds | paper | operations, $1 | $2 |"
    echo "| --- | --: | --: | --: | --: | --- | --: | --: | --: |"
    printf '%s\n' "${rows[@]}" | sed 's/^/| /; s/|/ | /g; s/^ *| */| /; s/$/ |/'
}

# ---- Slow drives.

# POOL RATE MIB FORM
slow_pool() {
    local drives=() index
    for index in 1 2 3 4; do drives+=("slow:compress:mem:2G?physical=1G?$2"); done
    "$ravelin" pool create "$1" "$elastic" "${drives[@]}" -o chunk=4K --yes >/dev/null
    "$ravelin" volume create "$1/v" --size "$3M" >/dev/null
    # Elastic pools start with parity, and `auto`.
    convert "$1" 0
    fill "$1" "$3"
    [ "$4" = copies ] && convert "$1" 100
    settle "$1"
}

drives() {
    local form share
    seconds=${seconds:-2}
    for form in "${forms[@]}"; do
        slow_pool "$form" iops=2000 256 "$form"
        slow_pool "lone-$form" latency=1ms 64 "$form"
    done
    for round in $(seq "$rounds"); do
        for form in $([ $((round % 2)) = 0 ] && echo "${forms[@]}" || printf '%s\n' "${forms[@]}" | tac); do
            # Writes wait for their places when half of the ring is full: what is put in place later counts only if the run is
            # longer than it takes to fill it.
            load "$form-write" "$form" "${overwrites[@]}" --time "$((5 * seconds))"
            # No bound is on these, so one round does.
            for share in $([ "$round" -gt 1 ] || echo 30 50 70); do
                load "$form-$share" "$form" --rw randrw --read $share --bs 4k --iodepth 32 --compressible 50
            done
            degraded "$form-degraded" "$form" $((round % 4))
            [ "$round" -gt 3 ] || load "$form-lone" "lone-$form" "${overwrites[@]}" --iodepth 1
        done
    done
    row "overwrites a second" parity-write copies-write rate 0 ">=1.5" 1.67
    for share in 30 50 70; do
        row "$share % reads, requests a second" parity-$share copies-$share rate 0 - "$(awk "BEGIN { print ($share == 30 ? 1.16 : $share == 70 ? 1.03 : \"-\") }")"
    done
    row "degraded reads a second" parity-degraded copies-degraded rate 0 ">=1.35" 1.75
    row "a lone overwrite, median µs" parity-lone copies-lone p50 0 "<=0.6" -
    # Not a ratio: how far the busiest drive is above the mean of those that are left.
    for form in "${forms[@]}"; do
        local is
        is=$(middle "$form-degraded.busiest" 1)
        rows+=("busiest drive above the mean in degraded reads of $form, %|$([ "$form" = parity ] && echo "$is" || echo -)|$([ "$form" = copies ] && echo "$is" || echo -)|-|<=5|$(awk "BEGIN { print ($is <= 5 ? \"yes\" : \"no\") }")|-|-|-")
    done
    print_rows parity copies
}

# ---- zram.

numbers=()
zram_ended() {
    mountpoint -q "$work/mount" && umount "$work/mount"
    "$ravelin" pool destroy s --yes >/dev/null
    local number
    for number in "${numbers[@]}"; do
        # What reads devices that were unmounted or closed a moment ago has them open.
        for _ in $(seq 50); do
            { echo 1 >"/sys/block/zram$number/reset" && echo "$number" >/sys/class/zram-control/hot_remove; } && break
            sleep 0.1
        done
    done
} 2>/dev/null

# Empty devices with 512 MiB of memory each.
zram_anew() {
    local number
    for number in "${numbers[@]}"; do
        echo 1 >"/sys/block/zram$number/reset"
        echo lz4 >"/sys/block/zram$number/comp_algorithm"
        echo 512M >"/sys/block/zram$number/mem_limit"
        echo 1100M >"/sys/block/zram$number/disksize"
    done
}

# NAME SCHEME PERCENT
zram_pool() {
    zram_anew
    "$ravelin" pool create s "$2" "${numbers[@]/#/zram:/dev/zram}" -o chunk=4K --yes >/dev/null
    "$ravelin" volume create s/v --size 256M >/dev/null
    [ "$2" = "$elastic" ] && convert s 0
    fill s 256
    [ "$3" = 100 ] && convert s 100
    settle s
    load "$1-write" s "${overwrites[@]}" --time $((2 * seconds))
    [ "$1" = raid5 ] || degraded "$1-degraded" s 1
    if [ "$1" != copies ]; then
        load "$1-stream-read" s --rw read --bs 1m --iodepth 8
        load "$1-stream-write" s --rw write --bs 1m --iodepth 8 --compressible 50
    fi
    "$ravelin" pool destroy s --yes >/dev/null
}

zram_btrfs() {
    zram_anew
    mkfs.btrfs -q -f -d raid5 -m raid1 "${numbers[@]/#//dev/zram}" >/dev/null 2>&1
    btrfs device scan "${numbers[@]/#//dev/zram}" >/dev/null
    mkdir -p "$work/mount"
    mount -o nodatacow "/dev/zram${numbers[0]}" "$work/mount"
    local options=(--name=bench --filename="$work/mount/file" --size=256M --direct=1 --ioengine=io_uring
        --buffer_compress_percentage=50 --refill_buffers --minimal)
    fio "${options[@]}" --rw=write --bs=1m --iodepth=8 --end_fsync=1 >/dev/null 2>&1
    # Column 49 of version 3 of fio's terse output.
    fio "${options[@]}" --rw=randwrite --bs=4k --iodepth=32 --norandommap=1 --time_based=1 --runtime="$seconds" 2>/dev/null |
        cut -d';' -f49 >>"$work/btrfs-write.rate"
    umount "$work/mount"
}

zram() {
    seconds=${seconds:-2}
    [ -e /sys/class/zram-control/hot_add ] || { echo "skipped: there is no zram"; exit 0; }
    local other=
    command -v mkfs.btrfs fio >/dev/null && { modprobe btrfs 2>/dev/null || grep -q btrfs /proc/filesystems; } && other=btrfs
    [ -n "$other" ] || echo "skipped: btrfs is not there to compare with" >&2
    for _ in 1 2 3 4; do numbers+=("$(cat /sys/class/zram-control/hot_add)"); done
    ended() { zram_ended; }
    for _ in $(seq "$rounds"); do
        [ -n "$plain" ] || zram_pool copies elastic5 100
        [ -n "$plain" ] || zram_pool parity elastic5 0
        zram_pool raid5 raid5 0
        [ -n "$other" ] && zram_btrfs
    done
    row "overwrites a second, parity and copies" parity-write copies-write rate 0 ">=1.25" 1.67
    row "degraded reads a second, parity and copies" parity-degraded copies-degraded rate 0 ">=1.25" 1.75
    if [ -n "$plain" ]; then
        row "overwrites a second, btrfs raid5 and raid5" btrfs-write raid5-write rate 0 - -
    else
        row "overwrites a second, btrfs raid5 and copies" btrfs-write copies-write rate 0 ">=3" -
    fi
    row "operations of an overwrite, raid5 and parity" raid5-write parity-write operations 2 "<=1.05" -
    row "CPU µs of an overwrite, raid5 and parity" raid5-write parity-write cpu 1 "<=1.1" -
    row "1 MiB overwrites a second, raid5 and parity" raid5-stream-write parity-stream-write rate 0 ">=0.9" -
    row "1 MiB reads a second, raid5 and parity" raid5-stream-read parity-stream-read rate 0 ">=0.9" -
    print_rows first second
}

# ---- Space.

steps=()
# NAME VALUE EXPECTED yes|no|-
step() { steps+=("$1|$2|$3|$4"); }
holds() { if [ "$1" = "$2" ]; then echo yes; else echo no; fi; }

# The values of a number of all drives, one a line.
of_drives() { "$ravelin" --json pool status s | tr ',{}' '\n' | awk -F: -v name="\"$1\"" '$1 ~ name { print $2 + 0 }'; }
# The same summed, or the least or the most of them, in bytes.
sum_of() { of_drives "$1" | awk '{ sum += $1 } END { printf "%.0f", sum }'; }
least_of() { of_drives "$1" | sort -g | head -1; }
most_of() { of_drives "$1" | sort -g | tail -1; }
# Drives that are not current, and how often one was full.
away() { "$ravelin" --json pool status s | tr ',{}' '\n' | awk -F: '/"state"/ && $2 !~ /current/ { n += 1 } END { print n + 0 }'; }
full() { "$ravelin" --json pool events s | tr ',{}' '\n' | grep -c drive_full || true; }
health() { "$ravelin" --json pool status s | field health | tr -d '"'; }
# auto|PERCENT: waits until no stripe is left to convert.
converted() {
    local now before
    "$ravelin" pool elastic s "$1" >/dev/null
    now=$(coverage s)
    for _ in $(seq 60); do
        before=$now
        sleep 2
        now=$(coverage s)
        [ "$before" = "$now" ] && [ "$("$ravelin" --json pool status s | field at_rest)" = true ] && break
    done
    settle s
}

# Checksums of a range of the volume in MiB: FIRST COUNT.
sums() { dd if="$work/v" bs=1M skip="$1" count="$2" iflag=direct status=none | sha256sum | cut -d' ' -f1; }

# FIRST COUNT: noise over a range of the volume in MiB by four writers at a time, the first MiB of it from the beginning of `noise`.
# Prints how many MiB were written in all.
noise() {
    local index part=$(($2 / 4)) writers=()
    for index in 0 1 2 3; do
        dd if="$work/noise" of="$work/v" bs=1M skip=$((index * part)) seek=$(($1 + index * part)) count=$part conv=notrunc oflag=direct \
            2>"$work/writer$index" &
        writers+=($!)
    done
    wait "${writers[@]}" || true
    awk '/ copied/ { sum += $1 } END { printf "%d", sum / 1048576 }' "$work"/writer?
}

space() {
    local index drives=() size part sum share formula spec watcher written upper used
    for index in 1 2 3 4; do
        truncate -s 900M "$work/d$index"
        drives+=("compress:$work/d$index?physical=256M&exposed=820M")
    done
    spec=$elastic
    [ -n "$plain" ] || spec=elastic5:1.6x
    "$ravelin" --json pool create s "$spec" "${drives[@]}" -n >"$work/plan"
    "$ravelin" pool create s "$spec" "${drives[@]}" --yes >/dev/null
    size=880
    "$ravelin" volume create s/v --size "${size}M" >/dev/null
    [ -n "$plain" ] || "$ravelin" pool elastic s 0 >/dev/null
    fill s "$size"
    settle s

    # 1. Data of ratio 2, and parity of the same ratio: U·A and what ring and pages take. Copies of all of it would take U·(B − A) more,
    #    and stripes become copies up to the lower line. What conversions log has replaced data in the ring before the measurement, as
    #    it will have after it.
    [ -n "$plain" ] || { converted auto; converted 0; }
    used=$(sum_of used_bytes)
    if [ -z "$plain" ]; then
        step "ring, pages and labels, MiB" "$(awk "BEGIN { printf \"%.0f\", $used / 1048576 - $size * 2 / 3 }")" \
            "$(($(field reserve_bytes <"$work/plan") >> 20)) at most" \
            "$(awk "BEGIN { rest = $used - $size * 1048576 * 2 / 3; print (rest > 0 && rest <= $(field reserve_bytes <"$work/plan") ? \"yes\" : \"no\") }")"
        formula=$(awk -v u="$((size << 20))" -v net="$(sum_of lower_bytes)" -v used="$used" '
            BEGIN { a = 1 / 2 + 1 / (2 * 3); b = 2 / 2; x = (net - used) / (u * (b - a)); printf "%.3f", (x < 0 ? 0 : x > 1 ? 1 : x) }')
        converted auto
        share=$(coverage s)
        step "share of copies, data of ratio 2" "$share" "$formula ± 0.03" \
            "$(awk "BEGIN { d = $share - $formula; print (d * d <= 0.0009 ? \"yes\" : \"no\") }")"
    fi

    # 2. Noise over as much of the end of the volume as still fits as parity, with the ring full of noise as well: the copies before it
    #    must make room. A sample grants at most what is left up to the upper line.
    "$ravelin" volume attach s/v --fuse "$work/v" >/dev/null
    if [ -n "$plain" ]; then
        upper=$((256 << 20)) part=200
    else
        upper=$(least_of upper_bytes)
        part=$(awk "BEGIN { printf \"%d\", (4 * $upper - $size * 1048576 * 2 / 3 - $(field reserve_bytes <"$work/plan")) * 1.5 / 1048576 / 4 }")
        part=$((part * 4))
    fi
    sum=$(sums 0 $((size - part)))
    dd if=/dev/urandom of="$work/noise" bs=1M count=$part status=none
    (
        local least most
        least=$upper most=0
        while :; do
            of_drives used_bytes >"$work/used"
            for used in $(cat "$work/used"); do
                [ "$used" -lt "$least" ] && least=$used
                [ "$used" -gt "$most" ] && most=$used
            done
            echo "$least $most" >"$work/range"
            sleep 0.1
        done
    ) &
    watcher=$!
    written=$(noise $((size - part)) "$part")
    sync "$work/v"
    settle s
    step "noise written, MiB" "$written" "$part" "$(holds "$written" "$part")"
    [ -n "$plain" ] || step "share of copies after that" "$(coverage s)" "less than $share" \
        "$(awk "BEGIN { print ($(coverage s) < $share ? \"yes\" : \"no\") }")"
    step "bytes of the noise" "$(cmp -n $((part << 20)) -i 0:$(((size - part) << 20)) "$work/noise" "$work/v" >/dev/null && echo right || echo wrong)" right \
        "$(cmp -n $((part << 20)) -i 0:$(((size - part) << 20)) "$work/noise" "$work/v" >/dev/null && echo yes || echo no)"
    step "bytes beside it" "$([ "$(sums 0 $((size - part)))" = "$sum" ] && echo right || echo wrong)" right \
        "$(holds "$(sums 0 $((size - part)))" "$sum")"

    # 3. To the end.
    written=$(noise 0 "$part")
    grep -hi 'no space' "$work"/writer? >"$work/error" || true
    step "more noise" "$([ -s "$work/error" ] && echo "no space" || echo "$written MiB of $part")" "no space" \
        "$([ -s "$work/error" ] && echo yes || echo no)"
    [ -n "$plain" ] || step "share of copies" "$(coverage s)" 0 "$(awk "BEGIN { print ($(coverage s) == 0 ? \"yes\" : \"no\") }")"
    kill "$watcher"
    wait "$watcher" 2>/dev/null || true
    read -r least most <"$work/range"
    step "fullest drive, MiB" "$((most >> 20))" "$(((2 * upper - least) >> 20)) at most" "$([ "$most" -le $((2 * upper - least)) ] && echo yes || echo no)"
    step "times that a drive was full" "$(full)" 0 "$(holds "$(full)" 0)"
    step "drives that are out" "$(away)" 0 "$(holds "$(away)" 0)"
    step "health" "$(health)" healthy "$(holds "$(health)" healthy)"
    # Half of the volume is freed, and a written part of it takes noise again.
    if fallocate --punch-hole --offset $(((size / 2) << 20)) --length $(((size - size / 2) << 20)) "$work/v" 2>/dev/null; then
        step trim done done yes
    else
        step trim refused done no
    fi
    sync "$work/v" 2>/dev/null || true
    settle s
    if dd if="$work/noise" of="$work/v" bs=1M seek=$((size / 2)) conv=notrunc oflag=direct status=none 2>/dev/null &&
        cmp -n $((part << 20)) -i 0:$(((size / 2) << 20)) "$work/noise" "$work/v"; then
        step "writes after a trim" written written yes
    else
        step "writes after a trim" refused written no
    fi
    "$ravelin" volume detach s/v >/dev/null

    if [ -n "$json" ]; then
        printf '%s\n' "${steps[@]}" | awk -F'|' '
            BEGIN { printf "{\"bench\": \"elastic space\", \"rows\": [" }
            { printf "%s\n  {\"name\": \"%s\", \"value\": \"%s\", \"expected\": \"%s\", \"holds\": %s}", (NR > 1 ? "," : ""), $1, $2, $3, ($4 == "yes" ? "true" : "false") }
            END { print "\n]}" }'
        return
    fi
    machine
    echo
    echo "| $size MiB on four drives that store 256 MiB each | is | expected | holds |"
    echo "| --- | --: | --: | --- |"
    printf '%s\n' "${steps[@]}" | sed 's/^/| /; s/|/ | /g; s/^ *| */| /; s/$/ |/'
}

"$what"
