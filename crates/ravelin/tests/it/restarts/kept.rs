//! File systems on volumes go on while the daemon restarts. The test is the supervisor: it keeps the daemon's
//! descriptors, as systemd's store does, and gives them to the next one.

#![expect(
    unsafe_code,
    reason = "descriptors get their numbers in the new process between fork and exec"
)]

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::support::bench::Bench;
use crate::support::descriptors::receive;
use crate::support::tools;

/// The first number of a descriptor that systemd gives to a service.
const FIRST: i32 = 3;

type Store = Arc<Mutex<Vec<(String, OwnedFd)>>>;

/// Keeps descriptors until it is dropped.
struct Supervisor {
    path: PathBuf,
    store: Store,
    thread: Option<JoinHandle<()>>,
}

impl Supervisor {
    fn new(path: PathBuf) -> Self {
        let socket = UnixDatagram::bind(&path).unwrap();
        let store = Store::default();
        let thread = std::thread::spawn({
            let store = Arc::clone(&store);
            move || while hear(&socket, &store) {}
        });
        Self {
            path,
            store,
            thread: Some(thread),
        }
    }

    fn names(&self) -> Vec<String> {
        let store = self.store.lock().unwrap();
        let mut names: Vec<String> = store.iter().map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        names
    }

    /// Starts the bench's daemon with the descriptors that are kept.
    fn launch(&self, bench: &mut Bench, program: &[&str]) {
        let store = self.store.lock().unwrap();
        // High numbers first: a descriptor must not be overwritten before it has its place.
        let high = |(_, descriptor): &(String, OwnedFd)| {
            rustix::io::fcntl_dupfd_cloexec(descriptor, 200).unwrap()
        };
        let descriptors: Vec<OwnedFd> = store.iter().map(high).collect();
        let names: Vec<&str> = store.iter().map(|(name, _)| &**name).collect();
        // The process number is known only to the process.
        let mut command = Command::new("sh");
        command.args(["-c", "LISTEN_PID=$$ exec \"$@\"", "sh"]);
        command.args(program).arg(env!("CARGO_BIN_EXE_ravelin"));
        let numbers: Vec<i32> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let give = move || {
            for (to, &from) in (FIRST..).zip(&numbers) {
                // SAFETY: `from` is open; after the fork only the program that is executed uses the low numbers.
                let (from, mut to) =
                    unsafe { (BorrowedFd::borrow_raw(from), OwnedFd::from_raw_fd(to)) };
                rustix::io::dup2(from, &mut to)?;
                std::mem::forget(to);
            }
            Ok(())
        };
        // SAFETY: only `dup2` is called between fork and exec.
        unsafe { command.pre_exec(give) };
        let systemctl = bench.path("bin");
        let path = std::env::var("PATH").unwrap();
        bench.launch_by(
            command,
            &[
                ("PATH", &format!("{}:{path}", systemctl.display())),
                ("NOTIFY_SOCKET", self.path.to_str().unwrap()),
                ("RAVELIN_FDSTORE", "1"),
                ("RAVELIN_UNIT", "ravelin.service"),
                ("LISTEN_FDS", &descriptors.len().to_string()),
                ("LISTEN_FDNAMES", &names.join(":")),
            ],
        );
        bench.wait_until_it_answers();
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let ask = UnixDatagram::unbound().unwrap();
        ask.send_to(b"END", &self.path).unwrap();
        self.thread.take().map(JoinHandle::join);
        self.store.lock().unwrap().clear();
    }
}

/// Takes one message. False if it is the last.
fn hear(socket: &UnixDatagram, store: &Store) -> bool {
    let (text, descriptor) = receive(socket);
    let name = { text.lines() }.find_map(|line| line.strip_prefix("FDNAME="));
    if let Some(name) = name {
        let mut store = store.lock().unwrap();
        if text.contains("FDSTOREREMOVE=1") {
            store.retain(|(kept, _)| kept != name);
        } else if text.contains("FDSTORE=1") {
            assert!(text.contains("FDPOLL=0"), "{text}");
            store.push((name.to_owned(), descriptor.unwrap()));
        }
    }
    text != "END"
}

/// A process with an open file in a directory, which it makes longer line by line and durable after each.
struct Appender {
    child: Child,
    acknowledged: PathBuf,
}

