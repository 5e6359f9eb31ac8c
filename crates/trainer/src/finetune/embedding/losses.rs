//! Losses for embeddings. Each is the sentence-transformers loss that it names, except for the distance of
//! [`Triplet`].

use burn::tensor::activation::{log_softmax, relu};
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use cloze_model::blocks::Linear;
use serde::{Deserialize, Serialize};

/// The embeddings of a batch, `n` examples.
#[derive(Debug, Clone)]
pub struct EmbeddingBatch<'a> {
    /// Each example's first sentence, `[n, width]`.
    pub first: Tensor<2>,
    /// Each example's second sentence, `[n, width]`, if there are pairs.
    pub second: Option<Tensor<2>>,
    /// All examples' negatives, concatenated, `[negatives, width]`, if there are any.
    pub negatives: Option<Tensor<2>>,
    /// The index of each negative's example.
    pub owners: &'a [usize],
    /// Each example's score; empty if there are none.
    pub scores: &'a [f64],
    /// Each example's class; empty if there are none.
    pub classes: &'a [usize],
    /// A map from [`pair_features`] to class logits, trained along with the encoder, if there are classes.
    pub classifier: Option<&'a Linear>,
    /// A frozen reference model's embeddings of the same sentences, if the loss needs them.
    pub reference: Option<Box<EmbeddingBatch<'a>>>,
}

impl<'a> EmbeddingBatch<'a> {
    /// The batch of `rows`: `n` first sentences, then second ones if `pairs`, then negatives.
    ///
    /// # Panics
    /// If the number of rows does not match.
    pub fn of_rows(rows: Tensor<2>, n: usize, pairs: bool, owners: &'a [usize], scores: &'a [f64]) -> Self {
        let [found, width] = rows.dims();
        let before = if pairs { 2 * n } else { n };
        assert_eq!(found, before + owners.len(), "a row for each sentence");
        let part = |from: usize, to: usize| rows.clone().slice([from..to, 0..width]);
        Self {
            first: part(0, n),
            second: pairs.then(|| part(n, before)),
            negatives: (!owners.is_empty()).then(|| part(before, found)),
            owners,
            scores,
            classes: &[],
            classifier: None,
            reference: None,
        }
    }

    /// The number of examples.
    pub fn n_examples(&self) -> usize {
        self.first.dims()[0]
    }

    /// The second sentences, or the first ones if there are none.
    fn second(&self) -> Tensor<2> {
        self.second.clone().unwrap_or_else(|| self.first.clone())
    }

    /// The same with only the first `width` features, scaled to length 1.
    pub fn narrowed(&self, width: usize) -> Self {
        let cut = |rows: &Tensor<2>| {
            let [n, _] = rows.dims();
            unit(rows.clone().slice([0..n, 0..width]))
        };
        Self {
            first: cut(&self.first),
            second: self.second.as_ref().map(cut),
            negatives: self.negatives.as_ref().map(cut),
            ..self.clone()
        }
    }

    /// All rows, in the order of [`of_rows`](Self::of_rows).
    fn rows(&self) -> Tensor<2> {
        let parts = [Some(&self.first), self.second.as_ref(), self.negatives.as_ref()];
        Tensor::cat(parts.into_iter().flatten().cloned().collect(), 0)
    }
}

/// A loss of embeddings. Pass a custom one to [`EmbeddingTask::new`](super::EmbeddingTask::new).
pub trait EmbeddingLoss: Send + Sync {
    /// The mean loss of a batch, `[1]`.
    fn mean(&self, batch: &EmbeddingBatch<'_>) -> Tensor<1>;
}

/// The distance between two embeddings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TripletDistance {
    /// The Euclidean distance.
    #[default]
    Euclidean,
    /// 1 minus their cosine.
    Cosine,
}

/// Scales each row to length 1, as in `torch.nn.functional.normalize`.
pub(super) fn unit(rows: Tensor<2>) -> Tensor<2> {
    // A root's slope at 0 is infinite: a row of zeros is to have none.
    let norms = rows.clone().powf_scalar(2.0).sum_dim(1).clamp_min(1e-24).sqrt();
    rows / norms
}

/// The cosine of each row of `a` with each row of `b`, `[n, m]`.
fn cosines(a: Tensor<2>, b: Tensor<2>) -> Tensor<2> {
    unit(a).matmul(unit(b).transpose())
}

/// The cosine of each row of `a` with the corresponding row of `b`, `[n]`.
fn cosines_of_pairs(a: Tensor<2>, b: Tensor<2>) -> Tensor<1> {
    (unit(a) * unit(b)).sum_dim(1).squeeze_dim::<1>(1)
}

/// The mean cross-entropy with each row's own index as its target.
fn own(logits: Tensor<2>) -> Tensor<1> {
    let [n, _] = logits.dims();
    let places = Tensor::arange(0..n as i64, &logits.device());
    cross_entropy(logits, places)
}

