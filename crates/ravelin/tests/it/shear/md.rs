//! Linux md, in an emulated guest (`../guest.rs`), over null_blk drives that take 2 ms a request and one request at a
//! time. Without mdadm: arrays are made through `/sys/block/md0/md`.

use std::time::Duration;

use serde_json::Value;

use super::answer::{Truth, Verdict, Way, judge};
use crate::support::kit::Kit;

const MODULES: &[&str] = &[
    "fs/configfs/configfs.ko",
    "drivers/block/null_blk/null_blk.ko",
    "crypto/xor.ko",
    "lib/raid6/raid6_pq.ko",
    "crypto/async_tx/async_tx.ko",
    "crypto/async_tx/async_memcpy.ko",
    "crypto/async_tx/async_xor.ko",
    "crypto/async_tx/async_pq.ko",
    "crypto/async_tx/async_raid6_recov.ko",
    "lib/libcrc32c.ko",
    "drivers/md/md-mod.ko",
    "drivers/md/raid0.ko",
    "drivers/md/raid10.ko",
    "drivers/md/raid456.ko",
];
/// Long, because the guest is emulated on two shared cores.
const TIME_LIMIT: Duration = Duration::from_secs(600);

/// Name in the guest's script, scheme, redundancy.
const ARRAYS: [(&str, &str, &str); 7] = [
    ("raid0", "raid0:4c", "none"),
    ("raid10", "raid10:4c", "mirror"),
    ("raid5-ls", "raid5:4c", "parity"),
    ("raid5-la", "raid5:la:4c", "parity"),
    ("raid5-rs", "raid5:rs:4c", "parity"),
    ("raid5-ra", "raid5:ra:4c", "parity"),
    ("raid6", "raid6:4c", "double-parity"),
];

#[test]
#[ignore = "real time: make shear"]
fn md_is_identified_and_no_byte_changes() {
    let kit = match Kit::find(&[]) {
        Ok(kit) => kit,
        Err(missing) => return println!("skipped: {missing}"),
    };
    let mut guest = kit.guest("shear-md", MODULES);
    guest.time_limit(TIME_LIMIT);
    let said = guest.run(include_str!("md.sh"));
    for (name, scheme, redundancy) in ARRAYS {
        let lines = said
            .lines()
            .filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let mut last = None;
        for line in lines {
            if let Some(why) = line.strip_prefix("skipped: ") {
                println!("skipped: md {name}: {why}");
                last = Some(Verdict::Right);
                continue;
            }
            let answer: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{said}"));
            let verdict = judge(&answer, &Truth::classic(scheme, redundancy), Way::Reads);
            println!(
                "md {name}: {verdict:?} in {:.0} s by {} requests",
                answer["seconds"].as_f64().unwrap(),
                answer["ios"]
            );
            assert!(
                !matches!(verdict, Verdict::Wrong(_)),
                "{verdict:?} {answer:#}"
            );
            last = Some(verdict);
        }
        assert_eq!(last, Some(Verdict::Right), "{name}: {said}");
    }
    assert!(
        said.lines().filter(|line| *line == "unchanged").count() >= 1,
        "{said}"
    );
    assert!(!said.contains("changed bytes"), "{said}");
}
