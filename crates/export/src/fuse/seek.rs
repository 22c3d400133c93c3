//! `SEEK_HOLE` and `SEEK_DATA`: where the next hole, or the next data, begins.

use std::sync::Arc;

use block::{BlockDevice, Extent, ExtentsAnswer};
use rustix::io::Errno;

const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

/// A search: what to find, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Search {
    at: u64,
    hole: bool,
    /// Size of the device at the beginning of the search.
    end: u64,
}

/// The result of a step of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Found(u64),
    /// Not found yet; continue with this search.
    GoOn(Search),
    Nothing,
}

impl Search {
    /// Searches the device's extents, which begin at `at`.
    fn look(self, extents: &[Extent]) -> Step {
        let mut at = self.at;
        for extent in extents {
            if extent.hole == self.hole && extent.length > 0 {
                return Step::Found(at);
            }
            at += extent.length;
            if at >= self.end {
                break;
            }
        }
        match (at >= self.end, self.hole) {
            // Every file ends with an implicit hole (`lseek`).
            (true, true) => Step::Found(self.end),
            (true, false) => Step::Nothing,
            // The device reports no extents: treat all bytes as data.
            (false, true) if at == self.at => Step::Found(self.end),
            (false, false) if at == self.at => Step::Found(at),
            (false, _) => Step::GoOn(Self { at, ..self }),
        }
    }
}

/// Finds the next hole or the next data from `offset` on. Calls `answer` with its start when the device has reported
/// its extents.
pub(super) fn begin(
    device: &Arc<dyn BlockDevice>,
    (offset, whence): (u64, u32),
    answer: impl FnOnce(Result<u64, Errno>) + Send + 'static,
) {
    let end = device.limits().size_bytes;
    let hole = match whence {
        SEEK_HOLE => true,
        SEEK_DATA => false,
        _ => return answer(Err(Errno::INVAL)),
    };
    if offset >= end {
        return answer(Err(Errno::NXIO));
    }
    let search = Search {
        at: offset,
        hole,
        end,
    };
    go_on(device, search, Box::new(answer));
}

type Answer = Box<dyn FnOnce(Result<u64, Errno>) + Send>;

fn go_on(device: &Arc<dyn BlockDevice>, search: Search, answer: Answer) {
    let asked = Arc::clone(device);
    let said = ExtentsAnswer::new(move |extents| match search.look(&extents) {
        Step::Found(at) => answer(Ok(at)),
        Step::Nothing => answer(Err(Errno::NXIO)),
        Step::GoOn(search) => go_on(&asked, search, answer),
    });
    device.find_extents(search.at, search.end - search.at, said);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_ends_where_the_wanted_kind_begins_or_at_the_end() {
        let extents =
            [(10, false), (5, true), (7, false)].map(|(length, hole)| Extent { length, hole });
        let search = |hole, end| Search { at: 100, hole, end };
        assert_eq!(search(true, 122).look(&extents), Step::Found(110));
        assert_eq!(search(false, 122).look(&extents), Step::Found(100));
        assert_eq!(search(true, 110).look(&extents[..1]), Step::Found(110));
        assert_eq!(search(false, 105).look(&extents[1..2]), Step::Nothing);
        // The device reports a part.
        let rest = Search {
            at: 110,
            ..search(true, 200)
        };
        assert_eq!(search(true, 200).look(&extents[..1]), Step::GoOn(rest));
        // It reports nothing: all of it is data.
        assert_eq!(search(false, 200).look(&[]), Step::Found(100));
        assert_eq!(search(true, 200).look(&[]), Step::Found(200));
    }
}
