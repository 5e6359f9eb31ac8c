//! Panics of another library, turned into errors.

use std::any::Any;
use std::cell::Cell;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Whether this crate is about to catch a panic of the current thread and to return an error for it.
///
/// The Parquet library panics on some damaged files. Rust calls the panic hook before a panic is caught, and
/// the default hook prints a message. A program that does not want the message in addition to the error sets
/// a hook that calls this function:
///
/// ```
/// let default = std::panic::take_hook();
/// std::panic::set_hook(Box::new(move |panic| {
///     if !cloze_data::panic_becomes_error() {
///         default(panic);
///     }
/// }));
/// ```
pub fn panic_becomes_error() -> bool {
    GUARDED.try_with(Cell::get).unwrap_or(false)
}

/// A caught panic's message.
pub fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

/// The result of `read`. A panic within it also becomes an error.
pub(crate) fn guarded<T, E: Display>(read: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    let outer = GUARDED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(read));
    GUARDED.set(outer);
    match result {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err("its contents contradict each other".into()),
    }
}

/// The result of `work`, or the message if it panics. Meanwhile [`panic_becomes_error`] is `true`.
///
/// # Errors
/// The panic's message.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let outer = GUARDED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(outer);
    result.map_err(|panic| panic_message(panic.as_ref()).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_panic_says_is_text_where_it_is_any() {
        let said = |panic: Box<dyn Any + Send>| panic_message(panic.as_ref()).to_owned();
        assert_eq!(
            [said(Box::new("lost")), said(Box::new("lost".to_owned())), said(Box::new(3))],
            ["lost", "lost", "no message"]
        );
    }

    #[test]
    fn a_panic_is_an_error_and_only_within() {
        assert!(!panic_becomes_error());
        let inside = guarded(|| {
            let inner: Result<(), String> =
                guarded(|| if panic_becomes_error() { panic!("as it should") } else { Ok::<_, String>(()) });
            assert_eq!(inner, Err("its contents contradict each other".into()));
            Ok::<_, String>(panic_becomes_error())
        });
        assert_eq!(inside, Ok(true));
        assert_eq!(guarded(|| Err::<(), _>("no")), Err("no".into()));
        assert_eq!(
            caught(|| if panic_becomes_error() {
                panic!("no driver")
            }),
            Err("no driver".to_owned())
        );
        assert_eq!(caught(panic_becomes_error), Ok(true));
        assert!(!panic_becomes_error());
    }
}
