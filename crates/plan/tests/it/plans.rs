//! Plans as text: what a request does to a stripe, healthy and degraded.

use std::fmt::Write;
use std::sync::Arc;

use format::{Column, Form, GroupId, StripeId};
use layout::{Cell, Scheme};
use plan::view::ColumnState;
use plan::{
    AllOnDrive, BufferId, Geometry, Piece, RequestId, Scratch, ScratchId, Slice, Source, Stripe,
    SubStripePlans, plan_fill, plan_read, plan_write,
};

const CHUNK: u64 = 16 << 10;
const SCRATCH: Scratch = Scratch(ScratchId(1));

fn geometry(scheme: &str, drives: u16) -> Geometry {
    let scheme: Scheme = scheme.parse().unwrap();
    let shape = layout::Geometry::new(&scheme, Some(drives), 64).unwrap();
    let code = erasure::by_columns(&shape.code.name, shape.code.columns).unwrap();
    Geometry::new(
        Arc::new(code),
        shape.layout,
        CHUNK,
        256 << 10,
        64,
        1 << 20,
        4,
    )
    .unwrap()
}

/// The columns of a group with some of them absent.
fn columns(geometry: &Geometry, group: GroupId, absent: &[u16]) -> Vec<ColumnState> {
    geometry
        .columns()
        .map(|column| ColumnState {
            source: (!absent.contains(&column.0)).then(|| geometry.home(group, column)),
            target: None,
        })
        .collect()
}

fn request(offset: u64, length: u64) -> Slice {
    Slice {
        buffer: BufferId::Request(RequestId(1)),
        offset,
        length,
    }
}

/// Data slots of the code by their logical number.
fn data(geometry: &Geometry, number: usize) -> usize {
    geometry.code().index(geometry.code().data()[number])
}

struct Case<'a> {
    name: &'a str,
    absent: &'a [u16],
    /// Data element, first byte, bytes.
    ranges: &'a [(usize, u64, u64)],
}

