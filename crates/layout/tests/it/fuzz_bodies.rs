//! The body of the fuzz target for scheme strings over the committed corpus and random mutations.

#[path = "../../../../fuzz/bodies/corpus.rs"]
mod corpus;
#[path = "../../../../fuzz/bodies/scheme.rs"]
mod scheme;

#[test]
fn any_scheme_string_reads_back_or_its_error_points_into_it() {
    corpus::over_corpus("scheme", scheme::scheme);
}
