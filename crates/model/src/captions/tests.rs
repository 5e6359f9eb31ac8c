use super::*;
use crate::generate::NextToken;
use crate::gpt::GptConfig;
use crate::seq2seq::DecodeOptions;
use crate::vision::ImageStates;
use crate::{ParamInit, Sequences};
use burn::tensor::{Device, Distribution, Int, Tensor, Tolerance};

fn devices() -> [Device; 2] {
    [Device::flex(), Device::flex().autodiff().gradient_checkpointing()]
}

/// Features of the images' states.
const D_IMAGE: usize = 8;

/// One of each kind.
fn decoders(device: &Device) -> Vec<AnyCaptionDecoder> {
    let init = &mut ParamInit::new(device, 3).with_std(0.4);
    let recurrent = RecurrentCaptionConfig::new(11, D_IMAGE, 5, 7);
    let gpt = GptConfig { n_heads: 2, d_head: 4, n_kv_heads: 2, ..GptConfig::gpt2(11, 2, 8) };
    let (embedding_dropout, hidden_dropout, attention_dropout) = (0.0, 0.0, 0.0);
    let gpt = GptConfig { embedding_dropout, hidden_dropout, attention_dropout, ..gpt };
    let gpt = GptConfig { d_ff: 12, max_positions: 9, ..gpt };
    let transformer = TransformerCaptionConfig::new(gpt.clone(), D_IMAGE);
    let configs: [AnyCaptionDecoderConfig; 7] = [
        recurrent.clone().into(),
        recurrent.clone().with_looking(Looking::Hard).with_gate(false).into(),
        recurrent.clone().with_looking(Looking::None).into(),
        recurrent.with_positions(true).with_output_tanh(true).into(),
        transformer.clone().into(),
        transformer.with_image_positions(true).into(),
        TransformerCaptionConfig::new(GptConfig { tied: false, ..gpt }, D_IMAGE).into(),
    ];
    configs.iter().map(|config| config.init(init)).collect()
}

/// Three images of 2 × 2 places after one piece.
fn images(device: &Device) -> ImageStates {
    device.seed(5);
    let states = Tensor::<3>::random([3, 5, D_IMAGE], Distribution::Normal(0.0, 1.0), device);
    ImageStates { n_pieces: 1, ..ImageStates::new(states, [2, 2]) }
}

#[test]
fn steps_are_the_same_as_teaching() {
    for device in devices() {
        let images = images(&device);
        for decoder in decoders(&device) {
            let mut rows: Vec<(usize, Vec<i32>)> = vec![(0, vec![1]), (1, vec![1])];
            let options = DecodeOptions::default().with_alignment();
            let mut state = decoder.begin(&images.clone().select(&[0, 1]), options);
            for step in 0..5 {
                let last: Vec<i32> = rows.iter().map(|(_, row)| *row.last().unwrap()).collect();
                let output = decoder.step(&last, &mut state);
                for (row, (image, ids)) in rows.iter().enumerate() {
                    let caption: Sequences = [&ids[..]].into_iter().collect();
                    let taught = decoder.teach(&images.clone().select(&[*image]), &caption, None);
                    let n = ids.len();
                    let found = output.logits.clone().narrow(0, row, 1).into_data();
                    let expected = taught.logits.narrow(0, n - 1, 1).into_data();
                    found.assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
                    let Some(alignment) = &output.alignment else { continue };
                    let own = alignment.clone().narrow(0, row, 1);
                    assert_eq!(own.dims(), [1, 4]);
                    assert!((own.clone().sum().into_scalar::<f32>() - 1.0).abs() < 1e-5);
                    if let Some(attention) = taught.attention {
                        let expected = attention.narrow(0, n - 1, 1).into_data();
                        own.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
                    }
                }
                for (row, (_, ids)) in rows.iter_mut().enumerate() {
                    ids.push((3 * row as i32 + 4 * step + 2) % 11);
                }
                // Rows change places, and another image comes.
                match step {
                    1 => {
                        decoder.select(&mut state, &[1, 0, 1]);
                        rows = [1, 0, 1].map(|row: usize| rows[row].clone()).to_vec();
                    }
                    2 => {
                        let other = decoder.begin(&images.clone().select(&[2]), options);
                        decoder.join(&mut state, other);
                        rows.push((2, vec![1]));
                    }
                    _ => {}
                }
            }
        }
    }
}

