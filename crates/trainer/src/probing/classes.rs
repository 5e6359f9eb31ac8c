//! Classification probes: training, online codes and control tasks.

use super::config::ProbeSection;
use crate::Result;
use crate::engine::optimizer::{Optimizer, OptimizerConfig};
use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Int, Tensor};
use cloze_data::Random;
use cloze_evaluation::probing::{OnlineCode, portions};
use cloze_model::ParamInit;
use cloze_model::blocks::ScalarMixConfig;
use cloze_model::probes::{ClassProbe, MixedProbe};
use cloze_ops::cross_entropy;

/// Minimum training steps of a probe, even for few examples.
const LEAST_STEPS: usize = 100;

/// Examples evaluated at a time.
const MEASURED: usize = 1_024;

/// A probe's inputs and labels.
#[derive(Clone, Copy)]
pub(crate) struct Examples<'a> {
    /// One layer's vectors, or those of several layers to concatenate, each `[n · width]`.
    pub layers: &'a [&'a [f32]],
    pub width: usize,
    /// `[n]`
    pub labels: &'a [usize],
}

impl Examples<'_> {
    /// `[rows, layers · width]`
    fn inputs(&self, rows: &[usize], device: &Device) -> Tensor<2> {
        let features = self.layers.len() * self.width;
        let mut values = Vec::with_capacity(rows.len() * features);
        for row in rows {
            for layer in self.layers {
                values.extend_from_slice(&layer[row * self.width..][..self.width]);
            }
        }
        Tensor::<1>::from_data(values.as_slice(), device).reshape([rows.len(), features])
    }

    /// `[rows]`
    fn labels(&self, rows: &[usize], device: &Device) -> Tensor<1, Int> {
        let labels: Vec<i32> = rows.iter().map(|row| self.labels[*row] as i32).collect();
        Tensor::from_data(labels.as_slice(), device)
    }
}

/// A classification model.
pub(crate) trait Classifier: Module {
    /// # Shapes
    /// - `inputs`: `[n, features]`; returns `[n, n_classes]`
    fn logits(&self, inputs: Tensor<2>) -> Tensor<2>;
}

impl Classifier for ClassProbe {
    fn logits(&self, inputs: Tensor<2>) -> Tensor<2> {
        self.forward(inputs)
    }
}

impl Classifier for MixedProbe {
    fn logits(&self, inputs: Tensor<2>) -> Tensor<2> {
        self.forward(inputs)
    }
}

/// How and where probes are trained.
pub(crate) struct Training<'a> {
    pub section: &'a ProbeSection,
    pub n_classes: usize,
    /// A device without autodiff.
    pub device: &'a Device,
    pub seed: u64,
}

