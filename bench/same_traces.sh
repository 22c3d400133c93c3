#!/bin/bash
# Compares the traces of N seeds of each scope between two builds: do both do the same things in the same order?
#
#   bench/same_traces.sh BASE NEW [N [FIRST]]      two builds of `cargo build -p ravelin-sim --example traces`
#
# For commits that only move or rename code. Keep the binary of the commit before, build the commit, compare. The first
# seed that differs is printed with both lines: `sim::schedule::Runner::explain` shows its events in either build.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,7s/^# \?//p' "$0" >&2; exit 2; }
base=$(realpath "$1") new=$(realpath "$2") count=${3:-2000} first=${4:-1}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
different=0
for scope in orderly reported silent; do
    "$base" "$first" "$count" $scope >"$work/base" &
    "$new" "$first" "$count" $scope >"$work/new"
    wait $!
    lines=$(wc -l <"$work/base")
    # Both builds must have printed all traces.
    [ "$lines" = "$count" ] || { echo "$scope: $lines lines instead of $count" >&2; exit 1; }
    if cmp -s "$work/base" "$work/new"; then
        echo "$scope: $count seeds from $first, all traces the same, $(sha256sum <"$work/new" | cut -c1-16)"
    else
        different=1
        echo "$scope: traces differ, first here (base, new; seed, trace, requests, drive operations):"
        diff "$work/base" "$work/new" | grep '^[<>]' | sort -k2n -s | head -2
    fi
done
exit $different
