//! A pool whose drives have names that can be turned to other drives, and drives of every kind to turn them to.
//!
//! `names/` has links, `real/` the files. The pool `tank` is a `raid6` of `names/l0` to `names/l4` with the spare
//! `names/l5`. It has lost the drives of the seats 1 and 2 and the spare: their links are gone.

use std::collections::BTreeMap;
use std::os::unix::fs::{FileExt, symlink};
use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};

use super::MIB;
use crate::support::bench::{Bench, checksum, copy};

const SIZE: u64 = 32 * MIB;

/// What a name can lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Answer {
    /// The drive of seat 1 of `tank`, which is out.
    Itself,
    /// A copy of it that was in use elsewhere since.
    WentOn,
    /// A drive that `tank` has open.
    InUse,
    /// A drive that another pool has open.
    InUseElsewhere,
    /// The drive of seat 2 of `tank`, which is out.
    Member,
    /// The spare of `tank`, which is out.
    Spare,
    /// A spare that `tank` no longer lists.
    Former,
    /// A drive of another pool that is open without the drive.
    Elsewhere,
    /// A drive of a pool that is not open.
    OtherPool,
    /// A copy of the drive of seat 1 over which a file system was written.
    Overlaid,
    /// An ext4 file system.
    Ext4,
    /// A partition table.
    Partitions,
    /// Data without a known mark, in the middle.
    Unmarked,
    /// Zeros.
    Empty,
    /// A drive that another daemon has open.
    Taken,
    /// Nothing has the name.
    Missing,
    /// A directory.
    Directory,
    /// A file whose server has stopped.
    Silent,
}

/// All answers. A file that does not answer comes last: each look at it takes ten seconds.
pub(crate) const ANSWERS: [Answer; 18] = [
    Answer::Itself,
    Answer::WentOn,
    Answer::InUse,
    Answer::InUseElsewhere,
    Answer::Member,
    Answer::Spare,
    Answer::Former,
    Answer::Elsewhere,
    Answer::OtherPool,
    Answer::Overlaid,
    Answer::Ext4,
    Answer::Partitions,
    Answer::Unmarked,
    Answer::Empty,
    Answer::Taken,
    Answer::Missing,
    Answer::Directory,
    Answer::Silent,
];

/// Drives that no running pool writes to.
const STILL: [&str; 13] = [
    "l1",
    "l2",
    "l5",
    "went-on",
    "former",
    "p1",
    "s0",
    "s1",
    "overlaid",
    "ext4",
    "partitions",
    "unmarked",
    "empty",
];

pub(crate) struct Stage {
    pub(crate) bench: Bench,
    /// The other daemon, which may be on another machine.
    other: Bench,
    has_fuse: bool,
}

impl Stage {
    pub(crate) fn new(test: &str) -> Self {
        let bench = Bench::new(test);
        let other = Bench::new(&format!("{test}-o"));
        std::fs::create_dir(bench.path("names")).unwrap();
        std::fs::create_dir(bench.path("real")).unwrap();
        let mut stage = Self {
            bench,
            other,
            has_fuse: false,
        };
        stage.make_tank();
        stage.make_others();
        stage
    }

    /// The file of a drive.
    pub(crate) fn real(&self, name: &str) -> PathBuf {
        self.bench.path("real").join(name)
    }

    /// Makes a drive of zeros and a name for it; returns the name.
    pub(crate) fn drive(&self, name: &str) -> String {
        let file = std::fs::File::create(self.real(name)).unwrap();
        file.set_len(SIZE).unwrap();
        let named = format!("names/{name}");
        self.turn(&named, &self.real(name));
        named
    }

    /// Turns a name to another drive.
    pub(crate) fn turn(&self, name: &str, to: &PathBuf) {
        let link = self.bench.path(name);
        std::fs::remove_file(&link).ok();
        symlink(to, link).unwrap();
    }

    fn take_away(&self, name: &str) {
        std::fs::remove_file(self.bench.path(name)).unwrap();
    }

    fn copy(&self, from: &str, to: &str) {
        copy(&self.real(from), &self.real(to));
    }

    fn write(&self, name: &str, offset: u64, data: &[u8]) {
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(self.real(name));
        file.unwrap().write_all_at(data, offset).unwrap();
    }

