//! Checks a device's results against flex.

use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::time::Instant;

use anyhow::{Result, anyhow};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor, TensorData};
use cloze_model::bert::{BertConfig, BertInput, MlmHead};
use cloze_model::ops::{cross_entropy, read};
use cloze_model::tasks::BertForMaskedLm;
use cloze_model::weights::{self, NamedTensors};
use cloze_model::{ParamInit, Sequences};
use cloze_trainer::engine::optimizer::{Optimizer, OptimizerConfig};
use serde_json::{Value, json};

use crate::device::DeviceName;

/// The tolerated rounding error, relative to a tensor's largest element.
const TOLERANCE: f32 = 1e-4;

/// The result of checking a device.
pub struct Check {
    seconds: f64,
    /// The largest difference from flex, relative to a tensor's largest element; none in a build without flex.
    outcome: Result<Option<f32>>,
}

/// Computes a small model's logits, loss, gradients and an update on each device, and compares them with flex.
pub fn check(names: &[DeviceName]) -> Vec<Check> {
    let flex = if cfg!(feature = "flex") { Some(computed(DeviceName::Flex)) } else { None };
    let one = |name: &DeviceName| {
        let began = Instant::now();
        let found = computed(*name);
        let seconds = began.elapsed().as_secs_f64();
        let outcome = found.and_then(|found| match &flex {
            Some(Ok(expected)) => Ok(Some(difference(&found, expected))),
            Some(Err(error)) => Err(anyhow!("flex: {error}")),
            None => Ok(None),
        });
        Check { seconds, outcome }
    };
    names.iter().map(one).collect()
}

/// A device's results.
fn computed(name: DeviceName) -> Result<NamedTensors> {
    let device = name.open()?;
    // A backend that lacks an operation, or whose device is lost, panics.
    let trained = panic::catch_unwind(AssertUnwindSafe(|| trained(&device)));
    trained.map_err(|panic| anyhow!("{}", cloze_data::panic_message(panic.as_ref())))
}

impl Check {
    /// Whether the results match flex.
    pub fn passes(&self) -> bool {
        self.outcome.as_ref().is_ok_and(|found| found.is_none_or(|found| found <= TOLERANCE))
    }

    /// `{"passed": ..., "difference": ..., "seconds": ..., "error": ...}`
    pub fn json(&self) -> Value {
        json!({
            "passed": self.passes(),
            "difference": self.outcome.as_ref().ok(),
            "seconds": self.seconds,
            "error": self.outcome.as_ref().err().map(ToString::to_string),
        })
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seconds, outcome } = self;
        let verdict = if self.passes() { "computes right" } else { "COMPUTES WRONGLY" };
        match outcome {
            Ok(Some(found)) => write!(f, "{verdict}: {found:.1e} from flex, {seconds:.1} s"),
            Ok(None) => write!(f, "computes; this build has no flex to compare with, {seconds:.1} s"),
            Err(error) => write!(f, "FAILED: {}", error.to_string().lines().next().unwrap_or_default()),
        }
    }
}

/// A BERT's logits of masked tokens in padded sequences, its loss, and its parameters after an update.
fn trained(device: &Device) -> NamedTensors {
    let device = &device.clone().autodiff();
    let mut config = BertConfig::new(53, 2, 36).with_n_heads(4).with_d_ff(72).with_max_positions(16);
    (config.hidden_dropout, config.attention_dropout) = (0.0, 0.0);
    let init = &mut ParamInit::new(device, 5).with_std(0.2);
    let model = BertForMaskedLm { bert: config.init_encoder(init), mlm: MlmHead::new(&config, init) };
    let sequences: Sequences = [&[7, 9, 30, 4, 52, 11, 6][..], &[8, 8, 21]].into_iter().collect();
    let (ids, mask) = sequences.padded(0, device);
    let mask = mask.expect("two lengths");
    let positions = Tensor::from_data([1, 4, 8].as_slice(), device);
    let logits = model.forward(BertInput::new(ids).with_pad_mask(mask), positions);
    let labels = Tensor::from_data([3, 17, 52].as_slice(), device);
    let loss = cross_entropy(logits.clone(), labels).mean();
    let mut values: NamedTensors =
        [("logits".to_owned(), read(logits)), ("loss".to_owned(), read(loss.clone()))].into();
    let gradients = GradientsParams::from_grads(loss.backward(), &model);
    // A large ε: Adam's first step is else as long for a gradient of rounding as for any other.
    let config = OptimizerConfig { eps: 1e-2, ..OptimizerConfig::default() };
    let mut optimizer = Optimizer::new(config, &model).expect("no groups");
    values.extend(weights::collect(&optimizer.step(model, gradients, 1e-2, 1.0)));
    values
}

/// The largest difference, relative to a tensor's largest element; infinite if one is NaN.
fn difference(found: &NamedTensors, expected: &NamedTensors) -> f32 {
    let of = |(found, expected): (&TensorData, &TensorData)| {
        let scale = expected.iter::<f32>().fold(1e-3, |scale: f32, value| scale.max(value.abs()));
        let apart = |(found, expected): (f32, f32)| match (found - expected).abs() / scale {
            apart if apart.is_nan() => f32::INFINITY,
            apart => apart,
        };
        found.iter::<f32>().zip(expected.iter::<f32>()).map(apart).fold(0.0, f32::max)
    };
    found.values().zip(expected.values()).map(of).fold(0.0, f32::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "flex")]
    #[test]
    fn cpus_pass_and_a_wrong_number_does_not() {
        let check = &check(&[DeviceName::Flex])[0];
        assert!(check.passes() && check.json()["difference"] == 0.0, "{check}");
        assert!(check.to_string().starts_with("computes right: 0.0e0 from flex"), "{check}");
        let device = DeviceName::Flex.open().unwrap();
        let expected = trained(&device);
        let mut found = expected.clone();
        found.insert("loss".into(), TensorData::from([f32::NAN]));
        let outcome = Ok(Some(difference(&found, &expected)));
        assert!(!Check { seconds: 0.0, outcome }.passes());
    }

    #[cfg(feature = "ndarray")]
    #[test]
    fn ndarray_passes() {
        let check = &check(&[DeviceName::NdArray])[0];
        assert!(check.passes() && check.json()["difference"] != 0.0, "{check}");
    }

    #[cfg(not(feature = "wgpu"))]
    #[test]
    fn a_device_that_is_not_there_fails() {
        let check = &check(&[DeviceName::Wgpu(None)])[0];
        assert!(
            !check.passes() && check.to_string().starts_with("FAILED: device `wgpu` is not in this build"),
            "{check}"
        );
    }
}
