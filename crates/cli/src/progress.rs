//! How far a command has got.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Lines done and their pace on standard error, of work that takes longer than two seconds: a live
/// line on a terminal that shows no results, else a line every ten seconds.
pub struct Progress {
    start: Instant,
    shown: Instant,
    live: Option<ProgressBar>,
}

impl Progress {
    const FIRST: Duration = Duration::from_secs(2);
    const EVERY: Duration = Duration::from_secs(10);

    /// `shows_results`: whether results go to the terminal.
    pub fn new(shows_results: bool) -> Self {
        let live = (io::stderr().is_terminal() && !shows_results).then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
            match ProgressStyle::with_template("{spinner} {wide_msg}") {
                Ok(style) => bar.with_style(style),
                Err(_) => bar,
            }
        });
        let now = Instant::now();
        Self { start: now, shown: now, live }
    }

    /// So many lines are done.
    pub fn show(&mut self, lines: usize) {
        let elapsed = self.start.elapsed();
        if elapsed < Self::FIRST {
            return;
        }
        let pace = lines as f64 / elapsed.as_secs_f64();
        let message = format!("{} lines · {pace:.0} lines/s", HumanCount(lines as u64));
        if let Some(bar) = &self.live {
            bar.set_message(message);
            bar.tick();
        } else if self.shown == self.start || self.shown.elapsed() >= Self::EVERY {
            self.shown = Instant::now();
            eprintln!("{message}");
        }
    }

    /// Takes the live line away.
    pub fn finish(&self) {
        if let Some(bar) = &self.live {
            bar.finish_and_clear();
        }
    }
}
