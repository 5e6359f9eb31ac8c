//! Precision and device of a loaded model: the arguments that `embed`, `eval`, `fill-mask` and `predict` share.

use std::fmt;

use anyhow::{Result, anyhow};
use burn::tensor::Device;
use clap::ValueEnum;
use cloze_model::ops::{self, is_fused, with_precision};

use crate::device::{self, DeviceName};
use crate::failure::{self, WrongUsage};
use crate::output::say;

#[derive(clap::Args)]
pub struct Compute {
    /// Precision of matrix products; weights and sums are always 32-bit.
    #[arg(long, value_enum, default_value_t = Precision::F32)]
    precision: Precision,
    /// Multiply in 8 bits: faster and slightly less exact.
    #[arg(long, conflicts_with = "precision")]
    pub int8: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

/// Where a command computes.
#[derive(clap::Args)]
pub struct DeviceArgs {
    /// Device to compute on: auto (the best there is), flex, ndarray, wgpu[:N], tch[:cpu|:cuda:N] or
    /// cuda[:N]; see `cloze devices` for what this build has.
    #[arg(long, value_name = "DEVICE")]
    device: Option<DeviceName>,
}

/// As in a run configuration.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Precision {
    /// 32-bit floats.
    F32,
    /// Inputs rounded to bfloat16: slightly less exact, and faster if `cloze devices` lists AMX or AVX512-BF16.
    Bf16,
}

impl DeviceArgs {
    /// The device, without automatic differentiation; reports which device, if the program chooses it.
    ///
    /// # Errors
    /// Those of [`device::open`].
    pub fn open(&self) -> cloze::Result<Device> {
        // Only then: graphics adapters take their time to be listed.
        let best = if self.device == Some(DeviceName::Auto) { device::best() } else { None };
        if let Some(best) = &best {
            say(format_args!("device: {}, {}", best.name, best.description));
        }
        let name = best.map(|best| best.name).or(self.device);
        if let Some(name) = name
            .or_else(device::default_name)
            .filter(|name| !matches!(name, DeviceName::Flex | DeviceName::NdArray))
        {
            failure::computes_on(name);
        }
        device::open(name)
    }
}

/// The precisions a device can multiply in.
///
/// Empty for a device that does not open: its backend panics.
pub fn precisions(device: &Device) -> Vec<&'static str> {
    let made = |precision: ops::Precision| precision.is_made_on(device);
    let has = || {
        [
            ("FP32", true),
            ("bf16", made(ops::Precision::Bf16)),
            ("FP16", made(ops::Precision::Fp16)),
            ("8-bit", is_fused(device)),
        ]
    };
    let has = cloze_data::caught(has).into_iter().flatten();
    has.filter(|(_, has)| *has).map(|(name, _)| name).collect()
}

impl Compute {
    /// The device, without automatic differentiation.
    ///
    /// # Errors
    /// Those of [`device::open`]; [`WrongUsage`] for a device without the precision.
    pub fn open(&self) -> Result<Device> {
        let device = self.device.open()?;
        if self.precision == Precision::Bf16 && !ops::Precision::Bf16.is_made_on(&device) {
            let device = match self.device.device {
                Some(name) => format!("device `{name}`"),
                None => "the default device".to_owned(),
            };
            let error = anyhow!("{device} has no bf16: omit --precision bf16, or choose another --device");
            return Err(WrongUsage::new(error).into());
        }
        Ok(device)
    }

    /// Runs `work` with the requested precision for the model's products.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        let precision = match self.precision {
            Precision::F32 => ops::Precision::Fp32,
            Precision::Bf16 => ops::Precision::Bf16,
        };
        with_precision(precision, work)
    }
}

/// The precision.
impl fmt::Display for Compute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.int8, self.precision) {
            (true, _) => "8 bits",
            (false, Precision::F32) => "FP32",
            (false, Precision::Bf16) => "bf16",
        })
    }
}
