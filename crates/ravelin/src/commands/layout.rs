//! `ravelin layout show | balance | map | locate | crush`: shows and examines placement.

mod crush;
mod draw;

use std::borrow::Cow;
use std::io::{self, Write};

use block::{ByteSize, Hint};
use clap::{Args, Subcommand};
use layout::balance::{self, Question};
use layout::{Geometry, GeometryError, Scheme, SchemeError};
use serde_json::json;
use sha2::Digest;

use super::common::{CHECK_OUTPUT, colours, parsed, print_document, stdout};
use super::complete;
use super::examples;
use crush::{CrushArguments, CrushError};

/// Look at placement: show it, weigh it, find a cell.
#[derive(Debug, Subcommand)]
pub(crate) enum LayoutCommand {
    /// Draw rows of a layout.
    #[command(after_long_help = examples::LAYOUT_SHOW)]
    Show {
        #[command(flatten)]
        scheme: SchemeArguments,
        /// Rows to draw: chunk rows of classic levels, cell rows of declustered layouts. For
        /// raid10:far the drive's height.
        #[arg(long, value_name = "N")]
        rows: Option<u64>,
    },
    /// Count how evenly space and rebuild work are spread.
    #[command(after_long_help = examples::LAYOUT_BALANCE)]
    Balance {
        #[command(flatten)]
        scheme: SchemeArguments,
        /// Drives that fail at the same time.
        #[arg(long, value_name = "F", default_value_t = 1)]
        failures: u16,
        /// Share of the groups in use, in percent.
        #[arg(long, value_name = "PCT", default_value_t = 100.0)]
        fill: f64,
        /// Height of the drives in cells; a whole pattern if not said (pools: 1024).
        #[arg(long, value_name = "N")]
        rows: Option<u64>,
        /// Size of a drive, for the predicted rebuild time.
        #[arg(long, value_name = "SIZE", default_value = "4T", value_parser = parsed::<ByteSize>)]
        drive_size: ByteSize,
        /// What a drive moves in a second, for the predicted rebuild time.
        #[arg(long, value_name = "SIZE", default_value = "200M", value_parser = parsed::<ByteSize>)]
        bandwidth: ByteSize,
    },
    /// Print the base permutations of a layout that has some.
    #[command(after_long_help = examples::LAYOUT_MAP)]
    Map {
        #[command(flatten)]
        scheme: SchemeArguments,
    },
    /// Find a cell: which drive and row hold a column of a group.
    #[command(after_long_help = examples::LAYOUT_LOCATE)]
    Locate {
        #[command(flatten)]
        scheme: SchemeArguments,
        /// The group.
        group: u64,
        /// The column, in the layout's own order (pddl and draid: parity first).
        column: u16,
        /// Height of the drives in cells, which pools and raid10:far depend on.
        #[arg(long, value_name = "N", default_value_t = ROWS)]
        rows: u64,
    },
    /// Place inputs by CRUSH, as Ceph does.
    #[command(after_long_help = examples::LAYOUT_CRUSH)]
    Crush(CrushArguments),
}

/// Height of a drive, for layouts that depend on the height, if none is given.
const ROWS: u64 = 1024;

/// A scheme and its drives.
#[derive(Debug, Args)]
pub(crate) struct SchemeArguments {
    /// A scheme, such as raid6:8c or pddl2:8d:22c:2s.
    #[arg(add = complete::schemes())]
    scheme: String,
    /// Drives, if the scheme does not say them.
    #[arg(long, value_name = "C")]
    drives: Option<u16>,
}

/// Why a layout command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LayoutError {
    /// The scheme string is wrong.
    #[error("{error}")]
    Scheme {
        /// What was written.
        text: String,
        /// What is wrong with it.
        #[source]
        error: Box<SchemeError>,
    },
    /// The scheme does not work on these drives.
    #[error("{error}")]
    Geometry {
        /// What was written.
        text: String,
        /// What is wrong with it.
        #[source]
        error: Box<GeometryError>,
    },
    /// The scheme's code has no stripe of this width.
    #[error("{error}")]
    Code {
        /// What was written.
        text: String,
        /// The code's name.
        word: String,
        /// What is wrong with it.
        #[source]
        error: Box<erasure::CodeError>,
    },
    /// A group or column that does not exist.
    #[error("{what} {asked} is not there: the layout has {there}")]
    OutOfRange {
        /// Group or column.
        what: &'static str,
        /// The number that was given.
        asked: u64,
        /// How many there are.
        there: u64,
    },
    /// A layout without permutations.
    #[error("{scheme} has no permutations: only pddl, draid and random layouts do")]
    NoPermutations {
        /// The scheme.
        scheme: String,
    },
    /// CRUSH arguments.
    #[error(transparent)]
    Crush(#[from] CrushError),
    /// The terminal or pipe is gone.
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
}

