//! Invariants of any scheme string: parsing the printed scheme gives the same scheme, and an error
//! points into the string.

use layout::Scheme;

/// The input is the text.
pub(crate) fn scheme(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match text.parse::<Scheme>() {
        Ok(scheme) => {
            let printed = scheme.to_string();
            assert_eq!(printed.parse::<Scheme>().as_ref(), Ok(&scheme), "{printed}");
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            let span = error.span();
            assert!(text.get(span.clone()).is_some(), "{span:?} of {text:?}");
        }
    }
}
