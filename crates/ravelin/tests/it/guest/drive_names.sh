# What lsblk shows of a drive: its type and its label.
shown() { lsblk -dno FSTYPE,LABEL /dev/$1 | xargs; }
# Waits until lsblk shows this of a drive; udev hears of a change a moment after it.
until_shown() {
    left=600
    until [ "$(shown $1)" = "$2" ] || [ $left = 0 ]; do left=$((left - 1)); sleep 0.1; done
}
mkdir -p /run/ravelin /run/drives
/lib/systemd/systemd-udevd --daemon
udevadm trigger --settle
for number in 0 1 2 3; do
    truncate -s 100M /run/drives/$number
    losetup /dev/loop$number /run/drives/$number
done
udevadm settle
say "empty: $(shown loop1)"
ravelin daemon >/daemon.log 2>&1 &
daemon=$!
until ravelin pool list >/dev/null 2>&1; do sleep 0.1; done
ravelin pool create tank raid5 /dev/loop0 /dev/loop1 /dev/loop2 >/dev/null
until_shown loop1 "ravelin_member tank"
say "created: $(shown loop1)"
properties() { udevadm info -q property -n /dev/$1 | grep -E "$2" | xargs; }
say "properties: $(properties loop1 '^(RAVELIN_|ID_FS_(TYPE|USAGE|VERSION|LABEL)=)')"
uuid=$(ravelin pool list --json | grep -o '"uuid":"[^"]*"' | cut -d'"' -f4)
[ "$(lsblk -dno UUID /dev/loop1)" = "$uuid" ] && say "identity: the pool's"
ravelin drive add tank /dev/loop3 >/dev/null
until_shown loop3 "ravelin_member tank"
say "added: $(shown loop3) $(properties loop3 RAVELIN_SEAT)"
# A file system on a volume is known as on any device.
ravelin volume create tank/home --size 16M >/dev/null
ravelin volume attach tank/home --loop >/attached 2>&1 || say "not attached: $(cat /attached)"
udevadm settle
volume=$(basename $(readlink -f /dev/ravelin/tank/home))
mkfs.ext4 -q -L data /dev/ravelin/tank/home
until_shown $volume "ext4 data"
say "volume: $(shown $volume)"
ravelin volume detach tank/home >/dev/null
# Members are known without a daemon, also when all devices are looked at anew.
kill $daemon
wait $daemon
udevadm trigger --settle
say "without a daemon: $(shown loop0) $(properties loop0 RAVELIN_SEAT)"
ravelin daemon >/daemon.log 2>&1 &
until ravelin pool status tank >/dev/null 2>&1; do sleep 0.1; done
ravelin pool destroy tank --yes >/dev/null
until_shown loop1 ""
say "destroyed: $(shown loop1)"
ravelin pool import --destroyed tank >/dev/null
until_shown loop1 "ravelin_member tank"
say "brought back: $(shown loop1)"
