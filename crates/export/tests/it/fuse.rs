//! A device in memory as a file, used through the file, and as a kernel block device through a loop
//! device over the file.
//!
//! Needs `/dev/fuse`; the loop device needs root and its tools. Missing ones are reported as
//! skipped.

#![expect(clippy::print_stdout, reason = "tests say what they skip")]

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, IoSlice, Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::descriptors::receive;
use crate::support::{MemoryDevice, PAGE, Pace, limits};
use block::{BlockDevice, Fault, Memory, SplitMix64};
use export::fuse::kept::{Keeper, Kept, Retention};
use export::fuse::loops::LoopDevice;
use export::fuse::{FuseError, FuseFile};
use rustix::fs::{FallocateFlags, OFlags, SeekFrom, fallocate};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use testing::{Directory, eventually};

const SIZE: u64 = 4 << 20;
const SHUFFLED: Pace = Pace::Shuffled {
    seed: 7,
    delay_us_max: 200,
};
/// Names the file that another process mounts and serves until it is killed.
const SERVE: &str = "RAVELIN_TEST_FUSE_SERVE";

/// The same for a file whose descriptors are kept.
const KEEP: &str = "RAVELIN_TEST_FUSE_KEEP";

/// The file that a test mounts.
fn file_in(place: &Directory) -> PathBuf {
    place.join("volume.img")
}

fn fuse_is_here() -> bool {
    let fuse = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    if let Err(error) = &fuse {
        println!("skipped: /dev/fuse: {error}");
    }
    fuse.is_ok()
}

fn tools_are_here(tools: &[&str]) -> bool {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: loop devices need root");
        return false;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let missing = |tool: &&&str| !std::env::split_paths(&path).any(|dir| dir.join(tool).exists());
    match tools.iter().find(missing) {
        Some(tool) => println!("skipped: {tool} is not installed"),
        None if !Path::new("/dev/loop-control").exists() => println!("skipped: no loop devices"),
        None => return fuse_is_here(),
    }
    false
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {text}{errors}"
    );
    text.trim().to_owned()
}

/// A loop device, detached also after a failure.
struct Loop(String);

