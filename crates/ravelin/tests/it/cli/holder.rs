//! One holder at a time: a second daemon is refused, and a holder that was paused past a takeover stops before it
//! acknowledges anything.

use std::os::unix::fs::FileExt;
use std::time::Duration;

use array::format::{HOLDER_OFFSET, Holder, newest_label};
use export::nbd::{Client, Operation};
use rustix::process::Signal;

use super::fencing::{PAST_THE_LEASE, changes, signal};
use crate::support::bench::{Bench, bytes};

const MIB: u64 = 1 << 20;

#[test]
fn a_second_daemon_on_the_same_host_is_refused_by_the_locks() {
    let bench = Bench::new("first");
    let drives = bench.drives("d", 4, 96 * MIB);
    assert_eq!(bench.create("tank", "raid6", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "4M"]);
    let second = Bench::new("second");
    let first = bench.directory.display().to_string();
    let before: Vec<_> = drives.iter().map(|d| label_bytes(&bench, d)).collect();
    let pid = format!("pid {}", bench.pid());
    for more in [&[][..], &["--degraded"]] {
        let import = [&["pool", "import", "--dir", &first, "tank"], more].concat();
        second
            .run(&import)
            .refused(1, &["in use by another Ravelin daemon", &pid]);
    }
    let create = ["pool", "create", "other", "raid6", "--force", "--yes"];
    let paths: Vec<String> = drives.iter().map(|d| format!("{first}/{d}")).collect();
    let create: Vec<&str> = create
        .into_iter()
        .chain(paths.iter().map(String::as_str))
        .collect();
    second
        .run(&create)
        .refused(1, &["in use by another Ravelin daemon"]);
    let after: Vec<_> = drives.iter().map(|d| label_bytes(&bench, d)).collect();
    assert!(before == after, "nothing was changed");
    assert_eq!(bench.json(&["pool", "status", "tank"])["health"], "healthy");
}

fn label_bytes(bench: &Bench, drive: &str) -> Vec<u8> {
    bytes(&bench.path(drive))[..usize::try_from(HOLDER_OFFSET).unwrap()].to_vec()
}

#[test]
fn a_holder_paused_past_a_takeover_stops_before_it_acknowledges_anything() {
    let bench = Bench::new("paused");
    let drives = bench.drives("d", 4, 32 * MIB);
    assert_eq!(bench.create("tank", "raid6", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "2M"]);
    bench.ok(&["volume", "attach", "tank/v", "--nbd", "unix:nbd"]);
    let socket = bench.path("nbd").display().to_string();
    let uri = format!("nbd+unix:///tank/v?socket={socket}");
    let mut client = Client::connect(&uri.parse().unwrap(), None).unwrap();
    client.set_timeout(Some(Duration::from_secs(30)));
    for block in 0..16 {
        client.write(block * 4096, &[7; 4096], true).unwrap();
    }

    signal(&bench, Signal::STOP);
    // Operations that the kernel has already complete.
    std::thread::sleep(Duration::from_millis(300));
    for block in 0..8 {
        let write = Operation::Write {
            offset: block * 4096,
            buffer: vec![9; 4096],
            fua: block % 2 == 0,
        };
        client.submit(write).unwrap();
    }
    client.send().unwrap();
    // Another host has waited for the lease to expire, and takes the pool over.
    for drive in &drives {
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(bench.path(drive))
            .unwrap();
        let held = bytes(&bench.path(drive));
        let slot = |at: usize| &held[at..at + (504 << 10)];
        let (_, label) = newest_label([slot(4 << 10), slot(512 << 10)]).unwrap();
        let reservation = Holder {
            pool: label.facts.uuid,
            opening: label.drive,
            boot: label.drive,
            heartbeat: 1,
            period_ms: 10_000,
            number: Some(label.generation.next()),
        };
        file.write_all_at(&reservation.encode(), HOLDER_OFFSET)
            .unwrap();
    }
    std::thread::sleep(PAST_THE_LEASE);
    let before: Vec<_> = drives.iter().map(|d| bytes(&bench.path(d))).collect();
    signal(&bench, Signal::CONT);

    let mut answers = Vec::new();
    while let Ok(Some(reply)) = client.wait() {
        answers.push(reply.ok().is_ok());
    }
    assert!(
        !answers.contains(&true),
        "something was acknowledged: {answers:?}"
    );
    std::thread::sleep(Duration::from_millis(500));
    // The signal may have stopped a thread between its check of the lease and its entry into the kernel, during a
    // checkpoint that began earlier. The operations of this one entry may land, but no later ones.
    let mut late = 0;
    for (drive, before) in drives.iter().zip(&before) {
        let changes = changes(before, &bytes(&bench.path(drive)));
        if !changes.is_empty() {
            eprintln!("landed late on {drive}, by region and first byte: {changes:?}");
        }
        late += changes.values().map(Vec::len).sum::<usize>();
        assert!(!holds_what_was_queued(before, &bench, drive), "{changes:?}");
    }
    assert!(late <= LATE_MAX, "{late} blocks landed late");
    assert!(
        bench.log().contains("another host has taken the pool over"),
        "{}",
        bench.log()
    );
    let events = bench.ok(&["pool", "events", "tank"]);
    assert!(events.contains("taken the pool over"), "{events}");
    // The daemon refuses more commands with this reason, and does not hang when it ends.
    assert_ne!(bench.run(&["drive", "offline", "tank", "1"]).code, 0);
}

/// Blocks that one entry into the kernel can carry here: a checkpoint's data blocks, its metadata pages, or an anchor.
const LATE_MAX: usize = 32;

/// Whether a drive has a block of the writes that were requested after the holder had stopped.
fn holds_what_was_queued(before: &[u8], bench: &Bench, drive: &str) -> bool {
    let after = bytes(&bench.path(drive));
    let blocks = before.chunks(4096).zip(after.chunks(4096));
    blocks
        .filter(|(before, after)| before != after)
        .any(|(_, after)| after.iter().all(|&byte| byte == 9))
}
