use super::{LinearMapKind, LinearMaps};
use crate::{ModelError, ParamInit, Result, ops, patterns};
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// Low-rank adapters (Hu et al. 2021): the product of two narrow matrices is added to a linear map's weight. Only the
/// two matrices are trained; the weight is frozen. The configuration says which linear maps get adapters, and how large the
/// adapters are.
///
/// ```
/// # use burn::tensor::Device;
/// # use cloze_model::{ParamInit, bert::BertConfig};
/// use cloze_model::blocks::{LoraConfig, merge_lora};
///
/// let init = &mut ParamInit::new(&Device::flex().autodiff(), 42);
/// let bert = BertConfig::tiny(1_000).init_encoder(init);
/// let bert = LoraConfig::default().attach(bert, init)?;
/// // … train, then:
/// let bert = merge_lora(bert);
/// # Ok::<(), cloze_model::ModelError>(())
/// ```
///
/// # Why not burn's
/// burn's own `Lora` has no dropout and adds the product to the weight at each use, so its backward pass computes a
/// gradient of the whole weight. Here, tokens are multiplied with both narrow matrices directly.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct LoraConfig {
    /// The width of the narrow matrices. Default 8.
    pub rank: usize,
    /// The product of the matrices is scaled by `alpha / rank`. Default 16.
    pub alpha: f64,
    /// The dropout probability of the adapters' input. Default 0.
    pub dropout: f64,
    /// Patterns of the paths of the linear maps in the encoder, such as `encoder.layers.0.attention.query`;
    /// `*` stands for any characters. Default `["*.query", "*.value"]`.
    pub targets: Vec<String>,
}

impl Default for LoraConfig {
    /// Rank 8 on queries and values (Hu et al. 2021, §5.1), scaled by 2.
    fn default() -> Self {
        let targets = ["*.query", "*.value"].map(str::to_string).into();
        Self { rank: 8, alpha: 16.0, dropout: 0.0, targets }
    }
}

/// A trained addition to a linear map, `alpha / rank · dropout(x)·A·B`.
#[derive(Module, Debug)]
pub struct LoraAdapter {
    /// `A`, `[d_in, rank]`, initially normal with variance `1 / (3·d_in)`, as in the authors' code.
    pub down: Param<Tensor<2>>,
    /// `B`, `[rank, d_out]`, initially zero, so that a new adapter changes nothing.
    pub up: Param<Tensor<2>>,
    scale: f64,
    dropout: f64,
}

impl LoraAdapter {
    /// # Shapes
    /// - `x`: `[..., d_in]`; returns `[..., d_out]`
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let x = ops::dropout(x, self.dropout);
        let narrow = ops::linear(x, self.down.val(), None).mul_scalar(self.scale);
        ops::linear(narrow, self.up.val(), None)
    }

    /// The matrix that the adapter adds to the weight, `[d_in, d_out]`.
    pub fn delta(&self) -> Tensor<2> {
        ops::linear(self.down.val(), self.up.val(), None).mul_scalar(self.scale)
    }
}

impl LoraConfig {
    /// Checks the values; each error names the value.
    pub fn validate(&self) -> Result<()> {
        let refused = |what: String| Err(ModelError::Config(what));
        if self.rank == 0 {
            return refused("LoRA's `rank` is 0, expected at least 1".into());
        }
        if !self.alpha.is_finite() {
            return refused(format!("LoRA's `alpha` = {}, expected a number", self.alpha));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return refused(format!("LoRA's `dropout` = {}, expected 0 or more and below 1", self.dropout));
        }
        if self.targets.is_empty() {
            return refused("LoRA's `targets` are empty, expected at least one pattern".into());
        }
        Ok(())
    }

