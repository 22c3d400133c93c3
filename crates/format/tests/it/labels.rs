//! Labels on drives: a label that was written is read, and no other bytes are taken for a label.

use std::collections::BTreeMap;

use block::{Hint, Seat};
use format::{
    Generation, LABEL_MAGIC, Label, LabelError, LossFacts, PAGE_COPIES, PoolFacts, RegionFacts,
    ScrubFacts, SeatFacts, SeatState, SteerFacts, VolumeFacts, newest_label,
};
use proptest::prelude::*;
use uuid::Uuid;

fn label(generation: u64) -> Label {
    Label {
        drive: Uuid::from_u128(1),
        seat: Seat(3),
        generation: Generation(generation),
        facts: PoolFacts {
            uuid: Uuid::from_u128(9),
            name: "tank".to_owned(),
            scheme: "raid6:6c".to_owned(),
            chunk_bytes: 65536,
            cell_bytes: 1 << 24,
            rows: 1000,
            data_offset: 1 << 27,
            cell_table_offset: 1 << 20,
            lanes: 16,
            regions: None,
            clean: true,
            journal_empty: false,
            seats: vec![SeatFacts {
                drive: Uuid::from_u128(1),
                path: "/dev/sda".to_owned(),
                size_bytes: 1 << 40,
                domain: None,
                bay: None,
                state: SeatState::Current,
                holds: None,
                replaces: None,
                found_bytes: None,
                number: None,
                in_journal: false,
            }],
            uninitialized: Vec::new(),
            volumes: vec![VolumeFacts {
                name: "v".to_owned(),
                uuid: Uuid::from_u128(2),
                size_bytes: 4096,
                extents: vec![(0, 1)],
                interleave: None,
            }],
            layout_drives: 0,
            scrub: ScrubFacts::default(),
            steer: SteerFacts::default(),
            grows: false,
            joined: Vec::new(),
            leaves: None,
            losses: LossFacts::default(),
            elastic_share: None,
            bad_blocks: BTreeMap::new(),
            layout_table: None,
            features: Vec::new(),
        },
    }
}

#[test]
fn the_newer_whole_copy_wins() {
    let (old, new) = (label(4).encode(), label(5).encode());
    assert_eq!(newest_label([&old, &new]).unwrap(), (1, label(5)));
    assert_eq!(newest_label([&new, &old]).unwrap(), (0, label(5)));
    let mut torn = new.clone();
    torn[4096 + 20] ^= 1;
    assert_eq!(newest_label([&old, &torn]).unwrap(), (0, label(4)));
    assert_eq!(newest_label([&old, &new[..4200]]).unwrap(), (0, label(4)));
    assert_eq!(newest_label([&[], &[]]), Err(LabelError::Absent));
}

#[test]
fn a_later_format_and_the_early_one_are_refused_by_name() {
    let with_format = |format: u8| {
        let mut bytes = label(1).encode();
        bytes[8] = format;
        let crc = crc32c::crc32c(&bytes[..80]);
        bytes[80..84].copy_from_slice(&crc.to_le_bytes());
        Label::parse(&bytes)
    };
    assert_eq!(with_format(1), Ok(label(1)));
    assert_eq!(with_format(7), Err(LabelError::Format { format: 7 }));
    let early = with_format(0).unwrap_err();
    assert_eq!(early, LabelError::EarlyFormat);
    assert!(
        early
            .hint()
            .expect("there is one")
            .ends_with("create the pool anew")
    );
}

