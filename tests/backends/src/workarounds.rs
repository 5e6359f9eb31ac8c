//! What burn has wrong and cloze goes around, and whether it still has to.

use burn::tensor::{Device, Tensor, activation};

/// A mistake of burn's on some devices.
#[derive(Debug, Clone, Copy)]
pub struct Workaround {
    /// What goes around it, and what the mistake is.
    pub name: &'static str,
    /// Whether a device still has it, without autodiff.
    pub is_needed: fn(&Device) -> bool,
}

/// All of them. One that no device needs any more can go.
pub const WORKAROUNDS: &[Workaround] = &[
    Workaround {
        name: "ops::gelu: the gradient of burn's is that of its approximation by tanh",
        is_needed: gelu,
    },
    Workaround { name: "ops::read: burn's reads show what is written later", is_needed: late_reads },
];

fn gelu(device: &Device) -> bool {
    let x = Tensor::<1>::from_data([0.5], &device.clone().autodiff()).require_grad();
    let gradients = activation::gelu(x.clone()).sum().backward();
    let found = x.grad(&gradients).expect("it was asked for").into_scalar::<f32>();
    // Φ(x) + x · φ(x), see `ops::gelu`.
    (found - 0.867_495_1).abs() > 1e-5
}

fn late_reads(device: &Device) -> bool {
    let x = Tensor::<1>::from_data([1.0, 2.0, 3.0], device).mul_scalar(2.0);
    let data = x.clone().into_data();
    // Nothing else needs the memory of `x`: the product may take it.
    let product = x.mul_scalar(5.0).into_data();
    assert_eq!(product.iter::<f32>().collect::<Vec<_>>(), [10.0, 20.0, 30.0]);
    data.iter::<f32>().ne([2.0, 4.0, 6.0])
}
