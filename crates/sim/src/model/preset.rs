//! Drives by name. Each number has its source beside it; a number without a source is marked as chosen.
//!
//! Sources:
//! - *Shear*: Denehy et al., "Deconstructing storage arrays", ASPLOS 2004, section 2.2.
//! - *10K.3*: Seagate, "Savvio 10K.3 SAS Product Manual", 100516229 Rev. G, section 5.2 (ST9300603SS).
//! - *10K*: Seagate, "Savvio SAS Product Manual", Rev. D, section 4.2.1 (ST973401SS): the seek times of the same family's
//!   first generation, because the manual of the 10K.3 that we have lacks them.
//! - *15K.3*: Seagate, "Savvio 15K.3" data sheet DS1732 (ST9300653SS, of which ST9300553SS, the drive of the DDP paper, is
//!   the self-encrypting sister).
//! - *X20*: Seagate, "Exos X20" data sheet DS2080 (ST20000NM007D).
//! - *MQSim*: Tavakkol et al., "MQSim", FAST 2018, and `ssdconfig.xml` of github.com/CMU-SAFARI/MQSim.
//!
//! Manuals give a mean seek and not the curve. The knee of the curve is put at a third of the cylinders, which is the
//! mean distance of two random cylinders, and its time there is the published mean. `closed_forms` checks the result
//! against the curve's integral.

use super::disk::{Disk, DiskCacheOptions, DiskOptions, SECTOR_BYTES, SeekCurve, Zone};
use super::order::QueueOptions;
use super::server::{Null, Server, ServerOptions};
use super::ssd::{Ssd, SsdOptions};
use super::{Model, Order};

const MS: u64 = 1_000_000;
const US: u64 = 1_000;
const MB: u64 = 1_000_000;
const GB: u64 = 1_000_000_000;

/// The names that [`preset`] accepts.
pub const PRESETS: [&str; 7] = ["9lzx", "10k", "15k", "nearline", "ssd", "server", "null"];

/// The options of a drive of any kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelOptions {
    /// A rotating disk.
    Disk(DiskOptions),
    /// A flash drive.
    Ssd(SsdOptions),
    /// One server.
    Server(ServerOptions),
    /// No time at all; bytes of its capacity.
    Null(u64),
}

/// A drive by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// Description of the drive.
    pub about: &'static str,
    /// Its options, which may be changed before [`Preset::build`].
    pub options: ModelOptions,
}

impl Preset {
    /// Size of the drive.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        match &self.options {
            ModelOptions::Disk(options) => options.capacity_bytes(),
            ModelOptions::Ssd(options) => options.capacity_bytes,
            ModelOptions::Server(options) => options.capacity_bytes,
            ModelOptions::Null(bytes) => *bytes,
        }
    }

    /// Sets another queue. Servers and flash drives serve in order of arrival, so this does not change them.
    #[must_use]
    pub const fn with_queue(mut self, order: Order, depth: usize) -> Self {
        if let ModelOptions::Disk(options) = &mut self.options {
            options.queue = QueueOptions { order, depth };
        }
        self
    }

    /// A disk with another read cache and write cache.
    #[must_use]
    pub const fn with_cache(mut self, cache: DiskCacheOptions) -> Self {
        if let ModelOptions::Disk(options) = &mut self.options {
            options.cache = cache;
        }
        self
    }

    /// Scales the times of a disk's turns and seeks to so many thousandths; does not change other drives.
    #[must_use]
    pub const fn with_times(mut self, turn_thousandths: u64, seek_thousandths: u64) -> Self {
        if let ModelOptions::Disk(disk) = &mut self.options {
            disk.revolution_ns = disk.revolution_ns * turn_thousandths / 1000;
            disk.seek.one_ns = disk.seek.one_ns * seek_thousandths / 1000;
            disk.seek.knee_ns = disk.seek.knee_ns * seek_thousandths / 1000;
            disk.seek.full_ns = disk.seek.full_ns * seek_thousandths / 1000;
        }
        self
    }

    /// A drive at rest.
    #[must_use]
    pub fn build(&self) -> Box<dyn Model> {
        match &self.options {
            ModelOptions::Disk(options) => Box::new(Disk::new(options.clone())),
            ModelOptions::Ssd(options) => Box::new(Ssd::new(*options)),
            ModelOptions::Server(options) => Box::new(Server::new(*options)),
            ModelOptions::Null(_) => Box::new(Null::default()),
        }
    }
}

