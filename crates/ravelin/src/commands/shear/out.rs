//! The output of a run: text, and files for `--out`.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;

use serde_json::Value;
use shear::{Belief, Family, Shear};

use super::super::common::{document, size};

/// Columns of the curve in the terminal.
const WIDTH: usize = 64;
/// Rows of it.
const HEIGHT: usize = 8;
/// Chunks of the map in the terminal; more are in the files.
const CHUNKS_SHOWN: u32 = 48;

/// Writes the belief for people.
pub(super) fn print(
    out: &mut dyn Write,
    shear: &Shear,
    belief: &Belief,
    advice: &Value,
    seconds: f64,
) -> io::Result<()> {
    curve(out, &shear.curve())?;
    map(out, &shear.pairs())?;
    let known = |bytes: Option<u64>| bytes.map_or("not known".to_owned(), size);
    let family = match belief.family {
        Family::Classic => "classic",
        Family::Declustered => "declustered",
        Family::None => "one drive",
        Family::Unknown => "cannot be told",
    };
    writeln!(out, "family      {family}")?;
    writeln!(out, "pattern     {}", known(belief.pattern_bytes))?;
    writeln!(out, "chunk       {}", known(belief.chunk_bytes))?;
    writeln!(out, "full stripe {}", known(belief.stripe_bytes))?;
    let drives = belief
        .drives
        .map_or("not known".to_owned(), |drives| drives.to_string());
    writeln!(out, "drives      {drives}")?;
    if !belief.layout.is_empty() {
        writeln!(out, "layout      {}", belief.layout.join(" or "))?;
    }
    let redundancy = serde_json::to_value(belief.redundancy)?;
    writeln!(
        out,
        "redundancy  {}",
        redundancy.as_str().unwrap_or("unknown")
    )?;
    if let (Some(width), Some(cell)) = (belief.data_width, belief.cell_bytes) {
        writeln!(
            out,
            "declustered {width} data chunks in a stripe, cells of {}",
            size(cell)
        )?;
    }
    for seat in &belief.degraded {
        writeln!(out, "missing     the drive at position {seat}")?;
    }
    for (seat, ratio) in &belief.odd_drives {
        writeln!(
            out,
            "odd         the drive at position {seat} takes {ratio} times as long"
        )?;
    }
    for (one, other) in &belief.misconfigured {
        writeln!(
            out,
            "one spindle positions {one} and {other} are the same drive"
        )?;
    }
    for reason in &belief.reasons {
        writeln!(out, "because     {reason}")?;
    }
    writeln!(
        out,
        "confidence  {:.4}, {} requests in {seconds:.1} s",
        belief.confidence,
        shear.ios()
    )?;
    for tool in ["mkfs.ext4", "mkfs.xfs"] {
        if let Some(line) = advice[tool].as_str() {
            writeln!(out, "            {line}")?;
        }
    }
    if let Some(start) = advice["partition_start_bytes"].as_u64() {
        writeln!(
            out,
            "            partitions from byte {start}, sector {}",
            start / 512
        )?;
    }
    Ok(())
}

/// Strides against times, as dots.
fn curve(out: &mut dyn Write, points: &[(u64, f64)]) -> io::Result<()> {
    let longest = points.iter().map(|&(stride, _)| stride).max().unwrap_or(0);
    let slowest = points.iter().map(|&(_, time)| time).fold(0.0, f64::max);
    if longest == 0 || slowest <= 0.0 {
        return Ok(());
    }
    let mut grid = vec![vec![' '; WIDTH]; HEIGHT];
    for &(stride, time) in points {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a place in a small grid"
        )]
        let (x, y) = (
            ((stride as f64).ln() / (longest as f64).ln() * (WIDTH - 1) as f64) as usize,
            ((1.0 - time / slowest) * (HEIGHT - 1) as f64).round() as usize,
        );
        grid[y.min(HEIGHT - 1)][x.min(WIDTH - 1)] = '•';
    }
    writeln!(
        out,
        "time of a burst against its stride (logarithmic, to {})",
        size(longest)
    )?;
    for row in grid {
        writeln!(out, "│{}", row.into_iter().collect::<String>().trim_end())?;
    }
    writeln!(out, "└{}", "─".repeat(WIDTH))
}

