//! Dynamic Disk Pools against RAID-6 with hot spares: rebuild, two failures, initialisation, bandwidth, priorities.
//!
//! The test bed of the paper (section 2): 60 drives of 300 GB at 15,000 rpm. As a pool: 8+2, the space of three drives
//! preserved, eight volumes of 1230 GB. As RAID-6: eight groups of 4+2 and two hot spares, 50 drives.
//!
//! ```text
//!   one drive fails                   moved for each byte of it          by            time at B bytes/s of a drive
//!   RAID-6   300 GB                   1 written                          the spare     300 GB ÷ B
//!   DDP      205 GB in use            8 read, 1 written                  59 drives     205 GB · 9 ÷ 59 ÷ B
//! ```
//!
//! For equal bytes of users U, RAID-6 has U ÷ 32 of them on a drive, DDP U ÷ 48: a speed-up of 59 · 48 ÷ (9 · 32) = 9.83,
//! divided by how unevenly the table of members spreads the work (greatest ÷ mean).

mod bandwidth;
mod dual;
mod host;
mod init;
mod priority;
mod rebuild;

pub(crate) use bandwidth::Bandwidth;
pub(crate) use dual::Dual;
pub(crate) use init::Init;
pub(crate) use priority::Priority;
pub(crate) use rebuild::Rebuild;

use sim::model::{ModelOptions, Preset, ServerOptions, preset};
use sim::{StudyOptions, StudyVolume};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GB: u64 = 1_000_000_000;

/// Section 2.2.
const DDP: &str = "ddp:8d:2p:60c:3s";
/// Section 2.3.
const RAID6: &str = "raid6:4d:50c:2s";
const DRIVES: u16 = 60;
/// Eight volumes (section 2.2).
const VOLUMES: u64 = 8;
const VOLUME_BYTES: u64 = 1230 * GB;
const DRIVE_BYTES: u64 = 300 * GB;

/// Section 4: minutes until the failed drive was reconstructed.
const RAID6_MINUTES: f64 = 312.0;
const DDP_MINUTES: f64 = 36.0;
/// The rate of a drive that 312 minutes for 300 GB imply: 16.03 MB/s. An input of these studies, not a result.
const IMPLIED_RATE: u64 = DRIVE_BYTES / (312 * 60);

/// A drive without seeks at the implied rate.
fn throttled(drive_bytes: u64) -> Preset {
    Preset {
        name: "16 MB/s",
        about: "a drive without seeks at the rate that 312 minutes imply",
        options: ModelOptions::Server(ServerOptions {
            capacity_bytes: drive_bytes,
            bytes_per_second: IMPLIED_RATE,
            per_operation_ns: 0,
            latency_ns: 0,
        }),
    }
}

/// The paper's drive, as fast as it is.
fn disk() -> Preset {
    preset("15k").expect("a preset")
}

/// A scale: drives, volumes and pieces have one part in so many of their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Scale(u64);

impl Scale {
    const WHOLE: Self = Self(1);

    /// Our whole pool as the paper configured DDP.
    fn ddp(self, drive: Preset) -> StudyVolume {
        self.ddp_of(drive, false)
    }

    /// The same, whose groups are made blank at their first write.
    fn lazy_ddp(self, drive: Preset) -> StudyVolume {
        self.ddp_of(drive, true)
    }

    fn ddp_of(self, drive: Preset, lazy: bool) -> StudyVolume {
        let options = StudyOptions {
            lazy,
            drive_bytes: Some(self.of(drive.capacity_bytes()) / MIB * MIB),
            cell_bytes: (self != Self::WHOLE).then(|| self.of(512 * MIB).next_power_of_two()),
            ..StudyOptions::new(DDP, drive)
        };
        let bytes = VOLUMES * self.of(VOLUME_BYTES) / MIB * MIB;
        StudyVolume::create(&options, Some(bytes)).expect("the paper's volumes fit into its pool")
    }

    /// Eight groups and two hot spares, all of their space in use.
    fn raid6(self, drive: Preset) -> StudyVolume {
        let options = StudyOptions {
            drive_bytes: Some(self.of(drive.capacity_bytes()) / MIB * MIB),
            ..StudyOptions::new(RAID6, drive)
        };
        StudyVolume::create(&options, None).expect("the paper's groups are a pool")
    }

    const fn of(self, bytes: u64) -> u64 {
        bytes / self.0
    }
}
