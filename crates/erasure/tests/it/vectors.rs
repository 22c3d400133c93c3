//! Equations and worked stripes against `tests/vectors/`, which were made by other programs; the
//! D-Code paper's examples; and the closed forms of the literature for costs.

use crate::common::combinations;
use erasure::{Code, CodeError, Element, Order, by_columns, by_parameter, by_parameter_in, kernel};
use serde_json::Value;

const VECTORS: [(&str, &str); 11] = [
    ("dcode", include_str!("../vectors/d_code_p5.json")),
    ("xcode", include_str!("../vectors/x_code_p5.json")),
    ("rdp", include_str!("../vectors/rdp_p5.json")),
    ("evenodd", include_str!("../vectors/evenodd_p5.json")),
    ("hcode", include_str!("../vectors/h_code_p5.json")),
    ("hdp", include_str!("../vectors/hdp_p5.json")),
    ("pcode", include_str!("../vectors/p_code_p5.json")),
    ("liberation", include_str!("../vectors/liberation_p5.json")),
    (
        "blaumroth",
        include_str!("../vectors/blaum_roth_min_p5.json"),
    ),
    (
        "blaumroth-ring",
        include_str!("../vectors/blaum_roth_ring_p5.json"),
    ),
    ("cauchy", include_str!("../vectors/cauchy_rs_p5.json")),
];

/// The array codes; all of them exist for the primes in `PRIMES`.
const ARRAYS: [&str; 10] = [
    "dcode",
    "xcode",
    "rdp",
    "evenodd",
    "hcode",
    "hdp",
    "pcode",
    "liberation",
    "blaumroth",
    "blaumroth-ring",
];

const PRIMES: [u16; 7] = [5, 7, 11, 13, 17, 19, 23];

fn code(name: &str, p: u16) -> Code {
    by_parameter(name, p).expect("there is one")
}

fn pair(e: Element) -> Value {
    Value::from(vec![e.row, e.column])
}

#[test]
fn equations_and_their_order_equal_the_reference_vectors() {
    for (name, text) in VECTORS {
        let vector: Value = serde_json::from_str(text).expect("a vector");
        let code = code(name, 5);
        assert_eq!(vector["rows"], code.rows(), "{name}");
        assert_eq!(vector["cols"], code.columns(), "{name}");
        let data: Vec<Value> = code.data().iter().copied().map(pair).collect();
        assert_eq!(vector["data"], Value::from(data), "{name}");
        let parities = vector["parity"].as_array().expect("a list");
        assert_eq!(parities.len(), code.equations().len());
        for (theirs, ours) in parities.iter().zip(code.equations()) {
            assert_eq!(theirs["pos"], pair(ours.parity), "{name}");
            assert_eq!(theirs["kind"], ours.kind, "{name}");
            let members: Vec<Value> = ours.members.iter().map(|&(e, _)| pair(e)).collect();
            assert_eq!(
                theirs["members"],
                Value::from(members),
                "{name} {}",
                ours.parity
            );
            // Expanded to data, in logical order.
            let parity = code.index(ours.parity);
            let holds = |&(_, slot): &(usize, usize)| code.coefficient(parity, slot) == 1;
            let data_of = code.data_slots().enumerate().filter(holds).map(|(i, _)| i);
            assert_eq!(
                theirs["data_of"],
                Value::from(data_of.collect::<Vec<_>>()),
                "{name}"
            );
        }
        assert!(code.is_xor());
    }
}

#[test]
fn every_kernel_encodes_the_worked_stripes_of_the_vectors() {
    for (name, text) in VECTORS {
        let vector: Value = serde_json::from_str(text).expect("a vector");
        let code = code(name, 5);
        for kernel in kernel::available() {
            let mut stripe = vec![vec![0]; code.elements()];
            for (i, slot) in code.data_slots().enumerate() {
                stripe[slot][0] = u8::try_from((37 * i + 11) % 256).expect("below 256");
            }
            code.encode().run(kernel, &mut stripe);
            let row = |r: &[Vec<u8>]| {
                r.iter()
                    .map(|e| format!("{:02x}", e[0]))
                    .collect::<String>()
            };
            let rows = stripe.chunks(usize::from(code.columns())).map(row);
            let rows: Vec<Value> = rows.map(Value::from).collect();
            assert_eq!(
                vector["example"]["stripe"],
                Value::from(rows),
                "{name} {kernel:?}"
            );
        }
    }
}

