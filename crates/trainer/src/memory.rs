//! Estimates a run's memory before it allocates.

use crate::config::{ObjectiveSection, RunConfig, TrainSection};
use crate::{Result, TrainerError, recompute};
use burn::module::Module;
use burn::tensor::Device;
use cloze_model::bert::{BertConfig, ElectraConfig};
use cloze_model::{ParamInit, weights};
use std::fmt;
use std::path::Path;

/// Bytes of an FP32 number.
pub(crate) const FLOAT: u64 = 4;
/// Elements that an optimiser keeps per trained parameter: both moments.
pub(crate) const MOMENTS: u64 = 2;
/// Bytes of a token in a batch: its id, its type, and its mask.
const TOKEN: u64 = 9;
/// The shortest possible sequence, in tokens: one token between two special ones.
const SHORTEST: f64 = 3.0;

/// The memory of training, in bytes, on a device with [fused operations](cloze_model::ops). Other devices keep
/// more of the forward pass. Overflow saturates at [`u64::MAX`].
///
/// Shown as `about 1.9 GB: parameters 438 MB, …`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryEstimate {
    /// The model's parameters.
    pub parameters: u64,
    /// Gradients of the trained parameters.
    pub gradients: u64,
    /// The optimiser's moments.
    pub moments: u64,
    /// Activations of one micro-batch kept for the backward pass. 0 if the model is partly frozen: it then
    /// keeps less, by an amount that depends on what is frozen.
    pub activations: u64,
    /// The value of `activations` with recomputed layers.
    pub recomputed: u64,
    /// The micro-batches.
    pub batches: u64,
    /// The copy of the parameters for saving the model at the end. A checkpoint is written tensor by tensor.
    pub saving: u64,
}

/// The size of a micro-batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Sequences per micro-batch.
    pub sequences: u64,
    /// Mean tokens per sequence, without padding.
    pub mean_len: f64,
    /// The fraction of tokens predicted from the whole vocabulary.
    pub predicted: f64,
    /// Micro-batches in memory.
    pub batches: u64,
    /// Whether layers are [recomputed](cloze_model::ops::recompute).
    pub recompute: bool,
}

impl MemoryEstimate {
    /// The memory of training `trained` of the `parameters` of a model on `encoder`.
    pub fn new(encoder: &BertConfig, parameters: u64, trained: u64, load: Load) -> Self {
        let Load { sequences, mean_len, predicted, batches, recompute } = load;
        let tokens = whole(sequences as f64 * mean_len);
        let [d, d_ff, d_embedding, n_heads, n_layers, vocab_size] = [
            encoder.d_model,
            encoder.d_ff,
            encoder.embedding_width(),
            encoder.n_heads,
            encoder.n_applied_layers(),
            encoder.vocab_size,
        ]
        .map(|size| size as u64);
        // Of a token in a layer: what enters attention's and the feed-forward's maps and the normalisations, queries,
        // keys and values, and the attention probabilities. The last layer goes on with few tokens.
        let of_layer = sum([product([8, d]), product([2, d_ff]), product([n_heads, whole(mean_len)])]);
        let inner_layers = n_layers.saturating_sub(1);
        let outside = sum([product([3, d]), product([3, d_embedding])]);
        let logits = product([whole(tokens as f64 * predicted), vocab_size]);
        let activations = |of_layers: u64| match trained < parameters {
            true => 0,
            false => product([sum([product([tokens, sum([of_layers, outside])]), logits]), FLOAT]),
        };
        // The layers' inputs, and all of one.
        let recomputed = activations(sum([product([n_layers, d]), product([inner_layers.min(1), of_layer])]));
        let kept = activations(product([inner_layers, of_layer]));
        Self {
            parameters: product([parameters, FLOAT]),
            gradients: product([trained, FLOAT]),
            moments: product([trained, FLOAT, MOMENTS]),
            activations: if recompute { recomputed } else { kept },
            recomputed,
            batches: product([tokens, TOKEN, batches]),
            saving: product([parameters, FLOAT]),
        }
    }

