//! A program on a terminal of its own (by `script`): waits for output, and types answers.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// How long a program may take to print the expected text.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Terminal {
    child: Child,
    input: ChildStdin,
    output: Receiver<Vec<u8>>,
    /// Output that no `wait_for` has consumed yet.
    seen: String,
}

impl Terminal {
    /// Starts `script`, which gives the program a terminal.
    pub(crate) fn new(mut script: Command) -> Self {
        script.stdin(Stdio::piped()).stdout(Stdio::piped());
        script.stderr(Stdio::null()).env("TERM", "xterm");
        let mut child = script.spawn().unwrap();
        let mut printed = child.stdout.take().unwrap();
        let (sender, output) = mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = printed.read(&mut buffer) {
                if sender.send(buffer[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self {
            input: child.stdin.take().unwrap(),
            child,
            output,
            seen: String::new(),
        }
    }

    /// Waits until the program has printed this text.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, text: &str) {
        let until = Instant::now() + TIMEOUT;
        loop {
            if let Some(at) = self.seen.find(text) {
                self.seen.drain(..at + text.len());
                return;
            }
            let left = until.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(bytes) => self.seen += &String::from_utf8_lossy(&bytes),
                Err(error) => panic!("no `{text}` ({error}) in:\n{}", self.seen),
            }
        }
    }

    /// Presses keys.
    pub(crate) fn types(&mut self, keys: &str) {
        self.input.write_all(keys.as_bytes()).unwrap();
        self.input.flush().unwrap();
    }

    /// Waits for the program's end; returns its exit code and the remaining output.
    pub(crate) fn end(mut self) -> (i32, String) {
        // The input stays open: its end would arrive as ^D at a program that still runs.
        while let Ok(bytes) = self.output.recv_timeout(TIMEOUT) {
            self.seen += &String::from_utf8_lossy(&bytes);
        }
        let code = self.child.wait().unwrap().code().unwrap_or(-1);
        (code, std::mem::take(&mut self.seen))
    }
}
