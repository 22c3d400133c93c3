//! Detects what is on a drive already, so that no file system is overwritten by mistake.
//!
//! Reads the first and last 256 KiB, where every format below keeps its mark. Magic numbers and
//! offsets are those of each format's own headers (`ext4.h`, `xfs_format.h`, `btrfs_tree.h`,
//! `md_p.h`, `vdev_impl.h`, …), as in `wipefs`. Any bytes are valid as input.

use std::fmt;

use block::{BlockDevice, Fault};

use super::sync;

/// Where a pool's label begins, in bytes from the start of a drive.
pub const RAVELIN_MAGIC_OFFSET: usize = 4096;
/// What a pool's label begins with.
pub const RAVELIN_MAGIC: [u8; 8] = *b"RAVELIN\0";
/// The name under which [`RAVELIN_MAGIC`] is reported.
const RAVELIN: &str = "a Ravelin pool's label";

/// How much of each end is read: the first ZFS label with its ring of uberblocks, which is the
/// longest; md's oldest superblock lies at most 128 KiB before the end.
pub(super) const END_BYTES: u64 = 256 << 10;

/// Something that a drive holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// What it is, with its article: "an ext4 file system".
    pub what: &'static str,
    /// The name that its owner gave it.
    pub label: Option<String>,
    /// Its identity, as its own tools print it.
    pub uuid: Option<String>,
}

impl Signature {
    /// Whether this is the label of one of our own pools.
    #[must_use]
    pub fn is_ravelin(&self) -> bool {
        self.what == RAVELIN
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)?;
        match (&self.label, &self.uuid) {
            (Some(label), _) => write!(f, " (label {label})"),
            (None, Some(uuid)) => write!(f, " (UUID {uuid})"),
            (None, None) => Ok(()),
        }
    }
}

/// Reads both ends of `device` and returns what is there, the most specific first.
pub fn signatures(device: &dyn BlockDevice) -> Result<Vec<Signature>, Fault> {
    let limits = device.limits();
    let size_bytes = limits.size_bytes;
    let length = END_BYTES.min(size_bytes);
    let length_usize = usize::try_from(length).map_err(|_| Fault::Invalid)?;
    let head = sync::read(device, 0, length_usize)?;
    let align = u64::from(limits.block_bytes_min);
    let tail_start = (size_bytes - length) / align * align;
    let tail_length = usize::try_from(size_bytes - tail_start).map_err(|_| Fault::Invalid)?;
    let tail = sync::read(device, tail_start, tail_length)?;
    Ok(probe(&head, &tail, size_bytes))
}

/// Returns what the bytes at both ends of a drive of `size_bytes` hold: `head` are its first bytes,
/// `tail` its last.
#[must_use]
pub fn probe(head: &[u8], tail: &[u8], size_bytes: u64) -> Vec<Signature> {
    let ends = Ends {
        head,
        tail,
        size_bytes,
    };
    let checks: [fn(&Ends<'_>) -> Option<Signature>; 29] = [
        ravelin,
        luks,
        lvm,
        md_1,
        md_0,
        imsm,
        ddf,
        zfs,
        bcache,
        bluestore,
        drbd,
        vmfs,
        ext,
        xfs,
        btrfs,
        f2fs,
        jfs,
        reiserfs,
        squashfs,
        erofs,
        minix,
        ntfs,
        exfat,
        fat,
        udf,
        iso,
        swap,
        gpt,
        vmfs_volume,
    ];
    let mut found: Vec<Signature> = checks.iter().filter_map(|check| check(&ends)).collect();
    if found.is_empty() {
        // Only then: a FAT or NTFS boot sector ends like a partition table, and a GPT comes with
        // one.
        found.extend(mbr(&ends));
    }
    found
}

/// The two ends, read as if the drive were one slice.
struct Ends<'a> {
    head: &'a [u8],
    tail: &'a [u8],
    size_bytes: u64,
}

