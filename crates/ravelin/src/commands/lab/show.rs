//! Studies and their findings, for people.

use std::io::{self, Write};
use std::path::PathBuf;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use lab::output::number;
use lab::{About, Report, Row, Verdict};

use crate::commands::table::terminal_width;

fn table<const N: usize>(head: [&str; N]) -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(head);
    if let Some(width) = terminal_width().and_then(|width| u16::try_from(width).ok()) {
        table
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(width);
    }
    table
}

/// All studies.
pub(super) fn list(
    out: &mut dyn Write,
    studies: impl Iterator<Item = &'static About>,
) -> io::Result<()> {
    let mut table = table(["STUDY", "PAPER", "SHOWS"]);
    for about in studies {
        table.add_row([about.id, about.paper.title, about.title]);
    }
    writeln!(out, "{table}")
}

/// The findings: the rows that have a number of the paper, and why some differ from it.
pub(super) fn reports(
    out: &mut dyn Write,
    reports: &[Report],
    pages: &[PathBuf],
) -> io::Result<()> {
    for report in reports {
        let (compared, alone): (Vec<&Row>, Vec<&Row>) =
            report.rows.iter().partition(|row| row.paper.is_some());
        writeln!(out, "{}  {}", report.about.id, report.about.title)?;
        let mut table = table(["", "OURS", "PAPER", "", "VERDICT"]);
        for column in [1, 2] {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        for row in compared
            .iter()
            .filter_map(|row| row.paper.map(|paper| (row, paper)))
        {
            let (row, paper) = row;
            table.add_row([
                row.name.clone(),
                number(row.ours),
                number(paper),
                row.unit.symbol().to_owned(),
                row.verdict.word().to_owned(),
            ]);
        }
        writeln!(out, "{table}")?;
        for row in &compared {
            if let (Verdict::Differs(_), Some(note)) = (&row.verdict, row.note()) {
                writeln!(out, "  {} differs: {note}", row.id)?;
            }
        }
        let counts = report.verdicts();
        writeln!(
            out,
            "  {} hold, {} differ; {} more numbers that the paper does not have (--json, --out)",
            counts.holds,
            counts.differs,
            alone.len(),
        )?;
        writeln!(out, "  {}  trace {:016x}\n", report.command(), report.trace)?;
    }
    for page in pages {
        writeln!(out, "{}", page.display())?;
    }
    Ok(())
}
