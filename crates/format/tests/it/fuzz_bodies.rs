//! The bodies of the fuzz targets for on-drive formats, over the committed corpus and random mutations
//! of it.

#[path = "../../../../fuzz/bodies/corpus.rs"]
mod corpus;
#[path = "../../../../fuzz/bodies/format.rs"]
mod format;

use corpus::over_corpus;

#[test]
fn any_label_is_refused_or_reads_back() {
    over_corpus("label", format::label);
}

#[test]
fn of_any_two_cell_pages_the_newer_whole_one_counts() {
    over_corpus("cells", format::cells);
}

#[test]
fn any_anchor_and_batch_header_is_refused_or_reads_back() {
    over_corpus("journal", format::journal);
}

#[test]
fn of_any_copies_of_a_metadata_page_the_newest_whole_sectors_count() {
    over_corpus("meta_page", format::meta_page);
}
