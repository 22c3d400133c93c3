# Sourced by scripts that measure pools on files on tmpfs: starts a daemon of their own, which ends with the script.
# Sets `ravelin` and `work`, a directory on tmpfs.
ravelin=${RAVELIN:-target/release/ravelin}
[ -x "$ravelin" ] || cargo build --release -p ravelin
ravelin=$(realpath "$ravelin")

work=$(mktemp -d "/dev/shm/ravelin-$(basename "$0" .sh).XXXXXX")
export RAVELIN_SOCKET=$work/socket
daemon=
clean_up() {
    set +e
    [ -n "$daemon" ] && kill "$daemon" && wait "$daemon"
    rm -rf "$work"
} 2>/dev/null
trap clean_up EXIT
trap "exit 1" INT TERM
"$ravelin" daemon >"$work/log" 2>&1 &
daemon=$!
for _ in $(seq 100); do "$ravelin" pool list >/dev/null 2>&1 && break || sleep 0.1; done

# The first value of this name in JSON from stdin.
field() { tr ',{}' '\n' | awk -F: -v name="\"$1\"" '$1 ~ name { print $2; exit }'; }

# The median of the lines of stdin, with this number of decimals.
median() { sort -g | awk -v d="$1" '{ v[NR] = $1 } END { printf "%.*f", d, (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'; }

# The line before a table: date, load and machine.
machine() { echo "$(date -u +%F), load $(cut -d' ' -f1-3 /proc/loadavg), $(nproc) CPUs, kernel $(uname -r)"; }
