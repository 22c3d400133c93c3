//! Volumes: what making one, and its first writes, cost and keep.

use std::os::unix::fs::MetadataExt;

use export::nbd::Client;

use crate::MIB;
use crate::bench::Bench;

/// Bytes that files take on their file system.
fn used_bytes(bench: &Bench, drives: &[String]) -> u64 {
    let files = drives.iter().map(|drive| bench.path(drive));
    let blocks = files.map(|file| std::fs::metadata(file).unwrap().blocks());
    blocks.sum::<u64>() * 512
}

/// Serves the volume; where.
fn attach(bench: &Bench) -> String {
    let served = bench.json(&["volume", "attach", "tank/v", "--nbd", "unix:v.sock"]);
    served["uri"].as_str().unwrap().to_owned()
}

fn client(uri: &str) -> Client {
    Client::connect(&uri.parse().unwrap(), None).unwrap()
}

/// Each gibibyte of a new volume cost 6.75 MiB of writes: a quarter of an hour for ten tebibytes. Labels are enough,
/// and what was written since is there after a kill.
#[test]
fn a_volume_of_ten_tebibytes_is_made_at_once_and_keeps_its_first_writes() {
    const TIB: u64 = 1 << 40;
    let mut bench = Bench::new("ten");
    let drives = bench.drives("d", 6, 4 * TIB);
    assert_eq!(bench.create("tank", "raid6", &drives, &[]).code, 0);
    let empty = used_bytes(&bench, &drives);
    bench.ok(&["volume", "create", "tank/v", "--size", "10T"]);
    let made = used_bytes(&bench, &drives);
    assert!(
        made < empty + 16 * MIB,
        "{empty} bytes before, {made} after"
    );

    let places: Vec<u64> = (0..11).map(|k| k * 9 * (TIB / 10) / 4096 * 4096).collect();
    let block = |place: u64| [u8::try_from(place % 251).unwrap() + 1; 4096];
    let uri = attach(&bench);
    let mut writer = client(&uri);
    for &place in &places {
        assert_eq!(writer.read(place, 4096).unwrap(), [0; 4096], "{place}");
        writer.write(place, &block(place), true).unwrap();
    }
    let written = used_bytes(&bench, &drives);
    assert!(
        written < made + 64 * MIB,
        "{made} bytes before, {written} after"
    );
    bench.kill();
    drop(writer);

    bench.start();
    let mut reader = client(&uri);
    for &place in &places {
        assert_eq!(reader.read(place, 4096).unwrap(), block(place), "{place}");
        let beside = reader.read(place + 8192, 4096).unwrap();
        assert_eq!(beside, [0; 4096], "behind {place}");
    }
    reader.disconnect().unwrap();
    bench.ok(&["volume", "detach", "tank/v"]);
    // What another volume held does not shine through.
    bench.ok(&["volume", "delete", "tank/v", "--yes"]);
    bench.ok(&["volume", "create", "tank/v", "--size", "1T"]);
    let mut other = client(&attach(&bench));
    assert_eq!(other.read(0, 4096).unwrap(), [0; 4096]);
    other.write(4096, &[7; 4096], true).unwrap();
    assert_eq!(other.read(0, 4096).unwrap(), [0; 4096]);
    assert_eq!(other.read(4096, 4096).unwrap(), [7; 4096]);
}
