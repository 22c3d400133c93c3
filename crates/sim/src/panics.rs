//! Failed assertions as values: a schedule that ends in one is a finding, and the value includes the place of the
//! assertion.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    /// Where this thread panicked last.
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// From now on a panic is not printed. Its place is stored for the code that catches the panic. This is for programs
/// that run many schedules, most of which are shrunk from a few failing ones.
pub fn quiet_panics() {
    std::panic::set_hook(Box::new(|info| {
        let place = info
            .location()
            .map(|at| format!(" ({}:{})", at.file(), at.line()));
        PLACE.with_borrow_mut(|last| *last = place.unwrap_or_default());
    }));
}

/// Runs `act`. A panic becomes its message, with its place if that is known.
pub(crate) fn caught<T>(act: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(act)).map_err(|panic: Box<dyn Any + Send>| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("something else than text");
        let line: String = text.chars().take(300).collect();
        format!("{line}{}", PLACE.with_borrow_mut(std::mem::take))
    })
}
