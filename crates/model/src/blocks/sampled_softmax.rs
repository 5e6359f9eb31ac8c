//! Training of an output layer with a large vocabulary on some of its pieces.

use crate::{ModelError, Result, ops};
use burn::tensor::{Device, Distribution, IndexingUpdateOp, Int, Tensor, TensorData};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The distribution from which [`SampledSoftmax`] draws pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Proposal {
    /// `Q(w) = (ln(w + 2) − ln(w + 1)) / ln(V + 1)`: Zipf's law for ids in the order of frequency, as a vocabulary of words has
    /// them, and roughly one of BPE or WordPiece.
    #[default]
    LogUniform,
    /// `Q(w) = 1 / V`: for ids in any order.
    Uniform,
}

impl Proposal {
    fn probability(self, id: usize, vocab_size: usize) -> f64 {
        match self {
            Self::LogUniform => (1.0 / (id as f64 + 1.0)).ln_1p() / ((vocab_size + 1) as f64).ln(),
            Self::Uniform => 1.0 / vocab_size as f64,
        }
    }

    /// A piece for a number that is uniform in `0..1`.
    fn draw(self, unit: f64, vocab_size: usize) -> usize {
        let id = match self {
            Self::LogUniform => (unit * ((vocab_size + 1) as f64).ln()).exp() - 1.0,
            Self::Uniform => unit * vocab_size as f64,
        };
        (id as usize).min(vocab_size - 1)
    }
}

/// Sampled softmax (Jean et al. 2015, §3; Bengio and Senécal 2008): a softmax over a token's next piece and pieces drawn from a
/// proposal `Q`, whose logits are corrected by `−log E[count]`, the expected number of times that a piece is drawn. The same
/// pieces are drawn for all tokens of a batch; a drawn piece that is a token's own does not count twice. What is learnt
/// are the logits of the whole softmax, with which the model is used.
///
/// Pieces are drawn until there are [`samples`](Self::samples) different ones, in `t` attempts; the expected count is then
/// `1 − (1 − Q(w))ᵗ`, as in TensorFlow's `sampled_softmax_loss`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct SampledSoftmax {
    /// Pieces drawn for a batch.
    pub samples: usize,
    /// The distribution that they are drawn from. Default `"log-uniform"`.
    #[serde(default)]
    pub proposal: Proposal,
}

impl SampledSoftmax {
    /// This many pieces, from a log-uniform distribution.
    pub fn new(samples: usize) -> Self {
        Self { samples, proposal: Proposal::default() }
    }

    /// Sets the proposal.
    pub fn with_proposal(mut self, proposal: Proposal) -> Self {
        self.proposal = proposal;
        self
    }

    /// Checks that there are as many pieces to draw.
    ///
    /// # Errors
    /// [`ModelError::Setting`] with the key `output.samples`.
    pub fn validate(&self, vocab_size: usize) -> Result<()> {
        // More take many attempts, and a whole softmax takes hardly longer.
        let most = vocab_size / 2;
        match (1..=most).contains(&self.samples) {
            true => Ok(()),
            false => {
                let expected = format!("1 to {most}, half of the vocabulary");
                Err(ModelError::setting("output.samples", self.samples, expected))
            }
        }
    }

    /// The cross-entropy of each token's next piece among the drawn ones, in nats. The random numbers come from the device's
    /// [generator](Device::seed), so a step of training that sets its seed draws the same pieces whenever it is run.
    ///
    /// `rows` returns the output layer's rows of some ids, `[ids, d_model]`; `bias` is `[vocab_size]`.
    ///
    /// # Shapes
    /// - `states`: `[n, d_model]`; `next`: `n` ids below `vocab_size`; returns `[n]`
    ///
    /// # Panics
    /// If the numbers of ids and states differ, or unless the settings are [valid](Self::validate).
    pub fn losses(
        &self,
        states: Tensor<2>,
        next: &[i32],
        vocab_size: usize,
        rows: impl FnOnce(Tensor<1, Int>) -> Tensor<2>,
        bias: Option<Tensor<1>>,
    ) -> Tensor<1> {
        self.validate(vocab_size).unwrap_or_else(|error| panic!("{error}"));
        let drawn = self.draw(vocab_size, seed_of(&states.device()));
        drawn.losses(states, next, rows, bias)
    }

