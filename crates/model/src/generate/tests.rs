//! Decoding with a model whose logits are random: what each search finds, and that requests do not affect
//! each other.

use super::penalty::coverage;
use super::random::Random;
use super::read_input::ReadInput;
use super::*;
use crate::blocks::pack_weights;
use crate::gpt::GptConfig;
use crate::seq2seq::{
    ConvolutionalEncoderDecoderConfig, DecodeOptions, EncoderDecoder, RecurrentEncoderDecoderConfig,
    TransformerConfig,
};
use crate::{ParamInit, Result, Sequences};
use burn::tensor::{Device, Tensor, TensorData};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

const VOCAB: i32 = 5;
const STOP: i32 = 2;

/// A model whose logits are random, as a function of everything that its row has read.
struct Toy {
    limit: Option<usize>,
    seed: u64,
}

const TOY: Toy = Toy { limit: None, seed: 11 };

impl Toy {
    fn logits(&self, history: &[i32]) -> Vec<f32> {
        let parts: Vec<u64> = history.iter().map(|id| *id as u64).collect();
        let mut random = Random::new(self.seed, &parts);
        (0..VOCAB).map(|_| (random.unit() * 4.0) as f32).collect()
    }

    /// Attention to a source of the same length as the row's input, which is everything before -1.
    fn attention(&self, history: &[i32]) -> Vec<f32> {
        let n_source = history.iter().position(|id| *id == -1).unwrap();
        let parts: Vec<u64> = history.iter().map(|id| *id as u64).collect();
        let mut random = Random::new(12, &parts);
        let shares: Vec<f32> = (0..n_source).map(|_| random.unit() as f32 + 0.01).collect();
        let total: f32 = shares.iter().sum();
        shares.into_iter().map(|share| share / total).collect()
    }

    fn output(&self, state: &[Vec<i32>]) -> StepOutput {
        let device = Device::flex();
        let logits: Vec<f32> = state.iter().flat_map(|row| self.logits(row)).collect();
        let attention: Vec<Vec<f32>> = state.iter().map(|row| self.attention(row)).collect();
        let longest = attention.iter().map(Vec::len).max().unwrap();
        let padded = attention.into_iter().flat_map(|mut row| {
            row.resize(longest, 0.0);
            row
        });
        let padded = TensorData::new(padded.collect::<Vec<f32>>(), [state.len(), longest]);
        let logits = TensorData::new(logits, [state.len(), VOCAB as usize]);
        StepOutput::new(Tensor::from_data(logits, &device))
            .with_alignment(Some(Tensor::from_data(padded, &device)))
    }
}

impl NextToken for Toy {
    type State = Vec<Vec<i32>>;

    fn step(&self, tokens: &[i32], state: &mut Self::State) -> StepOutput {
        assert_eq!(tokens.len(), state.len());
        state.iter_mut().zip(tokens).for_each(|(row, token)| row.push(*token));
        self.output(state)
    }

    fn select(&self, state: &mut Self::State, rows: &[usize]) {
        *state = rows.iter().map(|row| state[*row].clone()).collect();
    }

    fn join(&self, state: &mut Self::State, other: Self::State) {
        state.extend(other);
    }
}

impl ReadInput for &Toy {
    type Model = Toy;

    fn device(&self) -> &Device {
        static DEVICE: std::sync::LazyLock<Device> = std::sync::LazyLock::new(Device::flex);
        &DEVICE
    }

    fn model(&self) -> &Toy {
        self
    }

    fn begin(&self, inputs: &Sequences) -> (Vec<Vec<i32>>, StepOutput) {
        let state: Vec<Vec<i32>> = inputs.iter().map(|ids| [ids, &[-1]].concat()).collect();
        let output = self.output(&state);
        (state, output)
    }

    fn max_input(&self) -> Option<usize> {
        self.limit
    }

    fn before<'a>(&'a self, _: &'a [i32]) -> &'a [i32] {
        &[-1]
    }

    fn room(&self, _: &[i32]) -> Option<usize> {
        self.limit
    }
}

fn in_order<'m>(
    toy: &'m Toy,
    config: &DecodeConfig,
    requests: Vec<Request>,
) -> InOrder<'m, std::vec::IntoIter<Request>> {
    InOrder::new(Decoding::new(toy, true), config, requests.into_iter()).unwrap()
}

fn decode(config: &DecodeConfig, requests: &[Request]) -> Vec<Vec<Hypothesis>> {
    let found = in_order(&TOY, config, requests.to_vec()).with_batch(3);
    found.map(|found| found.unwrap()).collect()
}

fn requests(n: usize, max_new: usize) -> Vec<Request> {
    (0..n).map(|i| Request::new((0..1 + i as i32 * 5 % 7).map(|k| k + i as i32).collect(), max_new)).collect()
}

/// The log-probability of each next token.
fn log_probs(request: &Request, written: &[i32]) -> Vec<f64> {
    log_probs_of(&TOY, &request.input, request, written)
}

/// The log-probability of each next token by a model that reads this input.
fn log_probs_of(toy: &Toy, input: &[i32], request: &Request, written: &[i32]) -> Vec<f64> {
    let logits = toy.logits(&[input, &[-1], &request.prefix, written].concat());
    let total: f64 = logits.iter().map(|x| f64::from(*x).exp()).sum();
    logits.iter().map(|x| f64::from(*x) - total.ln()).collect()
}

