//! A model's weights rounded to integers of 8 or 4 bits and saved as such.
//!
//! Linear maps get integers in place of their weights, and multiply tokens that are rounded to 8 bits. How tokens are rounded
//! may be measured on texts, and so may be which rounding of the weights costs least:
//!
//! - [ranges](Ranges) of inputs that are the same for all tokens, by minimum and maximum, percentile or mean squared error;
//! - [SmoothQuant](QuantizeConfig::smooth) (Xiao et al. 2023), which moves what is large in a few features from the tokens to
//!   the weights;
//! - [GPTQ](QuantizeConfig::gptq) (Frantar et al. 2023), which lets the weights that are not yet rounded make up for the error
//!   of those that are.

mod calibration;
mod gptq;
mod histogram;
mod integer_only;
mod source;
mod trained_ranges;
mod training;

pub use histogram::Ranges;
use integer_only::quantize_integer_only;
pub use trained_ranges::{InputRanges, SeenInputs};
pub(crate) use trained_ranges::{RANGES, attach, detach, read, write};
pub use training::{InputRounding, QuantizationSection, Rounding};

use crate::{Result, TrainerError};
use burn::tensor::Device;
use calibration::{Calibration, Statistics};
use cloze_model::huggingface::{
    FloatType, QuantizedParameters, QuantizedReport, QuantizedTensor, check_floats,
};
use cloze_model::ops::{BLOCK, IntegerMatrix, TokenRange, TokenRounding};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use source::{Map, Source};
use std::path::Path;

/// The format of weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WeightFormat {
    /// 8 bits, with a scale for each output.
    #[serde(rename = "int8")]
    Int8,
    /// 8 bits, with a scale in FP16 for each 32 inputs: the numbers of GGUF's Q8_0.
    #[serde(rename = "q8_0")]
    Q8_0,
    /// 4 bits, with a scale in FP16 for each 32 inputs: the numbers of GGUF's Q4_0.
    #[serde(rename = "q4_0")]
    Q4_0,
}

impl WeightFormat {
    fn name(self) -> &'static str {
        match self {
            Self::Int8 => "int8",
            Self::Q8_0 => "q8_0",
            Self::Q4_0 => "q4_0",
        }
    }

    fn is_in_blocks(self) -> bool {
        self != Self::Int8
    }

    fn round(self, numbers: &[f32], dims: [usize; 2]) -> std::result::Result<IntegerMatrix, String> {
        match self {
            Self::Int8 => IntegerMatrix::int8(numbers, dims, i8::MAX),
            Self::Q8_0 => IntegerMatrix::q8_0(numbers, dims),
            Self::Q4_0 => IntegerMatrix::q4_0(numbers, dims),
        }
    }
}

/// How a model is quantised.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct QuantizeConfig {
    /// The format of the weights of linear maps.
    pub weights: WeightFormat,
    /// Whether the embeddings of pieces get that format too. transformers loads them only in [`WeightFormat::Int8`].
    pub tables: bool,
    /// One range for all inputs of a map, measured on texts; none to give each token a range of its own.
    pub ranges: Option<Ranges>,
    /// SmoothQuant's exponent α, from 0 to 1: the factor of a feature is `max|w|^(1 − α) / max|x|^α`.
    pub smooth: Option<f64>,
    /// Whether weights are rounded by GPTQ in place of to the nearest.
    pub gptq: bool,
    /// Whether the encoder is computed in integers alone, embeddings, softmax, GELU and layer normalisation too (I-BERT, Kim
    /// et al. 2021). Tables are then integers, and [`ranges`](Self::ranges) are [`Ranges::Mse`] if there are none.
    pub integers_only: bool,
}

impl QuantizeConfig {
    /// Weights rounded to the nearest, and a range for each token.
    pub fn new(weights: WeightFormat) -> Self {
        Self { weights, tables: false, ranges: None, smooth: None, gptq: false, integers_only: false }
    }

    /// Whether texts are needed.
    pub fn needs_texts(&self) -> bool {
        self.ranges.is_some_and(Ranges::are_measured)
            || self.smooth.is_some()
            || self.gptq
            || self.integers_only
    }

