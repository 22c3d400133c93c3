//! A daemon for one test, with its own directory, socket and drives.

use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{SeekFrom, seek};
use serde_json::Value;

const BLOCK: usize = 4096;

/// The result of a command.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    fn new(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The command failed with this code, and its message contains all these parts.
    #[track_caller]
    pub(crate) fn refused(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, code, "{}{}", self.stdout, self.stderr);
        for part in parts {
            assert!(
                self.stderr.contains(part),
                "no `{part}` in:\n{}",
                self.stderr
            );
        }
    }
}

pub(crate) struct Bench {
    pub(crate) directory: PathBuf,
    daemon: Option<Child>,
    /// Whether the daemon gets a mount namespace of its own.
    own_mounts: bool,
}

impl Bench {
    /// Only the directory, without a daemon.
    pub(crate) fn without_daemon(test: &str) -> Self {
        // Tests of one process may have the same name in different modules.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(format!("rv-{process}-{count}-{test}"));
        std::fs::create_dir_all(&directory).unwrap();
        Self {
            directory,
            daemon: None,
            own_mounts: false,
        }
    }

    /// As a service: the daemon's mounts are visible only to the daemon.
    pub(crate) fn with_own_mounts(test: &str) -> Self {
        let mut bench = Self::without_daemon(test);
        bench.own_mounts = true;
        bench.start();
        bench
    }