/// The mean cross-entropy of rows of logits, `[n, m]`, with targets `[n]`.
fn cross_entropy(logits: Tensor<2>, places: Tensor<1, Int>) -> Tensor<1> {
    log_softmax(logits, 1).gather(1, places.unsqueeze_dim::<2>(1)).mean().neg()
}

/// A tensor of values on the device.
fn values(values: impl Iterator<Item = f64>, device: &Device) -> Tensor<1> {
    let values: Vec<f32> = values.map(|value| value as f32).collect();
    let n = values.len();
    Tensor::from_data(TensorData::new(values, [n]), device)
}

/// In-batch negatives: `−log (exp(cos(aᵢ, pᵢ)/τ) / Σⱼ exp(cos(aᵢ, cⱼ)/τ))`, where the candidates `c` are all
/// second sentences and negatives of the batch (Henderson et al. 2017, §4.4; `MultipleNegativesRankingLoss`
/// with `scale` = 1/τ). If both sentences are the same text with different dropout, it is the loss of SimCSE
/// (Gao, Yao & Chen 2021, eq. 4).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InBatchNegatives {
    /// τ
    pub temperature: f64,
    /// Whether to average with the same loss for second sentences, with all first ones as candidates
    /// (`MultipleNegativesSymmetricRankingLoss`).
    pub symmetric: bool,
}

impl EmbeddingLoss for InBatchNegatives {
    fn mean(&self, batch: &EmbeddingBatch<'_>) -> Tensor<1> {
        let n = batch.n_examples();
        let mut candidates = vec![batch.second()];
        candidates.extend(batch.negatives.clone());
        let logits = cosines(batch.first.clone(), Tensor::cat(candidates, 0)) / self.temperature;
        let forward = own(logits.clone());
        match self.symmetric {
            true => (forward + own(logits.slice([0..n, 0..n]).transpose())) / 2.0,
            false => forward,
        }
    }
}

/// In-batch negatives without those that a guide model finds more similar to the first sentence than its second
/// is (Solatorio 2024, `GISTEmbedLoss`). Candidates are all second sentences, the other first ones, the other
/// second ones relative to the second sentence, and the negatives. Without a reference the model guides itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GuidedNegatives {
    /// Divides the cosines.
    pub temperature: f64,
    /// How much less similar than the second sentence a candidate may be and still be excluded.
    pub margin: f64,
}

impl EmbeddingLoss for GuidedNegatives {
    fn mean(&self, batch: &EmbeddingBatch<'_>) -> Tensor<1> {
        let n = batch.n_examples();
        let tables = |batch: &EmbeddingBatch<'_>| {
            let (a, p) = (batch.first.clone(), batch.second());
            let mut tables =
                vec![cosines(a.clone(), p.clone()), cosines(a.clone(), a.clone()), cosines(p.clone(), p)];
            tables.extend(batch.negatives.clone().map(|negatives| cosines(a, negatives)));
            tables
        };
        let guide = tables(batch.reference.as_deref().unwrap_or(batch));
        let guide = Tensor::cat(guide, 1).detach();
        let device = guide.device();
        let places = Tensor::<1, Int>::arange(0..n as i64, &device).unsqueeze_dim::<2>(1);
        let own_pairs = guide.clone().gather(1, places);
        let [_, width] = guide.dims();
        let too_like = guide.greater((own_pairs - self.margin).expand([n, width]));
        let kept: Vec<bool> = (0..n * width).map(|cell| cell % width != cell / width).collect();
        let kept = Tensor::<2, Bool>::from_data(TensorData::new(kept, [n, width]), &device);
        let logits = Tensor::cat(tables(batch), 1);
        // What is left out has no part in the softmax, and no gradient.
        own(logits.mask_fill(too_like.bool_and(kept), -1e4) / self.temperature)
    }
}

/// `max(d(a, p) − d(a, n) + margin, 0)` of each negative (`TripletLoss`; Schroff et al. 2015, eq. 3).
///
/// Deviation: sentence-transformers 5.1 gives the Euclidean distance the wrong sign; here it has the paper's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Triplet {
    /// d
    pub distance: TripletDistance,
    /// How much farther away a negative must be.
    pub margin: f64,
}

impl EmbeddingLoss for Triplet {
    fn mean(&self, batch: &EmbeddingBatch<'_>) -> Tensor<1> {
        let Some(negatives) = batch.negatives.clone() else {
            return batch.first.clone().sum() * 0.0;
        };
        let owners: Vec<i32> = batch.owners.iter().map(|owner| *owner as i32).collect();
        let owners = Tensor::<1, Int>::from_data(owners.as_slice(), &negatives.device());
        let first = batch.first.clone().select(0, owners.clone());
        let distance = |a: Tensor<2>, b: Tensor<2>| match self.distance {
            // The small number is torch's, which so has a slope at 0.
            TripletDistance::Euclidean => {
                (a - b + 1e-6).powf_scalar(2.0).sum_dim(1).sqrt().squeeze_dim::<1>(1)
            }
            TripletDistance::Cosine => cosines_of_pairs(a, b).neg() + 1.0,
        };
        let near = distance(first.clone(), batch.second().select(0, owners));
        relu(near - distance(first, negatives) + self.margin).mean()
    }
}