/// XORs to encode a full stripe of p, from the definitions: D, X, P-Code and the minimum-density
/// ones need no shared sums, RDP and HDP build on parities, EVENODD computes S once.
fn encode_xors(name: &str, p: usize) -> usize {
    match name {
        // 2 - 2/(p-2) per data element (paper, III.D)
        "dcode" | "xcode" => 2 * p * (p - 3),
        // 2 - 2/(p-1) per data element
        "rdp" => 2 * (p - 1) * (p - 2),
        "hcode" => 2 * (p - 1) * (p - 2),
        // 2(p-1)^2 + p-2
        "evenodd" => 2 * (p - 1) * (p - 1) + p - 2,
        // 2 - 1/(p-3) per data element
        "hdp" => (p - 1) * (2 * p - 7),
        // 2 - 2/(p-3) per data element
        "pcode" => (p - 1) * (p - 4),
        _ => unreachable!(),
    }
}

#[test]
fn encoding_takes_as_many_xors_as_the_closed_forms_say() {
    for name in ["dcode", "xcode", "rdp", "evenodd", "hcode", "hdp", "pcode"] {
        for p in PRIMES {
            let code = code(name, p);
            let p = usize::from(p);
            assert_eq!(code.encode().xors(), encode_xors(name, p), "{name}:{p}");
        }
    }
    // The paper's form, in data elements.
    for n in PRIMES {
        let code = code("dcode", n);
        let (n, data) = (usize::from(n), code.data().len());
        assert_eq!(code.encode().xors() * (n - 2), data * (2 * (n - 2) - 2));
    }
    // Minimum density: P costs k-1 a word, Q kw + k-1 ones less one a word.
    for w in PRIMES {
        let code = code("liberation", w);
        let w = usize::from(w);
        assert!(code.encode().xors() <= (w - 1) * w + (w * w + w - 1 - w));
    }
}

#[test]
fn a_write_changes_as_many_parities_as_the_closed_forms_say() {
    for p in PRIMES {
        for name in ["dcode", "xcode", "hcode", "pcode"] {
            let code = code(name, p);
            assert!(
                code.data_slots().all(|d| code.parities_of(d).len() == 2),
                "{name}:{p}"
            );
        }
        let hdp = code("hdp", p);
        assert!(
            hdp.data_slots().all(|d| hdp.parities_of(d).len() == 3),
            "hdp:{p}"
        );

        // RDP: row parity, own diagonal, the row parity's diagonal, less those not stored. Both
        // are stored for all but the p-1 elements of diagonal p-1 and the p-2 others of row 0,
        // whose row parity lies on it.
        let rdp = code("rdp", p);
        let changed = |n| {
            rdp.data_slots()
                .filter(|&d| rdp.parities_of(d).len() == n)
                .count()
        };
        let evenodd = code("evenodd", p);
        let p = usize::from(p);
        assert_eq!(changed(2), 2 * p - 3, "rdp:{p}");
        assert_eq!(changed(3), (p - 1) * (p - 1) - (2 * p - 3), "rdp:{p}");
        // EVENODD: row and diagonal, but all of Q for the p-1 elements of S.
        let of_s = evenodd
            .data_slots()
            .filter(|&d| evenodd.parities_of(d).len() == p);
        assert_eq!(of_s.count(), p - 1, "evenodd:{p}");
    }
}

