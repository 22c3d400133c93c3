//! Twelve machines as trees, and the doctor's findings about them.
//!
//! `trees/NAME.tree` is a machine as one text: a description, then files. The superblocks are those
//! that mke2fs 1.47, mkfs.xfs 6.1, cryptsetup 2.6 and LVM 2.03 write, 32 bytes a line, without
//! zeros. `trees/NAME.out` is the transcript; `RAVELIN_BLESS=1` writes it anew; review the changes.

use std::fs;
use std::path::{Path, PathBuf};

use doctor::{Options, Report, Tree, examine};
use testing::Directory;

fn trees() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trees")
}

#[expect(clippy::disallowed_methods, reason = "the test makes the trees")]
fn put(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn make(name: &str) -> Directory {
    let text = fs::read_to_string(trees().join(format!("{name}.tree"))).unwrap();
    let made = Directory::new();
    for file in text.split("\n== ").skip(1) {
        let (path, body) = file.split_once('\n').unwrap_or((file, ""));
        let bytes = match path.strip_suffix(" bytes") {
            None => body.trim_end().replace("\\0", "\0").into_bytes(),
            Some(_) => {
                let mut bytes = vec![0; 16384];
                for line in body.lines() {
                    let (at, hex) = line.split_once(' ').unwrap();
                    let at = usize::from_str_radix(at, 16).unwrap();
                    for (index, digits) in hex.as_bytes().chunks(2).enumerate() {
                        let digits = std::str::from_utf8(digits).unwrap();
                        bytes[at + index] = u8::from_str_radix(digits, 16).unwrap();
                    }
                }
                bytes
            }
        };
        let path = path.strip_suffix(" bytes").unwrap_or(path);
        put(&made.join(path), &bytes);
    }
    made
}

fn examined(name: &str) -> Report {
    let made = make(name);
    examine(&Tree::new(&*made), &Options::default()).unwrap()
}

fn transcript(report: &Report) -> String {
    let mut out = Vec::new();
    report.write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// The findings as (device, word).
fn words(report: &Report) -> Vec<(&str, &str)> {
    let words = report.findings.iter();
    words
        .map(|found| (found.device.as_str(), found.finding))
        .collect()
}

/// Every tree of the directory, so that none is forgotten.
#[test]
fn transcripts_are_as_reviewed() {
    let mut names: Vec<String> = fs::read_dir(trees())
        .unwrap()
        .filter_map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            Some(name.strip_suffix(".tree")?.to_owned())
        })
        .collect();
    names.sort();
    assert_eq!(names.len(), 12);
    for name in names {
        let path = trees().join(format!("{name}.out"));
        let said = transcript(&examined(&name));
        if std::env::var_os("RAVELIN_BLESS").is_some() {
            put(&path, said.as_bytes());
        }
        let reviewed = fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(said, reviewed, "{name}");
    }
}

#[test]
fn what_is_well_has_no_finding_and_no_note() {
    let report = examined("well");
    assert!(report.well && report.findings.is_empty() && report.notes.is_empty());
    assert!(transcript(&report).ends_with("All is well.\n"));
}

#[test]
fn each_fault_is_found_where_it_is_and_nowhere_else() {
    for (tree, expected) in [
        (
            "bridge-33553920",
            &[
                ("/dev/sda", "false-optimal-size"),
                ("/dev/sda1", "crooked-partition"),
            ][..],
        ),
        (
            "controller-16773120",
            &[
                ("/dev/sda", "false-optimal-size"),
                ("/dev/sda1", "file-system-disagrees"),
            ],
        ),
        ("xfs-disagrees", &[("/dev/md0", "file-system-disagrees")]),
        ("ext4-disagrees", &[("/dev/md0", "file-system-disagrees")]),
        (
            "md-degraded",
            &[("/dev/md0", "degraded"), ("/dev/md1", "degraded")],
        ),
        ("md-unwatched", &[("/dev/md0", "unwatched")]),
        (
            "md-mute",
            &[("/dev/md0", "unwatched"), ("/dev/md127", "inactive")],
        ),
        ("crypt-off", &[("/dev/mapper/secret", "off-chunk")]),
        (
            "lvm-off",
            &[
                ("/dev/mapper/tank-data", "off-chunk"),
                ("/dev/mapper/tank-data", "file-system-unaware"),
            ],
        ),
        (
            "hardware-measured",
            &[
                ("/dev/sdb", "file-system-disagrees"),
                ("/dev/sdb", "degraded"),
                ("/dev/sdc", "file-system-disagrees"),
            ],
        ),
        (
            "luks2-off-stripe",
            &[
                ("/dev/mapper/vault", "off-stripe"),
                ("/dev/sda", "measurement-disagrees"),
                ("/dev/sda1", "crooked-partition"),
                ("/dev/sda1", "off-chunk"),
                ("/dev/sda1", "file-system-unaware"),
            ],
        ),
    ] {
        assert_eq!(words(&examined(tree)), expected, "{tree}");
    }
}

#[test]
fn one_device_brings_what_it_stands_on_and_what_stands_on_it() {
    let made = make("luks2-off-stripe");
    let of = |device: &str| {
        let options = Options {
            devices: vec![device.to_owned()],
            ..Options::default()
        };
        examine(&Tree::new(&*made), &options)
    };
    let names = |report: &Report| -> Vec<String> {
        let layers = report.layers.iter();
        layers.map(|layer| layer.device.clone()).collect()
    };
    assert_eq!(names(&of("/dev/sda1").unwrap()), ["/dev/sda", "/dev/sda1"]);
    let below = names(&of("/dev/sdc").unwrap());
    assert!(
        below.contains(&"/dev/mapper/vault".to_owned()) && !below.contains(&"/dev/sda".to_owned())
    );
    let error = of("/dev/sdz").unwrap_err();
    assert!(
        error
            .to_string()
            .contains("`/dev/sdz` is no block device here")
    );
}
