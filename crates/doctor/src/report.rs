//! The findings, for people and for programs.

use std::io::{self, Write};

use serde::Serialize;

use crate::stack::Device;

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The device with the problem.
    pub device: String,
    /// A stable word for programs, such as `degraded`.
    pub finding: &'static str,
    /// The problem, in one sentence.
    pub what: String,
    /// The command to type.
    #[serde(rename = "type")]
    pub command: String,
}

impl Finding {
    pub(crate) fn new(
        device: &Device,
        finding: &'static str,
        what: impl Into<String>,
        command: impl Into<String>,
    ) -> Self {
        Self {
            device: device.path.clone(),
            finding,
            what: what.into(),
            command: command.into(),
        }
    }
}

/// What Ravelin has to do with a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Ours {
    /// The device serves a volume.
    Volume {
        /// POOL/VOLUME.
        volume: String,
    },
    /// The device is a drive of a pool.
    Member {
        /// The pool.
        pool: String,
        /// The number of the drive.
        seat: u16,
    },
}

/// One layer as it was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Layer {
    /// Its path.
    pub device: String,
    /// `drive`, `partition`, `md`, `crypt`, `lvm`, `mapped`.
    pub layer: &'static str,
    /// Paths of the devices that it is on.
    pub on: Vec<String>,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// The kernel's minimum I/O size in bytes.
    pub minimum_io_bytes: u64,
    /// The kernel's optimal I/O size in bytes; 0: none.
    pub optimal_io_bytes: u64,
    /// `ext4` or `xfs`, if it holds one.
    pub file_system: Option<&'static str>,
    /// If it is a volume of Ravelin, or a drive of one of its pools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ravelin: Option<Ours>,
    /// The line for people.
    #[serde(skip)]
    pub line: String,
}

/// The result of an examination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Layers, lower ones first.
    pub layers: Vec<Layer>,
    /// The problems.
    pub findings: Vec<Finding>,
    /// What could not be examined, and why.
    pub notes: Vec<String>,
    /// True if there are no findings.
    pub well: bool,
}

impl Report {
    /// Writes the report for people.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let width = self.layers.iter().map(|layer| layer.device.len()).max();
        let width = width.unwrap_or(0);
        for layer in &self.layers {
            writeln!(out, "{:width$}  {}", layer.device, layer.line)?;
        }
        if !self.layers.is_empty() {
            writeln!(out)?;
        }
        for finding in &self.findings {
            writeln!(out, "{}: {}", finding.device, finding.what)?;
            writeln!(out, "  type: {}", finding.command)?;
        }
        for note in &self.notes {
            writeln!(out, "note: {note}")?;
        }
        match (self.findings.len(), self.notes.is_empty()) {
            (0, true) => writeln!(out, "All is well."),
            (0, false) => writeln!(out, "Nothing is wrong in what could be read."),
            (1, _) => writeln!(out, "1 finding."),
            (many, _) => writeln!(out, "{many} findings."),
        }
    }
}