/// The drive of that name, if there is one ([`PRESETS`]).
#[must_use]
pub fn preset(name: &str) -> Option<Preset> {
    let (name, about, options) = match name {
        "9lzx" => ("9lzx", "IBM 9LZX, 9.1 GB at 10,000 rpm", nine_lzx()),
        "10k" => ("10k", "Seagate ST9300603SS, 300 GB at 10,000 rpm", ten_k()),
        "15k" => (
            "15k",
            "Seagate ST9300553SS, 300 GB at 15,000 rpm",
            fifteen_k(),
        ),
        "nearline" => (
            "nearline",
            "Seagate ST20000NM007D, 20 TB at 7,200 rpm",
            nearline(),
        ),
        "ssd" => ("ssd", "flash, 8 channels of 8 dies, 480 GB", ssd()),
        "server" => ("server", "one first-come first-served server", server()),
        "null" => (
            "null",
            "a drive that takes no time",
            ModelOptions::Null(300 * GB),
        ),
        _ => return None,
    };
    Some(Preset {
        name,
        about,
        options,
    })
}

fn nine_lzx() -> ModelOptions {
    let zone = Zone {
        // 9.1 GB in tracks of 272 sectors under 10 heads: 6534.4.
        cylinders: 6534,
        sectors_per_track: 272, // Shear
        track_skew: 36,         // Shear
        cylinder_skew: 84,      // Shear
    };
    ModelOptions::Disk(DiskOptions {
        revolution_ns: 6 * MS, // Shear
        heads: 10,             // Shear
        zones: vec![zone],
        seek: SeekCurve {
            one_ns: 800 * US,    // Shear
            knee_cylinders: 400, // Shear
            knee_ns: 6 * MS,     // Shear
            full_ns: 8 * MS,     // Shear
        },
        head_switch_ns: 800 * US,      // Shear
        cylinder_switch_ns: 1800 * US, // Shear
        write_settle_ns: 0,            // Shear names none
        overhead_ns: 0,                // Shear names none
        interface_bytes_per_second: 0, // Shear names none
        // "A simple segmented cache" (Shear). Chosen: 16 segments of 256 KiB of the drive's 4 MiB, read-ahead of one
        // segment, write-through.
        cache: DiskCacheOptions {
            segments: 16,
            segment_sectors: 512,
            read_ahead_sectors: 511,
            write_sectors: 0,
        },
        queue: QueueOptions::default(),
    })
}

/// The data of a zoned disk in its manual.
struct Published {
    capacity_bytes: u64,
    revolution_ns: u64,
    heads: u32,
    /// Sustained rate, at the outside and at the inside.
    bytes_per_second: (u64, u64),
    /// Seek times for one track, mean, full stroke, for reads.
    seek_ns: (u64, u64, u64),
    head_switch_ns: u64,
    write_settle_ns: u64,
    interface_bytes_per_second: u64,
    buffer_bytes: u64,
}

/// Number of zones of a disk: enough for the rate to fall evenly.
const ZONES: u64 = 16;

