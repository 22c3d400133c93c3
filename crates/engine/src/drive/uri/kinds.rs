//! The kinds of drives, for help and for errors.

/// A kind of drive, as a name says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedKind {
    /// The word before the colon.
    pub word: &'static str,
    /// Names of such drives.
    pub names: &'static [&'static str],
    /// What such a drive is.
    pub what: &'static str,
    /// The options that may follow a `?`.
    pub options: &'static str,
}

/// All kinds, in the order of the help.
pub const KINDS: [NamedKind; 7] = [
    NamedKind {
        word: "file",
        names: &["/dev/sdb", "disk.img", "file:disk.img"],
        what: "a block device, or a regular file",
        options: "backend= and direct=; write %3F for a ? in a path",
    },
    NamedKind {
        word: "zram",
        names: &["zram:/dev/zram1"],
        what: "a zram device; one without a size gets the size that the command gives",
        options: "backend= and direct=; write %3F for a ? in a path",
    },
    NamedKind {
        word: "mem",
        names: &["mem:1G"],
        what: "memory of the daemon, lost when the daemon ends",
        options: "only a size, such as mem:1G",
    },
    NamedKind {
        word: "volume",
        names: &["volume:tank/stripe"],
        what: "a volume of a pool that is open here; raid0 pools take them",
        options: "only POOL/NAME, such as volume:tank/stripe",
    },
    NamedKind {
        word: "slow",
        names: &["slow:disk.img?bandwidth=8M&iops=500&latency=2ms"],
        what: "another drive as a slow one, for tests",
        options: "bandwidth=, iops= and latency=",
    },
    NamedKind {
        word: "compress",
        names: &["compress:disk.img?physical=1G&exposed=4G"],
        what: "another drive as one that compresses, with a budget of physical space",
        options: "physical= and exposed=",
    },
    NamedKind {
        word: "faulty",
        names: &["faulty:disk.img?fail=eio&nth=7&times=1&on=read&bad=1M+4K"],
        what: "another drive that fails, for tests",
        options: "fail=, nth=, times=, on=, while= and bad=",
    },
];

/// The options of a kind, for an error.
pub(super) fn options(word: &str) -> &'static str {
    let kind = KINDS.iter().find(|kind| kind.word == word);
    kind.map_or("", |kind| kind.options)
}

/// The words of all kinds: `file:, zram: or mem:`.
pub(super) fn words() -> String {
    let words: Vec<String> = KINDS.iter().map(|kind| format!("{}:", kind.word)).collect();
    match words.split_last() {
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}