    /// Adds the activations of a second encoder in the same steps, whose parameters are counted with the first.
    pub(crate) fn with_activations_of(self, other: &Self) -> Self {
        Self {
            activations: self.activations.saturating_add(other.activations),
            recomputed: self.recomputed.saturating_add(other.recomputed),
            ..self
        }
    }

    /// The peak memory of a step: in the backward pass, gradients replace activations.
    pub fn step(&self) -> u64 {
        sum([self.parameters, self.moments, self.gradients.max(self.activations), self.batches])
    }

    /// A step, plus saving after the last one: an allocator that keeps what a step has freed seldom reuses it
    /// for copies of that size.
    pub fn total(&self) -> u64 {
        sum([self.step(), self.saving])
    }
}

impl fmt::Display for MemoryEstimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { parameters, gradients, moments, activations, batches, saving, .. } = *self;
        write!(f, "about {}: parameters {}", bytes(self.total()), bytes(parameters))?;
        write!(f, ", optimiser {}, gradients {}", bytes(moments), bytes(gradients))?;
        if activations > 0 {
            write!(f, " or before them activations {}", bytes(activations))?;
        }
        write!(f, ", batches {}, for saving {}", bytes(batches), bytes(saving))
    }
}

/// The config keys that determine a run's memory, with their values, for error messages.
pub(crate) struct Keys {
    /// Keys of the model's size.
    pub model: String,
    /// Keys of the batch size.
    pub batch: String,
    /// Whether layers could be recomputed but are not.
    pub can_recompute: bool,
}

/// Rejects a run whose steps need at least `least`, if the machine is known to have less.
///
/// # Errors
/// [`TrainerError::Memory`].
pub(crate) fn check(least: &MemoryEstimate, memory: Option<u64>, keys: &Keys) -> Result<()> {
    let Some(has) = memory.filter(|has| least.step() > *has) else {
        return Ok(());
    };
    let of_model = sum([least.parameters, least.moments, least.gradients]);
    let of_batch = least.activations.max(least.batches);
    let recomputed = MemoryEstimate { activations: least.recomputed, ..*least };
    let keys = if keys.can_recompute && recomputed.step() <= has {
        format!("{}, or set `train.recompute = true`", keys.batch)
    } else if of_model > of_batch {
        keys.model.clone()
    } else {
        keys.batch.clone()
    };
    Err(TrainerError::Memory { needs: bytes(least.step()), has: bytes(has), keys })
}

/// The memory of pretraining with examples of `mean_len` tokens on average.
pub(crate) fn pretraining(
    config: &RunConfig,
    encoder: &BertConfig,
    parameters: u64,
    mean_len: f64,
) -> MemoryEstimate {
    let train = &config.train;
    let predicted = config.examples.masking.probability;
    let load = Load {
        sequences: train.batch_size as u64,
        mean_len,
        predicted,
        batches: train.accumulate as u64,
        recompute: train.recompute,
    };
    let estimate = |encoder: &BertConfig, load| MemoryEstimate::new(encoder, parameters, parameters, load);
    match config.objective {
        // A masked token is predicted a second time from its span's boundaries.
        ObjectiveSection::SpanBoundary {} => estimate(encoder, Load { predicted: 2.0 * predicted, ..load }),
        ObjectiveSection::ReplacedTokens { generator_size, .. } => {
            // The discriminator's last layer goes on with every token, as an inner one does.
            let whole = encoder.clone().with_n_layers(encoder.n_layers.saturating_add(1));
            let discriminator = estimate(&whole, Load { predicted: 0.0, ..load });
            match ElectraConfig::new(encoder.clone(), generator_size) {
                Ok(electra) => discriminator.with_activations_of(&estimate(electra.generator(), load)),
                Err(_) => discriminator,
            }
        }
        _ => estimate(encoder, load),
    }
}