#[test]
fn captions_of_different_lengths_do_not_change_one_another() {
    for device in devices() {
        let images = images(&device);
        let captions: Sequences = [&[1, 4][..], &[1, 7, 8, 2], &[1]].into_iter().collect();
        let draws =
            Draws { places: vec![0.3, 0.9, 0.1, 0.6, 0.5, 0.2, 0.99], expected: vec![false, true, false] };
        for decoder in decoders(&device) {
            let together = decoder.teach(&images, &captions, Some(&draws));
            let mut start = 0;
            for (image, ids) in captions.iter().enumerate() {
                let draws = Draws {
                    places: draws.places[start..start + ids.len()].to_vec(),
                    expected: vec![draws.expected[image]],
                };
                let alone: Sequences = [ids].into_iter().collect();
                let alone = decoder.teach(&images.clone().select(&[image]), &alone, Some(&draws));
                let own = together.logits.clone().narrow(0, start, ids.len()).into_data();
                own.assert_approx_eq::<f32>(&alone.logits.into_data(), Tolerance::absolute(1e-5));
                if let Some((drawn, alone)) = together.drawn.as_ref().zip(alone.drawn) {
                    let own = drawn.log_probs.clone().narrow(0, start, ids.len()).into_data();
                    own.assert_approx_eq::<f32>(&alone.log_probs.into_data(), Tolerance::absolute(1e-5));
                }
                start += ids.len();
            }
            assert_eq!(together.drawn.is_some(), decoder.draws());
        }
    }
}

/// The gradients of the image's states are those of small changes.
#[test]
fn gradients_are_slopes() {
    let device = Device::flex().autodiff();
    // More images than one, so that rows change places, and an image with two captions.
    let captions: Sequences = [&[1, 4][..], &[1, 7, 8, 2], &[1, 3, 9], &[1]].into_iter().collect();
    let of = [0, 1, 1, 2];
    let draws = Draws { places: vec![0.5; 10], expected: vec![true; 4] };
    for decoder in decoders(&device) {
        let states = images(&device).states;
        let loss = |states: Tensor<3>| {
            let images = ImageStates { n_pieces: 1, ..ImageStates::new(states, [2, 2]) }.select(&of);
            let logits = decoder.teach(&images, &captions, Some(&draws)).logits;
            let next: Vec<i32> = (0..10).map(|n| (5 * n + 2) % 11).collect();
            crate::ops::cross_entropy(logits, Tensor::<1, Int>::from_data(next.as_slice(), &device)) * 10.0
        };
        let leaf = states.clone().detach().require_grad();
        let gradients = loss(leaf.clone()).sum().backward();
        let found: Vec<f32> = leaf.grad(&gradients).unwrap().into_data().iter().collect();
        let values: Vec<f32> = states.into_data().iter().collect();
        let at = |place: usize, change: f32| {
            let mut values = values.clone();
            values[place] += change;
            let states = burn::tensor::TensorData::new(values, [3, 5, D_IMAGE]);
            // In double precision: a sum of all losses would be rounded by as much as a small change alters it.
            loss(Tensor::from_data(states, &device)).into_data().iter::<f64>().sum::<f64>()
        };
        for (place, found) in found.iter().enumerate() {
            let slope = ((at(place, 1e-2) - at(place, -1e-2)) / 2e-2) as f32;
            let tolerance = 2e-3 + 0.02 * slope.abs();
            assert!((found - slope).abs() < tolerance, "{place}: {found}, {slope}");
        }
        assert!(found.iter().any(|found| found.abs() > 0.02), "tolerances above all gradients: {found:?}");
    }
}

