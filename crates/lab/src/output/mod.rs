//! Reports as files.
//!
//! ```text
//! DIR/dcode-fig4.json      the document of `ravelin lab run dcode-fig4 --json`
//!     dcode-fig4.csv       its rows
//!     dcode-fig4.vl.json   its plots as one Vega-Lite specification, data inside
//!     dcode-fig4.svg       its plots
//!     dcode.html           the paper's page: all studies of the run, plots inline, no script
//! ```
//!
//! Each file is written under a temporary name and renamed, so that existing files are complete.

mod csv;
mod html;
mod svg;
mod vega;

use std::borrow::Cow;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use block::Hint;
use serde_json::json;

use crate::report::Report;

pub use html::page;
pub use svg::svg;
pub use vega::vega_lite;

/// A file of the lab could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {error}", path.display())]
pub struct OutputError {
    /// Path of the file.
    pub path: PathBuf,
    /// The cause.
    #[source]
    pub error: io::Error,
}

impl Hint for OutputError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        Some("give --out a folder that can be written to".into())
    }
}

/// A folder for results.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
    version: &'static str,
}

impl Folder {
    /// The folder at `path`, which is created if it does not exist; `version` is written into the
    /// documents. The contents of the folder do not change.
    ///
    /// # Errors
    ///
    /// [`OutputError`] when files cannot be created there.
    pub fn open(path: &Path, version: &'static str) -> Result<Self, OutputError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            |error| OutputError { path, error }
        };
        std::fs::create_dir_all(path).map_err(failed(path))?;
        let probe = path.join(format!(".ravelin-lab-{}", std::process::id()));
        std::fs::File::create_new(&probe).map_err(failed(path))?;
        std::fs::remove_file(&probe).map_err(failed(&probe))?;
        Ok(Self {
            path: path.to_owned(),
            version,
        })
    }

    /// The path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the files of one study.
    ///
    /// # Errors
    ///
    /// [`OutputError`] for the first file that cannot be written.
    pub fn put(&self, report: &Report) -> Result<(), OutputError> {
        let name = |ending: &str| format!("{}.{ending}", report.about.id);
        let document = serde_json::to_string_pretty(&document(report, self.version))
            .expect("strings and numbers are JSON");
        self.write(&name("json"), document.as_bytes())?;
        self.write(&name("csv"), csv::rows(report).as_bytes())?;
        if !report.charts.is_empty() {
            let vega = serde_json::to_string_pretty(&vega_lite(report))
                .expect("strings and numbers are JSON");
            self.write(&name("vl.json"), vega.as_bytes())?;
            self.write(&name("svg"), svg(&report.charts).as_bytes())?;
        }
        Ok(())
    }

    /// Writes a page for every paper in the reports, and returns the paths.
    ///
    /// # Errors
    ///
    /// [`OutputError`] for the first page that cannot be written.
    pub fn put_pages(&self, reports: &[Report]) -> Result<Vec<PathBuf>, OutputError> {
        let mut pages: Vec<PathBuf> = Vec::new();
        for report in reports {
            let paper = report.about.paper;
            let name = format!("{}.html", paper.id);
            if pages.iter().any(|page| page.ends_with(&name)) {
                continue;
            }
            let of_paper: Vec<&Report> = reports
                .iter()
                .filter(|other| other.about.paper == paper)
                .collect();
            self.write(&name, page(paper, &of_paper, self.version).as_bytes())?;
            pages.push(self.path.join(&name));
        }
        Ok(pages)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), OutputError> {
        let path = self.path.join(name);
        let beside = self.path.join(format!(".{name}.new"));
        let written = std::fs::File::create(&beside)
            .and_then(|mut file| file.write_all(bytes))
            .and_then(|()| std::fs::rename(&beside, &path));
        written.map_err(|error| OutputError { path, error })
    }
}

/// The document of one report.
#[must_use]
pub fn document(report: &Report, version: &str) -> serde_json::Value {
    let mut document = json!({ "ravelin": version, "kind": "lab run" });
    let fields = serde_json::to_value(report).expect("strings and numbers are JSON");
    if let (Some(all), serde_json::Value::Object(fields)) = (document.as_object_mut(), fields) {
        all.extend(fields);
    }
    document
}

/// A number for readers: four significant digits, and no more than the value needs.
#[must_use]
pub fn number(value: f64) -> String {
    if value.is_infinite() {
        return if value > 0.0 { "∞" } else { "−∞" }.to_owned();
    }
    let digits = match value.abs() {
        size if size >= 1000.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 10.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    match text {
        "-0" => "0".to_owned(),
        text => text.replace('-', "−"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_digits_at_most() {
        for (value, expected) in [
            (2.593_4, "2.593"),
            (16.04, "16.04"),
            (130.84, "130.8"),
            (2_469_538.0, "2469538"),
            (-0.5, "−0.5"),
            (-0.000_01, "0"),
            (4.0, "4"),
            (f64::INFINITY, "∞"),
        ] {
            assert_eq!(number(value), expected);
        }
    }
}
