//! What the NBD front end costs: server CPU time per I/O, beside `nbdkit memory`, interleaved.
//!
//! Wall-clock rates on a shared machine swing by an order of magnitude; the CPU time that a server
//! process uses per request repeats, and ratios inside one interleaved run repeat better. So each
//! round measures every server in turn under the same load, and medians over the rounds are
//! printed. CPU time is read from `/proc/PID/task/*/schedstat`, in nanoseconds, per thread: the
//! thread that stands for the back end (one memory copy per request) is told apart from the worker
//! that is the front end.
//!
//! ```text
//! cargo run --release -p ravelin-export --example nbd_bench -- [--rounds 7] [--millis 700]
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

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use block::{
    BlockDevice, Completed, Fault, Limits, Memory, Outcome, Request, RequestKind, Submission,
};
use export::nbd::{Client, Exports, Listen, Operation, Options, Place, Server, Uri};

const SIZE: u64 = 256 << 20;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [command, socket] = &arguments[..]
        && command == "serve"
    {
        serve(socket.into());
    }
    let value = |name: &str, default: u64| {
        let at = arguments.iter().position(|argument| argument == name);
        at.and_then(|at| arguments.get(at + 1)?.parse().ok())
            .unwrap_or(default)
    };
    let rounds = value("--rounds", 7) as usize;
    let time = Duration::from_millis(value("--millis", 700));
    compare(rounds, time);
}

// ---- The server under test, in a process of its own.

/// Memory behind a thread, as an engine's lane would be: requests are handed over in batches.
struct Ram {
    jobs: Arc<(Mutex<Vec<Job>>, Condvar)>,
}

struct Job {
    what: Submission,
    to: Arc<dyn Completed>,
}

impl Ram {
    fn new() -> Self {
        let jobs: Arc<(Mutex<Vec<Job>>, Condvar)> = Arc::default();
        let theirs = Arc::clone(&jobs);
        std::thread::Builder::new()
            .name("back-end".to_owned())
            .spawn(move || back_end(&theirs))
            .expect("a thread");
        Self { jobs }
    }
}

fn back_end((jobs, arrived): &(Mutex<Vec<Job>>, Condvar)) {
    let mut bytes = vec![0x5a_u8; SIZE as usize];
    let mut batch = Vec::new();
    let mut outcomes = Vec::new();
    loop {
        {
            let mut waiting = jobs.lock().expect("no panics");
            while waiting.is_empty() {
                waiting = arrived.wait(waiting).expect("no panics");
            }
            std::mem::swap(&mut *waiting, &mut batch);
        }
        // All jobs are one worker's here.
        let to = Arc::clone(&batch[0].to);
        for Job { what, .. } in batch.drain(..) {
            outcomes.push((what.token, carry_out(&what, &mut bytes)));
        }
        to.completed_all(&outcomes);
        outcomes.clear();
    }
}

fn carry_out(
    Submission {
        request, memory, ..
    }: &Submission,
    bytes: &mut [u8],
) -> Outcome {
    let start = request.offset as usize;
    let stored = bytes
        .get_mut(start..start + request.length as usize)
        .ok_or(Fault::Invalid)?;
    match request.kind {
        // SAFETY: the submitter leaves the memory alone until the completion, and each request has
        // memory of its own.
        RequestKind::Read => unsafe { memory.bytes_mut() }.copy_from_slice(stored),
        // SAFETY: as above.
        RequestKind::Write => stored.copy_from_slice(unsafe { memory.bytes() }),
        RequestKind::Trim | RequestKind::WriteZeroes => stored.fill(0),
        RequestKind::Flush => {}
    }
    Ok(())
}

impl BlockDevice for Ram {
    fn limits(&self) -> Limits {
        Limits {
            size_bytes: SIZE,
            block_bytes_min: 1,
            block_bytes_preferred: 4096,
            request_bytes_max: 32 << 20,
            trims: true,
        }
    }

    fn submit(&self, request: Request, memory: Memory, token: u64, to: &Arc<dyn Completed>) {
        self.submit_all(
            &mut vec![Submission {
                request,
                memory,
                token,
            }],
            to,
        );
    }

    fn submit_all(&self, batch: &mut Vec<Submission>, to: &Arc<dyn Completed>) {
        let (jobs, arrived) = &*self.jobs;
        let mut waiting = jobs.lock().expect("no panics");
        let first = waiting.is_empty();
        waiting.extend(batch.drain(..).map(|what| Job {
            what,
            to: Arc::clone(to),
        }));
        drop(waiting);
        if first {
            arrived.notify_one();
        }
    }
}