/// A disk with the published sustained rates: sectors per track follow from them, and cylinders from the capacity.
fn zoned(published: &Published) -> ModelOptions {
    let (outer, inner) = published.bytes_per_second;
    let heads = u64::from(published.heads);
    let turn = published.revolution_ns;
    // While a head or cylinder is switched, the skew passes: this takes a share of each track's time. The cylinder
    // switch is chosen as the sum of the head switch and the settling of a write.
    let cylinder_switch_ns = published.head_switch_ns + published.write_settle_ns;
    let switches_ns = ((heads - 1) * published.head_switch_ns + cylinder_switch_ns) / heads;
    let zones: Vec<(u32, u32, u32)> = (0..ZONES)
        .map(|index| {
            let rate = outer - (outer - inner) * index / (ZONES - 1);
            let bytes = u128::from(rate) * u128::from(turn + switches_ns) / u128::from(GB);
            let sectors = u64::try_from(bytes).expect("a track is small") / SECTOR_BYTES;
            // Whole sectors that cover the switch, and one more.
            let skew = |ns: u64| narrow((ns * sectors).div_ceil(turn) + 1);
            (
                narrow(sectors),
                skew(published.head_switch_ns),
                skew(cylinder_switch_ns),
            )
        })
        .collect();
    let per_cylinder: u64 = zones.iter().map(|&(sectors, ..)| u64::from(sectors)).sum();
    let cylinders = published.capacity_bytes / (per_cylinder * heads * SECTOR_BYTES) + 1;
    let zones: Vec<Zone> = zones
        .into_iter()
        .map(|(sectors_per_track, track_skew, cylinder_skew)| Zone {
            cylinders: narrow(cylinders),
            sectors_per_track,
            track_skew,
            cylinder_skew,
        })
        .collect();
    let (one_ns, knee_ns, full_ns) = published.seek_ns;
    ModelOptions::Disk(DiskOptions {
        revolution_ns: turn,
        heads: published.heads,
        seek: SeekCurve {
            one_ns,
            knee_cylinders: narrow(cylinders * ZONES / 3),
            knee_ns,
            full_ns,
        },
        zones,
        head_switch_ns: published.head_switch_ns,
        cylinder_switch_ns,
        write_settle_ns: published.write_settle_ns,
        // Chosen: 0.1 ms of command handling.
        overhead_ns: 100 * US,
        interface_bytes_per_second: published.interface_bytes_per_second,
        // Chosen: half of the buffer in 16 segments, each read full by read-ahead; write-through, as drives behind a
        // RAID controller are set.
        cache: DiskCacheOptions {
            segments: 16,
            segment_sectors: published.buffer_bytes / 2 / 16 / SECTOR_BYTES,
            read_ahead_sectors: published.buffer_bytes / 2 / 16 / SECTOR_BYTES - 1,
            write_sectors: 0,
        },
        // Chosen: the first 32 commands, shortest positioning time first.
        queue: QueueOptions {
            order: Order::Sptf,
            depth: 32,
        },
    })
}

fn ten_k() -> ModelOptions {
    zoned(&Published {
        capacity_bytes: 300 * GB,               // 10K.3
        revolution_ns: 6 * MS,                  // 10K.3: 3.0 ms mean rotational latency
        heads: 4,                               // 10K.3: two discs
        bytes_per_second: (124 * MB, 67 * MB),  // 10K.3
        seek_ns: (200 * US, 4 * MS, 8100 * US), // 10K, without controller overhead
        head_switch_ns: 800 * US,               // chosen: as the 9LZX, of the same speed
        write_settle_ns: 400 * US,              // 10K: a write's seek is 0.4 ms longer
        interface_bytes_per_second: 600 * MB,   // 10K.3
        buffer_bytes: 16 << 20,                 // 10K.3
    })
}

fn fifteen_k() -> ModelOptions {
    zoned(&Published {
        capacity_bytes: 300 * GB,                  // 15K.3
        revolution_ns: 4 * MS,                     // 15K.3: 2.0 ms mean rotational latency
        heads: 4,                                  // 15K.3: two discs
        bytes_per_second: (202 * MB, 151 * MB),    // 15K.3
        seek_ns: (200 * US, 2600 * US, 5200 * US), // 15K.3: mean 2.6; one track and full stroke chosen: as the 10K's to its mean
        head_switch_ns: 500 * US,                  // chosen
        write_settle_ns: 500 * US,                 // 15K.3: mean for writes 3.1
        interface_bytes_per_second: 600 * MB,      // 15K.3: 6 Gb/s SAS
        buffer_bytes: 64 << 20,                    // 15K.3
    })
}

