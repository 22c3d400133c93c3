//! Transcripts without what differs from run to run: identities, times, generations, amounts of I/O.

/// Events of a host that is busy with other tests, and their texts.
pub(crate) const BUSY_HOST: [(&str, &str); 3] = [
    ("host_stall", "drives are slow at once"),
    ("drive_suspect", "much slower than others"),
    ("drive_trusted", "is trusted again"),
];
const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];

/// A table without the sizes in some of its columns; each column becomes as narrow as possible.
pub(crate) fn redacted_table(rows: &[&str], sizes: &[&str]) -> Vec<String> {
    let cells = |row: &str| -> Vec<String> {
        let cells = row.split("  ").map(str::trim);
        cells
            .filter(|cell| !cell.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let mut rows: Vec<Vec<String>> = rows.iter().map(|row| cells(row)).collect();
    let head = rows[0].clone();
    for row in &mut rows[1..] {
        assert_eq!(row.len(), head.len(), "{row:?}");
        for (cell, name) in row.iter_mut().zip(&head) {
            if sizes.contains(&&**name) && cell != "-" {
                "SIZE".clone_into(cell);
            }
        }
    }
    let wide = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap();
    let widths: Vec<usize> = (0..head.len()).map(wide).collect();
    let line = |row: &Vec<String>| {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"));
        format!(" {}", cells.collect::<Vec<_>>().join("  "))
            .trim_end()
            .to_owned()
    };
    rows.iter().map(line).collect()
}

/// A line without identities, times, generations and amounts of I/O.
pub(crate) fn redacted_line(line: &str) -> String {
    let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let is_number = |word: &str| word.parse::<f64>().is_ok();
    let mut at = 0;
    while at < words.len() {
        let next = words.get(at + 1).cloned().unwrap_or_default();
        let before = |back: usize| at.checked_sub(back).map_or("", |at| &*words[at]);
        let core = words[at]
            .trim_matches(|c: char| !c.is_ascii_alphanumeric())
            .to_owned();
        if is_uuid(&core) {
            words[at] = words[at].replace(&core, "UUID");
        } else if is_date(&words[at]) {
            words.splice(at..at + 2, ["TIME".to_owned()]);
        } else if words[at] == "generation" {
            let number = next
                .trim_end_matches(|c: char| !c.is_ascii_digit())
                .to_owned();
            words[at + 1] = next.replace(&number, "N");
        } else if ["read", "copied)"].contains(&&*words[at])
            && UNITS.contains(&before(1))
            && is_number(before(2).trim_start_matches('('))
        {
            words.splice(at - 2..at, ["SIZE".to_owned()]);
            at -= 1;
        } else if words[at] == "blocks" && next == "read," && is_number(before(1)) {
            "N".clone_into(&mut words[at - 1]);
        } else if words[at] == "in" && is_number(&next) {
            let unit = words.get(at + 2).cloned().unwrap_or_default();
            if unit.trim_end_matches([':', ',', ';']) == "s" {
                words.splice(at + 1..at + 3, [unit.replace('s', "TIME")]);
            }
        } else if words[at].ends_with("/s") && is_number(before(1)) {
            words.splice(at - 1..=at, ["SPEED".to_owned()]);
            at -= 1;
        }
        at += 1;
    }
    words.join(" ").trim_end().to_owned()
}

fn is_uuid(word: &str) -> bool {
    let hyphens = [8, 13, 18, 23];
    word.len() == 36
        && word
            .bytes()
            .enumerate()
            .all(|(at, byte)| match hyphens.contains(&at) {
                true => byte == b'-',
                false => byte.is_ascii_hexdigit(),
            })
}

fn is_date(word: &str) -> bool {
    let parts: Vec<&str> = word.split('-').collect();
    let numbers = |parts: &[&str]| parts.iter().all(|part| part.parse::<u16>().is_ok());
    parts.len() == 3 && word.len() == 10 && numbers(&parts)
}
