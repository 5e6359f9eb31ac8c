//! The names of activations in `config.json`.

use super::super::fields::Fields;
use super::super::names::listed;
use crate::Result;
use crate::blocks::Activation;

/// All of `ACT2FN` of transformers 4.57 and 5.24 but those with parameters (`prelu`, `xielu`) and one that only 5 has
/// (`sqrtsoftplus`). The first name of each is written.
const ACTIVATIONS: [(Activation, &str); 21] = [
    (Activation::Gelu, "gelu"),
    (Activation::GeluTanh, "gelu_new"),
    (Activation::Relu, "relu"),
    (Activation::Tanh, "tanh"),
    (Activation::Silu, "silu"),
    (Activation::Gelu, "gelu_python"),
    (Activation::GeluTanh, "gelu_pytorch_tanh"),
    (Activation::Silu, "swish"),
    (Activation::GeluTanh, "gelu_fast"),
    (Activation::GeluTanh, "gelu_accurate"),
    (Activation::GeluTanh, "gelu_python_tanh"),
    (Activation::GeluClipped, "gelu_10"),
    (Activation::QuickGelu, "quick_gelu"),
    (Activation::ReluSquared, "relu2"),
    (Activation::Relu6, "relu6"),
    (Activation::LeakyRelu, "leaky_relu"),
    (Activation::Mish, "mish"),
    (Activation::Laplace, "laplace"),
    (Activation::HardSwish, "hardswish"),
    (Activation::Sigmoid, "sigmoid"),
    (Activation::Identity, "linear"),
];

/// The names of an activation in files.
pub(super) fn activation_name(activation: Activation) -> &'static str {
    let named = ACTIVATIONS.iter().find(|(known, _)| *known == activation);
    named.map(|(_, name)| *name).expect("every activation has a name")
}

/// The activation under `key`.
///
/// # Errors
/// [`ModelError::Config`](crate::ModelError::Config) for an unknown name.
pub(super) fn activation_of(name: &str, key: &str, fields: &Fields) -> Result<Activation> {
    let known = ACTIVATIONS.iter().find(|(_, known)| *known == name);
    let refused = || fields.refuse(key, &name.into(), &listed(ACTIVATIONS.iter().map(|(_, name)| *name)));
    Ok(known.ok_or_else(refused)?.0)
}
