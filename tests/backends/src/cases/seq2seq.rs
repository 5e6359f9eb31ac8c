//! Encoder–decoders.

use crate::Values;
use crate::values::{classified, sequences};
use burn::module::Module;
use burn::tensor::Device;
use cloze_model::ParamInit;
use cloze_model::blocks::{Activation, NormPlacement};
use cloze_model::recurrent::{Cell, Reading};
use cloze_model::scores::ScoreKind;
use cloze_model::seq2seq::{
    BridgeKind, ConvolutionalEncoderDecoderConfig, EncoderDecoder, PositionsConfig,
    RecurrentEncoderDecoderConfig, TiedEmbeddings, TransformerConfig, Wiring,
};

const VOCABULARY: usize = 31;

fn of<M: EncoderDecoder + Module>(device: &Device, make: impl Fn(&mut ParamInit) -> M) -> Values {
    classified(device, make, |model, device| {
        model.logits(&sequences(&[5, 9, 2], VOCABULARY), &sequences(&[6, 3, 8], VOCABULARY), device)
    })
}

fn base() -> TransformerConfig {
    TransformerConfig::new(VOCABULARY, 2, 24)
        .with_heads(4)
        .with_d_ff(40)
        .with_max_positions(16)
        .with_dropout(0.0)
}

fn positioned(positions: PositionsConfig, device: &Device) -> Values {
    of(device, |init| base().with_positions(positions).init(init))
}

pub fn transformer(device: &Device) -> Values {
    of(device, |init| base().init(init))
}

pub fn pre_norm(device: &Device) -> Values {
    let config = base().with_norm(NormPlacement::Pre).with_activation(Activation::Gelu);
    of(device, |init| config.clone().with_tied(TiedEmbeddings::None).init(init))
}

pub fn learned(device: &Device) -> Values {
    positioned(PositionsConfig::Learned { offset: 2 }, device)
}

pub fn relative(device: &Device) -> Values {
    positioned(PositionsConfig::Relative { max_distance: 2, values: true }, device)
}

pub fn rotary(device: &Device) -> Values {
    positioned(PositionsConfig::Rotary { theta: 20.0 }, device)
}

pub fn alibi(device: &Device) -> Values {
    positioned(PositionsConfig::Alibi, device)
}

pub fn t5(device: &Device) -> Values {
    // Beyond the last bucket.
    let positions = PositionsConfig::RelativeBias { n_buckets: 8, max_distance: 5 };
    let config = TransformerConfig::t5(VOCABULARY, 2, 24)
        .with_heads(3)
        .with_d_head(6)
        .with_d_ff(40)
        .with_gate()
        .with_activation(Activation::GeluTanh)
        .with_positions(positions)
        .with_max_positions(16)
        .with_dropout(0.0)
        .with_inner_dropouts(0.0, 0.0);
    of(device, |init| config.init(init))
}

pub fn convolutional(device: &Device) -> Values {
    let config =
        ConvolutionalEncoderDecoderConfig::new(VOCABULARY, 12, 20).with_layers(2, 2).with_dropout(0.0);
    of(device, |init| config.init(init))
}

fn recurrent(change: impl Fn(&mut RecurrentEncoderDecoderConfig), device: &Device) -> Values {
    let mut config = RecurrentEncoderDecoderConfig::new(VOCABULARY, 12, 20);
    config.dropout = 0.0;
    change(&mut config);
    of(device, |init| config.init(init))
}

pub fn lstm(device: &Device) -> Values {
    recurrent(
        |config| {
            (config.wiring, config.bridge, config.reading) =
                (Wiring::None, BridgeKind::Copy, Reading::Reverse);
            (config.n_encoder_layers, config.n_decoder_layers) = (2, 2);
        },
        device,
    )
}

pub fn bahdanau(device: &Device) -> Values {
    recurrent(|config| config.cell = Cell::Gru, device)
}

pub fn luong(device: &Device) -> Values {
    recurrent(
        |config| (config.wiring, config.score) = (Wiring::LuongInputFeeding, ScoreKind::General),
        device,
    )
}
