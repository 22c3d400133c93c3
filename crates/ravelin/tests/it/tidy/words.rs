//! Retired words, ordered by subject.

/// A word that is not used any more.
pub(crate) struct Retired {
    /// The parts of the word, in lower case, with one space between.
    pub(crate) said: &'static str,
    /// The standard word.
    pub(crate) instead: &'static str,
}

const fn retired(said: &'static str, instead: &'static str) -> Retired {
    Retired { said, instead }
}

pub(crate) const RETIRED: &[Retired] = &[
    // Layouts.
    retired("refuge", "spare_for; bounce buffer"),
    retired("refuges", "spares; bounce buffers"),
    retired("spares eat all", "too many spares"),
    retired("drives unsaid", "drive count missing"),
    retired("parity unsaid", "parity missing"),
    // Lanes.
    retired("evacuate", "use the bounce buffer"),
    retired("hasty", "early"),
    retired("shunned", "avoided"),
    retired("hopeless", "unrecoverable"),
    retired("heal", "verify, repair"),
    retired("healed", "repaired"),
    retired("healing", "repairing"),
    retired("wanting", "waiter"),
    retired("thinned", "under-replicated"),
    retired("crowded", "out of space"),
    retired("stuck", "blocked"),
    retired("keeping", "preserved blocks"),
    retired("band plan", "sub-stripe plan"),
    retired("band rows", "segment rows"),
    retired("in vain", "superseded"),
    // Pool.
    retired("evidence", "proof"),
    retired("seat quiet", "seat drained"),
    retired("store facts", "region facts"),
    retired("chores", "resync"),
    retired("fading", "decaying counter"),
    retired("wounded", "unrecovered"),
    retired("misfit", "rejected"),
    retired("blanking", "journal wipe"),
    retired("blueprint", "pool specification"),
    retired("division", "drive layout of regions"),
    // Seeded faults and the simulator.
    retired("planted", "seeded fault"),
    retired("happening", "event"),
    retired("kills", "crashes"),
    retired("mistakes", "errors"),
    // Exports and the engine.
    retired("haggle", "negotiate"),
    retired("haggling", "negotiation"),
    retired("patience", "batching delay"),
    retired("nap", "batching delay"),
    retired("errand", "inline I/O"),
    retired("flights", "in flight"),
    retired("bury", "close"),
    retired("beat offset", "heartbeat offset"),
    retired("wish", "renewal; what is wanted"),
    retired("bell", "eventfd, wake-up"),
    // Commands, events and JSON.
    retired("verbs", "commands"),
    retired("unrestored", "failed restores"),
    retired("filled anew", "full rebuild"),
    retired("late together", "host stall"),
    retired("scrub goes on", "scrub resumed"),
    retired("left out", "blocks unrecovered"),
];
