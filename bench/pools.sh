#!/bin/bash
# Pools of pieces in real time, as the paper on Dynamic Disk Pools measured them; one command, a Markdown table.
#
#   bench/pools.sh ddp [--load] [--json] [--csv FILE] [--svg FILE]
#   bench/pools.sh grow [--json]
#
# ddp      The rebuild of one drive: `ddp:8d:2p:60c:3s` with pieces of 256 KiB beside `raid6:4d:50c:2s`, eight groups of 4+2 with two
#          spare drives. Files on tmpfs behind `slow:` of 2 MB/s each; both hold the same 3200 MiB of noise, 100 MiB on each data drive of
#          the RAID 6. From the command that takes the drive out to the end of the rebuild. The model: the RAID 6 writes 100 MiB to
#          one drive; in the pool 59 drives share nine columns for each one that is lost, and a drive holds less: 59·48 / (9·32) = 9.83
#          times as fast, divided by how much more than the mean the busiest drive has to move, which is printed.
# --load   With clients that read 4 MiB at random at 30 % of what the drives give (open loop), and the priority `high`. Rates and 99th
#          percentiles of the clients, second by second, go to the files of --csv and --svg.
#
# grow     Twelve drives behind `slow:` of 25 MB/s with 600 MiB in use on each get a thirteenth: how much moves, by the least that makes
#          all equally full, and how long that takes. Then with clients that verify what they read at 30 % of what the pool gives, and three
#          crashes of the daemon on the way. Beside it the bytes that btrfs writes for the same.
#
# Before `ddp` the rebuild of the pool runs without throttles: if the bytes that all drives move in a second are less than twice what
# the throttled drives could, this machine and not the drives would be measured, and no ratio is printed. Ends within five minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' bench/pools.sh >&2; exit 2; }
case ${1:-} in
    ddp) shift ;;
    grow) shift && exec bench/pools_grow.sh "$@" ;;
    *) usage ;;
esac
load= json= csv= svg=
while [ $# -gt 0 ]; do
    case $1 in
        --load) load=1 ;;
        --json) json=1 ;;
        --csv) csv=$(realpath -m "$2"); shift ;;
        --svg) svg=$(realpath -m "$2"); shift ;;
        *) usage ;;
    esac
    shift
done
. bench/daemon.sh

bandwidth=2000000 # of a drive, bytes a second
user=3200         # MiB that each side holds
failed=7          # the seat whose drive is taken out

# Pieces of 256 KiB of larger files would be more than a label's table can name.
declare -A scheme=([ddp]=ddp:8d:2p:60c:3s [raid6]=raid6:4d:50c:2s)
declare -A count=([ddp]=60 [raid6]=50) megabytes=([ddp]=160 [raid6]=256) options=([ddp]="-o piece=256K" [raid6]="")
# Drives that hold data.
declare -A busy=([ddp]=60 [raid6]=48)

now() { date +%s.%N; }
calc() { awk "BEGIN { printf \"%.${2:-3}f\", $1 }"; }

# SIDE WRAP: a pool named after the side that holds noise. With WRAP its drives are throttled.
make_pool() {
    local side=$1 drives=() index
    for index in $(seq "${count[$side]}"); do
        truncate -s "${megabytes[$side]}M" "$work/$side-$index"
        if [ -n "$2" ]; then
            drives+=("slow:$work/$side-$index?bandwidth=$bandwidth")
        else
            drives+=("$work/$side-$index")
        fi
    done
    # shellcheck disable=SC2086
    "$ravelin" pool create "$side" "${scheme[$side]}" "${drives[@]}" ${options[$side]} --yes >/dev/null
    "$ravelin" volume create "$side/v" --size "${user}M" >/dev/null
    "$ravelin" --json bench "$side/v" --rw write --bs 4m --iodepth 16 --compressible 0 --total "${user}M" --yes >/dev/null
    # What is logged is put in place, so that it does not compete with the rebuild.
    sleep 3
}

end_pool() {
    "$ravelin" pool destroy "$1" --yes >/dev/null
    rm -f "$work/$1"-*
}

# SIDE: bytes that each seat has read and written for the rebuild, a seat a line.
moved() {
    "$ravelin" --json pool status "$1" | tr ',{}' '\n' | awk -F: '
        /"rebuild_read_bytes"/ { n = $2 }
        /"rebuild_write_bytes"/ { print n + $2 }'
}

