//! Cost of the NBD front end: server CPU time per I/O, compared with `nbdkit memory`, interleaved.
//!
//! Wall-clock rates on a shared machine vary by an order of magnitude. The CPU time that a server process uses per
//! request is repeatable, and ratios inside one interleaved run are more so. So each round measures every server in
//! turn under the same load, and the medians over the rounds are printed. CPU time is read from
//! `/proc/PID/task/*/schedstat`, in nanoseconds, per thread: the thread that stands for the back end (one memory copy
//! per request) is counted apart from the worker, which is the front end. The same server is measured also with a back
//! end that answers in the call, as `nbdkit memory` does: there no thread is woken for a request, and the worker itself
//! measures how much of its time was copying.
//!
//! ```text
//! cargo run --release -p ravelin-export --example nbd_bench -- [--rounds 7] [--millis 700] [--only "write, depth 32"]
//! ```

#![expect(
    unsafe_code,
    reason = "a device fills memory that its submitter still holds"
)]
#![expect(clippy::print_stdout, reason = "it prints a table")]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "sizes and times here are small"
)]

mod ram;

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use block::{BlockDevice, SplitMix64};
use export::nbd::{Client, Exports, Listen, Operation, Options, Place, Server, Uri};
use ram::SIZE;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [command, back_end, socket] = &arguments[..]
        && command == "serve"
    {
        serve(back_end == "inline", socket.into());
    }
    let value = |name: &str, default: u64| {
        let at = arguments.iter().position(|argument| argument == name);
        at.and_then(|at| arguments.get(at + 1)?.parse().ok())
            .unwrap_or(default)
    };
    let rounds = value("--rounds", 7) as usize;
    let time = Duration::from_millis(value("--millis", 700));
    let only = arguments.iter().position(|argument| argument == "--only");
    let only = only.and_then(|at| arguments.get(at + 1));
    compare(rounds, time, only.map_or("", String::as_str));
}

// ---- The server under test, in a process of its own.

struct One(Arc<dyn BlockDevice>);

impl Exports for One {
    fn list(&self) -> Vec<String> {
        vec![String::new()]
    }

    fn open(&self, name: &str) -> Option<Arc<dyn BlockDevice>> {
        name.is_empty().then(|| Arc::clone(&self.0))
    }
}

fn serve(inline: bool, socket: PathBuf) -> ! {
    let options = Options {
        workers: 1,
        ..Options::default()
    };
    let device: Arc<dyn BlockDevice> = if inline {
        Arc::new(ram::Inline::new())
    } else {
        Arc::new(ram::Threaded::new())
    };
    let exports = Arc::new(One(device));
    let _server = Server::bind(&Listen::Unix(socket), exports, &options).expect("listening");
    for _line in std::io::stdin().lines() {
        println!("{}", ram::COPYING_NS.load(Relaxed));
    }
    std::process::exit(0);
}

// ---- The comparison.

struct Peer {
    name: &'static str,
    socket: PathBuf,
    process: Child,
    /// Our own server answers here, on request, how long it has been copying. Of a peer only the sum of CPU time is
    /// known.
    talk: Option<(ChildStdin, RefCell<BufReader<ChildStdout>>)>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_file(&self.socket);
    }
}