/// Every possible text with its score, best first.
fn all_texts(request: &Request, score: &dyn Fn(f64, &[i32]) -> f64) -> Vec<(Vec<i32>, f64)> {
    all_texts_by(request, &|written| log_probs(request, written), score)
}

/// [`all_texts`] by these log-probabilities of the next tokens.
fn all_texts_by(
    request: &Request,
    log_probs: &dyn Fn(&[i32]) -> Vec<f64>,
    score: &dyn Fn(f64, &[i32]) -> f64,
) -> Vec<(Vec<i32>, f64)> {
    let mut done = Vec::new();
    let mut open = vec![(Vec::new(), 0.0)];
    while let Some((written, log_prob)) = open.pop() {
        for (token, p) in (0..).zip(log_probs(&written)) {
            let text = [&written[..], &[token]].concat();
            if token == STOP || text.len() == request.max_new {
                let score = score(log_prob + p, &text);
                done.push((text, score));
            } else {
                open.push((text, log_prob + p));
            }
        }
    }
    done.sort_by(|a, b| b.1.total_cmp(&a.1));
    done
}

fn beam(beams: usize) -> BeamSearch {
    BeamSearch::new(beams).with_early_stopping(EarlyStopping::Never)
}

fn config(search: Search) -> DecodeConfig {
    DecodeConfig::new(vec![STOP]).with_search(search)
}

#[test]
fn a_beam_as_wide_as_all_texts_finds_the_best_of_them() {
    let penalties = [
        (LengthPenalty::Power(0.0), 0.0),
        (LengthPenalty::Power(1.0), 0.0),
        (LengthPenalty::Gnmt(0.6), 0.0),
        (LengthPenalty::Gnmt(0.6), 0.4),
    ];
    for (penalty, beta) in penalties {
        let search = beam(700).with_length_penalty(penalty).with_coverage_penalty(beta);
        let config = config(Search::Beam(search)).with_n_best(20);
        let mut requests = requests(4, 4);
        requests[1].prefix = vec![3, 1];
        for (found, request) in decode(&config, &requests).into_iter().zip(&requests) {
            let score = |log_prob: f64, text: &[i32]| {
                let mut received = vec![0.0; request.input.len()];
                let whole = [&request.prefix[..], text].concat();
                for i in 0..whole.len() {
                    let attention = TOY.attention(&[&request.input[..], &[-1], &whole[..i]].concat());
                    received.iter_mut().zip(attention).for_each(|(sum, share)| *sum += share);
                }
                log_prob / penalty.at(text.len()) + coverage(beta, &received)
            };
            for (found, (text, score)) in found.iter().zip(all_texts(request, &score)) {
                let ended = text.last() == Some(&STOP);
                let text = [&request.prefix[..], &text[..text.len() - usize::from(ended)]].concat();
                assert_eq!((&found.ids, found.ended), (&text, ended));
                assert!((found.score - score).abs() < 1e-5);
            }
            assert_eq!(found.len(), 20);
        }
    }
}

#[test]
fn what_is_decoded_beside_a_text_does_not_change_it() {
    let searches = [
        Search::Greedy,
        Search::Beam(BeamSearch::new(4)),
        Search::Beam(BeamSearch::new(4).with_groups(2, 0.8)),
        Search::Sample(Sampling { temperature: 0.9, top_k: 3, ..Sampling::default() }),
    ];
    for search in searches {
        let n_best = if search == Search::Greedy { 1 } else { 3 };
        let requests: Vec<Request> = requests(23, 9)
            .into_iter()
            .enumerate()
            .map(|(i, request)| request.with_seed(5).with_prefix(vec![3; i % 4]))
            .collect();
        let alone: Vec<Vec<Hypothesis>> = requests
            .iter()
            .flat_map(|request| {
                let config = config(search.clone()).with_n_best(n_best).with_alignment();
                decode(&config, std::slice::from_ref(request))
            })
            .collect();
        for (batch, window) in [(1, 1), (2, 3), (7, 100), (64, 1)] {
            let config = config(search.clone()).with_n_best(n_best).with_alignment();
            let found = in_order(&TOY, &config, requests.clone()).with_batch(batch).with_window(window);
            let found: Vec<Vec<Hypothesis>> = found.map(|found| found.unwrap()).collect();
            assert_eq!(found, alone, "{search:?}");
        }
        assert!(alone.iter().any(|texts| texts[0].ended) && alone.iter().any(|texts| texts.len() == n_best));
    }
}

