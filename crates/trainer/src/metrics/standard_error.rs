//! Standard error, which progress lines and messages share.
//!
//! On a terminal, a progress line is drawn in place, with the cursor at its end. Whatever else is printed
//! goes through [`say`], which clears such lines first and draws them again below.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use indicatif::{ProgressBar, ProgressDrawTarget, WeakProgressBar};

use super::printable;

/// The progress lines of this process on standard error, which is one terminal for all of it.
static LIVE: Mutex<Vec<WeakProgressBar>> = Mutex::new(Vec::new());

/// Where progress lines are drawn: standard error, if it is a terminal.
pub fn target() -> ProgressDrawTarget {
    ProgressDrawTarget::stderr_with_hz(5)
}

/// Makes [`say`] clear this progress line while it prints. Call it when the line is first drawn.
pub fn share(bar: &ProgressBar) {
    let mut live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
    live.retain(|other| other.upgrade().is_some());
    live.push(bar.downgrade());
}

/// The progress lines that are drawn now.
fn live() -> Vec<ProgressBar> {
    let live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
    live.iter().filter_map(WeakProgressBar::upgrade).filter(|bar| !bar.is_finished()).collect()
}

/// Whether this process is silent: another one speaks for it.
static MUTE: AtomicBool = AtomicBool::new(false);

/// Makes this process silent, or no longer: one of several that do the same work speaks for all.
pub fn mute(is_mute: bool) {
    MUTE.store(is_mute, Ordering::Relaxed);
}

/// Whether this process is silent.
pub fn is_mute() -> bool {
    MUTE.load(Ordering::Relaxed)
}

/// Prints a line on standard error. Control characters in the user's text are escaped; write errors, such as
/// a full disk, are ignored.
pub fn say(line: impl Display) {
    if is_mute() {
        return;
    }
    print(&live(), &mut io::stderr(), &printable(&line.to_string()));
}

/// Clears all progress lines, before the process ends.
pub fn clear() {
    live().iter().for_each(ProgressBar::finish_and_clear);
}

/// Prints a line while these progress lines are cleared.
pub(super) fn print(bars: &[ProgressBar], out: &mut dyn Write, line: &str) {
    match bars.split_first() {
        Some((bar, rest)) => bar.suspend(|| print(rest, out, line)),
        None => _ = writeln!(out, "{line}"),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use indicatif::TermLike;
    use std::sync::Arc;

    /// A terminal of 80 columns that records what it is sent.
    #[derive(Clone, Debug, Default)]
    pub struct Recorded(Arc<Mutex<String>>);

    /// What clears a line.
    pub const CLEAR: &str = "\r\x1b[2K";

    impl Recorded {
        pub fn target(&self) -> ProgressDrawTarget {
            ProgressDrawTarget::term_like(Box::new(self.clone()))
        }

        pub fn text(&self) -> String {
            self.0.lock().unwrap().clone()
        }

        fn push(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }
    }

    impl Write for Recorded {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.push(std::str::from_utf8(bytes).unwrap())?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl TermLike for Recorded {
        fn width(&self) -> u16 {
            80
        }

        fn move_cursor_up(&self, n: usize) -> io::Result<()> {
            self.push(&"\x1b[A".repeat(n))
        }

        fn move_cursor_down(&self, n: usize) -> io::Result<()> {
            self.push(&"\x1b[B".repeat(n))
        }

        fn move_cursor_right(&self, n: usize) -> io::Result<()> {
            self.push(&"\x1b[C".repeat(n))
        }

        fn move_cursor_left(&self, n: usize) -> io::Result<()> {
            self.push(&"\x1b[D".repeat(n))
        }

        fn write_line(&self, text: &str) -> io::Result<()> {
            self.push(text)?;
            self.push("\n")
        }

        fn write_str(&self, text: &str) -> io::Result<()> {
            self.push(text)
        }

        fn clear_line(&self) -> io::Result<()> {
            self.push(CLEAR)
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_progress_line_is_cleared_before_anything_else_is_printed() {
        let terminal = Recorded::default();
        let bars = ["first", "second"].map(|message| {
            let bar = ProgressBar::with_draw_target(None, terminal.target());
            bar.set_message(message);
            bar.tick();
            bar
        });
        let drawn = terminal.text();
        print(&bars[1..], &mut terminal.clone(), "warning: a note");
        let after = terminal.text()[drawn.len()..].to_owned();
        assert!(after.starts_with(&format!("{CLEAR}warning: a note\n")), "{after:?}");
        assert!(after.len() > CLEAR.len() + "warning: a note\n".len(), "it is drawn again: {after:?}");
        bars.iter().for_each(ProgressBar::finish_and_clear);
        assert!(terminal.text().ends_with(CLEAR), "{:?}", terminal.text());
    }
}
