# The link's target, or "none".
link() {
    if [ -L /dev/ravelin/tank/home ]; then readlink -f /dev/ravelin/tank/home; else echo none; fi
}
mkdir -p /run/ravelin /drives
/lib/systemd/systemd-udevd --daemon
udevadm trigger --settle
for drive in a b c; do truncate -s 100M /drives/$drive; done
ravelin daemon >/daemon.log 2>&1 &
until ravelin pool list >/dev/null 2>&1; do sleep 0.1; done
ravelin pool create tank raid5 /drives/a /drives/b /drives/c >/dev/null
ravelin volume create tank/home --size 16M >/dev/null
ravelin volume attach tank/home --nbd unix:/run/home.sock >/dev/null
say "before: $(link)"
nbd-client -unix /run/home.sock -N tank/home /dev/nbd0 >/dev/null 2>&1
udevadm settle
say "connected: $(link)"
say "listed: tank/home $(ravelin volume list | grep -o '/dev/nbd[0-9]*')"
head -c 1048576 /dev/urandom >/bytes
dd if=/bytes of=/dev/ravelin/tank/home bs=65536 conv=fsync 2>/dev/null
echo 3 >/proc/sys/vm/drop_caches
head -c 1048576 /dev/ravelin/tank/home | cmp - /bytes && say "read back: right"
# A device that serves nothing of ours has no name.
say "the other: $(ravelin volume of-device /dev/nbd1 2>/dev/null || echo none)"
nbd-client -d /dev/nbd0 >/dev/null 2>&1
udevadm settle
say "disconnected: $(link)"