#[test]
fn greedy_decoding_takes_the_likeliest_token() {
    for request in requests(9, 6) {
        let found = decode(&config(Search::Greedy).with_alignment(), std::slice::from_ref(&request))
            .remove(0)
            .remove(0);
        let (mut text, mut total) = (Vec::new(), 0.0);
        while text.len() < 6 && text.last() != Some(&STOP) {
            let probs = log_probs(&request, &text);
            let best = (0..VOCAB).max_by(|a, b| probs[*a as usize].total_cmp(&probs[*b as usize])).unwrap();
            total += probs[best as usize];
            text.push(best);
        }
        assert_eq!(found.ended, text.last() == Some(&STOP));
        text.truncate(text.len() - usize::from(found.ended));
        assert_eq!(found.ids, text);
        assert!((found.score - total).abs() < 1e-5);
        // Each token with the attention when it was chosen.
        assert_eq!(found.alignment.len(), text.len());
        for (i, attention) in found.alignment.iter().enumerate() {
            assert_eq!(attention[..], TOY.attention(&[&request.input[..], &[-1], &text[..i]].concat()));
        }
    }
}

#[test]
fn groups_avoid_each_others_tokens() {
    // A slow version: group after group, each with the last tokens of the previous ones.
    let (size, groups, diversity, max_new) = (2, 3, 0.7, 5);
    for request in requests(6, max_new) {
        let mut live: Vec<Vec<(Vec<i32>, f64)>> = vec![vec![(Vec::new(), 0.0)]; groups];
        let mut finished: Vec<Vec<(Vec<i32>, f64)>> = vec![Vec::new(); groups];
        for length in 1..=max_new {
            let mut written: Vec<i32> = Vec::new();
            for (live, finished) in live.iter_mut().zip(&mut finished) {
                let mut candidates: Vec<(f64, f64, Vec<i32>)> = Vec::new();
                for (text, log_prob) in live.iter() {
                    for (token, p) in (0..).zip(log_probs(&request, text)) {
                        let times = written.iter().filter(|other| **other == token).count() as f64;
                        let key = log_prob + p - diversity * times;
                        candidates.push((key, log_prob + p, [&text[..], &[token]].concat()));
                    }
                }
                candidates.sort_by(|a, b| b.0.total_cmp(&a.0));
                candidates.truncate(2 * size);
                live.clear();
                for (rank, (_, log_prob, text)) in candidates.into_iter().enumerate() {
                    if text.last() == Some(&STOP) || length == max_new {
                        if rank < size {
                            finished.push((text, log_prob / length as f64));
                        }
                    } else if live.len() < size {
                        live.push((text, log_prob));
                    }
                }
                finished.sort_by(|a, b| b.1.total_cmp(&a.1));
                finished.truncate(size);
                written.extend(live.iter().map(|(text, _)| *text.last().unwrap()));
            }
        }
        let mut expected: Vec<(Vec<i32>, f64)> = finished.concat();
        expected.sort_by(|a, b| b.1.total_cmp(&a.1));
        // Scores are means, so only the maximum length bounds the scores to come.
        let search = beam(size * groups).with_groups(groups, diversity as f32);
        let config = config(Search::Beam(search)).with_n_best(size * groups);
        let found = decode(&config, std::slice::from_ref(&request)).remove(0);
        // A group that cannot improve ends early, so the best are compared.
        assert_eq!(found.len(), expected.len());
        for (found, (text, score)) in found.iter().zip(expected) {
            let text = text.strip_suffix(&[STOP]).unwrap_or(&text).to_vec();
            assert_eq!(found.ids, text);
            assert!((found.score - score).abs() < 1e-5);
        }
    }
}

#[test]
fn samples_are_drawn_by_the_models_probabilities() {
    let request = Request::new(vec![1, 2], 2);
    let n = 20_000;
    let config = config(Search::Sample(Sampling::default())).with_n_best(n);
    let found = decode(&config, &[request.clone().with_seed(3)]).remove(0);
    let texts = all_texts(&request, &|log_prob, _| log_prob);
    for (text, log_prob) in texts {
        let ended = text.last() == Some(&STOP);
        let ids = &text[..text.len() - usize::from(ended)];
        let count = found.iter().filter(|found| found.ids == ids && found.ended == ended).count();
        let p = log_prob.exp();
        let deviation = (p * (1.0 - p) / n as f64).sqrt();
        assert!((count as f64 / n as f64 - p).abs() < 5.0 * deviation, "{text:?}: {count}, {p}");
        assert!(
            found
                .iter()
                .filter(|found| found.ids == ids && found.ended == ended)
                .all(|found| (found.score - log_prob).abs() < 1e-5)
        );
    }
    assert_ne!(decode(&config, &[request.with_seed(4)]).remove(0), found);
}

#[test]
fn settings_look_back_and_ahead() {
    let greedy = config(Search::Greedy);
    for request in requests(9, 8) {
        let text = |config: &DecodeConfig| decode(config, std::slice::from_ref(&request)).remove(0).remove(0);
        assert!(text(&DecodeConfig { min_new: 5, ..greedy.clone() }).ids.len() >= 5);
        let found = text(&DecodeConfig { forbidden_ids: vec![0, 4], ..greedy.clone() });
        assert!(!found.ids.contains(&0) && !found.ids.contains(&4));
        let found = text(&DecodeConfig { no_repeat_ngram: 1, min_new: 4, ..greedy.clone() });
        let mut once = found.ids.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), found.ids.len());
        let found = text(&DecodeConfig { repetition_penalty: 1e6, min_new: 4, ..greedy.clone() });
        assert!(
            found.ids[..4].iter().all(|id| found.ids[..4].iter().filter(|other| *other == id).count() == 1)
        );
    }
}