impl LayoutError {
    /// 2 for wrong arguments, 1 for all other errors.
    pub(crate) const fn exit_code(&self) -> u8 {
        match self {
            Self::Output(_) => 1,
            Self::Crush(error) => error.exit_code(),
            Self::Scheme { .. }
            | Self::Geometry { .. }
            | Self::Code { .. }
            | Self::OutOfRange { .. }
            | Self::NoPermutations { .. } => 2,
        }
    }

    /// The wrong scheme, and the range of its wrong part.
    pub(crate) fn place(&self) -> Option<(&str, std::ops::Range<usize>)> {
        match self {
            Self::Scheme { text, error } => Some((text, error.span())),
            Self::Geometry { text, error } => Some((text, error.field().span_in(text))),
            Self::Code { text, word, .. } => Some((text, word_span(text, word))),
            Self::OutOfRange { .. }
            | Self::NoPermutations { .. }
            | Self::Crush(_)
            | Self::Output(_) => None,
        }
    }
}

impl Hint for LayoutError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Scheme { error, .. } => error.hint(),
            Self::Geometry { error, .. } => error.hint(),
            Self::Code { error, .. } => error.hint(),
            Self::OutOfRange { there, .. } => Some(format!("a number below {there}").into()),
            Self::NoPermutations { .. } => Some("`draid2:8d:24c:2s`".into()),
            Self::Crush(error) => error.hint(),
            Self::Output(_) => Some(CHECK_OUTPUT.into()),
        }
    }
}

impl SchemeArguments {
    fn parse(&self) -> Result<Scheme, LayoutError> {
        self.scheme.parse().map_err(|error| LayoutError::Scheme {
            text: self.scheme.clone(),
            error: Box::new(error),
        })
    }

    fn geometry(&self, rows: u64) -> Result<Geometry, LayoutError> {
        let scheme = self.parse()?;
        let geometry =
            Geometry::new(&scheme, self.drives, rows).map_err(|error| LayoutError::Geometry {
                text: self.scheme.clone(),
                error: Box::new(error),
            })?;
        // `layout` does not check which widths a code has.
        let code = &geometry.code;
        erasure::by_columns(&code.name, code.columns).map_err(|error| LayoutError::Code {
            text: self.scheme.clone(),
            word: code.name.clone(),
            error: Box::new(error),
        })?;
        Ok(geometry)
    }
}

/// The range of a word in a scheme; the whole scheme if the word is not in the scheme's text.
fn word_span(text: &str, word: &str) -> std::ops::Range<usize> {
    let start = text.to_ascii_lowercase().find(word);
    start.map_or(0..text.len(), |start| start..start + word.len())
}

impl LayoutCommand {
    /// Runs the command and prints the result, as JSON or for people.
    pub(crate) fn run(self, json: bool) -> Result<(), LayoutError> {
        match self {
            Self::Show { scheme, rows } => show(&scheme, rows, json),
            Self::Balance {
                scheme,
                failures,
                fill,
                rows,
                drive_size,
                bandwidth,
            } => {
                let question = Question {
                    failures,
                    fill_percent: fill,
                    rows,
                    ..Question::default()
                };
                weigh(&scheme, &question, (drive_size, bandwidth), json)
            }
            Self::Map { scheme } => map(&scheme, json),
            Self::Locate {
                scheme,
                group,
                column,
                rows,
            } => locate(&scheme, group, column, rows, json),
            Self::Crush(arguments) => {
                let mappings = arguments.mappings()?;
                if json {
                    let mappings: Vec<_> =
                        mappings.into_iter().map(|(_, devices)| devices).collect();
                    return Ok(print_document(
                        "layout crush",
                        json!({ "mappings": mappings }),
                    )?);
                }
                let mut out = stdout();
                for (x, devices) in mappings {
                    let devices: Vec<String> = devices
                        .iter()
                        .map(|device| device.map_or("-".to_owned(), |device| device.to_string()))
                        .collect();
                    writeln!(out, "{x}\t{}", devices.join(" "))?;
                }
                Ok(())
            }
        }
    }
}

fn show(scheme: &SchemeArguments, rows: Option<u64>, json: bool) -> Result<(), LayoutError> {
    // Far layouts are drawn whole; the others only need any height.
    let geometry = scheme.geometry(rows.unwrap_or(8))?;
    let rows = rows.unwrap_or_else(|| match geometry.scheme.family.is_declustered() {
        true => 8,
        false => geometry
            .layout
            .rotation_slots()
            .max(geometry.layout.pattern_rows())
            .min(64),
    });
    let grid = layout::grid::grid(&geometry, rows);
    if json {
        let grid: Vec<String> = grid.iter().map(|row| row.join(" ")).collect();
        let fields = json!({ "drives": geometry.drives, "rows": rows, "grid": grid });
        return Ok(print_document("layout show", fields)?);
    }
    let colour = colours(&io::stdout());
    stdout().write_all(draw::picture(&geometry, &grid, colour).as_bytes())?;
    Ok(())
}

