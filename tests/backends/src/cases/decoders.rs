//! Left-to-right language models.

use crate::Values;
use crate::values::{classified, init, sequences};
use burn::tensor::{Device, Tensor};
use cloze_model::generate::{LanguageModel, NextToken};
use cloze_model::gpt::GptConfig;
use cloze_model::ops::read;

const VOCABULARY: usize = 41;
const LENGTHS: [usize; 3] = [9, 1, 6];

fn without_dropout(mut config: GptConfig) -> GptConfig {
    (config.embedding_dropout, config.hidden_dropout, config.attention_dropout) = (0.0, 0.0, 0.0);
    config.max_positions = 32;
    (config.n_heads, config.n_kv_heads, config.d_head) = (4, 4, config.d_model / 4);
    config
}

fn gpt2_config() -> GptConfig {
    without_dropout(GptConfig::gpt2(VOCABULARY, 2, 24))
}

fn of(config: &GptConfig, device: &Device) -> Values {
    classified(
        device,
        |init| config.init(init),
        |model, device| model.logits(&sequences(&LENGTHS, VOCABULARY), device),
    )
}

pub fn gpt2(device: &Device) -> Values {
    of(&gpt2_config(), device)
}

fn llama_config() -> GptConfig {
    without_dropout(GptConfig::llama(VOCABULARY, 2, 24))
}

/// Two heads share keys and values.
pub fn llama(device: &Device) -> Values {
    let mut config = llama_config();
    config.n_kv_heads = 2;
    of(&config, device)
}

pub fn window(device: &Device) -> Values {
    let mut config = llama_config();
    config.window = Some(3);
    of(&config, device)
}

/// Prompts, then three tokens each with keys and values kept.
pub fn token_by_token(device: &Device) -> Values {
    let model = gpt2_config().init(&mut init(device));
    let (mut state, output) = model.read(&sequences(&LENGTHS, VOCABULARY), device);
    let mut steps = vec![output.logits];
    for token in [5, 17, 30] {
        steps.push(model.step(&[token, token + 1, token + 2], &mut state).logits);
    }
    [("logits".to_owned(), read(Tensor::cat(steps, 0)))].into_iter().collect()
}