#[test]
fn only_candidates_are_written_with_the_probabilities_that_they_have() {
    let searches = [
        Search::Greedy,
        Search::Beam(BeamSearch::new(3)),
        Search::Sample(Sampling { top_k: 3, ..Sampling::default() }),
    ];
    for search in searches {
        for request in requests(7, 8) {
            let all = config(search.clone());
            let only = all.clone().with_allowed_ids([3, 0]);
            assert_eq!(only.allowed_ids.as_deref(), Some(&[0, STOP, 3][..]));
            let found = decode(&only, std::slice::from_ref(&request)).remove(0).remove(0);
            // As if all others were forbidden.
            let others = DecodeConfig { forbidden_ids: vec![1, 4], ..all };
            let expected = decode(&others, std::slice::from_ref(&request)).remove(0).remove(0);
            assert_eq!((&found.ids, found.ended), (&expected.ids, expected.ended), "{search:?}");
            let written = [&found.ids[..], if found.ended { &[STOP][..] } else { &[] }].concat();
            let total: f64 =
                (0..written.len()).map(|i| log_probs(&request, &written[..i])[written[i] as usize]).sum();
            assert!((found.log_prob - total).abs() < 1e-5, "{search:?}: {} {total}", found.log_prob);
        }
    }
    // Ids beyond the vocabulary are no tokens.
    let none = DecodeConfig::new(vec![]).with_allowed_ids([-1, 99]);
    let error = in_order(&TOY, &none, requests(1, 3)).next().unwrap().unwrap_err().to_string();
    assert!(error.contains("`allowed_ids`"), "{error}");
}

#[test]
fn a_request_that_cannot_be_decoded_stops_no_other() {
    let toy = Toy { limit: Some(4), ..TOY };
    let requests = [
        Request::new(vec![1], 9),
        Request::new(vec![], 9),
        Request::new(vec![1; 5], 9),
        Request::new(vec![1, 2], 0),
        Request::new(vec![1, 2], 9).with_prefix(vec![3; 4]),
        Request::new(vec![3, 2], 9).with_prefix(vec![3; 2]),
    ];
    let config = DecodeConfig { min_new: 9, ..config(Search::Greedy) };
    let found: Vec<Result<Vec<Hypothesis>>> =
        in_order(&toy, &config, requests.to_vec()).with_batch(3).collect();
    let lengths: Vec<Option<usize>> =
        found.iter().map(|found| found.as_ref().ok().map(|texts| texts[0].ids.len())).collect();
    assert_eq!(lengths, [Some(4), Some(0), None, Some(0), Some(4), Some(4)]);
    assert_eq!(
        found[2].as_ref().unwrap_err().to_string(),
        "5 tokens are too many: the model takes at most 4"
    );
    assert!(InOrder::new(Decoding::new(&toy, true), &config.with_n_best(0), requests.into_iter()).is_err());
}

#[test]
fn tokens_are_told_as_they_are_written() {
    let config = config(Search::Sample(Sampling::default())).with_n_best(2);
    let mut told: BTreeMap<(usize, usize), Vec<i32>> = BTreeMap::new();
    let requests = requests(5, 7);
    let found: Vec<Vec<Hypothesis>> = in_order(&TOY, &config, requests)
        .with_batch(3)
        .with_listener(|written| {
            let text = told.entry((written.request, written.sample)).or_default();
            assert_eq!(written.tokens.len(), text.len() + 1);
            *text = written.tokens.to_vec();
            ControlFlow::Continue(())
        })
        .map(|found| found.unwrap())
        .collect();
    for (request, texts) in found.iter().enumerate() {
        for (sample, text) in texts.iter().enumerate() {
            assert_eq!(told.get(&(request, sample)).cloned().unwrap_or_default(), text.ids);
        }
    }
}

#[test]
fn a_listener_ends_the_text_that_it_breaks() {
    let config = config(Search::Sample(Sampling::default())).with_n_best(3);
    let whole = decode(&config, &requests(4, 9));
    let breaks = |tokens: &[i32]| tokens.len() >= 3 && tokens.last() == Some(&4);
    let cut: Vec<Vec<Hypothesis>> = in_order(&TOY, &config, requests(4, 9))
        .with_listener(|written| match written.sample == 1 && breaks(written.tokens) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })
        .map(|found| found.unwrap())
        .collect();
    let mut n_cut = 0;
    for (whole, cut) in whole.iter().zip(&cut) {
        assert_eq!((&whole[0], &whole[2]), (&cut[0], &cut[2]));
        let end = (1..=whole[1].ids.len()).find(|end| breaks(&whole[1].ids[..*end]));
        assert_eq!(cut[1].ids, whole[1].ids[..end.unwrap_or(whole[1].ids.len())]);
        assert_eq!(cut[1].ended, whole[1].ended && end.is_none());
        n_cut += usize::from(end.is_some());
    }
    assert!(n_cut > 0);
}

