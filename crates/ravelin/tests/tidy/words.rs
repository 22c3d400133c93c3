//! Retired words, in the order of what they are about.

/// A word that is not used any more.
pub(crate) struct Retired {
    /// Its parts, lower case, one space between.
    pub(crate) said: &'static str,
    /// The standard word.
    pub(crate) instead: &'static str,
    /// Places that still say it. The number only falls; at 0 the word is gone.
    pub(crate) places: usize,
}

const fn retired(said: &'static str, instead: &'static str, places: usize) -> Retired {
    Retired {
        said,
        instead,
        places,
    }
}

pub(crate) const RETIRED: &[Retired] = &[
    // Layouts.
    retired("refuge", "spare_for; bounce buffer", 0),
    retired("refuges", "spares; bounce buffers", 0),
    retired("spares eat all", "too many spares", 0),
    retired("drives unsaid", "drive count missing", 0),
    retired("parity unsaid", "parity missing", 0),
    // Lanes.
    retired("evacuate", "use the bounce buffer", 0),
    retired("hasty", "early", 0),
    retired("shunned", "avoided", 0),
    retired("hopeless", "unrecoverable", 0),
    retired("heal", "verify, repair", 0),
    retired("healed", "repaired", 5),
    retired("healing", "repairing", 0),
    retired("wanting", "waiter", 0),
    retired("thinned", "under-replicated", 0),
    retired("crowded", "out of space", 1),
    retired("stuck", "blocked", 5),
    retired("keeping", "preserved blocks", 0),
    // Pool.
    retired("chores", "resync", 0),
    retired("fading", "decaying counter", 0),
    retired("wounded", "unrecovered", 6),
    retired("misfit", "rejected", 5),
    retired("blanking", "journal wipe", 8),
    retired("blueprint", "pool specification", 17),
    retired("division", "drive layout of regions", 11),
    // Seeded faults and the simulator.
    retired("planted", "seeded fault", 10),
    retired("happening", "event", 12),
    // Exports and the engine.
    retired("haggle", "negotiate", 0),
    retired("haggling", "negotiation", 0),
    retired("patience", "batching delay", 17),
    retired("nap", "batching delay", 5),
    retired("errand", "inline I/O", 11),
    retired("flights", "in flight", 15),
    retired("bury", "close", 2),
    // Commands, events and JSON.
    retired("verbs", "commands", 14),
    retired("unrestored", "failed restores", 22),
    retired("filled anew", "full rebuild", 3),
    retired("late together", "host stall", 4),
    retired("scrub goes on", "scrub resumed", 5),
    retired("left out", "blocks unrecovered", 15),
];
