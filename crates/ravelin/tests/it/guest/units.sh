# What mkfs.xfs chooses for a device: the sector, and the stripe in blocks of 4 KiB.
xfs() { mkfs.xfs -f -N "$@" | sed -nE '/meta-data|log/d; s/.*(sectsz=[0-9]+) .*/\1/p; s/.*(sunit=[0-9]+ +swidth=[0-9]+) .*/\1/p' | xargs; }
say "disk with the line: $(xfs /dev/vda)"
say "disk without: $(xfs /dev/vdb)"
say "lsblk: $(lsblk -dno MIN-IO,OPT-IO,PHY-SEC,LOG-SEC /dev/vda | xargs)"
# The first full stripe of three chunks as three stripes of a chunk, everything else as it is: each block is where it was.
size=$(cat /sys/block/vdb/size)
printf '0 384 striped 3 128 /dev/vdb 0 /dev/vdb 128 /dev/vdb 256\n384 %s linear /dev/vdb 384\n' $((size - 384)) |
    dmsetup create --noudevsync units
dmsetup mknodes
say "device mapper: $(xfs -s size=4096 /dev/mapper/units)"
head -c 1048576 /dev/urandom >/bytes
dd if=/bytes of=/dev/mapper/units bs=65536 conv=fsync 2>/dev/null
head -c 1048576 /dev/vdb | cmp - /bytes && say "the same blocks"
