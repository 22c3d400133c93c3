//! fio's iolog: version 2 (`file action [offset length]`, times by `wait` in microseconds) and version 3 (milliseconds
//! before each line). `add`, `open` and `close` of files are not requests.

use block::RequestKind;

use super::{Fields, Record, TraceError};

pub(super) fn parse(text: &str) -> Result<Vec<Record>, TraceError> {
    let mut records = Vec::new();
    let mut version = None;
    let mut at_ns = 0_u64;
    for (line, text) in (1..).zip(text.lines()) {
        if text.trim().is_empty() {
            continue;
        }
        let fields = Fields::of(line, text, None);
        let Some(version) = version else {
            let (column, found) = fields.get(2, "version")?;
            version = match found {
                "2" => Some(2),
                "3" => Some(3),
                other => {
                    let what = format!("version `{other}` of the iolog is neither 2 nor 3");
                    return Err(fields.error(column, what));
                }
            };
            continue;
        };
        // The file, and in version 3 the time before it.
        let first = usize::from(version == 3);
        if version == 3 {
            at_ns = fields.scaled(0, "time", 1_000_000)?;
        }
        fields.get(first, "file")?;
        let (column, action) = fields.get(first + 1, "action")?;
        let kind = match action {
            "add" | "open" | "close" => continue,
            "wait" => {
                let wait = fields.scaled(first + 2, "wait", 1_000)?;
                at_ns = at_ns.saturating_add(wait);
                continue;
            }
            "read" => RequestKind::Read,
            "write" => RequestKind::Write,
            "trim" => RequestKind::Trim,
            "sync" | "datasync" => RequestKind::Flush,
            other => {
                let what = format!(
                    "`{other}` is not an action of an iolog: read, write, trim, sync, datasync, wait, add, open or close"
                );
                return Err(fields.error(column, what));
            }
        };
        let (offset, length) = match kind {
            RequestKind::Flush => (0, 0),
            _ => (
                fields.number(first + 2, "offset")? / 512 * 512,
                fields
                    .number(first + 3, "length")?
                    .max(1)
                    .next_multiple_of(512),
            ),
        };
        records.push(Record {
            at_ns,
            kind,
            offset,
            length,
        });
    }
    Ok(records)
}