#[test]
fn a_number_draws_the_place_where_the_sum_reaches_it() {
    let device = Device::flex();
    let config = RecurrentCaptionConfig::new(11, D_IMAGE, 5, 7).with_looking(Looking::Hard);
    let decoder = config.init(&mut ParamInit::new(&device, 3));
    let (images, caption) = (images(&device).select(&[0]), [&[1][..]].into_iter().collect::<Sequences>());
    let taught = |number: f32| {
        let draws = Draws { places: vec![number], expected: vec![false] };
        decoder.teach(&images, &caption, Some(&draws))
    };
    let attention: Vec<f32> = taught(0.5).attention.unwrap().into_data().iter().collect();
    let mut sum = 0.0;
    for weight in &attention {
        for number in [sum + 0.01 * weight, sum + 0.99 * weight] {
            let found: Vec<f32> = taught(number).drawn.unwrap().log_probs.into_data().iter().collect();
            assert!((found[0].exp() - weight).abs() < 1e-5, "{found:?} of {attention:?} for {number}");
        }
        sum += weight;
    }
    // All numbers draw a place, those at the ends too.
    for number in [0.0, 1.0] {
        assert!(taught(number).drawn.unwrap().log_probs.into_scalar::<f32>() > -5.0);
    }
}

/// The bound that hard attention maximises, `Σ_s p(s | a)·log p(y | s, a)`, with all ways of looking written out, against the
/// mean of the estimates over many draws (Xu et al. 2015, eqs. 10 to 12).
#[test]
fn the_estimated_gradient_is_that_of_the_bound() {
    let device = Device::flex().autodiff();
    let config = RecurrentCaptionConfig::new(5, D_IMAGE, 3, 4).with_looking(Looking::Hard).with_gate(false);
    let decoder = config.init(&mut ParamInit::new(&device, 3));
    // Two places, two words: four ways of looking.
    let places = images(&device).states.narrow(0, 0, 1).narrow(1, 0, 2) * 2.0;
    let (words, next) = ([1, 3], [3, 2]);
    let gradients = |loss: Tensor<1>| {
        let gradients = loss.backward();
        let score = decoder.attention.as_ref().unwrap();
        let maps = [&score.query, &score.key, decoder.from_image.as_ref().unwrap(), &decoder.output];
        let weights = maps.map(|map| &map.weight).into_iter().chain([&decoder.tokens.weight]);
        let mut flat = Vec::new();
        for weight in weights {
            let gradient = weight.val().grad(&gradients).unwrap();
            flat.extend(gradient.into_data().iter::<f32>().map(f64::from));
        }
        flat
    };
    let log_prob = |taught: &Taught, n: usize| {
        let next: Vec<i32> = next.iter().copied().cycle().take(n).collect();
        let next = Tensor::<1, Int>::from_data(next.as_slice(), &device);
        crate::ops::cross_entropy(taught.logits.clone(), next).neg()
    };
    let teach = |draws: &[f32]| {
        let n = draws.len() / 2;
        let captions: Sequences = std::iter::repeat_n(&words[..], n).collect();
        let images = ImageStates::new(places.clone().expand([n, 2, D_IMAGE]), [1, 2]);
        let draws = Draws { places: draws.to_vec(), expected: vec![false; n] };
        (decoder.teach(&images, &captions, Some(&draws)), vec![2; n])
    };
    // 0 draws the first place, 1 the last one.
    let (taught, lengths) = teach(&[0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0]);
    let of_looks = sums(taught.drawn.as_ref().unwrap().log_probs.clone(), &lengths);
    let total = of_looks.clone().exp().sum().into_scalar::<f32>();
    assert!((total - 1.0).abs() < 1e-5, "the ways' probabilities add up to {total}");
    let bound = (of_looks.exp() * sums(log_prob(&taught, 8), &lengths)).sum();
    let expected = gradients(bound);
    // The estimates of batches of draws.
    let (n, batches) = (500, 40);
    let mut random = rand_pcg::Pcg64Mcg::new(7);
    let mut means = Vec::new();
    for _ in 0..batches {
        let draws: Vec<f32> = (0..2 * n)
            .map(|_| (rand_pcg::rand_core::Rng::next_u64(&mut random) >> 40) as f32 / (1u64 << 24) as f32)
            .collect();
        let (taught, lengths) = teach(&draws);
        let words = log_prob(&taught, 2 * n);
        let terms = HardAttentionLoss { reward: 1.0, entropy: 0.0, baseline: -3.0 };
        let rewards = terms.forward(taught.drawn.as_ref().unwrap(), sums(words.clone(), &lengths), &lengths);
        means.push(gradients((words.sum() - rewards.sum()) / n as f64));
    }
    let mut n_far = 0;
    for (parameter, expected) in expected.iter().enumerate() {
        let values: Vec<f64> = means.iter().map(|mean| mean[parameter]).collect();
        let mean = values.iter().sum::<f64>() / batches as f64;
        let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (batches - 1) as f64;
        let error = (variance / batches as f64).sqrt();
        assert!((mean - expected).abs() < 5.0 * error + 1e-5, "{parameter}: {mean} ± {error}, {expected}");
        n_far += usize::from((mean - expected).abs() > 2.0 * error + 1e-5);
    }
    assert!(n_far * 8 < expected.len(), "{n_far} of {} are more than two deviations off", expected.len());
    // Without the score function's term it is another gradient.
    let (taught, _) = teach(&[0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0]);
    let words_alone = gradients(log_prob(&taught, 8).sum() / 4.0);
    assert!(expected.iter().zip(&words_alone).any(|(a, b)| (a - b).abs() > 1e-2));
}