impl Peer {
    fn start(name: &'static str, socket: PathBuf, command: &mut Command) -> Option<Self> {
        let ours = name == "ravelin";
        let (stdin, stdout) = if ours {
            (Stdio::piped(), Stdio::piped())
        } else {
            (Stdio::null(), Stdio::inherit())
        };
        let mut process = command.stdin(stdin).stdout(stdout).spawn().ok()?;
        let talk = process.stdin.take().zip(process.stdout.take());
        let peer = Self {
            name,
            socket,
            talk: talk.map(|(ask, answer)| (ask, RefCell::new(BufReader::new(answer)))),
            process,
        };
        for _ in 0..500 {
            if peer.socket.exists() && Client::connect(&peer.uri(), None).is_ok() {
                return Some(peer);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        None
    }

    fn uri(&self) -> Uri {
        Uri {
            place: Place::Unix(self.socket.clone()),
            name: String::new(),
            tls: false,
        }
    }

    /// Time that our own server has spent on copying in the call, in nanoseconds.
    fn copying(&self) -> u64 {
        let Some((ask, answer)) = &self.talk else {
            return 0;
        };
        let mut line = String::new();
        let mut ask: &ChildStdin = ask;
        ask.write_all(b"\n").expect("the server listens");
        let mut answer = answer.borrow_mut();
        answer.read_line(&mut line).expect("the server answers");
        line.trim().parse().expect("nanoseconds")
    }

    /// CPU nanoseconds used so far: by the back end (a thread, or copies in the call), and by everything else. nbdkit
    /// ends its threads with each client, so only the process's own number includes them; its resolution is 10 ms.
    fn cpu(&self) -> (u64, u64) {
        let process = Path::new("/proc").join(self.process.id().to_string());
        let stat = fs::read_to_string(process.join("stat")).unwrap_or_default();
        let fields: Vec<&str> = stat.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|n| n.parse().ok()).unwrap_or(0_u64);
        let all = (ticks(13) + ticks(14)) * 10_000_000;
        let tasks = Path::new("/proc")
            .join(self.process.id().to_string())
            .join("task");
        let (mut back, mut front) = (0, 0);
        for task in fs::read_dir(tasks).into_iter().flatten().flatten() {
            let read = |file| fs::read_to_string(task.path().join(file)).unwrap_or_default();
            let used = read("schedstat")
                .split_whitespace()
                .next()
                .and_then(|n| n.parse().ok());
            if read("comm").trim() == "back-end" {
                back += used.unwrap_or(0_u64);
            } else {
                front += used.unwrap_or(0_u64);
            }
        }
        if self.talk.is_none() {
            return (0, all);
        }
        let copying = self.copying();
        (back + copying, front.saturating_sub(copying))
    }
}

#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    bytes: usize,
    depth: usize,
    write: bool,
}

/// Enough loads to separate the front end's cost per request from its cost per byte and per wake-up.
const LOADS: [Load; 8] = [
    Load {
        name: "4 KiB random read, depth 32",
        bytes: 4096,
        depth: 32,
        write: false,
    },
    Load {
        name: "4 KiB random write, depth 32",
        bytes: 4096,
        depth: 32,
        write: true,
    },
    Load {
        name: "4 KiB random read, depth 128",
        bytes: 4096,
        depth: 128,
        write: false,
    },
    Load {
        name: "4 KiB random write, depth 128",
        bytes: 4096,
        depth: 128,
        write: true,
    },
    Load {
        name: "1 MiB read, depth 4",
        bytes: 1 << 20,
        depth: 4,
        write: false,
    },
    Load {
        name: "1 MiB write, depth 4",
        bytes: 1 << 20,
        depth: 4,
        write: true,
    },
    Load {
        name: "4 KiB random read, depth 1",
        bytes: 4096,
        depth: 1,
        write: false,
    },
    Load {
        name: "4 KiB random write, depth 1",
        bytes: 4096,
        depth: 1,
        write: true,
    },
];

/// One measurement: CPU microseconds per request and the median round trip in microseconds.
#[derive(Clone, Copy, Default)]
struct Figures {
    back: f64,
    front: f64,
    per_second: f64,
    round_trip: f64,
}

impl Figures {
    fn together(&self) -> f64 {
        self.front + self.back
    }
}