#[test]
fn tokens_are_scored_by_the_models_own_probabilities() {
    let searches = [
        config(Search::Greedy),
        config(Search::Sample(Sampling { temperature: 0.5, top_k: 2, ..Sampling::default() })).with_n_best(2),
        DecodeConfig { repetition_penalty: 1.7, ..config(Search::Greedy) },
    ];
    for config in searches {
        let requests = requests(5, 6);
        let plain = decode(&config, &requests);
        let scored = decode(&config.clone().with_alternatives(3), &requests);
        for ((request, scored), plain) in requests.iter().zip(&scored).zip(&plain) {
            for (scored, plain) in scored.iter().zip(plain) {
                assert_eq!((&scored.ids, plain.scores.len()), (&plain.ids, 0));
                assert_eq!(scored.scores.len(), scored.ids.len());
                for (i, score) in scored.scores.iter().enumerate() {
                    let expected = log_probs(request, &scored.ids[..i]);
                    assert!((score.log_prob - expected[scored.ids[i] as usize]).abs() < 1e-6);
                    assert_eq!(score.best.len(), 3);
                    assert!(score.best.is_sorted_by(|a, b| a.1 >= b.1));
                    assert!(
                        score.best.iter().all(|(id, found)| (found - expected[*id as usize]).abs() < 1e-6)
                    );
                    assert!(score.best[0].1 >= expected.iter().copied().fold(f64::MIN, f64::max) - 1e-6);
                }
            }
        }
    }
    let beam = config(Search::Beam(BeamSearch::new(2))).with_alternatives(1);
    assert!(beam.validate().unwrap_err().to_string().contains("n_alternatives"));
}

/// Requests of different settings, each with its own.
fn mixed() -> Vec<(Request, Arc<DecodeConfig>)> {
    let sampling =
        |temperature, top_k| Search::Sample(Sampling { temperature, top_k, ..Sampling::default() });
    let configs = [
        config(Search::Greedy),
        config(sampling(0.7, 3)).with_n_best(4),
        config(Search::Beam(BeamSearch::new(5))).with_n_best(2).with_alignment(),
        DecodeConfig { min_new: 4, forbidden_ids: vec![1], ..config(Search::Greedy) },
        DecodeConfig { repetition_penalty: 1.5, ..config(sampling(1.3, 0)) },
        config(Search::Beam(BeamSearch::new(4).with_groups(2, 0.8))),
        DecodeConfig { no_repeat_ngram: 2, ..config(Search::Greedy) },
    ];
    let configs = configs.map(Arc::new);
    let requests = requests(40, 9).into_iter().enumerate();
    let request = |(i, request): (usize, Request)| {
        let request = Request { max_new: 1 + i * 5 % 9, ..request };
        (request.with_seed(i as u64).with_prefix(vec![3; i % 3]), configs[i % configs.len()].clone())
    };
    requests.map(request).collect()
}

fn alone((request, config): &(Request, Arc<DecodeConfig>)) -> Vec<Hypothesis> {
    decode(config, std::slice::from_ref(request)).remove(0)
}

#[test]
fn requests_of_different_settings_are_decoded_as_alone() {
    let mixed = mixed();
    let mut decoding = Decoding::new(&TOY, true).with_batch(6);
    let mut found = BTreeMap::new();
    let mut next = mixed.iter().enumerate();
    // Some are there from the beginning, and others join while these are under way.
    while found.len() < mixed.len() {
        for (id, (request, config)) in next.by_ref().take(1 + found.len() % 3) {
            decoding.submit(id, request.clone(), config).unwrap();
        }
        found.extend(decoding.step().into_iter().map(|(id, texts)| (id, texts.unwrap())));
    }
    assert!(decoding.is_empty());
    for (id, request) in mixed.iter().enumerate() {
        assert_eq!(found[&id], alone(request), "{:?}", request.1.search);
    }
}

#[test]
fn results_are_returned_as_they_are_done() {
    let mut decoding = Decoding::new(&TOY, true);
    let config = Arc::new(DecodeConfig { min_new: 9, ..config(Search::Greedy) });
    for (id, max_new) in [(5, 7), (3, 2), (4, 4), (9, 0)] {
        decoding.submit(id, Request::new(vec![1, 2], max_new), &config).unwrap();
    }
    let mut order = Vec::new();
    while !decoding.is_empty() {
        order.extend(decoding.step().into_iter().map(|(id, _)| id));
    }
    assert_eq!(order, [9, 3, 4, 5]);
}

#[test]
fn a_cancelled_request_makes_room_for_the_next() {
    let mixed = mixed();
    let config = Arc::new(DecodeConfig { min_new: 1000, ..config(Search::Beam(BeamSearch::new(3))) });
    let endless = |seed| Request::new(vec![1, 2, seed], 1000);
    let mut decoding = Decoding::new(&TOY, true).with_batch(2);
    for id in 0..3 {
        decoding.submit(id, endless(id as i32), &config).unwrap();
    }
    for _ in 0..3 {
        assert!(decoding.step().is_empty());
    }
    assert_eq!((decoding.len(), decoding.room()), (3, 0));
    // One that waits, and one under way, whose place the next request has in the next step.
    assert!(decoding.cancel(2) && decoding.cancel(0) && !decoding.cancel(0));
    assert_eq!((decoding.len(), decoding.room()), (1, 1));
    let one = Request::new(vec![4], 1);
    let short = Arc::new(DecodeConfig::new(vec![STOP]));
    decoding.submit(0, one.clone(), &short).unwrap();
    let found = decoding.step();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].0, found[0].1.as_ref().unwrap()), (0, &alone(&(one, short))));
    // What goes on is not changed by what was cancelled.
    decoding.submit(7, mixed[2].0.clone(), &mixed[2].1).unwrap();
    let mut found = Vec::new();
    while found.is_empty() {
        found = decoding.step();
    }
    assert_eq!((found[0].0, found[0].1.as_ref().unwrap()), (7, &alone(&mixed[2])));
    assert!(decoding.cancel(1) && decoding.is_empty() && decoding.step().is_empty());
}

