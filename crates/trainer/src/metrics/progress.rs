//! Live progress of a run: measured by a [`Meter`], displayed by an implementation of [`RunProgress`].

use std::fmt;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::{Deserialize, Serialize};

use super::{printable, standard_error};
use cloze_evaluation::table::{duration, grouped};

/// Shorter work is not reported.
const FIRST: Duration = Duration::from_secs(2);

/// A run's progress.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Status {
    /// The last completed step (from 1).
    pub step: u64,
    /// Total number of steps.
    pub steps: u64,
    /// The step's training loss, in nats.
    pub loss: f64,
    /// The step's learning rate.
    pub learning_rate: f64,
    /// The run's speed.
    pub pace: Pace,
    /// What the speed counts.
    pub unit: SpeedUnit,
}

/// Progress of a pass over examples without training: an evaluation, or encoding texts in advance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pass<'a> {
    /// The kind of work and the split, such as `measuring dev`.
    pub work: &'a str,
    /// Sequences done.
    pub done: usize,
    /// Fraction of the work done, from 0 to 1; 1 ends the pass.
    pub share: f64,
    /// Time since the pass began.
    pub elapsed: Duration,
}

/// What a run's speed counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SpeedUnit {
    /// Tokens.
    #[default]
    Tokens,
    /// Images.
    Images,
}

/// Its name, in the plural.
impl fmt::Display for SpeedUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tokens => "tokens",
            Self::Images => "images",
        })
    }
}

/// A run's speed, averaged over about the last half minute.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    /// Tokens (without padding) per second, or images.
    pub tokens_per_second: f64,
    /// Fraction of the time spent waiting for data, from 0 to 1.
    pub waiting: f64,
    /// Time until the last step.
    pub left: Duration,
}

/// Observes a run's progress. The default methods do nothing.
pub trait RunProgress {
    /// A step was completed. Called for every step: implementations choose what to show.
    fn step(&mut self, _status: &Status) {}

    /// A pass has advanced. Called for every batch.
    fn pass(&mut self, _pass: &Pass<'_>) {}

    /// Something worth a line happened: an evaluation, a checkpoint, a warning.
    fn note(&mut self, _line: &str) {}

    /// The run ended, whether done or stopped.
    fn finish(&mut self) {}
}

/// Shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl RunProgress for Silent {}

/// Progress on standard error: one live line on a terminal, else a line every few seconds.
pub struct StderrProgress(Box<dyn RunProgress + Send>);

impl StderrProgress {
    /// A live line where standard error is a terminal, lines otherwise.
    pub fn new() -> Self {
        match std::io::stderr().is_terminal() {
            _ if standard_error::is_mute() => Self(Box::new(Silent)),
            true => Self(Box::new(LiveLine::new(
                standard_error::target(),
                Box::new(|line| standard_error::say(line)),
            ))),
            false => Self(Box::new(LineProgress::new(std::io::stderr(), Duration::from_secs(5)))),
        }
    }
}

impl Default for StderrProgress {
    fn default() -> Self {
        Self::new()
    }
}

impl RunProgress for StderrProgress {
    fn step(&mut self, status: &Status) {
        self.0.step(status);
    }

    fn pass(&mut self, pass: &Pass<'_>) {
        self.0.pass(pass);
    }

    /// Notes may contain user text.
    fn note(&mut self, line: &str) {
        self.0.note(&printable(line));
    }

    fn finish(&mut self) {
        self.0.finish();
    }
}

/// Progress as one changing line: the last step, or the pass in progress after it. What is to stay is printed
/// as a line of its own.
struct LiveLine {
    bar: ProgressBar,
    /// Prints a line above the changing one.
    say: Box<dyn Fn(&str) + Send>,
    /// Whether the line has been drawn.
    begun: bool,
    last: Option<Status>,
    /// Whether the run has ended since then.
    ended: bool,
}

impl LiveLine {
    fn new(target: ProgressDrawTarget, say: Box<dyn Fn(&str) + Send>) -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), target);
        Self { bar, say, begun: false, last: None, ended: false }
    }

    /// The line with this template; a new one if it had ended.
    fn begin(&mut self, template: &str) {
        if !self.begun {
            standard_error::share(&self.bar);
            self.begun = true;
        }
        if self.bar.is_finished() {
            self.bar.reset();
        }
        let style = ProgressStyle::with_template(template).expect("the template is valid");
        self.bar.set_style(style);
    }

    fn show(&mut self, status: &Status) {
        self.begin("{bar:10.cyan/blue} {human_pos}/{human_len} · {wide_msg}");
        self.bar.set_length(status.steps);
        self.bar.set_position(status.step);
        self.bar.set_message(figures(status));
    }
}

