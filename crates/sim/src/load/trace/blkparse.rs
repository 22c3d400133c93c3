//! blkparse's default text: `maj,min cpu sequence seconds pid action rwbs sector + sectors [process]`. Of all events,
//! only a request's queueing (action Q) counts. A summary by processor follows the events.

use block::RequestKind;

use super::{Fields, Record, TraceError};

pub(super) fn parse(text: &str) -> Result<Vec<Record>, TraceError> {
    let mut records = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        if text.trim().is_empty() {
            continue;
        }
        if text.starts_with("CPU") || text.starts_with("Total") {
            break;
        }
        let fields = Fields::of(line, text, None);
        let (column, device) = fields.get(0, "device")?;
        let numbers = device.split_once(',');
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !numbers.is_some_and(|(major, minor)| is_number(major) && is_number(minor)) {
            let what = format!(
                "`{device}` is not a device such as 8,0: the recording is neither MSR CSV, blkparse text nor a fio iolog"
            );
            return Err(fields.error(column, what));
        }
        let at_ns = seconds(&fields, 3)?;
        let (_, action) = fields.get(5, "action")?;
        if action != "Q" {
            continue;
        }
        let (column, flags) = fields.get(6, "kind (RWBS)")?;
        let kind = match flags {
            flags if flags.contains('D') => RequestKind::Trim,
            flags if flags.contains('W') => RequestKind::Write,
            flags if flags.contains('R') => RequestKind::Read,
            flags if flags.contains('F') => {
                records.push(Record {
                    at_ns,
                    kind: RequestKind::Flush,
                    offset: 0,
                    length: 0,
                });
                continue;
            }
            other => {
                let what = format!("`{other}` has none of R, W, D and F");
                return Err(fields.error(column, what));
            }
        };
        if fields.len() < 10 {
            // A flush with data of its own elsewhere: no sectors.
            fields.get(9, "number of sectors")?;
        }
        records.push(Record {
            at_ns,
            kind,
            offset: fields.scaled(7, "sector", 512)?,
            length: fields.scaled(9, "number of sectors", 512)?,
        });
    }
    Ok(records)
}

/// `seconds.nanoseconds` as nanoseconds.
fn seconds(fields: &Fields<'_>, index: usize) -> Result<u64, TraceError> {
    let (column, text) = fields.get(index, "time")?;
    let wrong = || fields.error(column, format!("`{text}` is not a time in seconds"));
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    if part.len() > 9 || !part.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    let nanos: u64 = format!("{part:0<9}").parse().map_err(|_| wrong())?;
    let all = whole.checked_mul(1_000_000_000);
    all.and_then(|all| all.checked_add(nanos)).ok_or_else(wrong)
}
