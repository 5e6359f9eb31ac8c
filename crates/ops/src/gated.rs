use burn::tensor::{Tensor, activation};

#[cfg(feature = "flex")]
use crate::flex;
use crate::{gelu, gelu_tanh};

/// The activation of a [gate](gated).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gate {
    /// `x · σ(x)`: SwiGLU's.
    Silu,
    /// `x · Φ(x)`: GeGLU's.
    Gelu,
    /// The hyperbolic-tangent form of the same.
    GeluTanh,
}

/// `f(gate) · x`, the middle of a gated feed-forward network (Shazeer 2020, "GLU Variants Improve Transformer", eq. 5).
///
/// # Shapes
/// - `gate`, `x`: the same, any; returns the same
///
/// # Panics
/// If the shapes differ.
pub fn gated<const D: usize>(gate: Tensor<D>, x: Tensor<D>, form: Gate) -> Tensor<D> {
    assert_eq!(gate.dims(), x.dims(), "the gate has another shape than what it lets through");
    #[cfg(feature = "flex")]
    if flex::takes(&x) {
        return flex::gated::gated(gate, x, form);
    }
    composed(gate, x, form)
}

fn composed<const D: usize>(gate: Tensor<D>, x: Tensor<D>, form: Gate) -> Tensor<D> {
    let gate = match form {
        Gate::Silu => activation::silu(gate),
        Gate::Gelu => gelu(gate),
        Gate::GeluTanh => gelu_tanh(gate),
    };
    gate * x
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, TensorData, Tolerance};

    #[test]
    fn the_gates_at_known_points() {
        // From torch.nn.functional.silu and gelu, exact and approximate="tanh".
        let gate = || Tensor::<1>::from_data([-1.0, 0.0, 0.5, 2.0], &Device::flex());
        for (form, expected) in [
            (Gate::Silu, [-0.268_941_43f32, 0.0, 0.311_229_68, 1.761_594_2]),
            (Gate::Gelu, [-0.158_655_26, 0.0, 0.345_731_23, 1.954_499_7]),
            (Gate::GeluTanh, [-0.158_808, 0.0, 0.345_714, 1.954_597_7]),
        ] {
            let expected = TensorData::from(expected.map(|y| y * -3.0));
            for y in [gated, composed].map(|gated| gated(gate(), gate().ones_like() * -3.0, form)) {
                y.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(6e-6));
            }
        }
    }

    #[cfg(feature = "flex")]
    #[test]
    fn fused_and_composed_agree() {
        let device = Device::flex().autodiff();
        for n in [1, 5, 16, 1_000, 20_001] {
            let leaf = |speed: f32| {
                let values: Vec<f32> = (0..n).map(|i| (i as f32 * speed).sin() * 6.0).collect();
                Tensor::<1>::from_data(values.as_slice(), &device).require_grad()
            };
            for form in [Gate::Silu, Gate::Gelu, Gate::GeluTanh] {
                let run = |gated: fn(Tensor<1>, Tensor<1>, Gate) -> Tensor<1>| {
                    let (gate, x) = (leaf(0.37), leaf(0.91));
                    let y = gated(gate.clone(), x.clone(), form);
                    let grads = (y.clone() * leaf(0.13)).sum().backward();
                    [y, gate.grad(&grads).unwrap(), x.grad(&grads).unwrap()].map(Tensor::into_data)
                };
                for (fused, composed) in run(gated).iter().zip(run(composed)) {
                    fused.assert_approx_eq::<f32>(&composed, Tolerance::rel_abs(1e-5, 1e-4));
                }
            }
        }
    }

    #[test]
    fn far_gates_are_finite() {
        let gate = || Tensor::<1>::from_data([-1e4, -100.0, 100.0, 1e4], &Device::flex());
        for form in [Gate::Silu, Gate::Gelu, Gate::GeluTanh] {
            let y = gated(gate(), gate().ones_like(), form).into_data();
            y.assert_approx_eq::<f32>(&TensorData::from([0f32, 0.0, 100.0, 1e4]), Tolerance::absolute(1e-5));
        }
    }
}
