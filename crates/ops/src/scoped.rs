//! Values that hold while a closure runs, on the calling thread.

use std::cell::RefCell;
use std::thread::LocalKey;

/// Puts `value` in `place` while `work` runs, and then puts back what was there before, also when `work` panics. Returns the
/// result, and the value as `work` left it.
///
/// ```
/// use cloze_ops::scoped;
/// use std::cell::RefCell;
///
/// thread_local!(static DEPTH: RefCell<usize> = const { RefCell::new(0) });
///
/// let (inside, last) = scoped(&DEPTH, 7, || {
///     DEPTH.with_borrow_mut(|depth| *depth += 1);
///     DEPTH.with_borrow(|depth| *depth)
/// });
/// assert_eq!((inside, last, DEPTH.with_borrow(|depth| *depth)), (8, 8, 0));
/// ```
pub fn scoped<T: 'static, R>(
    place: &'static LocalKey<RefCell<T>>,
    value: T,
    work: impl FnOnce() -> R,
) -> (R, T) {
    /// Restores the previous value, also after a panic.
    struct Restore<T: 'static> {
        place: &'static LocalKey<RefCell<T>>,
        before: Option<T>,
    }

    impl<T> Drop for Restore<T> {
        fn drop(&mut self) {
            if let Some(before) = self.before.take() {
                self.place.replace(before);
            }
        }
    }

    let mut restore = Restore { place, before: Some(place.replace(value)) };
    let result = work();
    let before = restore.before.take().expect("put there above");
    (result, place.replace(before))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    thread_local!(static NAME: RefCell<&'static str> = const { RefCell::new("outside") });

    fn name() -> &'static str {
        NAME.with_borrow(|name| *name)
    }

    #[test]
    fn scopes_nest_and_end_with_a_panic() {
        let (inner, _) = scoped(&NAME, "one", || {
            let (inner, _) = scoped(&NAME, "two", name);
            (inner, name())
        });
        assert_eq!((inner, name()), (("two", "one"), "outside"));
        let fails = AssertUnwindSafe(|| scoped(&NAME, "three", || panic!("{}", name())));
        let message = catch_unwind(fails).unwrap_err();
        assert_eq!(message.downcast_ref::<String>().map(String::as_str), Some("three"));
        assert_eq!(name(), "outside");
    }
}
