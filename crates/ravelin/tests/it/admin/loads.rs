//! Loads of `ravelin bench`: what they write, and options that do not go together.

use std::time::{Duration, Instant};

use super::MIB;
use crate::support::bench::Bench;

#[test]
fn compressible_content_takes_its_share_of_drives_that_compress() {
    const SIZE: u64 = 8 * MIB;
    let bench = Bench::new("content");
    let files = bench.drives("d", 4, 256 * MIB);
    let drives: Vec<String> = { files.iter() }
        .map(|file| format!("compress:{file}?physical=128M"))
        .collect();
    let in_place = ["-o", "journal=intent", "-o", "checksum=off"];
    let made = bench.create("tank", "raid5", &drives, &in_place);
    assert_eq!(made.code, 0, "{}", made.stderr);
    bench.ok(&["volume", "create", "tank/v", "--size", "8M"]);
    let used = || {
        let status = bench.json(&["pool", "status", "tank"]);
        let seats = status["seats"].as_array().unwrap().iter();
        { seats.map(|seat| seat["used_bytes"].as_u64().unwrap()) }.sum::<u64>()
    };
    for percent in [75, 0, 50] {
        let share = format!("{percent}");
        let all = SIZE / 3 * 4 * (100 - percent) / 100;
        let load = [
            "bench", "tank/v", "--rw", "write", "--bs", "256k", "--total", "8M", "--yes",
        ];
        bench.ok(&[&load[..], &["--compressible", &share]].concat());
        let wanted = all..all + all / 16 + MIB;
        // The lane puts in place what it has logged.
        let begun = Instant::now();
        while !wanted.contains(&used()) {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "{percent} %: {} bytes instead of {all}",
                used()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    // Only reads: nothing is lost, so no question.
    let mixed = [
        "bench", "tank/v", "--read", "100", "--hot", "90/10%", "--time", "1",
    ];
    let before = used();
    assert!(bench.ok(&mixed).contains("IOPS"));
    assert_eq!(used(), before);
    bench
        .run(&[&mixed[..3], &["99", "--time", "1"]].concat())
        .refused(2, &["it will be overwritten with zeros", "--yes"]);
    bench
        .run(&["bench", "tank/v", "--read", "100", "--hot", "90/1k"])
        .refused(2, &["room for one of 4096 bytes", "try: ", "--hot 90/10%"]);
}

/// Each message has what was wrong and what to give instead.
#[test]
fn loads_that_cannot_be_are_refused_with_what_to_give() {
    let bench = Bench::without_daemon("loads");
    let refused = |more: &[&str], parts: &[&str]| {
        bench
            .run(&[&["bench", "tank/v"], more].concat())
            .refused(2, parts);
    };
    refused(&["--hot", "90"], &["`90` is not a share", "90/10%"]);
    refused(
        &["--hot", "90/0%"],
        &["`0` is not a percentage from 1 to 99"],
    );
    refused(&["--hot", "100/10%"], &["`100` is not a percentage"]);
    refused(&["--hot", "90/much"], &["`much` is not a size"]);
    refused(
        &["--hot", "90/10%", "--rw", "write"],
        &["all of it in turn", "--rw randread"],
    );
    refused(&["--read", "101"], &["101 is not in 0..=100"]);
    refused(
        &["--read", "50", "--rw", "randwrite"],
        &["only one of them", "--rw randrw"],
    );
    refused(
        &["--compressible", "100", "--rw", "write"],
        &["are zeros", "leave --compressible out"],
    );
    refused(
        &["--compressible", "half"],
        &["from 0 to 99", "0 writes noise"],
    );
    refused(&["--compressible", "50"], &["only reads", "--rw randwrite"]);
    refused(
        &["--compressible", "50", "--rw", "write", "--bs", "6k"],
        &["blocks of 4 KiB", "--bs 4k"],
    );
}

/// An open loop: the rate is that of the requests, and a drive that does not keep up shows in the latency.
#[test]
fn a_rate_is_kept_and_what_does_not_keep_up_shows_in_the_latency() {
    let bench = Bench::new("open");
    let drives = bench.drives("d", 3, 40 * MIB);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "16M"]);
    fn load<'a>(more: &[&'a str]) -> Vec<&'a str> {
        [&["bench", "tank/v", "--rw", "read", "--time"], more].concat()
    }
    let said = bench.ok(&load(&["2", "--bs", "64k", "--rate", "2M", "--json"]));
    let report: serde_json::Value = serde_json::from_str(&said).unwrap();
    let rate = report["bytes_per_second"].as_f64().unwrap() / 1048576.0;
    assert!((1.6..2.1).contains(&rate), "{report}");
    bench
        .run(&load(&["2", "--rate", "2M", "--iodepth", "4"]))
        .refused(2, &["--rate", "cannot be used with"]);
    bench
        .run(&load(&["1", "--bs", "1M", "--rate", "64k"]))
        .refused(2, &["no request is due before the time is over"]);
}