/// The same with fio as the client, which sends each request in a write of its own. `None` without fio.
fn measure_fio(peer: &Peer, load: Load, time: Duration) -> Option<Figures> {
    let before = peer.cpu();
    let output = Command::new("fio")
        .args([
            "--name=load",
            "--ioengine=nbd",
            "--output-format=json",
            "--time_based",
        ])
        .arg(format!("--uri={}", peer.uri()))
        .arg(format!(
            "--rw={}",
            if load.write { "randwrite" } else { "randread" }
        ))
        .arg(format!("--bs={}", load.bytes))
        .arg(format!("--iodepth={}", load.depth))
        .arg(format!("--runtime={}ms", time.as_millis()))
        .arg(format!("--size={SIZE}"))
        .output()
        .ok()?;
    let after = peer.cpu();
    // fio's NBD engine prints a greeting before the document.
    let document = output.stdout.iter().position(|&byte| byte == b'{')?;
    let report: serde_json::Value = serde_json::from_slice(&output.stdout[document..]).ok()?;
    let side = &report["jobs"][0][if load.write { "write" } else { "read" }];
    let count = side["total_ios"].as_f64().filter(|count| *count > 0.0)?;
    Some(Figures {
        back: (after.0 - before.0) as f64 / 1000.0 / count,
        front: (after.1 - before.1) as f64 / 1000.0 / count,
        per_second: side["iops"].as_f64()?,
        round_trip: side["clat_ns"]["percentile"]["50.000000"].as_f64()? / 1000.0,
    })
}