    fn check(&self) -> Result<()> {
        let wrong = |key: &str, found: String, expected: &str| {
            Err(TrainerError::Setting { key: key.into(), found, expected: expected.into() })
        };
        if self.integers_only {
            let only = "nothing beside it: I-BERT rounds each number to the nearest";
            return match () {
                () if self.ranges == Some(Ranges::Trained) => {
                    wrong("ranges", "trained".into(), "minmax, mse or a percentile for integers alone")
                }
                () if self.weights != WeightFormat::Int8 => {
                    wrong("weights", self.weights.name().into(), "int8 for integers alone")
                }
                () if self.gptq => wrong("integers-only", "given with --gptq".into(), only),
                () if self.smooth.is_some() => wrong("integers-only", "given with --smooth".into(), only),
                () => Ok(()),
            };
        }
        match (self.smooth, self.ranges) {
            (Some(alpha), _) if !(0.0..=1.0).contains(&alpha) => wrong("smooth", alpha.to_string(), "0 to 1"),
            (Some(_), Some(Ranges::Trained)) => {
                wrong("smooth", "given with --ranges trained".into(), "ranges that are measured after it")
            }
            (_, Some(Ranges::Percentile(share))) if !(share > 50.0 && share <= 100.0) => {
                wrong("ranges", share.to_string(), "a percentile above 50 and up to 100")
            }
            _ => Ok(()),
        }
    }
}

/// What was quantised, and what it cost.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct QuantizeReport {
    /// The tensors that are integers now, and the size of all weights.
    pub saved: QuantizedReport,
    /// Maps and tables whose rows are no multiple of [`BLOCK`], which stay floats.
    pub uneven: Vec<String>,
    /// Features of inputs that were 0 in all texts, if texts were read.
    pub n_silent: usize,
    /// The texts that were read.
    pub n_texts: usize,
    /// `‖W − Ŵ‖² / ‖W‖²` over all maps.
    pub weight_error: f64,
}

/// Quantises the model in the folder `from` and writes its `config.json` and weights to `to`. Texts are read as far as the
/// settings [need](QuantizeConfig::needs_texts) them; `progress` is told how many have been read.
///
/// # Errors
/// [`TrainerError::Setting`] for invalid settings, and if there are no texts where they are needed;
/// [`ModelError::Integers`](cloze_model::ModelError::Integers) for a model that is quantised already; those of the folder
/// and of the texts.
pub fn quantize(
    from: &Path,
    to: &Path,
    config: &QuantizeConfig,
    texts: impl IntoIterator<Item = Result<String>>,
    device: &Device,
    mut progress: impl FnMut(usize),
) -> Result<QuantizeReport> {
    config.check()?;
    check_floats(from)?;
    if config.integers_only {
        let ranges = config.ranges.unwrap_or(Ranges::Mse);
        return quantize_integer_only(from, to, ranges, texts, device, &mut progress);
    }
    let mut source = Source::open(from, device)?;
    let maps = source.maps();
    let is_even = |d: usize| !config.weights.is_in_blocks() || d.is_multiple_of(BLOCK);
    let (maps, uneven): (Vec<Map>, Vec<Map>) = maps.into_iter().partition(|map| is_even(map.d_in()));
    let mut uneven: Vec<String> = uneven.into_iter().map(|map| map.path).collect();
    let (mut statistics, n_texts) = match config.needs_texts() {
        true => Calibration::new(&maps, config).run(&source, texts, device, &mut progress)?,
        false => (Vec::new(), 0),
    };
    let trained = match config.ranges {
        Some(Ranges::Trained) => Some(read(from)?.ok_or_else(|| TrainerError::Setting {
            key: "ranges".into(),
            found: "trained".into(),
            expected: format!(
                "ranges that are measured: {} was not trained with `quantization.inputs` = \"running\" or \"learnt\"",
                from.display()
            ),
        })?),
        _ => None,
    };
    let factors = config.smooth.map(|alpha| calibration::factors(&maps, &statistics, alpha));
    let (mut parameters, mut error, mut size) = (QuantizedParameters::new(), 0.0, 0.0);
    let n_silent = statistics.iter().map(Statistics::n_silent).sum();
    let round_map = |i: usize, statistics: Option<&mut Statistics>| {
        let factors = factors.as_ref().map(|factors| factors[i].clone());
        let trained = trained.as_ref().and_then(|trained| trained.get(&maps[i].path)).copied();
        round(&maps[i], statistics, trained, factors, config)
    };
    let rounded: Vec<Result<Rounded>> = match statistics.is_empty() {
        true => (0..maps.len()).into_par_iter().map(|i| round_map(i, None)).collect(),
        false => {
            // GPTQ needs several matrices as large as the products, and uses all threads for one map.
            let in_turn = if config.gptq { maps.len() } else { 1 };
            let statistics = statistics.par_iter_mut().enumerate().with_min_len(in_turn);
            statistics.map(|(i, statistics)| round_map(i, Some(statistics))).collect()
        }
    };
    for (map, rounded) in maps.iter().zip(rounded) {
        let (matrix, tokens, [lost, all]) = rounded?;
        error += lost;
        size += all;
        parameters.insert(format!("{}.weight", map.path), QuantizedTensor { matrix, tokens: Some(tokens) });
    }
    if config.tables {
        for (path, numbers, dims) in source.tables() {
            if !is_even(dims[1]) {
                uneven.push(path);
                continue;
            }
            let matrix =
                config.weights.round(&numbers, dims).map_err(|reason| unusable(from, &path, &reason))?;
            parameters.insert(format!("{path}.weight"), QuantizedTensor { matrix, tokens: None });
        }
    }
    let rest = config.weights.is_in_blocks().then_some(FloatType::F16);
    drop((maps, statistics));
    let saved = source.save(from, to, &parameters, rest)?;
    Ok(QuantizeReport {
        saved,
        uneven,
        n_silent,
        n_texts,
        weight_error: if size > 0.0 { error / size } else { 0.0 },
    })
}

