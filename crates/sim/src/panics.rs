//! Failed assertions as values: a schedule that ends in one is a finding, and the value includes the place of the
//! assertion.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    /// Set while [`caught`] runs on this thread.
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
    /// Where this thread panicked last.
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// From now on a panic that [`caught`] catches is not printed. Its place is stored for the code that catches the panic.
/// This is for programs that run many schedules, most of which are shrunk from a few failing ones. Other panics, such as
/// a failed assertion of a test in the same process, are printed as before.
pub fn quiet_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !IS_CAUGHT.get() {
                return others(info);
            }
            let place = info
                .location()
                .map(|at| format!(" ({}:{})", at.file(), at.line()));
            PLACE.with_borrow_mut(|last| *last = place.unwrap_or_default());
        }));
    });
}

/// Runs `act`. A panic becomes its message, with its place if that is known.
pub(crate) fn caught<T>(act: impl FnOnce() -> T) -> Result<T, String> {
    let was = IS_CAUGHT.replace(true);
    let ended = catch_unwind(AssertUnwindSafe(act));
    IS_CAUGHT.set(was);
    ended.map_err(|panic: Box<dyn Any + Send>| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("something else than text");
        let line: String = text.chars().take(300).collect();
        format!("{line}{}", PLACE.with_borrow_mut(std::mem::take))
    })
}
