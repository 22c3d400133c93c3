//! Tables without lines, as wide as the terminal allows.
//!
//! A row is one line if all rows fit into the terminal's width. Otherwise each row, and the head, goes on with its last
//! columns on a second line. No cell is wrapped, so names can be copied as they are. Where two lines are not enough,
//! cells that have a short text use it and columns stand closer; only after that there are more lines.

use std::fmt;
use std::io;

use rustix::termios::tcgetwinsize;

/// Columns by which the further lines of a row are indented.
const INDENT: usize = 2;

/// The columns of the terminal that stdout is; none if it is no terminal, or one that does not know its width, such as
/// a serial console or the terminal of a tool.
pub(crate) fn terminal_width() -> Option<usize> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// The text of a cell.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    full: String,
    /// For narrow terminals.
    short: Option<String>,
}

impl Cell {
    /// A text, and what may stand in its place on a narrow terminal.
    pub(crate) fn with_short(full: String, short: String) -> Self {
        let short = Some(short);
        Self { full, short }
    }

    fn text(&self, short: bool) -> &str {
        match &self.short {
            Some(text) if short => text,
            _ => &self.full,
        }
    }
}

impl From<String> for Cell {
    fn from(full: String) -> Self {
        Self { full, short: None }
    }
}

/// Rows below a head.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// The head is the first.
    rows: Vec<Vec<Cell>>,
    width: Option<usize>,
}

/// A table for stdout.
pub(crate) fn table(head: &[&str]) -> Table {
    Table::new(head, terminal_width())
}

impl Table {
    fn new(head: &[&str], width: Option<usize>) -> Self {
        let head = head.iter().map(|&name| name.to_owned().into()).collect();
        Self {
            rows: vec![head],
            width,
        }
    }

    /// Adds a row with a cell for each column.
    pub(crate) fn add_row<C: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// True if there are no rows below the head.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }

    fn widths(&self, short: bool) -> Vec<usize> {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.text(short).chars().count()).max()
        };
        let columns = self.rows.first().map_or(0, Vec::len);
        (0..columns)
            .map(|column| width(column).unwrap_or(0))
            .collect()
    }

    /// Whether cells use their short texts, the space between columns, and the first column of each line.
    fn arrangement(&self) -> (bool, usize, Vec<usize>) {
        let Some(width) = self.width else {
            return (false, 2, vec![0]);
        };
        let choices = [(false, 2), (false, 1), (true, 2), (true, 1)];
        let all = choices.map(|(short, gap)| (short, gap, breaks(&self.widths(short), gap, width)));
        let [first, .., last] = &all;
        let fits = all.iter().find(|(.., lines)| lines.len() <= 2);
        match first.2.len() {
            1 => first.clone(),
            _ => fits.unwrap_or(last).clone(),
        }
    }
}

/// The first columns of lines into which as much goes as fits.
fn breaks(widths: &[usize], gap: usize, width: usize) -> Vec<usize> {
    let mut lines = vec![0];
    // All lines begin with a space.
    let mut end = 1;
    for (column, cell) in widths.iter().enumerate() {
        if column > 0 && end + cell > width {
            lines.push(column);
            end = 1 + INDENT;
        }
        end += cell + gap;
    }
    lines
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (short, gap, lines) = self.arrangement();
        let widths = self.widths(short);
        for (index, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                if column > 0 && lines.contains(&column) {
                    writeln!(f, "{}", line.trim_end())?;
                    line = " ".repeat(INDENT);
                }
                line += &format!(
                    "{:gap$}{:width$}",
                    "",
                    cell.text(short),
                    gap = match () {
                        () if column == 0 || lines.contains(&column) => 1,
                        () => gap,
                    }
                );
            }
            write!(f, "{}", line.trim_end())?;
            if index + 1 < self.rows.len() {
                writeln!(f)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drives(width: Option<usize>, name: &str) -> Table {
        let head = ["SEAT", "DRIVE", "STATE", "SIZE", "READ", "WRITTEN"];
        let mut table = Table::new(&head, width);
        let state = Cell::with_short(
            "out: failed by command, spare 5 took its place".to_owned(),
            "out".to_owned(),
        );
        let texts = ["10 GiB", "142.3 MiB", "42.4 MiB"].map(|text| text.to_owned().into());
        let first = [Cell::from("0".to_owned()), name.to_owned().into(), state];
        table.add_row(first.into_iter().chain(texts));
        table
    }

    #[test]
    fn without_a_width_a_row_is_one_line() {
        let name = "n".repeat(300);
        assert_eq!(drives(None, &name).to_string().lines().count(), 2);
        let narrow = drives(None, "/dev/sdb").to_string();
        let lines: Vec<&str> = narrow.lines().collect();
        assert_eq!(
            lines[1],
            " 0     /dev/sdb  out: failed by command, spare 5 took its place  10 GiB  142.3 MiB  42.4 MiB"
        );
        assert_eq!(lines[0].find("SIZE"), lines[1].find("10 GiB"));
    }

    #[test]
    fn a_row_that_does_not_fit_goes_on_with_its_last_columns() {
        let text = drives(Some(80), "/dev/sdb").to_string();
        let expected = [
            " SEAT  DRIVE     STATE                                           SIZE",
            "   READ       WRITTEN",
            " 0     /dev/sdb  out: failed by command, spare 5 took its place  10 GiB",
            "   142.3 MiB  42.4 MiB",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn names_stay_whole_in_lines_that_fit() {
        let name = "/dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK_drive-scsi0-0-0-1";
        for width in 62..160 {
            let text = drives(Some(width), name).to_string();
            assert!(text.contains(name), "{width}:\n{text}");
            let too_long = text.lines().find(|line| line.chars().count() > width);
            assert_eq!(too_long, None, "{width}");
            let rows = if width < 64 { 6 } else { 4 };
            assert!(text.lines().count() <= rows, "{width}:\n{text}");
        }
        // A name longer than the terminal is not cut.
        assert!(drives(Some(40), name).to_string().contains(name));
    }
}
