//! A page per paper: every study's plots, rows and model. One file without scripts or external
//! resources.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{number, svg};
use crate::paper::Paper;
use crate::report::Report;
use crate::row::{Row, Verdict};

const STYLE: &str = "
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff; margin: 2rem auto; max-width: 72rem; padding: 0 1.5rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin-bottom: .2rem; }
h2 { font-size: 1.25rem; margin: 3rem 0 .4rem; border-top: 2px solid #ddd; padding-top: 1.2rem; }
p { max-width: 54rem; } .by { color: #555; margin-top: 0; }
code { background: #f3f3f3; padding: .1em .35em; border-radius: 3px; font-size: .9em; }
figure { margin: 1rem 0; } figure svg { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-size: .87rem; width: 100%; margin: .6rem 0 1rem; }
th, td { text-align: left; padding: .28rem .6rem; border-bottom: 1px solid #e4e4e4; vertical-align: top; }
th { border-bottom: 2px solid #bbb; } .n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.v { white-space: nowrap; font-weight: 600; } .holds { color: #00694d; } .differs { color: #a34700; } .alone { color: #666; font-weight: 400; }
td small { color: #666; } summary { cursor: pointer; color: #0072b2; margin: .4rem 0; }
.model { color: #555; font-size: .92rem; } footer { margin-top: 3rem; color: #777; font-size: .85rem; }
";

/// The page of one paper.
#[must_use]
pub fn page(paper: &Paper, reports: &[&Report], version: &str) -> String {
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (paper.title) " · Ravelin's lab" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (paper.title) }
                p.by { (paper.authors) " · " (paper.from) }
                p {
                    "What the paper measured, measured again. Every number of ours comes from the "
                    "command beside it; a diamond in a plot is the paper's number, as far as its text "
                    "gives one. A number " span.v.holds { "holds" } " or " span.v.differs { "differs" }
                    " by the rule of its study; the note says why."
                }
                (contents(reports))
                @for report in reports { (study(report)) }
                footer { "Ravelin " (version) }
            }
        }
    };
    markup.into_string()
}

fn contents(reports: &[&Report]) -> Markup {
    html! {
        table {
            thead { tr { th { "Study" } th { "Shows" } th.n { "Holds" } th.n { "Differs" } th.n { "Not comparable" } } }
            tbody {
                @for report in reports {
                    @let counts = report.verdicts();
                    tr {
                        td { a href={ "#" (report.about.id) } { (report.about.id) } }
                        td { (report.about.title) }
                        td.n { (counts.holds) } td.n { (counts.differs) } td.n { (counts.not_comparable) }
                    }
                }
            }
        }
    }
}

fn study(report: &Report) -> Markup {
    let (compared, alone): (Vec<&Row>, Vec<&Row>) =
        report.rows.iter().partition(|row| row.paper.is_some());
    html! {
        section id=(report.about.id) {
            h2 { (report.about.title) }
            p { (report.about.question) }
            @if !report.charts.is_empty() {
                figure { (PreEscaped(svg(&report.charts))) }
            }
            @if !compared.is_empty() { (table(&compared)) }
            @if !alone.is_empty() {
                details open[compared.is_empty()] {
                    summary { (alone.len()) " numbers that the paper does not have" }
                    (table(&alone))
                }
            }
            p.model { b { "Model. " } (report.model) }
            p.model { code { (report.command()) } ", trace " code { (format!("{:016x}", report.trace)) } }
        }
    }
}

fn table(rows: &[&Row]) -> Markup {
    html! {
        table {
            thead { tr {
                th { "What" } th.n { "Ours" } th.n { "Paper" } th { "Unit" } th.n { "Ours ÷ paper" }
                th { "Verdict" } th { "Note" }
            } }
            tbody { @for row in rows { (line(row)) } }
        }
    }
}

fn line(row: &Row) -> Markup {
    let class = match row.verdict {
        Verdict::Holds => "holds",
        Verdict::Differs(_) => "differs",
        Verdict::NotComparable(_) => "alone",
    };
    html! {
        tr id=(row.id) {
            td { (row.name) br; small { (row.id) } }
            td.n {
                (number(row.ours))
                @if let Some((low, high)) = row.band { br; small { (number(low)) " – " (number(high)) } }
            }
            td.n { (row.paper.map_or_else(String::new, number)) }
            td { (row.unit.symbol()) }
            td.n { (row.ratio().map_or_else(String::new, number)) }
            td class={ "v " (class) } { (row.verdict.word()) }
            td { (row.note().unwrap_or_default()) }
        }
    }
}