impl Appender {
    fn start(mount: &Path, bench: &Bench) -> Self {
        let acknowledged = bench.path("acknowledged");
        let script = r#"exec 3>>"$1/log"
            i=0
            while i=$((i + 1)); do
                echo "line $i" >&3 || exit 1
                sync -d "$1/log" || exit 2
                echo $i >"$2.new" && mv "$2.new" "$2"
            done"#;
        let child = Command::new("sh")
            .args(["-c", script, "sh"])
            .args([mount, &acknowledged])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            child,
            acknowledged,
        }
    }

    fn lines(&self) -> u64 {
        let text = std::fs::read_to_string(&self.acknowledged).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    /// Waits until it has written some more.
    #[track_caller]
    fn goes_on(&mut self) {
        let before = self.lines();
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.lines() < before + 20 {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "its file has failed: {ended:?}");
            assert!(Instant::now() < deadline, "it waits for ever");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Appender {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// A directory whose mounts and unmounts are seen in other mount namespaces, as they are where systemd runs.
struct Shared(PathBuf);

impl Shared {
    fn new(path: PathBuf) -> Self {
        std::fs::create_dir(&path).unwrap();
        let place = path.to_str().unwrap();
        run("mount", &["--bind", place, place]);
        run("mount", &["--make-shared", place]);
        Self(path)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let lazily = Command::new("umount").arg("-lR").arg(&self.0).status();
        assert!(lazily.unwrap().success());
    }
}

/// Runs a program that must end well, and not hang.
#[track_caller]
fn run(program: &str, arguments: &[&str]) {
    let ran = Command::new("timeout")
        .args(["60", program])
        .args(arguments)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{program} {arguments:?}: {said}");
}

fn a_file_system_goes_on(test: &str, program: &[&str]) {
    let needed = ["mkfs.ext4", "e2fsck"];
    if !super::can_loop() || !needed.iter().all(|tool| tools::installed(tool)) {
        return;
    }
    let mut bench = Bench::without_daemon(test);
    // What systemd says while a restart stops the daemon.
    let bin = bench.path("bin");
    std::fs::create_dir(&bin).unwrap();
    let systemctl = bin.join("systemctl");
    std::fs::write(
        &systemctl,
        "#!/bin/sh\necho 7 ravelin.service restart running\n",
    )
    .unwrap();
    std::fs::set_permissions(&systemctl, std::fs::Permissions::from_mode(0o755)).unwrap();

    let supervisor = Supervisor::new(bench.path("notify"));
    supervisor.launch(&mut bench, program);
    let drives = bench.drives("d", 3, 192 << 20);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/home", "--size", "64M"]);
    // By a link, as in /var/run.
    let link = bench.path("link");
    std::os::unix::fs::symlink(bench.path("."), &link).unwrap();
    let file = link.join("home.img");
    let attach = ["volume", "attach", "tank/home", "--loop", "--fuse"];
    bench.ok(&[&attach[..], &[file.to_str().unwrap()]].concat());
    let device = super::device(&bench);
    let device = device.to_str().unwrap();
    run("mkfs.ext4", &["-q", device]);
    let shared = Shared::new(bench.path("shared"));
    let mount = shared.0.join("mnt");
    std::fs::create_dir(&mount).unwrap();
    let place = mount.to_str().unwrap();
    run("mount", &[device, place]);
    let mut appender = Appender::start(&mount, &bench);
    appender.goes_on();
    for killed in [false, true, true, false] {
        if killed {
            bench.kill();
        } else {
            assert_eq!(bench.terminate(), Some(0), "{}", bench.log());
        }
        supervisor.launch(&mut bench, program);
        appender.goes_on();
    }
    let lines = appender.lines();
    drop(appender);
    let text = std::fs::read_to_string(mount.join("log")).unwrap();
    for (number, line) in (1..=lines).zip(text.lines()) {
        assert_eq!(line, format!("line {number}"));
    }
    assert!(text.lines().count() as u64 >= lines);
    tools::unmount(place);
    run("e2fsck", &["-fn", device]);
    assert_eq!(
        super::device(&bench),
        Path::new(device),
        "it is the same one"
    );
    bench.ok(&["pool", "scrub", "tank", "--wait"]);
    bench.ok(&["volume", "detach", "tank/home"]);
    assert_eq!(supervisor.names(), [""; 0], "nothing is kept any more");
    assert!(!file.exists());
    assert_eq!(bench.terminate(), Some(0), "{}", bench.log());
}

#[test]
fn a_file_system_on_a_volume_goes_on_over_restarts_and_crashes() {
    a_file_system_goes_on("kept", &[]);
}

/// As under systemd, where the daemon's mounts end with it: only the loop device has the file.
#[test]
fn a_file_system_on_a_volume_goes_on_if_the_daemon_has_its_own_mounts() {
    if tools::installed("unshare") {
        let program = ["unshare", "--mount", "--propagation", "slave"];
        a_file_system_goes_on("kept-own-mounts", &program);
    }
}
