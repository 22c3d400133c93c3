//! The contents of a device, from its first bytes: file systems, dm-crypt, LVM.
//!
//! Offsets are those of each format's own header (`ext4.h`, `xfs_format.h`, cryptsetup's on-disk format, LVM's
//! `layout.h`). All bytes are accepted as input: bytes that fit no format give `None`, and no parser panics.

pub(crate) mod lvm;

/// Bytes of a head that the parsers need. LVM's metadata area and LUKS2's text are further on; they are read at the
/// offsets that the head contains.
pub(crate) const HEAD_BYTES: usize = 8192;

/// A file system, with the array geometry that it assumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileSystem {
    /// `ext4` or `xfs`. Ext2 and ext3 count as `ext4`: the fields are the same.
    pub(crate) kind: &'static str,
    /// Bytes of a block.
    pub(crate) block_bytes: u64,
    /// Its chunk in bytes (`stride`, `su`); 0: none.
    pub(crate) chunk_bytes: u64,
    /// Its full stripe in bytes (`stripe_width`, `su × sw`); 0: none.
    pub(crate) stripe_bytes: u64,
}

/// What was found at the head of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// A file system.
    FileSystem(FileSystem),
    /// A LUKS volume, and the first byte of its payload (`None`: its text has no number).
    Luks { payload_bytes: Option<u64> },
    /// An LVM physical volume.
    Lvm(lvm::PhysicalVolume),
}

/// Little-endian or big-endian integers out of a slice, `None` beyond its end.
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn u16_le(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u16::from_le_bytes).map(u64::from)
}

fn u32_le(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u32::from_le_bytes).map(u64::from)
}

fn u32_be(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u32::from_be_bytes).map(u64::from)
}

/// Reads `length` bytes at `offset` of the device whose head is being parsed.
pub(crate) type More<'a> = &'a dyn Fn(u64, usize) -> Option<Vec<u8>>;

/// The contents of the device with this head, if they matter for alignment.
pub(crate) fn parse(head: &[u8], more: More<'_>) -> Option<Content> {
    if let Some(payload_bytes) = luks(head, more) {
        return Some(Content::Luks { payload_bytes });
    }
    if let Some(volume) = lvm::PhysicalVolume::parse(head, more) {
        return Some(Content::Lvm(volume));
    }
    xfs(head).or_else(|| ext(head)).map(Content::FileSystem)
}

/// Superblock at byte 1024; stride and stripe width in blocks.
fn ext(head: &[u8]) -> Option<FileSystem> {
    let superblock = head.get(1024..2048)?;
    if u16_le(superblock, 0x38)? != 0xef53 {
        return None;
    }
    let shift = u32_le(superblock, 0x18)?;
    let block_bytes = (shift <= 6).then(|| 1024_u64 << shift)?;
    Some(FileSystem {
        kind: "ext4",
        block_bytes,
        chunk_bytes: u16_le(superblock, 0x164)? * block_bytes,
        stripe_bytes: u32_le(superblock, 0x170)? * block_bytes,
    })
}

/// Superblock at byte 0, big-endian; stripe unit and width in blocks.
fn xfs(head: &[u8]) -> Option<FileSystem> {
    if head.get(..4)? != b"XFSB" {
        return None;
    }
    let block_bytes = u32_be(head, 4)?;
    if !block_bytes.is_power_of_two() || !(512..=65536).contains(&block_bytes) {
        return None;
    }
    Some(FileSystem {
        kind: "xfs",
        block_bytes,
        chunk_bytes: u32_be(head, 184)? * block_bytes,
        stripe_bytes: u32_be(head, 188)? * block_bytes,
    })
}

/// Version 1 has the payload's sector in its header; version 2 has a JSON text at byte 4096.
fn luks(head: &[u8], more: More<'_>) -> Option<Option<u64>> {
    if head.get(..6)? != b"LUKS\xba\xbe" {
        return None;
    }
    if array(head, 6).map(u16::from_be_bytes)? == 1 {
        return Some(u32_be(head, 104).map(|sectors| sectors * 512));
    }
    // The binary header is 4096 bytes, the text at most 4 MiB less; key slots lie behind both.
    let header_bytes = array(head, 8).map(u64::from_be_bytes)?.clamp(4096, 4 << 20);
    let length = usize::try_from(header_bytes - 4096).ok()?;
    let text = more(4096, length)?;
    let text = text.split(|&byte| byte == 0).next()?;
    let payload = serde_json::from_slice::<serde_json::Value>(text)
        .ok()
        .and_then(|document| document["segments"]["0"]["offset"].as_str()?.parse().ok());
    Some(payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bytes_whatever_make_a_parser_panic() {
        // Every magic number, followed by noise, cut anywhere.
        let mut random = block::SplitMix64::new(1);
        let magics: [(usize, &[u8]); 6] = [
            (0, b"XFSB"),
            (0, b"LUKS\xba\xbe\x00\x01"),
            (0, b"LUKS\xba\xbe\x00\x02"),
            (512, b"LABELONE"),
            (1024 + 0x38, &[0x53, 0xef]),
            (512 + 24, b"LVM2 001"),
        ];
        for round in 0..2000 {
            let mut bytes = random.bytes(HEAD_BYTES);
            for (at, magic) in magics {
                if round % 3 != 0 || random.below(2) == 0 {
                    bytes[at..at + magic.len()].copy_from_slice(magic);
                }
            }
            bytes.truncate(usize::try_from(random.below(256)).unwrap() * 33);
            let copy = bytes.clone();
            let more = move |offset: u64, length: usize| {
                let at = usize::try_from(offset).ok()?;
                copy.get(at..(at.checked_add(length)?).min(copy.len()))
                    .map(<[u8]>::to_vec)
            };
            parse(&bytes, &more);
        }
    }
}
