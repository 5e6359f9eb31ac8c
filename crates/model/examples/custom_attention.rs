//! A researcher's attention in BERT: additive attention (Bahdanau et al. 2015), in this one file.
//!
//!     cargo run -p cloze-model --example custom_attention
//!
//! `score(q, k) = vᵀ · tanh(W·q + U·k)` in place of the scaled dot product. All that an encoder
//! layer asks of an attention is the trait `Attention`.

use burn::module::{Module, Param};
use burn::optim::GradientsParams;
use burn::tensor::activation::softmax;
use burn::tensor::{Device, Int, Tensor};
use cloze_model::bert::{BertConfig, BertInput};
use cloze_model::blocks::{Attention, AttentionInput, AttentionOutput, Linear};
use cloze_model::{ParamInit, linear_maps, ops};

#[derive(Module, Debug)]
struct AdditiveAttention {
    query: Linear,
    key: Linear,
    value: Linear,
    score: Param<Tensor<1>>,
}

linear_maps!(AdditiveAttention { query, key, value });

impl Attention for AdditiveAttention {
    fn forward(&self, input: AttentionInput<'_>) -> AttentionOutput {
        let AttentionInput { queries: hidden, mask, wanted, .. } = input;
        let q = self.query.forward(hidden.clone()).unsqueeze_dim::<4>(2); // [batch, q_len, 1, d]
        let k = self.key.forward(hidden.clone()).unsqueeze_dim::<4>(1); // [batch, 1, k_len, d]
        let score = self.score.val().reshape([1, 1, 1, -1]);
        let scores = ((q + k).tanh() * score).sum_dim(3).swap_dims(1, 3).swap_dims(2, 3); // [batch, 1, q_len, k_len]
        let [_, _, q_len, k_len] = scores.dims();
        let scores = match mask.score_bias(q_len, k_len, &scores) {
            Some(bias) => scores + bias,
            None => scores,
        };
        let weights = softmax(scores, 3);
        let context = weights.clone().squeeze_dim::<3>(1).matmul(self.value.forward(hidden));
        AttentionOutput::new(context, wanted).with_weights(input.need_weights.then_some(weights))
    }
}

fn main() {
    let device = Device::flex().autodiff();
    let config = BertConfig::tiny(100).with_n_layers(1);
    let d = config.d_model;
    let model = config.init_with(&mut ParamInit::new(&device, 42), |init| AdditiveAttention {
        query: Linear::new(d, d, init),
        key: Linear::new(d, d, init),
        value: Linear::new(d, d, init),
        score: init.truncated_normal([d]),
    });
    let input_ids = Tensor::<2, Int>::from_data([[2, 17, 4, 31, 3]], &device);
    let masked = Tensor::<1, Int>::from_data([2], &device);
    let logits = model.forward(BertInput::new(input_ids), masked);
    let loss = ops::cross_entropy(logits.mlm, Tensor::from_data([29], &device)).mean();
    let grads = GradientsParams::from_grads(loss.backward(), &model);
    println!("loss {:.3}, gradients of {} parameters", loss.into_scalar::<f32>(), grads.len());
}
