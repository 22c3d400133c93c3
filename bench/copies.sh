#!/bin/bash
# A large file copied to ext4 and read back, beside btrfs on the same drives; as root, with btrfs-progs. One command, a Markdown table.
#
#   bench/copies.sh [--rounds N] [--mib N] [--only WORD]
#
# `raid0`, `raid5`, `raid6` over six files on tmpfs, by turns: a volume by FUSE and a loop device with ext4 on it, and btrfs with the
# same profile on loop devices over these files. First `cp` of a file with random bytes, and `sync`. Then the copy is read three times,
# each time with no part of it in memory. The quickest read counts, because a virtual machine's memory may be slow when it is first used.
# Printed are medians over the rounds in MiB/s, medians of the rounds' ratios, and the rates of ext4 on a raw loop device.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=5 mib=1024 only=
while [ $# -gt 0 ]; do
    case $1 in
        --rounds) rounds=$2; shift ;;
        --mib) mib=$2; shift ;;
        --only) only=$2; shift ;;
        *) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2 ;;
    esac
    shift
done
. bench/daemon.sh
files=() loops=()
end_drives() {
    mountpoint -q "$work/mount" && umount "$work/mount"
    for loop in "${loops[@]}"; do losetup -d "$loop"; done
    rm -f "${files[@]}"
    files=() loops=()
}
trap 'set +e; end_drives 2>/dev/null; clean_up' EXIT
modprobe btrfs 2>/dev/null || grep -q btrfs /proc/filesystems || { echo "skipped: btrfs is not there to compare with"; exit 0; }
mkdir "$work/mount"
head -c "${mib}M" /dev/urandom >"$work/source"

# COUNT: sparse files, each as large as the copy.
make_files() {
    local index
    for index in $(seq "$1"); do
        truncate -s $((mib + 512))M "$work/d$index"
        files+=("$work/d$index")
    done
}

make_loops() {
    local file
    for file in "${files[@]}"; do loops+=("$(losetup --find --show "$file")"); done
}

# Touches as much memory as a copy needs, and frees it.
warm_up() {
    dd if=/dev/zero of="$work/warm" bs=1M count=$((2 * mib)) status=none
    rm "$work/warm"
}

# DEVICE: MiB/s of the copy and of the later reads, on the file system mounted from the device; in `result`.
copy() {
    local begin written read best=0
    warm_up
    begin=$(date +%s.%N)
    cp "$work/source" "$work/mount/copy"
    sync -f "$work/mount/copy"
    written=$(awk "BEGIN { print $mib / ($(date +%s.%N) - $begin) }")
    for _ in 1 2 3; do
        umount "$work/mount"
        echo 3 >/proc/sys/vm/drop_caches
        mount "$1" "$work/mount"
        begin=$(date +%s.%N)
        cat "$work/mount/copy" >/dev/null
        read=$(awk "BEGIN { print $mib / ($(date +%s.%N) - $begin) }")
        best=$(printf "%s\n" "$best" "$read" | sort -g | tail -1)
    done
    cmp "$work/source" "$work/mount/copy"
    umount "$work/mount"
    result+="$written $best "
}

ext4() {
    mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 "$1"
    mount "$1" "$work/mount"
    copy "$1"
}

ours() {
    local device
    make_files 6
    "$ravelin" pool create s "$1" "${files[@]}" --yes >/dev/null
    "$ravelin" volume create s/v --size $((mib + mib / 4))M >/dev/null
    device=$("$ravelin" --json volume attach s/v --fuse "$work/v.img" --loop | grep -o '/dev/loop[0-9]*' | head -1)
    ext4 "$device"
    "$ravelin" volume detach s/v >/dev/null
    "$ravelin" pool destroy s --yes >/dev/null
    end_drives
}

theirs() {
    local meta=$1
    [ "$1" = raid6 ] && meta=raid1c3
    [ "$1" = raid5 ] && meta=raid1
    make_files 6
    make_loops
    mkfs.btrfs -q -f -d "$1" -m "$meta" "${loops[@]}" >/dev/null 2>&1
    btrfs device scan "${loops[@]}" >/dev/null
    mount "${loops[0]}" "$work/mount"
    copy "${loops[0]}"
    end_drives
}

raw() {
    make_files 1
    make_loops
    ext4 "${loops[0]}"
    end_drives
}

for _ in $(seq "$rounds"); do
    for scheme in raid0 raid5 raid6; do
        [[ $scheme == *$only* ]] || continue
        result=
        ours $scheme
        theirs $scheme
        echo "$result" >>"$work/$scheme"
    done
    result=
    raw
    echo "$result" >>"$work/raw"
done

column() { cut -d' ' -f"$2" <"$work/$1" | median 0; }
ratio() { awk "{ print \$$2 / \$$3 }" <"$work/$1" | median 2; }
echo "$(machine), $rounds rounds, $mib MiB; one raw loop device: $(column raw 1) and $(column raw 2) MiB/s"
echo
echo "| six files on tmpfs | \`cp\` and \`sync\`, MiB/s | btrfs | ratio | read, MiB/s | btrfs | ratio |"
echo "| --- | --: | --: | --: | --: | --: | --: |"
for scheme in raid0 raid5 raid6; do
    [ -e "$work/$scheme" ] || continue
    echo "| \`$scheme\` | $(column $scheme 1) | $(column $scheme 3) | $(ratio $scheme 1 3) | $(column $scheme 2) | $(column $scheme 4) | $(ratio $scheme 2 4) |"
done