impl Training<'_> {
    /// Trains a probe: an MLP if `hidden` is set, else linear.
    ///
    /// # Errors
    /// None for a valid config.
    pub fn probe(
        &self,
        examples: &Examples<'_>,
        rows: &[usize],
        hidden: Option<usize>,
    ) -> Result<ClassProbe> {
        let init = &mut ParamInit::new(&self.device.clone().autodiff(), self.seed);
        let features = examples.layers.len() * examples.width;
        self.train(ClassProbe::new(features, hidden, self.n_classes, init), examples, rows)
    }

    /// Trains a linear probe on a learned mix of layers.
    ///
    /// # Errors
    /// Those of [`probe`](Self::probe).
    pub fn mixed(&self, examples: &Examples<'_>, rows: &[usize]) -> Result<MixedProbe> {
        let init = &mut ParamInit::new(&self.device.clone().autodiff(), self.seed);
        let mix = ScalarMixConfig::new(examples.layers.len()).init(init);
        let probe = ClassProbe::new(examples.width, None, self.n_classes, init);
        self.train(MixedProbe { mix, probe }, examples, rows)
    }

    /// Minimises the mean cross-entropy with Adam, over `rows` of the examples in a new order each epoch.
    ///
    /// Deviation: the papers halve the learning rate or stop when a development loss stops falling; here it is
    /// constant.
    fn train<M: Classifier>(&self, mut model: M, examples: &Examples<'_>, rows: &[usize]) -> Result<M> {
        let ProbeSection { epochs, batch_size, lr, .. } = *self.section;
        let device = self.device.clone().autodiff();
        let config = OptimizerConfig { eps: 1e-8, weight_decay: 0.0, ..OptimizerConfig::default() };
        let mut optimizer = Optimizer::new(config, &model)?;
        let mut rows = rows.to_vec();
        let epochs = epochs.max(LEAST_STEPS.div_ceil(rows.len().div_ceil(batch_size)));
        for epoch in 0..epochs {
            shuffle(&mut rows, &mut Random::derive(self.seed, &[epoch as u64]));
            for batch in rows.chunks(batch_size) {
                let logits = model.logits(examples.inputs(batch, &device));
                let loss = cross_entropy(logits, examples.labels(batch, &device)).mean();
                let gradients = GradientsParams::from_grads(loss.backward(), &model);
                model = optimizer.step(model, gradients, lr, 1.0);
            }
        }
        Ok(model.valid())
    }

    /// The code length of the labels of all examples, see [`OnlineCode`].
    ///
    /// # Errors
    /// Those of [`probe`](Self::probe).
    pub fn code(&self, examples: &Examples<'_>, hidden: Option<usize>) -> Result<OnlineCode> {
        let mut rows: Vec<usize> = (0..examples.labels.len()).collect();
        // Portions are random examples, not the first texts.
        shuffle(&mut rows, &mut Random::derive(self.seed, &[u64::MAX]));
        let ends = portions(rows.len());
        let mut code = OnlineCode::new(self.n_classes, ends.first().copied().unwrap_or_default());
        for pair in ends.windows(2) {
            let probe = self.probe(examples, &rows[..pair[0]], hidden)?;
            let portion = &rows[pair[0]..pair[1]];
            code.push(portion.len(), measure(&probe, examples, portion, self.device).nats);
        }
        Ok(code)
    }
}

/// The result of an evaluation.
pub(crate) struct Measured {
    /// The fraction of rows classified correctly.
    pub accuracy: f64,
    /// The sum of the rows' cross-entropies.
    pub nats: f64,
}

/// Evaluates a trained probe.
pub(crate) fn measure(
    model: &impl Classifier,
    examples: &Examples<'_>,
    rows: &[usize],
    device: &Device,
) -> Measured {
    let (mut right, mut nats) = (0, 0.0);
    for batch in rows.chunks(MEASURED) {
        let logits = model.logits(examples.inputs(batch, device));
        let losses = cross_entropy(logits.clone(), examples.labels(batch, device)).into_data();
        nats += losses.iter::<f32>().map(f64::from).sum::<f64>();
        let told = logits.argmax(1).into_data();
        right += told
            .iter::<i64>()
            .zip(batch)
            .filter(|(told, row)| *told == examples.labels[**row] as i64)
            .count();
    }
    Measured { accuracy: right as f64 / rows.len() as f64, nats }
}

