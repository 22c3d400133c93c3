#!/bin/sh
# CPU time per I/O of the NBD server, compared with nbdkit, interleaved: one command, one Markdown table.
# Arguments are passed on: bench/nbd.sh --rounds 15 --millis 1000
set -eu
cd "$(dirname "$0")/.."
exec cargo run --quiet --release -p ravelin-export --example nbd_bench -- "$@"