/// The map of chunk pairs: a cell is full if the two chunks wait for each other.
fn map(out: &mut dyn Write, pairs: &[(u32, u32, f64)]) -> io::Result<()> {
    let count = pairs
        .iter()
        .map(|&(a, b, _)| a.max(b) + 1)
        .max()
        .unwrap_or(0);
    if count == 0 {
        return Ok(());
    }
    let shown = count.min(CHUNKS_SHOWN);
    writeln!(
        out,
        "chunks that share drives: █ all, ▒ some, · none, blank not asked"
    )?;
    for row in 0..shown {
        let line: String = (0..shown)
            .map(|column| {
                let asked = pairs
                    .iter()
                    .rev()
                    .find(|&&(a, b, _)| (a, b) == (row, column) || (a, b) == (column, row));
                match asked {
                    _ if row == column => '█',
                    Some(&(_, _, ratio)) if ratio > 0.82 => '█',
                    Some(&(_, _, ratio)) if ratio > 0.6 => '▒',
                    Some(_) => '·',
                    None => ' ',
                }
            })
            .collect();
        writeln!(out, "  {}", line.trim_end())?;
    }
    if shown < count {
        writeln!(out, "  ({count} chunks, {shown} shown)")?;
    }
    Ok(())
}

/// belief.json, curve.csv, pairs.csv, index.html.
pub(super) fn write(
    directory: &Path,
    target: &str,
    shear: &Shear,
    belief: &Belief,
    fields: &Value,
) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let put = |name: &str, text: String| std::fs::write(directory.join(name), text);
    put(
        "belief.json",
        format!("{:#}\n", document("shear", fields.clone())),
    )?;
    let mut csv = "stride_bytes,seconds\n".to_owned();
    for (stride, time) in shear.curve() {
        let _ = writeln!(csv, "{stride},{time}");
    }
    put("curve.csv", csv)?;
    let mut csv = "chunk,other,time_ratio\n".to_owned();
    for (a, b, ratio) in shear.pairs() {
        let _ = writeln!(csv, "{a},{b},{ratio}");
    }
    put("pairs.csv", csv)?;
    let mut summary = Vec::new();
    print(
        &mut summary,
        shear,
        belief,
        &fields["advice"],
        fields["seconds"].as_f64().unwrap_or(0.0),
    )?;
    put(
        "index.html",
        page(target, &String::from_utf8_lossy(&summary), shear),
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

fn page(target: &str, summary: &str, shear: &Shear) -> String {
    let title = escaped(target);
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\
         <style>body{{font:15px sans-serif;max-width:60em;margin:2em auto}}pre{{font-size:12px;overflow:auto}}svg{{max-width:100%}}</style>\
         <h1>{title}</h1><h2>Pattern</h2>{}<h2>Chunk pairs</h2>{}<h2>Summary</h2><pre>{}</pre></html>\n",
        curve_svg(&shear.curve()),
        pairs_svg(&shear.pairs()),
        escaped(summary)
    )
}

#[expect(clippy::cast_precision_loss, reason = "coordinates")]
fn curve_svg(points: &[(u64, f64)]) -> String {
    let strides = || points.iter().map(|&(stride, _)| stride);
    let (least, most) = (
        strides().min().unwrap_or(1).max(1),
        strides().max().unwrap_or(1).max(2),
    );
    let (shortest, longest) = (least as f64, most as f64);
    let slowest = points
        .iter()
        .map(|&(_, time)| time)
        .fold(f64::MIN_POSITIVE, f64::max);
    let span = (longest / shortest).ln().max(1e-9);
    let mut svg = "<svg viewBox=\"0 0 640 260\" role=\"img\" aria-label=\"time of a burst against its stride\">\
                   <path d=\"M50 10V220H630\" fill=\"none\" stroke=\"#666\"/>"
        .to_owned();
    for &(stride, time) in points {
        let x = 50.0 + 570.0 * (stride as f64 / shortest).ln() / span;
        let y = 220.0 - 200.0 * time / slowest;
        let _ = write!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"#06c\"><title>{stride} bytes: {time:.4} s</title></circle>"
        );
    }
    let _ = write!(
        svg,
        "<text x=\"50\" y=\"245\" font-size=\"12\">stride {} to {}</text><text x=\"4\" y=\"16\" font-size=\"12\">{slowest:.3} s</text></svg>",
        size(least),
        size(most)
    );
    svg
}

fn pairs_svg(pairs: &[(u32, u32, f64)]) -> String {
    let count = pairs
        .iter()
        .map(|&(a, b, _)| a.max(b) + 1)
        .max()
        .unwrap_or(0);
    let cell = (480 / count.max(1)).clamp(2, 24);
    let side = cell * count;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {side} {side}\" width=\"{side}\" role=\"img\" aria-label=\"chunk pairs\"><rect width=\"{side}\" height=\"{side}\" fill=\"#eee\"/>"
    );
    for &(a, b, ratio) in pairs {
        let shade = format!("{:.0}", (ratio.clamp(0.0, 1.0) * 255.0));
        for (x, y) in [(a, b), (b, a)] {
            let _ = write!(
                svg,
                "<rect x=\"{}\" y=\"{}\" width=\"{cell}\" height=\"{cell}\" fill=\"rgb({shade},{shade},{shade})\"><title>{a}, {b}: {ratio:.2}</title></rect>",
                x * cell,
                y * cell
            );
        }
    }
    svg.push_str("</svg>");
    svg
}
