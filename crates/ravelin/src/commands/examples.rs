//! The text below the options of a command's help and in its manual page: schemes, options, and examples.
//!
//! Every command has examples, and `tests/manual.rs` runs each of them as the manual page prints it. There, names
//! below `/dev` and `/run` stand for files of the test's own.

/// `pool create`.
pub(crate) const CREATE: &str = "\
Schemes:
  raid0                    striping, no redundancy
  raid1                    a copy on every drive; raid1:2r says how many copies
  raid10[:near|offset|far] two copies, striped; raid10:3r has three
  raid5, raid6, raid7      one, two, three parities over all drives
  raid6:4d                 striped groups of 4 data and 2 parity drives (others call it raid60)
  pddl2:8d:2s              declustered: stripes of 8+2 over all drives, spare space of two drives, fast rebuilds
  draid2:8d:2s             the same by OpenZFS's maps
  ddp:8d                   pool of pieces, 8+2 wide, with spare space; for many drives
  raid6:rdp, ddp:dcode     another code with two parities: dcode xcode rdp evenodd hcode hdp pcode liberation blaumroth cauchy
Numbers:
  d data columns of a stripe, s spares, r copies, f failure domains, c drives

Keys of -o KEY=VALUE:
  chunk=64K                what is consecutive on one drive
  cell=16M, piece=512M     what a layout places
  code=rdp                 as a word of the scheme
  journal=intent checksum=off   both together: no journal and no checksums

Examples:
  ravelin pool create tank raid6 /dev/sdb /dev/sdc /dev/sdd /dev/sde /dev/sdf
  ravelin pool create tank raid5 /dev/sdb /dev/sdc /dev/sdd spare /dev/sde
  ravelin pool create tank raid10 /dev/sdb@left /dev/sdc@left /dev/sdd@right /dev/sde@right
  ravelin pool create tank raid1 /dev/sdb@left#0 /dev/sdc@right#0
  ravelin pool create -n tank pddl2:3d:1s /dev/sdb /dev/sdc /dev/sdd /dev/sde /dev/sdf /dev/sdg";
pub(crate) const LIST: &str = "Examples:\n  ravelin pool list\n  ravelin pool list --json";
pub(crate) const STATUS: &str = "Examples:\n  ravelin pool status\n  ravelin pool status tank --map\n  ravelin pool status tank --check\n  ravelin pool status --check=strict";
pub(crate) const DESTROY: &str =
    "Examples:\n  ravelin pool destroy tank\n  ravelin pool destroy tank --yes";
pub(crate) const IMPORT: &str =
    "Examples:\n  ravelin pool import\n  ravelin pool import --dir /dev/disk/by-id tank";
pub(crate) const EXPORT: &str = "Examples:\n  ravelin pool export tank";
pub(crate) const EXPAND: &str =
    "Examples:\n  ravelin pool expand -n tank /dev/sdh\n  ravelin pool expand tank /dev/sdh";
pub(crate) const SCRUB: &str =
    "Examples:\n  ravelin pool scrub tank --wait\n  ravelin pool scrub tank --every month";
pub(crate) const ELASTIC: &str = "Examples:\n  ravelin pool elastic tank\n  ravelin pool elastic tank 30 --wait\n  ravelin pool elastic tank auto";
pub(crate) const REBUILD: &str = "Examples:\n  ravelin pool rebuild tank\n  ravelin pool rebuild tank --priority low\n  ravelin pool rebuild tank --rate 100M";
pub(crate) const HISTORY: &str = "Examples:\n  ravelin pool history tank";
pub(crate) const EVENTS: &str =
    "Examples:\n  ravelin pool events tank\n  ravelin pool events tank --follow";
pub(crate) const IOSTAT: &str = "Examples:\n  ravelin pool iostat tank";
pub(crate) const WAIT: &str = "Examples:\n  ravelin pool wait tank --for rebuild";
pub(crate) const DRIVE_LIST: &str =
    "Examples:\n  ravelin drive list\n  ravelin drive list tank --smart";
pub(crate) const DRIVE_LOCATE: &str =
    "Examples:\n  ravelin drive locate tank 2\n  ravelin drive locate tank 2 --off";
pub(crate) const DRIVE_FAIL: &str =
    "Examples:\n  ravelin drive fail tank 2\n  ravelin drive fail tank /dev/sdd";
pub(crate) const DRIVE_OFFLINE: &str =
    "Examples:\n  ravelin drive offline tank 2\n  ravelin drive offline tank /dev/sdd --rebuild";
pub(crate) const DRIVE_ONLINE: &str = "Examples:\n  ravelin drive online tank 2";
pub(crate) const DRIVE_REPLACE: &str = "Examples:\n  ravelin drive replace tank 2 /dev/sdh";
pub(crate) const DRIVE_ADD: &str =
    "Examples:\n  ravelin drive add tank /dev/sdh\n  ravelin drive add tank /dev/sdh@left#4";