/// The control task of words (Hewitt & Liang 2019, §2.2): each word type has one label for all its occurrences,
/// drawn with the frequencies of labels in the training data. Returns the labels of the training words and of
/// the others.
pub(super) fn control<'a>(
    train: &[&'a str],
    dev: &[&'a str],
    train_labels: &[usize],
    random: &mut Random,
) -> [Vec<usize>; 2] {
    let mut of_types: std::collections::BTreeMap<&str, usize> =
        train.iter().chain(dev).map(|word| (*word, 0)).collect();
    for label in of_types.values_mut() {
        *label = train_labels[random.below(train_labels.len() as u64) as usize];
    }
    [train, dev].map(|words| words.iter().map(|word| of_types[word]).collect())
}

/// Shuffles values (Fisher & Yates).
pub(super) fn shuffle<T>(values: &mut [T], random: &mut Random) {
    for at in (1..values.len()).rev() {
        values.swap(at, random.below(at as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDTH: usize = 8;

    /// Random vectors whose third feature says the class if a signal is `planted`; else nothing does.
    fn examples(n: usize, planted: bool) -> (Vec<f32>, Vec<usize>) {
        let mut random = Random::new(9);
        let mut vectors: Vec<f32> = (0..n * WIDTH).map(|_| random.unit_f32() * 2.0 - 1.0).collect();
        let labels: Vec<usize> = (0..n).map(|_| random.below(3) as usize).collect();
        if planted {
            for (vector, label) in vectors.chunks_exact_mut(WIDTH).zip(&labels) {
                vector[2] += 4.0 * (*label as f32 - 1.0);
            }
        }
        (vectors, labels)
    }

    fn section() -> ProbeSection {
        ProbeSection { epochs: 20, batch_size: 32, lr: 0.02, ..ProbeSection::default() }
    }

    /// Accuracy on the last hundred of some examples, learned from the others.
    fn accuracy(planted: bool, hidden: Option<usize>) -> f64 {
        let (device, section) = (Device::flex(), section());
        let (vectors, labels) = examples(500, planted);
        let layers = [&vectors[..]];
        let examples = Examples { layers: &layers, width: WIDTH, labels: &labels };
        let training = Training { section: &section, n_classes: 3, device: &device, seed: 3 };
        let (train, dev): (Vec<usize>, Vec<usize>) = (0..500).partition(|row| *row < 400);
        let probe = training.probe(&examples, &train, hidden).unwrap();
        measure(&probe, &examples, &dev, &device).accuracy
    }

    #[test]
    fn a_planted_signal_is_found_and_nothing_is_not() {
        for hidden in [None, Some(16)] {
            assert!(accuracy(true, hidden) > 0.95);
            let chance = accuracy(false, hidden);
            assert!(chance < 0.55, "{chance} of what is random");
        }
    }

    #[test]
    fn what_can_be_learned_is_shorter() {
        let (device, section) = (Device::flex(), section());
        let [planted, random] = [true, false].map(|planted| {
            let (vectors, labels) = examples(500, planted);
            let layers = [&vectors[..]];
            let examples = Examples { layers: &layers, width: WIDTH, labels: &labels };
            let training = Training { section: &section, n_classes: 3, device: &device, seed: 3 };
            let code = || training.code(&examples, None).unwrap();
            assert_eq!(code().bits().to_bits(), code().bits().to_bits());
            code().compression()
        });
        assert!(planted > 2.0 && random < 1.1, "{planted}, {random}");
    }

    #[test]
    fn the_mean_over_layers_prefers_the_layer_that_knows() {
        let (device, section) = (Device::flex(), section());
        let (planted, labels) = examples(400, true);
        let (nothing, _) = examples(400, false);
        let layers = [&nothing[..], &planted[..]];
        let examples = Examples { layers: &layers, width: WIDTH, labels: &labels };
        let training = Training { section: &section, n_classes: 3, device: &device, seed: 3 };
        let rows: Vec<usize> = (0..400).collect();
        let mixed = training.mixed(&examples, &rows).unwrap();
        let weights = mixed.mix.shares();
        assert!(weights[1] > 0.55, "{weights:?}");
        assert!(measure(&mixed, &examples, &rows, &device).accuracy > 0.95);
    }

    #[test]
    fn a_type_of_word_has_one_random_label() {
        let (train, dev) = (["a", "b", "a", "c"], ["b", "d", "a"]);
        let draw = |seed| control(&train, &dev, &[0, 1, 1, 2], &mut Random::new(seed));
        for seed in 0..20 {
            let [of_train, of_dev] = draw(seed);
            assert_eq!((of_train[0], of_train[0], of_train[1]), (of_train[2], of_dev[2], of_dev[0]));
            assert_eq!(draw(seed), [of_train, of_dev]);
        }
        assert!((1..20).any(|seed| draw(seed) != draw(0)));
    }
}