impl<'a> Ends<'a> {
    fn at(&self, offset: u64, length: usize) -> Option<&'a [u8]> {
        let within = |bytes: &'a [u8], start: u64| {
            let from = usize::try_from(offset.checked_sub(start)?).ok()?;
            bytes.get(from..from.checked_add(length)?)
        };
        let tail_start = self.size_bytes.checked_sub(self.tail.len() as u64);
        within(self.head, 0).or_else(|| within(self.tail, tail_start?))
    }

    fn is(&self, offset: u64, magic: &[u8]) -> bool {
        self.at(offset, magic.len()) == Some(magic)
    }

    fn array<const N: usize>(&self, offset: u64) -> Option<[u8; N]> {
        self.at(offset, N)?.try_into().ok()
    }

    fn u32(&self, offset: u64) -> Option<u32> {
        self.array(offset).map(u32::from_le_bytes)
    }

    /// Printable text that ends with the first zero, without padding; nothing if there is none.
    fn text(&self, offset: u64, length: usize) -> Option<String> {
        let bytes = self.at(offset, length)?;
        let bytes = bytes.split(|&byte| byte == 0).next()?;
        let text = String::from_utf8_lossy(bytes);
        let text: String = text.chars().filter(|letter| !letter.is_control()).collect();
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// Sixteen bytes in the usual 8-4-4-4-12 groups; nothing if all are zero.
    fn uuid(&self, offset: u64) -> Option<String> {
        let bytes: [u8; 16] = self.array(offset)?;
        (bytes != [0; 16]).then(|| grouped(bytes))
    }

    /// A GUID: the same, but the first three groups are little-endian numbers.
    fn guid(&self, offset: u64) -> Option<String> {
        let mut bytes: [u8; 16] = self.array(offset)?;
        bytes[..4].reverse();
        bytes[4..6].reverse();
        bytes[6..8].reverse();
        Some(grouped(bytes))
    }
}