fn measure(peer: &Peer, load: Load, time: Duration) -> Figures {
    let mut client = Client::connect(&peer.uri(), None).expect("a connection");
    let mut random = SplitMix64::new(0x1234_5678);
    let mut next_offset = move || random.below(SIZE / load.bytes as u64) * load.bytes as u64;
    let mut operation = |buffer: Vec<u8>| {
        let offset = next_offset();
        if load.write {
            Operation::Write {
                offset,
                buffer,
                fua: false,
            }
        } else {
            Operation::Read { offset, buffer }
        }
    };
    let mut sent_at: HashMap<u64, Instant> = HashMap::new();
    let mut trips = Vec::new();
    for _ in 0..load.depth {
        client
            .submit(operation(vec![0x77; load.bytes]))
            .expect("submitted");
    }
    // Warm up before the clock starts.
    let warm = Instant::now() + time / 10;
    while Instant::now() < warm {
        let reply = client
            .wait()
            .expect("a reply")
            .expect("in flight")
            .ok()
            .expect("success");
        client.submit(operation(reply.buffer)).expect("submitted");
    }
    let (start, before) = (Instant::now(), peer.cpu());
    let mut count = 0_u64;
    while start.elapsed() < time {
        for _ in 0..if load.bytes > 4096 { 1 } else { 16 } {
            let reply = client
                .wait()
                .expect("a reply")
                .expect("in flight")
                .ok()
                .expect("success");
            count += 1;
            if load.depth == 1 {
                trips.extend(
                    sent_at
                        .remove(&reply.cookie)
                        .map(|at| at.elapsed().as_nanos() as f64),
                );
                let at = Instant::now();
                let cookie = client.submit(operation(reply.buffer)).expect("submitted");
                sent_at.insert(cookie, at);
            } else {
                client.submit(operation(reply.buffer)).expect("submitted");
            }
        }
    }
    let (elapsed, after) = (start.elapsed(), peer.cpu());
    client.disconnect().expect("goodbye");
    Figures {
        back: (after.0 - before.0) as f64 / 1000.0 / count as f64,
        front: (after.1 - before.1) as f64 / 1000.0 / count as f64,
        per_second: count as f64 / elapsed.as_secs_f64(),
        round_trip: if trips.is_empty() {
            0.0
        } else {
            median(&mut trips) / 1000.0
        },
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Prints a line for each load in whose name `only` occurs.
fn compare(rounds: usize, time: Duration, only: &str) {
    let dir = testing::Directory::new();
    let program = std::env::current_exe().expect("this program");
    let own = |back_end: &str| {
        let socket = dir.join(back_end).with_extension("sock");
        let mut command = Command::new(&program);
        command.args(["serve", back_end]).arg(&socket);
        Peer::start("ravelin", socket, &mut command).expect("our own server")
    };
    let (ours, inline) = (own("thread"), own("inline"));
    let theirs = dir.join("nbdkit.sock");
    let mut command = Command::new("nbdkit");
    command
        .args(["--foreground", "--exit-with-parent", "--unix"])
        .arg(&theirs);
    command.args(["memory", &format!("size={SIZE}")]);
    let theirs = Peer::start("nbdkit memory", theirs, &mut command);
    if theirs.is_none() {
        println!("skipped: nbdkit is not installed, so there is nothing to compare with");
    }
    if let Some(peer) = &theirs {
        // nbdkit's memory is sparse: unwritten parts would be read as holes.
        let mut client = Client::connect(&peer.uri(), None).expect("a connection");
        for offset in (0..SIZE).step_by(8 << 20) {
            client
                .write(offset, &vec![0x5a; 8 << 20], false)
                .expect("filled");
        }
        client.disconnect().expect("goodbye");
    }
    println!(
        "CPU µs per request, medians of {rounds} interleaved rounds of {} ms; peer: {}\n",
        time.as_millis(),
        theirs.as_ref().map_or("none", |peer| peer.name)
    );
    println!(
        "| load | front end, before a thread | back end | together | front end, answered in the call | back end | together | peer | together to peer, both ways | 1/s, both ways, peer | p50 µs, both ways, peer |"
    );
    println!("| --- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |");
    let fio = Command::new("fio")
        .arg("--enghelp=nbd")
        .output()
        .is_ok_and(|o| o.status.success());
    if !fio {
        println!("skipped: fio with its nbd engine is not installed, so those lines are missing");
    }
    let by_fio = LOADS.into_iter().filter(|load| fio && load.bytes == 4096);
    let own = LOADS
        .into_iter()
        .map(|load| (load, false, load.name.to_owned()));
    let by_fio = by_fio.map(|load| (load, true, format!("{}, by fio", load.name)));
    let wanted = |(.., name): &(Load, bool, String)| name.contains(only);
    for (load, by_fio, name) in own.chain(by_fio).filter(wanted) {
        let run = |peer: &Peer| {
            if by_fio {
                measure_fio(peer, load, time).expect("fio runs")
            } else {
                measure(peer, load, time)
            }
        };
        let mut of_ours = Column::default();
        let mut of_inline = Column::default();
        let mut of_peer = Column::default();
        for _ in 0..rounds {
            of_ours.0.push(run(&ours));
            of_inline.0.push(run(&inline));
            of_peer.0.extend(theirs.as_ref().map(run));
        }
        println!(
            "| {name} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2}, {:.2} | {:.0}, {:.0}, {:.0} | {:.1}, {:.1}, {:.1} |",
            of_ours.median(|f| f.front),
            of_ours.median(|f| f.back),
            of_ours.median(Figures::together),
            of_inline.median(|f| f.front),
            of_inline.median(|f| f.back),
            of_inline.median(Figures::together),
            of_peer.median(Figures::together),
            of_ours.ratio_to(&of_peer),
            of_inline.ratio_to(&of_peer),
            of_ours.median(|f| f.per_second),
            of_inline.median(|f| f.per_second),
            of_peer.median(|f| f.per_second),
            of_ours.median(|f| f.round_trip),
            of_inline.median(|f| f.round_trip),
            of_peer.median(|f| f.round_trip),
        );
    }
    drop((ours, inline, theirs));
}

/// One server's rounds under one load.
#[derive(Default)]
struct Column(Vec<Figures>);

impl Column {
    fn median(&self, what: impl Fn(&Figures) -> f64) -> f64 {
        median(&mut self.0.iter().map(what).collect::<Vec<_>>())
    }

    /// The median of the rounds' ratios; NaN without a peer.
    fn ratio_to(&self, peer: &Self) -> f64 {
        let ratio = |(ours, theirs): (&Figures, &Figures)| ours.together() / theirs.together();
        median(&mut self.0.iter().zip(&peer.0).map(ratio).collect::<Vec<_>>())
    }
}
