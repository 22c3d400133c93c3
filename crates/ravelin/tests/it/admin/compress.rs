//! Drives that compress show how much of their physical space is used.

use std::time::{Duration, Instant};

use block::SplitMix64;
use export::nbd::{Client, ClientError};
use serde_json::Value;

use super::MIB;
use crate::support::bench::Bench;

const PHYSICAL: u64 = 64 * MIB;

/// Data of which the first bytes of each block are noise, and the others zeros.
fn partly_noise(bytes: usize, noise: usize, seed: u64) -> Vec<u8> {
    let mut random = SplitMix64::new(seed);
    let mut data = vec![0; bytes];
    for block in data.chunks_mut(4096) {
        block[..noise].copy_from_slice(&random.bytes(noise));
    }
    data
}

/// Data of which half of each block is noise.
fn compressible(bytes: usize) -> Vec<u8> {
    partly_noise(bytes, 2048, 1)
}

/// The number of NBD's error for a lack of space.
const NO_SPACE: u32 = 28;

/// Writes noise from an offset on until there is no space. Returns how many bytes were written.
fn fill(client: &mut Client, from: u64, most: u64) -> u64 {
    const STEP: usize = 256 << 10;
    let mut at = from;
    while at < from + most {
        match client.write(at, &partly_noise(STEP, 4096, at + 1), false) {
            Ok(()) => at += STEP as u64,
            Err(ClientError::Remote { errno: NO_SPACE }) => break,
            Err(other) => panic!("at {at}: {other}"),
        }
    }
    at - from
}

/// No drive has gone out, and the pool counts as healthy.
#[track_caller]
fn assert_healthy(status: &Value) {
    assert_eq!(status["health"], "healthy", "{status}");
    for seat in status["seats"].as_array().unwrap() {
        assert_eq!(seat["state"], "current", "{status}");
    }
    let text = status["events"].to_string();
    assert!(!text.contains("drive_out"), "{text}");
}

fn used(document: &Value, of: &str) -> u64 {
    let drives = document[of].as_array().unwrap().iter();
    let used = drives.map(|drive| {
        assert_eq!(drive["physical_bytes"], PHYSICAL, "{document}");
        drive["used_bytes"].as_u64().unwrap()
    });
    used.sum()
}

