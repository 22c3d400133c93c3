//! Files and block devices: what their names may be, locks, holes, and real devices.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;

use block::Fault;

use super::support::{Place, against_the_model, open_sized};
use crate::drive::{Open, OpenDriveError, open, signatures, sync};

const EXCLUSIVE: Open = Open {
    create_size: None,
    exclusive: true,
    read_only: false,
};

fn refused(uri: &str) -> OpenDriveError {
    let error = open(&uri.parse().unwrap(), EXCLUSIVE);
    error.map(|drive| panic!("{drive:?} opened")).unwrap_err()
}

#[test]
fn a_drive_opens_once_however_it_is_named() {
    let place = Place::new();
    let name = place.file("a.img");
    let drive = open_sized(&name, 1 << 20);
    let error = refused(&format!("slow:{name}?iops=9"));
    let message = error.to_string();
    assert!(matches!(error, OpenDriveError::InUse { .. }), "{message}");
    let own = format!("(pid {}", std::process::id());
    assert!(
        message.contains("in use by another Ravelin daemon") && message.contains(&own),
        "{message}"
    );
    // Probing reads without the lock.
    let peek = open(&name.parse().unwrap(), Open::default()).unwrap();
    assert_eq!(sync::read(&*peek.device, 0, 4096).unwrap(), [0; 4096]);
    drop(peek);
    assert!(
        matches!(refused(&name), OpenDriveError::InUse { .. }),
        "the lock outlives the peek"
    );
    drop(drive);
    open(&name.parse().unwrap(), EXCLUSIVE).unwrap();
}

/// Regression: a program that had a drive locked was called a Ravelin daemon whose pool was to be exported.
#[test]
fn a_program_that_has_a_drive_is_called_by_its_name() {
    let place = Place::new();
    let name = place.file("a.img");
    drop(open_sized(&name, 1 << 20));
    let script = "import fcntl,sys,time; f=open(sys.argv[1],'r+b'); \
        fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); time.sleep(60)";
    let mut python = std::process::Command::new("python3");
    python.args(["-c", script, &name]);
    let Ok(mut holder) = python.stdout(std::process::Stdio::piped()).spawn() else {
        eprintln!("skipped: python3 is not installed");
        return;
    };
    let mut line = [0];
    let locked = holder.stdout.as_mut().unwrap().read_exact(&mut line);
    let error = refused(&name);
    holder.kill().unwrap();
    holder.wait().unwrap();
    locked.unwrap();
    let message = format!("{}", block::Full(&error));
    assert!(
        message.contains("in use by another program (pid "),
        "{message}"
    );
    assert!(message.contains("end that program first"), "{message}");
}

/// A process that another thread starts just now has all descriptors, until its program runs.
#[test]
fn a_drive_that_is_let_go_of_a_moment_later_opens() {
    let place = Place::new();
    let name = place.file("a.img");
    let drive = open_sized(&name, 1 << 20);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(30));
            drop(drive);
        });
        open(&name.parse().unwrap(), EXCLUSIVE).unwrap();
    });
}

#[test]
fn what_cannot_be_a_drive_is_refused_by_its_reason() {
    let place = Place::new();
    let missing = place.file("missing");
    assert!(matches!(refused(&missing), OpenDriveError::NotFound { .. }));
    assert!(!fs::exists(&missing).unwrap(), "nothing was made");
    let directory = place.file("directory");
    fs::create_dir(&directory).unwrap();
    assert!(matches!(
        refused(&directory),
        OpenDriveError::NotADrive { .. }
    ));
    assert!(matches!(
        refused("/dev/null"),
        OpenDriveError::NotADrive { .. }
    ));
    let empty = place.file("empty");
    fs::write(&empty, [7; 100]).unwrap();
    assert!(matches!(refused(&empty), OpenDriveError::NoBytes { .. }));
    let file = place.file("file");
    fs::write(&file, [7; 8192]).unwrap();
    assert!(matches!(
        refused(&format!("zram:{file}")),
        OpenDriveError::NotZram { .. }
    ));
    assert!(matches!(
        refused("zram:/dev/zram999"),
        OpenDriveError::NotFound { .. }
    ));
}

