//! Volumes: the cost of creating one and of its first writes, and what survives a crash.

use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant};

use export::nbd::Client;

use super::MIB;
use crate::support::bench::Bench;

/// Bytes that the files occupy on their file system.
fn used_bytes(bench: &Bench, drives: &[String]) -> u64 {
    let files = drives.iter().map(|drive| bench.path(drive));
    let blocks = files.map(|file| std::fs::metadata(file).unwrap().blocks());
    blocks.sum::<u64>() * 512
}

/// Serves the volume; returns the URI.
fn attach(bench: &Bench) -> String {
    let served = bench.json(&["volume", "attach", "tank/v", "--nbd", "unix:v.sock"]);
    served["uri"].as_str().unwrap().to_owned()
}

fn client(uri: &str) -> Client {
    Client::connect(&uri.parse().unwrap(), None).unwrap()
}

/// Regression: each gibibyte of a new volume cost 6.75 MiB of writes, which took a quarter of an hour for ten
/// tebibytes. Now only labels are written, and later writes survive a kill.
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
    // A new volume does not show the data of a deleted one.
    bench.ok(&["volume", "delete", "tank/v", "--yes"]);
    bench.ok(&["volume", "create", "tank/v", "--size", "1T"]);
    let mut other = client(&attach(&bench));
    assert_eq!(other.read(0, 4096).unwrap(), [0; 4096]);
    other.write(4096, &[7; 4096], true).unwrap();
    assert_eq!(other.read(0, 4096).unwrap(), [0; 4096]);
    assert_eq!(other.read(4096, 4096).unwrap(), [7; 4096]);
}

/// Waits until the drives' files occupy a twentieth of `full` at most. Fails after a minute, the time that the
/// documents name.
fn space_comes_back(bench: &Bench, drives: &[String], full: u64) {
    let begun = Instant::now();
    loop {
        let used = used_bytes(bench, drives);
        if used <= full / 20 {
            return;
        }
        let waited = begun.elapsed();
        assert!(waited < Duration::from_secs(60), "{used} bytes of {full}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Regression: trimmed data, and the data of deleted volumes, stayed on the drives until the space was written again.
#[test]
fn what_is_trimmed_or_deleted_goes_back_to_the_drives() {
    const SIZE: u64 = 256 * MIB;
    let bench = Bench::new("back");
    let drives = bench.drives("d", 6, 1 << 30);
    assert_eq!(bench.create("tank", "raid6", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "256M"]);
    let fill = |client: &mut Client| {
        for at in 0..SIZE / MIB {
            client.write(at * MIB, &[7; 1 << 20], false).unwrap();
        }
        client.flush().unwrap();
        let full = used_bytes(&bench, &drives);
        assert!(full > SIZE * 3 / 2, "{full} bytes hold all of it");
        full
    };
    let mut client = client(&attach(&bench));
    let full = fill(&mut client);
    client.trim(0, u32::try_from(SIZE).unwrap()).unwrap();
    space_comes_back(&bench, &drives, full);
    assert_eq!(client.read(5 * MIB, 4096).unwrap(), [0; 4096]);

    let full = fill(&mut client);
    client.disconnect().unwrap();
    bench.ok(&["volume", "detach", "tank/v"]);
    bench.ok(&["volume", "delete", "tank/v", "--yes"]);
    space_comes_back(&bench, &drives, full);
}

/// Bytes that clients have read of the volume.
fn read_bytes(bench: &Bench) -> u64 {
    let told = bench.json(&["pool", "iostat", "tank"]);
    told["volumes"][0]["read_bytes"].as_u64().unwrap()
}

/// Data extents of a range by NBD, as (first byte, length); holes are left out.
fn data(client: &mut Client, size: u64) -> Vec<(u64, u64)> {
    let mut data: Vec<(u64, u64)> = Vec::new();
    let mut at = 0;
    while at < size {
        let length = u32::try_from((size - at).min(3 << 30)).unwrap();
        for extent in client.block_status(at, length).unwrap() {
            assert!(extent.length > 0);
            let length = u64::from(extent.length);
            match data.last_mut() {
                _ if extent.state & 3 == 3 => {}
                Some((first, before)) if *first + *before == at => *before += length,
                _ => data.push((at, length)),
            }
            at += length;
        }
    }
    data
}

/// Regression: a copy of an empty volume read every byte of it, because the server reported no holes.
#[test]
fn what_was_never_written_or_is_trimmed_is_a_hole_to_clients() {
    const GIB: u64 = 1 << 30;
    let mut bench = Bench::new("holes");
    let drives = bench.drives("d", 6, 4 * GIB);
    assert_eq!(bench.create("tank", "raid6", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "10G"]);
    let uri = attach(&bench);
    let mut writer = client(&uri);
    assert_eq!(data(&mut writer, 10 * GIB), []);
    let written = [(3 * MIB, 40 * MIB), (4 * GIB + 4096, 60 * MIB)];
    for (offset, length) in written {
        for at in 0..length / MIB {
            writer
                .write(offset + at * MIB, &[7; 1 << 20], false)
                .unwrap();
        }
    }
    // Acknowledged writes count as data, flushed or not.
    assert_eq!(data(&mut writer, 10 * GIB), written);
    writer.flush().unwrap();
    writer.write(9 * GIB + 8192, &[7; 4096], true).unwrap();
    let all = [written[0], written[1], (9 * GIB + 8192, 4096)];
    assert_eq!(data(&mut writer, 10 * GIB), all);
    assert_eq!(read_bytes(&bench), 0);
    let copied = std::process::Command::new("nbdcopy")
        .args([&uri, bench.path("copy").to_str().unwrap()])
        .status();
    match copied {
        Ok(status) => {
            assert!(status.success());
            let read = read_bytes(&bench);
            assert!((100 * MIB..=110 * MIB).contains(&read), "{read} bytes read");
            let copy = std::fs::File::open(bench.path("copy")).unwrap();
            let at = |offset| {
                let mut bytes = [0; 4096];
                copy.read_exact_at(&mut bytes, offset).unwrap();
                bytes
            };
            assert_eq!(at(9 * GIB + 8192), [7; 4096]);
            assert_eq!(at(9 * GIB), [0; 4096]);
            drop(copy);
            std::fs::remove_file(bench.path("copy")).unwrap();
        }
        Err(error) => eprintln!("skipped: nbdcopy: {error}"),
    }
    // A trimmed stripe is a hole again, also for the next daemon, which knows only what is on the drives.
    writer.trim(4 * GIB, u32::try_from(GIB).unwrap()).unwrap();
    writer.flush().unwrap();
    let left = [all[0], all[2]];
    assert_eq!(data(&mut writer, 10 * GIB), left);
    writer.disconnect().unwrap();
    bench.terminate();
    bench.start();
    let mut reader = client(&uri);
    assert_eq!(data(&mut reader, 10 * GIB), left);
    reader.disconnect().unwrap();
}
