//! The baseline of hard attention, which follows the captions' log-probabilities from step to step.

use crate::engine::{Extension, KeptState};
use burn::module::Module;
use cloze_model::captions::HardAttentionLoss;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

/// The baseline `b`, and the captions of the step that is under way.
#[derive(Debug, Default)]
struct State {
    /// None before the first step, whose captions are compared with their own mean.
    baseline: Option<f64>,
    /// The sum of the log-probabilities, in 2⁻²⁰: whole numbers, whose sum does not depend on the order.
    sum: i128,
    n: u64,
}

/// `b ← 0.9·b + 0.1·log p(y | s, a)` after each step, with the mean of its captions (Xu et al. 2015, §4.1). In the paper `b`
/// begins with 0; here it begins with the first batch's mean.
#[derive(Debug, Clone, Default)]
pub(super) struct Baseline(Arc<Mutex<State>>);

const UNIT: f64 = (1u64 << 20) as f64;

impl Baseline {
    /// What captions with these log-probabilities are compared with. They count in the next baseline.
    pub fn compare(&self, log_probs: &[f32]) -> f64 {
        let mut state = self.0.lock().expect("no thread panicked with it");
        let finite = log_probs.iter().filter(|log_prob| log_prob.is_finite());
        let sum: i128 = finite.map(|log_prob| (f64::from(*log_prob) * UNIT) as i128).sum();
        state.sum += sum;
        state.n += log_probs.len() as u64;
        state.baseline.unwrap_or(sum as f64 / UNIT / log_probs.len().max(1) as f64)
    }

    fn advance(&self) {
        let mut state = self.0.lock().expect("no thread panicked with it");
        let (sum, n) = (std::mem::take(&mut state.sum), std::mem::take(&mut state.n));
        if n > 0 {
            let mean = sum as f64 / UNIT / n as f64;
            let loss = |baseline| HardAttentionLoss { reward: 1.0, entropy: 0.0, baseline };
            state.baseline =
                Some(state.baseline.map_or(mean, |before| loss(before).next_baseline(mean).baseline));
        }
    }
}

impl<M: Module> Extension<M> for Baseline {
    fn name(&self) -> &str {
        "baseline"
    }

    fn follows_batches(&self) -> bool {
        true
    }

    fn after_update(&mut self, model: M, _: u64) -> M {
        self.advance();
        model
    }

    fn after_skip(&mut self, model: M, _: u64) -> M {
        let mut state = self.0.lock().expect("no thread panicked with it");
        (state.sum, state.n) = (0, 0);
        drop(state);
        model
    }

    fn state(&self) -> Value {
        match self.0.lock().expect("no thread panicked with it").baseline {
            Some(baseline) => json!({ "baseline": baseline }),
            None => Value::Null,
        }
    }

    fn restore(&mut self, _: &M, kept: KeptState) -> Result<(), String> {
        let baseline = match kept.state {
            Value::Null => None,
            state => Some(state["baseline"].as_f64().ok_or("its baseline is missing")?),
        };
        *self.0.lock().expect("no thread panicked with it") = State { baseline, ..State::default() };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;
    use cloze_model::ParamInit;
    use cloze_model::blocks::Linear;

    #[test]
    fn the_baseline_follows_the_captions_and_survives_a_checkpoint() {
        let model = || Linear::new(1, 1, &mut ParamInit::new(&Device::flex(), 1));
        let mut baseline = Baseline::default();
        assert_eq!(baseline.compare(&[-10.0, -20.0]), -15.0);
        Extension::<Linear>::after_update(&mut baseline, model(), 1);
        // Two micro-batches of a step are one.
        assert_eq!(baseline.compare(&[-4.0]), -15.0);
        assert_eq!(baseline.compare(&[-6.0]), -15.0);
        let mut skipped = Baseline::default();
        let state = || KeptState { state: Extension::<Linear>::state(&baseline), ..KeptState::default() };
        Extension::<Linear>::restore(&mut skipped, &model(), state()).unwrap();
        Extension::<Linear>::after_update(&mut baseline, model(), 2);
        assert!((baseline.compare(&[]) - (0.9 * -15.0 + 0.1 * -5.0)).abs() < 1e-9);
        skipped.compare(&[-1.0]);
        Extension::<Linear>::after_skip(&mut skipped, model(), 2);
        Extension::<Linear>::after_update(&mut skipped, model(), 3);
        assert_eq!(skipped.compare(&[]), -15.0);
    }
}
