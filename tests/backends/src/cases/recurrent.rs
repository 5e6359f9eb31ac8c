//! Recurrent classifiers and taggers, and ELMo.

use crate::Values;
use crate::values::{classified, sequences, trained};
use burn::tensor::{Device, Tensor};
use cloze_model::elmo::{
    CharacterEncoderConfig, ElmoConfig, ElmoLosses, ElmoReaderConfig, ElmoTaggerConfig, Filters,
};
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

/// An ELMo of pieces of one to four bytes.
fn elmo_config() -> ElmoConfig {
    let pieces: Vec<Vec<u8>> = (0..VOCABULARY)
        .map(|id| (0..1 + id % 4).map(|place| (id * 7 + place * 40) as u8).collect())
        .collect();
    let characters = CharacterEncoderConfig {
        max_characters: 7,
        d_character: 5,
        filters: [[1, 6], [3, 8]].map(Filters::from).to_vec(),
        n_highway: 1,
        d_out: 6,
        ..CharacterEncoderConfig::default()
    };
    let pieces = pieces.iter().map(Vec::as_slice).collect();
    ElmoConfig { characters, d_hidden: 9, dropout: 0.0, ..ElmoConfig::new(pieces) }
}

pub fn elmo(device: &Device) -> Values {
    trained(
        device,
        |init| elmo_config().init(init),
        |model, device| {
            let ElmoLosses { next, previous } = model.losses(&sequences(&LENGTHS, VOCABULARY), device);
            Tensor::cat(vec![next, previous], 0).unsqueeze_dim(1)
        },
        |_, losses| losses.squeeze_dim(1),
    )
}

pub fn elmo_tagger(device: &Device) -> Values {
    let reader = ElmoReaderConfig::new(10).with_dropout(0.0);
    let config = ElmoTaggerConfig { reader, crf: true, ..ElmoTaggerConfig::new(elmo_config(), 5) };
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
