//! Shared helpers of the tests of task models.

use crate::bert::{Bert, BertConfig, BertInput};
use crate::ops::Packing;
use crate::{ParamInit, Sequences};
use burn::tensor::{Device, Tensor, TensorData, Tolerance};

/// `sin((i + 1) · p)`, as in the scripts in the tests' comments.
pub fn numbers(n: usize, p: f32) -> Vec<f32> {
    (1..=n).map(|i| (i as f32 * p).sin()).collect()
}

pub fn matrix(shape: [usize; 2], p: f32, device: &Device) -> Tensor<2> {
    Tensor::from_data(TensorData::new(numbers(shape[0] * shape[1], p), shape), device)
}

/// A small encoder of width 8 without dropout.
pub fn bert(device: &Device) -> Bert {
    config().init_encoder(&mut ParamInit::new(device, 7).with_std(0.4))
}

pub fn config() -> BertConfig {
    let config = BertConfig { d_ff: 12, n_heads: 2, ..BertConfig::new(31, 2, 8) };
    BertConfig { hidden_dropout: 0.0, attention_dropout: 0.0, ..config }
}

/// The same sequences packed and padded.
pub fn inputs(lengths: &[usize], device: &Device) -> [BertInput; 2] {
    let ids: Vec<i32> = (0..lengths.iter().sum::<usize>() as i32).map(|i| 4 + i * 11 % 27).collect();
    let packing = Packing::new(lengths);
    let cells = packing.padded_tokens();
    let shape = [lengths.len(), packing.longest()];
    let padded = cells.iter().map(|token| token.map_or(0, |token| ids[token])).collect::<Vec<_>>();
    let ignored = cells.iter().map(Option::is_none).collect::<Vec<_>>();
    [
        BertInput::packed(&ids, lengths, device),
        BertInput::new(Tensor::from_data(TensorData::new(padded, shape), device))
            .with_pad_mask(Tensor::from_data(TensorData::new(ignored, shape), device)),
    ]
}

pub fn close<const D: usize>(found: Tensor<D>, expected: impl Into<TensorData>) {
    found.into_data().assert_approx_eq::<f32>(&expected.into(), Tolerance::rel_abs(1e-4, 1e-5));
}

/// Checks that a text has the same outputs in a batch as alone.
pub fn assert_read_alone(n_outputs: usize, forward: impl Fn(&Sequences) -> Tensor<2>) {
    let texts: [&[i32]; 3] = [&[3, 4, 5], &[6], &[7, 8, 9, 10]];
    let all = forward(&texts.into_iter().collect());
    assert_eq!(all.dims(), [3, n_outputs]);
    for (row, text) in texts.into_iter().enumerate() {
        let alone = forward(&[text].into_iter().collect()).into_data();
        let expected = all.clone().narrow(0, row, 1).into_data();
        alone.assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-6));
    }
}
