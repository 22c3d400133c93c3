//! The daemon and its clients end in every order while the clients write. Nothing hangs, no flushed data is lost, and
//! no socket, mount or loop device is left behind.
//!
//! The clients are processes of their own, so that they can be killed. The number k alone determines the block and the
//! bytes of write number k; the client's log lists what has been flushed. From the log a reader knows what each block
//! must hold at least.
//!
//! Tests that need root or a missing tool are reported as skipped.

mod kept;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::support::bench::Bench;
use crate::support::tools;
use crate::support::writer::{self, Target, Writer};
use export::fuse::loops;

const MIB: u64 = 1 << 20;
/// The range that each client writes to.
const REGION_BYTES: u64 = 2 * MIB;
/// How long everything runs before something ends.
const LOAD: Duration = Duration::from_millis(300);
/// Longer than any end or start takes here.
const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Stop,
    Kill,
}

/// Which side ends first. A client that stays sees the daemon end and start again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    ClientsFirst(End, End),
    DaemonFirst(End, End),
    ClientsStay(End),
    /// One client is killed, the other stays.
    OneStays(End),
}

/// Each order once; twenty times in the long form.
fn orders(with_stays: bool) -> Vec<Order> {
    let rounds = match std::env::var_os("RAVELIN_LONG") {
        Some(_) => 20,
        None => 1,
    };
    each_order(with_stays).repeat(rounds)
}

fn each_order(with_stays: bool) -> Vec<Order> {
    let ends = [End::Stop, End::Kill];
    let pairs = ends.iter().flat_map(|&a| ends.map(|b| (a, b)));
    let mut orders: Vec<Order> = pairs
        .flat_map(|(client, daemon)| {
            [
                Order::ClientsFirst(client, daemon),
                Order::DaemonFirst(daemon, client),
            ]
        })
        .collect();
    if with_stays {
        orders.extend(ends.map(Order::ClientsStay));
        orders.extend(ends.map(Order::OneStays));
    }
    orders
}

fn end_daemon(bench: &mut Bench, end: End) {
    let since = Instant::now();
    match end {
        End::Stop => assert_eq!(bench.terminate(), Some(0), "{}", bench.log()),
        End::Kill => bench.kill(),
    }
    assert!(since.elapsed() < TIMEOUT, "the daemon hangs at its end");
}

fn end_clients(clients: Vec<Writer>, end: End) {
    for client in clients {
        match end {
            End::Stop => client.stop(TIMEOUT),
            End::Kill => client.kill(),
        }
    }
}

/// Runs one order with the clients that `start` starts, and leaves the daemon running.
fn live(bench: &mut Bench, order: Order, start: &dyn Fn(&Bench) -> Vec<Writer>) {
    let mut clients = start(bench);
    for client in &mut clients {
        client.has_flushed(TIMEOUT);
    }
    std::thread::sleep(LOAD);
    match order {
        Order::ClientsFirst(client, daemon) => {
            end_clients(clients, client);
            end_daemon(bench, daemon);
            bench.start();
        }
        Order::DaemonFirst(daemon, client) => {
            end_daemon(bench, daemon);
            end_clients(clients, client);
            bench.start();
        }
        Order::ClientsStay(daemon) | Order::OneStays(daemon) => {
            end_daemon(bench, daemon);
            if matches!(order, Order::OneStays(_)) {
                clients.remove(0).kill();
            }
            bench.start();
            for client in &mut clients {
                client.has_flushed(TIMEOUT);
            }
            end_clients(clients, End::Stop);
        }
    }
}

fn pool_of(bench: &Bench) {
    let drives = bench.drives("d", 5, 96 * MIB);
    assert_eq!(bench.create("tank", "raid6", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "16M"]);
}