#[test]
fn d_code_decodes_two_columns_with_n_minus_3_xors_per_lost_element() {
    for name in ["dcode", "xcode"] {
        for n in PRIMES {
            let code = code(name, n);
            for lost in combinations(n, 2) {
                let known = code.without_columns(&lost);
                let recovery = code.recover(&known, &code.columns_set(&lost)).expect("two");
                let n = usize::from(n);
                assert_eq!(
                    recovery.schedule.xors(),
                    2 * n * (n - 3),
                    "{name}:{n} {lost:?}"
                );
                assert_eq!(recovery.schedule.temporaries(), 0);
            }
        }
    }
}

fn members(code: &Code, row: u16, column: u16) -> Vec<(u16, u16)> {
    let parity = Element::new(row, column);
    let found = code.equations().iter().find(|e| e.parity == parity);
    let members = found.expect("a parity").members.iter();
    members.map(|(e, _)| (e.row, e.column)).collect()
}

#[test]
fn the_papers_figure_2_examples_are_among_the_equations() {
    let code = code("dcode", 7);
    assert_eq!(
        members(&code, 5, 1),
        [(1, 3), (1, 4), (1, 5), (1, 6), (2, 0)]
    );
    assert_eq!(
        members(&code, 6, 2),
        [(0, 0), (0, 6), (1, 5), (2, 4), (3, 3)]
    );
}

/// An element, and the parity whose equation gives it: (row, column) each.
type Link = ((u16, u16), (u16, u16));

/// The paper's Fig. 3 as corrected: it prints "P5,2 and P6,2" as left over, but the first chain
/// ends in P6,2, so it is P6,3.
#[test]
fn the_papers_figure_3_chains_recover_disks_2_and_3() {
    let code = code("dcode", 7);
    let chains: [&[Link]; 3] = [
        &[
            ((1, 3), (5, 1)),
            ((2, 2), (6, 5)),
            ((2, 3), (5, 6)),
            ((3, 2), (6, 0)),
            ((3, 3), (5, 4)),
            ((6, 2), (6, 2)),
        ],
        &[
            ((4, 2), (6, 4)),
            ((4, 3), (5, 0)),
            ((0, 2), (6, 6)),
            ((0, 3), (5, 5)),
            ((1, 2), (6, 1)),
            ((5, 3), (5, 3)),
        ],
        &[((5, 2), (5, 2)), ((6, 3), (6, 3))],
    ];
    let lost = code.columns_set(&[2, 3]);
    let mut known = code.without_columns(&[2, 3]);
    let mut visited = 0;
    for (element, parity) in chains.concat() {
        let slot = code.index(Element::new(element.0, element.1));
        let mut equation = members(&code, parity.0, parity.1);
        equation.push(parity);
        let slots = equation
            .iter()
            .map(|&(r, c)| code.index(Element::new(r, c)));
        let unknown: Vec<usize> = slots.filter(|&s| !known.contains(s)).collect();
        assert_eq!(unknown, [slot], "{element:?} by {parity:?}");
        assert!(lost.contains(slot));
        known.insert(slot);
        visited += 1;
    }
    assert_eq!(visited, lost.len());

    // The schedule that comes out of peeling visits the first two chains in the paper's order, too.
    let known = code.without_columns(&[2, 3]);
    let steps = code.recover(&known, &lost).expect("two").schedule.steps;
    let order: Vec<Element> = steps
        .iter()
        .map(|s| code.element(usize::from(s.target)))
        .collect();
    for chain in &chains[..2] {
        let place = |e: &(u16, u16)| order.iter().position(|&o| o == Element::new(e.0, e.1));
        let places: Vec<_> = chain
            .iter()
            .map(|(e, _)| place(e).expect("recovered"))
            .collect();
        assert!(places.is_sorted(), "{places:?}");
    }
}

#[test]
fn composite_parameters_are_refused_with_the_factor_and_the_nearest_primes() {
    for name in ARRAYS {
        let refusal = by_parameter(name, 9).expect_err("9 is no prime");
        assert!(
            matches!(refusal, CodeError::NotPrime { factor: 3, .. }),
            "{name}"
        );
        assert!(refusal.to_string().contains("9 = 3 × 3"), "{refusal}");
        let hint = refusal.hint().expect("there is one");
        assert!(hint.contains("7 or 11"), "{hint}");
    }
    let refusal = by_parameter("dcode", 15).expect_err("15 is no prime");
    let hint = refusal.hint().expect("there is one");
    assert!(hint.contains("13 or 17"), "{hint}");
}

