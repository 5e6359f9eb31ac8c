//! Progress display of a command.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use cloze_trainer::metrics::standard_error;
use indicatif::{HumanCount, HumanDuration, ProgressBar, ProgressStyle};

use crate::output::say;
use crate::stop;

/// Work done, rate and time left on standard error, for work that takes longer than two seconds: a live line on
/// a terminal that shows no results, else a line every ten seconds.
pub struct Progress {
    /// The unit counted, such as `lines`.
    unit: &'static str,
    start: Instant,
    shown: Instant,
    live: Option<LiveLine>,
}

/// A line on the terminal that is drawn in place. It is cleared when it is dropped, so that no error line
/// follows it.
pub struct LiveLine {
    pub bar: ProgressBar,
    begun: bool,
}

/// A line with this template, which is drawn when it is first shown.
pub fn live_line(template: &str) -> LiveLine {
    let bar = ProgressBar::with_draw_target(None, standard_error::target());
    let bar = match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    };
    LiveLine { bar, begun: false }
}

impl LiveLine {
    /// Draws it with this message.
    pub fn show(&mut self, message: String) {
        let bar = self.begin();
        bar.set_message(message);
        bar.tick();
    }

    /// The line, which may be drawn from now on.
    pub fn begin(&mut self) -> &ProgressBar {
        if !self.begun {
            self.begun = true;
            standard_error::share(&self.bar);
            stop::clear_line_when_interrupted();
        }
        &self.bar
    }
}

impl Drop for LiveLine {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

impl Progress {
    const FIRST: Duration = Duration::from_secs(2);
    const EVERY: Duration = Duration::from_secs(10);

    /// `shows_results`: whether results go to the terminal.
    pub fn new(unit: &'static str, shows_results: bool) -> Self {
        let live = (io::stderr().is_terminal() && !shows_results).then(|| live_line("{spinner} {wide_msg}"));
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
        if let Some(live) = &mut self.live {
            live.show(message);
        } else if self.shown == self.start || self.shown.elapsed() >= Self::EVERY {
            self.shown = Instant::now();
            say(message);
        }
    }

    /// Clears the live line.
    pub fn finish(&self) {
        if let Some(live) = &self.live {
            live.bar.finish_and_clear();
        }
    }
}

fn message(unit: &str, done: usize, share: Option<f64>, elapsed: Duration) -> String {
    if done == 0 {
        return format!("0 {unit}");
    }
    let pace = done as f64 / elapsed.as_secs_f64();
    // Of slow work a whole number says little, or 0.
    let pace = if pace < 10.0 { format!("{pace:.1}") } else { format!("{pace:.0}") };
    let left = share.filter(|share| *share > 0.0).map_or_else(String::new, |share| {
        let left = elapsed.mul_f64((1.0 - share).max(0.0) / share).as_secs_f64().round();
        format!(" · {:.0} % · {} left", 100.0 * share, HumanDuration(Duration::from_secs_f64(left)))
    });
    format!("{} {unit} · {pace} {unit}/s{left}", HumanCount(done as u64))
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
            "20 sequences · 2.0 sequences/s · 25 % · 30 seconds left"
        );
        assert_eq!(message("pairs", 2, None, elapsed), "2 pairs · 0.2 pairs/s");
        assert_eq!(message("pairs", 0, Some(0.0), elapsed), "0 pairs");
        assert!(message("lines", 20, Some(1.0), elapsed).ends_with("100 % · 0 seconds left"));
    }
}
