use super::DrawnPlaces;
use burn::tensor::Tensor;

/// The penalty that has a caption look at every place about once, `Σ_i (1 − Σ_t α_ti)²` (Xu et al. 2015, eq. 14): one number
/// for each caption.
///
/// # Shapes
/// - `attention`: `[n_tokens, places]`, each token's `α_t`, captions one after another
/// - `lengths`: the tokens of each caption; returns `[captions]`
pub fn doubly_stochastic_penalty(attention: Tensor<2>, lengths: &[usize]) -> Tensor<1> {
    let mut start = 0;
    let captions = lengths.iter().map(|len| {
        let looks = attention.clone().narrow(0, start, *len);
        start += len;
        looks.sum_dim(0)
    });
    let looks = Tensor::cat(captions.collect(), 0);
    (looks.neg() + 1.0).square().sum_dim(1).squeeze_dim(1)
}

/// The loss whose gradient is that of hard attention: the score function's estimate of the bound's gradient, with the entropy
/// bonus (Xu et al. 2015, eq. 12). To be minimised together with the cross-entropy of the words, it is
///
/// ```text
/// −λ_r·(log p(y | s, a) − b)·log p(s | a) − λ_e·Σ_t H(α_t)
/// ```
///
/// for a caption, where the factor before `log p(s | a)` is a constant. Its own value means nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HardAttentionLoss {
    /// `λ_r`: the weight of the reward.
    pub reward: f64,
    /// `λ_e`: the weight of the entropy.
    pub entropy: f64,
    /// `b`: what the log-probability of a caption is compared with, see [`next_baseline`](Self::next_baseline).
    pub baseline: f64,
}

impl HardAttentionLoss {
    /// One number for each caption.
    ///
    /// # Shapes
    /// - `log_probs`: `[captions]`, `log p(y | s, a)`; `lengths`: the tokens of each caption; returns `[captions]`
    pub fn forward(&self, drawn: &DrawnPlaces, log_probs: Tensor<1>, lengths: &[usize]) -> Tensor<1> {
        let reward = (log_probs.detach() - self.baseline) * self.reward;
        let [places, entropy] = [&drawn.log_probs, &drawn.entropy].map(|x| sums(x.clone(), lengths));
        (reward * places + entropy * self.entropy).neg()
    }

    /// The baseline after a batch whose captions have this mean log-probability: `b ← 0.9·b + 0.1·log p(y | s, a)`.
    pub fn next_baseline(self, mean: f64) -> Self {
        Self { baseline: 0.9 * self.baseline + 0.1 * mean, ..self }
    }
}

/// The sum of each caption's numbers, `[n_tokens]` → `[captions]`.
pub fn sums(x: Tensor<1>, lengths: &[usize]) -> Tensor<1> {
    let mut start = 0;
    let captions = lengths.iter().map(|len| {
        let own = x.clone().narrow(0, start, *len);
        start += len;
        own.sum()
    });
    Tensor::cat(captions.collect(), 0)
}