impl Loop {
    fn over(file: &Path) -> Self {
        let file = file.to_str().unwrap();
        Self(run("losetup", &["--direct-io=on", "-f", "--show", file]))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

/// A mounted file system, unmounted also after a failure.
struct Mounted(PathBuf);

impl Mounted {
    fn new(device: &Loop, at: &Path) -> Self {
        fs::create_dir_all(at).unwrap();
        run("mount", &[&device.0, at.to_str().unwrap()]);
        Self(at.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

fn open(path: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap()
}

#[test]
fn what_is_written_through_the_file_is_on_the_device_and_comes_back() {
    if !fuse_is_here() {
        return;
    }
    let place = Directory::new();
    let device = MemoryDevice::new(limits(SIZE), SHUFFLED);
    let mounted = FuseFile::mount(&file_in(&place), Arc::clone(&device) as _).unwrap();
    assert_eq!(fs::metadata(file_in(&place)).unwrap().len(), SIZE);

    let bytes = SplitMix64::new(1).bytes(usize::try_from(SIZE).unwrap());
    let file = open(&file_in(&place));
    assert_eq!(mounted.opens(), 1);
    // Odd offsets and lengths; one is longer than the longest request.
    let mut at = 0_usize;
    for length in [1, 511, 4097, 70_001, 2_500_000, usize::MAX] {
        let end = bytes.len().min(at.saturating_add(length));
        file.write_all_at(&bytes[at..end], at as u64).unwrap();
        at = end.min(bytes.len());
    }
    assert!(device.bytes() == bytes, "written");
    let mut back = vec![0; bytes.len()];
    file.read_exact_at(&mut back, 0).unwrap();
    assert!(back == bytes, "read");

    // Reads and writes stop at the end of the file.
    assert_eq!(file.read_at(&mut back[..100], SIZE - 10).unwrap(), 10);
    assert_eq!(file.read_at(&mut back[..100], SIZE).unwrap(), 0);
    assert_eq!(file.write_at(&[1; 100], SIZE - 10).unwrap(), 10);
    assert_eq!(
        file.write_at(&[1; 100], SIZE).unwrap_err().raw_os_error(),
        Some(28)
    );
    assert!(file.set_len(SIZE / 2).is_err());
    // O_TRUNC has no effect, as on a block device.
    drop(File::create(file_in(&place)).unwrap());
    assert_eq!(device.bytes()[..1000], bytes[..1000]);

    drop(file);
    eventually("released", || mounted.opens() == 0);
    drop(mounted);
    assert!(!file_in(&place).exists(), "nothing is left behind");
}

#[test]
fn fsync_flushes_and_a_dsync_write_is_durable_at_once() {
    if !fuse_is_here() {
        return;
    }
    let place = Directory::new();
    let device = MemoryDevice::new(limits(SIZE), Pace::Fast);
    let _mounted = FuseFile::mount(&file_in(&place), Arc::clone(&device) as _).unwrap();
    let file = open(&file_in(&place));
    file.write_all_at(&[1; 4096], 0).unwrap();
    assert!(device.unflushed());
    file.sync_all().unwrap();
    assert!(!device.unflushed());
    let before = device.flushes();
    file.sync_data().unwrap();
    assert_eq!(device.flushes(), before + 1);

    let durable = OpenOptions::new()
        .write(true)
        .custom_flags(OFlags::DSYNC.bits().cast_signed())
        .open(file_in(&place))
        .unwrap();
    durable.write_all_at(&[2; 4096], 8192).unwrap();
    assert!(!device.unflushed());
}

#[test]
fn punched_and_zeroed_ranges_read_zeros_and_only_the_punched_are_free() {
    if !fuse_is_here() {
        return;
    }
    let place = Directory::new();
    let device = MemoryDevice::new(limits(SIZE), SHUFFLED);
    let _mounted = FuseFile::mount(&file_in(&place), Arc::clone(&device) as _).unwrap();
    let file = open(&file_in(&place));
    let mut expected = SplitMix64::new(2).bytes(usize::try_from(SIZE).unwrap());
    file.write_all_at(&expected, 0).unwrap();

    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, 8 * PAGE, 16 * PAGE).unwrap();
    expected[8 * 4096..24 * 4096].fill(0);
    fallocate(&file, FallocateFlags::ZERO_RANGE, 100_001, 300_000).unwrap();
    expected[100_001..400_001].fill(0);
    assert!(device.bytes() == expected);
    assert!(device.extents(8 * PAGE, PAGE)[0].hole);
    // A device has all its space allocated.
    fallocate(&file, FallocateFlags::empty(), 0, SIZE).unwrap();
    assert!(fallocate(&file, FallocateFlags::empty(), 0, SIZE + 1).is_err());
    assert!(device.bytes() == expected);
}

#[test]
fn holes_and_data_are_found_by_seeking() {
    if !fuse_is_here() {
        return;
    }
    let place = Directory::new();
    let device = MemoryDevice::new(limits(SIZE), SHUFFLED);
    let _mounted = FuseFile::mount(&file_in(&place), Arc::clone(&device) as _).unwrap();
    let file = open(&file_in(&place));
    let seek = |from| rustix::fs::seek(&file, from);
    assert_eq!(seek(SeekFrom::Hole(0)), Ok(0));
    assert_eq!(seek(SeekFrom::Data(0)), Err(Errno::NXIO));
    file.write_all_at(&[1; 8192], 64 * PAGE).unwrap();
    file.write_all_at(&[1; 4096], SIZE - PAGE).unwrap();
    assert_eq!(seek(SeekFrom::Data(0)), Ok(64 * PAGE));
    assert_eq!(seek(SeekFrom::Data(65 * PAGE + 7)), Ok(65 * PAGE + 7));
    assert_eq!(seek(SeekFrom::Hole(64 * PAGE)), Ok(66 * PAGE));
    assert_eq!(seek(SeekFrom::Data(66 * PAGE)), Ok(SIZE - PAGE));
    assert_eq!(seek(SeekFrom::Hole(SIZE - PAGE)), Ok(SIZE));
    assert_eq!(seek(SeekFrom::Data(SIZE)), Err(Errno::NXIO));
    assert_eq!(seek(SeekFrom::Hole(SIZE)), Err(Errno::NXIO));
}

#[test]
fn a_fault_is_an_error_of_that_request_alone() {
    if !fuse_is_here() {
        return;
    }
    let place = Directory::new();
    let device = MemoryDevice::new(limits(SIZE), Pace::Fast);
    let _mounted = FuseFile::mount(&file_in(&place), Arc::clone(&device) as _).unwrap();
    let file = open(&file_in(&place));
    let mut bytes = [0; 4096];
    for (fault, errno) in [
        (Fault::Medium, 5),
        (Fault::Gone, 19),
        (Fault::Full, 28),
        (Fault::Shutdown, 108),
    ] {
        device.set_fault(Some((8192..8193, fault)));
        let read = file.read_exact_at(&mut bytes, 8192);
        assert_eq!(read.unwrap_err().raw_os_error(), Some(errno));
        let written = file.write_all_at(&bytes, 8192);
        assert_eq!(written.unwrap_err().raw_os_error(), Some(errno));
        file.read_exact_at(&mut bytes, 0).unwrap();
    }
    device.set_fault(None);
    file.read_exact_at(&mut bytes, 8192).unwrap();
}

#[test]
fn a_second_mount_is_refused_and_a_file_that_is_open_is_cut_off() {
    if !fuse_is_here() {
        return;
    }
    let place = Directory::new();
    let device = MemoryDevice::new(limits(SIZE), Pace::Fast);
    let mounted = FuseFile::mount(&file_in(&place), Arc::clone(&device) as _).unwrap();
    let again = FuseFile::mount(&file_in(&place), Arc::clone(&device) as _);
    assert!(matches!(again, Err(FuseError::Busy { .. })), "{again:?}");

    let file = open(&file_in(&place));
    let mut bytes = [0; 4096];
    file.read_exact_at(&mut bytes, 0).unwrap();
    // With a request in flight that the device completes only after the unmount has begun.
    let held = device.hold();
    let blocked = std::thread::spawn({
        let file = file.try_clone().unwrap();
        move || file.read_exact_at(&mut [0; 4096], 0)
    });
    // Other tests start processes, which close their copies of the file: each such flush is a request too.
    eventually("submitted", || device.has_reads_waiting(&[0]));
    let release = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        drop(held);
    });
    drop(mounted);
    release.join().unwrap();
    assert!(blocked.join().unwrap().is_err());
    assert!(file.read_exact_at(&mut bytes, 0).is_err());
    assert_eq!(device.waiting(), 0);
    assert!(!file_in(&place).exists(), "nothing is left behind");

    // The path can be used again while the old file is still open.
    let mounted = FuseFile::mount(&file_in(&place), device).unwrap();
    open(&file_in(&place)).read_exact_at(&mut bytes, 0).unwrap();
    drop(mounted);
}

/// Another process that serves a file: a test of this program, which runs only so. It is killed at the end, also after a
/// failure.
struct Server(std::process::Child);

impl Server {
    /// Waits until the file is served.
    fn start(test: &str, variable: &str, place: &Directory) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("fuse::{test}"), "--nocapture"])
            .env(variable, file_in(place))
            .stdout(Stdio::piped())
            .spawn();
        let mut server = Self(child.unwrap());
        let lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
        let serves = lines.map_while(Result::ok).any(|l| l.contains("serving"));
        assert!(serves);
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn serves_until_it_is_killed() {
    // Runs only as the other process of the next test.
    let Some(file) = std::env::var_os(SERVE) else {
        return;
    };
    let device = MemoryDevice::new(limits(SIZE), Pace::Fast);
    let mounted = FuseFile::mount(Path::new(&file), device).unwrap();
    println!("\nserving {}", mounted.path().display());
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn what_a_killed_process_left_mounted_is_replaced() {
    if !fuse_is_here() {
        return;
    }
    let place = Directory::new();
    drop(Server::start("serves_until_it_is_killed", SERVE, &place));
    assert_eq!(
        fs::metadata(file_in(&place)).unwrap_err().raw_os_error(),
        Some(107),
        "transport endpoint is not connected"
    );

    let device = MemoryDevice::new(limits(SIZE), Pace::Fast);
    device.fill(b"new");
    let mounted = FuseFile::mount(&file_in(&place), device).unwrap();
    let mut bytes = [0; 3];
    open(&file_in(&place)).read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"new");
    drop(mounted);
    assert!(!file_in(&place).exists(), "nothing is left behind");
}

/// Sends descriptors to the process at the other end of a socket, with their names, as systemd's store gets them.
struct Sender(UnixDatagram);

impl Keeper for Sender {
    fn keep(&self, name: &str, descriptor: BorrowedFd<'_>) -> std::io::Result<()> {
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        let descriptors = [descriptor];
        assert!(rights.push(SendAncillaryMessage::ScmRights(&descriptors)));
        let text = [IoSlice::new(name.as_bytes())];
        sendmsg(&self.0, &text, &mut rights, SendFlags::empty())?;
        Ok(())
    }

