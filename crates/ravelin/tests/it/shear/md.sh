# Four drives of 256 MiB, in memory, that take 2 ms a request, one at a time.
mount -t configfs config /sys/kernel/config
for index in 0 1 2 3; do
    drive=/sys/kernel/config/nullb/slow$index
    mkdir $drive
    # Blocks in memory, requests in a queue of one, answers by a timer.
    for setting in size=256 memory_backed=1 blocksize=4096 queue_mode=2 submit_queues=1 hw_queue_depth=1 \
        irqmode=2 completion_nsec=2000000; do
        echo ${setting#*=} >$drive/${setting%%=*} || say "setup: $setting refused"
    done
    echo 1 >$drive/power
    # Its name is that of the directory, or with older kernels its number.
    if [ -e /sys/block/slow$index ]; then name=slow$index; else name=nullb$(cat $drive/index); fi
    eval drive$index=$name
done

# An array without a superblock, whose parity is taken for right.
make_array() { # level, layout
    echo md0 >/sys/module/md_mod/parameters/new_array
    cd /sys/block/md0/md || return 1
    echo $1 >level && echo 4 >raid_disks && echo 65536 >chunk_size || return 1
    [ -z "$2" ] || echo $2 >layout || return 1
    echo 131072 >component_size
    for index in 0 1 2 3; do
        eval drive=\$drive$index
        cat /sys/block/$drive/dev >new_dev || return 1
        echo 131072 >dev-$drive/size && echo $index >dev-$drive/slot || return 1
    done
    echo none >resync_start && echo active >array_state || return 1
    cd /
}

# A part of the volume has bytes of its own; the rest is zeros, which drives have to be asked for, too.
hash() { dd if=/dev/md0 bs=1M count=8 iflag=direct 2>/dev/null | sha256sum; }

measure() { # name, level, layout
    if ! make_array $2 $3; then
        cd /
        say "$1: skipped: md refuses it"
    else
        dd if=/dev/urandom of=/dev/md0 bs=1M count=8 oflag=direct 2>/dev/null
        before=$(hash)
        for seed in 1 2 3; do
            answer=$(ravelin shear /dev/md0 --json --seed $seed --max-seconds 120 2>&1 | tr -d '\n')
            say "$1: $answer"
            case $answer in *'"family": "unknown"'*) ;; *) break ;; esac
        done
        if [ "$(hash)" = "$before" ]; then say unchanged; else say "$1: changed bytes"; fi
    fi
    echo clear >/sys/block/md0/md/array_state
}

measure raid0 raid0 ""
measure raid10 raid10 258
measure raid5-la raid5 0
measure raid5-ra raid5 1
measure raid5-ls raid5 2
measure raid5-rs raid5 3
measure raid6 raid6 2
