# Parts of both boots.
say() { echo "@guest $*" >/dev/ttyS0; }
# Waits until a command succeeds; ends the guest if it never does.
soon() {
    for try in $(seq 400); do
        "$@" && return
        sleep 0.1
    done
    say "never: $*"
    tail -20 /run/ravelin.log >/dev/ttyS0
    systemctl list-jobs >/dev/ttyS0
    echo o >/proc/sysrq-trigger
    sleep 60
}
# Where the file system is mounted, or "no".
mounted() { if grep -q ' /home ' /proc/mounts; then echo /home; else echo no; fi; }
main() { systemctl show -p MainPID --value ravelin; }
# A process with an open file, which it makes longer line by line and durable after each.
append() {
    (
        exec 3>>/home/log
        number=$(wc -l </home/log)
        while number=$((number + 1)); do
            echo "line $number" >&3 || exit
            sync -d /home/log || exit
            echo $number >/run/acknowledged
        done
    ) &
    appender=$!
}
# Waits until ten more lines are acknowledged.
appends() {
    before=$(cat /run/acknowledged)
    for try in $(seq 300); do
        [ "$(cat /run/acknowledged)" -lt $((before + 10)) ] || { echo yes; return; }
        kill -0 $appender 2>/dev/null || { echo ended; return; }
        sleep 0.1
    done
    echo no
}
right() { awk '$0 != "line " NR { bad = 1 } END { exit bad }' /home/log && [ "$(wc -l </home/log)" -ge "$1" ]; }
# Another process than OLD is the daemon, and ready.
is_active() { [ "$(systemctl is-active ravelin)" = active ] && [ "$(main)" != "$1" ]; }
# state NAME OLD: after what has replaced process OLD.
state() {
    soon is_active "$2"
    same=no
    [ "$(main)" != "$2" ] || same=yes
    say "$1: $(systemctl is-active ravelin), same process: $same, appends: $(appends), mounted: $(mounted)"
}