#[test]
fn a_request_with_invalid_settings_is_refused() {
    let mut decoding = Decoding::new(&TOY, false);
    let request = || Request::new(vec![1], 3);
    let mut error =
        |config: DecodeConfig| decoding.submit(0, request(), &Arc::new(config)).unwrap_err().to_string();
    assert!(error(config(Search::Greedy).with_n_best(2)).contains("`n_best` is 2"));
    assert!(error(config(Search::Greedy).with_alignment()).contains("`alignment` is true"));
    assert!(decoding.is_empty());
}

#[test]
fn a_packed_transformer_writes_the_same_bits_among_any_others() {
    let device = Device::flex();
    let mut gpt = GptConfig::gpt2(200, 2, 64).init(&mut ParamInit::new(&device, 3).with_std(0.3));
    pack_weights(&mut gpt);
    let config = TransformerConfig::new(200, 2, 64);
    let mut transformer = config.init(&mut ParamInit::new(&device, 4).with_std(0.3));
    pack_weights(&mut transformer);
    let mixed: Vec<_> = mixed()
        .into_iter()
        .enumerate()
        .map(|(i, (request, config))| {
            let input = (0..1 + (i * 13 % 40) as i32).map(|k| (7 * k + i as i32) % 200).collect();
            (Request { input, max_new: 20, ..request }, config)
        })
        .collect();
    let options = DecodeOptions::default().with_alignment();
    for translates in [false, true] {
        let new = || match translates {
            false => Decoding::continuing(&gpt, &device),
            true => Decoding::translating(&transformer, 1, options, &device),
        };
        let decode = |requests: &[(Request, Arc<DecodeConfig>)], batch: usize| {
            let mut decoding = new().with_batch(batch);
            for (id, (request, config)) in requests.iter().enumerate() {
                decoding.submit(id, request.clone(), config).unwrap();
            }
            let mut found = BTreeMap::new();
            while !decoding.is_empty() {
                found.extend(decoding.step().into_iter().map(|(id, texts)| (id, texts.unwrap())));
            }
            found.into_values().collect::<Vec<_>>()
        };
        let alone: Vec<_> = mixed.iter().flat_map(|one| decode(std::slice::from_ref(one), 1)).collect();
        for batch in [3, 40] {
            assert_eq!(decode(&mixed, batch), alone);
        }
    }
}

const THREE: [Toy; 3] = [TOY, Toy { limit: None, seed: 12 }, Toy { limit: None, seed: 13 }];

const MEANS: [EnsembleMean; 2] = [EnsembleMean::Log, EnsembleMean::Probability];

fn together(members: &[Toy], mean: EnsembleMean) -> Decoding<'_> {
    Decoding::ensemble(members.iter().map(|toy| Decoding::new(toy, true)).collect(), mean)
}

/// Requests whose inputs differ between the members.
fn requests_of_three(n: usize, max_new: usize) -> Vec<Request> {
    let request = |(i, request): (usize, Request)| {
        let others = vec![vec![4; 1 + i % 3], request.input.iter().rev().copied().collect()];
        request.with_other_inputs(others).with_prefix(vec![3; i % 2])
    };
    requests(n, max_new).into_iter().enumerate().map(request).collect()
}

/// The combined log-probabilities of the next tokens, from each member run alone.
fn combined(mean: EnsembleMean, request: &Request, written: &[i32]) -> Vec<f64> {
    let of_members: Vec<Vec<f64>> = THREE
        .iter()
        .zip(request.inputs())
        .map(|(toy, input)| log_probs_of(toy, input, request, written))
        .collect();
    let token = |token: usize| {
        let logs = of_members.iter().map(|log_probs| log_probs[token]);
        match mean {
            EnsembleMean::Log => logs.sum::<f64>() / 3.0,
            EnsembleMean::Probability => (logs.map(f64::exp).sum::<f64>() / 3.0).ln(),
        }
    };
    (0..VOCAB as usize).map(token).collect()
}

