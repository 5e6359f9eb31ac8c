//! BERT with each of its heads.

use super::encoders::{config, input};
use crate::Values;
use crate::values::{classified, trained};
use burn::tensor::{Device, Int, Tensor};
use cloze_model::ParamInit;
use cloze_model::bert::{BertConfig, BertInput, ElectraConfig, MlmHead, SpanBoundaries, replaced_token_loss};
use cloze_model::blocks::Linear;
use cloze_model::ops::{CrossEntropy, cross_entropy};
use cloze_model::tasks::{
    BertForMaskedLm, BertForMultipleChoice, BertForQuestionAnswering, BertForSequenceClassification,
    BertForTokenClassification, Crf, SequenceHead, SpanLogits, binary_loss, classification_loss,
    regression_loss,
};

const LENGTHS: [usize; 3] = [7, 3, 5];

fn with_pooler() -> BertConfig {
    let mut config = config();
    config.pooler = true;
    config
}

/// Tokens of all three sequences in the padded batch.
fn positions(device: &Device) -> Tensor<1, Int> {
    Tensor::from_data([1, 6, 8, 9, 15, 18].as_slice(), device)
}

fn padded(device: &Device) -> BertInput {
    input(&LENGTHS, device)
}

pub fn pretraining(device: &Device) -> Values {
    classified(
        device,
        |init| with_pooler().init(init),
        |model, device| {
            let logits = model.forward(padded(device), positions(device));
            // Two pieces' logits below those of the next sentence, as one matrix of two classes.
            let next = logits.next_sentence.expect("BERT has the head");
            Tensor::cat(vec![logits.mlm.narrow(1, 5, 2), next], 0)
        },
    )
}

pub fn span_boundary(device: &Device) -> Values {
    classified(
        device,
        |init| with_pooler().init(init).with_span_boundary(&with_pooler(), init),
        |model, device| {
            let spans = SpanBoundaries::new(&[1..2, 8..9, 15..17]);
            let logits = model.forward_with_spans(padded(device), positions(device), Some(&spans));
            Tensor::cat(vec![logits.mlm, logits.span_boundary.expect("the model has the head")], 0)
        },
    )
}

/// Both encoders, whose embeddings are shared; the pieces are given, as a sample may turn on a rounding.
pub fn replaced_tokens(device: &Device) -> Values {
    trained(
        device,
        |init| ElectraConfig::new(config(), 0.4).expect("sizes that fit").init(init),
        |model, device| {
            let masked = model.masked_lm().forward(padded(device), positions(device)).narrow(1, 5, 4);
            let detected = model.discriminator.forward(padded(device), positions(device));
            Tensor::cat(vec![masked, detected.unsqueeze_dim(1)], 1)
        },
        |_, logits| {
            let [n, _] = logits.dims();
            let device = logits.device();
            let labels = Tensor::from_data([0, 3, 1, 2, 2, 0].as_slice(), &device);
            let replaced = Tensor::from_data([1, 0, 0, 1, 0, 1].as_slice(), &device);
            let detected = logits.clone().narrow(1, 4, 1).reshape([n]);
            cross_entropy(logits.narrow(1, 0, 4), labels) + replaced_token_loss(detected, replaced)
        },
    )
}

pub fn masked_lm(device: &Device) -> Values {
    classified(
        device,
        |init| BertForMaskedLm { bert: config().init_encoder(init), mlm: MlmHead::new(&config(), init) },
        |model, device| model.forward(padded(device), positions(device)),
    )
}

/// XLM's.
pub fn masked_lm_without_transform(device: &Device) -> Values {
    let config = || config().with_mlm_transform(false);
    classified(
        device,
        |init| BertForMaskedLm { bert: config().init_encoder(init), mlm: MlmHead::new(&config(), init) },
        |model, device| model.forward(padded(device), positions(device)),
    )
}

fn classifier(n_outputs: usize, init: &mut ParamInit) -> BertForSequenceClassification {
    let config = with_pooler();
    let head = SequenceHead::new(config.d_model, n_outputs, 0.0, init);
    BertForSequenceClassification::new(config.init_encoder(init), head)
}

pub fn sequence(device: &Device) -> Values {
    trained(
        device,
        |init| classifier(3, init),
        |model, device| model.forward(padded(device)),
        |_, logits| {
            let labels = Tensor::from_data([2, 0, 1].as_slice(), &logits.device());
            let smoothed = CrossEntropy { label_smoothing: 0.1, ..CrossEntropy::default() };
            classification_loss(logits, labels, &smoothed)
        },
    )
}

pub fn regression(device: &Device) -> Values {
    trained(
        device,
        |init| classifier(1, init),
        |model, device| model.forward(padded(device)),
        |_, found| {
            let device = found.device();
            regression_loss(found, Tensor::from_data([0.5, -1.0, 2.0].as_slice(), &device))
        },
    )
}

/// A cross-encoder's loss.
pub fn binary(device: &Device) -> Values {
    trained(
        device,
        |init| classifier(1, init),
        |model, device| model.forward(padded(device)),
        |_, found| {
            let device = found.device();
            binary_loss(found, Tensor::from_data([[1.0], [0.0], [0.25]], &device))
        },
    )
}

pub fn choice(device: &Device) -> Values {
    classified(
        device,
        |init| {
            let config = with_pooler();
            let head = SequenceHead::new(config.d_model, 1, 0.0, init);
            BertForMultipleChoice { bert: config.init_encoder(init), head }
        },
        |model, device| model.forward(padded(device), LENGTHS.len()),
    )
}

fn tagger(with_crf: bool, init: &mut ParamInit) -> BertForTokenClassification {
    BertForTokenClassification {
        bert: config().init_encoder(init),
        transform: None,
        output: Linear::new(config().d_model, 4, init),
        crf: with_crf.then(|| Crf::new(4, init)),
        dropout: 0.0,
    }
}

pub fn tokens(device: &Device) -> Values {
    classified(
        device,
        |init| tagger(false, init),
        |model, device| model.forward(padded(device), positions(device)),
    )
}

pub fn crf(device: &Device) -> Values {
    trained(
        device,
        |init| tagger(true, init),
        |model, device| model.forward(padded(device), positions(device)),
        |model, logits| model.loss(logits, &[3, 0, 1, 1, 2, 0], &[2, 2, 2], &CrossEntropy::default()),
    )
}

pub fn spans(device: &Device) -> Values {
    classified(
        device,
        |init| BertForQuestionAnswering {
            bert: config().init_encoder(init),
            transform: None,
            output: Linear::new(config().d_model, 2, init),
        },
        |model, device| {
            let logits = model.forward(padded(device), None);
            let SpanLogits { start, end } = logits;
            // The tokens that all three have.
            Tensor::cat(vec![start.narrow(1, 0, 3), end.narrow(1, 0, 3)], 0)
        },
    )
}
