//! The daemon as a service: messages to the supervisor, the shipped unit, and work under a memory limit.
//!
//! A program of its own: one test measures what an idle daemon costs, so no other tests may keep the processors busy.

#![expect(clippy::print_stdout, reason = "tests say what they skip")]

#[path = "it/support/bench.rs"]
#[expect(dead_code, reason = "shared with other tests")]
mod bench;
#[path = "it/support/tools.rs"]
#[expect(dead_code, reason = "shared with other tests")]
mod tools;

use std::collections::BTreeMap;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use bench::Bench;
use export::nbd::Client;

const MIB: u64 = 1 << 20;

fn hear(socket: &UnixDatagram) -> Vec<String> {
    let mut bytes = [0; 4096];
    let length = socket.recv(&mut bytes).unwrap();
    let text = String::from_utf8(bytes[..length].to_vec()).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn the_supervisor_hears_ready_when_pools_are_open_then_heartbeats_then_stopping() {
    let mut bench = Bench::new("notify");
    let drives = bench.drives("d", 3, 96 * MIB);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "4M"]);
    bench.ok(&["volume", "attach", "tank/v", "--nbd", "unix:nbd"]);
    assert_eq!(bench.terminate(), Some(0));

    let path = bench.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    // One of the pool's drives is not there yet.
    std::fs::rename(bench.path("d1"), bench.path("late")).unwrap();
    bench.launch(&[
        ("NOTIFY_SOCKET", path.to_str().unwrap()),
        ("WATCHDOG_USEC", "200000"),
    ]);
    socket.set_nonblocking(true).unwrap();
    std::thread::sleep(Duration::from_millis(700));
    assert!(socket.recv(&mut [0; 4096]).is_err(), "ready too early");
    socket.set_nonblocking(false).unwrap();
    std::fs::rename(bench.path("late"), bench.path("d1")).unwrap();
    let first = hear(&socket);
    assert!(first.contains(&"READY=1".to_owned()), "{first:?}");
    assert!(
        first.iter().any(|line| line.starts_with("STATUS=1 pools")),
        "{first:?}"
    );
    assert!(bench.path("nbd").exists(), "served when it is ready");
    bench.ok(&["pool", "status", "tank", "--check"]);
    for _ in 0..3 {
        assert_eq!(hear(&socket), ["WATCHDOG=1"]);
    }
    assert_eq!(bench.terminate(), Some(0));
    loop {
        let words = hear(&socket);
        if words != ["WATCHDOG=1"] {
            assert!(words.contains(&"STOPPING=1".to_owned()), "{words:?}");
            break;
        }
    }
}