fn grouped(bytes: [u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

fn found(what: &'static str, label: Option<String>, uuid: Option<String>) -> Option<Signature> {
    Some(Signature { what, label, uuid })
}

fn ravelin(ends: &Ends<'_>) -> Option<Signature> {
    ends.is(RAVELIN_MAGIC_OFFSET as u64, &RAVELIN_MAGIC)
        .then(|| found(RAVELIN, None, None))?
}

fn luks(ends: &Ends<'_>) -> Option<Signature> {
    if !ends.is(0, b"LUKS\xba\xbe") {
        return None;
    }
    // Version 2 has a label; version 1 has the cipher's name there.
    let label = ends.is(6, &[0, 2]).then(|| ends.text(24, 48)).flatten();
    found("a LUKS encrypted volume", label, ends.text(168, 40))
}

fn lvm(ends: &Ends<'_>) -> Option<Signature> {
    let sector = (0..4)
        .map(|sector| sector * 512)
        .find(|&sector| ends.is(sector, b"LABELONE") && ends.is(sector + 24, b"LVM2 001"))?;
    found("an LVM2 physical volume", None, ends.text(sector + 32, 32))
}

const MD_MAGIC: u32 = 0xa92b_4efc;

fn md_1(ends: &Ends<'_>) -> Option<Signature> {
    // Formats 1.2, 1.1 and 1.0; the last one 8 KiB before the end, rounded down to 4 KiB.
    let last = ends.size_bytes.checked_sub(8 << 10).map(|at| at & !4095);
    let places = [Some(4096), Some(0), last];
    let at = places
        .into_iter()
        .flatten()
        .find(|&at| ends.u32(at) == Some(MD_MAGIC) && ends.u32(at + 4) == Some(1))?;
    found(
        "an md RAID member (superblock 1)",
        ends.text(at + 32, 32),
        ends.uuid(at + 16),
    )
}

fn md_0(ends: &Ends<'_>) -> Option<Signature> {
    // 64 KiB before the end rounded down to 64 KiB, in the byte order of the machine that made it.
    let at = (ends.size_bytes & !0xffff).checked_sub(64 << 10)?;
    let magic = ends.u32(at)?;
    let version = ends.u32(at + 4)?;
    let little = magic == MD_MAGIC && version == 0;
    let big = magic == MD_MAGIC.swap_bytes() && version == 0;
    (little || big).then(|| found("an md RAID member (superblock 0.90)", None, None))?
}

fn imsm(ends: &Ends<'_>) -> Option<Signature> {
    let at = ends.size_bytes.checked_sub(1024)?;
    ends.is(at, b"Intel Raid ISM Cfg Sig. ")
        .then(|| found("an Intel firmware RAID member", None, None))?
}

fn ddf(ends: &Ends<'_>) -> Option<Signature> {
    let at = ends.size_bytes.checked_sub(512)?;
    ends.is(at, &[0xde, 0x11, 0xde, 0x11])
        .then(|| found("a DDF firmware RAID member", None, None))?
}

fn zfs(ends: &Ends<'_>) -> Option<Signature> {
    const UBERBLOCK: u64 = 0x00ba_b10c;
    // Four labels of 256 KiB; the second half of each is a ring of uberblocks of 1 KiB or more.
    let last = (ends.size_bytes & !(END_BYTES - 1)).checked_sub(END_BYTES);
    let ring = [Some(0), last].into_iter().flatten().any(|label| {
        (0..128).any(|slot| {
            let magic = ends.array(label + (128 << 10) + slot * 1024);
            magic == Some(UBERBLOCK.to_le_bytes()) || magic == Some(UBERBLOCK.to_be_bytes())
        })
    });
    ring.then(|| found("a ZFS pool member", None, None))?
}

fn bcache(ends: &Ends<'_>) -> Option<Signature> {
    const BCACHE: [u8; 16] = [
        0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d,
        0x81,
    ];
    const BCACHEFS: [u8; 16] = [
        0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9, 0xd9, 0x6a, 0x60, 0xcf, 0x80, 0x3d, 0xf7,
        0xef,
    ];
    if ends.is(4096 + 24, &BCACHE) {
        return found("a bcache device", None, ends.uuid(4096 + 40));
    }
    ends.is(4096 + 24, &BCACHEFS)
        .then(|| found("a bcachefs file system", None, ends.uuid(4096 + 56)))?
}

fn bluestore(ends: &Ends<'_>) -> Option<Signature> {
    ends.is(0, b"bluestore block device")
        .then(|| found("a Ceph BlueStore device", None, ends.text(23, 36)))?
}

fn drbd(ends: &Ends<'_>) -> Option<Signature> {
    // The last page of the metadata is the last one of the device; versions 8.0 to 9.
    let at = (ends.size_bytes & !4095).checked_sub(4096)?;
    let magic: [u8; 4] = ends.array(at + 60)?;
    (0x8374_0267..=0x8374_026d)
        .contains(&u32::from_be_bytes(magic))
        .then(|| found("a DRBD device", None, None))?
}

fn vmfs(ends: &Ends<'_>) -> Option<Signature> {
    (ends.u32(2 << 20) == Some(0x2fab_f15e))
        .then(|| found("a VMFS file system", ends.text((2 << 20) + 0x1d, 128), None))?
}

fn vmfs_volume(ends: &Ends<'_>) -> Option<Signature> {
    (ends.u32(1 << 20) == Some(0xc001_d00d)).then(|| found("a VMFS volume member", None, None))?
}

fn jfs(ends: &Ends<'_>) -> Option<Signature> {
    const SUPER: u64 = 32 << 10;
    ends.is(SUPER, b"JFS1").then(|| {
        let label = ends.text(SUPER + 152, 16);
        found("a JFS file system", label, ends.uuid(SUPER + 136))
    })?
}

fn reiserfs(ends: &Ends<'_>) -> Option<Signature> {
    let three = [64_u64 << 10, 8 << 10].into_iter().any(|at| {
        let marks: [&[u8]; 3] = [b"ReIsErFs", b"ReIsEr2Fs", b"ReIsEr3Fs"];
        marks.iter().any(|mark| ends.is(at + 52, mark))
    });
    let four = ends.is(64 << 10, b"ReIsEr4");
    (three || four).then(|| found("a ReiserFS file system", None, None))?
}

fn squashfs(ends: &Ends<'_>) -> Option<Signature> {
    (ends.is(0, b"hsqs") || ends.is(0, b"sqsh"))
        .then(|| found("a squashfs file system", None, None))?
}

fn erofs(ends: &Ends<'_>) -> Option<Signature> {
    (ends.u32(1024) == Some(0xe0f5_e1e2)).then(|| {
        let label = ends.text(1024 + 64, 16);
        found("an EROFS file system", label, ends.uuid(1024 + 48))
    })?
}

fn minix(ends: &Ends<'_>) -> Option<Signature> {
    let word = |at: u64| ends.array(1024 + at).map(u16::from_le_bytes);
    let early = matches!(word(16)?, 0x137f | 0x138f | 0x2468 | 0x2478);
    let third = word(24) == Some(0x4d5a);
    // Two bytes are a weak mark: there are inodes, and zones of 1 KiB to 8 KiB.
    let inodes = word(0) != Some(0) || word(2) != Some(0);
    ((early && word(10)? < 4 || third) && inodes)
        .then(|| found("a Minix file system", None, None))?
}

fn udf(ends: &Ends<'_>) -> Option<Signature> {
    // Volume structure descriptors follow one another from 32 KiB on.
    (0..8)
        .map(|sector| (32_u64 << 10) + sector * 2048)
        .any(|at| ends.is(at + 1, b"NSR02") || ends.is(at + 1, b"NSR03"))
        .then(|| found("a UDF file system", None, None))?
}

fn ext(ends: &Ends<'_>) -> Option<Signature> {
    if !ends.is(1024 + 56, &[0x53, 0xef]) {
        return None;
    }
    let feature = |at: u64| ends.u32(1024 + at);
    let (compatible, incompatible, read_only) = (feature(92)?, feature(96)?, feature(100)?);
    // What only ext4 has: extents, 64bit, mmp, flex_bg and later; huge_file, uninit_bg and later.
    let what = if incompatible & 0x8 != 0 {
        "an external ext4 journal"
    } else if incompatible & !0x3f != 0 || read_only & !0x7 != 0 {
        "an ext4 file system"
    } else if compatible & 0x4 != 0 {
        "an ext3 file system"
    } else {
        "an ext2 file system"
    };
    found(what, ends.text(1024 + 120, 16), ends.uuid(1024 + 104))
}

fn xfs(ends: &Ends<'_>) -> Option<Signature> {
    ends.is(0, b"XFSB")
        .then(|| found("an XFS file system", ends.text(108, 12), ends.uuid(32)))?
}

fn btrfs(ends: &Ends<'_>) -> Option<Signature> {
    const SUPER: u64 = 64 << 10;
    ends.is(SUPER + 64, b"_BHRfS_M").then(|| {
        let label = ends.text(SUPER + 299, 256);
        found("a Btrfs file system", label, ends.uuid(SUPER + 32))
    })?
}

fn f2fs(ends: &Ends<'_>) -> Option<Signature> {
    (ends.u32(1024) == Some(0xf2f5_2010))
        .then(|| found("an F2FS file system", None, ends.uuid(1024 + 108)))?
}

fn ntfs(ends: &Ends<'_>) -> Option<Signature> {
    if ends.is(3, b"-FVE-FS-") {
        return found("a BitLocker volume", None, None);
    }
    let serial = || {
        ends.array(72)
            .map(|serial| format!("{:016X}", u64::from_le_bytes(serial)))
    };
    ends.is(3, b"NTFS    ")
        .then(|| found("an NTFS file system", None, serial()))?
}

fn exfat(ends: &Ends<'_>) -> Option<Signature> {
    ends.is(3, b"EXFAT   ")
        .then(|| found("an exFAT file system", None, None))?
}

fn fat(ends: &Ends<'_>) -> Option<Signature> {
    if !ends.is(510, &[0x55, 0xaa]) {
        return None;
    }
    let small = ends.is(54, b"FAT12   ") || ends.is(54, b"FAT16   ");
    let (serial, label) = match (small, ends.is(82, b"FAT32   ")) {
        (true, _) => (39, 43),
        (false, true) => (67, 71),
        (false, false) => return None,
    };
    let label = ends.text(label, 11).filter(|label| label != "NO NAME");
    let serial = ends.u32(serial).map(|serial| {
        let (high, low) = (serial >> 16, serial & 0xffff);
        format!("{high:04X}-{low:04X}")
    });
    found("a FAT file system", label, serial)
}

fn iso(ends: &Ends<'_>) -> Option<Signature> {
    ends.is((32 << 10) + 1, b"CD001").then(|| {
        found(
            "an ISO 9660 file system",
            ends.text((32 << 10) + 40, 32),
            None,
        )
    })?
}

fn swap(ends: &Ends<'_>) -> Option<Signature> {
    // The mark ends the first page, whatever a page is on the machine that made it.
    let marked = [4 << 10, 8 << 10, 16 << 10, 64 << 10]
        .into_iter()
        .any(|page: u64| ends.is(page - 10, b"SWAPSPACE2") || ends.is(page - 10, b"SWAP-SPACE"));
    marked.then(|| found("swap space", ends.text(1024 + 28, 16), ends.uuid(1024 + 12)))?
}

fn gpt(ends: &Ends<'_>) -> Option<Signature> {
    let last = |sector: u64| ends.size_bytes.checked_sub(sector);
    let places = [Some(512), Some(4096), last(512), last(4096)];
    let at = places
        .into_iter()
        .flatten()
        .find(|&at| ends.is(at, b"EFI PART"))?;
    found("a GPT partition table", None, ends.guid(at + 56))
}

fn mbr(ends: &Ends<'_>) -> Option<Signature> {
    if !ends.is(510, &[0x55, 0xaa]) {
        return None;
    }
    let entries = ends.at(446, 64)?;
    // Boot code alone has the mark, too; a table has valid flags and at least one partition.
    let sane = entries.chunks_exact(16).all(|entry| entry[0] & 0x7f == 0);
    let used = entries
        .chunks_exact(16)
        .any(|entry| entry[4] != 0 && entry[12..16] != [0; 4]);
    (sane && used).then(|| found("an MBR partition table", None, None))?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bytes and where they stand.
    type Pieces<'a> = Vec<(usize, &'a [u8])>;

    /// A drive of `size` zeros with pieces of bytes in it.
    fn image(size: usize, pieces: &[(usize, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; size];
        for (offset, piece) in pieces {
            bytes[*offset..offset + piece.len()].copy_from_slice(piece);
        }
        bytes
    }

    fn names(bytes: &[u8]) -> Vec<String> {
        let end = bytes.len().min(256 << 10);
        probe(
            &bytes[..end],
            &bytes[bytes.len() - end..],
            bytes.len() as u64,
        )
        .iter()
        .map(ToString::to_string)
        .collect()
    }

    #[test]
    fn each_format_is_known_by_its_mark_and_named_with_its_label() {
        const SIZE: usize = 1 << 20;
        let uuid: [u8; 16] = *b"\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10";
        let text = "01020304-0506-0708-090a-0b0c0d0e0f10";
        let magic = MD_MAGIC.to_le_bytes();
        let uberblock = 0x00ba_b10c_u64.to_le_bytes();
        let cases: Vec<(Pieces<'_>, String)> = vec![
            (vec![(4096, b"RAVELIN\0")], RAVELIN.to_owned()),
            (
                vec![(1080, &[0x53, 0xef]), (1120, &[0x40]), (1144, b"home")],
                "an ext4 file system (label home)".to_owned(),
            ),
            (
                vec![(1080, &[0x53, 0xef]), (1116, &[4]), (1128, &uuid)],
                format!("an ext3 file system (UUID {text})"),
            ),
            (
                vec![(1080, &[0x53, 0xef])],
                "an ext2 file system".to_owned(),
            ),
            (
                vec![(0, b"XFSB"), (108, b"data")],
                "an XFS file system (label data)".to_owned(),
            ),
            (
                vec![(65600, b"_BHRfS_M"), (65568, &uuid)],
                format!("a Btrfs file system (UUID {text})"),
            ),
            (
                vec![(4086, b"SWAPSPACE2"), (1052, b"swap1")],
                "swap space (label swap1)".to_owned(),
            ),
            (
                vec![(0, b"LUKS\xba\xbe\0\x02"), (24, b"secret")],
                "a LUKS encrypted volume (label secret)".to_owned(),
            ),
            (
                vec![(512, b"LABELONE"), (536, b"LVM2 001"), (544, b"abcdef")],
                "an LVM2 physical volume (UUID abcdef)".to_owned(),
            ),
            (
                vec![(4096, &magic), (4100, &[1]), (4128, b"host:0")],
                "an md RAID member (superblock 1) (label host:0)".to_owned(),
            ),
            (
                vec![(SIZE - 8192, &magic), (SIZE - 8188, &[1])],
                "an md RAID member (superblock 1)".to_owned(),
            ),
            (
                vec![(SIZE - 65536, &magic)],
                "an md RAID member (superblock 0.90)".to_owned(),
            ),
            (
                vec![
                    (512, b"EFI PART"),
                    (510, &[0x55, 0xaa]),
                    (450, &[0xee]),
                    (458, &[9]),
                ],
                "a GPT partition table (UUID 00000000-0000-0000-0000-000000000000)".to_owned(),
            ),
            (
                vec![(510, &[0x55, 0xaa]), (450, &[0x83]), (458, &[9])],
                "an MBR partition table".to_owned(),
            ),
            (
                vec![((128 << 10) + 5 * 1024, &uberblock)],
                "a ZFS pool member".to_owned(),
            ),
            (
                vec![(3, b"NTFS    "), (510, &[0x55, 0xaa])],
                "an NTFS file system (UUID 0000000000000000)".to_owned(),
            ),
            (
                vec![
                    (82, b"FAT32   "),
                    (71, b"STICK      "),
                    (510, &[0x55, 0xaa]),
                ],
                "a FAT file system (label STICK)".to_owned(),
            ),
            (
                vec![(0, b"bluestore block device\n"), (23, b"c4a1-0001")],
                "a Ceph BlueStore device (UUID c4a1-0001)".to_owned(),
            ),
            (
                vec![(SIZE - 4096 + 60, &[0x83, 0x74, 0x02, 0x6d])],
                "a DRBD device".to_owned(),
            ),
            (
                vec![(32768, b"JFS1"), (32920, b"old")],
                "a JFS file system (label old)".to_owned(),
            ),
            (
                vec![(65588, b"ReIsEr2Fs")],
                "a ReiserFS file system".to_owned(),
            ),
            (vec![(0, b"hsqs")], "a squashfs file system".to_owned()),
            (
                vec![(1024, &[0xe2, 0xe1, 0xf5, 0xe0]), (1088, b"root")],
                "an EROFS file system (label root)".to_owned(),
            ),
            (
                vec![(1024, &[32, 0]), (1040, &[0x8f, 0x13])],
                "a Minix file system".to_owned(),
            ),
            (vec![(34817, b"NSR03")], "a UDF file system".to_owned()),
            (
                vec![(32769, b"CD001"), (32808, b"DISC")],
                "an ISO 9660 file system (label DISC)".to_owned(),
            ),
        ];
        for (pieces, name) in cases {
            assert_eq!(names(&image(SIZE, &pieces)), [name]);
        }
        assert_eq!(names(&image(SIZE, &[])), [""; 0]);
        // Boot code with its mark and no partition is no partition table.
        assert_eq!(names(&image(SIZE, &[(510, &[0x55, 0xaa])])), [""; 0]);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            head in proptest::collection::vec(any::<u8>(), 0..5000),
            tail in proptest::collection::vec(any::<u8>(), 0..300),
            size in prop_oneof![any::<u64>(), 0_u64..6000],
        ) {
            let _ = probe(&head, &tail, size);
        }

        #[test]
        fn marks_in_random_places_make_nothing_panic(
            mark in prop_oneof![
                Just(b"LUKS\xba\xbe".to_vec()), Just(b"XFSB".to_vec()), Just(b"LABELONE".to_vec()),
                Just(MD_MAGIC.to_le_bytes().to_vec()), Just(b"EFI PART".to_vec()),
            ],
            length in 0_usize..9000,
        ) {
            for start in [0, 512, 4096] {
                let mut bytes = vec![0xff; length];
                for (target, &byte) in bytes.iter_mut().skip(start).zip(&mark) {
                    *target = byte;
                }
                let _ = probe(&bytes, &bytes, length as u64);
                let _ = probe(&bytes, &[], u64::MAX);
            }
        }
    }
}
