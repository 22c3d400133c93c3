//! The body of the fuzz target for drive names, over the committed corpus and random mutations.

#[path = "../../../../fuzz/bodies/corpus.rs"]
mod corpus;
#[path = "../../../../fuzz/bodies/uri.rs"]
mod uri;

#[test]
fn any_name_of_a_drive_is_refused_or_reads_back() {
    corpus::over_corpus("drive_uri", uri::drive_uri);
}
