//! Test references for the kernels: the composed operations on the same device, and flex.

use crate::composed_on_graphics;
use burn::tensor::{Device, Tensor, TensorData, Tolerance};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The device that WebGPU finds first, with autodiff.
pub(crate) fn device() -> Device {
    Device::wgpu(Default::default()).autodiff()
}

/// Lock for tests that seed the device's generator or count launches, which all threads share.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A wave of this many values.
pub(crate) fn wave(n: usize, phase: f32, shift: f32) -> Vec<f32> {
    (0..n).map(|i| (i as f32 * 0.71 + phase).sin() * 2.0 + shift).collect()
}

/// [`wave`] as a leaf of the graph.
pub(crate) fn leaf(n: usize, phase: f32, shift: f32, device: &Device) -> Tensor<1> {
    Tensor::from_data(wave(n, phase, shift).as_slice(), device).require_grad()
}

/// Asserts that the public operations that `run` uses agree between flex, the composed form on the graphics
/// device and the kernels there, and that the kernels are bitwise reproducible.
pub(crate) fn assert_agree(tolerance: Tolerance<f32>, run: impl Fn(&Device) -> Vec<TensorData>) {
    let _alone = alone();
    let device = device();
    assert!(super::takes(&Tensor::<1>::zeros([1], &device)));
    let kernels = run(&device);
    let composed = composed_on_graphics(|| {
        assert!(!super::takes(&Tensor::<1>::zeros([1], &device)));
        run(&device)
    });
    let flex = run(&Device::flex().autodiff());
    assert!(kernels.len() == composed.len() && kernels.len() == flex.len());
    for (i, kernels) in kernels.iter().enumerate() {
        for expected in [&composed[i], &flex[i]] {
            kernels.assert_approx_eq::<f32>(expected, tolerance);
        }
    }
    for (again, kernels) in run(&device).iter().zip(&kernels) {
        again.assert_eq(kernels, true);
    }
}