    /// Freezes the whole module, such as an encoder, and attaches new adapters to its
    /// [convertible](super::LinearMap::is_convertible) maps; a head on it is trained as usual.
    ///
    /// # Errors
    /// Values that are not [valid](Self::validate), or a target that matches no such map.
    pub fn attach<M: Module + LinearMaps>(&self, module: M, init: &mut ParamInit) -> Result<M> {
        self.validate()?;
        let mut module = module.set_require_grad(false);
        let mut maps = module.linear_maps_mut();
        maps.retain(|map| map.is_convertible && matches!(map.kind, LinearMapKind::Plain(_)));
        let targets = patterns::parse(&self.targets, maps.iter().map(|map| map.path.as_str()))?;
        let (rank, scale, dropout) = (self.rank, self.alpha / self.rank as f64, self.dropout);
        for map in maps {
            let LinearMapKind::Plain(linear) = map.kind else { continue };
            if !targets.iter().any(|target| target.matches(&map.path)) {
                continue;
            }
            let [d_in, d_out] = linear.weight.lazy_shape().dims();
            let std = 1.0 / f64::sqrt(3.0 * d_in as f64);
            let down = init.param([d_in, rank], move |init| (init.standard_normal() * std) as f32);
            linear.lora = Some(LoraAdapter { down, up: init.zeros([rank, d_out]), scale, dropout });
        }
        Ok(module)
    }
}

