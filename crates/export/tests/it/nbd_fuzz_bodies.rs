//! Runs the bodies of the fuzz targets over the committed corpus and random mutations of it, on
//! every machine that runs tests.

#[path = "../../../../fuzz/bodies/corpus.rs"]
mod corpus;
#[path = "../../../../fuzz/bodies/nbd.rs"]
mod nbd;

use corpus::over_corpus;

#[test]
fn any_handshake_is_answered_well_and_gives_nothing_away() {
    over_corpus("nbd_handshake", nbd::handshake);
}

#[test]
fn any_request_that_reaches_the_device_is_inside_it() {
    over_corpus("nbd_request", nbd::request);
}
