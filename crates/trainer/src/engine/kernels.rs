//! A run's matrix kernels: reported at its start and recorded in its checkpoints.

use super::settings;
use crate::{Result, TrainerError};
use burn::tensor::Device;
use cloze_ops::{Kernels, Precision, is_fused, kernels};

/// For a backend that chooses its own kernels.
const OF_THE_DEVICE: &str = "the device's own";

/// Checks that a device supports a run's precision.
///
/// # Errors
/// [`TrainerError::Setting`] naming the supported ones.
pub(crate) fn check(device: &Device, precision: settings::Precision) -> Result<()> {
    let is_made = |precision: &settings::Precision| Precision::from(*precision).is_made_on(device);
    if is_made(&precision) {
        return Ok(());
    }
    let all = [settings::Precision::F32, settings::Precision::Bf16, settings::Precision::F16];
    let made: Vec<String> = all.iter().filter(|precision| is_made(precision)).map(name).collect();
    Err(TrainerError::Setting {
        key: "train.precision".into(),
        found: name(&precision),
        expected: format!(
            "{}, which is what the device multiplies in; or another --device",
            made.join(" or ")
        ),
    })
}

/// The name in configs.
fn name(precision: &settings::Precision) -> String {
    let name = match precision {
        settings::Precision::F32 => "f32",
        settings::Precision::Bf16 => "bf16",
        settings::Precision::F16 => "f16",
    };
    format!("\"{name}\"")
}

/// The name of the matrix kernel on `device` in a precision.
pub(crate) fn kernel(device: &Device, precision: Precision) -> &'static str {
    let Kernels { fp32, bf16, .. } = kernels();
    match (is_fused(device), precision) {
        (true, Precision::Fp32) => fp32,
        (true, Precision::Bf16) => bf16,
        (true, Precision::Fp16) | (false, _) => OF_THE_DEVICE,
    }
}

/// Notes before a run's first step: kernels disabled because they are wrong, and how bf16 is computed.
pub(crate) fn introduction(device: &Device, precision: Precision) -> Vec<String> {
    let refused = &kernels().refused;
    let mut lines = Vec::new();
    if is_fused(device) && !refused.is_empty() {
        lines.push(format!(
            "warning: not used, because its products are wrong on this machine: {}",
            refused.join(", ")
        ));
    }
    match precision {
        Precision::Fp32 => {}
        Precision::Bf16 => lines.push(format!("bf16 products: {}", kernel(device, precision))),
        Precision::Fp16 => {
            lines.push(format!("FP16 products: {}, with a scale of the loss", kernel(device, precision)))
        }
    }
    lines
}

/// The note if a checkpoint's steps used another kernel than the coming ones, `now`; none for older
/// checkpoints, which do not record it.
pub(crate) fn change(before: &str, now: &str) -> Option<String> {
    (!before.is_empty() && before != now).then(|| {
        format!(
            "matrices were multiplied by another kernel up to this checkpoint ({before}) than here ({now}): the last \
             digits of the results depend on it"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bf16_is_introduced_and_f32_is_not() {
        let device = Device::flex();
        let used = kernels();
        let about = |precision| introduction(&device, precision);
        let told = about(Precision::Bf16);
        assert_eq!(told.last(), Some(&format!("bf16 products: {}", used.bf16)));
        assert_eq!(about(Precision::Fp32), told[..told.len() - 1]);
        assert_eq!(told.len() - 1, usize::from(!used.refused.is_empty()));
        for device in [device.clone(), device.autodiff()] {
            let names = [Precision::Fp32, Precision::Bf16].map(|precision| kernel(&device, precision));
            assert_eq!(names, [used.fp32, used.bf16]);
        }
    }

    #[test]
    fn a_device_without_the_precision_names_those_it_has() {
        let flex = Device::flex().autodiff();
        check(&flex, settings::Precision::F32).unwrap();
        check(&flex, settings::Precision::Bf16).unwrap();
        let told = check(&flex, settings::Precision::F16).unwrap_err();
        assert!(told.is_of_config());
        assert_eq!(
            told.to_string(),
            "`train.precision` is \"f16\"; expected \"f32\" or \"bf16\", which is what the device multiplies in; or \
             another --device"
        );
    }

    #[test]
    fn another_kernel_is_told_in_one_line_and_an_unknown_one_is_not() {
        assert_eq!((change("AMX", "AMX"), change("", "AMX")), (None, None));
        let line = change("AMX", "AVX2").unwrap();
        assert!(line.contains("(AMX) than here (AVX2)") && !line.contains('\n'), "{line}");
    }
}