/// `(cos(u, v) − score / max_score)²` (`CosineSimilarityLoss`; Reimers & Gurevych 2019, §3).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CosineRegression {
    /// The score of a pair with target cosine 1.
    pub max_score: f64,
}

impl EmbeddingLoss for CosineRegression {
    fn mean(&self, batch: &EmbeddingBatch<'_>) -> Tensor<1> {
        let found = cosines_of_pairs(batch.first.clone(), batch.second());
        let gold = values(batch.scores.iter().map(|score| score / self.max_score), &found.device());
        (found - gold).powf_scalar(2.0).mean()
    }
}

/// `log (1 + Σ exp((cos(uⱼ, vⱼ) − cos(uᵢ, vᵢ)) / τ))` over all pairs in which `i` has the higher score
/// (`CoSENTLoss` with `scale` = 1/τ; Su 2022).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cosent {
    /// τ
    pub temperature: f64,
}

impl EmbeddingLoss for Cosent {
    fn mean(&self, batch: &EmbeddingBatch<'_>) -> Tensor<1> {
        let found = cosines_of_pairs(batch.first.clone(), batch.second()) / self.temperature;
        let device = found.device();
        let (mut lower, mut higher) = (Vec::new(), Vec::new());
        for (i, one) in batch.scores.iter().enumerate() {
            let above = batch.scores.iter().enumerate().filter(|(_, other)| one < *other);
            for (j, _) in above {
                lower.push(i as i32);
                higher.push(j as i32);
            }
        }
        if lower.is_empty() {
            return found.sum() * 0.0;
        }
        let of = |places: Vec<i32>| found.clone().select(0, Tensor::<1, Int>::from_data(&*places, &device));
        // Where two scores are equal sentence-transformers adds exp(−10¹²), which is 0.
        let differences = of(lower) - of(higher);
        let terms = Tensor::cat(vec![Tensor::zeros([1], &device), differences], 0);
        let greatest = terms.clone().detach().max();
        (terms - greatest.clone()).exp().sum().log() + greatest
    }
}

/// The features for classifying pairs: `(u, v, |u − v|)` (Reimers & Gurevych 2019, §3 and Table 6).
///
/// # Shapes
/// - `u`, `v`: `[n, width]`; returns `[n, 3 · width]`
pub fn pair_features(u: Tensor<2>, v: Tensor<2>) -> Tensor<2> {
    let apart = (u.clone() - v.clone()).abs();
    Tensor::cat(vec![u, v, apart], 1)
}

/// The cross-entropy of classes of pairs, `softmax(W·(u, v, |u − v|) + b)` (`SoftmaxLoss`; Reimers & Gurevych 2019, §3).
///
/// Deviation: the paper's map has no bias; sentence-transformers' has one, and so does this one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairClasses;

impl EmbeddingLoss for PairClasses {
    /// # Panics
    /// Without a classifier, or if the number of classes differs from the number of examples.
    fn mean(&self, batch: &EmbeddingBatch<'_>) -> Tensor<1> {
        let classifier = batch.classifier.expect("a classifier of pairs");
        assert_eq!(batch.classes.len(), batch.n_examples(), "a class for each example");
        let logits = classifier.forward(pair_features(batch.first.clone(), batch.second()));
        let classes: Vec<i32> = batch.classes.iter().map(|class| *class as i32).collect();
        let classes = Tensor::<1, Int>::from_data(classes.as_slice(), &logits.device());
        cross_entropy(logits, classes)
    }
}

/// `(u − t)²` of every feature, where t is a teacher's embedding (`MSELoss`; Reimers & Gurevych 2020, §3).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Distillation;

impl EmbeddingLoss for Distillation {
    /// # Panics
    /// Without a reference.
    fn mean(&self, batch: &EmbeddingBatch<'_>) -> Tensor<1> {
        let teacher = batch.reference.as_ref().expect("a teacher's embeddings").rows();
        (batch.rows() - teacher).powf_scalar(2.0).mean()
    }
}

/// A loss on prefixes of the embeddings, summed over several widths (Kusupati et al. 2022, eq. 1;
/// `MatryoshkaLoss`).
pub struct Matryoshka<L> {
    /// The loss.
    pub loss: L,
    /// Widths, each with its weight.
    pub widths: Vec<(usize, f64)>,
}

impl<L: EmbeddingLoss> EmbeddingLoss for Matryoshka<L> {
    fn mean(&self, batch: &EmbeddingBatch<'_>) -> Tensor<1> {
        let losses =
            self.widths.iter().map(|(width, weight)| self.loss.mean(&batch.narrowed(*width)) * *weight);
        losses.reduce(|sum, more| sum + more).unwrap_or_else(|| batch.first.clone().sum() * 0.0)
    }
}

impl<L: EmbeddingLoss + ?Sized> EmbeddingLoss for Box<L> {
    fn mean(&self, batch: &EmbeddingBatch<'_>) -> Tensor<1> {
        (**self).mean(batch)
    }
}
