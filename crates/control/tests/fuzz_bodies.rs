//! Runs the body of the fuzz target for messages over the committed corpus and random mutations of
//! it.

#[path = "../../../fuzz/bodies/control.rs"]
mod control_messages;
#[path = "../../../fuzz/bodies/corpus.rs"]
mod corpus;

#[test]
fn any_message_reads_back_and_misspelt_requests_are_refused() {
    corpus::over_corpus("control", control_messages::message);
}
