//! The steps of a run, with its evaluations and checkpoints in between.

use super::super::evaluate::n_tokens;
use super::super::task::{Task, TaskObjective};
use super::Run;
use crate::Result;
use crate::checkpoint::CursorState;
use crate::metrics::progress::{Meter, RunProgress, Status};
use crate::metrics::{Record, Timing, TuningRecord};
use crate::step::StepConfig;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tracing::trace_span;

impl<T: Task> Run<'_, T> {
    /// Whether all steps were made, or as many as patience allowed.
    pub(super) fn steps(&mut self, stop: &AtomicBool, progress: &mut dyn RunProgress) -> Result<bool> {
        let steps = self.steps;
        let start = Instant::now();
        let mut meter = Meter::new(start);
        let mut mark = start;
        let (mut trained, mut tokens_since) = (Duration::ZERO, 0);
        let buckets = self.buckets.clone();
        let mut batches = buckets.steps(self.training.state.step);
        // A short run has a learning curve too.
        let log_every = self.config.log.every.min(steps.div_ceil(20)).max(1);
        while self.training.state.step < steps && !self.has_stalled() {
            let Some(batch) = batches.next() else { break };
            let span = trace_span!("step").entered();
            let loss = self.step(&batch.examples, steps)?;
            drop(span);
            let number = self.training.state.step;
            let tokens = batch.examples.iter().map(|i| n_tokens(self.task, &self.data.train.features[*i]));
            let tokens = tokens.sum::<usize>() as u64;
            self.training.state.tokens += tokens;
            let now = Instant::now();
            trained += now - mark;
            tokens_since += tokens;
            let pace = meter.step(now, tokens, Duration::ZERO, steps - number);
            let learning_rate = self.learning_rate(number, steps);
            progress.step(&Status { step: number, steps, loss, learning_rate, pace });

            let (last, stopping) = (number == steps, stop.load(Ordering::Relaxed));
            if last || number.is_multiple_of(log_every) {
                let seconds = trained.as_secs_f64().max(f64::MIN_POSITIVE);
                let timing = Timing {
                    seconds: start.elapsed().as_secs_f64(),
                    tokens_per_second: tokens_since as f64 / seconds,
                    waiting: 0.0,
                };
                self.log_training(learning_rate, timing)?;
                (trained, tokens_since) = (Duration::ZERO, 0);
            }
            if self.is_evaluated_after(number) {
                self.evaluate(progress)?;
            }
            if last
                || stopping
                || batch.ends_epoch
                || number.is_multiple_of(self.config.checkpoint.every.max(1))
            {
                self.training.checkpoint(self.config.checkpoint.keep_last, None)?;
            }
            if stopping && !last {
                return Ok(false);
            }
            mark = Instant::now();
            meter.skip_to(mark);
        }
        if self.training.state.step < steps
            && let Some(patience) = self.config.eval.patience
        {
            let step = self.training.state.step;
            let evaluations = if patience == 1 { "evaluation" } else { "evaluations" };
            progress.note(&format!(
                "step {step}: ended early, after {patience} {evaluations} without a better figure"
            ));
        }
        Ok(true)
    }

    fn step(&mut self, examples: &[usize], steps: u64) -> Result<f64> {
        let number = self.training.state.step + 1;
        let constants = StepConfig {
            seed: self.config.run.seed,
            step: number,
            lr: self.learning_rate(number, steps),
            clip_norm: self.config.optimizer.clip_norm,
            precision: self.config.train.precision.into(),
        };
        let batch: Vec<&T::Features> = examples.iter().map(|i| &self.data.train.features[*i]).collect();
        let first = CursorState {
            epoch: self.epoch_of(number),
            example: examples.first().map_or(0, |example| *example as u64),
        };
        let (objective, non_finite) = (TaskObjective(self.task), self.config.train.non_finite);
        let report = self.training.step(&objective, &[batch], constants, first, non_finite)?;
        Ok(report.losses.iter().sum())
    }

    fn learning_rate(&self, step: u64, steps: u64) -> f64 {
        self.config.schedule.learning_rate(self.config.optimizer.lr, step, steps)
    }

    /// The epoch, from 0, of a step.
    fn epoch_of(&self, step: u64) -> u64 {
        (step - 1) / self.epoch
    }

    /// Evaluations divide an epoch evenly.
    fn is_evaluated_after(&self, step: u64) -> bool {
        let place = step - self.epoch_of(step) * self.epoch;
        let parts = self.config.eval.per_epoch.min(self.epoch);
        // The steps at which another part of the epoch is done.
        place * parts / self.epoch > (place - 1) * parts / self.epoch
    }

    /// Whether so many evaluations have not been better that training ends.
    fn has_stalled(&self) -> bool {
        let (Some(patience), Some(best)) = (self.config.eval.patience, self.training.state.best) else {
            return false;
        };
        let since = (best.step + 1..=self.training.state.step).filter(|step| self.is_evaluated_after(*step));
        since.count() as u64 >= patience
    }

    fn log_training(&mut self, learning_rate: f64, timing: Timing) -> Result<()> {
        let window = std::mem::take(&mut self.training.state.window);
        let mean = |sum: f64| sum / window.updates as f64;
        self.training.log.write(&Record::Tuning(TuningRecord {
            step: self.training.state.step,
            loss: mean(window.losses.iter().sum()),
            learning_rate,
            grad_norm: mean(window.grad_norm),
            tokens: self.training.state.tokens,
            skipped_steps: self.training.state.step - self.training.state.updates,
            timing,
        }))
    }
}