#[test]
fn a_feature_that_is_not_known_is_refused_by_name() {
    let mut new = label(1);
    let regions = RegionFacts {
        journal_offset: 2 << 20,
        ring_bytes: 1 << 20,
        metadata_offset: 18 << 20,
        page_copies: Some(3),
        free_stripes: None,
    };
    new.facts.regions = Some(regions);
    new.facts.features = vec![PAGE_COPIES.to_owned()];
    assert_eq!(Label::parse(&new.encode()), Ok(new.clone()));
    assert_eq!(new.encode()[12..20], 1_u64.to_le_bytes());

    // The label of a later version: one bit and one name more.
    let mut later = new.clone();
    later.facts.features.push("time-travel".to_owned());
    let mut bytes = later.encode();
    bytes[12] |= 0x80;
    let crc = crc32c::crc32c(&bytes[..80]);
    bytes[80..84].copy_from_slice(&crc.to_le_bytes());
    let refused = Label::parse(&bytes).unwrap_err();
    let names = "time-travel".to_owned();
    assert_eq!(
        refused,
        LabelError::Features {
            features: 0x80,
            names
        }
    );
    assert!(refused.to_string().contains("(time-travel, bits 0x80)"));

    // Header and payload must name the same features.
    let mut without = new.clone();
    without.facts.features.clear();
    let parsed = Label::parse(&without.encode());
    assert!(
        matches!(parsed, Err(LabelError::Damaged { .. })),
        "{parsed:?}"
    );
}

/// The bytes of labels on drives in use: a change of these bytes needs another format.
#[test]
fn the_bytes_of_a_label_are_those_of_format_1() {
    let mut label = label(0x1122);
    label.facts.regions = Some(RegionFacts {
        journal_offset: 2 << 20,
        ring_bytes: 1 << 20,
        metadata_offset: 18 << 20,
        page_copies: None,
        free_stripes: None,
    });
    let bytes = label.encode();
    let payload = u32::from_le_bytes(bytes[72..76].try_into().unwrap()) as usize;
    let header: Vec<String> = bytes[..84].chunks(16).map(hex).collect();
    let payload = str::from_utf8(&bytes[4096..4096 + payload]).unwrap();
    insta::assert_snapshot!(format!("{}\n{payload}", header.join("\n")), @r#"
    52 41 56 45 4c 49 4e 00 01 00 00 00 00 00 00 00
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
    00 00 00 00 00 00 00 00 00 00 00 09 00 00 00 00
    00 00 00 00 00 00 00 00 00 00 00 01 03 00 00 00
    22 11 00 00 00 00 00 00 1d 02 00 00 ed 44 49 05
    94 e9 4f c2
    {"uuid":"00000000-0000-0000-0000-000000000009","name":"tank","scheme":"raid6:6c","chunk_bytes":65536,"cell_bytes":16777216,"rows":1000,"data_offset":134217728,"cell_table_offset":1048576,"store":{"journal_offset":2097152,"ring_bytes":1048576,"metadata_offset":18874368},"lanes":16,"clean":true,"layout_drives":0,"seats":[{"drive":"00000000-0000-0000-0000-000000000001","path":"/dev/sda","size_bytes":1099511627776,"state":"current"}],"volumes":[{"name":"v","uuid":"00000000-0000-0000-0000-000000000002","size_bytes":4096,"extents":[[0,1]]}]}
    "#);
    assert!(bytes[84..4096].iter().all(|&byte| byte == 0));
}

fn hex(bytes: &[u8]) -> String {
    let words: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    words.join(" ")
}

proptest! {
    #[test]
    fn no_changed_byte_goes_unnoticed(at in 0_usize..5000, flip in 1_u8..) {
        let mut bytes = label(77).encode();
        let payload = u32::from_le_bytes(bytes[72..76].try_into().unwrap()) as usize;
        bytes[at] ^= flip;
        // The rest of the header's page and what follows the payload is not covered.
        let covered = at < 84 || (4096..4096 + payload).contains(&at);
        prop_assert_eq!(Label::parse(&bytes).is_err(), covered);
    }

    #[test]
    fn no_bytes_make_the_parser_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..9000), magic: bool) {
        if magic && bytes.len() >= 8 {
            bytes[..8].copy_from_slice(&LABEL_MAGIC);
        }
        prop_assert!(Label::parse(&bytes).is_err());
    }
}
