//! Notes on slow work before the first step.

use crate::metrics::progress::RunProgress;
use cloze_evaluation::table;
use cloze_tokenizer::train::TrainProgress;
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

/// Notes on a phase of work before the first step: none within the first two seconds, then one every two.
pub(crate) struct PeriodicNotes<'a> {
    start: Instant,
    shown: Cell<Instant>,
    progress: RefCell<&'a mut dyn RunProgress>,
}

impl<'a> PeriodicNotes<'a> {
    /// Time until the first note, and between notes.
    const EVERY: Duration = Duration::from_secs(2);

    pub fn new(progress: &'a mut dyn RunProgress) -> Self {
        let now = Instant::now();
        Self { start: now, shown: Cell::new(now), progress: RefCell::new(progress) }
    }

    /// Shows a note if one is due; `note` gets the seconds since the start.
    pub fn note(&self, note: impl FnOnce(f64) -> String) {
        let now = Instant::now();
        if now - self.shown.get() >= Self::EVERY {
            self.shown.set(now);
            self.progress.borrow_mut().note(&note((now - self.start).as_secs_f64()));
        }
    }
}

impl cloze_data::Progress for PeriodicNotes<'_> {
    fn prepared(&self, read: u64, total: u64, tokens: u64) {
        self.note(|seconds| {
            let share = read as f64 / total.max(1) as f64;
            let left = seconds * (1.0 - share) / share.max(f64::EPSILON);
            format!(
                "preparing the corpus: {} · {} tokens · {:.1} MB/s of files · {} left",
                table::percent(share),
                table::grouped(tokens),
                read as f64 / seconds / 1e6,
                table::duration(left),
            )
        });
    }
}

/// A note on the progress of training a tokenizer.
pub(crate) fn training_tokenizer(progress: TrainProgress, seconds: f64) -> String {
    match progress {
        TrainProgress::Counting { bytes, words, .. } => format!(
            "training the tokenizer: {} distinct words in {} MB · {:.1} MB/s",
            table::grouped(words as u64),
            table::grouped(bytes / 1_000_000),
            bytes as f64 / seconds / 1e6,
        ),
        TrainProgress::Merging { done, total } => format!(
            "training the tokenizer: {} of {} pieces",
            table::grouped(done as u64),
            table::grouped(total as u64),
        ),
        _ => "training the tokenizer".into(),
    }
}
