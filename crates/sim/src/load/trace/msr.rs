//! MSR-Cambridge CSV: Timestamp, Hostname, DiskNumber, Type, Offset, Size, ResponseTime. Times are Windows file times, in
//! 100 ns. (D. Narayanan, A. Donnelly, A. Rowstron, "Write off-loading", FAST 2008; SNIA IOTTA 388.)

use block::RequestKind;

use super::{Fields, Record, TraceError};

pub(super) fn parse(text: &str) -> Result<Vec<Record>, TraceError> {
    let mut records = Vec::new();
    let mut begin = None;
    for (line, text) in (1..).zip(text.lines()) {
        if text.trim().is_empty() || (line == 1 && text.starts_with("Timestamp")) {
            continue;
        }
        let fields = Fields::of(line, text, Some(','));
        let ticks = fields.number(0, "time")?;
        let (column, kind) = fields.get(3, "type")?;
        let kind = match kind.trim().to_ascii_lowercase().as_str() {
            "read" => RequestKind::Read,
            "write" => RequestKind::Write,
            other => {
                let what = format!("`{other}` is neither Read nor Write");
                return Err(fields.error(column, what));
            }
        };
        let begin = *begin.get_or_insert(ticks);
        let at = ticks.saturating_sub(begin);
        let late = || fields.error(1, "the time is centuries after the first line's");
        records.push(Record {
            at_ns: at.checked_mul(100).ok_or_else(late)?,
            kind,
            offset: fields.number(4, "offset")? / 512 * 512,
            length: fields.number(5, "size")?.max(1).next_multiple_of(512),
        });
    }
    Ok(records)
}
