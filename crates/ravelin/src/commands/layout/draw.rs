//! Layouts and reports on a terminal.

use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use layout::Geometry;
use layout::balance::{Question, Ratio, Report};

const PARITY: &str = "\x1b[33m";
const SPARE: &str = "\x1b[36m";
const UNUSED: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

/// The grid with drives as columns. Parity is in brackets and spares are in parentheses, so that they differ without
/// colour, too.
pub(super) fn picture(geometry: &Geometry, grid: &[Vec<String>], colour: bool) -> String {
    let marked = |name: &str| match name.as_bytes().first() {
        Some(b'P' | b'Q' | b'R') => format!("[{name}]"),
        Some(b'S') => format!("({name})"),
        Some(b'D') => format!(" {name} "),
        _ => " · ".to_owned(),
    };
    let cells: Vec<Vec<String>> = grid
        .iter()
        .map(|row| row.iter().map(|name| marked(name)).collect())
        .collect();
    let widest = |column: usize| {
        let widths = cells.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or(0).max(format!(" {column} ").len())
    };
    let widths: Vec<usize> = (0..usize::from(geometry.drives)).map(widest).collect();
    let mut out = format!("{}\n\n        ", geometry.scheme);
    for (drive, width) in widths.iter().enumerate() {
        let _ = write!(out, "{:<width$}", format!(" {drive} "));
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    for (row, cells) in cells.iter().enumerate() {
        let _ = write!(out, "{row:>6}  ");
        for (cell, &width) in cells.iter().zip(&widths) {
            let pad = " ".repeat(width - cell.chars().count());
            let paint = match cell.as_bytes().first() {
                Some(b'[') => PARITY,
                Some(b'(') => SPARE,
                _ if cell.contains('D') => "",
                _ => UNUSED,
            };
            if colour && !paint.is_empty() {
                let _ = write!(out, "{paint}{cell}{PLAIN}{pad}");
            } else {
                out.push_str(cell);
                out.push_str(&pad);
            }
        }
        out.truncate(out.trim_end_matches(' ').len());
        out.push('\n');
    }
    out.push_str("\n         D  data    [P] parity    (S) spare\n");
    out
}

/// A report for people.
pub(super) fn balance(
    out: &mut dyn io::Write,
    geometry: &Geometry,
    question: &Question,
    report: &Report,
    seconds: f64,
) -> io::Result<()> {
    let number = |ratio: Ratio| ratio.map_or("    -".to_owned(), |ratio| format!("{ratio:.3}"));
    writeln!(
        out,
        "{}, max/mean over drives (1.000 is perfect)\n",
        geometry.scheme
    )?;
    writeln!(
        out,
        "  space     data {}   parity {}   spare {}",
        number(report.uniformity.data),
        number(report.uniformity.parity),
        number(report.uniformity.spare)
    )?;
    for (name, load) in [("rebuild", &report.rebuild), ("worst", &report.worst)] {
        writeln!(
            out,
            "  {name:<8}  reads {}  writes {}  total {}",
            number(load.reads),
            number(load.writes),
            number(load.total)
        )?;
    }
    let drives: Vec<String> = report.worst_set.iter().map(ToString::to_string).collect();
    writeln!(
        out,
        "\n  {} of {} drives fail at {} % fill; {} sets{}, the worst is {}",
        question.failures,
        geometry.drives,
        question.fill_percent,
        report.sets,
        if report.exhaustive {
            " (all, up to symmetry)"
        } else {
            " (a sample)"
        },
        drives.join(" "),
    )?;
    writeln!(
        out,
        "  a second failed drive shares {:.1} % of its stripes with the first, {:.1} % at most: {}",
        100.0 * report.critical_share.0,
        100.0 * report.critical_share.1,
        if geometry.parity < 2 {
            "these are lost"
        } else {
            "these are critical"
        },
    )?;
    if report.busiest > 0.0 {
        let whole = Duration::from_secs_f64(seconds.round());
        writeln!(
            out,
            "  rebuild takes {whole:?} if drives are the limit, {:.2} times as fast as into one spare drive",
            report.speedup(),
        )?;
    }
    Ok(())
}
