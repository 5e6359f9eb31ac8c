//! XLNet.

use crate::Values;
use crate::values::{classified, sequences};
use burn::tensor::Device;
use cloze_model::xlnet::{XlnetClassifierConfig, XlnetConfig, XlnetInput};

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

/// Sequences of unequal length, of two segments each.
pub fn classes(device: &Device) -> Values {
    let labels = ["a", "b", "c"].map(String::from).to_vec();
    classified(
        device,
        |init| {
            let mut classes = XlnetClassifierConfig::new(config(), labels.clone());
            classes.summary_dropout = 0.0;
            classes.init(init)
        },
        |model, device| {
            let input = XlnetInput::left_padded(&sequences(&[9, 2, 6], VOCABULARY), 3);
            let types = (0..27).map(|token| i32::from(token % 9 > 5)).collect();
            model.forward(&input.with_token_types(types), device)
        },
    )
}
