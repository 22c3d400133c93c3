//! Pools of other formats.

use std::os::unix::fs::FileExt;

use array::format::LABEL_OFFSETS;
use block::Full;
use engine::RunOptions;
use engine::assemble::{self, NewPool};

/// Before, such pools were passed over as if there were no label at all.
#[test]
fn a_pool_of_the_early_format_is_named_when_it_is_looked_for() {
    let place = testing::Directory::new();
    let drives: Vec<_> = (0..3)
        .map(|index| place.join(format!("d{index}")))
        .collect();
    for drive in &drives {
        let file = std::fs::File::create(drive).unwrap();
        file.set_len(64 << 20).unwrap();
    }
    let new = NewPool {
        name: "tank".to_owned(),
        scheme: "raid5".parse().unwrap(),
        chunk_bytes: None,
        cell_bytes: None,
        journal: true,
        drives: { drives.iter() }
            .map(|drive| drive.to_str().unwrap().parse().unwrap())
            .collect(),
        spares: Vec::new(),
        force: false,
    };
    let pool = assemble::create(assemble::prepare(&new).unwrap(), RunOptions::default()).unwrap();
    pool.close().unwrap();
    let places = [place.to_owned()];
    let choose = || {
        let found = assemble::scan(&places, &[]);
        let chosen = assemble::choose(&found, "tank", &places);
        chosen.map(drop).map_err(|error| Full(error).to_string())
    };
    assert_eq!(choose(), Ok(()));
    for drive in &drives {
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .open(drive)
            .unwrap();
        for offset in LABEL_OFFSETS {
            let mut fields = [0; 84];
            file.read_exact_at(&mut fields, offset).unwrap();
            fields[8] = 0;
            let crc = crc32c::crc32c(&fields[..80]);
            fields[80..].copy_from_slice(&crc.to_le_bytes());
            file.write_all_at(&fields, offset).unwrap();
        }
    }
    let error = choose().unwrap_err();
    for part in ["`tank`", "d0", "format 0", "create the pool anew"] {
        assert!(error.contains(part), "{error}");
    }
}