# SIDE: takes the drive out; sets `took` (seconds), `total` (bytes that all drives have moved) and `balance` (the busiest drive by the mean
# of those that had something to do).
rebuild() {
    local side=$1 begun
    begun=$(now)
    "$ravelin" drive fail "$side" "$failed" >/dev/null
    "$ravelin" pool wait "$side" --for rebuild >/dev/null
    took=$(calc "$(now) - $begun")
    read -r total balance < <(moved "$side" | awk '
        $1 > 0 { all += $1; n += 1; if ($1 > max) max = $1 }
        END { print all, (n ? max * n / all : 0) }')
}

# SIDE: clients at a fixed rate until the file `$work/stop` is there; a line a second: seconds, MB/s, 99th percentile in ms.
clients() {
    local side=$1 rate begun out
    rate=$((bandwidth * ${busy[$side]} * 3 / 10))
    begun=$(now)
    while [ ! -e "$work/stop" ]; do
        out=$("$ravelin" --json bench "$side/v" --rw randread --bs 4m --iodepth 64 --rate "$rate" --time 1)
        echo "$(calc "$(now) - $begun" 1),$(calc "$(field bytes_per_second <<<"$out") / 1e6" 1),$(calc "$(field p99_us <<<"$out") / 1000" 1)"
    done >"$work/$side.csv"
}

# SIDE: its rebuild with the load that is asked for.
measure() {
    local side=$1
    make_pool "$side" slow
    if [ -n "$load" ]; then
        "$ravelin" pool rebuild "$side" --priority high >/dev/null
        rm -f "$work/stop"
        clients "$side" &
        sleep 3
    fi
    rebuild "$side"
    if [ -n "$load" ]; then
        sleep 3
        touch "$work/stop"
        wait $!
    fi
    end_pool "$side"
    eval "took_$side=$took balance_$side=$balance"
}

# ---- Curves.

# Rates and percentiles of both sides over time, as an SVG of two panels.
draw() {
    awk -F, -v failed_at=3 '
        FNR == 1 { side = FILENAME; sub(/.*\//, "", side); sub(/\.csv$/, "", side); sides[++n] = side }
        { t[side, FNR] = $1; y[1, side, FNR] = $2; y[2, side, FNR] = $3; rows[side] = FNR
          if ($1 > end) end = $1; if ($2 > top[1]) top[1] = $2; if ($3 > top[2]) top[2] = $3 }
        function at(x) { return 60 + 620 * x / end }
        END {
            split("#1f77b4 #d62728", color, " "); name[1] = "clients, MB/s"; name[2] = "99th percentile, ms"
            print "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"720\" height=\"460\" font-family=\"sans-serif\" font-size=\"12\">"
            print "<rect width=\"720\" height=\"460\" fill=\"white\"/>"
            for (panel = 1; panel <= 2; panel++) {
                low = 200 + 210 * (panel - 1)
                printf "<text x=\"60\" y=\"%d\">%s</text><path d=\"M60 %d V%d H680\" fill=\"none\" stroke=\"black\"/>\n", low - 168, name[panel], low - 160, low
                printf "<text x=\"55\" y=\"%d\" text-anchor=\"end\">%.0f</text><text x=\"55\" y=\"%d\" text-anchor=\"end\">0</text>\n", low - 150, top[panel], low
                printf "<path d=\"M%.1f %d V%d\" stroke=\"gray\" stroke-dasharray=\"4\"/>\n", at(failed_at), low - 160, low
                for (s = 1; s <= n; s++) {
                    printf "<polyline fill=\"none\" stroke=\"%s\" points=\"", color[s]
                    for (row = 1; row <= rows[sides[s]]; row++)
                        printf "%.1f,%.1f ", at(t[sides[s], row]), low - 155 * y[panel, sides[s], row] / top[panel]
                    print "\"/>"
                    if (panel == 1) printf "<text x=\"%d\" y=\"20\" fill=\"%s\">%s</text>\n", 400 + 120 * s, color[s], sides[s]
                }
            }
            printf "<text x=\"680\" y=\"440\" text-anchor=\"end\">%.0f s; the dashed line: a drive is taken out</text>\n</svg>\n", end
        }' "$work/ddp.csv" "$work/raid6.csv"
}

# ---- The machine, then both sides.

make_pool ddp ""
rebuild ddp
free=$(calc "$total / $took / 1e6" 0)
end_pool ddp
throttled=$(calc "$bandwidth * ${count[ddp]} / 1e6" 0)
suffices=$([ "$free" -ge $((2 * throttled)) ] && echo yes || echo no)

measure raid6
measure ddp

model=$(calc "59 * 48 / (9 * 32)")
share=$([ -n "$load" ] && echo 0.55 || echo 0.75)
bound=$(calc "$share * $model / $balance_ddp" 2)
ratio=- holds=-
if [ "$suffices" = yes ]; then
    ratio=$(calc "$took_raid6 / $took_ddp" 2)
    holds=$(awk "BEGIN { print ($ratio >= $bound ? \"yes\" : \"no\") }")
fi
if [ -n "$load" ] && [ -n "$csv" ]; then
    {
        echo "side,seconds,megabytes_per_second,p99_milliseconds"
        for side in ddp raid6; do sed "s/^/$side,/" "$work/$side.csv"; done
    } >"$csv"
fi
if [ -n "$load" ] && [ -n "$svg" ]; then draw >"$svg"; fi

if [ -n "$json" ]; then
    number() { if [ "$1" = - ]; then echo null; else echo "$1"; fi; }
    cat <<END
{"bench": "pools ddp", "load": $([ -n "$load" ] && echo true || echo false), "unthrottled_megabytes_per_second": $free,
 "throttled_megabytes_per_second": $throttled, "raid6_seconds": $took_raid6, "ddp_seconds": $took_ddp, "balance": $balance_ddp,
 "model": $model, "ratio": $(number "$ratio"), "bound": $bound, "holds": $([ "$holds" = - ] && echo null || { [ "$holds" = yes ] && echo true || echo false; })}
END
    exit
fi
machine
echo
echo "| | seconds | busiest drive by the mean |"
echo "| --- | --: | --: |"
echo "| rebuild of \`${scheme[raid6]}\` | $(calc "$took_raid6" 1) | - |"
echo "| rebuild of \`${scheme[ddp]}\` | $(calc "$took_ddp" 1) | $(calc "$balance_ddp" 2) |"
echo
echo "ratio $ratio, at least $bound = $share × $model ÷ $(calc "$balance_ddp" 2): $holds; the paper: 8.67"
echo "all drives without throttles: $free MB/s, and $throttled with them$([ "$suffices" = yes ] || echo ": this machine is too slow for a ratio")"