impl RunProgress for LiveLine {
    fn step(&mut self, status: &Status) {
        self.show(status);
        (self.last, self.ended) = (Some(*status), false);
    }

    fn pass(&mut self, pass: &Pass<'_>) {
        if pass.share < 1.0 {
            self.begin("{spinner} {wide_msg}");
            self.bar.set_message(how_far(pass));
        } else if let Some(status) = self.last.filter(|_| !self.ended) {
            self.show(&status);
        } else {
            self.bar.finish_and_clear();
        }
    }

    fn note(&mut self, line: &str) {
        (self.say)(line);
    }

    fn finish(&mut self) {
        self.bar.finish_and_clear();
        if let Some(status) = self.last.filter(|_| !self.ended) {
            (self.say)(&step_line(&status));
        }
        self.ended = true;
    }
}

/// Progress as plain lines: a status line at intervals, and after the last step; also for passes that take
/// longer than two seconds.
pub struct LineProgress<W> {
    out: W,
    every: Duration,
    shown: Option<Instant>,
    /// Elapsed time of the current pass when it was last shown.
    passed: Option<Duration>,
    /// The last status not yet shown.
    pending: Option<Status>,
}

impl<W: Write> LineProgress<W> {
    /// Lines to `out`, at most one status per `every`. Write errors of a closed `out` are ignored.
    pub fn new(out: W, every: Duration) -> Self {
        Self { out, every, shown: None, passed: None, pending: None }
    }

    fn show(&mut self, status: &Status) {
        self.note(&step_line(status));
        self.shown = Some(Instant::now());
        self.pending = None;
    }
}

impl<W: Write> RunProgress for LineProgress<W> {
    fn step(&mut self, status: &Status) {
        let due = self.shown.is_none_or(|shown| shown.elapsed() >= self.every);
        if due || status.step == status.steps {
            self.show(status);
        } else {
            self.pending = Some(*status);
        }
    }

    fn pass(&mut self, pass: &Pass<'_>) {
        let due = self.passed.map_or(FIRST, |passed| passed + self.every);
        if pass.share >= 1.0 {
            self.passed = None;
        } else if pass.elapsed >= due {
            self.passed = Some(pass.elapsed);
            self.note(&how_far(pass));
        }
    }

    fn note(&mut self, line: &str) {
        let _ = writeln!(self.out, "{line}");
    }

    fn finish(&mut self) {
        if let Some(status) = self.pending {
            self.show(&status);
        }
    }
}

/// `step 1,000/1,200 · ` and the [`figures`].
fn step_line(status: &Status) -> String {
    format!("step {}/{} · {}", grouped(status.step), grouped(status.steps), figures(status))
}

/// `loss 6.123 · 3 min 20 s left · 12,345 tokens/s · 4 % waiting · lr 1.50e-3`: narrow terminals cut off the
/// end.
fn figures(status: &Status) -> String {
    let Status { loss, learning_rate, pace, unit, .. } = *status;
    format!(
        "loss {loss:.3} · {} left · {} {unit}/s · {:.0} % waiting · lr {learning_rate:.2e}",
        duration(pace.left.as_secs_f64().round()),
        grouped(pace.tokens_per_second as u64),
        100.0 * pace.waiting,
    )
}

/// `measuring dev · 25 % · 30 s left · 2 sequences/s`.
fn how_far(pass: &Pass<'_>) -> String {
    let Pass { work, done, share, elapsed } = *pass;
    let elapsed = elapsed.as_secs_f64();
    format!(
        "{work} · {:.0} % · {} left · {} sequences/s",
        100.0 * share,
        duration((elapsed * (1.0 - share) / share).round()),
        grouped((done as f64 / elapsed) as u64),
    )
}

/// Measures a run's [`Pace`]: exponential averages over about half a minute.
///
/// Times are passed in, so that a meter can be tested without a clock.
#[derive(Clone, Debug)]
pub struct Meter {
    last: Instant,
    steps: f64,
    tokens: f64,
    seconds: f64,
    waiting: f64,
}

