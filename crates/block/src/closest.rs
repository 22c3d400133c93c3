//! The name that a typing error was probably meant to be.

/// The one candidate that is fewest edits away from `text`: letters inserted, removed, replaced, or two exchanged. None
/// if it takes too many, or if two candidates are equally close.
pub fn closest<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let most = match text.chars().count() {
        0..=2 => 0,
        3..=5 => 1,
        _ => 2,
    };
    let mut best: Option<(usize, &str)> = None;
    let mut tied = false;
    for candidate in candidates {
        let edits = distance(text, candidate);
        match best {
            Some((least, name)) if edits == least => tied |= name != candidate,
            Some((least, _)) if edits > least => {}
            _ => (best, tied) = (Some((edits, candidate)), false),
        }
    }
    best.filter(|&(edits, _)| edits <= most && !tied)
        .map(|(_, name)| name)
}

/// Edits from one text to the other, upper case or lower; an exchange of neighbours is one.
fn distance(from: &str, to: &str) -> usize {
    // Longer texts are no names that somebody has typed.
    let letters = |text: &str| -> Vec<char> { text.to_lowercase().chars().take(256).collect() };
    let (from, to) = (letters(from), letters(to));
    let mut before = Vec::new();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, &letter) in from.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, &other) in to.iter().enumerate() {
            let replaced = row[j] + usize::from(letter != other);
            let mut edits = replaced.min(next[j] + 1).min(row[j + 1] + 1);
            if i > 0 && j > 0 && letter == to[j - 1] && from[i - 1] == other {
                let exchanged: usize = before[j - 1];
                edits = edits.min(exchanged + 1);
            }
            next.push(edits);
        }
        before = std::mem::replace(&mut row, next);
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_error_finds_its_name() {
        let names = ["tank", "attic", "scratch"];
        for (text, name) in [
            ("tnak", Some("tank")),
            ("Tank", Some("tank")),
            ("atic", Some("attic")),
            ("scrathc", Some("scratch")),
            ("scrtahc", Some("scratch")),
            ("home", None),
            ("", None),
            ("t", None),
        ] {
            assert_eq!(closest(text, names), name, "{text}");
        }
        // Which of the two would be a guess, and with drives a guess can cost data.
        assert_eq!(closest("/dev/sdx", ["/dev/sdb", "/dev/sdc"]), None);
        assert_eq!(
            closest("/dve/sdb", ["/dev/sdb", "/dev/sdc"]),
            Some("/dev/sdb")
        );
    }
}
