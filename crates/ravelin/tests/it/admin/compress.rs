//! Drives that compress show how much of their physical space is used.

use std::time::{Duration, Instant};

use export::nbd::Client;
use serde_json::Value;

use super::MIB;
use crate::support::bench::Bench;

const PHYSICAL: u64 = 64 * MIB;

/// Data of which half of each block is noise.
fn compressible(bytes: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut data = vec![0; bytes];
    for block in data.chunks_mut(4096) {
        for byte in &mut block[..2048] {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            *byte = state.to_be_bytes()[0];
        }
    }
    data
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
