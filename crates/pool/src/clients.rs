//! Whether clients send requests: fills and scrubs of all lanes make way for clients of any lane.
//!
//! Input: whether lanes are to report, and their reports. Output: whether any clients send requests, when that changes.

use std::collections::BTreeSet;

/// The lanes' reports on their clients.
#[derive(Clone, Debug, Default)]
pub(super) struct Clients {
    /// Lanes are to report: a fill or a scrub is under way.
    watched: bool,
    /// Lanes whose clients send requests.
    asking: BTreeSet<u16>,
}

impl Clients {
    /// Sets whether lanes are to report from now on; returns true if that is a change.
    pub(super) fn watch(&mut self, watched: bool) -> bool {
        let changed = std::mem::replace(&mut self.watched, watched) != watched;
        if changed {
            self.asking.clear();
        }
        changed
    }

    /// Whether clients send requests, as far as lanes report.
    pub(super) fn any_ask(&self) -> bool {
        !self.asking.is_empty()
    }

    /// A lane's clients have begun to send requests, or have sent none for a while. Returns whether any clients send
    /// requests, if that has changed.
    pub(super) fn ask(&mut self, lane: u16, ask: bool) -> Option<bool> {
        if !self.watched {
            // The lane sent the report before it got the command to stop.
            return None;
        }
        let asked = !self.asking.is_empty();
        if ask {
            self.asking.insert(lane);
        } else {
            self.asking.remove(&lane);
        }
        let asks = !self.asking.is_empty();
        (asks != asked).then_some(asks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_lane_to_ask_and_the_last_to_stop_are_changes() {
        let mut clients = Clients::default();
        assert_eq!(clients.ask(0, true), None, "not watched");
        assert!(clients.watch(true) && !clients.watch(true));
        let said = [
            (0, true),
            (1, true),
            (0, true),
            (0, false),
            (1, false),
            (1, false),
        ];
        let changes = said.map(|(lane, ask)| clients.ask(lane, ask));
        assert_eq!(changes, [Some(true), None, None, None, Some(false), None]);
        clients.ask(2, true);
        clients.watch(false);
        clients.watch(true);
        assert_eq!(clients.ask(3, true), Some(true), "lane 2 is forgotten");
    }
}