/// Adds all adapters to their weights and removes them. The module has its original parameters again, with new values,
/// and can be saved as such. They stay frozen.
pub fn merge_lora<M: Module + LinearMaps>(mut module: M) -> M {
    for map in module.linear_maps_mut() {
        let LinearMapKind::Plain(linear) = map.kind else { continue };
        let Some(adapter) = linear.lora.take() else { continue };
        linear.weight = linear.weight.clone().map(|weight| {
            let tracked = weight.is_require_grad();
            let merged = (weight.detach() + adapter.delta().detach()).detach();
            if tracked { merged.require_grad() } else { merged }
        });
        linear.inference = linear.inference.take().map(|stored| stored.with_weight(linear.weight.val()));
    }
    module
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::bert::{Bert, BertConfig, BertInput};
    use crate::blocks::{Linear, LinearMaps};
    use crate::tasks::{BertForSequenceClassification, SequenceHead};
    use crate::weights;
    use burn::optim::GradientsParams;
    use burn::tensor::{Device, TensorData, Tolerance};

    fn numbers(shape: [usize; 2], p: f32, device: &Device) -> Tensor<2> {
        let values: Vec<f32> = (1..=shape[0] * shape[1]).map(|i| (i as f32 * p).sin()).collect();
        Tensor::from_data(TensorData::new(values, shape), device)
    }

    fn close<const D: usize>(found: Tensor<D>, expected: impl Into<TensorData>) {
        found.into_data().assert_approx_eq::<f32>(&expected.into(), Tolerance::rel_abs(1e-4, 2e-5));
    }

    /// A classifier whose adapters are no longer zero.
    pub(crate) fn model(config: &LoraConfig, seed: u64, device: &Device) -> BertForSequenceClassification {
        let init = &mut ParamInit::new(device, seed).with_std(0.3);
        let shape = BertConfig { d_ff: 12, n_heads: 2, ..BertConfig::new(31, 2, 8) };
        let shape = BertConfig { hidden_dropout: 0.0, attention_dropout: 0.0, ..shape };
        let mut bert = config.attach(shape.init_encoder(init), init).unwrap();
        for map in bert.linear_maps_mut() {
            if let LinearMapKind::Plain(Linear { lora: Some(adapter), .. }) = map.kind {
                let [rank, d_out] = adapter.up.dims();
                adapter.up = Param::from_tensor(numbers([rank, d_out], 0.9 + seed as f32, device));
            }
        }
        BertForSequenceClassification::new(bert, SequenceHead::new(8, 2, 0.0, init))
    }

    pub(crate) fn input(device: &Device) -> BertInput {
        BertInput::packed(&[5, 9, 3, 7, 7, 2], &[4, 2], device)
    }

    #[test]
    fn an_adapted_map_is_pefts_and_so_is_the_merged_one() {
        // torch 2.9, f as in the other tests: x = f(2, 3, p=.4); y = x @ f(3, 4, p=.7) + f(4, p=.2) +
        // (x @ A @ B) * 3 / 2 with A = f(3, 2, p=1.3), B = f(2, 4, p=.9); (y * f(2, 4, p=.3)).sum().
        let device = Device::flex().autodiff();
        let mut linear = Linear::new(3, 4, &mut ParamInit::new(&device, 0));
        linear.weight = Param::from_tensor(numbers([3, 4], 0.7, &device)).set_require_grad(false);
        let bias = numbers([1, 4], 0.2, &device).squeeze_dim::<1>(0);
        linear.bias = Some(Param::from_tensor(bias).set_require_grad(false));
        let adapter = LoraAdapter {
            down: Param::from_tensor(numbers([3, 2], 1.3, &device)),
            up: Param::from_tensor(numbers([2, 4], 0.9, &device)),
            scale: 1.5,
            dropout: 0.0,
        };
        linear.lora = Some(adapter.clone());
        let x = numbers([2, 3], 0.4, &device).require_grad();
        let y = linear.forward(x.clone());
        let expected =
            [[-0.4194f32, 0.303_699, 1.182_382, 1.729_302], [0.535_973, 1.283_412, 1.521_041, 1.194_845]];
        close(y.clone(), expected);
        let gradients = (y * numbers([2, 4], 0.3, &device)).sum().backward();
        close(
            x.grad(&gradients).unwrap(),
            [[2.773_689f32, -2.716_394, 2.215_045], [4.264_799, -2.770_085, 0.904_597]],
        );
        close(
            adapter.down.val().grad(&gradients).unwrap(),
            [[3.109_531f32, -1.748_619], [3.211_972, -1.575_614], [2.807_312, -1.153_855]],
        );
        close(
            adapter.up.val().grad(&gradients).unwrap(),
            [[0.759_294f32, 0.775_404, 0.722_25, 0.604_579], [0.798_814, 0.986_01, 1.085_129, 1.087_316]],
        );
        assert!(linear.weight.val().grad(&gradients).is_none());
        assert!(linear.bias.as_ref().unwrap().val().grad(&gradients).is_none());

        let linear = merge_lora(linear);
        assert!(linear.lora.is_none() && !linear.weight.val().is_require_grad());
        close(linear.forward(x), expected);
    }

    #[test]
    fn a_new_adapter_is_nothing_and_only_it_and_the_head_have_gradients() {
        let device = Device::flex().autodiff();
        let init = &mut ParamInit::new(&device, 4);
        let shape = BertConfig { d_ff: 12, n_heads: 2, ..BertConfig::new(31, 2, 8) };
        let plain = shape.init_encoder(init);
        let config = LoraConfig {
            rank: 3,
            dropout: 0.25,
            targets: vec!["*.query".into(), "encoder.layers.1.feed_forward.*".into()],
            ..LoraConfig::default()
        };
        let adapted = config.attach(plain.clone(), init).unwrap();
        let states = |bert: &Bert| bert.valid().forward(input(&Device::flex())).last_hidden_state.into_data();
        assert_eq!(states(&adapted), states(&plain));
        assert_eq!(adapted.num_params(), plain.num_params() + 2 * 3 * 16 + 2 * 3 * 20);

        let model = model(&config, 2, &device);
        let loss = model.forward(input(&device)).powi_scalar(2).sum();
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        // Four adapters of two matrices, the head's weight and bias.
        assert_eq!(gradients.len(), 4 * 2 + 2);
    }

    #[test]
    fn merging_changes_nothing_but_the_parameters() {
        let device = Device::flex();
        let config = LoraConfig { rank: 2, targets: vec!["*".into()], ..LoraConfig::default() };
        let adapted = model(&config, 3, &device);
        let before = adapted.forward(input(&device)).into_data();
        let mut merged = adapted.clone();
        merged.bert = merge_lora(merged.bert);
        assert!(!weights::collect(&merged).keys().any(|path| path.contains("lora")));
        close(merged.forward(input(&device)), before);
    }

    #[test]
    fn what_is_not_valid_is_named() {
        let device = Device::flex();
        let config = LoraConfig { rank: 2, ..LoraConfig::default() };
        let refused = |config: LoraConfig| {
            let init = &mut ParamInit::new(&device, 0);
            let bert = BertConfig::new(11, 1, 8).init_encoder(init);
            config.attach(bert, init).unwrap_err().to_string()
        };
        for (config, expected) in [
            (LoraConfig { rank: 0, ..config.clone() }, "`rank` is 0"),
            (LoraConfig { alpha: f64::NAN, ..config.clone() }, "`alpha` = NaN"),
            (LoraConfig { dropout: 1.0, ..config.clone() }, "`dropout` = 1"),
            (LoraConfig { targets: Vec::new(), ..config.clone() }, "`targets` are empty"),
            (
                LoraConfig { targets: vec!["*.queries".into()], ..config.clone() },
                "pattern `*.queries`: it matches nothing",
            ),
        ] {
            assert!(refused(config).contains(expected), "{expected}");
        }
    }
}