#[test]
fn made_files_are_sparse_and_existing_ones_keep_their_size() {
    let place = Place::new();
    let name = place.file("sparse.img");
    let drive = open_sized(&name, 1 << 30);
    assert_eq!((drive.size_bytes, drive.kind), (1 << 30, "file"));
    assert!(fs::metadata(&name).unwrap().blocks() * 512 < 1 << 20);
    drop(drive);
    assert_eq!(open_sized(&name, 5 << 30).size_bytes, 1 << 30);
    // Sizes are rounded down to what requests can address.
    let odd = place.file("odd.img");
    fs::write(&odd, vec![7; 10_000]).unwrap();
    let drive = open_sized(&odd, 0);
    let align = u64::from(drive.device.limits().block_bytes_min);
    assert_eq!(drive.size_bytes, 10_000 / align * align);
}

#[test]
fn trims_and_zeroes_give_a_files_space_back() {
    let place = Place::new();
    let name = place.file("holes.img");
    let drive = open_sized(&name, 8 << 20);
    let device = &*drive.device;
    let held = || fs::metadata(&name).unwrap().blocks() * 512;
    sync::write(device, 0, &vec![1; 8 << 20]).unwrap();
    sync::flush(device).unwrap();
    assert!(held() >= 8 << 20);
    sync::trim(device, 0, 4 << 20).unwrap();
    sync::write_zeroes(device, 4 << 20, 3 << 20).unwrap();
    sync::flush(device).unwrap();
    assert!(held() <= (1 << 20) + (64 << 10), "{}", held());
}

#[test]
fn a_discard_gives_a_files_space_back() {
    let place = Place::new();
    let name = place.file("discarded.img");
    let drive = open_sized(&name, 8 << 20);
    let device = &*drive.device;
    let held = || fs::metadata(&name).unwrap().blocks() * 512;
    sync::write(device, 0, &vec![1; 8 << 20]).unwrap();
    sync::flush(device).unwrap();
    assert!(device.limits().trims);
    sync::discard(device, 1 << 20, 7 << 20).unwrap();
    sync::flush(device).unwrap();
    assert!(held() <= (1 << 20) + (64 << 10), "{}", held());
    assert_eq!(sync::read(device, 0, 4096).unwrap(), [1; 4096]);
}

#[test]
fn a_file_that_shrank_under_the_drive_is_gone_there() {
    let place = Place::new();
    let name = place.file("shrinks.img");
    let drive = open_sized(&name, 1 << 20);
    fs::File::options()
        .write(true)
        .open(&name)
        .unwrap()
        .set_len(64 << 10)
        .unwrap();
    assert_eq!(
        sync::read(&*drive.device, 512 << 10, 4096).map(drop),
        Err(Fault::Gone)
    );
    assert!(sync::read(&*drive.device, 0, 4096).is_ok());
}

#[test]
fn a_file_system_is_found_on_the_file_that_holds_it() {
    let place = Place::new();
    let name = place.file("fs.img");
    drop(open_sized(&name, 8 << 20));
    let made = std::process::Command::new("mke2fs")
        .args(["-q", "-t", "ext4", "-L", "precious", &name])
        .output();
    if !made.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: mke2fs is not here");
        return;
    }
    let drive = open_sized(&name, 0);
    let found = signatures(&*drive.device).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].to_string(), "an ext4 file system (label precious)");
    assert!(found[0].uuid.is_some() && !found[0].is_ravelin());
    against_the_model(&*drive.device, 50, 1);
}

#[test]
fn holes_of_files_and_of_memory_are_known_also_behind_wrappers() {
    let place = Place::new();
    let file = place.file("sparse");
    for uri in [&*file, "mem:1M", "slow:faulty:mem:1M??iops=1000000"] {
        let drive = open_sized(uri, 1 << 20);
        let device = &*drive.device;
        sync::write(device, 256 << 10, &[7; 128 << 10]).unwrap();
        let extents = device.extents(0, 1 << 20);
        let all: Vec<(u64, bool)> = { extents.iter() }
            .map(|extent| (extent.length >> 10, extent.hole))
            .collect();
        assert_eq!(all, [(256, true), (128, false), (640, true)], "{uri}");
        let part = device.extents(300 << 10, 1 << 10);
        assert_eq!((part.len(), part[0].hole), (1, false), "{uri}");
        let behind = device.extents(1 << 20, 1 << 20);
        assert!(behind.is_empty(), "{uri}: {behind:?}");
    }
}