#[test]
fn an_ensemble_finds_what_its_members_find_together() {
    for mean in MEANS {
        let search = beam(700).with_length_penalty(LengthPenalty::Power(0.7));
        let wide = config(Search::Beam(search)).with_n_best(20);
        let requests = requests_of_three(4, 4);
        let found = InOrder::new(together(&THREE, mean), &wide, requests.clone().into_iter()).unwrap();
        for (found, request) in found.zip(&requests) {
            let found = found.unwrap();
            let by_hand = |written: &[i32]| combined(mean, request, written);
            let score = |log_prob: f64, text: &[i32]| log_prob / LengthPenalty::Power(0.7).at(text.len());
            let expected = all_texts_by(request, &by_hand, &score);
            assert_eq!(found.len(), 20);
            for (found, (text, score)) in found.iter().zip(expected) {
                let ended = text.last() == Some(&STOP);
                let text = [&request.prefix[..], &text[..text.len() - usize::from(ended)]].concat();
                assert_eq!((&found.ids, found.ended), (&text, ended));
                assert!((found.score - score).abs() < 1e-5, "{mean:?}: {} {score}", found.score);
            }
        }
    }
}

#[test]
fn an_ensemble_takes_the_likeliest_token_and_keeps_the_best_beams() {
    let (beams, max_new) = (3, 6);
    for mean in MEANS {
        for request in requests_of_three(9, max_new) {
            let decode = |search: Search| {
                let config = config(search);
                let requests = [request.clone()].into_iter();
                InOrder::new(together(&THREE, mean), &config, requests).unwrap().next().unwrap().unwrap()
            };
            let greedy = decode(Search::Greedy).remove(0);
            let (mut text, mut total) = (Vec::new(), 0.0);
            while text.len() < max_new && text.last() != Some(&STOP) {
                let log_probs = combined(mean, &request, &text);
                let best =
                    (0..VOCAB).max_by(|a, b| log_probs[*a as usize].total_cmp(&log_probs[*b as usize]));
                total += log_probs[best.unwrap() as usize];
                text.push(best.unwrap());
            }
            let stripped = text.strip_suffix(&[STOP]).unwrap_or(&text);
            assert_eq!(greedy.ids, [&request.prefix[..], stripped].concat());
            assert!((greedy.log_prob - total).abs() < 1e-5);

            // A slow beam search.
            let mut live = vec![(Vec::new(), 0.0)];
            let mut finished: Vec<(Vec<i32>, f64)> = Vec::new();
            for length in 1..=max_new {
                let mut candidates: Vec<(Vec<i32>, f64)> = Vec::new();
                for (text, log_prob) in &live {
                    let next = (0..).zip(combined(mean, &request, text));
                    candidates.extend(next.map(|(token, p)| ([&text[..], &[token]].concat(), log_prob + p)));
                }
                candidates.sort_by(|a, b| b.1.total_cmp(&a.1));
                candidates.truncate(2 * beams);
                live.clear();
                for (rank, (text, log_prob)) in candidates.into_iter().enumerate() {
                    if text.last() == Some(&STOP) || length == max_new {
                        if rank < beams {
                            finished.push((text, log_prob / length as f64));
                        }
                    } else if live.len() < beams {
                        live.push((text, log_prob));
                    }
                }
                finished.sort_by(|a, b| b.1.total_cmp(&a.1));
                finished.truncate(beams);
            }
            let found = decode(Search::Beam(beam(beams))).remove(0);
            let (text, score) = &finished[0];
            let stripped = text.strip_suffix(&[STOP]).unwrap_or(text);
            assert_eq!(found.ids, [&request.prefix[..], stripped].concat(), "{mean:?}");
            assert!((found.score - score).abs() < 1e-5);
        }
    }
}

#[test]
fn an_ensemble_writes_the_same_bits_in_any_batch() {
    let searches = [
        Search::Greedy,
        Search::Beam(BeamSearch::new(4)),
        Search::Sample(Sampling { temperature: 0.9, top_k: 3, ..Sampling::default() }),
    ];
    for (mean, search) in MEANS.into_iter().flat_map(|mean| searches.clone().map(|search| (mean, search))) {
        let config = config(search).with_alignment();
        let requests = requests_of_three(23, 9);
        let decode = |batch: usize, window: usize| -> Vec<Vec<Hypothesis>> {
            let found = InOrder::new(together(&THREE, mean), &config, requests.clone().into_iter()).unwrap();
            found.with_batch(batch).with_window(window).map(|found| found.unwrap()).collect()
        };
        let alone = decode(1, 1);
        for (batch, window) in [(2, 3), (7, 100), (64, 1)] {
            assert_eq!(decode(batch, window), alone);
        }
        // The attention is the first member's.
        let mut compared = 0;
        for (request, texts) in requests.iter().zip(&alone).filter(|(request, _)| request.prefix.is_empty()) {
            // A text may end at once.
            let Some(first) = texts[0].alignment.first() else { continue };
            assert_eq!(first[..], TOY.attention(&[&request.input[..], &[-1]].concat()));
            compared += 1;
        }
        assert!(compared > 3, "{compared}");
    }
}