/// Rejects a new model that is too large to be pretrained here even with the shortest examples. Allocates
/// nothing.
///
/// # Errors
/// [`TrainerError::Memory`], and those of an inconsistent `encoder`.
pub(crate) fn check_new(
    config: &RunConfig,
    encoder: &BertConfig,
    device: &Device,
    memory: Option<u64>,
) -> Result<()> {
    encoder.validate()?;
    let init = &mut ParamInit::new(device, 0).deferred();
    let parameters = match config.objective {
        ObjectiveSection::ReplacedTokens { generator_size, .. } => {
            n_parameters(&ElectraConfig::new(encoder.clone(), generator_size)?.init(init))
        }
        _ => n_parameters(&encoder.init(init)),
    };
    let least = pretraining(config, encoder, parameters, SHORTEST);
    check(&least, memory, &pretraining_keys(config, encoder, device))
}

/// The number of a model's parameters. Does not initialise deferred parameters.
pub(crate) fn n_parameters<M: Module>(model: &M) -> u64 {
    let sizes = weights::shapes(model).into_iter().map(|(_, shape)| shape);
    sizes.fold(0, |all, shape| all.saturating_add(product(shape.into_iter().map(|size| size as u64))))
}

/// The sizes of a model in a config's `[model]`.
pub(crate) struct Sizes {
    pub n_layers: usize,
    pub d_model: usize,
    pub d_ff: usize,
    pub max_positions: usize,
    pub vocab_size: usize,
}

impl Keys {
    /// The sizes of a run on raw text, whose sequence length is set by a key.
    pub fn of_text(
        checkpoint: Option<&Path>,
        sizes: &Sizes,
        train: &TrainSection,
        (seq_len_key, seq_len): (&str, usize),
        device: &Device,
    ) -> Self {
        let model = match checkpoint {
            Some(path) => format!("the model's size, which `model.path` ({}) decides", path.display()),
            None => format!(
                "`model.n_layers` ({}), `model.d_model` ({}), `model.d_ff` ({}), `model.max_positions` ({}) or the \
                 vocabulary ({})",
                sizes.n_layers, sizes.d_model, sizes.d_ff, sizes.max_positions, sizes.vocab_size
            ),
        };
        let batch = format!(
            "`train.batch_size` ({}), `train.accumulate` ({}) or `{seq_len_key}` ({seq_len})",
            train.batch_size, train.accumulate
        );
        Self { model, batch, can_recompute: !train.recompute && recompute::is_possible(device) }
    }
}

/// The keys of a pretraining run.
pub(crate) fn pretraining_keys(config: &RunConfig, encoder: &BertConfig, device: &Device) -> Keys {
    let BertConfig { n_layers, d_model, d_ff, max_positions, vocab_size, .. } = *encoder;
    let sizes = Sizes { n_layers, d_model, d_ff, max_positions, vocab_size };
    let seq_len = ("examples.seq_len", config.examples.seq_len);
    Keys::of_text(config.model.checkpoint(), &sizes, &config.train, seq_len, device)
}

fn whole(number: f64) -> u64 {
    number.ceil() as u64
}

pub(crate) fn product(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(1, u64::saturating_mul)
}

fn sum(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(0, u64::saturating_add)
}

