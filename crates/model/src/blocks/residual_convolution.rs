use super::{Activation, LayerNorm, WantedTokens};
use crate::ops::{self, AttentionMask, Packing};
use crate::sizes::check_sizes;
use crate::{ModelError, ParamInit, Result};
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// Configuration of a [`ResidualConvolution`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResidualConvolutionConfig {
    /// Tokens per window, an odd number: the same number before and after its token.
    pub kernel: usize,
    /// Groups of features: each group's outputs are computed from the same group's inputs.
    pub n_groups: usize,
    /// The non-linearity of the convolution's output.
    pub activation: Activation,
}

impl ResidualConvolutionConfig {
    /// Checks that the values are consistent, also with a model of `d_model` features.
    ///
    /// # Errors
    /// [`ModelError::Setting`] with the invalid field.
    pub fn validate(&self, d_model: usize) -> Result<()> {
        check_sizes([("convolution.kernel", self.kernel), ("convolution.n_groups", self.n_groups)])?;
        if self.kernel.is_multiple_of(2) {
            let expected = "an odd number: another window has no middle";
            return Err(ModelError::setting("convolution.kernel", self.kernel, expected));
        }
        if !d_model.is_multiple_of(self.n_groups) {
            let expected = format!("a divisor of `d_model`, which is {d_model}");
            return Err(ModelError::setting("convolution.n_groups", self.n_groups, expected));
        }
        Ok(())
    }

    /// A new convolution of `d_model` features. `dropout` acts on its output before the non-linearity.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init(
        &self,
        d_model: usize,
        dropout: f64,
        layer_norm_eps: f64,
        init: &mut ParamInit,
    ) -> ResidualConvolution {
        self.validate(d_model).unwrap_or_else(|error| panic!("{error}"));
        ResidualConvolution {
            weight: init.truncated_normal([d_model, d_model / self.n_groups, self.kernel]),
            bias: init.zeros([d_model]),
            norm: LayerNorm::new(d_model, layer_norm_eps, init),
            activation: self.activation,
            dropout,
        }
    }
}

/// A convolution over a sequence's tokens, whose output is added to other states and normalised: `LN(y +
/// act(dropout(W ∗ x + b)))`. DeBERTa v2 uses it to give its second layer a view of n-grams: `x` are the
/// embeddings and `y` the first layer's states (`ConvLayer` in transformers).
///
/// Padding and positions beyond a sequence's ends are zeros. Other attention masks do not restrict the
/// windows.
#[derive(Module, Debug)]
pub struct ResidualConvolution {
    /// `[d_model, d_model / n_groups, kernel]`: PyTorch's layout of a convolution, outputs first.
    pub weight: Param<Tensor<3>>,
    /// `[d_model]`
    pub bias: Param<Tensor<1>>,
    /// The normalisation of the sum.
    pub norm: LayerNorm,
    #[module(skip)]
    activation: Activation,
    dropout: f64,
}

impl ResidualConvolution {
    /// # Shapes
    /// - `x`: `[batch, len, d_model]`, packed if the mask's sequences are
    /// - `residual`: the same, or `[1, n, d_model]` for `n` wanted tokens; returns the same shape
    pub fn forward(
        &self,
        x: Tensor<3>,
        residual: Tensor<3>,
        mask: &AttentionMask,
        wanted: Option<&WantedTokens>,
    ) -> Tensor<3> {
        let [batch, len, d_model] = x.dims();
        let x = match &mask.pad_mask {
            Some(ignored) => {
                x.mask_fill(ignored.clone().unsqueeze_dim::<3>(2).expand([batch, len, d_model]), 0)
            }
            None => x,
        };
        let packing = mask.packing.clone().unwrap_or_else(|| Packing::new(vec![len; batch]));
        let convolved = self.convolve(x.reshape([batch * len, d_model]), &packing);
        let convolved = ops::dropout(convolved.reshape([batch, len, d_model]), self.dropout);
        let added = self.activation.forward(convolved);
        self.norm.forward(residual + WantedTokens::pick(wanted, added))
    }

