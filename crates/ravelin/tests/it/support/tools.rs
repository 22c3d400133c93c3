//! Tools of other projects.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

pub(crate) fn installed(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|place| place.join(tool).exists());
    if !found {
        println!("skipped: {tool} is not installed");
    }
    found
}

pub(crate) fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Retries, because a process that another test is just starting keeps this process's files open
/// until its exec.
pub(crate) fn unmount(place: &str) {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let output = Command::new("umount").arg(place).output().unwrap();
        let why = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            return;
        }
        assert!(why.contains("busy") && Instant::now() < until, "{why}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// qemu's block layer with an NBD client that reconnects.
pub(crate) struct Qemu {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Qemu {
    pub(crate) fn connect(socket: &Path) -> Self {
        let mut child = Command::new("qemu-io")
            .arg("--image-opts")
            .arg(format!(
                "driver=nbd,server.type=unix,server.path={},export=tank/v,reconnect-delay=30",
                socket.display()
            ))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (to, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if to.send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            child,
            input,
            lines,
        }
    }

    /// Gives a command, and waits for an answer that contains these words.
    #[track_caller]
    pub(crate) fn says(&mut self, command: &str, words: &str) {
        writeln!(self.input, "{command}").unwrap();
        if words.is_empty() {
            return;
        }
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left);
            let line = line.unwrap_or_else(|_| panic!("no answer to `{command}`"));
            assert!(
                !line.contains("failed") && !line.contains("rror"),
                "{command}: {line}"
            );
            if line.contains(words) {
                return;
            }
        }
    }

    pub(crate) fn quit(mut self) {
        writeln!(self.input, "quit").unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

/// nbdkit between us and a client, with the filter that reopens its plugin after an error.
pub(crate) struct Nbdkit {
    child: Child,
    socket: PathBuf,
    pub(crate) uri: String,
}

impl Nbdkit {
    pub(crate) fn start(server: &Path, socket: &Path) -> Self {
        let child = Command::new("nbdkit")
            .args(["--foreground", "--filter=retry", "--unix"])
            .arg(socket)
            .arg("nbd")
            .arg(format!("socket={}", server.display()))
            .args(["export=tank/v", "retry=20", "retries=20", "retry-delay=1"])
            .args(["retry-exponential=no"])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let uri = format!("nbd+unix:///?socket={}", socket.display());
        let socket = socket.to_owned();
        Self { child, socket, uri }
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        // nbdkit does not replace an old socket, not even its own.
        std::fs::remove_file(&self.socket).ok();
    }
}
