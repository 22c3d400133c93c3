//! Groups that are first written all over a new volume.

use format::GroupId;
use plan::{Command, Event};
use pool::PoolSpec;

use crate::support::driven::Driven;
use crate::support::spec;

const DRIVES: usize = 3;

/// A pool with a volume of 100 groups that was never written.
fn new_volume() -> Driven {
    let spec = PoolSpec {
        lazy: true,
        ..spec(3, 0)
    };
    Driven::new(&spec, 100)
}

/// A lane has a write that waits until the group is blank.
fn wants(driven: &mut Driven, group: GroupId) {
    driven.pass(&Event::WantsInitialized { group });
}

/// Groups whose writes have gone on, in order.
fn initialized(driven: &Driven) -> Vec<GroupId> {
    let mut initialized = Vec::new();
    for command in &driven.commands {
        if let Command::Initialized { groups, outcome } = command {
            assert_eq!(outcome, &Ok(()));
            initialized.extend(GroupId::each(groups.clone()));
        }
    }
    initialized
}

#[test]
fn groups_that_are_made_blank_together_get_one_label() {
    let mut driven = new_volume();
    for group in [60, 20, 40].map(GroupId) {
        wants(&mut driven, group);
    }
    assert_eq!(driven.zeroing, [GroupId(60), GroupId(20), GroupId(40)]);
    driven.zeroed(GroupId(20));
    driven.zeroed(GroupId(60));
    assert!(driven.writes.is_empty(), "group 40 is not blank yet");
    driven.zeroed(GroupId(40));
    assert_eq!(driven.writes.len(), DRIVES, "one label for each drive");
    driven.write_all();
    let mut groups = initialized(&driven);
    groups.sort_unstable();
    assert_eq!(groups, [GroupId(20), GroupId(40), GroupId(60)]);
}

#[test]
fn groups_that_come_later_do_not_hold_up_those_that_are_blank() {
    let mut driven = new_volume();
    wants(&mut driven, GroupId(60));
    wants(&mut driven, GroupId(20));
    driven.zeroed(GroupId(20));
    wants(&mut driven, GroupId(40));
    wants(&mut driven, GroupId(20));
    assert_eq!(
        driven.zeroing,
        [GroupId(60)],
        "20 is blank, 40 waits for its label"
    );
    driven.zeroed(GroupId(60));
    assert_eq!(driven.writes.len(), DRIVES);
    assert!(driven.zeroing.is_empty(), "labels are being written");
    driven.write_all();
    assert_eq!(initialized(&driven), [GroupId(20), GroupId(60)]);
    assert_eq!(driven.zeroing, [GroupId(40)]);
    driven.zeroed(GroupId(40));
    driven.write_all();
    assert_eq!(
        initialized(&driven),
        [GroupId(20), GroupId(60), GroupId(40)]
    );
}
