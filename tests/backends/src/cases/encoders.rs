//! The encoders of BERT's family: the states of all tokens, projected onto a few classes.

use crate::Values;
use crate::values::{classified, sequences};
use burn::module::Module;
use burn::tensor::{Device, Int, Tensor};
use cloze_model::bert::{Bert, BertConfig, BertInput, LocalAttention};
use cloze_model::blocks::{Activation, DisentangledConfig, Linear, RotaryConfig, RotaryScaling};
use cloze_model::huggingface::Family;

/// Odd sizes, none a multiple of a tile's.
pub(super) fn config() -> BertConfig {
    let mut config = BertConfig::new(37, 2, 20).with_n_heads(4).with_d_ff(44).with_max_positions(310);
    (config.hidden_dropout, config.attention_dropout) = (0.0, 0.0);
    config
}

/// Sequences of different lengths, padded. The second segment begins with the fourth token.
pub(super) fn input(lengths: &[usize], device: &Device) -> BertInput {
    let (ids, mask) = sequences(lengths, config().vocab_size).padded(0, device);
    let [batch, len] = ids.dims();
    let types = Tensor::<1, Int>::arange(0..len as i64, device).greater_elem(2).int();
    let input = BertInput::new(ids).with_token_types(types.unsqueeze_dim::<2>(0).expand([batch, len]));
    match mask {
        Some(mask) => input.with_pad_mask(mask),
        None => input,
    }
}

/// An encoder and a map onto classes.
#[derive(Module, Debug)]
struct Projected {
    bert: Bert,
    output: Linear,
}

fn states(config: &BertConfig, lengths: &[usize], device: &Device) -> Values {
    classified(
        device,
        |init| Projected { bert: config.init_encoder(init), output: Linear::new(config.d_model, 5, init) },
        |model, device| {
            // What is computed of padding counts for nothing.
            let longest = lengths.iter().copied().max().unwrap_or_default();
            let rows = lengths.iter().enumerate();
            let tokens: Vec<i32> =
                rows.flat_map(|(row, len)| (row * longest) as i32..(row * longest + len) as i32).collect();
            let states = model.bert.forward(input(lengths, device)).last_hidden_state;
            let states = states.reshape([-1, config.d_model as i32]);
            model.output.forward(states.select(0, Tensor::from_data(tokens.as_slice(), device)))
        },
    )
}

fn family(family: Family, sizes: BertConfig, device: &Device) -> Values {
    states(&family.encoder(sizes), &[7, 3, 5], device)
}

pub fn bert(device: &Device) -> Values {
    states(&config(), &[7, 3, 5], device)
}

pub fn long(device: &Device) -> Values {
    states(&config(), &[300, 171], device)
}

pub fn least(device: &Device) -> Values {
    states(&config(), &[1], device)
}

pub fn roberta(device: &Device) -> Values {
    family(Family::ROBERTA, config(), device)
}

pub fn distilbert(device: &Device) -> Values {
    family(Family::DISTILBERT, config(), device)
}

pub fn albert(device: &Device) -> Values {
    family(Family::ALBERT, config().with_d_embedding(Some(12)), device)
}

pub fn electra(device: &Device) -> Values {
    family(Family::ELECTRA, config().with_d_embedding(Some(12)), device)
}

pub fn modernbert(device: &Device) -> Values {
    let local = LocalAttention::new(2, 2).with_theta(Some(100.0));
    // Rotary positions need heads of an even width.
    family(Family::MODERNBERT, config().with_n_heads(2).with_local(Some(local)), device)
}

pub fn modernbert_long(device: &Device) -> Values {
    states(&Family::MODERNBERT.encoder(config().with_n_heads(2)), &[300, 171], device)
}

pub fn mpnet(device: &Device) -> Values {
    // Beyond the last bucket.
    states(&Family::MPNET.encoder(config()), &[150, 7], device)
}

pub fn t5(device: &Device) -> Values {
    family(Family::T5, config().with_d_head(Some(6)), device)
}

pub fn deberta(device: &Device) -> Values {
    let terms = DisentangledConfig { n_buckets: Some(4), max_distance: 6, ..DisentangledConfig::v3() };
    family(Family::DEBERTA_V2, config().with_disentangled(Some(terms)), device)
}

pub fn deberta_with_maps(device: &Device) -> Values {
    let terms = DisentangledConfig {
        n_buckets: None,
        max_distance: 4,
        share_maps: false,
        ..DisentangledConfig::v3()
    };
    family(Family::DEBERTA_V2, config().with_disentangled(Some(terms)), device)
}

pub fn nomic(device: &Device) -> Values {
    family(Family::NOMIC_BERT, config().with_n_heads(2).with_activation(Activation::Silu), device)
}

pub fn gte(device: &Device) -> Values {
    let scaling = Some(RotaryScaling::Linear { factor: 1.5 });
    let rotary = RotaryConfig { theta: 100.0, scaling, ..RotaryConfig::default() };
    family(Family::GTE, config().with_n_heads(2).with_rotary(Some(rotary)), device)
}

pub fn xlnet(device: &Device) -> Values {
    family(Family::XLNET, config(), device)
}
