//! What multiplies matrices in a run: told at its start, and kept in its checkpoints.

use burn::tensor::{DType, Device};
use cloze_ops::{Kernels, Precision, is_fused, kernels};

/// Of a backend that chooses by itself.
const OF_THE_DEVICE: &str = "the device's own";
/// Of one that has no bf16.
const FP32_OF_THE_DEVICE: &str = "FP32, because the device has no bf16";

/// The name of what multiplies on `device` in a precision.
pub(crate) fn kernel(device: &Device, precision: Precision) -> &'static str {
    let Kernels { fp32, bf16, .. } = kernels();
    match (is_fused(device), precision) {
        (true, Precision::Fp32) => fp32,
        (true, Precision::Bf16) => bf16,
        (false, Precision::Bf16) if !device.supports_dtype(DType::BF16) => FP32_OF_THE_DEVICE,
        (false, _) => OF_THE_DEVICE,
    }
}

/// What a run says of them before its first step: kernels that are not used because they are wrong, and which way
/// bf16 goes.
pub(crate) fn introduction(device: &Device, precision: Precision) -> Vec<String> {
    let refused = &kernels().refused;
    let mut lines = Vec::new();
    if is_fused(device) && !refused.is_empty() {
        lines.push(format!(
            "warning: not used, because its products are wrong on this machine: {}",
            refused.join(", ")
        ));
    }
    if precision == Precision::Bf16 {
        lines.push(format!("bf16 products: {}", kernel(device, precision)));
    }
    lines
}

/// What is said where a checkpoint's steps were made with another kernel than the `now` next ones; of older
/// checkpoints, which name none, nothing.
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
    fn another_kernel_is_told_in_one_line_and_an_unknown_one_is_not() {
        assert_eq!((change("AMX", "AMX"), change("", "AMX")), (None, None));
        let line = change("AMX", "AVX2").unwrap();
        assert!(line.contains("(AMX) than here (AVX2)") && !line.contains('\n'), "{line}");
    }
}