#[test]
fn the_shipped_unit_is_one_that_systemd_takes() {
    if !tools::installed("systemd-analyze") {
        return;
    }
    let bench = Bench::without_daemon("unit");
    let unit =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd/ravelin.service");
    // The unit is checked also where Ravelin is not installed.
    let text = std::fs::read_to_string(unit).unwrap();
    let here = text.replace("/usr/bin/ravelin", env!("CARGO_BIN_EXE_ravelin"));
    assert_ne!(text, here);
    let copy = bench.path("ravelin.service");
    std::fs::write(&copy, here).unwrap();
    let output = Command::new("systemd-analyze")
        .args(["verify", "--man=no", copy.to_str().unwrap()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let about_us: Vec<&str> = said.lines().filter(|l| l.contains("ravelin")).collect();
    assert!(
        output.status.success() && about_us.is_empty(),
        "{}{said}",
        output.status
    );
}

#[test]
fn locked_memory_is_locked() {
    let mut bench = Bench::without_daemon("locked");
    bench.start_with(&["--lock-memory"]);
    if bench.log().contains("memory is not locked") {
        println!("skipped: locking memory is not permitted here");
        return;
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", bench.pid())).unwrap();
    let locked = status.lines().find(|line| line.starts_with("VmLck:"));
    let kib: u64 = { locked.unwrap().split_whitespace() }
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    assert!(kib > 1024, "{kib} KiB");
    assert_eq!(bench.terminate(), Some(0));
}

/// What the threads of a process have used so far, thread by thread.
fn threads_use(pid: u32) -> BTreeMap<String, Use> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of_one = |task: std::io::Result<std::fs::DirEntry>| {
        let task = task.ok()?;
        let read = |file: &str| std::fs::read_to_string(task.path().join(file)).ok();
        let nanoseconds = read("schedstat")?.split(' ').next()?.parse().ok()?;
        let status = read("status")?;
        let mut lines = status.lines();
        let sleeps = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        let used = Use {
            cpu: Duration::from_nanos(nanoseconds),
            wake_ups: sleeps.trim().parse().ok()?,
        };
        Some((task.file_name().to_string_lossy().into_owned(), used))
    };
    tasks.filter_map(of_one).collect()
}

#[derive(Clone, Copy, Debug, Default)]
struct Use {
    cpu: Duration,
    wake_ups: u64,
}

/// A wake-up takes ten times as long when other programs have the core and its caches, so what the daemon decides is
/// how often its threads wake up: at 20 to 50 microseconds each, as many as here are less than a thousandth of a core.
#[test]
fn an_idle_daemon_with_ten_volumes_sleeps() {
    const WAKE_UPS_PER_SECOND: f64 = 20.0;
    let mut bench = Bench::without_daemon("idle");
    // The watchdog is a part of the idle load; here it runs six times as often as in the shipped unit.
    bench.launch(&[("WATCHDOG_USEC", "10000000")]);
    bench.wait_until_it_answers();
    let drives = bench.drives("d", 6, 96 * MIB);
    assert_eq!(bench.create("tank", "pddl1:3d:1s", &drives, &[]).code, 0);
    let mut clients = Vec::new();
    for number in 0..10 {
        let volume = format!("tank/v{number}");
        bench.ok(&["volume", "create", &volume, "--size", "8M"]);
        if number < 5 {
            let address = format!("unix:nbd{number}");
            let export = bench.json(&["volume", "attach", &volume, "--nbd", &address]);
            let uri = export["uri"].as_str().unwrap().parse().unwrap();
            let mut client = Client::connect(&uri, None).unwrap();
            client.write(0, &[1; 65536], true).unwrap();
            clients.push(client);
        } else if number < 7 && rustix::process::geteuid().is_root() {
            let file = format!("fuse{number}");
            bench.ok(&["volume", "attach", &volume, "--fuse", &file]);
        }
    }
    std::thread::sleep(Duration::from_millis(500));
    let time = Duration::from_secs(6);
    // Work of the moments before may still be under way in the first stretch; each contains all of the daemon's
    // periodic work.
    let mut rates = (0..3).map(|_| {
        let before = threads_use(bench.pid());
        std::thread::sleep(time);
        // The runtime ends threads that have been idle for some seconds.
        let (mut cpu, mut wake_ups) = (Duration::ZERO, 0);
        for (thread, now) in threads_use(bench.pid()) {
            let before = before.get(&thread).copied().unwrap_or_default();
            cpu += now.cpu - before.cpu;
            wake_ups += now.wake_ups - before.wake_ups;
        }
        println!("idle: {wake_ups} wake-ups and {cpu:?} of CPU in {time:?}");
        // A thread that is busy does not sleep, so it does not wake up either.
        assert!(cpu < time / 20, "{cpu:?} of {time:?}");
        wake_ups as f64 / time.as_secs_f64()
    });
    assert!(
        rates.any(|rate| rate < WAKE_UPS_PER_SECOND),
        "{WAKE_UPS_PER_SECOND} wake-ups per second and more in each stretch"
    );
    drop(clients);
    assert_eq!(bench.terminate(), Some(0));
}

/// A group of processes with a limit of memory, removed at the end.
struct Group(PathBuf);

impl Group {
    /// By version 2 or 1 of control groups; `None` where neither is available.
    fn new(name: &str, limit_bytes: u64) -> Option<Self> {
        let name = format!("ravelin-test-{}-{name}", std::process::id());
        for (root, file) in [
            ("/sys/fs/cgroup", "memory.max"),
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        ] {
            let group = Self(Path::new(root).join(&name));
            // The controller may be delegated already, so an error does not matter.
            let _ = std::fs::write(Path::new(root).join("cgroup.subtree_control"), "+memory");
            if std::fs::create_dir(&group.0).is_err() {
                continue;
            }
            // Only in a real control group do these files appear.
            let is_group = ["cgroup.procs", file].map(|name| group.0.join(name).exists());
            if is_group == [true; 2]
                && std::fs::write(group.0.join(file), limit_bytes.to_string()).is_ok()
            {
                let _ = std::fs::write(group.0.join("memory.swap.max"), "0");
                return Some(group);
            }
        }
        None
    }

    /// The highest memory use so far.
    fn most_used(&self) -> u64 {
        let peaks = ["memory.peak", "memory.max_usage_in_bytes"];
        let found = peaks.map(|name| std::fs::read_to_string(self.0.join(name)));
        let text = found.into_iter().find_map(Result::ok).unwrap();
        text.trim().parse().unwrap()
    }

    fn add(&self, pid: u32) {
        std::fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The last process may still be exiting.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A mount, unmounted also after a failure.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// The daemon runs in a control group with less memory than the amount written to a file system on its volume. Where
/// the daemon may set `PR_SET_IO_FLUSHER`, the writer is in the same group: if the daemon waited for dirty pages to be
/// cleaned, it would wait for itself. Without this flag the daemon does wait, so the writer has a group of its own.
#[test]
fn a_file_system_is_filled_in_less_memory_than_it_holds() {
    // The journals have 60 MiB. The daemon keeps logged blocks in memory until they are in place, and also the data in
    // flight: 249 to 294 MiB in all. `docs/daemon.md` says what follows.
    const DAEMON_BYTES: u64 = 352 * MIB;
    const WRITER_BYTES: u64 = 80 * MIB;
    const WRITTEN: usize = 408;
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        println!("skipped: it needs root and /dev/fuse");
        return;
    }
    if !tools::installed("mkfs.ext4") || !tools::installed("losetup") {
        return;
    }
    let group = Group::new("daemon", DAEMON_BYTES);
    let writers = Group::new("writer", WRITER_BYTES);
    let (Some(group), Some(other)) = (group, writers) else {
        println!("skipped: no control group with a memory limit can be made");
        return;
    };
    let mut bench = Bench::without_daemon("memory");
    bench.start_with(&["--lock-memory"]);
    group.add(bench.pid());
    let flushes = !bench.log().contains("PR_SET_IO_FLUSHER");
    let (writers, limit) = if flushes {
        (&group, DAEMON_BYTES)
    } else {
        (&other, WRITER_BYTES)
    };
    let drives = bench.drives("d", 5, 192 * MIB);
    assert_eq!(bench.create("tank", "raid6", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "480M"]);
    let attached = bench.json(&["volume", "attach", "tank/v", "--fuse", "v.img", "--loop"]);
    let device = attached["device"].as_str().unwrap().to_owned();
    tools::run("mkfs.ext4", &["-q", &device]);
    let root = bench.path("mnt");
    std::fs::create_dir(&root).unwrap();
    let place = root.to_str().unwrap();
    tools::run("mount", &[&device, place]);
    let mounted = Mounted(root.clone());

    let script = format!(
        "echo $$ > {}/cgroup.procs && for i in 1 2 3; do \
         dd if=/dev/zero bs=1M count={} 2>/dev/null | tr '\\0' \"$i\" > {place}/$i || exit 1; \
         done; sync -f {place}",
        writers.0.display(),
        WRITTEN / 3,
    );
    let since = Instant::now();
    let mut writer = Command::new("sh").args(["-c", &script]).spawn().unwrap();
    let ended = loop {
        if let Some(status) = writer.try_wait().unwrap() {
            break status;
        }
        if since.elapsed() > Duration::from_secs(60) {
            // Only a forced unmount frees the hanging processes.
            let _ = Command::new("umount")
                .arg("-f")
                .arg(bench.path("v.img"))
                .status();
            panic!("it hangs: {}", bench.log());
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(ended.success(), "{ended}");
    println!(
        "{WRITTEN} MiB in {:.1} s, {} MiB of {} used by {}, {} MiB by the daemon's group",
        since.elapsed().as_secs_f64(),
        writers.most_used() / MIB,
        limit / MIB,
        if flushes { "both" } else { "the writer" },
        group.most_used() / MIB,
    );
    let most = writers.most_used();
    assert!(most > limit / 2 && most <= limit, "{most} of {limit}");
    tools::unmount(place);
    tools::run("mount", &["-o", "ro", &device, place]);
    for digit in 1..=3_u8 {
        let bytes = std::fs::read(root.join(digit.to_string())).unwrap();
        assert_eq!(bytes.len(), (WRITTEN / 3) << 20);
        assert!(bytes.iter().all(|&byte| byte == b'0' + digit));
    }
    drop(mounted);
    assert_eq!(bench.terminate(), Some(0));
}