fn unusable(folder: &Path, path: &str, reason: &str) -> TrainerError {
    let reason = format!("`{path}` cannot be rounded: {reason}");
    cloze_model::ModelError::Weights { path: folder.into(), reason }.into()
}

/// The integers of a map, how its tokens are rounded, and the squared error and size of its weights.
type Rounded = (IntegerMatrix, TokenRounding, [f64; 2]);

/// Rounds a map. Of the statistics, GPTQ's products are taken.
fn round(
    map: &Map,
    mut statistics: Option<&mut Statistics>,
    trained: Option<[f32; 2]>,
    factors: Option<Vec<f32>>,
    config: &QuantizeConfig,
) -> Result<Rounded> {
    let dims = [map.d_out(), map.d_in()];
    let mut numbers = map.rows();
    if let Some(factors) = &factors {
        for row in numbers.chunks_exact_mut(dims[1].max(1)) {
            row.iter_mut().zip(factors).for_each(|(w, factor)| *w /= factor);
        }
    }
    let matrix = match (config.gptq, &mut statistics) {
        (true, Some(statistics)) => {
            let products = statistics.take_products(factors.as_deref());
            gptq::round(&numbers, dims, products, config.weights)
        }
        _ => config.weights.round(&numbers, dims),
    };
    let matrix = matrix.map_err(|reason| unusable(&map.folder, &map.path, &reason))?;
    let squared = |x: f32| f64::from(x) * f64::from(x);
    let back = matrix.dequantized();
    let lost = numbers.iter().zip(&back).map(|(w, back)| squared(w - back)).sum();
    let all = numbers.iter().map(|w| squared(*w)).sum();
    let range = match (config.ranges, statistics) {
        (Some(Ranges::Trained), _) => trained.map(|[least, most]| (least, most)),
        (Some(ranges), Some(statistics)) => Some(statistics.range(ranges, factors.as_deref())),
        _ => None,
    };
    let range = range.map(|(least, most)| TokenRange::of(least, most));
    Ok((matrix, TokenRounding { factors, range, symmetric: false }, [lost, all]))
}