    pub(crate) fn new(test: &str) -> Self {
        let mut bench = Self::without_daemon(test);
        bench.start();
        bench
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Starts the daemon and waits until it answers.
    pub(crate) fn start(&mut self) {
        self.start_with(&[]);
    }

    /// Starts the daemon with more options.
    pub(crate) fn start_with(&mut self, options: &[&str]) {
        self.spawn(options, &[]);
        self.wait_until_it_answers();
    }

    /// Starts the daemon with more options and waits until it answers, even if pools are not open yet.
    pub(crate) fn start_and_ask(&mut self, options: &[&str]) {
        self.spawn(options, &[]);
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.run(&["pool", "list"]).code != 0 {
            assert!(Instant::now() < deadline, "the daemon does not answer");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn wait_until_it_answers(&self) {
        // Longer than the locks of a killed daemon are waited for.
        let deadline = Instant::now() + Duration::from_secs(40);
        // The daemon answers before it has opened the pools whose drives it waits for.
        let is_complete = || {
            let listed = self.run(&["pool", "list", "--json"]);
            listed.code == 0 && !listed.stdout.contains("\"restoring\"")
        };
        while !is_complete() {
            assert!(Instant::now() < deadline, "the daemon does not answer");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts a daemon that ignores a signal.
    pub(crate) fn start_without_signal(&mut self, signal: &str) {
        let mut program = Command::new("env");
        program.arg(format!("--ignore-signal={signal}"));
        program.arg(env!("CARGO_BIN_EXE_ravelin"));
        self.spawn_by(program, &[], &[]);
        self.wait_until_it_answers();
    }

    /// Starts the daemon in an environment, and does not wait.
    pub(crate) fn launch(&mut self, environment: &[(&str, &str)]) {
        self.spawn(&[], environment);
    }

    fn spawn(&mut self, options: &[&str], environment: &[(&str, &str)]) {
        let mut program = Command::new(env!("CARGO_BIN_EXE_ravelin"));
        if self.own_mounts {
            // `unshare` executes the daemon, which keeps the process number.
            program = Command::new("unshare");
            program.args(["--mount", "--propagation", "slave"]);
            program.arg(env!("CARGO_BIN_EXE_ravelin"));
        }
        self.spawn_by(program, options, environment);
    }

    /// Starts the daemon by a program that executes it, in an environment, and does not wait.
    pub(crate) fn launch_by(&mut self, program: Command, environment: &[(&str, &str)]) {
        self.spawn_by(program, &[], environment);
    }

    /// Starts the daemon through a program that executes it.
    fn spawn_by(&mut self, program: Command, options: &[&str], environment: &[(&str, &str)]) {
        let log = std::fs::File::create(self.path("daemon.log")).unwrap();
        let mut all = vec!["daemon"];
        // What a test does with a drive that is out, it does alone.
        if !options.contains(&"--returns") {
            all.extend(["--returns", "0"]);
        }
        all.extend(options);
        let daemon = self
            .prepared(program, &all)
            .envs(environment.iter().copied())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.daemon = Some(daemon);
    }

    /// The daemon's process.
    pub(crate) fn pid(&self) -> u32 {
        self.daemon.as_ref().map(Child::id).unwrap()
    }

    /// Kills the daemon without a chance to clean up.
    pub(crate) fn kill(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    }

    /// Ends the daemon by SIGTERM; its exit code.
    pub(crate) fn terminate(&mut self) -> Option<i32> {
        let mut daemon = self.daemon.take().unwrap();
        let pid = i32::try_from(daemon.id()).unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        daemon.wait().unwrap().code()
    }

    /// What the daemon has logged since its start.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("daemon.log")).unwrap_or_default()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        self.prepared(Command::new(env!("CARGO_BIN_EXE_ravelin")), arguments)
    }

    fn prepared(&self, mut command: Command, arguments: &[&str]) -> Command {
        command
            .args(arguments)
            .current_dir(&self.directory)
            .env("RAVELIN_SOCKET", self.path("socket"))
            .env_remove("STATE_DIRECTORY")
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        Ran::new(self.command(arguments).output().unwrap())
    }

    /// Runs a line by the shell, in the bench's directory; what it prints on either stream is in `stdout`.
    pub(crate) fn shell(&self, line: &str) -> Ran {
        Ran::new(self.shell_command(line).output().unwrap())
    }

    /// The command that runs the line; `ravelin` is this build's program.
    pub(crate) fn shell_command(&self, line: &str) -> Command {
        let mut command = self.prepared(Command::new("sh"), &["-c", &format!("exec 2>&1; {line}")]);
        command.env("PATH", with_ravelin());
        command
    }

    /// Starts a command and does not wait for it.
    pub(crate) fn begin(&self, arguments: &[&str]) -> Child {
        let mut command = self.command(arguments);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    }

    /// Runs a command with `--json` that must succeed; returns the one document that it prints.
    #[track_caller]
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let ran = self.run(&[arguments, &["--json"]].concat());
        assert_eq!(ran.code, 0, "{arguments:?}: {}", ran.stderr);
        let document: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(document["ravelin"], env!("CARGO_PKG_VERSION"));
        let words: Vec<&str> = arguments.iter().take(2).copied().collect();
        assert_eq!(document["kind"], words.join(" "));
        document
    }

    /// Runs a command that must succeed.
    #[track_caller]
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let ran = self.run(arguments);
        assert_eq!(ran.code, 0, "{arguments:?}: {}", ran.stderr);
        ran.stdout
    }

    /// Makes sparse files `PREFIX0`, `PREFIX1`, …
    pub(crate) fn drives(&self, prefix: &str, count: usize, size_bytes: u64) -> Vec<String> {
        let names: Vec<String> = (0..count).map(|index| format!("{prefix}{index}")).collect();
        for name in &names {
            let file = std::fs::File::create(self.path(name)).unwrap();
            file.set_len(size_bytes).unwrap();
        }
        names
    }

    /// `pool create NAME SCHEME DRIVE…` with more arguments.
    pub(crate) fn create(&self, name: &str, scheme: &str, drives: &[String], more: &[&str]) -> Ran {
        let drives: Vec<&str> = drives.iter().map(String::as_str).collect();
        self.run(&[&["pool", "create", name, scheme], &*drives, more].concat())
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill().ok();
            daemon.wait().ok();
        }
        if std::thread::panicking() {
            std::io::Write::write_all(&mut std::io::stderr(), self.log().as_bytes()).ok();
        }
        // Mounts that remain because the test failed before the daemon unmounted them.
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let places = mounts.lines().filter_map(|line| line.split(' ').nth(4));
        for place in places.filter(|place| Path::new(place).starts_with(&self.directory)) {
            Command::new("umount").args(["-l", place]).status().ok();
        }
        std::fs::remove_dir_all(&self.directory).ok();
    }
}

/// The search path, with this build's `ravelin` before others.
pub(crate) fn with_ravelin() -> std::ffi::OsString {
    let ours = Path::new(env!("CARGO_BIN_EXE_ravelin")).parent().unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(ours.to_owned()).chain(std::env::split_paths(&path));
    std::env::join_paths(all).unwrap()
}

/// A checksum of what a file holds. Drives of tests are sparse: holes are not read, and written zeros count like holes.
pub(crate) fn checksum(path: &Path) -> u32 {
    let file = std::fs::File::open(path).unwrap();
    let mut blocks = Vec::new();
    let mut buffer = vec![0; 1 << 20];
    for extent in data(&file) {
        let mut at = extent.start;
        while at < extent.end {
            let length = (extent.end - at).min(1 << 20);
            let read = &mut buffer[..usize::try_from(length).unwrap()];
            file.read_exact_at(read, at).unwrap();
            for (place, block) in (at..).step_by(BLOCK).zip(read.chunks(BLOCK)) {
                if block != &[0; BLOCK][..block.len()] {
                    blocks.extend(place.to_le_bytes());
                    blocks.extend(block::crc32c(block).to_le_bytes());
                }
            }
            at += length;
        }
    }
    block::crc32c(&blocks)
}

/// Copies a file; what is a hole stays one.
pub(crate) fn copy(from: &Path, to: &Path) {
    let (from, to) = (
        std::fs::File::open(from).unwrap(),
        std::fs::File::create(to).unwrap(),
    );
    to.set_len(from.metadata().unwrap().len()).unwrap();
    for extent in data(&from) {
        let mut bytes = vec![0; usize::try_from(extent.end - extent.start).unwrap()];
        from.read_exact_at(&mut bytes, extent.start).unwrap();
        to.write_all_at(&bytes, extent.start).unwrap();
    }
}

/// The ranges of a file that are not holes, in blocks.
fn data(file: &std::fs::File) -> Vec<Range<u64>> {
    let mut extents = Vec::new();
    let mut at = 0;
    // The error is the end of the file: there is no data behind it.
    while let Ok(start) = seek(file, SeekFrom::Data(at)) {
        at = seek(file, SeekFrom::Hole(start)).unwrap();
        extents.push(start..at);
    }
    extents
}

/// All bytes of a file.
pub(crate) fn bytes(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}
