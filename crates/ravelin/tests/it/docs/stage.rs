//! A machine as the documents assume it: drives `/dev/sdb`, `/dev/sdc`, … and a daemon.
//!
//! The names stand for files below the test's own directory: they are replaced in the input, and restored in the
//! output.

use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::terminal::Terminal;
use crate::support::bench::{Bench, Ran};

/// Prefixes of names that stand for files of the test.
const STANDS: [&str; 6] = [
    "/dev/sd",
    "/dev/disk/",
    "/dev/ravelin",
    "/run/",
    "/etc/ravelin",
    "/mnt/",
];

/// Characters that may precede a name.
const BEFORE: [char; 5] = [' ', '=', ':', ',', '\''];

/// An address of the documents.
const ADDRESS: &str = "192.0.2.1";

pub(crate) struct Stage {
    pub(crate) bench: Bench,
    /// What stands for [`ADDRESS`]: a loopback address that no other stage has, so that ports are free there.
    address: String,
}

impl Stage {
    /// A machine with drives of this size: `/dev/sdb` and so on.
    pub(crate) fn new(test: &str, drives: usize, drive_bytes: u64) -> Self {
        let mut bench = Bench::without_daemon(&format!("docs-{test}"));
        for directory in ["dev/disk/by-id", "run", "etc/ravelin/hooks.d", "mnt"] {
            std::fs::create_dir_all(bench.path(directory)).unwrap();
        }
        for name in names().take(drives) {
            let drive = std::fs::File::create(bench.path(&format!("dev/{name}"))).unwrap();
            drive.set_len(drive_bytes).unwrap();
            let link = bench.path(&format!("dev/disk/by-id/ata-{name}"));
            std::os::unix::fs::symlink(format!("../../{name}"), link).unwrap();
        }
        bench.start_with(&["--links", "dev/ravelin", "--returns", "5"]);
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let [_, _, high, low] = process.to_be_bytes();
        let address = format!("127.{high}.{low}.{}", 2 + count % 250);
        Self { bench, address }
    }

    /// Whether volumes become block devices here. `.ci/run` says where they must.
    pub(crate) fn has_loop_devices() -> bool {
        static FOUND: OnceLock<bool> = OnceLock::new();
        *FOUND.get_or_init(|| {
            if std::env::var_os("RAVELIN_ALL_EXAMPLES").is_some() {
                return true;
            }
            let stage = Self::new("loop", 3, 1 << 30);
            stage.ok("ravelin pool create tank raid5 /dev/sdb /dev/sdc /dev/sdd");
            stage.ok("ravelin volume create tank/home --size 4M");
            let attach = "ravelin volume attach tank/home --fuse /run/home.img --loop";
            stage.run(attach).code == 0 && stage.run("ravelin volume detach tank/home").code == 0
        })
    }

    /// The input, with the test's own names.
    pub(crate) fn translated(&self, line: &str) -> String {
        let directory = self.bench.directory.display().to_string();
        let mut text = line.to_owned();
        for name in STANDS {
            for before in BEFORE {
                let own = format!("{before}{directory}{name}");
                text = text.replace(&format!("{before}{name}"), &own);
            }
        }
        text.replace(ADDRESS, &self.address)
    }

    /// The output, with the documents' names.
    pub(crate) fn told(&self, text: &str) -> String {
        text.replace(&self.bench.directory.display().to_string(), "")
            .replace(&self.address, ADDRESS)
    }

    /// Runs a line by the shell.
    pub(crate) fn run(&self, line: &str) -> Ran {
        let mut ran = self.bench.shell(&self.translated(line));
        ran.stdout = self.told(&ran.stdout);
        ran
    }

    /// Runs a line that must succeed.
    #[track_caller]
    pub(crate) fn ok(&self, line: &str) -> String {
        let ran = self.run(line);
        assert_eq!(ran.code, 0, "{line}\n{}", ran.stdout);
        ran.stdout
    }

    /// Starts a line with its output piped.
    pub(crate) fn begin(&self, line: &str) -> std::process::Child {
        let line = format!("exec timeout 60 {}", self.translated(line));
        let mut command = self.bench.shell_command(&line);
        command.stdout(Stdio::piped()).spawn().unwrap()
    }

    /// Starts a line on a terminal.
    pub(crate) fn on_terminal(&self, line: &str) -> Terminal {
        let shell = self.bench.shell_command("");
        let mut script = Command::new("script");
        script.args(["-qec", &self.translated(line), "/dev/null"]);
        script.current_dir(&self.bench.directory);
        for (name, value) in shell.get_envs() {
            match value {
                Some(value) => script.env(name, value),
                None => script.env_remove(name),
            };
        }
        Terminal::new(script)
    }
}

/// `sdb`, `sdc`, … `sdz`, `sdaa`, …
fn names() -> impl Iterator<Item = String> {
    let one = ('b'..='z').map(|last| format!("sd{last}"));
    let two = ('a'..='z').flat_map(|first| ('a'..='z').map(move |last| format!("sd{first}{last}")));
    one.chain(two)
}
