//! XLNet.

use crate::Values;
use crate::values::{classified, sequences};
use burn::tensor::Device;
use cloze_model::xlnet::{XlnetConfig, XlnetInput};

const VOCABULARY: usize = 41;

fn config() -> XlnetConfig {
    let mut config = XlnetConfig::new(VOCABULARY, 2, 24);
    (config.n_heads, config.dropout, config.memory_len) = (4, 0.0, Some(5));
    config
}

/// Two segments of two texts, the second with what is remembered of the first. One prediction sees the memory alone.
pub fn streams(device: &Device) -> Values {
    classified(
        device,
        |init| config().init(init),
        |model, device| {
            let ids = |n: usize| sequences(&[2 * n], VOCABULARY).ids().to_vec();
            let first = XlnetInput::new(ids(7), 2);
            let memory = model.xlnet.forward(&first, None, device).memory;
            let whole = [3, 0, 5, 1, 4, 2].map(Some);
            let order: Vec<Option<u32>> = whole.into_iter().chain(whole.into_iter().rev()).collect();
            let second = XlnetInput::new(ids(6), 2).with_order(&order);
            model.logits(&second, Some(&memory), device).0
        },
    )
}
