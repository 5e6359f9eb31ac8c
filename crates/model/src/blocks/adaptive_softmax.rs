//! An output layer for large vocabularies whose time is spent on the frequent words.

use super::Linear;
use crate::{ModelError, ParamInit, Result, linear_maps, ops};
use burn::module::Module;
use burn::tensor::{Device, Int, Tensor, TensorData, activation};
use serde::{Deserialize, Serialize};

/// The configuration of an [`AdaptiveSoftmax`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct AdaptiveSoftmaxConfig {
    /// The ids at which the clusters of rare pieces begin, ascending; the last cluster ends with the vocabulary. Pieces below
    /// the first one are predicted directly. Ids should be in the order of frequency, as a vocabulary of words has them.
    pub cutoffs: Vec<usize>,
    /// The features of states are divided by this once more for each cluster. Default 4.
    #[serde(default = "divisor")]
    pub divisor: f64,
}

fn divisor() -> f64 {
    4.0
}

impl AdaptiveSoftmaxConfig {
    /// Clusters that begin at these ids.
    pub fn new(cutoffs: Vec<usize>) -> Self {
        Self { cutoffs, divisor: divisor() }
    }

    /// Sets the divisor.
    pub fn with_divisor(mut self, divisor: f64) -> Self {
        self.divisor = divisor;
        self
    }

    /// Checks that the clusters divide a vocabulary, and that each has features.
    ///
    /// # Errors
    /// [`ModelError::Setting`] with the invalid key, `output.cutoffs` or `output.divisor`.
    pub fn validate(&self, vocab_size: usize, d_model: usize) -> Result<()> {
        let refuse = |expected: String| {
            Err(ModelError::Setting { key: "output.cutoffs", found: format!("{:?}", self.cutoffs), expected })
        };
        if self.cutoffs.is_empty() || self.cutoffs[0] == 0 || !self.cutoffs.is_sorted_by(|a, b| a < b) {
            return refuse("ascending numbers, the first at least 1".into());
        }
        if self.cutoffs.last().is_some_and(|last| *last >= vocab_size) {
            return refuse(format!("numbers below the size of the vocabulary, which is {vocab_size}"));
        }
        if !(self.divisor >= 1.0 && self.divisor.is_finite()) {
            return Err(ModelError::setting(
                "output.divisor",
                self.divisor,
                "a number of 1 or more, such as 4",
            ));
        }
        let (n, narrowest) = (self.cutoffs.len(), self.width(self.cutoffs.len() - 1, d_model));
        if narrowest == 0 {
            let expected = format!("smaller: of {d_model} features, it leaves none to cluster {n}");
            return Err(ModelError::setting("output.divisor", self.divisor, expected));
        }
        Ok(())
    }

    /// The features of a cluster, from 0.
    fn width(&self, cluster: usize, d_model: usize) -> usize {
        (d_model as f64 / self.divisor.powi(cluster as i32 + 1)) as usize
    }

    /// A new output layer for states of `d_model` features; its weights are initially uniform between `±1/√d_in`, as
    /// PyTorch's.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init(&self, vocab_size: usize, d_model: usize, init: &mut ParamInit) -> AdaptiveSoftmax {
        self.validate(vocab_size, d_model).unwrap_or_else(|error| panic!("{error}"));
        let mut map = |d_in: usize, d_out: usize| {
            Linear::from_parts(init.uniform([d_in, d_out], 1.0 / (d_in as f64).sqrt()), None)
        };
        let head = map(d_model, self.cutoffs[0] + self.cutoffs.len());
        let ends = self.cutoffs.iter().skip(1).copied().chain([vocab_size]);
        let tails = self.cutoffs.iter().zip(ends).enumerate().map(|(cluster, (start, end))| {
            let width = self.width(cluster, d_model);
            AdaptiveTail { down: map(d_model, width), up: map(width, end - start) }
        });
        let tails = tails.collect();
        AdaptiveSoftmax { head, tails }
    }
}