    /// [`losses`](Self::losses) from the logits of the whole vocabulary, for an output layer whose rows cannot be looked up.
    ///
    /// # Shapes
    /// - `logits`: `[n, vocab_size]`; `next`: `n` ids below `vocab_size`; returns `[n]`
    ///
    /// # Panics
    /// Those of [`losses`](Self::losses).
    pub fn losses_of(&self, logits: Tensor<2>, next: &[i32]) -> Tensor<1> {
        let [_, vocab_size] = logits.dims();
        self.validate(vocab_size).unwrap_or_else(|error| panic!("{error}"));
        self.draw(vocab_size, seed_of(&logits.device())).losses_of(logits, next)
    }

    /// Draws the pieces of a batch.
    fn draw(&self, vocab_size: usize, seed: u64) -> Drawn {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut ids = BTreeSet::new();
        let mut attempts = 0.0;
        while ids.len() < self.samples {
            let unit = (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
            ids.insert(self.proposal.draw(unit, vocab_size) as i32);
            attempts += 1.0;
        }
        Drawn { ids: ids.into_iter().collect(), attempts, vocab_size, proposal: self.proposal }
    }
}

/// A seed from the device's generator.
fn seed_of(device: &Device) -> u64 {
    let units = Tensor::<1>::random([4], Distribution::Uniform(0.0, 1.0), device).into_data();
    // A number of 32 bits has 24 at most that are random.
    units.iter::<f32>().fold(0, |seed: u64, unit| {
        seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(24) ^ (unit * (1 << 24) as f32) as u64
    })
}

/// The pieces drawn for a batch.
struct Drawn {
    /// Different ones, ascending.
    ids: Vec<i32>,
    attempts: f64,
    vocab_size: usize,
    proposal: Proposal,
}

impl Drawn {
    /// `log E[count]` of a piece.
    fn log_count(&self, id: i32) -> f32 {
        let q = self.proposal.probability(id as usize, self.vocab_size);
        (-(self.attempts * (-q).ln_1p()).exp_m1()).ln() as f32
    }

    /// See [`SampledSoftmax::losses`].
    fn losses(
        &self,
        states: Tensor<2>,
        next: &[i32],
        rows: impl FnOnce(Tensor<1, Int>) -> Tensor<2>,
        bias: Option<Tensor<1>>,
    ) -> Tensor<1> {
        let (n, m) = (states.dims()[0], self.ids.len());
        assert_eq!(next.len(), n, "the ids that follow, and the states");
        // One lookup, whose gradient is one matrix.
        let (all, corrections) = self.corrected(next, &states.device());
        let added = match bias {
            Some(bias) => bias.select(0, all.clone()) + corrections,
            None => corrections,
        };
        let rows = rows(all);
        let own = (states.clone() * rows.clone().narrow(0, 0, n)).sum_dim(1);
        let own = own + added.clone().narrow(0, 0, n).reshape([n, 1]);
        let drawn = ops::linear_tied(states, rows.narrow(0, n, m), Some(added.narrow(0, n, m)));
        self.among(own, drawn, next)
    }

    /// See [`SampledSoftmax::losses_of`].
    fn losses_of(&self, logits: Tensor<2>, next: &[i32]) -> Tensor<1> {
        let (n, m) = (logits.dims()[0], self.ids.len());
        assert_eq!(next.len(), n, "the ids that follow, and the logits");
        let (all, corrections) = self.corrected(next, &logits.device());
        let own = logits.clone().gather(1, all.clone().narrow(0, 0, n).reshape([n, 1]));
        let own = own + corrections.clone().narrow(0, 0, n).reshape([n, 1]);
        let drawn = logits.select(1, all.narrow(0, n, m));
        self.among(own, drawn + corrections.narrow(0, n, m).reshape([1, m]), next)
    }

    /// The tokens' own pieces and the drawn ones, and what corrects their logits, `[n + m]`.
    fn corrected(&self, next: &[i32], device: &Device) -> (Tensor<1, Int>, Tensor<1>) {
        let all: Vec<i32> = next.iter().chain(&self.ids).copied().collect();
        let corrections: Vec<f32> = all.iter().map(|id| -self.log_count(*id)).collect();
        let n = all.len();
        (
            Tensor::<1, Int>::from_data(TensorData::new(all, [n]), device),
            Tensor::<1>::from_data(TensorData::new(corrections, [n]), device),
        )
    }