    fn make_tank(&self) {
        let bench = &self.bench;
        let names: Vec<String> = (0..7)
            .map(|index| self.drive(&format!("l{index}")))
            .collect();
        let spares = ["spare", &names[5], &names[6]];
        let made = bench.create("tank", "raid6", &names[..5], &spares);
        assert_eq!(made.code, 0, "{}", made.stderr);
        bench.ok(&["volume", "create", "tank/v", "--size", "4M"]);
        self.copy("l6", "former");
        bench.ok(&["drive", "remove", "tank", "6"]);
        bench.ok(&["pool", "export", "tank"]);
        // The whole pool, as the other machine has used it.
        std::fs::create_dir(self.other.path("set")).unwrap();
        for index in 0..6 {
            let to = self.other.path("set").join(format!("l{index}"));
            copy(&self.real(&format!("l{index}")), &to);
        }
        self.other.ok(&["pool", "import", "--dir", "set", "tank"]);
        for index in 0..8 {
            let name = format!("tank/w{index}");
            self.other.ok(&["volume", "create", &name, "--size", "1M"]);
        }
        self.other.ok(&["pool", "export", "tank"]);
        copy(&self.other.path("set/l1"), &self.real("went-on"));
        for name in ["names/l1", "names/l2", "names/l5"] {
            self.take_away(name);
        }
        bench.ok(&["pool", "import", "--dir", "names", "tank"]);
    }

    fn make_others(&mut self) {
        let bench = &self.bench;
        self.copy("l1", "overlaid");
        self.write("overlaid", 0, b"XFSB");
        for (name, offset, mark) in [
            ("ext4", 1080, &[0x53, 0xef][..]),
            ("partitions", 512, b"EFI PART"),
        ] {
            self.drive(name);
            self.write(name, offset, mark);
        }
        self.drive("unmarked");
        self.write("unmarked", 9 * MIB, b"the only copy");
        self.drive("empty");
        std::fs::create_dir(self.real("directory")).unwrap();
        let pool = |name: &str, drives: [&str; 2]| {
            let drives = drives.map(|drive| self.drive(drive));
            let made = bench.create(name, "raid1", &drives, &[]);
            assert_eq!(made.code, 0, "{}", made.stderr);
        };
        pool("open", ["o0", "o1"]);
        pool("shut", ["s0", "s1"]);
        bench.ok(&["pool", "export", "shut"]);
        pool("part", ["p0", "p1"]);
        bench.ok(&["pool", "export", "part"]);
        self.take_away("names/p1");
        bench.ok(&["pool", "import", "--dir", "names", "--degraded", "part"]);
        self.drive("t0");
        let theirs = [self.real("t0").display().to_string()];
        assert_eq!(self.other.create("theirs", "raid0", &theirs, &[]).code, 0);
        self.other
            .ok(&["volume", "create", "theirs/v", "--size", "8M"]);
        let at = self.real("silent").display().to_string();
        let served = self
            .other
            .run(&["volume", "attach", "theirs/v", "--fuse", &at]);
        self.has_fuse = served.code == 0;
        if self.has_fuse {
            self.signal(Signal::STOP);
        } else {
            eprintln!("skipped: drives that do not answer, for there is no /dev/fuse");
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.other.pid()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// The answers that this machine can give.
    pub(crate) fn answers(&self) -> impl Iterator<Item = Answer> {
        let all = ANSWERS.into_iter();
        let has_fuse = self.has_fuse;
        all.filter(move |answer| has_fuse || *answer != Answer::Silent)
    }

    /// The file behind an answer.
    pub(crate) fn target(&self, answer: Answer) -> PathBuf {
        self.real(match answer {
            Answer::Itself => "l1",
            Answer::WentOn => "went-on",
            Answer::InUse => "l0",
            Answer::InUseElsewhere => "o0",
            Answer::Member => "l2",
            Answer::Spare => "l5",
            Answer::Former => "former",
            Answer::Elsewhere => "p1",
            Answer::OtherPool => "s0",
            Answer::Overlaid => "overlaid",
            Answer::Ext4 => "ext4",
            Answer::Partitions => "partitions",
            Answer::Unmarked => "unmarked",
            Answer::Empty => "empty",
            Answer::Taken => "t0",
            Answer::Missing => "missing",
            Answer::Directory => "directory",
            Answer::Silent => "silent",
        })
    }

    /// The drive behind an answer, as [`Stage::checksums`] names it.
    pub(crate) fn still(&self, answer: Answer) -> &'static str {
        let name = self.target(answer);
        let mut still = STILL.iter().filter(|&&still| self.real(still) == name);
        still.next().expect("no running pool writes to it")
    }

    /// Checksums of all drives that no running pool writes to.
    pub(crate) fn checksums(&self) -> BTreeMap<&'static str, u32> {
        let sum = |name| (name, checksum(&self.real(name)));
        STILL.into_iter().map(sum).collect()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if self.has_fuse {
            self.signal(Signal::CONT);
        }
    }
}