/// Adaptive softmax (Grave et al. 2017, §4): `P(w | h)` is `softmax(W·h)_w` for a frequent piece, and
/// `softmax(W·h)_c · softmax(Uᶜ·Vᶜ·h)_w` for a piece of cluster `c`. The product with a cluster's matrix is only computed for
/// tokens whose piece is in it, and rare pieces have fewer features. Equal to PyTorch's `AdaptiveLogSoftmaxWithLoss`
/// without the head's bias, with its negative log-likelihoods as losses.
#[derive(Module, Debug)]
pub struct AdaptiveSoftmax {
    /// `[d_model, shortlist + clusters]`: the frequent pieces, then the clusters.
    pub head: Linear,
    /// The clusters, from the most frequent to the rarest.
    pub tails: Vec<AdaptiveTail>,
}

/// A cluster of rare pieces.
#[derive(Module, Debug)]
pub struct AdaptiveTail {
    /// `[d_model, d_model / divisor^i]`
    pub down: Linear,
    /// `[d_model / divisor^i, pieces]`
    pub up: Linear,
}

linear_maps!(AdaptiveTail { down, up });
linear_maps!(AdaptiveSoftmax { head, tails });

impl AdaptiveTail {
    fn logits(&self, states: Tensor<2>) -> Tensor<2> {
        self.up.forward(self.down.forward(states))
    }
}

/// The tokens whose pieces are in a cluster.
#[derive(Default)]
struct Members {
    tokens: Vec<i32>,
    /// Their pieces, from 0.
    labels: Vec<i32>,
}

impl AdaptiveSoftmax {
    /// The number of pieces that the head predicts directly.
    fn shortlist(&self) -> usize {
        self.head.weight.lazy_shape().dims::<2>()[1] - self.tails.len()
    }

    /// The pieces in the vocabulary.
    pub fn vocab_size(&self) -> usize {
        let sizes = self.tails.iter().map(|tail| tail.up.weight.lazy_shape().dims::<2>()[1]);
        self.shortlist() + sizes.sum::<usize>()
    }

    /// The log-probabilities of all pieces.
    ///
    /// # Shapes
    /// - `states`: `[n, d_model]`; returns `[n, vocab_size]`
    pub fn log_probs(&self, states: Tensor<2>) -> Tensor<2> {
        let shortlist = self.shortlist();
        let head = activation::log_softmax(self.head.forward(states.clone()), 1);
        let tails = self.tails.iter().enumerate().map(|(cluster, tail)| {
            let of_cluster = head.clone().narrow(1, shortlist + cluster, 1);
            activation::log_softmax(tail.logits(states.clone()), 1) + of_cluster
        });
        let parts = std::iter::once(head.clone().narrow(1, 0, shortlist)).chain(tails);
        Tensor::cat(parts.collect(), 1)
    }

    /// The cross-entropy of each piece, `−log P(next | state)`, in nats.
    ///
    /// # Shapes
    /// - `states`: `[n, d_model]`; `next`: `n` ids; returns `[n]`
    ///
    /// # Panics
    /// If the numbers of ids and states differ, or an id is not in the vocabulary.
    pub fn losses(&self, states: Tensor<2>, next: &[i32]) -> Tensor<1> {
        let (n, device) = (states.dims()[0], states.device());
        assert_eq!(next.len(), n, "the ids that follow, and the states");
        let shortlist = self.shortlist();
        let mut starts = vec![shortlist];
        for tail in &self.tails {
            starts.push(starts[starts.len() - 1] + tail.up.weight.lazy_shape().dims::<2>()[1]);
        }
        let vocab_size = starts[self.tails.len()];
        let mut clusters: Vec<Members> = self.tails.iter().map(|_| Members::default()).collect();
        let mut labels = Vec::with_capacity(n);
        for (token, id) in next.iter().enumerate() {
            let piece = usize::try_from(*id).ok().filter(|id| *id < vocab_size);
            let piece = piece.unwrap_or_else(|| panic!("the id {id} is not in a vocabulary of {vocab_size}"));
            match starts.partition_point(|start| *start <= piece) {
                0 => labels.push(*id),
                place => {
                    let (members, cluster) = (&mut clusters[place - 1], place - 1);
                    members.tokens.push(token as i32);
                    members.labels.push((piece - starts[cluster]) as i32);
                    labels.push((shortlist + cluster) as i32);
                }
            }
        }
        let losses = ops::cross_entropy(self.head.forward(states.clone()), ids(&labels, &device));
        let is_trained = self.head.weight.val().is_require_grad();
        // The first is that of tokens in no cluster; `places` has each token's among the others.
        let mut parts = vec![Tensor::<1>::zeros([1], &device)];
        let (mut places, mut n_parts) = (vec![0; n], 1);
        for (tail, mut members) in self.tails.iter().zip(clusters) {
            for (i, token) in members.tokens.iter().enumerate() {
                places[*token as usize] = n_parts + i as i32;
            }
            if members.tokens.is_empty() {
                if !is_trained || n == 0 {
                    continue;
                }
                // A loss that no token takes: its gradient is zero, and every replica has one.
                members = Members { tokens: vec![0], labels: vec![0] };
            }
            n_parts += members.tokens.len() as i32;
            let logits = tail.logits(states.clone().select(0, ids(&members.tokens, &device)));
            parts.push(ops::cross_entropy(logits, ids(&members.labels, &device)));
        }
        losses + Tensor::cat(parts, 0).select(0, ids(&places, &device))
    }
}

