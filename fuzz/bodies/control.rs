//! Invariants of any message to or from the daemon: parsing a written message gives the same
//! message, and a request with an unknown field is refused.

use std::fmt::Debug;

use control::api::{
    Attach, ClosePool, CreatePool, CreateVolume, DriveChange, ErrorBody, Events, Exports,
    FoundPools, Import, Pools, ResizeVolume, Scan, ScrubPool, Status, Volumes,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Requests.
const ASKS: &[fn(&[u8])] = &[
    asks::<CreatePool>,
    asks::<ScrubPool>,
    asks::<Scan>,
    asks::<Import>,
    asks::<DriveChange>,
    asks::<CreateVolume>,
    asks::<ResizeVolume>,
    asks::<Attach>,
    asks::<ClosePool>,
];

/// Answers.
const ANSWERS: &[fn(&[u8])] = &[
    reads_back::<ErrorBody>,
    reads_back::<Pools>,
    reads_back::<FoundPools>,
    reads_back::<Status>,
    reads_back::<Events>,
    reads_back::<Volumes>,
    reads_back::<Exports>,
];

/// The first byte selects the message type, the rest is the text.
pub(crate) fn message(data: &[u8]) {
    if let Some((&choice, text)) = data.split_first() {
        let all = ASKS.len() + ANSWERS.len();
        let check = ASKS.iter().chain(ANSWERS).nth(usize::from(choice) % all);
        check.expect("one of them")(text);
    }
}

fn asks<T: DeserializeOwned + Serialize + PartialEq + Debug>(text: &[u8]) {
    reads_back::<T>(text);
    if serde_json::from_slice::<T>(text).is_ok()
        && let Ok(Value::Object(mut fields)) = serde_json::from_slice(text)
    {
        fields.insert("misspelt".to_owned(), Value::Null);
        let more = serde_json::from_value::<T>(Value::Object(fields));
        assert!(more.is_err(), "{more:?}");
    }
}

fn reads_back<T: DeserializeOwned + Serialize + PartialEq + Debug>(text: &[u8]) {
    if let Ok(message) = serde_json::from_slice::<T>(text) {
        let written = serde_json::to_vec(&message).unwrap();
        let again: T = serde_json::from_slice(&written).unwrap();
        // JSON keeps a fraction except perhaps its last bit.
        let value: Value = serde_json::from_slice(&written).unwrap();
        assert!(again == message || has_fraction(&value), "{message:?}");
    }
}

fn has_fraction(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64(),
        Value::Array(values) => values.iter().any(has_fraction),
        Value::Object(fields) => fields.values().any(has_fraction),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}
