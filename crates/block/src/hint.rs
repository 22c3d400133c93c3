//! Hints: what the user can try after an error. The hint is separate from the error's text.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

/// An error that may have a hint: one thing to try. The error's text contains only what went wrong and why. Callers
/// need not search the text for the beginning of the hint: names and causes contain colons and semicolons, too.
pub trait Hint: fmt::Display {
    /// One thing to try, in small letters and without a full stop: `64K`, or `name another drive`. An error that wraps
    /// another one returns the hint of the inner error.
    fn hint(&self) -> Option<Cow<'_, str>>;
}

/// An error with its hint in one line, for logs and other places that have only one line.
#[derive(Clone, Copy, Debug)]
pub struct Full<E>(pub E);

impl<E: Hint> fmt::Display for Full<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.hint() {
            Some(hint) => write!(f, "{}; try: {hint}", self.0),
            None => write!(f, "{}", self.0),
        }
    }
}

impl<E: Hint + fmt::Debug> Error for Full<E> {}

impl<E: Hint + ?Sized> Hint for &E {
    fn hint(&self) -> Option<Cow<'_, str>> {
        (**self).hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ByteSize;

    #[test]
    fn a_line_has_the_error_and_then_its_hint() {
        let error = "a; b: c".parse::<ByteSize>().unwrap_err();
        assert_eq!(error.to_string(), "`a; b: c` is not a size");
        let hint =
            "write a number with an optional unit K, M, G, T or P (binary), such as 64K or 1.5G";
        assert_eq!(error.hint().as_deref(), Some(hint));
        assert_eq!(Full(&error).to_string(), format!("{error}; try: {hint}"));
    }
}
