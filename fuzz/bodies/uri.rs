//! Invariant of any drive name: parsing the printed name gives the same name.

use engine::drive::DriveUri;

/// The input is the text.
pub(crate) fn drive_uri(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match text.parse::<DriveUri>() {
        Ok(uri) => {
            let printed = uri.to_string();
            assert_eq!(printed.parse::<DriveUri>().as_ref(), Ok(&uri), "{printed}");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
