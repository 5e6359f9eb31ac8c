//! Progress display of a command.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{HumanCount, HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::say;

/// Work done, rate and time left on standard error, for work that takes longer than two seconds: a live line on
/// a terminal that shows no results, else a line every ten seconds.
pub struct Progress {
    /// The unit counted, such as `lines`.
    unit: &'static str,
    start: Instant,
    shown: Instant,
    live: Option<ProgressBar>,
}

impl Progress {
    const FIRST: Duration = Duration::from_secs(2);
    const EVERY: Duration = Duration::from_secs(10);

    /// `shows_results`: whether results go to the terminal.
    pub fn new(unit: &'static str, shows_results: bool) -> Self {
        let live = (io::stderr().is_terminal() && !shows_results).then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
            match ProgressStyle::with_template("{spinner} {wide_msg}") {
                Ok(style) => bar.with_style(style),
                Err(_) => bar,
            }
        });
        let now = Instant::now();
        Self { unit, start: now, shown: now, live }
    }

    /// Shows how much is done, and which share of all work, if known.
    pub fn show(&mut self, done: usize, share: Option<f64>) {
        let elapsed = self.start.elapsed();
        if elapsed < Self::FIRST {
            return;
        }
        let message = message(self.unit, done, share, elapsed);
        if let Some(bar) = &self.live {
            bar.set_message(message);
            bar.tick();
        } else if self.shown == self.start || self.shown.elapsed() >= Self::EVERY {
            self.shown = Instant::now();
            say(message);
        }
    }

    /// Clears the live line.
    pub fn finish(&self) {
        if let Some(bar) = &self.live {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    /// Keeps an error line from following a live one.
    fn drop(&mut self) {
        self.finish();
    }
}

fn message(unit: &str, done: usize, share: Option<f64>, elapsed: Duration) -> String {
    let pace = done as f64 / elapsed.as_secs_f64();
    let left = share.filter(|share| *share > 0.0).map_or_else(String::new, |share| {
        let left = elapsed.mul_f64((1.0 - share).max(0.0) / share).as_secs_f64().round();
        format!(" · {:.0} % · {} left", 100.0 * share, HumanDuration(Duration::from_secs_f64(left)))
    });
    format!("{} {unit} · {pace:.0} {unit}/s{left}", HumanCount(done as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_known_where_the_share_is() {
        let elapsed = Duration::from_secs(10);
        assert_eq!(message("lines", 1_500, None, elapsed), "1,500 lines · 150 lines/s");
        assert_eq!(message("lines", 1_500, Some(0.0), elapsed), "1,500 lines · 150 lines/s");
        assert_eq!(
            message("sequences", 20, Some(0.25), elapsed),
            "20 sequences · 2 sequences/s · 25 % · 30 seconds left"
        );
        assert!(message("lines", 20, Some(1.0), elapsed).ends_with("100 % · 0 seconds left"));
    }
}