    fn release(&self, name: &str) {
        self.0.send(format!("-{name}").as_bytes()).unwrap();
    }
}

/// All descriptors of a file, from the other end of [`Sender`].
fn all_kept(socket: &UnixDatagram) -> Vec<(String, OwnedFd)> {
    let mut descriptors: Vec<(String, OwnedFd)> = Vec::new();
    // The last one makes requests wait.
    while { descriptors.last() }.is_none_or(|(name, _)| !name.ends_with("-kernel")) {
        let (name, descriptor) = receive(socket);
        descriptors.push((name, descriptor.unwrap()));
    }
    descriptors
}

#[test]
fn serves_and_keeps_until_it_is_killed() {
    // Runs only as the other process of the next test.
    let Some(file) = std::env::var_os(KEEP) else {
        return;
    };
    let file = Path::new(&file);
    let socket = UnixDatagram::unbound().unwrap();
    socket.connect(file.with_extension("socket")).unwrap();
    let retention = Retention {
        keeper: Arc::new(Sender(socket)),
        what: "tank/home".to_owned(),
    };
    let device = MemoryDevice::new(limits(SIZE), Pace::Fast);
    // Requests of clients are never answered here.
    let _held = device.hold();
    let _mounted = FuseFile::mount_kept(file, device, Some(&retention)).unwrap();
    println!("\nserving");
    std::thread::sleep(Duration::from_secs(60));
}

/// A write that a killed process has read and not answered, one that comes while no process serves the file, and one
/// that comes later, all end well: their clients have only waited.
#[test]
fn what_a_killed_process_has_not_answered_is_answered_by_the_next_one() {
    if !fuse_is_here() {
        return;
    }
    let place = Directory::new();
    let socket = UnixDatagram::bind(file_in(&place).with_extension("socket")).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let server = Server::start("serves_and_keeps_until_it_is_killed", KEEP, &place);
    let descriptors = all_kept(&socket);

    let file = Arc::new(open(&file_in(&place)));
    let write = |byte: u8, offset: u64| {
        let file = Arc::clone(&file);
        std::thread::spawn(move || file.write_all_at(&[byte; 8192], offset))
    };
    let unanswered = [write(1, 0), write(2, 8192)];
    // The process has read them when its inbox has their messages.
    let inbox = descriptors
        .iter()
        .find(|(name, _)| name.ends_with("-requests"));
    let inbox = File::from(inbox.unwrap().1.try_clone().unwrap());
    let has = |byte: u8| {
        let mut bytes = vec![0; 4 << 20];
        inbox.read_exact_at(&mut bytes, 0).unwrap();
        bytes.windows(8192).any(|some| some == [byte; 8192])
    };
    eventually("both are read", || has(1) && has(2));
    drop(server);
    let waiting = write(3, 16384);
    std::thread::sleep(Duration::from_millis(50));
    assert!(!waiting.is_finished() && unanswered.iter().all(|one| !one.is_finished()));

    let device = MemoryDevice::new(limits(SIZE), Pace::Fast);
    let (mut files, useless) = Kept::among(descriptors);
    assert!(useless.is_empty());
    let kept = files.pop().unwrap();
    assert_eq!((kept.path(), kept.what()), (&*file_in(&place), "tank/home"));
    let (here, _there) = UnixDatagram::pair().unwrap();
    let retention = Retention {
        keeper: Arc::new(Sender(here)),
        what: "tank/home".to_owned(),
    };
    let mounted = FuseFile::take_up(kept, Arc::clone(&device) as _, &retention).unwrap();
    for thread in unanswered.into_iter().chain([waiting, write(4, 24576)]) {
        thread.join().unwrap().unwrap();
    }
    for (byte, at) in [(1, 0), (2, 8192), (3, 16384), (4, 24576)] {
        assert!(device.bytes()[at..at + 8192] == [byte; 8192], "{byte}");
    }
    assert_eq!(mounted.opens(), 1, "it was opened before");
    drop(file);
    eventually("released", || mounted.opens() == 0);
    drop(mounted);
    assert!(!file_in(&place).exists(), "nothing is left behind");
}

#[test]
fn a_kept_file_is_not_served_with_something_else_and_ends() {
    if !fuse_is_here() {
        return;
    }
    let place = Directory::new();
    let (here, there) = UnixDatagram::pair().unwrap();
    let retention = |what: &str, socket: &UnixDatagram| Retention {
        keeper: Arc::new(Sender(socket.try_clone().unwrap())),
        what: what.to_owned(),
    };
    let device = MemoryDevice::new(limits(SIZE), Pace::Fast);
    let home = retention("tank/home", &here);
    let mounted = FuseFile::mount_kept(&file_in(&place), Arc::clone(&device) as _, Some(&home));
    let mounted = mounted.unwrap();
    let descriptors = all_kept(&there);
    let file = open(&file_in(&place));
    assert!(mounted.is_kept());
    mounted.leave();
    let kept = Kept::among(descriptors).0.pop().unwrap();
    let other = FuseFile::take_up(kept, device, &retention("tank/other", &here));
    let said = other.unwrap_err();
    assert!(matches!(said, FuseError::TakeUp { .. }), "{said}");
    // The thread of the process before has the connection, as in no real next process: end it, too.
    rustix::mount::unmount(file_in(&place), rustix::mount::UnmountFlags::FORCE).ok();
    assert!(file.write_all_at(&[1; 4096], 0).is_err());
    drop(file);
    rustix::mount::unmount(file_in(&place), rustix::mount::UnmountFlags::DETACH).ok();
}

#[test]
fn a_loop_device_has_many_requests_in_flight() {
    if !tools_are_here(&["losetup"]) {
        return;
    }
    // In the middle of each MiB: what the system reads to see what is on the device begins and ends elsewhere.
    let offsets: Vec<u64> = (0..32).map(|index| (index << 20) + (512 << 10)).collect();
    let place = Directory::new();
    let device = MemoryDevice::new(limits(32 << 20), Pace::Fast);
    let _mounted = FuseFile::mount(&file_in(&place), Arc::clone(&device) as _).unwrap();
    let disk = Loop::over(&file_in(&place));
    let held = device.hold();
    let readers: Vec<_> = offsets
        .iter()
        .map(|&offset| {
            let path = disk.0.clone();
            std::thread::spawn(move || {
                let file = OpenOptions::new()
                    .read(true)
                    .custom_flags(OFlags::DIRECT.bits().cast_signed())
                    .open(path)
                    .unwrap();
                let mut memory = Memory::zeroed(4096);
                file.read_exact_at(memory.unique_mut().unwrap(), offset)
            })
        })
        .collect();
    let deadline = Instant::now() + Duration::from_secs(10);
    while !device.has_reads_waiting(&offsets) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    let all_in_flight = device.has_reads_waiting(&offsets);
    drop(held);
    for reader in readers {
        reader.join().unwrap().unwrap();
    }
    assert!(all_in_flight);
}

/// Regression: with 128 KiB of read-ahead, the default of loop devices on some kernels, a single
/// reader used few drives at once.
#[test]
fn a_loop_device_reads_ahead_several_of_the_longest_requests() {
    if !tools_are_here(&["losetup"]) {
        return;
    }
    let place = Directory::new();
    let device = MemoryDevice::new(limits(8 << 20), Pace::Fast);
    let _mounted = FuseFile::mount(&file_in(&place), device as _).unwrap();
    let made = LoopDevice::over(&file_in(&place), false, None).unwrap();
    let disk = Loop(made.path().unwrap().to_str().unwrap().to_owned());
    let name = disk.0.strip_prefix("/dev/").unwrap();
    let ahead = fs::read_to_string(format!("/sys/block/{name}/queue/read_ahead_kb")).unwrap();
    assert!(ahead.trim().parse::<u32>().unwrap() >= 4096, "{ahead}");
}

#[test]
fn ext4_on_a_loop_device_keeps_a_tree_and_gives_back_what_is_deleted() {
    if !tools_are_here(&["losetup", "mkfs.ext4", "e2fsck", "fstrim"]) {
        return;
    }
    const DISK: u64 = 64 << 20;
    let place = Directory::new();
    let device = MemoryDevice::new(limits(DISK), SHUFFLED);
    let mounted = FuseFile::mount(&file_in(&place), Arc::clone(&device) as _).unwrap();
    let disk = Loop::over(&file_in(&place));
    run("mkfs.ext4", &["-q", &disk.0]);
    let root = place.join("mnt");
    let trees: Vec<Vec<u8>> = (0..40)
        .map(|i| SplitMix64::new(i as u64).bytes(20_000 * (i + 1)))
        .collect();
    {
        let _system = Mounted::new(&disk, &root);
        for (index, bytes) in trees.iter().enumerate() {
            let directory = root.join(format!("{}/{}", index % 3, index % 5));
            fs::create_dir_all(&directory).unwrap();
            let mut file = File::create(directory.join(index.to_string())).unwrap();
            file.write_all(bytes).unwrap();
        }
        fs::write(root.join("large"), SplitMix64::new(99).bytes(20 << 20)).unwrap();
        rustix::fs::sync();
        let stored = |device: &MemoryDevice| -> u64 {
            let extents = device.extents(0, DISK);
            extents.iter().filter(|e| !e.hole).map(|e| e.length).sum()
        };
        let before = stored(&device);
        fs::remove_file(root.join("large")).unwrap();
        rustix::fs::sync();
        run("fstrim", &[root.to_str().unwrap()]);
        let after = stored(&device);
        assert!(after + (19 << 20) < before, "{before} then {after} bytes");
    }
    assert!(!device.unflushed(), "unmounting flushes");
    run("e2fsck", &["-fn", &disk.0]);
    {
        let _system = Mounted::new(&disk, &root);
        for (index, bytes) in trees.iter().enumerate() {
            let file = format!("{}/{}/{index}", index % 3, index % 5);
            assert!(fs::read(root.join(&file)).unwrap() == *bytes, "{file}");
        }
    }
    drop(disk);
    eventually("the loop device has let go", || mounted.opens() == 0);
    drop(mounted);
    assert!(!file_in(&place).exists(), "nothing is left behind");
}