fn render_writes(scheme: &str, drives: u16, cases: &[Case<'_>]) -> String {
    let geometry = geometry(scheme, drives);
    let mut text = String::new();
    for case in cases {
        let columns = columns(&geometry, GroupId(0), case.absent);
        let stripe = Stripe {
            geometry: &geometry,
            group: GroupId(0),
            stripe: StripeId(0),
            columns: &columns,
            form: Form::Parity,
            blocks: &AllOnDrive,
        };
        let mut at = 0;
        let sources: Vec<Source> = case
            .ranges
            .iter()
            .map(|&(number, low, length)| {
                let source = Source {
                    slot: data(&geometry, number),
                    low,
                    slice: request(at, length),
                };
                at += length;
                source
            })
            .collect();
        writeln!(text, "# {}", case.name).unwrap();
        match plan_write(&mut SubStripePlans::default(), &stripe, &sources, SCRATCH) {
            Ok(plan) => writeln!(text, "{plan}").unwrap(),
            Err(lost) => writeln!(text, "{lost:?}\n").unwrap(),
        }
    }
    text
}

#[test]
fn writes_read_as_little_as_they_can() {
    let text = render_writes(
        "raid6",
        6,
        &[
            Case {
                name: "4 KiB: old data and both parities",
                absent: &[],
                ranges: &[(1, 4096, 4096)],
            },
            Case {
                name: "three chunks of four: the fourth is read",
                absent: &[],
                ranges: &[(0, 0, CHUNK), (1, 0, CHUNK), (2, 0, CHUNK)],
            },
            Case {
                name: "a full stripe reads nothing",
                absent: &[],
                ranges: &[(0, 0, CHUNK), (1, 0, CHUNK), (2, 0, CHUNK), (3, 0, CHUNK)],
            },
            Case {
                name: "8 KiB across a chunk's end: two sub-stripes",
                absent: &[],
                ranges: &[(0, CHUNK - 4096, 4096), (1, 0, 4096)],
            },
        ],
    );
    insta::assert_snapshot!(text);
}

#[test]
fn degraded_writes_reconstruct_only_what_they_need() {
    // Stripe 0 of left-symmetric RAID-6 on six drives: D0..D3 on columns 1..=4, P on 5, Q on 0.
    let text = render_writes(
        "raid6",
        6,
        &[
            Case {
                name: "the written element is lost: reconstruct-write",
                absent: &[2],
                ranges: &[(1, 0, 4096)],
            },
            Case {
                name: "another element is lost: read-modify-write as ever",
                absent: &[2],
                ranges: &[(0, 0, 4096)],
            },
            Case {
                name: "both parities are lost: just write",
                absent: &[5, 0],
                ranges: &[(0, 0, 4096)],
            },
            Case {
                name: "the written and another element are lost: reconstruct",
                absent: &[2, 3],
                ranges: &[(1, 0, 4096)],
            },
            Case {
                name: "three are lost",
                absent: &[2, 3, 5],
                ranges: &[(1, 0, 4096)],
            },
        ],
    );
    insta::assert_snapshot!(text);
}

#[test]
fn mirrors_write_the_same_bytes_twice_and_compute_nothing() {
    let text = render_writes(
        "raid1",
        2,
        &[
            Case {
                name: "4 KiB",
                absent: &[],
                ranges: &[(0, 0, 4096)],
            },
            Case {
                name: "one copy is lost",
                absent: &[0],
                ranges: &[(0, 0, 4096)],
            },
        ],
    );
    insta::assert_snapshot!(text);
}

#[test]
fn reads_go_where_the_bytes_are_and_around_what_is_lost() {
    let geometry = geometry("pddl2:4d:13c:1s", 13);
    let mut text = String::new();
    for (name, absent, low, length) in [
        ("aligned", &[][..], 4096, 8192),
        ("a few bytes of two blocks", &[], 4000, 200),
        ("lost", &[3], 4096, 8192),
    ] {
        let columns = columns(&geometry, GroupId(5), absent);
        let stripe = Stripe {
            geometry: &geometry,
            group: GroupId(5),
            stripe: StripeId(2),
            columns: &columns,
            form: Form::Parity,
            blocks: &AllOnDrive,
        };
        let piece = Piece {
            slot: data(&geometry, 1),
            low,
            slice: request(0, length),
        };
        let plan = plan_read(&mut SubStripePlans::default(), &stripe, &[piece], SCRATCH).unwrap();
        writeln!(text, "# {name}\n{plan}").unwrap();
    }
    insta::assert_snapshot!(text);
}

#[test]
fn a_fill_moves_a_run_of_stripes_with_one_operation_per_drive() {
    let geometry = geometry("pddl2:4d:13c:1s", 13);
    let home = geometry.home(GroupId(5), Column(3));
    let target = Cell {
        seat: geometry.layout().spare(home.row, 0),
        row: home.row,
    };
    let columns = columns(&geometry, GroupId(5), &[3]);
    let first = Stripe {
        geometry: &geometry,
        group: GroupId(5),
        stripe: StripeId(0),
        columns: &columns,
        form: Form::Parity,
        blocks: &AllOnDrive,
    };
    let plan = plan_fill(
        &mut SubStripePlans::default(),
        first,
        StripeId::range(0..4),
        (Column(3), target),
        &[Column(4)],
        SCRATCH,
    )
    .unwrap();
    assert_eq!(plan.reads.len(), 4, "d columns, not d + p - 1");
    assert!(plan.reads.iter().all(|read| read.length == 4 * CHUNK));
    assert_eq!(plan.writes.len(), 1);
    insta::assert_snapshot!(plan);
}

#[test]
fn a_column_of_an_array_code_is_rebuilt_from_the_fewest_elements() {
    // D-Code paper, section on single-disk recovery: 12 of 20 and 26 of 42 elements.
    for (scheme, drives, fewest) in [("raid6:dcode", 5, 12), ("raid6:dcode", 7, 26)] {
        let geometry = geometry(scheme, drives);
        for column in 0..drives {
            let columns = columns(&geometry, GroupId(0), &[column]);
            let first = Stripe {
                geometry: &geometry,
                group: GroupId(0),
                stripe: StripeId(0),
                columns: &columns,
                form: Form::Parity,
                blocks: &AllOnDrive,
            };
            let target = geometry.home(GroupId(0), Column(column));
            let plan = plan_fill(
                &mut SubStripePlans::default(),
                first,
                StripeId::range(0..1),
                (Column(column), target),
                &[],
                SCRATCH,
            )
            .unwrap();
            let read: u64 = plan.reads.iter().map(|read| read.length).sum();
            assert_eq!(read / CHUNK, fewest, "{scheme} column {column}");
        }
    }
}

#[test]
fn a_small_write_to_dcode_touches_two_parities() {
    let geometry = geometry("raid6:dcode", 7);
    let columns = columns(&geometry, GroupId(0), &[]);
    let stripe = Stripe {
        geometry: &geometry,
        group: GroupId(0),
        stripe: StripeId(0),
        columns: &columns,
        form: Form::Parity,
        blocks: &AllOnDrive,
    };
    let source = Source {
        slot: data(&geometry, 9),
        low: 4096,
        slice: request(0, 4096),
    };
    let plan = plan_write(&mut SubStripePlans::default(), &stripe, &[source], SCRATCH).unwrap();
    assert_eq!((plan.reads.len(), plan.writes.len()), (3, 3));
    assert!(plan.writes.iter().all(|write| write.length == 4096));
}
