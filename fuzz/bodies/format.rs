//! Invariants of any bytes on a drive: nothing panics, only intact structures are accepted as
//! intact, and writing a parsed structure and parsing it again gives the same structure.
//!
//! A fuzzer cannot guess checksums, so the first byte of an input selects the checksums that are
//! corrected before the bytes are parsed. Structures are padded with zeros to their size, so inputs
//! are short.

use block::BLOCK_BYTES;
use format::{
    Anchor, BatchHeader, CellPage, Column, Descriptor, ENTRIES_PER_META_PAGE, ENTRIES_PER_PAGE,
    Entry, Generation, GroupId, LABEL_MAGIC, LABEL_SLOT_BYTES, Label, LabelError, MetaPage,
    PageName, newest_label,
};
use uuid::Uuid;

const POOL: Uuid = Uuid::from_u128(0x0706_0504_0302_0100_0f0e_0d0c_0b0a_0908);
const DRIVE: Uuid = Uuid::from_u128(0x1716_1514_1312_1110_2f2e_2d2c_2b2a_2928);
const LANE: u16 = 3;
const PAGE: usize = 4096;
const SECTOR: usize = 512;

fn padded(bytes: &[u8], length: usize) -> Vec<u8> {
    let mut bytes = bytes[..bytes.len().min(length)].to_vec();
    bytes.resize(length, 0);
    bytes
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().unwrap())
}

