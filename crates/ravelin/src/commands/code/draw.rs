//! The stripe in the terminal: a grid for each kind of equation, coloured by equation.
//!
//! As in Fig. 2 of the D-Code paper, an element carries the label of the equation that it is in and
//! the parity the same label in brackets, so that the picture reads without colour too.

use std::fmt::Write;

use erasure::{Code, Element};

const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

/// Colours of the 256-colour palette that differ from their neighbours on a dark and on a light background.
const PALETTE: [u8; 12] = [33, 202, 35, 170, 178, 37, 160, 99, 106, 208, 30, 132];

/// The grids, the costs of the code, and the bytes of the stripe if there is one.
pub(super) fn picture(code: &Code, stripe: Option<&[Vec<u8>]>, colour: bool) -> String {
    let mut out = String::new();
    let (rows, columns) = (code.rows(), code.columns());
    let _ = writeln!(
        out,
        "{}:{}  {rows} rows, {columns} columns, {} data elements; survives the loss of {}",
        code.name(),
        code.parameter(),
        code.data().len(),
        match code.tolerance() {
            0 => "nothing".to_owned(),
            1 => "any column".to_owned(),
            n => format!("any {n} columns"),
        }
    );
    let mut kinds: Vec<&str> = code.equations().iter().map(|e| e.kind).collect();
    kinds.dedup();
    for kind in kinds {
        let _ = write!(out, "\n{kind}\n{}", grid(code, kind, colour));
    }
    if let Some(stripe) = stripe {
        let _ = write!(
            out,
            "\nexample, data[i] = (37 i + 11) mod 256\n{}",
            bytes(code, stripe)
        );
    }
    costs(code, &mut out);
    out
}

/// `0 1 … 9 a … z A …`, then numbers.
fn label(index: usize) -> String {
    let letters = ('0'..='9').chain('a'..='z').chain('A'..='Z');
    match letters.into_iter().nth(index) {
        Some(letter) => letter.to_string(),
        None => index.to_string(),
    }
}

fn grid(code: &Code, kind: &str, colour: bool) -> String {
    let of_kind: Vec<_> = code.equations().iter().filter(|e| e.kind == kind).collect();
    let cell = |element: Element| -> (String, Option<usize>, bool) {
        if let Some(i) = of_kind.iter().position(|e| e.parity == element) {
            return (format!("[{}]", label(i)), Some(i), true);
        }
        let member =
            |e: &&erasure::Equation| e.members.iter().find(|(m, _)| *m == element).copied();
        let inside: Vec<(usize, u8)> = of_kind
            .iter()
            .enumerate()
            .filter_map(|(i, e)| member(e).map(|(_, coefficient)| (i, coefficient)))
            .collect();
        match inside[..] {
            [] => ("·".to_owned(), None, false),
            [(i, 1)] => (label(i), Some(i), false),
            [(_, coefficient)] => (format!("×{coefficient}"), Some(0), false),
            [(i, _), (j, _)] => (label(i) + &label(j), Some(i), false),
            // EVENODD's S is a member of every equation.
            _ if inside.len() == of_kind.len() => ("all".to_owned(), None, false),
            _ => (format!("{}+", label(inside[0].0)), Some(inside[0].0), false),
        }
    };
    let mut out = header(code);
    for row in 0..code.rows() {
        let _ = write!(out, "{row:>4} ");
        for column in 0..code.columns() {
            let (text, equation, parity) = cell(Element::new(row, column));
            let padding = " ".repeat(5usize.saturating_sub(text.chars().count()));
            out += &padding;
            match (colour, equation) {
                (true, Some(i)) => {
                    let strong = if parity { BOLD } else { "" };
                    let paint = PALETTE[i % PALETTE.len()];
                    let _ = write!(out, "{strong}\x1b[38;5;{paint}m{text}{PLAIN}");
                }
                (true, None) => {
                    let _ = write!(out, "{DIM}{text}{PLAIN}");
                }
                (false, _) => out += &text,
            }
        }
        out.push('\n');
    }
    out
}

fn header(code: &Code) -> String {
    let mut out = " ".repeat(5);
    for column in 0..code.columns() {
        let _ = write!(out, "{column:>5}");
    }
    out.push('\n');
    out
}

fn bytes(code: &Code, stripe: &[Vec<u8>]) -> String {
    let mut out = header(code);
    for (row, elements) in stripe.chunks(usize::from(code.columns())).enumerate() {
        let _ = write!(out, "{row:>4} ");
        for element in elements {
            let _ = write!(out, "{:>5}", format!("{:02x}", element[0]));
        }
        out.push('\n');
    }
    out
}

/// The costs that the papers compare: XORs, parities per write, reads to rebuild a column.
fn costs(code: &Code, out: &mut String) {
    let data = code.data().len();
    if code.equations().is_empty() {
        return;
    }
    let ratio = |n: usize| n as f64 / data as f64;
    let changed: usize = code.data_slots().map(|d| code.parities_of(d).len()).sum();
    let _ = writeln!(
        out,
        "\nencode   {:.3} XORs per data element ({} in all)",
        ratio(code.encode().xors()),
        code.encode().xors()
    );
    let _ = writeln!(
        out,
        "write    {:.3} parities change per data element",
        ratio(changed)
    );
    let rebuild = (0..code.columns()).filter_map(|c| code.recover_column(c).ok());
    let reads: Vec<usize> = rebuild.map(|found| found.recovery.reads.len()).collect();
    let others = code.elements() - usize::from(code.rows());
    if let (Some(least), Some(most)) = (reads.iter().min(), reads.iter().max()) {
        let range = if least == most {
            most.to_string()
        } else {
            format!("{least} to {most}")
        };
        let _ = writeln!(
            out,
            "rebuild  {range} of the other {others} elements read per column"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_horizontal_groups_of_d_code_5_run_row_major() {
        let code = erasure::by_parameter("dcode", 5).expect("a prime");
        let text = grid(&code, "horizontal", false);
        let rows: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(rows[1], ["0", "3", "3", "3", "1", "1"]);
        assert_eq!(rows[4], ["3", "[0]", "[1]", "[2]", "[3]", "[4]"]);
        assert_eq!(rows[5], ["4", "·", "·", "·", "·", "·"]);
    }

    #[test]
    fn colour_is_in_the_picture_only_when_asked_for() {
        let code = erasure::by_parameter("evenodd", 5).expect("a prime");
        assert!(!picture(&code, None, false).contains('\x1b'));
        assert!(picture(&code, None, true).contains("\x1b[38;5;"));
        assert!(grid(&code, "diagonal+S", false).contains("all"));
    }
}