fn ids(ids: &[i32], device: &Device) -> Tensor<1, Int> {
    Tensor::from_data(TensorData::new(ids.to_vec(), [ids.len()]), device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Tolerance;

    #[test]
    fn the_losses_are_the_log_probabilities_which_sum_to_one() {
        let device = Device::flex();
        let config = AdaptiveSoftmaxConfig::new(vec![4, 9]).with_divisor(2.0);
        let output = config.init(20, 8, &mut ParamInit::new(&device, 3));
        assert_eq!(output.vocab_size(), 20);
        let states: Vec<f32> = (0..20 * 8).map(|i| (i as f32 * 0.7).sin() * 3.0).collect();
        let states = Tensor::<2>::from_data(TensorData::new(states, [20, 8]), &device);
        let log_probs = output.log_probs(states.clone());
        let sums = log_probs.clone().exp().sum_dim(1).into_data();
        sums.assert_approx_eq::<f32>(&TensorData::new(vec![1f32; 20], [20, 1]), Tolerance::absolute(1e-5));
        let log_probs: Vec<f32> = log_probs.into_data().iter::<f32>().collect();
        // All pieces, those of one cluster, and those of none.
        for next in [(0..20).collect::<Vec<i32>>(), vec![10; 20], vec![3; 20]] {
            let losses = output.losses(states.clone(), &next).into_data();
            let expected: Vec<f32> =
                next.iter().enumerate().map(|(row, id)| -log_probs[row * 20 + *id as usize]).collect();
            losses.assert_approx_eq::<f32>(&TensorData::new(expected, [20]), Tolerance::absolute(1e-5));
        }
    }

    #[test]
    fn a_cluster_without_a_token_has_a_gradient_of_zeros() {
        let device = Device::flex().autodiff();
        let output = AdaptiveSoftmaxConfig::new(vec![4, 9]).init(20, 16, &mut ParamInit::new(&device, 3));
        let states = Tensor::<2>::ones([3, 16], &device);
        let gradients = output.losses(states, &[2, 10, 11]).sum().backward();
        let greatest =
            |map: &Linear| map.weight.val().grad(&gradients).unwrap().abs().max().into_scalar::<f32>();
        for map in [&output.tails[0].down, &output.tails[0].up] {
            assert_eq!(greatest(map), 0.0);
        }
        for map in [&output.head, &output.tails[1].down, &output.tails[1].up] {
            assert!(greatest(map) > 1e-6);
        }
    }

    #[test]
    fn what_does_not_divide_the_vocabulary_is_named() {
        let base = AdaptiveSoftmaxConfig::new(vec![10, 50]);
        base.validate(51, 16).unwrap();
        for (cutoffs, divisor, expected) in [
            (vec![], 4.0, "`output.cutoffs` is [], expected ascending numbers"),
            (vec![0, 5], 4.0, "`output.cutoffs` is [0, 5], expected ascending numbers, the first at least 1"),
            (vec![5, 5], 4.0, "`output.cutoffs` is [5, 5]"),
            (vec![5, 51], 4.0, "expected numbers below the size of the vocabulary, which is 51"),
            (vec![5], 0.5, "`output.divisor` is 0.5, expected a number of 1 or more"),
            (vec![5], f64::NAN, "`output.divisor` is NaN"),
            (
                vec![5, 9],
                5.0,
                "`output.divisor` is 5, expected smaller: of 16 features, it leaves none to cluster 2",
            ),
        ] {
            let config = AdaptiveSoftmaxConfig { cutoffs, divisor };
            let message = config.validate(51, 16).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