    /// The cross-entropy of each token's own piece among it and the drawn ones.
    ///
    /// # Shapes
    /// - `own`: corrected logits, `[n, 1]`; `drawn`: those of the drawn pieces, `[n, m]`; returns `[n]`
    fn among(&self, own: Tensor<2>, drawn: Tensor<2>, next: &[i32]) -> Tensor<1> {
        let (n, device) = (next.len(), own.device());
        // A token's own piece among the drawn ones is taken out.
        let hits = next.iter().map(|id| self.ids.binary_search(id));
        let (places, values): (Vec<i32>, Vec<f32>) =
            hits.map(|hit| hit.map_or((0, 0.0), |place| (place as i32, OUT))).unzip();
        let places = Tensor::<2, Int>::from_data(TensorData::new(places, [n, 1]), &device);
        let values = Tensor::<2>::from_data(TensorData::new(values, [n, 1]), &device);
        let drawn = drawn.scatter(1, places, values, IndexingUpdateOp::Add);
        let labels = Tensor::<1, Int>::zeros([n], &device);
        ops::cross_entropy(Tensor::cat(vec![own, drawn], 1), labels)
    }
}

/// Added to a logit that does not count.
const OUT: f32 = -1e30;

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Tolerance;

    #[test]
    fn proposals_are_distributions_and_are_drawn_from() {
        for proposal in [Proposal::LogUniform, Proposal::Uniform] {
            let (n, vocab_size) = (200_000, 40);
            let q: Vec<f64> = (0..vocab_size).map(|id| proposal.probability(id, vocab_size)).collect();
            assert!((q.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            let mut random = Pcg64Mcg::seed_from_u64(5);
            let mut counts = vec![0.0; vocab_size];
            for _ in 0..n {
                let unit = (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
                counts[proposal.draw(unit, vocab_size)] += 1.0;
            }
            for (count, q) in counts.iter().zip(&q) {
                let deviation = (q * (1.0 - q) / f64::from(n)).sqrt();
                assert!((count / f64::from(n) - q).abs() < 5.0 * deviation, "{proposal:?}: {count}, {q}");
            }
            assert_eq!(proposal.draw(1.0 - f64::EPSILON / 2.0, vocab_size), vocab_size - 1);
        }
    }

    #[test]
    fn the_expected_counts_are_those_of_many_draws() {
        let (sampled, vocab_size, n) = (SampledSoftmax::new(6), 20, 20_000);
        let (mut counts, mut expected) = (vec![0.0; vocab_size], vec![0.0; vocab_size]);
        for seed in 0..n {
            let drawn = sampled.draw(vocab_size, seed);
            assert!(drawn.ids.len() == 6 && drawn.ids.is_sorted_by(|a, b| a < b));
            drawn.ids.iter().for_each(|id| counts[*id as usize] += 1.0);
            expected.iter_mut().zip(0..).for_each(|(sum, id)| *sum += f64::from(drawn.log_count(id).exp()));
        }
        // Given the number of attempts; the last of them is always new, which is a small bias.
        for (count, expected) in counts.iter().zip(&expected) {
            assert!((count - expected).abs() / (n as f64) < 0.03, "{counts:?} {expected:?}");
        }
    }

    #[test]
    fn a_loss_is_what_its_definition_says() {
        let device = Device::flex();
        let (vocab_size, d, n) = (30, 5, 4);
        let value = |i: usize| (i as f32 * 0.61).sin();
        let table: Vec<f32> = (0..vocab_size * d).map(value).collect();
        let (bias, states): (Vec<f32>, Vec<f32>) =
            ((0..vocab_size).map(|i| value(7 * i)).collect(), (0..n * d).map(|i| value(3 * i + 1)).collect());
        let drawn = SampledSoftmax::new(8).draw(vocab_size, 9);
        // The second token's piece is among the drawn ones.
        let absent = (0..).find(|id| !drawn.ids.contains(id)).unwrap();
        let next = [absent, drawn.ids[3], 29, absent];
        let tensor = |values: &[f32], shape: [usize; 2]| {
            Tensor::<2>::from_data(TensorData::new(values.to_vec(), shape), &device)
        };
        let weight = tensor(&table, [vocab_size, d]);
        let bias_tensor = Tensor::<1>::from_data(bias.as_slice(), &device);
        let found =
            drawn.losses(tensor(&states, [n, d]), &next, |ids| weight.select(0, ids), Some(bias_tensor));
        let expected: Vec<f32> = (0..n)
            .map(|token| {
                let logit = |id: i32| -> f64 {
                    let q = drawn.proposal.probability(id as usize, vocab_size);
                    let count = 1.0 - (1.0 - q).powf(drawn.attempts);
                    let product =
                        (0..d).map(|k| f64::from(states[token * d + k] * table[id as usize * d + k]));
                    product.sum::<f64>() + f64::from(bias[id as usize]) - count.ln()
                };
                let own = logit(next[token]);
                let others = drawn.ids.iter().filter(|id| **id != next[token]).map(|id| logit(*id).exp());
                ((own.exp() + others.sum::<f64>()).ln() - own) as f32
            })
            .collect();
        found.into_data().assert_approx_eq::<f32>(&TensorData::new(expected, [n]), Tolerance::absolute(1e-5));
    }

    #[test]
    fn the_device_seed_decides_what_is_drawn() {
        let device = Device::flex();
        let sampled = SampledSoftmax::new(10);
        let draw = |seed: u64| {
            device.seed(seed);
            (sampled.draw(1_000, seed_of(&device)).ids, sampled.draw(1_000, seed_of(&device)).ids)
        };
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
        assert_ne!(draw(3).0, draw(3).1);
    }

    #[test]
    fn what_is_learnt_is_the_whole_softmax() {
        let device = Device::flex().autodiff();
        let (vocab_size, n) = (24, 64);
        // Pieces in another order than the proposal expects.
        let weights: Vec<f64> = (0..vocab_size).map(|id| 1.0 + (id * 7 % vocab_size) as f64).collect();
        let total: f64 = weights.iter().sum();
        let mut bias = Tensor::<1>::zeros([vocab_size], &device);
        let table = Tensor::<2>::zeros([vocab_size, 1], &device);
        let sampled = SampledSoftmax::new(6);
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let (steps, mut mean) = (1_500, vec![0.0; vocab_size]);
        for step in 0..steps {
            let next: Vec<i32> = (0..n)
                .map(|_| {
                    let mut rest = (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64 * total;
                    let piece = weights.iter().position(|weight| {
                        rest -= weight;
                        rest < 0.0
                    });
                    piece.unwrap_or(vocab_size - 1) as i32
                })
                .collect();
            let states = Tensor::<2>::zeros([n, 1], &device);
            let trained = bias.clone().require_grad();
            let drawn = sampled.draw(vocab_size, step);
            let loss = drawn.losses(states, &next, |ids| table.clone().select(0, ids), Some(trained.clone()));
            let gradient = trained.grad(&loss.mean().backward()).unwrap();
            bias = Tensor::from_inner(bias.inner() - gradient * 0.5);
            if step >= steps / 3 {
                mean.iter_mut().zip(bias.to_data().iter::<f64>()).for_each(|(sum, logit)| *sum += logit);
            }
        }
        let n_summed = (steps - steps / 3) as f64;
        let exps: Vec<f64> = mean.iter().map(|sum| (sum / n_summed).exp()).collect();
        let sum: f64 = exps.iter().sum();
        let distance: f64 =
            exps.iter().zip(&weights).map(|(e, weight)| (e / sum - weight / total).abs()).sum();
        assert!(distance < 0.08, "{distance}");
    }

    #[test]
    fn more_than_half_of_the_vocabulary_is_refused() {
        SampledSoftmax::new(50).validate(100).unwrap();
        for samples in [0, 51] {
            let message = SampledSoftmax::new(samples).validate(100).unwrap_err().to_string();
            assert!(
                message.contains(&format!("`output.samples` is {samples}, expected 1 to 50")),
                "{message}"
            );
        }
    }
}
