//! A drive that was in a pool before is prepared for a seat.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use array::format::DriveMap;
use block::BlockDevice;
use engine::RunOptions;
use engine::assemble::{self, AssembleError, NewPool};
use engine::drive::{self, Open, sync};
use engine::load::{self, Load, Pattern};

const SIZE: u64 = 64 << 20;

#[test]
fn neither_label_nor_journal_of_an_earlier_life_is_left_on_a_drive_that_takes_a_seat() {
    let place = testing::Directory::new();
    let paths: Vec<PathBuf> = (0..3).map(|at| place.join(format!("d{at}"))).collect();
    for path in &paths {
        std::fs::File::create(path).unwrap().set_len(SIZE).unwrap();
    }
    let uri = |path: &PathBuf| path.to_str().unwrap().parse().unwrap();
    let new = NewPool {
        name: "tank".to_owned(),
        scheme: "raid5".parse().unwrap(),
        chunk_bytes: None,
        cell_bytes: None,
        journal: true,
        drives: paths.iter().map(uri).collect(),
        spares: Vec::new(),
        force: false,
    };
    let pool = assemble::create(assemble::prepare(&new).unwrap(), RunOptions::default()).unwrap();
    pool.create_volume("v", 1 << 20).unwrap();
    let load = Load {
        pattern: Pattern::Write,
        block_bytes: 4096,
        depth: 16,
        jobs: 1,
        time: Duration::from_millis(50),
        sync: false,
        read_percent: None,
        compressible_percent: None,
        hot: None,
        total_bytes: None,
        rate_bytes: None,
    };
    let volume: Arc<dyn BlockDevice> = pool.volume("v").unwrap();
    load::run(&volume, load).unwrap();
    drop(volume);
    pool.close().unwrap();

    let occupied = assemble::open_empty(&uri(&paths[0]), false);
    assert!(matches!(occupied, Err(AssembleError::Occupied { .. })));
    let map = DriveMap::new(SIZE, None).unwrap();
    let is_zero = |uri| {
        let how = Open {
            create_size: None,
            exclusive: true,
            read_only: false,
        };
        let drive = drive::open(&uri, how).unwrap();
        let length = usize::try_from(map.journal_bytes).unwrap();
        let journal = sync::read(&*drive.device, map.journal_offset, length).unwrap();
        journal.iter().all(|&byte| byte == 0)
    };
    assert!(!is_zero(uri(&paths[0])), "its journal was written to");
    let drive = assemble::open_empty(&uri(&paths[0]), true).unwrap();
    assemble::forget_earlier_life(&drive).unwrap();
    drop(drive);
    assert!(is_zero(uri(&paths[0])));
    // Data without a label is left, and counts until the drive is given up.
    let left = assemble::open_empty(&uri(&paths[0]), false).unwrap_err();
    assert!(left.to_string().contains("data of no known kind"), "{left}");
    let drive = assemble::open_empty(&uri(&paths[0]), true).unwrap();
    assemble::give_up(&drive).unwrap();
    drop(drive);
    assemble::open_empty(&uri(&paths[0]), false).expect("nothing is left on it");
}