pub(crate) const DRIVE_REMOVE: &str = "Examples:\n  ravelin drive remove tank /dev/sdh";
pub(crate) const DRIVE_CLEAR: &str = "Examples:\n  ravelin drive clear tank 2";
pub(crate) const DRIVE_WIPE: &str = "Examples:\n  ravelin drive wipe /dev/sdh";
pub(crate) const DRIVE_RESTORE_LABEL: &str = "Examples:\n  ravelin drive restore-label /dev/sdh";
pub(crate) const DRIVE_IDENTIFY: &str =
    "Examples:\n  ravelin drive identify /dev/sdh\n  ravelin drive identify /dev/sdh --udev";
pub(crate) const VOLUME_CREATE: &str = "Examples:\n  ravelin volume create tank/home --size 100G\n  ravelin volume create tank/home --size 50%";
pub(crate) const VOLUME_LIST: &str =
    "Examples:\n  ravelin volume list\n  ravelin volume list tank --mkfs";
pub(crate) const VOLUME_SHOW: &str = "Examples:\n  ravelin volume show tank/home";
pub(crate) const VOLUME_RESIZE: &str = "Examples:\n  ravelin volume resize tank/home --size +50G
  ravelin volume resize tank/home --size max
  ravelin volume resize tank/home --size 80G --yes";
pub(crate) const VOLUME_RENAME: &str = "Examples:\n  ravelin volume rename tank/home attic";
pub(crate) const VOLUME_DELETE: &str = "Examples:\n  ravelin volume delete tank/home";
pub(crate) const VOLUME_ATTACH: &str = "Examples:
  ravelin volume attach tank/home --loop
  ravelin volume attach tank/home --fuse /run/home.img --loop --block-size 4096
  ravelin volume attach tank/home --nbd unix:/run/home.sock
  ravelin volume attach tank/home --nbd tcp:192.0.2.1:10809 --tls-cert cert.pem --tls-key key.pem --tls-client-ca ca.pem";
pub(crate) const VOLUME_DETACH: &str = "Examples:\n  ravelin volume detach tank/home";
pub(crate) const VOLUME_OF_DEVICE: &str =
    "Examples:\n  ravelin volume of-device /dev/ravelin/tank/home";
pub(crate) const DAEMON: &str =
    "Examples:\n  ravelin daemon\n  ravelin daemon --hooks /etc/ravelin/hooks.d --group ravelin";
pub(crate) const BENCH: &str = "Examples:\n  ravelin bench tank/home --rw randread --bs 4k --time 1
  ravelin bench tank/home --rw write --bs 1M --time 1 --yes
  ravelin bench tank/home --rw read --bs 1M --rate 50M --time 1
  ravelin bench tank/home --read 70 --hot 90/10% --compressible 50 --time 1 --yes";
pub(crate) const CODE_LIST: &str = "Examples:\n  ravelin code list";
pub(crate) const CODE_SHOW: &str =
    "Examples:\n  ravelin code show dcode:7\n  ravelin code show rdp:5 --example";
pub(crate) const CODE_VERIFY: &str = "Examples:\n  ravelin code verify rdp:7";
pub(crate) const CODE_BENCH: &str = "Examples:\n  ravelin code bench rdp --columns 6";
pub(crate) const LAYOUT_SHOW: &str = "Examples:\n  ravelin layout show pddl2:4d:13c:1s --rows 13
  ravelin layout show raid5 --drives 5";
pub(crate) const LAYOUT_BALANCE: &str =
    "Examples:\n  ravelin layout balance pddl2:4d:13c:1s --drive-size 20T";
pub(crate) const LAYOUT_MAP: &str = "Examples:\n  ravelin layout map draid2:8d:24c:2s";
pub(crate) const LAYOUT_LOCATE: &str = "Examples:\n  ravelin layout locate raid6:6c 3 1";
pub(crate) const LAYOUT_CRUSH: &str =
    "Examples:\n  ravelin layout crush --devices 9 --rule indep:3 --x 0..3";
pub(crate) const DOCTOR: &str = "Examples:\n  ravelin doctor\n  ravelin doctor --json";
pub(crate) const SHEAR: &str = "Examples:\n  ravelin shear /dev/sdb --max-seconds 2
  ravelin shear sim:raid5:5c --max-ios 20000";
pub(crate) const SIM_RUN: &str = "Examples:\n  ravelin sim run pool.toml --csv course.csv";
pub(crate) const SIM_SWARM: &str =
    "Examples:\n  ravelin sim swarm --seconds 1\n  ravelin sim swarm --seconds 1 --faults silent";
pub(crate) const SIM_FAULTS: &str = "Examples:\n  ravelin sim faults --only phases";
pub(crate) const SIM_REPLAY: &str = "Examples:\n  ravelin sim replay 7";
pub(crate) const LAB_LIST: &str = "Examples:\n  ravelin lab list";
pub(crate) const LAB_RUN: &str = "Examples:\n  ravelin lab run dcode-features --out results";
pub(crate) const DEMO: &str = "Examples:\n  ravelin demo --size 64M";
pub(crate) const COMPLETIONS: &str = "Examples:\n  ravelin completions bash";
pub(crate) const MAN: &str = "Examples:\n  ravelin man --dir man";
pub(crate) const ADVISE: &str = "Examples:\n  ravelin advise /dev/sdb /dev/sdc /dev/sdd /dev/sde\n  ravelin advise mem:4T mem:4T mem:4T";
pub(crate) const GLANCE: &str = "Examples:\n  ravelin status\n  ravelin status -x";