#[test]
fn the_penalty_counts_how_often_places_are_seen() {
    let device = Device::flex();
    let attention = Tensor::<2>::from_data([[0.5, 0.5], [0.25, 0.75], [1.0, 0.0]], &device);
    let found: Vec<f32> = doubly_stochastic_penalty(attention, &[2, 1]).into_data().iter().collect();
    assert_eq!(found, [0.0625 + 0.0625, 1.0]);
    let next = HardAttentionLoss { reward: 1.0, entropy: 0.0, baseline: -10.0 }.next_baseline(-20.0);
    assert!((next.baseline + 11.0).abs() < 1e-12);
}

#[test]
fn a_decoder_takes_states_of_its_width() {
    let vit = crate::vision::VitConfig::new(12, 4, 1, 16).with_n_heads(2);
    let decoder = RecurrentCaptionConfig::new(11, 6, 5, 7);
    let tokens = crate::seq2seq::SpecialTokens::new(0, 2).with_decoder_start(1);
    let message = CaptionerConfig::new(vit, decoder, tokens).validate().unwrap_err().to_string();
    assert!(message.contains("`d_image` is 6, expected 16"), "{message}");
}

/// Attention sees a set of places, unless they have positions.
#[test]
fn positions_tell_places_apart() {
    let device = Device::flex();
    let states = Tensor::<3>::random([1, 6, 8], Distribution::Normal(0.0, 1.0), &device);
    let swapped = states.clone().flip([1]);
    let captions = Sequences::from_iter([&[1, 4, 3][..]]);
    let recurrent = |has| RecurrentCaptionConfig::new(11, 8, 5, 7).with_positions(has).into();
    let gpt = GptConfig::gpt2(11, 1, 64);
    let transformer = |has| TransformerCaptionConfig::new(gpt.clone(), 8).with_image_positions(has).into();
    let configs: [(bool, AnyCaptionDecoderConfig); 4] = [
        (false, recurrent(false)),
        (true, recurrent(true)),
        (false, transformer(false)),
        (true, transformer(true)),
    ];
    for (has_positions, config) in configs {
        let decoder = config.init(&mut ParamInit::new(&device, 3).with_std(0.3));
        let logits = |states: &Tensor<3>| {
            let images = ImageStates::new(states.clone(), [2, 3]);
            decoder.teach(&images, &captions, None).logits
        };
        let difference = (logits(&states) - logits(&swapped)).abs().max().into_scalar::<f32>();
        assert_eq!(difference > 1e-3, has_positions, "{difference}");
    }
}