#[test]
fn an_ensemble_of_a_model_and_itself_is_the_model() {
    for mean in MEANS {
        // A repetition penalty changes a model's logits, and an ensemble's log-probabilities.
        for one in mixed().into_iter().filter(|(_, config)| config.repetition_penalty == 1.0) {
            let alone = alone(&one);
            let (request, config) = one;
            let decode = |decoding: Decoding| {
                let found = InOrder::new(decoding, &config, [request.clone()].into_iter()).unwrap();
                found.map(|found| found.unwrap()).next().unwrap()
            };
            let nested =
                Decoding::ensemble(vec![together(&[TOY, TOY], mean), Decoding::new(&TOY, true)], mean);
            for found in [together(&[TOY], mean), together(&[TOY, TOY], mean), nested].map(decode) {
                assert_eq!(found.len(), alone.len());
                for (found, alone) in found.iter().zip(&alone) {
                    assert_eq!((&found.ids, found.ended), (&alone.ids, alone.ended));
                    assert_eq!(found.alignment, alone.alignment);
                    assert!((found.score - alone.score).abs() < 1e-5, "{} {}", found.score, alone.score);
                }
            }
        }
    }
}

#[test]
fn models_of_different_architectures_translate_together() {
    let device = Device::flex();
    let transformer = TransformerConfig::new(40, 2, 32).init(&mut ParamInit::new(&device, 4).with_std(0.3));
    let recurrent = RecurrentEncoderDecoderConfig::new(40, 16, 16);
    let recurrent = recurrent.init(&mut ParamInit::new(&device, 5).with_std(0.5));
    // Three more rows than there are tokens, and another vocabulary of sources.
    let convolutional = ConvolutionalEncoderDecoderConfig::new(43, 16, 16).with_source_vocab(50);
    let convolutional = convolutional.init(&mut ParamInit::new(&device, 6).with_std(0.5));
    let request = |i: i32| {
        let source: Vec<i32> = (0..3 + i % 4).map(|k| (7 * k + 5 * i) % 40).collect();
        let finer = source.iter().flat_map(|id| [*id, 49 - id]).collect();
        let others = vec![source.iter().rev().copied().collect(), finer];
        Request::new(source, 8).with_other_inputs(others)
    };
    let requests: Vec<Request> = (0..5).map(request).collect();
    let starts = [1, 2, 3];
    for mean in MEANS {
        let options = DecodeOptions::default();
        let members = vec![
            Decoding::translating(&transformer, starts[0], options, &device),
            Decoding::translating(&recurrent, starts[1], options, &device),
            Decoding::translating(&convolutional, starts[2], options, &device),
        ];
        let config = DecodeConfig::new(vec![0]).with_alternatives(40);
        let found = InOrder::new(Decoding::ensemble(members, mean), &config, requests.clone().into_iter());
        for (found, request) in found.unwrap().zip(&requests) {
            let found = found.unwrap().remove(0);
            let log_softmax = |logits: Tensor<2>| -> Vec<f64> {
                let last = logits.dims()[0] - 1;
                let logits: Vec<f64> = logits.narrow(0, last, 1).into_data().iter::<f64>().collect();
                let total: f64 = logits.iter().map(|x| x.exp()).sum();
                logits.iter().map(|x| x - total.ln()).collect()
            };
            for (i, score) in found.scores.iter().enumerate() {
                let inputs = request.inputs();
                let source = |member: usize| -> Sequences { [inputs[member]].into_iter().collect() };
                let target = |member: usize| -> Sequences {
                    [&[&starts[member..=member], &found.ids[..i]].concat()[..]].into_iter().collect()
                };
                let of_members = [
                    log_softmax(transformer.logits(&source(0), &target(0), &device)),
                    log_softmax(recurrent.logits(&source(1), &target(1), &device)),
                    log_softmax(convolutional.logits(&source(2), &target(2), &device)),
                ];
                assert_eq!(score.best.len(), 40);
                for (token, log_prob) in score.best.iter() {
                    let logs = of_members.iter().map(|log_probs| log_probs[*token as usize]);
                    let expected = match mean {
                        EnsembleMean::Log => logs.sum::<f64>() / 3.0,
                        EnsembleMean::Probability => (logs.map(f64::exp).sum::<f64>() / 3.0).ln(),
                    };
                    assert!((log_prob - expected).abs() < 1e-4, "{log_prob} {expected}");
                }
            }
        }
    }
}

#[test]
fn inputs_that_an_ensemble_cannot_read_are_refused() {
    let toys = [TOY, Toy { limit: Some(4), seed: 12 }];
    let config = Arc::new(config(Search::Greedy));
    let mut decoding = together(&toys, EnsembleMean::Log);
    let mut submit = |request: Request| decoding.submit(0, request, &config).unwrap_err().to_string();
    assert_eq!(submit(Request::new(vec![1; 5], 3)), "5 tokens are too many: the model takes at most 4");
    let many = Request::new(vec![1], 3).with_other_inputs(vec![vec![1], vec![2]]);
    assert!(submit(many).contains("`other_inputs` is 2, expected none, or 1"), "other inputs");
    // The first may read more than the second.
    let long = Request::new(vec![1; 5], 9).with_other_inputs(vec![vec![1]]);
    decoding.submit(0, long, &config).unwrap();
    decoding.submit(1, Request::new(vec![1], 9).with_other_inputs(vec![vec![]]), &config).unwrap();
    let mut found = BTreeMap::new();
    while !decoding.is_empty() {
        found.extend(decoding.step().into_iter().map(|(id, texts)| (id, texts.unwrap().remove(0).ids.len())));
    }
    assert!((1..=4).contains(&found[&0]) && found[&1] == 0, "{found:?}");
}