impl Meter {
    /// Time constant of the averages, in seconds.
    const MEMORY: f64 = 30.0;

    /// A meter started `now`, just before the first step.
    pub fn new(now: Instant) -> Self {
        Self { last: now, steps: 0.0, tokens: 0.0, seconds: 0.0, waiting: 0.0 }
    }

    /// Adds a step finished `now`, with `tokens` tokens, `waiting` spent waiting for data, and `steps_left`
    /// remaining.
    pub fn step(&mut self, now: Instant, tokens: u64, waiting: Duration, steps_left: u64) -> Pace {
        let seconds = now.saturating_duration_since(self.last).as_secs_f64();
        self.last = now;
        let keep = (-seconds / Self::MEMORY).exp();
        self.steps = self.steps * keep + 1.0;
        self.tokens = self.tokens * keep + tokens as f64;
        self.seconds = self.seconds * keep + seconds;
        self.waiting = self.waiting * keep + waiting.as_secs_f64();
        if self.seconds == 0.0 {
            return Pace::default();
        }
        let left = steps_left as f64 * self.seconds / self.steps;
        Pace {
            tokens_per_second: self.tokens / self.seconds,
            waiting: (self.waiting / self.seconds).clamp(0.0, 1.0),
            left: Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX),
        }
    }

    /// Excludes the time until `now`: evaluations and checkpoints are not training.
    pub fn skip_to(&mut self, now: Instant) {
        self.last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::super::standard_error::print;
    use super::super::standard_error::tests::{CLEAR, Recorded};
    use super::*;

    fn status(step: u64) -> Status {
        let pace = Pace { tokens_per_second: 12_345.6, waiting: 0.042, left: Duration::from_secs(200) };
        Status { step, steps: 1_200, loss: 6.1234, learning_rate: 1.5e-3, pace, unit: SpeedUnit::Tokens }
    }

    fn text(lines: LineProgress<Vec<u8>>) -> String {
        String::from_utf8(lines.out).unwrap()
    }

    #[test]
    fn a_line_says_all_there_is() {
        let mut lines = LineProgress::new(Vec::new(), Duration::ZERO);
        lines.step(&status(1_000));
        lines.note("checkpoint step-1000");
        lines.finish();
        assert_eq!(
            text(lines),
            "step 1,000/1,200 · loss 6.123 · 3 min 20 s left · 12,345 tokens/s · 4 % waiting · lr 1.50e-3\n\
             checkpoint step-1000\n"
        );
    }

    #[test]
    fn lines_are_rare_but_the_last_status_is_shown() {
        let mut lines = LineProgress::new(Vec::new(), Duration::from_secs(3_600));
        (1..=50).for_each(|step| lines.step(&status(step)));
        lines.finish();
        lines.finish();
        let shown = text(lines);
        let steps: Vec<_> = shown.lines().map(|line| line.split(" · ").next().unwrap()).collect();
        assert_eq!(steps, ["step 1/1,200", "step 50/1,200"]);
    }

    #[test]
    fn the_last_step_is_always_shown() {
        let mut lines = LineProgress::new(Vec::new(), Duration::from_secs(3_600));
        lines.step(&status(1));
        lines.step(&status(1_200));
        assert_eq!(text(lines).lines().count(), 2);
    }

    fn pass(work: &str, seconds: u64) -> Pass<'_> {
        Pass {
            work,
            done: 3 * seconds as usize,
            share: seconds as f64 / 40.0,
            elapsed: Duration::from_secs(seconds),
        }
    }

    #[test]
    fn a_pass_is_told_of_from_two_seconds_on_and_every_so_often() {
        let mut lines = LineProgress::new(Vec::new(), Duration::from_secs(5));
        (1..=10).chain([40]).for_each(|second| lines.pass(&pass("measuring dev", second)));
        (1..=3).for_each(|second| lines.pass(&pass("measuring test", second)));
        lines.pass(&pass("measuring test", 40));
        assert_eq!(
            text(lines),
            "measuring dev · 5 % · 38 s left · 3 sequences/s\n\
             measuring dev · 18 % · 33 s left · 3 sequences/s\n\
             measuring test · 5 % · 38 s left · 3 sequences/s\n"
        );
    }

    #[test]
    fn the_live_line_shows_a_pass_and_then_the_last_step_again() {
        let mut live = LiveLine::new(ProgressDrawTarget::hidden(), Box::new(|_: &str| {}));
        live.pass(&pass("encoding train", 10));
        assert!(
            live.bar.message().starts_with("encoding train · 25 % · 30 s left"),
            "{}",
            live.bar.message()
        );
        live.pass(&pass("encoding train", 40));
        assert!(live.bar.is_finished(), "there is no step to show");
        for end in [false, true] {
            live.step(&status(3));
            if end {
                live.finish();
            }
            live.pass(&pass("measuring dev", 10));
            assert!(live.bar.message().starts_with("measuring dev"), "{}", live.bar.message());
            live.pass(&pass("measuring dev", 40));
            assert_eq!(live.bar.is_finished(), end);
            if !end {
                assert_eq!((live.bar.position(), live.bar.length()), (3, Some(1_200)));
                let message = live.bar.message();
                assert!(message.starts_with("loss 6.123 · 3 min 20 s left"), "{message}");
            }
        }
        live.finish();
    }

    #[test]
    fn a_live_line_leaves_whole_lines_behind() {
        let terminal = Recorded::default();
        let bar = ProgressBar::with_draw_target(Some(0), terminal.target());
        let (shared, out) = (bar.clone(), terminal.clone());
        let say = move |line: &str| {
            // As those that are shared: it has a length once it is drawn.
            let is_drawn = |bar: &ProgressBar| !bar.is_finished() && bar.length() != Some(0);
            let drawn: Vec<ProgressBar> = [shared.clone()].into_iter().filter(is_drawn).collect();
            print(&drawn, &mut out.clone(), line);
        };
        let mut live = LiveLine { bar, ..LiveLine::new(ProgressDrawTarget::hidden(), Box::new(say)) };
        live.note("device: flex");
        assert_eq!(terminal.text(), "device: flex\n", "nothing is drawn yet");
        live.step(&status(1_000));
        live.note("checkpoint step-1000");
        live.finish();
        live.finish();
        live.pass(&pass("measuring dev", 10));
        live.pass(&pass("measuring dev", 40));
        live.note("done");
        let text = terminal.text();
        let line =
            "step 1,000/1,200 · loss 6.123 · 3 min 20 s left · 12,345 tokens/s · 4 % waiting · lr 1.50e-3";
        for whole in ["checkpoint step-1000\n", &format!("{line}\n"), "done\n"] {
            assert_eq!(text.matches(&format!("{CLEAR}{whole}")).count(), 1, "{whole}: {text:?}");
        }
        assert!(text.ends_with("done\n"), "{text:?}");
    }

    #[test]
    fn a_meter_measures_steady_steps_exactly() {
        let start = Instant::now();
        let mut meter = Meter::new(start);
        let mut pace = Pace::default();
        for step in 1..=100 {
            let now = start + Duration::from_millis(500 * step);
            pace = meter.step(now, 1_000, Duration::from_millis(50), 100 - step + 20);
        }
        assert!((pace.tokens_per_second - 2_000.0).abs() < 1e-6);
        assert!((pace.waiting - 0.1).abs() < 1e-9);
        assert!((pace.left.as_secs_f64() - 10.0).abs() < 1e-6);
    }

    #[test]
    fn a_meter_leaves_out_what_it_is_told_to_and_forgets_the_past() {
        let start = Instant::now();
        let mut meter = Meter::new(start);
        let second = Duration::from_secs(1);
        meter.step(start + second, 100, Duration::ZERO, 1);
        meter.skip_to(start + 100 * second);
        let pace = meter.step(start + 101 * second, 100, Duration::ZERO, 1);
        assert!((pace.tokens_per_second - 100.0).abs() < 1e-9);
        let mut late = pace;
        for step in 1..=300 {
            late = meter.step(start + (101 + step) * second, 200, Duration::ZERO, 1);
        }
        assert!((late.tokens_per_second - 200.0).abs() < 0.1, "{late:?}");
    }

    #[test]
    fn no_time_is_no_pace() {
        let start = Instant::now();
        assert_eq!(Meter::new(start).step(start, 5, Duration::ZERO, 9), Pace::default());
    }
}