#[test]
fn composite_d_codes_really_leave_pairs_of_columns_undecodable() {
    // The numbers of codes.md, 2.1: the construction of D-Code repeated for composite n.
    for (n, undecodable) in [(9, 9), (15, 45), (21, 84)] {
        let half = (n - 3) / 2;
        let equation = |row: i32, i: i32, step: i32| {
            let member = |j: i32| {
                let column = (i + step * (j + 2)).rem_euclid(n);
                element((half * (column - j)).rem_euclid(n - 2), column)
            };
            erasure::Equation {
                parity: element(row, i),
                kind: "composite",
                members: (0..n - 2).map(|j| (member(j), 1)).collect(),
            }
        };
        let rows = (0..n).map(|i| equation(n - 2, i, 1));
        let equations = rows.chain((0..n).map(|i| equation(n - 1, i, -1))).collect();
        let data = (0..n - 2)
            .flat_map(|r| (0..n).map(move |c| element(r, c)))
            .collect();
        let width = u16::try_from(n).expect("small");
        let code = Code::new("composite", width, width, width, data, equations).expect("a code");
        assert_eq!(code.tolerance(), 1);
        let pairs = combinations(width, 2);
        let lost = pairs
            .iter()
            .filter(|lost| !code.is_recoverable(&code.columns_set(lost)));
        assert_eq!(lost.count(), undecodable, "n = {n}");
    }
}

fn element(row: i32, column: i32) -> Element {
    let small = |x| u16::try_from(x).expect("not negative");
    Element::new(small(row), small(column))
}

#[test]
fn vertical_codes_name_the_nearest_widths_and_horizontal_ones_take_any() {
    for (name, columns, works) in [
        ("dcode", 8, "7 or 11 columns"),
        ("hcode", 10, "8 or 12 columns"),
        ("hdp", 8, "6 or 10 columns"),
        ("xcode", 3, "5 columns"),
    ] {
        let error = by_columns(name, columns).expect_err("no width");
        assert_eq!(error.hint().as_deref(), Some(works), "{error}");
    }
    for name in ["rdp", "evenodd", "liberation", "blaumroth", "cauchy", "pq"] {
        for columns in 3..=24 {
            assert_eq!(
                by_columns(name, columns).expect("any width").columns(),
                columns
            );
        }
    }
    assert_eq!(
        by_columns("rdp", 13)
            .expect("eleven data columns")
            .parameter(),
        13
    );
    assert_eq!(
        by_columns("evenodd", 13)
            .expect("eleven data columns")
            .parameter(),
        11
    );
}

#[test]
fn the_zfs_order_is_mds_order_on_reversed_columns() {
    let (md, zfs) = (
        by_parameter_in("pqr", 6, Order::Md).expect("six"),
        by_parameter_in("pqr", 6, Order::Zfs).expect("six"),
    );
    for parity in 6..9 {
        for column in 0..6 {
            let reversed = zfs.coefficient(parity, 5 - column);
            assert_eq!(md.coefficient(parity, column), reversed);
        }
    }
    assert_eq!((md.coefficient(7, 0), zfs.coefficient(7, 5)), (1, 1));
    assert_eq!((md.coefficient(8, 2), zfs.coefficient(8, 3)), (16, 16));
    assert!(by_parameter_in("rdp", 5, Order::Zfs).is_err());
}

#[test]
fn declared_tolerances_are_what_ranks_say() {
    for name in erasure::NAMES {
        for columns in 1..=12 {
            let Ok(code) = by_columns(name, columns) else {
                continue;
            };
            let again = Code::new(
                name,
                code.parameter(),
                code.rows(),
                code.columns(),
                code.data().to_vec(),
                code.equations().to_vec(),
            );
            let measured = again.expect("the same equations").tolerance();
            assert_eq!(measured, code.tolerance(), "{name} {columns}");
        }
    }
}