fn weigh(
    scheme: &SchemeArguments,
    question: &Question,
    (drive_size, bandwidth): (ByteSize, ByteSize),
    json: bool,
) -> Result<(), LayoutError> {
    let geometry = scheme.geometry(question.rows.unwrap_or(ROWS))?;
    let report = balance::report(&geometry, question);
    let load = |load: &balance::Load| json!({ "reads": load.reads, "writes": load.writes, "total": load.total });
    #[expect(clippy::cast_precision_loss, reason = "sizes for an estimate")]
    let (held, rate) = (
        drive_size.0 as f64 * question.fill_percent / 100.0 * f64::from(question.failures.max(1)),
        bandwidth.0.max(1) as f64,
    );
    let seconds = report.rebuild_seconds(held, rate);
    if json {
        let set: Vec<u16> = report.worst_set.iter().map(|seat| seat.0).collect();
        return Ok(print_document(
            "layout balance",
            json!({
                "scheme": geometry.scheme.to_string(),
                "drives": geometry.drives,
                "failures": question.failures,
                "fill": question.fill_percent,
                "uniformity": {
                    "data": report.uniformity.data,
                    "parity": report.uniformity.parity,
                    "spare": report.uniformity.spare,
                },
                "rebuild": load(&report.rebuild),
                "worst": report.worst.total,
                "worst_case": { "drives": set, "rebuild": load(&report.worst) },
                "sets": report.sets,
                "exhaustive": report.exhaustive,
                "critical_share": {
                    "mean": report.critical_share.0,
                    "max": report.critical_share.1,
                },
                "predicted": {
                    "drive_bytes": drive_size.0,
                    "bytes_per_second": bandwidth.0,
                    "seconds": seconds,
                    "speedup": report.speedup(),
                },
            }),
        )?);
    }
    let mut out = stdout();
    draw::balance(&mut out, &geometry, question, &report, seconds)?;
    Ok(())
}

fn map(scheme: &SchemeArguments, json: bool) -> Result<(), LayoutError> {
    let geometry = scheme.geometry(ROWS)?;
    let entries = geometry.layout.permutations();
    if entries.is_empty() {
        return Err(LayoutError::NoPermutations {
            scheme: geometry.scheme.to_string(),
        });
    }
    // OpenZFS's maps have one byte per entry; our wider layouts have two, little-endian.
    let bytes: Vec<u8> = match geometry.drives {
        ..=256 => entries.iter().map(|entry| entry.to_le_bytes()[0]).collect(),
        _ => entries
            .iter()
            .flat_map(|entry| entry.to_le_bytes())
            .collect(),
    };
    let sha256: String = sha2::Sha256::digest(&bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let permutations: Vec<&[u16]> = entries.chunks(geometry.drives.into()).collect();
    if json {
        return Ok(print_document(
            "layout map",
            json!({
                "children": geometry.drives,
                "permutations": permutations,
                "sha256": sha256,
            }),
        )?);
    }
    let mut out = stdout();
    for permutation in permutations {
        let row: Vec<String> = permutation.iter().map(u16::to_string).collect();
        writeln!(out, "{}", row.join(" "))?;
    }
    writeln!(out, "sha256 {sha256}")?;
    Ok(())
}

fn locate(
    scheme: &SchemeArguments,
    group: u64,
    column: u16,
    rows: u64,
    json: bool,
) -> Result<(), LayoutError> {
    let geometry = scheme.geometry(rows)?;
    let layout = geometry.layout.as_ref();
    if column >= layout.columns() {
        return Err(LayoutError::OutOfRange {
            what: "column",
            asked: column.into(),
            there: layout.columns().into(),
        });
    }
    // Only layouts of tables and of parts of a drive have a last group; all others continue without end.
    let ends = geometry.scheme.family.is_pool() || layout.columns() > geometry.drives;
    let there = if ends {
        layout.groups(rows)
    } else {
        u64::from(u32::MAX)
    };
    if group >= there {
        return Err(LayoutError::OutOfRange {
            what: "group",
            asked: group,
            there,
        });
    }
    let cell = layout.cell(group, column);
    if json {
        return Ok(print_document(
            "layout locate",
            json!({ "drive": cell.seat.0, "row": cell.row }),
        )?);
    }
    writeln!(io::stdout().lock(), "drive {} row {}", cell.seat, cell.row)?;
    Ok(())
}