    /// The convolution itself, group by group.
    ///
    /// # Shapes
    /// - `x`: `[n_tokens, d_model]`; returns the same
    fn convolve(&self, x: Tensor<2>, packing: &Packing) -> Tensor<2> {
        let (weight, bias) = (self.weight.val(), self.bias.val());
        let [d_model, d, kernel] = weight.dims();
        let groups = (0..d_model / d).map(|group| {
            let windows = ops::windows(x.clone().narrow(1, group * d, d), packing, kernel, kernel / 2);
            // `[outputs, inputs, places]` → `[places · inputs, outputs]`, as windows lie.
            let weight = weight.clone().narrow(0, group * d, d).permute([2, 1, 0]).reshape([kernel * d, d]);
            ops::linear(windows, weight, Some(bias.clone().narrow(0, group * d, d)))
        });
        Tensor::cat(groups.collect(), 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Bool, Device, TensorData, Tolerance};

    const D: usize = 6;

    fn convolution(n_groups: usize, device: &Device) -> ResidualConvolution {
        let init = &mut ParamInit::new(device, 1).with_std(0.5);
        let config = ResidualConvolutionConfig { kernel: 3, n_groups, activation: Activation::Tanh };
        let convolution = config.init(D, 0.0, 1e-5, init);
        ResidualConvolution { bias: init.normal([D], 1.0), ..convolution }
    }

    /// The sum over a window's positions and its group's features, one by one.
    #[test]
    fn a_group_sees_its_own_features_of_a_window() {
        let device = Device::flex();
        let x = ParamInit::new(&device, 2).normal([5, D], 1.0).val();
        for n_groups in [1, 2, 3] {
            let convolution = convolution(n_groups, &device);
            let found = convolution.convolve(x.clone(), &Packing::new([3, 2]));
            let numbers = |data: TensorData| data.iter::<f32>().collect::<Vec<_>>();
            let [x, weight] = [x.to_data(), convolution.weight.val().to_data()].map(numbers);
            let bias = numbers(convolution.bias.val().to_data());
            let d = D / n_groups;
            let expected = (0..5usize).flat_map(|token| {
                let (x, weight, bias) = (&x, &weight, &bias);
                let sequence = if token < 3 { 0..3 } else { 3..5 };
                (0..D).map(move |output| {
                    let seen = (0..3).filter_map(|place| Some((place, (token + place).checked_sub(1)?)));
                    let seen = seen.filter(|(_, other)| sequence.contains(other));
                    let terms = seen.flat_map(|(place, other)| {
                        (0..d).map(move |input| {
                            weight[(output * d + input) * 3 + place] * x[other * D + output / d * d + input]
                        })
                    });
                    bias[output] + terms.sum::<f32>()
                })
            });
            let expected = TensorData::new(expected.collect::<Vec<f32>>(), [5, D]);
            found.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
        }
    }

    #[test]
    fn packed_is_padded_and_wanted_tokens_are_some_of_all() {
        let device = Device::flex();
        let convolution = convolution(2, &device);
        let normal = |seed| ParamInit::new(&device, seed).normal([1, 5, D], 1.0).val();
        let (x, y) = (normal(3), normal(4));
        let packed = AttentionMask::default().with_packing(Packing::new([3, 2]));
        let all = convolution.forward(x.clone(), y.clone(), &packed, None);
        // Padded with states that are not zero.
        let spread = |states: Tensor<3>| {
            let [first, second] = [states.clone().narrow(1, 0, 3), states.narrow(1, 2, 3)];
            Tensor::cat(vec![first, second.flip([1])], 0)
        };
        let ignored = [false, false, false, false, false, true];
        let ignored = Tensor::<2, Bool>::from_data(TensorData::new(ignored.to_vec(), [2, 3]), &device);
        let padded = AttentionMask::default().with_pad_mask(ignored);
        let backwards = |states: Tensor<3>| {
            let second = states.clone().narrow(1, 3, 2).flip([1]);
            Tensor::cat(vec![states.narrow(1, 0, 3), second], 1)
        };
        let expected =
            convolution.forward(backwards(x.clone()), backwards(y.clone()), &packed, None).reshape([5, D]);
        let found = convolution.forward(spread(x.clone()), spread(y.clone()), &padded, None);
        let found = found.reshape([6, D]).narrow(0, 0, 5).into_data();
        let tolerance = Tolerance::<f32>::absolute(1e-5);
        found.assert_approx_eq(&expected.into_data(), tolerance);

        let wanted = WantedTokens::packed([1, 4], &device);
        let some = convolution.forward(x, wanted.select(y), &packed, Some(&wanted));
        some.into_data().assert_approx_eq(&wanted.select(all).into_data(), tolerance);
    }
}
