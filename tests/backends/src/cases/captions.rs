//! Models that describe images.

use super::images::pixels;
use crate::Values;
use crate::values::{init, sequences, trained};
use burn::tensor::{Device, Int, Tensor, TensorData};
use cloze_model::ParamInit;
use cloze_model::captions::{
    CaptionDecoder, Captioner, Draws, HardAttentionLoss, Looking, RecurrentCaptionConfig, Taught,
    TransformerCaptionConfig, doubly_stochastic_penalty, sums,
};
use cloze_model::gpt::GptConfig;
use cloze_model::ops::{cross_entropy, read};
use cloze_model::seq2seq::DecodeOptions;
use cloze_model::vision::{ImageEncoder, Vit, VitConfig};

const VOCABULARY: usize = 23;
/// Captions of three images, two of them of the first.
const LENGTHS: [usize; 4] = [5, 2, 7, 4];
const OF: [usize; 4] = [0, 0, 1, 2];

fn vit(init: &mut ParamInit) -> Vit {
    VitConfig::new(12, 4, 1, 24).with_n_heads(4).with_init_std(0.3).init(init)
}

fn lstm(looking: Looking) -> RecurrentCaptionConfig {
    RecurrentCaptionConfig::new(VOCABULARY, 24, 12, 16)
        .with_looking(looking)
        .with_gate(looking == Looking::Soft)
}

/// The sum of the captions' losses as a number a caption, from what was taught.
fn of<D: CaptionDecoder>(
    device: &Device,
    decoder: impl Fn(&mut ParamInit) -> D,
    extra: impl Fn(&Taught, Tensor<1>) -> Tensor<1>,
) -> Values {
    let captions = sequences(&LENGTHS, VOCABULARY);
    let next: Vec<i32> = captions.ids().iter().map(|id| (id * 3 + 1) % VOCABULARY as i32).collect();
    let n_tokens = captions.n_tokens();
    let draws = Draws {
        places: (0..n_tokens).map(|token| (token * 7 % 19) as f32 / 19.0).collect(),
        expected: vec![false, true, false, true],
    };
    let teach = |model: &Captioner<Vit, D>, device: &Device| {
        model.teach(pixels(3, 12, 12, device), &captions, &OF, Some(&draws))
    };
    trained(
        device,
        |init| Captioner::new(vit(init), decoder(init)),
        |model, device| teach(model, device).logits,
        |model, logits| {
            let device = logits.device();
            let labels = Tensor::<1, Int>::from_data(TensorData::new(next.clone(), [n_tokens]), &device);
            let log_probs = sums(cross_entropy(logits, labels).neg(), &LENGTHS);
            extra(&teach(model, &device), log_probs.clone()) - log_probs
        },
    )
}

pub fn soft(device: &Device) -> Values {
    let penalty = |taught: &Taught, _| {
        doubly_stochastic_penalty(taught.attention.clone().expect("soft attention"), &LENGTHS)
    };
    of(device, |init| lstm(Looking::Soft).init(init), penalty)
}

pub fn hard(device: &Device) -> Values {
    let terms = HardAttentionLoss { reward: 0.5, entropy: 0.1, baseline: -10.0 };
    let reward = |taught: &Taught, log_probs| {
        terms.forward(taught.drawn.as_ref().expect("hard attention"), log_probs, &LENGTHS)
    };
    of(device, |init| lstm(Looking::Hard).init(init), reward)
}

fn gpt() -> TransformerCaptionConfig {
    let mut gpt = GptConfig::gpt2(VOCABULARY, 2, 16);
    (gpt.n_heads, gpt.n_kv_heads, gpt.d_head) = (2, 2, 8);
    (gpt.d_ff, gpt.max_positions) = (24, 16);
    (gpt.embedding_dropout, gpt.hidden_dropout, gpt.attention_dropout) = (0.0, 0.0, 0.0);
    TransformerCaptionConfig::new(gpt, 24)
}

pub fn transformer(device: &Device) -> Values {
    of(device, |init| gpt().init(init), |_, log_probs| log_probs * 0.0)
}

/// Three words of two images, with the attention to their places.
pub fn word_by_word(device: &Device) -> Values {
    let mut values = Values::new();
    let init = &mut init(device);
    let encoder = vit(init);
    let images = encoder.forward(pixels(2, 12, 12, device));
    fn steps<D: CaptionDecoder>(decoder: &D, images: &cloze_model::vision::ImageStates) -> Tensor<2> {
        let mut state = decoder.begin(images, DecodeOptions::default().with_alignment());
        let steps = [5, 17, 2].map(|token| {
            let output = decoder.step(&[token, token + 1], &mut state);
            Tensor::cat(vec![output.logits, output.alignment.expect("attention")], 1)
        });
        Tensor::cat(steps.to_vec(), 0)
    }
    for looking in [Looking::Soft, Looking::Hard] {
        values.insert(format!("{looking:?}"), read(steps(&lstm(looking).init(init), &images)));
    }
    values.insert("Transformer".into(), read(steps(&gpt().init(init), &images)));
    values
}
