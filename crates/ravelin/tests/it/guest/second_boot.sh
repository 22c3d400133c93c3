soon test -e /home/log
say "mounted: $(mounted)"
right "$(cat /var/lib/ravelin/acknowledged)" && say "lines: right"
[ "$(cat /home/file)" = "before the power cut" ] && say "another file: right"
append
soon test -e /run/acknowledged
old=$(main)
systemctl restart ravelin
state restarted $old
kill $appender
wait $appender 2>/dev/null
lines=$(cat /run/acknowledged)
systemctl stop ravelin
say "stopped: $(systemctl is-active ravelin), mounted: $(mounted), device: $(cat /sys/block/loop0/loop/backing_file 2>/dev/null || echo none)"
systemctl start ravelin
systemctl start home.mount
say "started: $(systemctl is-active ravelin), mounted: $(mounted), lines: $(right $lines && echo right)"
say end
echo o >/proc/sysrq-trigger
sleep 60
