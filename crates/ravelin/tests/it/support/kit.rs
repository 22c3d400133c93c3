//! The parts of a guest, and the assembled guest.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Long, because the emulator shares its two cores with other tests.
const TIMEOUT: Duration = Duration::from_secs(240);
const MEMORY_MIB: u32 = 1024;

/// Prefix of each line that a script prints; the kernel prints to the same console.
const MARK: &str = "@guest ";

/// Runs before a test's script, as the first process of the guest.
const BEGIN: &str = r#"#!/bin/sh
export PATH=/bin:/sbin:/usr/bin:/usr/sbin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm /run /tmp
mount -t tmpfs run /run
say() { echo "@guest $*"; }
for module in $(cat /modules.order); do insmod $module || say "no module $module"; done
"#;
/// systemd does not run well in the first root, of which no mount can be moved.
const SYSTEMD: &str = r#"
mkdir /root.new
mount -t tmpfs -o size=90% root /root.new
for part in /*; do
    case $part in
        /proc | /sys | /dev | /run | /root.new) mkdir -p /root.new$part ;;
        *) cp -a $part /root.new/ ;;
    esac
done
umount /run
exec switch_root /root.new /lib/systemd/systemd systemd.show_status=0 systemd.log_level=warning
"#;
const END: &str = "\nsay end\npoweroff -f\n";

/// What a machine needs to run guests.
#[derive(Debug)]
pub(crate) struct Kit {
    kernel: PathBuf,
    /// `lib/modules/VERSION/kernel`.
    modules: PathBuf,
    busybox: PathBuf,
}

impl Kit {
    /// The kit, or which part is missing here; `programs` are those that the test runs in the guest.
    pub(crate) fn find(programs: &[&str]) -> Result<Self, String> {
        for program in [&["qemu-system-x86_64", "strip"], programs].concat() {
            which(program).ok_or_else(|| format!("{program} is not installed"))?;
        }
        let busybox = which("busybox").ok_or("busybox is not installed")?;
        if !is_static(&busybox) {
            return Err("busybox needs libraries; busybox-static is not installed".to_owned());
        }
        let root = std::env::var_os("RAVELIN_GUEST").map_or_else(|| "/".into(), PathBuf::from);
        let found = fs::read_dir(root.join("boot")).ok().into_iter().flatten();
        let versions = found.flatten().filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            Some(name.strip_prefix("vmlinuz-")?.to_owned())
        });
        let kit = versions.map(|version| Self {
            kernel: root.join("boot").join(format!("vmlinuz-{version}")),
            modules: root.join("lib/modules").join(version).join("kernel"),
            busybox: busybox.clone(),
        });
        { kit }
            .find(|kit| kit.modules.is_dir() && fs::File::open(&kit.kernel).is_ok())
            .ok_or_else(|| format!("no kernel with modules in {}", root.display()))
    }

    /// A guest with this version of `ravelin` and these modules (below `kernel`, loaded in this order).
    pub(crate) fn guest(&self, name: &str, modules: &[&str]) -> Guest<'_> {
        let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("guest-{name}"));
        let _ = fs::remove_dir_all(&place);
        let guest = Guest {
            kit: self,
            root: place.join("root"),
            place,
            time_limit: TIMEOUT,
            disks: Vec::new(),
        };
        for directory in ["bin", "proc", "sys", "dev", "tmp", "modules", "usr/bin"] {
            fs::create_dir_all(guest.root.join(directory)).unwrap();
        }
        fs::copy(&self.busybox, guest.root.join("bin/busybox")).unwrap();
        let list = Command::new(&self.busybox).arg("--list").output().unwrap();
        for applet in String::from_utf8(list.stdout).unwrap().lines() {
            let _ = symlink("busybox", guest.root.join("bin").join(applet));
        }
        let mut order = String::new();
        for module in modules {
            let own = format!("/modules/{}", module.rsplit('/').next().unwrap());
            guest.file(self.modules.join(module), &own);
            order += &format!("{own}\n");
        }
        fs::write(guest.root.join("modules.order"), order).unwrap();
        guest.copy_program(Path::new(env!("CARGO_BIN_EXE_ravelin")), "/usr/bin/ravelin");
        guest
    }
}

/// A guest that has not been started yet.
#[derive(Debug)]
pub(crate) struct Guest<'a> {
    kit: &'a Kit,
    place: PathBuf,
    root: PathBuf,
    /// How long the whole run of the guest may take.
    time_limit: Duration,
    /// Options of the emulator, one pair for each disk.
    disks: Vec<[String; 2]>,
}

impl Guest<'_> {
    /// Sets another limit for the whole run.
    pub(crate) fn time_limit(&mut self, time_limit: Duration) {
        self.time_limit = time_limit;
    }

    /// Puts a program of this machine, and the libraries that it loads, into the guest.
    pub(crate) fn program(&mut self, name: &str, path: &str) {
        let found = which(name).expect("the kit has looked for it");
        self.copy_program(&found, path);
        // Under its own name, too.
        let own = self.root.join("usr/bin").join(name);
        if !own.exists() {
            symlink(path, own).unwrap();
        }
    }

    fn copy_program(&self, program: &Path, path: &str) {
        let to = self.file(program, path);
        // With its symbols, the program takes most of the guest's memory.
        let _ = Command::new("strip")
            .arg(&to)
            .stderr(Stdio::null())
            .status();
        let loads = Command::new("ldd").arg(program).output().unwrap();
        let loads = String::from_utf8(loads.stdout).unwrap();
        for library in loads
            .split_whitespace()
            .filter(|word| word.starts_with('/'))
        {
            if !self.root.join(&library[1..]).exists() {
                self.file(library, library);
            }
        }
    }

    /// Copies a file into the guest; returns the path of the copy.
    pub(crate) fn file(&self, from: impl AsRef<Path>, path: &str) -> PathBuf {
        let to = self.root.join(path.trim_start_matches('/'));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        // An applet of busybox, a link, is replaced and not written to.
        let _ = fs::remove_file(&to);
        fs::copy(from.as_ref(), &to)
            .unwrap_or_else(|error| panic!("{}: {error}", from.as_ref().display()));
        to
    }

    /// Takes a file out of the guest.
    pub(crate) fn remove(&self, path: &str) {
        fs::remove_file(self.root.join(path.trim_start_matches('/'))).unwrap();
    }

    /// Adds a disk, `/dev/vda` and so on; its file stays when the guest has ended.
    pub(crate) fn disk(&mut self, file: &Path) {
        let file = format!("file={}", file.display());
        self.disk_with(&file, "");
    }

    /// Adds a disk with options of the emulator for what is behind it and for the device, each option with a comma before
    /// it.
    pub(crate) fn disk_with(&mut self, drive: &str, device: &str) {
        let number = self.disks.len();
        self.disks.push([
            format!("{drive},format=raw,if=none,id=disk{number}"),
            format!("virtio-blk-pci,drive=disk{number}{device}"),
        ]);
    }

    /// Puts a program that is not on the path, and the libraries that it loads, at the same place into the guest.
    pub(crate) fn helper(&self, program: impl AsRef<Path>) {
        let program = program.as_ref();
        self.copy_program(program, program.to_str().unwrap());
    }

    /// Writes a file of the guest.
    pub(crate) fn text(&self, path: &str, text: &str) {
        let to = self.root.join(path.trim_start_matches('/'));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::write(to, text).unwrap();
    }

    /// Makes a symbolic link in the guest.
    pub(crate) fn link(&self, to: &str, path: &str) {
        let from = self.root.join(path.trim_start_matches('/'));
        fs::create_dir_all(from.parent().unwrap()).unwrap();
        symlink(to, from).unwrap();
    }

    /// Runs a script as the guest's first process; returns the output of the script.
    ///
    /// # Panics
    /// When the guest does not reach the end of the script.
    pub(crate) fn run(self, script: &str) -> String {
        self.run_init(&[BEGIN, script, END].concat())
    }

    /// Runs systemd as the guest's first process; one of its services runs the script `/test.sh`, which says `end`.
    ///
    /// # Panics
    /// When the guest does not reach the end of the script.
    pub(crate) fn run_systemd(self, script: &str) -> String {
        self.text("/test.sh", script);
        self.run_init(&[BEGIN, SYSTEMD].concat())
    }

    fn run_init(self, script: &str) -> String {
        let init = self.root.join("init");
        fs::write(&init, script).unwrap();
        fs::set_permissions(&init, fs::Permissions::from_mode(0o755)).unwrap();
        let image = self.place.join("initramfs");
        let packed = Command::new("sh")
            .args(["-c", "find . | \"$1\" cpio -o -H newc >\"$2\"", "sh"])
            .arg(&self.kit.busybox)
            .arg(&image)
            .stderr(Stdio::null())
            .current_dir(&self.root)
            .status()
            .unwrap();
        assert!(packed.success());
        let console = self.console(&image);
        let said = console.lines().filter_map(|line| {
            let (_, said) = line.split_once(MARK)?;
            Some(said.trim_end())
        });
        let mut said: Vec<&str> = said.collect();
        assert_eq!(said.pop(), Some("end"), "the guest has stopped:\n{console}");
        let _ = fs::remove_dir_all(&self.place);
        said.join("\n")
    }

    /// Starts the guest; returns the console output when it has ended.
    fn console(&self, image: &Path) -> String {
        let console = self.place.join("console");
        let mut emulator = Command::new("qemu-system-x86_64")
            .args(["-accel", "tcg", "-cpu", "max", "-nographic", "-no-reboot"])
            .args(["-nic", "none", "-m", &MEMORY_MIB.to_string()])
            // On a busy machine the emulated timer is late, and the kernel would panic at its test of it.
            .args(["-append", "console=ttyS0 quiet panic=-1 no_timer_check"])
            .arg("-kernel")
            .arg(&self.kit.kernel)
            .arg("-initrd")
            .arg(image)
            .args(
                { self.disks.iter() }
                    .flat_map(|[drive, device]| ["-drive", drive, "-device", device]),
            )
            .stdin(Stdio::null())
            .stdout(fs::File::create(&console).unwrap())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + self.time_limit;
        while emulator.try_wait().unwrap().is_none() {
            if Instant::now() > deadline {
                let _ = emulator.kill();
                let _ = emulator.wait();
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let mut bytes = Vec::new();
        fs::File::open(console)
            .unwrap()
            .read_to_end(&mut bytes)
            .unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Where a program is; the usual path may lack system programs.
fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    places
        .map(|place| place.join(program))
        .find(|path| path.is_file())
        .and_then(|path| path.canonicalize().ok())
}

fn is_static(program: &Path) -> bool {
    let ran = Command::new("ldd").arg(program).output();
    ran.is_ok_and(|ran| !ran.status.success())
}
