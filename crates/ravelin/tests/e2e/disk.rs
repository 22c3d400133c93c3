//! Devices of the kernel; all are removed also after a failure.

#![expect(unsafe_code, reason = "no library has the ioctl of loop devices")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::ioctl::{Setter, Updater, ioctl};
use testing::eventually;

use super::common::run;

/// A loop device.
pub(crate) struct Loop {
    device: String,
}

impl Loop {
    pub(crate) fn over(file: &Path) -> Self {
        let name = file.to_str().unwrap();
        Self {
            device: run("losetup", &["--direct-io=on", "-f", "--show", name]),
        }
    }

    pub(crate) fn device(&self) -> &str {
        &self.device
    }

    /// Makes the device empty while it is in use, as a pulled disk is: from one moment to the next the device begins
    /// behind the end of its file. (If the file were truncated first, a write could make it longer again, and the bytes
    /// before this write would read as zeros.)
    pub(crate) fn shrink_to_nothing(&self) {
        const LOOP_SET_STATUS64: u32 = 0x4c04;
        const LOOP_GET_STATUS64: u32 = 0x4c05;
        /// Index of `lo_offset` in `struct loop_info64`, in words of eight bytes.
        const OFFSET: usize = 3;
        let device = fs::File::open(&self.device).unwrap();
        let mut status = [0_u64; 29];
        // SAFETY: both calls read and write a `struct loop_info64`. It has 232 bytes, and any bytes are a valid value.
        unsafe {
            ioctl(&device, Updater::<LOOP_GET_STATUS64, _>::new(&mut status)).unwrap();
            status[OFFSET] = 1 << 40;
            ioctl(&device, Setter::<LOOP_SET_STATUS64, _>::new(status)).unwrap();
        }
        let name = Path::new(&self.device).file_name().unwrap();
        let size = fs::read_to_string(Path::new("/sys/block").join(name).join("size")).unwrap();
        assert_eq!(size.trim(), "0");
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // A test may have detached it already; the kernel does so when the last user has closed it.
        let _ = Command::new("losetup")
            .args(["-d", &self.device])
            .stderr(Stdio::null())
            .status();
    }
}

/// A mounted file system.
pub(crate) struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    pub(crate) fn new(device: &Loop, at: &'a Path) -> Self {
        run("mount", &[device.device(), at.to_str().unwrap()]);
        Self(at)
    }

    pub(crate) fn unmount(self) {
        // A process that another test is just starting keeps this process's files open until its exec.
        eventually("nobody has a file there open", || {
            let unmounted = Command::new("umount").arg(self.0).output();
            unmounted.unwrap().status.success()
        });
        std::mem::forget(self);
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

/// A zram device, created by the test and removed afterwards.
pub(crate) struct Zram(u32);

impl Zram {
    pub(crate) fn new(size_bytes: u64) -> Option<Self> {
        // A read of this file creates the device.
        let number = match fs::read_to_string("/sys/class/zram-control/hot_add") {
            Ok(number) => number.trim().parse().unwrap(),
            Err(error) => {
                println!("skipped: zram: {error}");
                return None;
            }
        };
        let zram = Self(number);
        zram.set("disksize", &size_bytes.to_string()).unwrap();
        Some(zram)
    }

    pub(crate) fn device(&self) -> String {
        format!("/dev/zram{}", self.0)
    }

    pub(crate) fn set(&self, name: &str, value: &str) -> std::io::Result<()> {
        let device = format!("/sys/block/zram{}", self.0);
        fs::write(Path::new(&device).join(name), value)
    }

    /// Takes the device out of the kernel.
    pub(crate) fn remove(&self) -> std::io::Result<()> {
        fs::write("/sys/class/zram-control/hot_remove", self.0.to_string())
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        let _ = self.set("reset", "1");
        let _ = self.remove();
    }
}

/// nbdfuse with its file mounted in a directory of its own.
pub(crate) struct Nbdfuse {
    process: Child,
    mount: PathBuf,
}

impl Nbdfuse {
    /// Mounts `mount`/`disk`. `what` is a URI, or a command in brackets that serves NBD on its standard input.
    pub(crate) fn mount(mount: &Path, what: &[&str]) -> Self {
        fs::create_dir_all(mount).unwrap();
        let process = Command::new("nbdfuse")
            .arg(mount.join("disk"))
            .args(what)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mounted = Self {
            process,
            mount: mount.to_owned(),
        };
        eventually("nbdfuse mounts its file", || mounted.file().exists());
        mounted
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.mount.join("disk")
    }

    /// Kills the process like a crash: from now on the file's users get errors.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Stops the process, or continues it: while it is stopped, the file's users wait in the kernel.
    pub(crate) fn hold(&self, held: bool) {
        let signal = if held { "-STOP" } else { "-CONT" };
        let process = self.process.id().to_string();
        let sent = Command::new("kill").args([signal, &process]).status();
        assert!(sent.unwrap().success());
    }

    /// Unmounts, which waits until no process has the file open, and flushes.
    pub(crate) fn unmount(mut self) {
        let mount = self.mount.to_str().unwrap().to_owned();
        eventually("nothing holds nbdfuse's file", || {
            let unmounted = Command::new("fusermount3").args(["-u", &mount]).output();
            unmounted.unwrap().status.success()
        });
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for Nbdfuse {
    fn drop(&mut self) {
        let _ = Command::new("umount")
            .args(["-l", self.mount.to_str().unwrap()])
            .stderr(Stdio::null())
            .status();
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
