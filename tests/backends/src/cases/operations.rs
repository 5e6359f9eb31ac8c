//! Operations that a backend of burn has had wrong, or could: each with its gradients.

use crate::Values;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use cloze_model::ops::{self, AttentionMask, Packing, Sight};

/// Numbers between −1 and 1.
fn numbers(n: usize, phase: f32) -> Vec<f32> {
    (0..n).map(|i| (i as f32 * 0.73 + phase).sin()).collect()
}

fn tensor<const D: usize>(shape: [usize; D], phase: f32, device: &Device) -> Tensor<D> {
    Tensor::from_data(TensorData::new(numbers(shape.iter().product(), phase), shape), device)
}

/// An output of leaves without autodiff and with it, and the leaves' gradients of a weighted sum.
fn with_gradients<const I: usize, const O: usize>(
    name: &str,
    shapes: &[[usize; I]],
    device: &Device,
    values: &mut Values,
    compute: impl Fn(&[Tensor<I>], &Device) -> Tensor<O>,
) {
    let leaves = |device: &Device| -> Vec<Tensor<I>> {
        shapes.iter().enumerate().map(|(i, shape)| tensor(*shape, i as f32, device)).collect()
    };
    values.insert(format!("{name} in inference"), ops::read(compute(&leaves(device), device)));
    let device = device.clone().autodiff();
    let leaves: Vec<Tensor<I>> = leaves(&device).into_iter().map(Tensor::require_grad).collect();
    let output = compute(&leaves, &device);
    values.insert(name.into(), ops::read(output.clone()));
    let weights = tensor(output.dims(), 0.4, &device);
    let gradients = (output * weights).sum().backward();
    for (i, leaf) in leaves.iter().enumerate() {
        let gradient = leaf.grad(&gradients).expect("every leaf is used");
        values.insert(format!("gradient {i} of {name}"), ops::read(gradient));
    }
}

/// Four heads, seven queries and keys of three features, two sequences.
const QUERIES: [usize; 4] = [2, 4, 7, 3];

fn attended(name: &str, device: &Device, values: &mut Values, mask: impl Fn(&Device) -> AttentionMask) {
    with_gradients(name, &[QUERIES; 3], device, values, |leaves, device| {
        let [query, key, value] = [0, 1, 2].map(|i| leaves[i].clone());
        ops::attention(query, key, value, &mask(device), 0.0)
    });
}

/// The second sequence has three tokens.
fn padding(device: &Device) -> Tensor<2, Bool> {
    let ignored: Vec<bool> = (0..14).map(|cell| cell >= 7 + 3).collect();
    Tensor::from_data(TensorData::new(ignored, [2, 7]), device)
}

/// burn's mask is `true` where a key is ignored, libtorch's where it is seen: burn-tch 0.22.1 hands one to the other.
pub fn padded(device: &Device) -> Values {
    let mut values = Values::new();
    attended("padded", device, &mut values, |device| AttentionMask::default().with_pad_mask(padding(device)));
    values
}

pub fn masks(device: &Device) -> Values {
    let mut values = Values::new();
    attended("none", device, &mut values, |_| AttentionMask::default());
    attended("causal", device, &mut values, |_| AttentionMask::default().with_causal());
    attended("window", device, &mut values, |_| AttentionMask::default().with_window(2));
    attended("causal and padded", device, &mut values, |device| {
        AttentionMask::default().with_causal().with_pad_mask(padding(device))
    });
    with_gradients("packed", &[[1, 4, 7, 3]; 3], device, &mut values, |leaves, _| {
        let mask = AttentionMask::default().with_causal().with_packing(Packing::new([2, 4, 1]));
        ops::attention(leaves[0].clone(), leaves[1].clone(), leaves[2].clone(), &mask, 0.0)
    });
    attended("a sight for each sequence", device, &mut values, |device| {
        let mask = AttentionMask::default().with_sights([Sight::Prefix(4), Sight::RightToLeft]);
        mask.with_pad_mask(padding(device))
    });
    values
}

/// A mask that is broadcast over heads has hidden keys of the first head alone (burn's issue 4778).
pub fn one_mask_for_all_heads(device: &Device) -> Values {
    let mut values = Values::new();
    let bias = |shape: [usize; 4]| {
        move |device: &Device| AttentionMask::default().with_bias(tensor(shape, 2.0, device).mul_scalar(4.0))
    };
    attended("a bias for each sequence", device, &mut values, bias([2, 1, 7, 7]));
    attended("a bias for each head", device, &mut values, bias([1, 4, 7, 7]));
    attended("a bias for all", device, &mut values, bias([1, 1, 7, 7]));
    values
}

/// All keys of the second sequence are padding: its weights are uniform, and no output is NaN.
pub fn nothing_visible(device: &Device) -> Values {
    let mut values = Values::new();
    attended("nothing visible", device, &mut values, |device| {
        let ignored: Vec<bool> = (0..14).map(|cell| cell >= 7).collect();
        AttentionMask::default().with_pad_mask(Tensor::from_data(TensorData::new(ignored, [2, 7]), device))
    });
    values
}

pub fn pointwise(device: &Device) -> Values {
    let mut values = Values::new();
    let shapes = [[5, 33]];
    let ones = |device: &Device| Tensor::<1>::ones([33], device);
    with_gradients("layer norm", &shapes, device, &mut values, |leaves, device| {
        ops::layer_norm(leaves[0].clone(), ones(device), tensor([33], 3.0, device), 1e-12)
    });
    with_gradients("RMS norm", &shapes, device, &mut values, |leaves, device| {
        ops::rms_norm(leaves[0].clone(), ones(device), 1e-6)
    });
    with_gradients("weight norm", &shapes, device, &mut values, |leaves, device| {
        ops::weight_norm(leaves[0].clone(), ones(device))
    });
    with_gradients("GELU", &shapes, device, &mut values, |leaves, _| {
        ops::gelu(leaves[0].clone().mul_scalar(4.0))
    });
    with_gradients("GELU by tanh", &shapes, device, &mut values, |leaves, _| {
        ops::gelu_tanh(leaves[0].clone().mul_scalar(4.0))
    });
    with_gradients("GLU", &[[5, 34]], device, &mut values, |leaves, _| ops::glu(leaves[0].clone()));
    with_gradients("windows", &shapes, device, &mut values, |leaves, _| {
        ops::windows(leaves[0].clone(), &Packing::new([2, 3]), 3, 1)
    });
    values
}

/// The gradient of a row that is read several times is a sum.
pub fn embedding(device: &Device) -> Values {
    let mut values = Values::new();
    with_gradients("embedding", &[[9, 6]], device, &mut values, |leaves, device| {
        let ids = TensorData::new(vec![3i32, 3, 0, 8, 3, 0], [2, 3]);
        ops::embedding(leaves[0].clone(), Tensor::<2, Int>::from_data(ids, device))
    });
    values
}
