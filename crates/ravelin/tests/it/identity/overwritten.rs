//! Drives whose beginning was overwritten: by a firmware, `dd`, `mkfs` or a partitioning tool on the wrong disks.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use super::MIB;
use super::stories::{becomes_healthy, filled, holds_its_content};
use crate::support::bench::{Bench, checksum};

/// Zeroes the first MiB, and writes a partition table with its copy at the end.
fn partition(bench: &Bench, name: &str) {
    let file = OpenOptions::new().write(true).open(bench.path(name));
    let file = file.unwrap();
    let size = file.metadata().unwrap().len();
    file.write_all_at(&vec![0; usize::try_from(MIB).unwrap()], 0)
        .unwrap();
    file.write_all_at(b"EFI PART\0\0\x01\0\x5c\0\0\0", 512)
        .unwrap();
    file.write_all_at(&[0x55, 0xaa], 510).unwrap();
    file.write_all_at(b"EFI PART\0\0\x01\0\x5c\0\0\0", size - 512)
        .unwrap();
}

#[test]
fn a_pool_all_of_whose_drives_were_partitioned_is_found_by_the_copies_of_its_labels() {
    for (scheme, count) in [("raid5", 4), ("raid6", 5), ("raid10", 4), ("pddl2", 7)] {
        let bench = filled(&format!("partitioned-{scheme}"), scheme, count, &[]);
        bench.ok(&["pool", "export", "tank"]);
        for index in 0..count {
            partition(&bench, &format!("d{index}"));
        }
        let before: Vec<u32> = (0..count)
            .map(|index| checksum(&bench.path(&format!("d{index}"))))
            .collect();
        let listed = bench.ok(&["pool", "import", "--dir", "."]);
        let told = format!("the beginning of {count} more of its drives is overwritten");
        assert!(listed.contains(&told), "{listed}");
        let import = ["pool", "import", "--dir", ".", "tank"];
        bench
            .run(&import)
            .refused(1, &["are gone", "--repair-labels tank"]);
        let repair = [&import[..], &["--repair-labels"]].concat();
        bench
            .run(&repair)
            .refused(2, &["the first MiB of ", "--yes"]);
        for (index, sum) in before.into_iter().enumerate() {
            let now = checksum(&bench.path(&format!("d{index}")));
            assert_eq!(now, sum, "drive {index} was written to");
        }
        bench.ok(&[&repair[..], &["--yes"]].concat());
        becomes_healthy(&bench);
        holds_its_content(&bench);
        let scrub = bench.run(&["pool", "scrub", "tank", "--wait"]);
        assert_eq!(scrub.code, 0, "{}", scrub.stdout);
        // It is a pool as any other: the labels are at both ends.
        bench.ok(&["pool", "export", "tank"]);
        let listed = bench.ok(&import);
        assert!(!listed.contains("overwritten"), "{listed}");
        holds_its_content(&bench);
    }
}

#[test]
fn one_overwritten_drive_is_left_alone_until_a_command_means_it() {
    let bench = filled("overwritten-one", "raid5", 4, &[]);
    bench.ok(&["pool", "export", "tank"]);
    partition(&bench, "d1");
    let before = checksum(&bench.path("d1"));
    bench.ok(&["pool", "import", "--dir", ".", "tank"]);
    holds_its_content(&bench);
    bench
        .run(&["drive", "online", "tank", "1"])
        .refused(1, &["no longer holds a label of this pool"]);
    bench
        .run(&["drive", "replace", "tank", "1", "d1"])
        .refused(1, &["partition table", "written over", "--force"]);
    assert_eq!(checksum(&bench.path("d1")), before);
    bench.ok(&["pool", "export", "tank"]);
    let import = ["pool", "import", "--dir", ".", "--repair-labels", "tank"];
    bench.ok(&[&import[..], &["--yes"]].concat());
    bench.run(&["drive", "online", "tank", "1"]);
    becomes_healthy(&bench);
    holds_its_content(&bench);
}

#[test]
fn a_wiped_drive_is_found_nowhere() {
    let bench = filled("wiped", "raid5", 4, &[]);
    bench.ok(&["pool", "export", "tank"]);
    for index in 0..4 {
        let name = format!("d{index}");
        partition(&bench, &name);
        bench.ok(&["drive", "wipe", &name, "--yes"]);
    }
    let listed = bench.ok(&["pool", "import", "--dir", "."]);
    assert!(listed.contains("no pools to import"), "{listed}");
    let drives: Vec<String> = (0..4).map(|index| format!("d{index}")).collect();
    // Nor after its labels at both ends were whole.
    assert_eq!(bench.create("other", "raid5", &drives, &[]).code, 0);
    bench.ok(&["pool", "destroy", "other", "--yes"]);
    for name in &drives {
        partition(&bench, name);
    }
    let listed = bench.ok(&["pool", "import", "--dir", "."]);
    assert!(listed.contains("no pools to import"), "{listed}");
}
