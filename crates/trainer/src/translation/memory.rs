//! A lower bound of a translation run's memory.

use super::config::TranslationTrain;
use crate::memory::{FLOAT, Keys, MOMENTS, MemoryEstimate, product};
use crate::{Result, memory};
use cloze_data::labelled::BatchSize;
use cloze_data::parallel::PairReport;

/// The number of training pairs, and their tokens on both sides.
#[derive(Clone, Copy)]
pub(super) struct Pairs {
    pub n: u64,
    pub tokens: [u64; 2],
}

impl From<&PairReport> for Pairs {
    fn from(report: &PairReport) -> Self {
        Self { n: report.pairs, tokens: report.tokens }
    }
}

/// A run's size, as far as known for every encoder–decoder.
pub(super) struct Size {
    /// Number of trained parameters.
    pub parameters: u64,
    /// The target's.
    pub vocab_size: usize,
    /// Logits of a target token in training.
    pub n_logits: usize,
}

impl Size {
    /// A lower bound for a step: the parameters, their moments, and their gradients, or before them the logits
    /// of a micro-batch's targets. Layer activations are not counted.
    fn least(&self, train: &TranslationTrain, pairs: Option<Pairs>) -> MemoryEstimate {
        let parameters = product([self.parameters, FLOAT]);
        let targets = pairs.map_or(0, |pairs| target_tokens(train, pairs));
        MemoryEstimate {
            parameters,
            gradients: parameters,
            moments: product([parameters, MOMENTS]),
            activations: product([targets, self.n_logits as u64, FLOAT]),
            recomputed: u64::MAX,
            batches: 0,
            saving: parameters,
        }
    }

    /// Rejects a run that certainly needs more than `has` bytes; without `pairs`, counts only its parameters.
    ///
    /// # Errors
    /// [`TrainerError::Memory`](crate::TrainerError::Memory).
    pub fn check(&self, train: &TranslationTrain, pairs: Option<Pairs>, has: Option<u64>) -> Result<()> {
        let set = |key: &str, value: Option<usize>| Some(format!("`train.{key}` ({})", value?));
        let batch: Vec<String> =
            [set("batch_tokens", train.batch_tokens), set("batch_size", train.batch_size)]
                .into_iter()
                .flatten()
                .collect();
        let model = format!("the sizes in `[model]` or the vocabulary ({})", self.vocab_size);
        let keys = Keys { model, batch: batch.join(" or "), can_recompute: false };
        memory::check(&self.least(train, pairs), has, &keys)
    }
}

/// The approximate target tokens of a micro-batch that is 90 % full.
fn target_tokens(train: &TranslationTrain, pairs: Pairs) -> u64 {
    let [source, target] = pairs.tokens.map(|tokens| tokens as f64);
    let of_pairs = |n: usize| n as f64 * (source + target) / pairs.n.max(1) as f64;
    let most = match train.size() {
        BatchSize::Tokens(tokens) => tokens as f64,
        BatchSize::Examples(n) => of_pairs(n),
        BatchSize::Within { examples, tokens } => of_pairs(examples).min(tokens as f64),
    };
    (0.9 * most.min(source + target) * target / (source + target).max(1.0)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(train: &str, size: &Size, has: u64) -> Option<String> {
        let train: TranslationTrain = toml::from_str(&format!("steps = 1\n{train}")).unwrap();
        let pairs = Pairs { n: 1_000_000, tokens: [12_000_000; 2] };
        size.check(&train, Some(pairs), Some(has)).err().map(|error| error.to_string())
    }

    #[test]
    fn what_surely_does_not_fit_is_refused_by_its_key() {
        let size = Size { parameters: 10_000_000, vocab_size: 8_000, n_logits: 8_000 };
        assert_eq!(refused("batch_tokens = 8192", &size, 500_000_000), None);
        // 10 million targets of 8,000 logits, however many tokens are asked for.
        let message = refused("batch_tokens = 2000000000", &size, 8_000_000_000).unwrap();
        assert!(message.ends_with("8.00 GB: lower `train.batch_tokens` (2000000000)"), "{message}");
        let message = refused("batch_tokens = 8192", &size, 100_000_000).unwrap();
        assert!(message.ends_with("lower the sizes in `[model]` or the vocabulary (8000)"), "{message}");
    }
}
