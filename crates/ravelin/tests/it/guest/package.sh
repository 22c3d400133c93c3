# All files that are not the kernel's, the guest's own or dpkg's records.
files() {
    find / -xdev ! -path '/var/lib/dpkg/*' ! -path '/tmp/*' ! -path '/root/*' ! -path '/home/*' ! -name '*-' | sort
    cat /etc/group
}
# The first group leaves files that later ones only change.
groupadd other && groupdel other
mkdir -p /var/log /var/lib
touch /var/log/dpkg.log
files >/run/before
# Without its path the shell runs its own small one.
dpkg() { /bin/dpkg "$@" >/run/dpkg.log 2>&1 || say "dpkg $*: $(cat /run/dpkg.log)"; }
program() {
    if [ /proc/$(main)/exe -ef /usr/bin/ravelin ]; then echo the installed one; else echo the one before; fi
}
dpkg -i /old.deb
say "installed: $(systemctl is-enabled ravelin), group: $(grep -c '^ravelin:' /etc/group)"
systemctl enable --now ravelin >/run/enable.log 2>&1
soon is_active none
ravelin pool create tank raid5 /dev/vda /dev/vdb /dev/vdc >/dev/null 2>&1 || say "no pool: $(tail -3 /run/ravelin.log)"
ravelin volume create tank/home --size 48M >/dev/null
ravelin volume attach tank/home --loop >/dev/null
soon test -L /dev/ravelin/tank/home
mkfs.ext4 -q /dev/ravelin/tank/home
cp /etc/fstab /run/fstab
echo "/dev/ravelin/tank/home /home ext4 _netdev,x-systemd.requires=ravelin.service 0 0" >>/etc/fstab
systemctl daemon-reload
systemctl start home.mount
append
soon test -e /run/acknowledged

old=$(main)
dpkg -i /new.deb
same=no
[ "$(main)" != "$old" ] || same=yes
say "upgraded: same process: $same, $(program), appends: $(appends), says: $(grep -o 'systemctl restart ravelin' /run/dpkg.log)"
systemctl restart ravelin
state restarted $old
say "it runs $(program)"
kill $appender
wait $appender 2>/dev/null
lines=$(cat /run/acknowledged)

# Without an attached volume the package restarts the daemon itself.
systemctl stop home.mount
ravelin volume detach tank/home >/dev/null
old=$(main)
dpkg -i /new.deb
soon is_active $old
say "upgraded without volumes: $(program), pool: $(ravelin pool status tank | grep state: | xargs)"

# It is removed while a file system is mounted.
ravelin volume attach tank/home --loop >/dev/null
soon test -L /dev/ravelin/tank/home
systemctl start home.mount
dpkg -r ravelin
say "removed: $(systemctl is-active ravelin), mounted: $(mounted), device: $(cat /sys/block/loop0/loop/backing_file 2>/dev/null || echo none), program: $(ls /usr/bin/ravelin 2>/dev/null || echo none), state: $(ls -d /var/lib/ravelin)"
# What the daemon knew is there, so pools and volumes come back.
dpkg -i /new.deb
systemctl enable --now ravelin >/run/enable.log 2>&1
soon is_active none
soon test -L /dev/ravelin/tank/home
systemctl start home.mount
say "installed again: mounted: $(mounted), lines: $(right $lines && echo right)"

dpkg -P ravelin
systemctl daemon-reload
files >/run/after
say "purged: $(systemctl is-active ravelin), mounted: $(mounted), left: $(diff /run/before /run/after | grep '^[<>+-][^+-]' | xargs)"
# The pool is on its drives.
dpkg -i /new.deb
systemctl start ravelin
soon is_active none
ravelin pool import tank >/run/import.log 2>&1 || say "no pool: $(cat /run/import.log)"
ravelin volume attach tank/home --loop >/dev/null
soon test -L /dev/ravelin/tank/home
mount /dev/ravelin/tank/home /home
say "imported: lines: $(right $lines && echo right)"
say end
echo o >/proc/sysrq-trigger
sleep 60
