//! Names of other systems that administrators type, and the scheme that is meant. No suggested scheme survives fewer
//! failures than the named one.

use super::error::distance;

/// Names in mdadm, zpool, btrfs and the tools of RAID controllers, and the scheme here.
const FOREIGN: [(&str, &str); 34] = [
    ("stripe", "raid0"),
    ("linear", "raid0"),
    ("concat", "raid0"),
    ("jbod", "raid0"),
    ("mirror2", "raid1:2r"),
    ("mirror3", "raid1:3r"),
    ("mirror4", "raid1:4r"),
    ("dup", "raid1:2r"),
    ("raid1c2", "raid10:2r"),
    ("raid1c3", "raid10:3r"),
    ("raid1c4", "raid10:4r"),
    ("raid1e", "raid10"),
    ("raid01", "raid10"),
    ("raid0+1", "raid10"),
    ("raid1+0", "raid10"),
    ("raid100", "raid10"),
    ("raid2", "raid5"),
    ("raid3", "raid4"),
    ("raidz", "raid5"),
    ("raidz1", "raid5"),
    ("raidz2", "raid6"),
    ("raidz3", "raid7"),
    ("raid5e", "pddl1:1s"),
    ("raid5ee", "pddl1:1s"),
    ("raid6e", "pddl2:1s"),
    ("raid51", "raid7"),
    ("raid-dp", "raid6:rdp"),
    ("raiddp", "raid6:rdp"),
    ("raid-tp", "raid7"),
    ("raidtp", "raid7"),
    ("raid-tec", "raid7"),
    ("shr", "raid5"),
    ("shr1", "raid5"),
    ("shr2", "raid6"),
];

/// Striped groups of single or double parity: as many drives as the smallest group has, and the level.
const STRIPED: [(&str, u16, u16); 6] = [
    ("raid50", 3, 1),
    ("raid5+0", 3, 1),
    ("raid53", 3, 1),
    ("raid60", 4, 2),
    ("raid6+0", 4, 2),
    ("raid05", 3, 1),
];

/// The scheme that a name of another system means, for `drives` drives if the number is known.
#[must_use]
pub fn meant_by(name: &str, drives: Option<u16>) -> Option<String> {
    let name = name.to_ascii_lowercase();
    if let Some((_, scheme)) = FOREIGN.iter().find(|(foreign, _)| *foreign == name) {
        return Some((*scheme).to_owned());
    }
    let (_, least, parity) = STRIPED.into_iter().find(|(foreign, ..)| *foreign == name)?;
    let level = 4 + parity;
    let Some(drives) = drives else {
        return Some(format!("raid{level}:4d"));
    };
    // As few and as wide equal groups as possible, two at least; drives that are left over are hot spares.
    let of_groups = |spares: u16| {
        let left = drives.checked_sub(spares)?;
        let groups = (2..=left / least).find(|&groups| left.is_multiple_of(groups))?;
        Some((left / groups - parity, spares))
    };
    Some(match (0..drives).find_map(of_groups) {
        Some((data, 0)) => format!("raid{level}:{data}d"),
        Some((data, spares)) => format!("raid{level}:{data}d:{spares}s"),
        // Too few drives for two groups.
        None => format!("raid{level}"),
    })
}

/// The name of ours that is nearest to a misspelt name. The digits must agree, since they give the redundancy: `raid8`
/// is one letter from `raid0`, but means something else.
pub(super) fn near<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let digits = |text: &str| -> String { text.chars().filter(char::is_ascii_digit).collect() };
    let said = digits(name);
    { names.into_iter() }
        .filter(|candidate| digits(candidate) == said)
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(edits, _)| *edits <= 2)
        .min()
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Geometry, Scheme};

    /// How many drives may fail, whichever drives they are.
    fn survives(scheme: &str, drives: u16) -> u16 {
        let scheme: Scheme = scheme.parse().unwrap();
        let scheme = scheme.for_new_pool(drives);
        Geometry::new(&scheme, Some(drives), 64).unwrap().parity
    }

    #[test]
    fn what_other_systems_call_it_is_answered_with_no_less_redundancy() {
        for (name, drives, least) in [
            ("stripe", 4, 0),
            ("mirror", 3, 2),
            ("mirror2", 2, 1),
            ("mirror3", 3, 2),
            ("raid1c3", 6, 2),
            ("raid01", 4, 1),
            ("raid1e", 5, 1),
            ("raid3", 4, 1),
            ("raidz", 4, 1),
            ("raidz2", 6, 2),
            ("raidz3", 8, 3),
            ("raid5ee", 6, 1),
            ("raid6e", 8, 2),
            ("raid-dp", 6, 2),
            ("raid51", 6, 3),
            ("shr2", 6, 2),
            ("raid50", 6, 1),
            ("raid50", 7, 1),
            ("raid50", 8, 1),
            ("raid50", 11, 1),
            ("raid50", 4, 1),
            ("RAID60", 8, 2),
            ("raid60", 24, 2),
            ("raid60", 13, 2),
        ] {
            let meant = meant_by(name, Some(drives)).unwrap_or_else(|| name.to_owned());
            assert!(survives(&meant, drives) >= least, "{name}: {meant}");
        }
        assert_eq!(meant_by("raid50", Some(12)).unwrap(), "raid5:5d");
        assert_eq!(meant_by("raid60", Some(12)).unwrap(), "raid6:4d");
        assert_eq!(meant_by("raid50", Some(7)).unwrap(), "raid5:2d:1s");
        for (foreign, scheme) in FOREIGN {
            scheme.parse::<Scheme>().expect(foreign);
            foreign.parse::<Scheme>().expect_err(foreign);
        }
    }

    #[test]
    fn a_misspelt_name_is_not_taken_for_one_with_another_redundancy() {
        let names = ["raid0", "raid1", "raid5", "raid6", "raid10", "pddl2", "ddp"];
        for (name, meant) in [
            ("riad5", Some("raid5")),
            ("rad6", Some("raid6")),
            ("dpp", Some("ddp")),
            ("pdl2", Some("pddl2")),
            ("raid8", None),
            ("raid", None),
            ("raid11", None),
            ("/dev/sda", None),
        ] {
            assert_eq!(near(name, names), meant, "{name}");
        }
    }
}
