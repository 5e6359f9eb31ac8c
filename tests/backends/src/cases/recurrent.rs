//! Recurrent classifiers and taggers.

use crate::Values;
use crate::values::{classified, sequences, trained};
use burn::tensor::Device;
use cloze_model::ops::CrossEntropy;
use cloze_model::recurrent::{Cell, Reading};
use cloze_model::tasks::{
    RecurrentClassifierConfig, RecurrentEncoderConfig, RecurrentPooling, RecurrentTaggerConfig,
};

const VOCABULARY: usize = 31;
const LENGTHS: [usize; 3] = [4, 7, 1];

fn encoder() -> RecurrentEncoderConfig {
    RecurrentEncoderConfig {
        vocab_size: VOCABULARY,
        cell: Cell::Lstm,
        d_embedding: 10,
        d_model: 18,
        n_layers: 2,
        reading: Reading::Both,
        dropout: 0.0,
    }
}

fn pooled(pooling: RecurrentPooling, device: &Device) -> Values {
    let config = RecurrentClassifierConfig { encoder: encoder(), pooling, n_outputs: 3 };
    classified(
        device,
        |init| config.init(init),
        |model, device| model.forward(&sequences(&LENGTHS, VOCABULARY), device),
    )
}

pub fn classifier(device: &Device) -> Values {
    pooled(RecurrentPooling::Last, device)
}

pub fn attention(device: &Device) -> Values {
    pooled(RecurrentPooling::Attention, device)
}

pub fn tagger(device: &Device) -> Values {
    let config = RecurrentTaggerConfig { encoder: encoder(), n_tags: 5, crf: true };
    trained(
        device,
        |init| config.init(init),
        |model, device| {
            let words = [0, 2, 3, 4, 8, 11];
            model.forward(&sequences(&LENGTHS, VOCABULARY), &words, device)
        },
        |model, logits| model.loss(logits, &[0, 1, 2, 4, 3, 1], &[3, 2, 1], &CrossEntropy::default()),
    )
}
