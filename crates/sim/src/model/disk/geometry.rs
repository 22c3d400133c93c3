//! Where a sector is on the platters, and at which angle.
//!
//! ```text
//!   zone      cylinders with equally many sectors per track, outermost first
//!   cylinder  one track under each head
//!   sector    numbered along the track, then over the heads, then over the cylinders
//!
//!   angle     sector s of a track begins at ((s + skew) mod n) / n of a turn. Each track is turned by the track skew
//!             against the one before it, and by the cylinder skew where the cylinder changes: while the head is
//!             switched, the platter goes on turning, and the next sector must not have passed.
//! ```

/// Bytes of a sector.
pub const SECTOR_BYTES: u64 = 512;

/// Cylinders with the same number of sectors and the same skews.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Number of cylinders.
    pub cylinders: u32,
    /// Sectors of each of their tracks.
    pub sectors_per_track: u32,
    /// Sectors by which a track is turned against the one under the head before.
    pub track_skew: u32,
    /// Sectors by which a cylinder's first track is turned against the last one of the cylinder before.
    pub cylinder_skew: u32,
}

/// A track of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Track {
    /// Cylinder from the outside, from 0.
    pub cylinder: u32,
    /// Head, from 0.
    pub head: u32,
    /// Its sectors.
    pub sectors: u32,
    /// Number of sectors by which the track is turned.
    skew: u32,
}

/// The first cylinder and sector of a zone.
#[derive(Clone, Copy, Debug)]
struct Placed {
    zone: Zone,
    first_cylinder: u32,
    first_sector: u64,
    cylinder_sectors: u64,
    /// Skew from a cylinder to the next, in sectors.
    cylinder_turn: u64,
}

/// The shape of a disk.
#[derive(Clone, Debug)]
pub struct DiskGeometry {
    heads: u32,
    revolution_ns: u64,
    zones: Vec<Placed>,
    cylinders: u32,
    sectors: u64,
}

impl DiskGeometry {
    /// Lays out `zones` from the outside.
    ///
    /// # Panics
    /// When there is no cylinder, head, sector or turn: presets are valid, and files are checked before.
    #[must_use]
    pub fn new(heads: u32, revolution_ns: u64, zones: &[Zone]) -> Self {
        assert!(heads > 0 && revolution_ns > 0, "a disk has heads and turns");
        let (mut cylinders, mut sectors) = (0_u32, 0_u64);
        let mut placed = Vec::with_capacity(zones.len());
        for &zone in zones.iter().filter(|zone| zone.cylinders > 0) {
            assert!(zone.sectors_per_track > 0, "a track has sectors");
            let cylinder_sectors = u64::from(zone.sectors_per_track) * u64::from(heads);
            placed.push(Placed {
                zone,
                first_cylinder: cylinders,
                first_sector: sectors,
                cylinder_sectors,
                cylinder_turn: u64::from(zone.track_skew) * u64::from(heads - 1)
                    + u64::from(zone.cylinder_skew),
            });
            cylinders += zone.cylinders;
            sectors += cylinder_sectors * u64::from(zone.cylinders);
        }
        assert!(!placed.is_empty(), "a disk has cylinders");
        Self {
            heads,
            revolution_ns,
            zones: placed,
            cylinders,
            sectors,
        }
    }

    /// Cylinders in all.
    #[must_use]
    pub const fn cylinders(&self) -> u32 {
        self.cylinders
    }

    /// Heads.
    #[must_use]
    pub const fn heads(&self) -> u32 {
        self.heads
    }

    /// Sectors in all.
    #[must_use]
    pub const fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Time of a turn.
    #[must_use]
    pub const fn revolution_ns(&self) -> u64 {
        self.revolution_ns
    }

    /// The track of a sector, and the sector's number on it.
    ///
    /// # Panics
    /// When the sector is outside.
    #[must_use]
    pub fn locate(&self, sector: u64) -> (Track, u32) {
        assert!(sector < self.sectors, "sector {sector} lies on the disk");
        let after = self
            .zones
            .partition_point(|zone| zone.first_sector <= sector);
        let zone = &self.zones[after - 1];
        let in_zone = sector - zone.first_sector;
        let cylinder = in_zone / zone.cylinder_sectors;
        let in_cylinder = narrow(in_zone % zone.cylinder_sectors);
        let per_track = zone.zone.sectors_per_track;
        let head = in_cylinder / per_track;
        let turned = cylinder * zone.cylinder_turn + u64::from(head * zone.zone.track_skew);
        let track = Track {
            cylinder: zone.first_cylinder + narrow(cylinder),
            head,
            sectors: per_track,
            skew: narrow(turned % u64::from(per_track)),
        };
        (track, in_cylinder % per_track)
    }

    /// Time in a turn at which a sector of a track begins, 0 to [`DiskGeometry::revolution_ns`].
    #[must_use]
    pub fn angle_ns(&self, track: &Track, sector: u32) -> u64 {
        let at = track.skew + sector;
        let at = if at >= track.sectors {
            at - track.sectors
        } else {
            at
        };
        self.run_ns(track, at)
    }

    /// Time in which `count` sectors of a track pass.
    #[must_use]
    pub fn run_ns(&self, track: &Track, count: u32) -> u64 {
        u64::from(count) * self.revolution_ns / u64::from(track.sectors)
    }

    /// Sectors of a track that pass within `ns`, whole ones.
    #[must_use]
    pub fn sectors_in(&self, track: &Track, ns: u64) -> u64 {
        ns * u64::from(track.sectors) / self.revolution_ns
    }
}

fn narrow(value: u64) -> u32 {
    u32::try_from(value).expect("numbers inside a cylinder have 32 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> DiskGeometry {
        let zone = |cylinders, sectors_per_track| Zone {
            cylinders,
            sectors_per_track,
            track_skew: 2,
            cylinder_skew: 5,
        };
        DiskGeometry::new(3, 6_000_000, &[zone(2, 20), zone(4, 10)])
    }

    #[test]
    fn sectors_go_along_the_track_then_over_the_heads_then_over_the_cylinders() {
        let disk = small();
        assert_eq!((disk.cylinders(), disk.sectors()), (6, 240));
        let mut expected = Vec::new();
        for cylinder in 0..6 {
            for head in 0..3 {
                let sectors = if cylinder < 2 { 20 } else { 10 };
                expected.extend((0..sectors).map(|sector| (cylinder, head, sector)));
            }
        }
        let found = (0..240).map(|sector| {
            let (track, sector) = disk.locate(sector);
            (track.cylinder, track.head, sector)
        });
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_next_track_begins_its_skew_later() {
        let disk = small();
        let angle = |sector| {
            let (track, sector) = disk.locate(sector);
            disk.angle_ns(&track, sector)
        };
        assert_eq!(angle(0), 0);
        assert_eq!(angle(20), 2 * 300_000, "the second head");
        assert_eq!(angle(60), (2 + 2 + 5) * 300_000, "the second cylinder");
        assert_eq!(angle(19), 19 * 300_000);
        assert_eq!(angle(38), 0, "sector 18 of a track turned by 2");
    }
}
