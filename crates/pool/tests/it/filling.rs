//! How much a step of a fill moves, by how many drives take part in a rebuild.

use pool::{PoolSpec, Ticket, create};

use crate::support::{DRIVE_BYTES, spec};

#[test]
fn steps_are_halved_where_many_drives_take_part_in_a_rebuild() {
    const WHOLE: u64 = 4 << 20;
    for (scheme, drives, taking_part, step) in [
        ("raid5", 6, 6, WHOLE),
        // Eight groups of six drives: those of other groups have nothing to read.
        ("raid6:4d", 48, 6, WHOLE),
        ("pddl2:4d:13c:1s", 13, 13, WHOLE),
        ("pddl1:4d:34c:2s", 34, 34, WHOLE / 2),
        ("ddp:8d:2p:60c:3s", 60, 60, WHOLE / 2),
    ] {
        let mut drives = spec(drives, 0).drives;
        for drive in &mut drives {
            drive.size_bytes = 64 * DRIVE_BYTES;
        }
        let spec = PoolSpec {
            scheme: scheme.parse().unwrap(),
            drives,
            ..spec(0, 0)
        };
        let pool = create(&spec, Ticket(0)).unwrap();
        let geometry = pool.geometry();
        assert_eq!(geometry.drives_in_rebuild(), taking_part, "{scheme}");
        assert_eq!(geometry.fill_step_bytes(), step, "{scheme}");
    }
}