#[test]
fn drives_that_compress_show_their_use() {
    let bench = Bench::new("compress");
    let files = bench.drives("d", 4, 256 * MIB);
    let drives: Vec<String> = { files.iter() }
        .map(|file| format!("compress:{file}?physical=64M"))
        .collect();
    let made = bench.create("tank", "raid5", &drives, &[]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    bench.ok(&["volume", "create", "tank/v", "--size", "100M"]);
    let status = || bench.json(&["pool", "status", "tank"]);
    assert!(used(&status(), "seats") < MIB, "{}", status());
    let seat = &status()["seats"][0];
    let [lower, upper] = ["lower_bytes", "upper_bytes"].map(|line| seat[line].as_u64().unwrap());
    assert!(lower < upper && upper < PHYSICAL, "{seat}");
    let served = bench.json(&["volume", "attach", "tank/v", "--nbd", "unix:v.sock"]);
    let uri = served["uri"].as_str().unwrap();
    let mut client = Client::connect(&uri.parse().unwrap(), None).unwrap();
    let data = compressible(48 << 20);
    for (at, part) in (0..).step_by(1 << 20).zip(data.chunks(1 << 20)) {
        client.write(at, part, false).unwrap();
    }
    client.flush().unwrap();
    client.disconnect().unwrap();
    // 24 MiB of noise and a third of that in parity. What the journal holds of it comes and goes.
    let begun = Instant::now();
    while !(28 * MIB..64 * MIB).contains(&used(&status(), "seats")) {
        assert!(begun.elapsed() < Duration::from_secs(30), "{}", status());
        std::thread::sleep(Duration::from_millis(100));
    }
    let iostat = bench.json(&["pool", "iostat", "tank"]);
    assert!(used(&iostat, "drives") > 28 * MIB, "{iostat}");
    for command in ["status", "iostat"] {
        let text = bench.ok(&["pool", command, "tank"]);
        let shows = text.contains("USED") && text.contains(" of 64 MiB");
        assert!(shows, "{text}");
    }
    // The lengths are counted again at an opening.
    bench.ok(&["pool", "export", "--force", "tank"]);
    bench.ok(&["pool", "import", "--dir", ".", "tank"]);
    assert!(
        used(&status(), "seats") > 28 * MIB,
        "drives keep their names: {}",
        status()
    );
}

/// A `raid5` pool on four drives with 64 MiB of physical space and 256 MiB of addresses. `before`: what stands before
/// each drive, and `behind` it.
fn pool(bench: &Bench, before: &str, behind: &str) {
    let files = bench.drives("d", 4, 256 * MIB);
    let drives: Vec<String> = { files.iter() }
        .map(|file| format!("{before}compress:{file}?physical=64M{behind}"))
        .collect();
    let made = bench.create("tank", "raid5", &drives, &[]);
    assert_eq!(made.code, 0, "{}", made.stderr);
}

/// Creates and serves a volume of 320 MiB.
fn client(bench: &Bench, volume: &str) -> Client {
    let name = format!("tank/{volume}");
    bench.ok(&["volume", "create", &name, "--size", "320M"]);
    let socket = format!("unix:{volume}.sock");
    let served = bench.json(&["volume", "attach", &name, "--nbd", &socket]);
    let uri = served["uri"].as_str().unwrap();
    let mut client = Client::connect(&uri.parse().unwrap(), None).unwrap();
    client.set_timeout(Some(Duration::from_secs(90)));
    client
}

/// The noise that [`fill`] has written is there.
#[track_caller]
fn assert_filled(client: &mut Client, range: std::ops::Range<u64>) {
    for at in range.step_by(8 << 20) {
        let expected = partly_noise(256 << 10, 4096, at + 1);
        assert!(client.read(at, 256 << 10).unwrap() == expected, "at {at}");
    }
}

/// Fills a volume, trims a half of what was written, and fills it again.
fn fills_trims_and_fills_again(bench: &Bench) {
    let mut client = client(bench, "v");
    let written = fill(&mut client, 0, 320 * MIB);
    let status = || bench.json(&["pool", "status", "tank"]);
    // Three of four drives' space is for data: 192 MiB less what ring, pages, labels and their reserve take.
    assert!(
        (96 * MIB..170 * MIB).contains(&written),
        "{written}, {}",
        status()
    );
    assert_healthy(&status());
    let waits = status()["writes_wait"].clone();
    assert!(waits.as_str().unwrap().contains("no space"), "{waits}");
    let text = bench.ok(&["pool", "status", "tank"]);
    assert!(text.contains("no space"), "{text}");
    assert_filled(&mut client, 0..written);
    let half = written / (2 << 20) * (1 << 20);
    client.trim(0, u32::try_from(half).unwrap()).unwrap();
    // The writes wait until the drives have discarded what was trimmed.
    let again = fill(&mut client, 200 * MIB, 32 * MIB);
    assert_eq!(again, 32 * MIB, "{}", status());
    assert_healthy(&status());
    assert_filled(&mut client, half.next_multiple_of(8 << 20)..written);
    assert_filled(&mut client, 200 * MIB..232 * MIB);
    // The pool says so with its next look at the drives.
    let deadline = Instant::now() + Duration::from_secs(10);
    while !status()["writes_wait"].is_null() {
        assert!(Instant::now() < deadline, "{}", status());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_full_drive_has_not_failed_and_takes_writes_again_after_a_trim() {
    let bench = Bench::new("full");
    pool(&bench, "", "");
    fills_trims_and_fills_again(&bench);
}

#[test]
fn a_full_drive_that_is_slow_takes_writes_again_after_a_trim() {
    let bench = Bench::new("full-slow");
    pool(&bench, "slow:", "?iops=4000");
    fills_trims_and_fills_again(&bench);
}

#[test]
fn many_lanes_and_two_volumes_fill_their_drives_to_the_end() {
    let bench = Bench::new("full-two");
    pool(&bench, "", "");
    let clients = ["v", "w"].map(|volume| client(&bench, volume));
    let writers = clients.map(|mut client| {
        std::thread::spawn(move || {
            let written = fill(&mut client, 0, 320 * MIB);
            (client, written)
        })
    });
    let mut all = 0;
    for writer in writers {
        let (mut client, written) = writer.join().unwrap();
        assert_filled(&mut client, 0..written);
        all += written;
    }
    let status = bench.json(&["pool", "status", "tank"]);
    assert!((96 * MIB..170 * MIB).contains(&all), "{all}, {status}");
    assert_healthy(&status);
}
