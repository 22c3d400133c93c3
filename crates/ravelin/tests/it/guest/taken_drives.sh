mkdir -p /run/ravelin /run/lock/lvm /etc/lvm /state
/lib/systemd/systemd-udevd --daemon
udevadm trigger --settle
start() {
    ravelin daemon --state /state --wait-drives 60 >>/daemon.log 2>&1 &
    daemon=$!
    until ravelin pool list >/dev/null 2>&1; do sleep 0.1; done
}
# Does a command succeed? Else why it does not.
ends() {
    if "$@" >/printed 2>&1 </dev/null; then echo yes; else sed 's/ (UUID.*//; s/ (label.*//; s/.*: \(in use\)/\1/' /printed | tr '\n' ' '; fi
}
start
set -- /dev/vda /dev/vdb /dev/vdc
# Each command comes as soon as the one before has ended, while udev reads the drives.
worked=0
udev=0
try() {
    if "$@" >/printed 2>&1 </dev/null; then
        worked=$((worked + 1))
    else
        say "$* (the daemon is $daemon): $(head -n 4 /printed)"
    fi
}
for drive in "$@"; do
    try ravelin drive wipe $drive --yes
    # A program that does not wait.
    wipefs -a $drive >/dev/null 2>&1 || udev=$((udev + 1))
    try ravelin drive wipe $drive --yes
done
try ravelin pool create -n tank raid5 "$@"
try ravelin pool create tank raid5 "$@"
try ravelin pool destroy tank --yes
try ravelin pool create -n tank raid5 "$@"
say "worked: $worked of 10"
[ $udev != 0 ] && say "udev had a drive"

# These programs do not wait for udev.
patiently() {
    for try in $(seq 20); do
        udevadm settle
        "$@" >/patiently.log 2>&1 && return
    done
    say "$*: $(cat /patiently.log)"
}
patiently mdadm --create /dev/md0 --run --level=1 --raid-devices=2 --metadata=1.2 --assume-clean /dev/vda /dev/vdb
say "md, wipe: $(ends ravelin drive wipe /dev/vda --yes)"
say "md, plan: $(ends ravelin pool create -n tank raid5 "$@")"
patiently mdadm --stop /dev/md0
say "md stopped, plan: $(ends ravelin pool create -n tank raid5 "$@")"
for drive in /dev/vda /dev/vdb; do say "md stopped, wipe: $(ends ravelin drive wipe $drive --yes)"; done

if [ -x /bin/lvm ]; then
    run_lvm() {
        patiently lvm "$@" --config 'devices{use_devicesfile=0} activation{udev_sync=0 udev_rules=0}'
    }
    run_lvm pvcreate -y /dev/vdc
    run_lvm vgcreate group /dev/vdc
    say "lvm, not active, plan: $(ends ravelin pool create -n tank raid5 "$@")"
    run_lvm lvcreate -y -n volume -L 16M -Zn -Wn group
    say "lvm, wipe: $(ends ravelin drive wipe /dev/vdc --yes)"
    say "lvm, plan: $(ends ravelin pool create -n tank raid5 "$@")"
    run_lvm vgchange -an group
    say "lvm stopped, wipe: $(ends ravelin drive wipe /dev/vdc --yes)"
fi

# Names that udev makes late.
id=/dev/disk/by-id/virtio-
udevadm settle
ravelin pool create tank raid5 ${id}ONE ${id}TWO ${id}THREE >/printed 2>&1 || say "no pool: $(cat /printed)"
ravelin volume create tank/home --size 16M >/dev/null
kill $daemon
wait $daemon
udevadm control --exit
rm -rf /run/udev/data /run/udev/links /dev/disk
echo 'SUBSYSTEM=="block", KERNEL=="vd*", PROGRAM="/bin/sleep 3"' >/etc/udev/rules.d/00-late.rules
/lib/systemd/systemd-udevd --daemon
ls /dev/disk/by-id >/dev/null 2>&1 || say "names: not there"
udevadm trigger
ravelin daemon --state /state --wait-drives 60 >>/daemon.log 2>&1 &
until ravelin pool status tank --check >/printed 2>&1; do sleep 0.1; done
say "pool: $(grep state: /printed | xargs), drives: $(grep -c ' online ' /printed)"
udevadm settle
ls /dev/disk/by-id >/dev/null 2>&1 && say "names: there"