fn nearline() -> ModelOptions {
    zoned(&Published {
        capacity_bytes: 20_000 * GB,            // X20
        revolution_ns: 8_333_333,               // X20: 7,200 rpm
        heads: 20,                              // X20: ten platters
        bytes_per_second: (285 * MB, 130 * MB), // X20 at the outside; the inside chosen: radii of 46 to 21 mm
        seek_ns: (300 * US, 8 * MS, 16 * MS), // chosen: with 168 random reads a second at depth 16 (X20) in mind
        head_switch_ns: MS,                   // chosen
        write_settle_ns: 500 * US,            // chosen
        interface_bytes_per_second: 1200 * MB, // X20: 12 Gb/s SAS
        buffer_bytes: 256 << 20,              // X20
    })
}

fn ssd() -> ModelOptions {
    ModelOptions::Ssd(SsdOptions {
        capacity_bytes: 480 * GB / 4096 * 4096, // chosen: a common size
        over_provisioning_thousandths: 70,      // MQSim: 0.07
        channels: 8,                            // MQSim
        dies_per_channel: 8,                    // MQSim: 4 chips of 2 dies
        page_bytes: 16384,                      // MQSim: 8 KiB in 2 planes
        pages_per_block: 256,                   // MQSim
        read_ns: 75 * US,                       // MQSim
        program_ns: 750 * US,                   // MQSim, the settings of the paper
        erase_ns: 3800 * US,                    // MQSim
        channel_bytes_per_second: 333 * MB,     // MQSim: 333 MT/s of a byte
        overhead_ns: 5 * US,                    // chosen: command handling of the controller
        interface_bytes_per_second: 3_938 * MB, // PCIe 3.0 ×4: 8 GT/s, 128b/130b
        buffer_bytes: 16 << 20,                 // chosen: what capacitors can save
        filled_percent: 100,                    // chosen: a drive in use
    })
}

fn server() -> ModelOptions {
    // Chosen: round numbers of a fast disk; studies set their own.
    ModelOptions::Server(ServerOptions {
        capacity_bytes: 300 * GB,
        bytes_per_second: 200 * MB,
        per_operation_ns: 100 * US,
        latency_ns: 0,
    })
}

fn narrow(value: u64) -> u32 {
    u32::try_from(value).expect("a disk has fewer than 2^32 of them")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_a_drive_of_its_size() {
        let sizes = [
            9_100, 300_000, 300_000, 20_000_000, 480_000, 300_000, 300_000,
        ];
        for (name, megabytes) in PRESETS.into_iter().zip(sizes) {
            let found = preset(name).expect("it is listed");
            assert_eq!(found.name, name);
            let bytes = found.capacity_bytes();
            let close = bytes.abs_diff(megabytes * MB) * 1000 <= megabytes * MB;
            assert!(close, "{name}: {bytes} bytes");
            assert_eq!(found.build().queued(), 0);
        }
        assert_eq!(preset("floppy"), None);
    }

    #[test]
    fn zoned_disks_have_their_published_rates() {
        for (name, outer, inner) in [("10k", 124, 67), ("15k", 202, 151), ("nearline", 285, 130)] {
            let Some(Preset {
                options: ModelOptions::Disk(disk),
                ..
            }) = preset(name)
            else {
                panic!("{name} is a disk");
            };
            for (zone, megabytes) in [(disk.zones.first(), outer), (disk.zones.last(), inner)] {
                let zone = zone.expect("it has zones");
                let bytes = u64::from(zone.sectors_per_track)
                    * u64::from(zone.cylinders)
                    * u64::from(disk.heads)
                    * SECTOR_BYTES;
                let rate = bytes * 1000 / (disk.zone_pass_ns(zone) / 1_000_000);
                // The skew is a sector longer than the switch.
                assert!(
                    rate.abs_diff(megabytes * MB) < megabytes * MB / 100,
                    "{name}: {rate}"
                );
            }
        }
    }
}