struct One(Arc<Ram>);

impl Exports for One {
    fn list(&self) -> Vec<String> {
        vec![String::new()]
    }

    fn open(&self, name: &str) -> Option<Arc<dyn BlockDevice>> {
        name.is_empty().then(|| Arc::clone(&self.0) as _)
    }
}

fn serve(socket: PathBuf) -> ! {
    let options = Options {
        workers: 1,
        ..Options::default()
    };
    let exports = Arc::new(One(Arc::new(Ram::new())));
    let _server = Server::bind(&Listen::Unix(socket), exports, &options).expect("listening");
    loop {
        std::thread::park();
    }
}

// ---- The comparison.

struct Peer {
    name: &'static str,
    socket: PathBuf,
    process: Child,
    /// Whether it ends threads, whose times are then only in the sum.
    ends_threads: bool,
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
        let process = command.stdin(Stdio::null()).spawn().ok()?;
        let peer = Self {
            name,
            socket,
            process,
            ends_threads: name != "ravelin",
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

    /// CPU nanoseconds used so far: of the threads that stand for a back end, and of all others.
    /// nbdkit ends its threads with each client, so that only the whole process's number counts
    /// them; it has a resolution of 10 ms.
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
        (back, if self.ends_threads { all } else { front })
    }
}

#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    bytes: usize,
    depth: usize,
    write: bool,
}

/// Enough to tell the front end's cost per request from its cost per byte and per wake.
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

/// The same with fio as the client, which sends each request by itself. `None` without fio.
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
    // The engine greets before the document.
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
    let mut state = 0x1234_5678_u64;
    let mut next_offset = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % (SIZE / load.bytes as u64) * load.bytes as u64
    };
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

fn compare(rounds: usize, time: Duration) {
    let dir = std::env::temp_dir().join(format!("ravelin-nbd-bench-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("a directory");
    let ours = dir.join("ravelin.sock");
    let program = std::env::current_exe().expect("this program");
    let ours = Peer::start(
        "ravelin",
        ours.clone(),
        Command::new(program).arg("serve").arg(&ours),
    );
    let ours = ours.expect("our own server");
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
        // Its memory is sparse and would be read as holes.
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
        "| load | front end | back end | together | peer | ratio | 1/s ours, peer | p50 µs ours, peer |"
    );
    println!("| --- | --: | --: | --: | --: | --: | --: | --: |");
    let fio = Command::new("fio")
        .arg("--enghelp=nbd")
        .output()
        .is_ok_and(|o| o.status.success());
    if !fio {
        println!("skipped: fio with its nbd engine is not installed, so those lines are missing");
    }
    let by_fio = LOADS
        .into_iter()
        .filter(|load| fio && load.bytes == 4096)
        .map(|load| (load, true));
    for (load, by_fio) in LOADS.into_iter().map(|load| (load, false)).chain(by_fio) {
        let run = |peer: &Peer| {
            if by_fio {
                measure_fio(peer, load, time).expect("fio runs")
            } else {
                measure(peer, load, time)
            }
        };
        let (mut own, mut peer, mut ratios) = (vec![], vec![], vec![]);
        for _ in 0..rounds {
            let figures = run(&ours);
            own.push(figures);
            if let Some(theirs) = &theirs {
                let other = run(theirs);
                ratios.push((figures.back + figures.front) / (other.back + other.front));
                peer.push(other);
            }
        }
        let of = |list: &[Figures], what: fn(&Figures) -> f64| {
            median(&mut list.iter().map(what).collect::<Vec<_>>())
        };
        println!(
            "| {}{} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.0}, {:.0} | {:.1}, {:.1} |",
            load.name,
            if by_fio { ", by fio" } else { "" },
            of(&own, |f| f.front),
            of(&own, |f| f.back),
            of(&own, |f| f.front + f.back),
            of(&peer, |f| f.front + f.back),
            median(&mut ratios),
            of(&own, |f| f.per_second),
            of(&peer, |f| f.per_second),
            of(&own, |f| f.round_trip),
            of(&peer, |f| f.round_trip),
        );
    }
    drop((ours, theirs));
    let _ = fs::remove_dir_all(&dir);
}
