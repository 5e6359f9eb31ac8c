//! A run that is asked to stop.

use cloze_trainer::metrics::progress::{RunProgress, Status};
use std::sync::atomic::{AtomicBool, Ordering};

/// Asks the run to stop after a step.
pub struct StopAfter<'a>(pub u64, pub &'a AtomicBool);

impl RunProgress for StopAfter<'_> {
    fn step(&mut self, status: &Status) {
        if status.step == self.0 {
            self.1.store(true, Ordering::Relaxed);
        }
    }
}