/// Input: flags (1: magic, 2: the format's number and no features, 4: the payload's length, the
/// pool's identity and the checksum, 8: the header's checksum, 16: cut off after the payload), the
/// 84 bytes of the header's fields, the payload.
pub(crate) fn label(data: &[u8]) {
    let Some((&flags, rest)) = data.split_first() else {
        return;
    };
    let (fields, payload) = rest.split_at(rest.len().min(84));
    let mut bytes = padded(fields, PAGE);
    bytes.extend(payload);
    if flags & 1 != 0 {
        put(&mut bytes, 0, &LABEL_MAGIC);
    }
    if flags & 2 != 0 {
        put(&mut bytes, 8, &format::FORMAT.to_le_bytes());
        put(&mut bytes, 12, &[0; 16]);
    }
    if flags & 4 != 0 {
        let named = serde_json::from_slice(payload).ok();
        let named = named
            .and_then(|facts: serde_json::Value| facts.get("uuid")?.as_str()?.parse::<Uuid>().ok());
        put(&mut bytes, 28, named.unwrap_or(POOL).as_bytes());
        let length = u32::try_from(payload.len()).unwrap();
        put(&mut bytes, 72, &length.to_le_bytes());
        put(&mut bytes, 76, &crc32c::crc32c(payload).to_le_bytes());
    }
    if flags & 8 != 0 {
        let crc = crc32c::crc32c(&bytes[..80]);
        put(&mut bytes, 80, &crc.to_le_bytes());
    }
    if flags & 16 == 0 {
        bytes.resize(bytes.len().next_multiple_of(PAGE), 0);
    }
    match Label::parse(&bytes) {
        Ok(label) => {
            assert_eq!(bytes[..8], LABEL_MAGIC);
            assert_eq!(u32_at(&bytes, 80), crc32c::crc32c(&bytes[..80]));
            let written = label.encode();
            assert!(written.len() <= LABEL_SLOT_BYTES);
            assert_eq!(Label::parse(&written).as_ref(), Ok(&label));
            // A second copy that is older or torn changes nothing.
            let torn = &written[..written.len().min(PAGE + 1)];
            assert_eq!(newest_label([torn, &bytes]), Ok((1, label.clone())));
            if label.generation > Generation(0) {
                let mut older = label.clone();
                older.generation = older.generation.before();
                let older = older.encode();
                assert_eq!(newest_label([&older, &bytes]), Ok((1, label.clone())));
                assert_eq!(newest_label([&bytes, &older]), Ok((0, label)));
            }
        }
        Err(LabelError::Absent) => assert_ne!(bytes[..8], LABEL_MAGIC),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Input: flags for each of two copies (1: magic, 2: the drive's identity, 4: the first row, 8: the
/// checksum), then the copies, half of the rest each.
pub(crate) fn cells(data: &[u8]) {
    let Some((&[first_flags, second_flags], rest)) = data.split_first_chunk::<2>() else {
        return;
    };
    const FIRST_ROW: u64 = 3 * ENTRIES_PER_PAGE;
    let (first, second) = rest.split_at(rest.len() / 2);
    let copy = |flags: u8, bytes: &[u8]| {
        let mut bytes = padded(bytes, PAGE);
        if flags & 1 != 0 {
            put(&mut bytes, 0, b"RVCT");
        }
        if flags & 2 != 0 {
            put(&mut bytes, 16, DRIVE.as_bytes());
        }
        if flags & 4 != 0 {
            put(&mut bytes, 32, &FIRST_ROW.to_le_bytes());
        }
        if flags & 8 != 0 {
            let crc = crc32c::crc32c(&bytes[8..]);
            put(&mut bytes, 4, &crc.to_le_bytes());
        }
        bytes
    };
    let copies = [copy(first_flags, first), copy(second_flags, second)];
    let parsed = copies
        .each_ref()
        .map(|bytes| CellPage::parse(bytes, DRIVE, FIRST_ROW));
    for (bytes, page) in copies.iter().zip(&parsed) {
        let Some(page) = page else { continue };
        assert_eq!(u32_at(bytes, 4), crc32c::crc32c(&bytes[8..]));
        assert_eq!(bytes[16..32], *DRIVE.as_bytes());
        assert_eq!(page.entries.len() as u64, ENTRIES_PER_PAGE);
        let written = page.encode(DRIVE);
        assert_eq!(
            CellPage::parse(&written, DRIVE, FIRST_ROW).as_ref(),
            Some(page)
        );
        assert_eq!(CellPage::parse(&written, POOL, FIRST_ROW), None);
        assert_eq!(CellPage::parse(&written, DRIVE, FIRST_ROW + 252), None);
    }
    let newest = CellPage::newest(copies.each_ref().map(Vec::as_slice), DRIVE, FIRST_ROW);
    let sequences = parsed.iter().flatten().map(|page| page.sequence);
    match sequences.max() {
        Some(sequence) => {
            assert_eq!(newest.sequence, sequence);
            assert!(parsed.contains(&Some(newest)));
        }
        None => assert_eq!(newest, CellPage::empty(FIRST_ROW)),
    }
}

/// The difference between the check of this pool and lane and a plain CRC-32C, calculated from an
/// intact anchor.
fn journal_seed() -> u32 {
    let whole = Anchor::default().encode(POOL, LANE);
    u32_at(&whole, 4) ^ crc32c::crc32c(&whole[8..SECTOR])
}

/// Input: flags (1: magic, 2: the blocks of the header, 4: the length, 8: the check, 16: cut
/// short), then bytes that are parsed both as an anchor and as a header.
pub(crate) fn journal(data: &[u8]) {
    let Some((&flags, rest)) = data.split_first() else {
        return;
    };
    anchor(flags, rest);
    header(flags, rest);
}

fn anchor(flags: u8, bytes: &[u8]) {
    let mut bytes = padded(bytes, PAGE);
    if flags & 1 != 0 {
        put(&mut bytes, 0, b"RVJA");
    }
    if flags & 8 != 0 {
        let check = crc32c::crc32c(&bytes[8..SECTOR]) ^ journal_seed();
        put(&mut bytes, 4, &check.to_le_bytes());
    }
    if flags & 16 != 0 {
        bytes.truncate(SECTOR - 1);
    }
    let Some(anchor) = Anchor::parse(POOL, LANE, &bytes) else {
        assert!(flags & 25 != 9, "a whole anchor is one");
        return;
    };
    let written = anchor.encode(POOL, LANE);
    assert_eq!(Anchor::parse(POOL, LANE, &written), Some(anchor));
    assert_eq!(Anchor::parse(POOL, LANE + 1, &written), None);
    assert_eq!(Anchor::parse(DRIVE, LANE, &written), None);
}

fn header(flags: u8, bytes: &[u8]) {
    let mut bytes = padded(bytes, bytes.len().clamp(1, 4 * PAGE).next_multiple_of(PAGE));
    let blocks = bytes.len() / PAGE;
    if flags & 1 != 0 {
        put(&mut bytes, 0, b"RVJB");
    }
    if flags & 2 != 0 {
        put(
            &mut bytes,
            44,
            &u16::try_from(blocks).unwrap().to_le_bytes(),
        );
    }
    if flags & 4 != 0 {
        let rows = u16::from_le_bytes([bytes[46], bytes[47]]);
        let length = u32::try_from(blocks).unwrap() + u32::from(rows);
        put(&mut bytes, 32, &length.to_le_bytes());
    }
    let claimed = BatchHeader::claimed_blocks(&bytes);
    if flags & 8 != 0
        && let Some(claimed) = claimed
        && let Some(all) = bytes.get(8..usize::try_from(claimed).unwrap() * PAGE)
    {
        let check = crc32c::crc32c(all) ^ journal_seed();
        put(&mut bytes, 4, &check.to_le_bytes());
    }
    if flags & 16 != 0 {
        bytes.truncate(bytes.len() - 1);
    }
    let Some(header) = BatchHeader::parse(POOL, LANE, &bytes) else {
        return;
    };
    assert_eq!(Some(header.header_blocks()), claimed);
    assert_eq!(
        header.length(),
        header.header_blocks() + u64::from(header.rows)
    );
    assert!(header.data_columns > 0 && usize::from(header.data_columns) <= header.seats.len());
    let parities = header.seats.len() - usize::from(header.data_columns);
    assert_eq!(
        header.parity_crcs.len(),
        parities * usize::from(header.rows)
    );
    let contents = { header.descriptors.iter() }
        .filter(|descriptor| matches!(descriptor, Descriptor::Content { .. }))
        .count();
    let room = usize::from(header.rows) * usize::from(header.data_columns);
    assert!(contents <= room && contents + usize::from(header.data_columns) > room);
    let written = header.encode(POOL, LANE);
    assert_eq!(written.len() as u64, header.header_blocks() * BLOCK_BYTES);
    assert_eq!(BatchHeader::parse(POOL, LANE + 1, &written), None);
    assert_eq!(BatchHeader::parse(DRIVE, LANE, &written), None);
    assert_eq!(BatchHeader::parse(POOL, LANE, &written), Some(header));
}

/// Input: the number of copies (two bits) and where they are cut; for each copy a bit mask of the
/// sectors whose checks are corrected; then the copies, of equal length.
pub(crate) fn meta_page(data: &[u8]) {
    let Some((&[count, first, second, third], rest)) = data.split_first_chunk::<4>() else {
        return;
    };
    let name = PageName {
        group: GroupId(77),
        column: Column(4),
        index: 2,
    };
    let whole = MetaPage::filled(Entry::UNWRITTEN, 1).encode(POOL, name);
    let seed = |sector: usize| {
        let at = sector * SECTOR;
        u32_at(&whole, at) ^ crc32c::crc32c(&whole[at + 4..at + SECTOR])
    };
    let copies: Vec<Vec<u8>> = [first, second, third][..usize::from(count & 3)]
        .iter()
        .zip(rest.chunks((rest.len() / 3).max(1)))
        .map(|(mend, bytes)| {
            let mut bytes = padded(bytes, PAGE);
            for sector in (0..8).filter(|sector| mend & 1 << sector != 0) {
                let at = sector * SECTOR;
                let check = crc32c::crc32c(&bytes[at + 4..at + SECTOR]) ^ seed(sector);
                put(&mut bytes, at, &check.to_le_bytes());
            }
            bytes.truncate(PAGE - usize::from(count >> 2) * 70 % PAGE);
            bytes
        })
        .collect();
    let slices: Vec<&[u8]> = copies.iter().map(Vec::as_slice).collect();
    let (page, merged) = MetaPage::merge(POOL, name, &slices);
    let mut lost = 0;
    for sector in 0..8 {
        let at = sector * SECTOR;
        let valid: Vec<&[u8]> = { slices.iter() }
            .filter_map(|copy| copy.get(at..at + SECTOR))
            .filter(|bytes| u32_at(bytes, 0) == crc32c::crc32c(&bytes[4..]) ^ seed(sector))
            .collect();
        lost += usize::from(valid.is_empty());
        if !merged.differ {
            assert!(valid.is_empty() || valid.len() == slices.len());
            assert!(valid.windows(2).all(|pair| pair[0] == pair[1]));
        }
        let clock = |bytes: &&[u8]| u64::from_le_bytes(*bytes[8..].first_chunk().unwrap());
        let newest = valid.iter().map(clock).max();
        let per_sector = usize::try_from(ENTRIES_PER_META_PAGE).unwrap() / 8;
        let entries: Vec<Entry> = (sector * per_sector..(sector + 1) * per_sector)
            .map(|index| page.get(index))
            .collect();
        // The merged sector is equal to one of the newest valid copies.
        let is_of = |bytes: &&[u8]| {
            let there = bytes[16..].chunks(8).map(|entry| Entry {
                crc: u32_at(entry, 0),
                generation: u32_at(entry, 4),
            });
            Some(clock(bytes)) == newest && there.eq(entries.iter().copied())
        };
        if newest.is_some() {
            assert!(valid.iter().any(is_of), "sector {sector}");
        } else {
            assert!(entries.iter().all(|&entry| entry == Entry::UNKNOWN));
        }
    }
    assert_eq!(merged.lost, lost);
    let written = page.encode(POOL, name);
    let (again, merged) = MetaPage::merge(POOL, name, &[&written, &written]);
    assert!(again == page && !merged.differ && merged.lost == 0);
    let elsewhere = PageName {
        column: Column(5),
        ..name
    };
    assert_eq!(MetaPage::merge(POOL, elsewhere, &[&written]).1.lost, 8);
}