/// Human-readable bytes, in powers of ten: `512 kB`, `1.85 GB`.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 7] = ["bytes", "kB", "MB", "GB", "TB", "PB", "EB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 999.5 {
        value /= 1e3;
        unit += 1;
    }
    let decimals = if unit < 3 || value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.decimals$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(sequences: u64) -> Load {
        Load { sequences, mean_len: 128.0, predicted: 0.15, batches: 1, recompute: false }
    }

    #[test]
    fn bytes_are_told_in_three_digits() {
        let told = [0, 999, 1_000, 512_345, 999_600, 1_853_000_000, 25_300_000_000, u64::MAX].map(bytes);
        assert_eq!(told, ["0 bytes", "999 bytes", "1 kB", "512 kB", "1 MB", "1.85 GB", "25.3 GB", "18.4 EB"]);
    }

    #[test]
    fn an_estimate_counts_every_parameter_of_the_model() {
        let device = Device::flex();
        let encoder = BertConfig::tiny(30_522);
        let model = encoder.init(&mut ParamInit::new(&device, 0).deferred());
        assert_eq!(n_parameters(&model), 4_433_468);
        let estimate = MemoryEstimate::new(&encoder, 4_433_468, 4_433_468, load(8));
        assert_eq!((estimate.parameters, estimate.moments), (4 * 4_433_468, 8 * 4_433_468));
        assert_eq!(estimate.batches, 9 * 8 * 128);
        assert!(estimate.total() < 4 * (4 * 4_433_468 + 100_000_000));
        let frozen = MemoryEstimate::new(&encoder, 4_433_468, 1_000, load(8));
        assert_eq!((frozen.gradients, frozen.activations), (4_000, 0));
    }

    #[test]
    fn what_no_machine_has_is_no_overflow() {
        let device = Device::flex();
        let huge = BertConfig::new(i32::MAX as usize, 10_000, i32::MAX as usize / 4).with_n_heads(1);
        let model = huge.init(&mut ParamInit::new(&device, 0).deferred());
        let parameters = n_parameters(&model);
        assert!(parameters > 1 << 60);
        for recompute in [false, true] {
            let (sequences, batches) = (u64::MAX, u64::MAX);
            let everything = Load { sequences, mean_len: f64::MAX, predicted: 1.0, batches, recompute };
            let estimate = MemoryEstimate::new(&huge, parameters, parameters, everything);
            assert_eq!(estimate.total(), u64::MAX);
            assert!(estimate.to_string().starts_with("about 18.4 EB: "), "{estimate}");
        }
    }

    #[test]
    fn only_what_surely_exceeds_is_refused() {
        let (model, batch) = ("`model.d_model` (9)".into(), "`train.batch_size` (8)".into());
        let keys = Keys { model, batch, can_recompute: false };
        let encoder = BertConfig::tiny(1_000);
        let estimate = |sequences| MemoryEstimate::new(&encoder, 1_000_000, 1_000_000, load(sequences));
        let small = estimate(1);
        check(&small, None, &keys).unwrap();
        check(&small, Some(small.step()), &keys).unwrap();
        let message = |error: TrainerError| error.to_string();
        let error = check(&small, Some(small.step() - 1), &keys).unwrap_err();
        assert!(error.is_of_config());
        assert_eq!(
            message(error),
            "the run needs at least 16 MB of memory, but this machine has 16 MB: lower `model.d_model` (9)"
        );
        let error = check(&estimate(1_000_000_000), Some(1 << 30), &keys).unwrap_err();
        assert!(message(error).ends_with("but this machine has 1.07 GB: lower `train.batch_size` (8)"));
    }

    #[test]
    fn recomputing_is_told_of_where_it_would_do() {
        let keys = Keys { model: "model".into(), batch: "batch".into(), can_recompute: true };
        let encoder = BertConfig::large(30_522);
        let kept = MemoryEstimate::new(&encoder, 336_226_108, 336_226_108, load(64));
        let again = Load { recompute: true, ..load(64) };
        let again = MemoryEstimate::new(&encoder, 336_226_108, 336_226_108, again);
        assert!(again.activations < kept.activations / 8, "{again}");
        assert_eq!((again.activations, again.gradients), (kept.recomputed, kept.gradients));
        let lowered = |has: u64, keys: &Keys| {
            let message = check(&kept, Some(has), keys).unwrap_err().to_string();
            message.split_once(": lower ").unwrap().1.to_owned()
        };
        assert_eq!(lowered(again.step(), &keys), "batch, or set `train.recompute = true`");
        assert_eq!(lowered(again.step() - 1, &keys), "batch");
        assert_eq!(lowered(again.step(), &Keys { can_recompute: false, ..keys }), "batch");
    }
}
