//! Training with rounded weights and inputs.

use super::WeightFormat;
use super::trained_ranges::{SeenInputs, moved};
use crate::Result;
use crate::config::validate::{Check, ensure, positive};
use crate::engine::{Extension, KeptState};
use crate::pruning::{Target, weights, with_weights};
use burn::module::Module;
use burn::tensor::{DType, Tensor, TensorData};
use cloze_model::ops::BLOCK;
use cloze_model::weights::{OnDevice, TensorsOnDevice};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// `[quantization]`: the layers' linear maps compute with rounded numbers in training, so that the model learns to be right
/// with them (quantisation-aware training; Jacob et al. 2018, §3).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct QuantizationSection {
    /// The format of the weights, `"int8"`, `"q8_0"` or `"q4_0"`, as of `cloze quantize --weights`.
    pub weights: WeightFormat,
    /// How the maps' inputs are rounded. Default `"token"`.
    #[serde(default)]
    pub inputs: InputRounding,
    /// The learning rate of learnt ranges. Default 0.01.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range_lr: Option<f64>,
}

/// How the inputs of linear maps are rounded in training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum InputRounding {
    /// Not at all.
    Exact,
    /// Each token to 256 steps between its own ends.
    #[default]
    Token,
    /// To 256 steps between the same ends for all tokens of a map: running means of the batches' least and greatest numbers
    /// (Jacob et al. 2018, §3.1).
    Running,
    /// To 256 steps between ends that are learnt (Esser et al. 2020, "Learned Step Size Quantization").
    Learnt,
}

impl InputRounding {
    /// Whether all tokens of a map have the same ends.
    pub fn has_ranges(self) -> bool {
        matches!(self, Self::Running | Self::Learnt)
    }
}

impl QuantizationSection {
    /// The learning rate of learnt ranges.
    pub fn range_lr(&self) -> f64 {
        self.range_lr.unwrap_or(0.01)
    }

    pub(crate) fn check(&self) -> Check {
        if let Some(lr) = self.range_lr {
            let expected = "it to be absent: `quantization.inputs` is not \"learnt\"";
            ensure(self.inputs == InputRounding::Learnt, "quantization.range_lr", lr, expected)?;
            positive("quantization.range_lr", lr)?;
        }
        Ok(())
    }

    /// Those of these matrices that the format holds: blocks need rows of whole blocks.
    pub fn targets(&self, all: Vec<Target>) -> Vec<Target> {
        let fits = |target: &Target| !self.weights.is_in_blocks() || target.shape[0].is_multiple_of(BLOCK);
        all.into_iter().filter(fits).collect()
    }
}

/// The rounded weights of a run. Between steps the model holds numbers of the format, which are evaluated and saved; in each
/// step gradients at these numbers change exact ones (the straight-through estimator).
#[derive(Debug)]
pub struct Rounding {
    format: WeightFormat,
    targets: Vec<Target>,
    /// The exact weights; taken out during an update.
    weights: Vec<Tensor<2>>,
    /// What the maps have seen in a step, if their ranges are running means of it.
    seen: Option<Arc<SeenInputs>>,
}

impl Rounding {
    /// Rounding of these matrices.
    pub fn new(format: WeightFormat, targets: Vec<Target>) -> Self {
        Self { format, targets, weights: Vec::new(), seen: None }
    }

    /// With ranges that are running means of what the maps see.
    pub fn with_running_ranges(self, seen: Arc<SeenInputs>) -> Self {
        Self { seen: Some(seen), ..self }
    }

    fn rounded<M: Module>(&self, model: M) -> M {
        let round = |(target, weight): (&Target, &Tensor<2>)| {
            let [d_in, d_out] = target.shape;
            // A file has the inputs of an output side by side.
            let rows = weight.clone().transpose().into_data().convert_dtype(DType::F32);
            let numbers = rows.as_slice::<f32>().expect("floats").to_vec();
            // A run says by itself that its weights are not finite.
            let rounded = self.format.round(&numbers, [d_out, d_in]);
            let numbers = rounded.map_or(numbers, |matrix| matrix.dequantized());
            TensorData::new(numbers, [d_out, d_in])
        };
        let parts: Vec<(&Target, &Tensor<2>)> = self.targets.iter().zip(&self.weights).collect();
        let rounded: Vec<TensorData> = parts.into_par_iter().map(round).collect();
        let on_device = rounded.into_iter().zip(&self.weights);
        let rounded = on_device.map(|(data, like)| Tensor::<2>::from_data(data, &like.device()).transpose());
        with_weights(model, &self.targets, rounded.collect())
    }
}

impl<M: Module> Extension<M> for Rounding {
    fn name(&self) -> &str {
        "rounding"
    }

    fn follows_batches(&self) -> bool {
        self.seen.is_some()
    }

    fn prepare(&mut self, model: M) -> Result<M> {
        if self.weights.is_empty() {
            self.weights = weights(&model, &self.targets);
        }
        Ok(self.rounded(model))
    }

    fn before_update(&mut self, model: M, _: u64) -> M {
        with_weights(model, &self.targets, std::mem::take(&mut self.weights))
    }

    fn after_update(&mut self, model: M, _: u64) -> M {
        self.weights = weights(&model, &self.targets);
        let model = match &self.seen {
            Some(seen) => moved(model, &self.targets, &seen.take()),
            None => model,
        };
        self.rounded(model)
    }

    fn after_skip(&mut self, model: M, _: u64) -> M {
        if let Some(seen) = &self.seen {
            seen.take();
        }
        model
    }

    fn tensors(&self) -> TensorsOnDevice {
        let parts = self.targets.iter().zip(&self.weights);
        parts.map(|(target, weight)| (target.path.clone(), OnDevice::new(weight.clone()))).collect()
    }

    fn restore(&mut self, model: &M, mut kept: KeptState) -> std::result::Result<(), String> {
        let mut restored = Vec::new();
        for (target, now) in self.targets.iter().zip(weights(model, &self.targets)) {
            match kept.tensors.remove(&target.path) {
                Some(data) if data.shape().as_slice() == target.shape => {
                    restored.push(Tensor::from_data(data, &now.device()));
                }
                _ => return Err(format!("`{}` is missing, or of another shape", target.path)),
            }
        }
        self.weights = restored;
        Ok(())
    }
}
