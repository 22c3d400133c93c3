soon is_active none
ravelin pool create tank raid5 /dev/vda /dev/vdb /dev/vdc >/dev/null 2>&1 || say "no pool: $(tail -3 /run/ravelin.log)"
ravelin volume create tank/home --size 48M >/dev/null
ravelin volume attach tank/home --fuse /run/ravelin/home.img --loop >/dev/null
soon test -L /dev/ravelin/tank/home
say "link: $(readlink -f /dev/ravelin/tank/home)"
mkfs.ext4 -q /dev/ravelin/tank/home
echo "/dev/ravelin/tank/home /home ext4 _netdev,x-systemd.after=ravelin.service 0 0" >>/etc/fstab
systemctl daemon-reload
systemctl start home.mount
say "mounted: $(mounted)"
append
soon test -e /run/acknowledged
old=$(main)
systemctl restart ravelin
state restarted $old
old=$(main)
kill -9 $old
state killed $old
# As the package does it: the program is replaced, then its script runs.
cp /usr/bin/ravelin /usr/bin/ravelin.new
mv /usr/bin/ravelin.new /usr/bin/ravelin
sh /postinst configure 0.0.1 >/run/postinst.log 2>&1 || say "the package's script fails: $(cat /run/postinst.log)"
soon is_active none
say "upgraded: appends: $(appends), mounted: $(mounted)"
echo "before the power cut" >/home/file
sync -d /home/file
say "another file: written"
cat /run/acknowledged >/var/lib/ravelin/acknowledged
sync -d /var/lib/ravelin/acknowledged
say end
echo b >/proc/sysrq-trigger