/// Nothing of the daemon is left: no file in its directory, no mount there, no loop device over one.
fn nothing_is_left(bench: &Bench, names: &[&str]) {
    for name in names {
        let path = bench.path(name);
        assert!(std::fs::symlink_metadata(&path).is_err(), "{name} is left");
    }
    let directory = bench.directory.to_str().unwrap();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let left: Vec<&str> = { mounts.lines() }
        .filter(|line| line.contains(directory))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    let deadline = Instant::now() + TIMEOUT;
    while !loops_below(directory).is_empty() {
        // The kernel detaches a loop device when its last user has closed it.
        assert!(Instant::now() < deadline, "{:?}", loops_below(directory));
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn loops_below(directory: &str) -> Vec<PathBuf> {
    let all = std::fs::read_dir("/sys/block").unwrap().flatten();
    all.map(|entry| entry.path().join("loop/backing_file"))
        .filter(|file| std::fs::read_to_string(file).is_ok_and(|text| text.contains(directory)))
        .collect()
}

#[test]
fn nbd_clients_and_the_daemon_end_in_every_order_and_what_was_flushed_is_there() {
    let mut bench = Bench::new("restarts-nbd");
    pool_of(&bench);
    let export = bench.json(&["volume", "attach", "tank/v", "--nbd", "unix:nbd"]);
    let uri = export["uri"].as_str().unwrap().to_owned();
    let regions = [0, 4 * MIB];
    let log = |bench: &Bench, index: usize| bench.path(&format!("client{index}.log"));
    let start = |bench: &Bench| -> Vec<Writer> {
        let each = regions.iter().enumerate();
        each.map(|(index, &base)| {
            Writer::start(Target::Nbd(&uri), base, REGION_BYTES, &log(bench, index))
        })
        .collect()
    };
    for order in orders(true) {
        println!("{order:?}");
        live(&mut bench, order, &start);
        let mut client = writer::connect(&uri, TIMEOUT);
        for (index, base) in regions.into_iter().enumerate() {
            let bytes = client
                .read(base, usize::try_from(REGION_BYTES).unwrap())
                .unwrap();
            writer::verify(&bytes, &log(&bench, index));
        }
        client.disconnect().unwrap();
    }
    end_daemon(&mut bench, End::Stop);
    nothing_is_left(&bench, &["socket", "nbd"]);
}

fn can_loop() -> bool {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: loop devices need root");
    } else if !Path::new("/dev/fuse").exists() || !Path::new("/dev/loop-control").exists() {
        println!("skipped: there is no /dev/fuse or no /dev/loop-control");
    } else if !tools::installed("losetup") {
        println!("skipped: losetup is not installed");
    } else {
        return true;
    }
    false
}

/// The loop device over the volume's file.
fn device(bench: &Bench) -> PathBuf {
    let list = bench.json(&["volume", "list"]);
    let device = &list["volumes"][0]["exports"][0]["device"];
    PathBuf::from(device.as_str().unwrap_or_else(|| panic!("{list}")))
}

fn read_region(device: &Path) -> Vec<u8> {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; usize::try_from(REGION_BYTES).unwrap()];
    let file = std::fs::File::open(device).unwrap();
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// `place` returns the path that a client opens.
fn over_fuse(mut bench: Bench, more: &[&str], place: &dyn Fn(&Bench) -> PathBuf) {
    pool_of(&bench);
    let attach = ["volume", "attach", "tank/v", "--fuse", "restarts.img"];
    bench.ok(&[&attach, more].concat());
    let log = |bench: &Bench| bench.path("client.log");
    let start = |bench: &Bench| {
        let target = place(bench);
        let target = Target::Device(&target);
        vec![Writer::start(target, 0, REGION_BYTES, &log(bench))]
    };
    let mut used = BTreeSet::new();
    for order in orders(false) {
        println!("{order:?}");
        used.insert(place(&bench));
        live(&mut bench, order, &start);
        writer::verify(&read_region(&place(&bench)), &log(&bench));
        let over = loops::over(&bench.path("restarts.img"));
        let wanted: Vec<PathBuf> = more.iter().map(|_| device(&bench)).collect();
        assert_eq!(over, wanted, "what works, and nothing that is dead");
    }
    end_daemon(&mut bench, End::Stop);
    nothing_is_left(&bench, &["socket", "restarts.img"]);
    // When the mount is gone, the file below a loop device has no name any more.
    for device in used.iter().filter_map(|device| device.file_name()) {
        let device = Path::new(device);
        let below = Path::new("/sys/block")
            .join(device)
            .join("loop/backing_file");
        // The kernel detaches a device when its last user closes it, and other programs may look at it.
        let is_left = || {
            let below = std::fs::read_to_string(&below).unwrap_or_default();
            let below = Path::new(below.trim());
            // By now the device may belong to another test.
            let ours = below.starts_with(bench.path("")) || below.components().count() <= 2;
            ours && !below.as_os_str().is_empty()
        };
        let begun = Instant::now();
        while is_left() {
            assert!(
                begun.elapsed() < TIMEOUT,
                "{} is left over",
                device.display()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn loop_devices_over_fuse_and_the_daemon_end_in_every_order_and_leave_nothing() {
    if can_loop() {
        over_fuse(Bench::new("restarts-loop"), &["--loop"], &device);
    }
}

#[test]
fn users_of_a_fuse_file_and_the_daemon_end_in_every_order_and_leave_nothing() {
    if can_loop() {
        let place = |bench: &Bench| bench.path("restarts.img");
        over_fuse(Bench::new("restarts-fuse"), &[], &place);
    }
}

/// The mount of a killed daemon goes with its mount namespace. After that the file below the loop device has no name by
/// which it could be recognised.
#[test]
fn loop_devices_of_a_daemon_with_mounts_of_its_own_are_not_left_either() {
    if can_loop() && tools::installed("unshare") {
        let bench = Bench::with_own_mounts("restarts-own");
        over_fuse(bench, &["--loop"], &device);
    }
}

/// A mounted file system is a client that does not end before the daemon. When the daemon stops, the file system is
/// written back; the mount that remains has no device, and is unmounted without a hang.
#[test]
fn a_mounted_file_system_is_written_back_when_the_daemon_stops_and_mounts_again_after_a_kill() {
    if !can_loop() || !tools::installed("mkfs.ext4") {
        return;
    }
    let mut bench = Bench::new("restarts-mount");
    pool_of(&bench);
    let attach = ["volume", "attach", "tank/v", "--fuse", "v.img", "--loop"];
    bench.ok(&attach);
    let root = bench.path("mnt");
    std::fs::create_dir(&root).unwrap();
    let root = root.to_str().unwrap();
    tools::run("mkfs.ext4", &["-q", device(&bench).to_str().unwrap()]);
    for end in [End::Stop, End::Kill, End::Stop] {
        tools::run("mount", &[device(&bench).to_str().unwrap(), root]);
        let name = format!("{root}/{end:?}");
        std::fs::write(&name, vec![7_u8; 100_000]).unwrap();
        if end == End::Kill {
            // No program writes back when the daemon is killed, so the test does so before.
            rustix::fs::syncfs(std::fs::File::open(root).unwrap()).unwrap();
        }
        bench
            .run(&["volume", "detach", "tank/v"])
            .refused(1, &["1 client is connected", "--force"]);
        end_daemon(&mut bench, end);
        tools::unmount(root);
        bench.start();
        tools::run("mount", &[device(&bench).to_str().unwrap(), root]);
        assert_eq!(
            std::fs::read(&name).unwrap(),
            vec![7_u8; 100_000],
            "{end:?}"
        );
        tools::unmount(root);
    }
    end_daemon(&mut bench, End::Kill);
    // The pool cannot be opened; its exports are cleaned up all the same.
    for drive in ["d0", "d1", "d2", "d3", "d4"] {
        std::fs::rename(bench.path(drive), bench.path(&format!("gone-{drive}"))).unwrap();
    }
    bench.start_with(&["--wait-drives", "0"]);
    nothing_is_left(&bench, &["v.img"]);
    end_daemon(&mut bench, End::Stop);
    nothing_is_left(&bench, &["socket", "v.img"]);
}

#[test]
fn qemu_and_nbdkit_go_on_after_a_restart_and_a_crash() {
    let mut bench = Bench::new("restarts-tools");
    pool_of(&bench);
    bench.ok(&["volume", "attach", "tank/v", "--nbd", "unix:nbd"]);
    for end in [End::Stop, End::Kill] {
        let path = bench.path("nbd");
        if tools::installed("qemu-io") {
            let mut qemu = tools::Qemu::connect(&path);
            qemu.says("write -P 0x5a 4096 1M", "wrote 1048576");
            qemu.says("flush", "");
            end_daemon(&mut bench, end);
            bench.start();
            qemu.says("read -P 0x5a 4096 1M", "read 1048576");
            qemu.says("write -P 0x3c 0 64k", "wrote 65536");
            qemu.quit();
        }
        if tools::installed("nbdkit") {
            let kit = tools::Nbdkit::start(&path, &bench.path("kit"));
            let mut client = writer::connect(&kit.uri, TIMEOUT);
            client.write(8 * MIB, &[9; 4096], false).unwrap();
            client.flush().unwrap();
            end_daemon(&mut bench, end);
            bench.start();
            assert_eq!(client.read(8 * MIB, 4096).unwrap(), [9; 4096]);
            client.write(8 * MIB, &[8; 4096], true).unwrap();
            client.disconnect().unwrap();
        }
    }
    end_daemon(&mut bench, End::Stop);
    nothing_is_left(&bench, &["socket", "nbd"]);
}
