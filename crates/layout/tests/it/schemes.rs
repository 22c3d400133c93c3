//! Scheme strings: what parses, what it prints as, and what errors point at.

use block::Hint;
use layout::scheme::{Raid6Form, Raid10Form};
use layout::{Expansion, Family, Geometry, Scheme};
use proptest::prelude::*;

fn parse(text: &str) -> Scheme {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn every_scheme_of_the_design_parses_and_prints_back() {
    for text in [
        "raid0",
        "raid1",
        "raid10",
        "raid10:offset",
        "raid10:far",
        "chained",
        "zigzag",
        "raid5",
        "raid5:la",
        "raid5:rs",
        "raid5:ra",
        "raid5:p0",
        "raid5:pn",
        "raid6",
        "raid6:la",
        "raid6:zr",
        "raid6:nr",
        "raid6:nc",
        "raid6:la6",
        "raid6:p06",
        "raid6:shear",
        "raid7",
        "raid6:4d:50c:2s",
        "pddl2:8d:22c:2s",
        "ddp",
        "raid6:dcode:7c",
        "pddl2:rdp:4d:13c:1s",
        "ddp:evenodd:8d",
        "elastic5",
        "elastic5:1.8x",
        "elastic6:1.8x",
        "elastic5:la:4c:1.8x",
        "pddl1:4d:17c:1s:2x",
        "raid10:near:3r:6c",
        "pddl2:8d:96c:8s:8f",
        "pddl1:elastic:4d:17c",
        "raid6:ls:rdp:6c",
    ] {
        let scheme = parse(text);
        let printed = scheme.to_string();
        assert_eq!(parse(&printed), scheme, "{text} prints as {printed}");
        let canonical = text.replace("raid10:near", "raid10");
        assert_eq!(printed, canonical);
    }
}

#[test]
fn order_and_case_do_not_matter() {
    let canonical = parse("pddl2:rdp:4d:13c:1s");
    for text in [
        "PDDL2:13C:RDP:1S:4D",
        "pddl:1s:2p:4d:rdp:13c",
        "pddl2:1s:13c:4d:Rdp",
    ] {
        assert_eq!(parse(text), canonical, "{text}");
    }
    assert_eq!(
        parse("raid6:left-symmetric-6").family,
        Family::Raid6(Raid6Form::Ls6)
    );
    assert_eq!(parse("raid6:pq"), parse("raid6"));
    assert_eq!(parse("raid6:dcode").family, Family::Raid6(Raid6Form::Pn));
    assert_eq!(parse("raid4"), parse("raid5:pn"));
    assert_eq!(parse("draid:4d:11c"), parse("draid1:4d:11c"));
    assert_eq!(
        parse("raid10:near").family,
        Family::Raid10(Raid10Form::Near)
    );
}

#[test]
fn elastic_arrays_say_their_expansion() {
    let scheme = parse("elastic6:1.85x:6c");
    assert!(scheme.elastic);
    assert_eq!(scheme.expansion, Expansion::from_thousandths(1850));
    assert_eq!(scheme.parity, 2);
    assert!(parse("elastic5").elastic && parse("elastic5").expansion.is_none());
    assert!(parse("ddp:1.5x").elastic);
}

/// (text, the part that the error points at, the suggestion that works)
const BAD: [(&str, &str, &str); 41] = [
    ("", "", "raid6"),
    ("raid9:5c", "raid9", "one of these"),
    ("raidz2:5c", "raidz2", "raid6"),
    ("pdl2:5c", "pdl2", "pddl2"),
    ("pddl:4d:13c", "pddl", "pddl2"),
    ("pddl4:4d", "pddl4", "pddl3"),
    ("draid0", "draid0", "draid1"),
    ("raid5:lss:4c", "lss", "ls"),
    ("raid6:shears", "shears", "shear"),
    ("raid5:rdp", "rdp", "rs"),
    ("raid0:near", "near", "raid0"),
    ("pddl1:rdp:4d", "rdp", "pddl2"),
    ("raid5:4", "4", "4c"),
    ("raid5:4k", "4k", "4c"),
    ("raid5:c4", "c4", "4c"),
    ("raid5:4c:5c", "5c", "4c"),
    ("raid5:1p", "1p", "raid5"),
    ("pddl2:3p", "3p", "pddl3"),
    ("raid5:2r", "2r", "raid10"),
    ("raid0:4d", "4d", "4c"),
    ("raid0:4c:1s", "1s", "raid10"),
    ("draid2:8d:24c:4f", "4f", "pddl2"),
    ("pddl2:0d", "0d", "1d"),
    ("pddl2:70000c", "70000c", "65535c"),
    ("elastic5:0.5x", "0.5x", "`1x`"),
    ("elastic5:17x", "17x", "`16x`"),
    ("elastic5:1.8888x", "1.8888x", "`1.8x`"),
    ("raid7:1.8x", "1.8x", "`elastic6:1.8x`"),
    ("raid7:elastic", "elastic", "`elastic6`"),
    ("pddl3:4d:elastic", "elastic", "`pddl2:elastic:4d`"),
    ("draid3:4d:1.5x", "1.5x", "`draid2:4d:1.5x`"),
    ("ddp:3p:elastic", "elastic", "`ddp:elastic`"),
    ("raid1:elastic", "elastic", "`elastic5`"),
    ("raid10:elastic", "elastic", "`elastic5`"),
    ("chained:2x", "2x", "`elastic5:2x`"),
    ("raid0:elastic", "elastic", "`elastic5`"),
    ("elastic6:rdp:7c", "rdp", "`elastic6:7c`"),
    ("pddl2:elastic:dcode:4d", "dcode", "`pddl2:elastic:4d`"),
    ("raid6:1.8x:zr:evenodd", "evenodd", "`elastic6:zr:1.8x`"),
    ("raid5::4c", "", "ls"),
    ("raid5:1.5c", "1.5c", "1c"),
];

#[test]
fn errors_point_at_the_field_and_say_what_would_work() {
    for (text, pointed, works) in BAD {
        let error = text.parse::<Scheme>().expect_err(text);
        assert_eq!(&text[error.span()], pointed, "{text}: {error}");
        let hint = error.hint().unwrap();
        assert!(hint.contains(works), "{text}: {error}: {hint}");
    }
}

/// (scheme, drives given, letter or word that the error is about, the suggestion that works)
const IMPOSSIBLE: [(&str, Option<u16>, &str, &str); 21] = [
    ("draid2:8d:300c:2s", None, "drives (c)", "255c"),
    ("draid2:8d:255c:120s", None, "spares (s)", "100s"),
    ("design1:4d:34c", None, "drives (c)", "31c"),
    ("pddl2:8d:96c:7f", None, "failure domains (f)", "8f"),
    ("crush2:8d:60c:6f", None, "failure domains (f)", "ddp"),
    ("pddl2:8d:1s", None, "drives (c)", ":11c"),
    ("raid6:5c", Some(6), "drives (c)", "6c"),
    ("raid6:2c", None, "drives (c)", "3c"),
    ("pddl2:8d:12c:12s", None, "spares (s)", "9s"),
    ("pddl2:8d:12c:10s", None, "spares (s)", "9s"),
    ("pddl2:8d:11c:2s", None, "data columns (d)", "7d"),
    ("raid6:8d:9c", None, "data columns (d)", "7d"),
    ("pddl2:300d:400c", None, "data columns (d)", "253d"),
    ("raid6:300c", None, "drives (c)", "255c"),
    ("raid6:4d:50c:1s", None, "drives (c)", "2s"),
    ("raid1:1r:4c", None, "copies (r)", "2r"),
    ("raid1:5r:4c", None, "drives (c)", "5c"),
    ("raid10:400r:500c", None, "copies (r)", "255r"),
    ("raid10:far:4c", Some(4), "height", "at least 2 cells"),
    ("pddl2:8d:96c:4f", None, "failure domains (f)", "5f"),
    ("raid5:4c:2f", None, "failure domains (f)", "4f"),
];

#[test]
fn impossible_geometries_name_the_field_and_the_nearest_thing_that_works() {
    for (text, drives, field, works) in IMPOSSIBLE {
        let rows = u64::from(!text.contains("far"));
        let error = Geometry::new(&parse(text), drives, rows).expect_err(text);
        let message = error.to_string();
        assert!(message.contains(field), "{text}: {message}");
        let hint = error.hint().unwrap();
        assert!(hint.contains(works), "{text}: {message}: {hint}");
        let span = error.field().span_in(text);
        assert!(span.end <= text.len());
    }
}

proptest! {
    #[test]
    fn parsing_never_panics(text in "[a-z0-9:. A-Zé]{0,40}") {
        if let Ok(scheme) = text.parse::<Scheme>() {
            prop_assert_eq!(scheme.to_string().parse::<Scheme>().unwrap(), scheme);
        }
    }

    #[test]
    fn what_parses_prints_back_and_its_errors_point_into_the_text(
        name in prop::sample::select(vec![
            "raid0", "raid1", "raid10", "raid5", "raid6", "raid7", "chained", "zigzag", "pddl1",
            "pddl2", "pddl3", "draid", "ddp", "crush2", "elastic5", "elastic6", "design1",
        ]),
        parts in prop::collection::vec(
            prop_oneof![
                "(la|rs|near|far|shear|rdp|dcode|pq|elastic)",
                "[0-9]{1,3}[dpcsfrx]",
                "[0-9]\\.[0-9]{1,4}x",
            ],
            0..5,
        ),
    ) {
        let text = std::iter::once(name.to_owned()).chain(parts).collect::<Vec<_>>().join(":");
        match text.parse::<Scheme>() {
            Ok(scheme) => {
                prop_assert_eq!(scheme.to_string().parse::<Scheme>().unwrap(), scheme.clone());
                // No panic, whatever the numbers.
                if scheme.drives.is_none_or(|drives| drives < 40) {
                    let _ = Geometry::new(&scheme, None, 4);
                }
            }
            Err(error) => prop_assert!(error.span().end <= text.len()),
        }
    }
}
