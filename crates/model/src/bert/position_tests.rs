//! Encoders with each kind of positions against the papers' equations, written out number by number in f64.

use super::{BertConfig, BertForPreTraining, BertInput};
use crate::blocks::{Activation, PositionKind, PositionsConfig, SinusoidOrder};
use crate::{ParamInit, weights};
use burn::module::Param;
use burn::optim::GradientsParams;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use std::collections::BTreeMap;

const D: usize = 16;
const HEADS: usize = 4;
const VOCABULARY: usize = 23;
const IDS: [i32; 9] = [5, 11, 3, 3, 17, 8, 20, 5, 9];

/// Each kind, with distances that the sequences here go beyond.
fn kinds() -> Vec<PositionsConfig> {
    vec![
        PositionsConfig::Learned { offset: 0 },
        PositionsConfig::Sinusoidal { order: SinusoidOrder::Interleaved },
        PositionsConfig::Relative { max_distance: 2, values: true },
        PositionsConfig::Relative { max_distance: 3, values: false },
        PositionsConfig::RelativeBias { n_buckets: 8, max_distance: 6 },
        PositionsConfig::Rotary { theta: 20.0 },
        PositionsConfig::Alibi,
        PositionsConfig::None,
    ]
}

fn config(positions: PositionsConfig) -> BertConfig {
    BertConfig::new(VOCABULARY, 2, D)
        .with_n_heads(HEADS)
        .with_d_ff(20)
        .with_max_positions(12)
        .with_activation(Activation::Relu)
        .with_hidden_dropout(0.0)
        .with_attention_dropout(0.0)
        .with_positions(positions)
}

fn model(positions: PositionsConfig, device: &Device) -> BertForPreTraining {
    config(positions).init(&mut ParamInit::new(device, 3).with_std(0.4))
}

fn row(ids: &[i32], device: &Device) -> Tensor<2, Int> {
    Tensor::from_data(TensorData::new(ids.to_vec(), [1, ids.len()]), device)
}

fn floats(data: &TensorData) -> Vec<f64> {
    data.iter::<f64>().collect()
}

fn furthest(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// A matrix, row by row.
type Rows = Vec<Vec<f64>>;

/// The parameters by their paths.
struct Slow {
    positions: PositionsConfig,
    parameters: BTreeMap<String, Vec<f64>>,
}

impl Slow {
    fn new(model: &BertForPreTraining, positions: PositionsConfig) -> Self {
        let parameters =
            weights::collect(model).iter().map(|(path, of)| (path.clone(), floats(of))).collect();
        Self { positions, parameters }
    }

    fn of(&self, path: &str) -> &[f64] {
        self.parameters.get(path).unwrap_or_else(|| panic!("{path}"))
    }

    /// A row of a table.
    fn looked_up(&self, path: &str, row: usize, width: usize) -> &[f64] {
        &self.of(path)[row * width..(row + 1) * width]
    }

    fn linear(&self, path: &str, x: &Rows) -> Rows {
        let (weight, bias) = (self.of(&format!("{path}.weight")), self.of(&format!("{path}.bias")));
        let n = bias.len();
        let output = |x: &Vec<f64>, column: usize| {
            bias[column] + x.iter().enumerate().map(|(i, x)| x * weight[i * n + column]).sum::<f64>()
        };
        x.iter().map(|x| (0..n).map(|column| output(x, column)).collect()).collect()
    }

    fn norm(&self, path: &str, x: &Rows) -> Rows {
        let (gamma, beta) = (self.of(&format!("{path}.gamma")), self.of(&format!("{path}.beta")));
        x.iter()
            .map(|x| {
                let n = x.len() as f64;
                let mean = x.iter().sum::<f64>() / n;
                let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
                let normed = |(i, x): (usize, &f64)| (x - mean) / variance.sqrt() * gamma[i] + beta[i];
                x.iter().enumerate().map(normed).collect()
            })
            .collect()
    }

    /// What is added to the embedding at a position.
    fn added(&self, position: usize) -> Vec<f64> {
        match self.positions {
            PositionsConfig::Learned { .. } => {
                self.looked_up("bert.embeddings.positions.table.weight", position, D).to_vec()
            }
            // Vaswani et al. 2017, §3.5.
            PositionsConfig::Sinusoidal { .. } => (0..D)
                .map(|feature| {
                    let pair = (feature / 2 * 2) as f64;
                    let angle = position as f64 / 10_000f64.powf(pair / D as f64);
                    (if feature % 2 == 0 { angle.sin() } else { angle.cos() }) / (D as f64).sqrt()
                })
                .collect(),
            _ => vec![0.0; D],
        }
    }

    /// What is added to a score of a head, for the distance from the query to the key.
    fn bias(&self, head: usize, distance: i64) -> f64 {
        match self.positions {
            // Press et al. 2022, §3: the slopes of 4 heads are 1/4, 1/16, 1/64, 1/256.
            PositionsConfig::Alibi => -distance.abs() as f64 / 4f64.powi(head as i32 + 1),
            // Raffel et al. 2020: `_relative_position_bucket` of its authors' code.
            PositionsConfig::RelativeBias { n_buckets, max_distance } => {
                let (half, far) = (n_buckets / 2, distance.unsigned_abs() as usize);
                let exact = half / 2;
                let logs =
                    (far.max(1) as f64 / exact as f64).ln() / (max_distance as f64 / exact as f64).ln();
                let large = exact + (logs.max(0.0) * (half - exact) as f64) as usize;
                let bucket = if far < exact { far } else { large.min(half - 1) };
                let row = bucket + if distance > 0 { half } else { 0 };
                self.looked_up("bert.embeddings.relative_bias.table.weight", row, HEADS)[head]
            }
            _ => 0.0,
        }
    }

    /// The vector of a distance (Shaw et al. 2018, eq. 3 and 4).
    fn of_distance(&self, layer: usize, table: &str, distance: i64, width: usize) -> Option<&[f64]> {
        let PositionsConfig::Relative { max_distance, values } = self.positions else { return None };
        if table == "values" && !values {
            return None;
        }
        let most = max_distance as i64;
        let path = format!("bert.encoder.layers.{layer}.attention.relative.{table}.weight");
        Some(self.looked_up(&path, (distance.clamp(-most, most) + most) as usize, width))
    }

    /// Su et al. 2021, eq. 34, with a pair's features half a head apart.
    fn rotated(&self, x: &[f64], position: usize) -> Vec<f64> {
        let PositionsConfig::Rotary { theta } = self.positions else { return x.to_vec() };
        let half = x.len() / 2;
        let turned = |feature: usize| {
            let pair = feature % half;
            let angle = position as f64 * theta.powf(-((2 * pair) as f64) / x.len() as f64);
            let (a, b) = (x[pair], x[pair + half]);
            if feature < half { a * angle.cos() - b * angle.sin() } else { b * angle.cos() + a * angle.sin() }
        };
        (0..x.len()).map(turned).collect()
    }

    fn attention(&self, layer: usize, x: &Rows) -> Rows {
        let path = format!("bert.encoder.layers.{layer}.attention");
        let [q, k, v] = ["query", "key", "value"].map(|map| self.linear(&format!("{path}.{map}"), x));
        let width = D / HEADS;
        let mut context = vec![vec![0.0; D]; x.len()];
        for head in 0..HEADS {
            let part = |x: &Rows, i: usize| x[i][head * width..(head + 1) * width].to_vec();
            for (i, context) in context.iter_mut().enumerate() {
                let query = self.rotated(&part(&q, i), i);
                let scores: Vec<f64> = (0..x.len())
                    .map(|j| {
                        let distance = j as i64 - i as i64;
                        let mut key = self.rotated(&part(&k, j), j);
                        if let Some(vector) = self.of_distance(layer, "keys", distance, width) {
                            key.iter_mut().zip(vector).for_each(|(key, of)| *key += of);
                        }
                        let product: f64 = query.iter().zip(&key).map(|(q, k)| q * k).sum();
                        product / (width as f64).sqrt() + self.bias(head, distance)
                    })
                    .collect();
                let sum: f64 = scores.iter().map(|score| score.exp()).sum();
                for (j, score) in scores.iter().enumerate() {
                    let mut value = part(&v, j);
                    if let Some(vector) = self.of_distance(layer, "values", j as i64 - i as i64, width) {
                        value.iter_mut().zip(vector).for_each(|(value, of)| *value += of);
                    }
                    for (f, value) in value.iter().enumerate() {
                        context[head * width + f] += score.exp() / sum * value;
                    }
                }
            }
        }
        self.linear(&format!("{path}.output"), &context)
    }

    /// The logits of all places, one after another.
    fn logits(&self, ids: &[i32]) -> Vec<f64> {
        let sum = |a: &Rows, b: &Rows| -> Rows {
            a.iter().zip(b).map(|(a, b)| a.iter().zip(b).map(|(a, b)| a + b).collect()).collect()
        };
        let relu = |x: Rows| -> Rows { x.iter().map(|x| x.iter().map(|x| x.max(0.0)).collect()).collect() };
        let tokens = "bert.embeddings.tokens.weight";
        let embedded = ids.iter().enumerate().map(|(position, id)| {
            let of_type = self.looked_up("bert.embeddings.token_types.weight", 0, D);
            let token = self.looked_up(tokens, *id as usize, D);
            let added = self.added(position);
            (0..D).map(|f| token[f] + of_type[f] + added[f]).collect()
        });
        let mut x = self.norm("bert.embeddings.norm", &embedded.collect());
        for layer in 0..2 {
            let path = format!("bert.encoder.layers.{layer}");
            x = self.norm(&format!("{path}.attention_norm"), &sum(&x, &self.attention(layer, &x)));
            let inner = relu(self.linear(&format!("{path}.feed_forward.up"), &x));
            let outer = self.linear(&format!("{path}.feed_forward.down"), &inner);
            x = self.norm(&format!("{path}.feed_forward_norm"), &sum(&x, &outer));
        }
        let x = self.norm("mlm.norm", &relu(self.linear("mlm.dense", &x)));
        let bias = self.of("mlm.bias");
        let logit = |x: &Vec<f64>, id: usize| {
            bias[id] + x.iter().zip(self.looked_up(tokens, id, D)).map(|(x, of)| x * of).sum::<f64>()
        };
        x.iter().flat_map(|x| (0..VOCABULARY).map(|id| logit(x, id)).collect::<Vec<_>>()).collect()
    }
}

fn logits(model: &BertForPreTraining, input: BertInput, places: &[i32], device: &Device) -> Tensor<2> {
    model.forward(input, Tensor::from_data(places, device)).mlm
}

fn places(n: usize) -> Vec<i32> {
    (0..n as i32).collect()
}

#[test]
fn each_kind_is_its_papers_equations() {
    let device = Device::flex();
    for positions in kinds() {
        let model = model(positions, &device);
        for n in [1, 2, IDS.len()] {
            let ids = &IDS[..n];
            let found = logits(&model, BertInput::new(row(ids, &device)), &places(n), &device).into_data();
            let expected = Slow::new(&model, positions).logits(ids);
            let largest = expected.iter().fold(1.0, |most: f64, x| most.max(x.abs()));
            let difference = furthest(&floats(&found), &expected);
            assert!(difference < 1e-5 * largest, "{positions:?}, {n} tokens: {difference} of {largest}");
        }
    }
}

/// Finite differences of the slow equations, in f64.
#[test]
fn each_kinds_gradients_are_those_of_its_equations() {
    let device = Device::flex().autodiff();
    let weight = |i: usize| (i as f64 * 0.7).sin();
    for positions in kinds() {
        let model = model(positions, &device);
        let found = logits(&model, BertInput::new(row(&IDS, &device)), &places(IDS.len()), &device);
        let n = IDS.len() * VOCABULARY;
        let weights: Vec<f32> = (0..n).map(|i| weight(i) as f32).collect();
        let weights = Tensor::<2>::from_data(TensorData::new(weights, [IDS.len(), VOCABULARY]), &device);
        let mut gradients = GradientsParams::from_grads((found * weights).sum().backward(), &model);
        let mut of = |param: &Param<Tensor<2>>| floats(&gradients.remove::<2>(param.id).unwrap().into_data());

        let bert = &model.bert;
        let attention = &bert.encoder.layers[0].attention;
        let mut checked = vec![
            ("bert.embeddings.tokens.weight", of(&bert.embeddings.tokens.weight)),
            ("bert.encoder.layers.0.attention.query.weight", of(&attention.query.weight)),
        ];
        if let Some(table) = &bert.embeddings.positions {
            checked.push(("bert.embeddings.positions.table.weight", of(&table.table.weight)));
        }
        if let Some(bias) = &bert.embeddings.relative_bias {
            checked.push(("bert.embeddings.relative_bias.table.weight", of(&bias.table.weight)));
        }
        if let Some(relative) = &attention.relative {
            checked.push(("bert.encoder.layers.0.attention.relative.keys.weight", of(&relative.keys.weight)));
            if let Some(values) = &relative.values {
                checked.push(("bert.encoder.layers.0.attention.relative.values.weight", of(&values.weight)));
            }
        }
        let has_own = matches!(
            positions,
            PositionsConfig::Learned { .. }
                | PositionsConfig::Relative { .. }
                | PositionsConfig::RelativeBias { .. }
        );
        assert_eq!(checked.len() > 2, has_own, "{positions:?}");

        let mut slow = Slow::new(&model, positions);
        for (path, gradient) in checked {
            let largest = gradient.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
            assert!(largest > 1e-3, "{positions:?}: {path} has no gradient");
            for i in (0..gradient.len()).step_by(7) {
                let step = 1e-6;
                let mut loss = |change: f64| {
                    slow.parameters.get_mut(path).unwrap()[i] += change;
                    let logits = slow.logits(&IDS);
                    slow.parameters.get_mut(path).unwrap()[i] -= change;
                    logits.iter().enumerate().map(|(i, logit)| logit * weight(i)).sum::<f64>()
                };
                let expected = (loss(step) - loss(-step)) / (2.0 * step);
                let difference = (gradient[i] - expected).abs();
                assert!(difference < 1e-3 * largest, "{positions:?}: {path}, {i}: {difference} of {largest}");
            }
        }
    }
}

#[test]
fn packed_and_padded_sequences_are_those_by_themselves() {
    let device = Device::flex();
    let lengths = [5, 1, 9];
    let ids: Vec<i32> = (0..15).map(|i| 1 + i * 7 % 22).collect();
    for positions in kinds() {
        let bert = model(positions, &device).bert;
        let mut alone = Vec::new();
        let (mut cells, mut ignored, mut start) = (Vec::new(), Vec::new(), 0);
        for n in lengths {
            let sequence = &ids[start..start + n];
            alone.extend(floats(
                &bert.forward(BertInput::new(row(sequence, &device))).last_hidden_state.into_data(),
            ));
            cells.extend(sequence.iter().copied().chain(vec![0; 9 - n]));
            ignored.extend((0..9).map(|place| place >= n));
            start += n;
        }
        let packed = bert.forward(BertInput::packed(&ids, &lengths, &device)).last_hidden_state;
        let difference = furthest(&floats(&packed.into_data()), &alone);
        assert!(difference < 1e-5, "{positions:?}, packed: {difference}");

        let kept: Vec<bool> = ignored.iter().map(|ignored: &bool| !ignored).collect();
        let mask = Tensor::<2, Bool>::from_data(TensorData::new(ignored, [3, 9]), &device);
        let cells = Tensor::<2, Int>::from_data(TensorData::new(cells, [3, 9]), &device);
        let padded = bert.forward(BertInput::new(cells).with_pad_mask(mask)).last_hidden_state.into_data();
        let padded: Vec<f64> = floats(&padded)
            .chunks(D)
            .zip(kept)
            .filter(|(_, kept)| *kept)
            .flat_map(|(state, _)| state.to_vec())
            .collect();
        let difference = furthest(&padded, &alone);
        assert!(difference < 1e-5, "{positions:?}, padded: {difference}");
    }
}

/// Padding before the tokens moves them, and no distance.
#[test]
fn what_depends_on_distances_alone_may_be_moved() {
    let device = Device::flex();
    for positions in kinds() {
        let bert = model(positions, &device).bert;
        let states = |before: usize| {
            let ids: Vec<i32> = vec![0; before].into_iter().chain(IDS).collect();
            let ignored: Vec<bool> = (0..ids.len()).map(|place| place < before).collect();
            let mask = Tensor::<2, Bool>::from_data(TensorData::new(ignored, [1, ids.len()]), &device);
            let output = bert.forward(BertInput::new(row(&ids, &device)).with_pad_mask(mask));
            floats(&output.last_hidden_state.narrow(1, before, IDS.len()).into_data())
        };
        let difference = furthest(&states(3), &states(0));
        let is_absolute =
            matches!(positions, PositionsConfig::Learned { .. } | PositionsConfig::Sinusoidal { .. });
        match is_absolute {
            true => assert!(difference > 1e-2, "{positions:?}: {difference}"),
            false => assert!(difference < 1e-5, "{positions:?}: {difference}"),
        }
    }
}

#[test]
fn without_positions_alone_the_order_of_tokens_is_unseen() {
    let device = Device::flex();
    for positions in kinds() {
        let bert = model(positions, &device).bert;
        let states = |ids: &[i32]| -> Rows {
            let states = bert.forward(BertInput::new(row(ids, &device))).last_hidden_state.into_data();
            floats(&states).chunks(D).map(<[f64]>::to_vec).collect()
        };
        let ids = [4, 9, 2, 15, 7];
        let order = [3, 0, 4, 2, 1];
        let whole = states(&ids);
        let moved = states(&order.map(|place| ids[place]));
        let expected: Vec<f64> = order.iter().flat_map(|place| whole[*place].clone()).collect();
        let difference = furthest(&moved.concat(), &expected);
        match positions {
            PositionsConfig::None => assert!(difference < 1e-5, "{difference}"),
            other => assert!(difference > 1e-2, "{other:?}: {difference}"),
        }
    }
}

#[test]
fn without_a_table_sequences_may_be_longer_than_any_before() {
    let device = Device::flex();
    let ids: Vec<i32> = (0..40).map(|i| 1 + i * 7 % 22).collect();
    for positions in kinds() {
        if matches!(positions, PositionsConfig::Learned { .. }) {
            continue;
        }
        let model = model(positions, &device);
        let found = logits(&model, BertInput::new(row(&ids, &device)), &places(40), &device).into_data();
        let expected = Slow::new(&model, positions).logits(&ids);
        let difference = furthest(&floats(&found), &expected);
        assert!(difference < 1e-4, "{positions:?}: {difference}");
    }
}

#[test]
#[should_panic(expected = "13 tokens, but the model has 12 positions")]
fn a_table_ends() {
    let device = Device::flex();
    let bert = model(PositionsConfig::Learned { offset: 0 }, &device).bert;
    bert.forward(BertInput::new(row(&[1; 13], &device)));
}

/// Those of translations begin anew in the second sentence.
#[test]
fn sinusoids_are_those_of_given_positions() {
    let device = Device::flex();
    let positions = PositionsConfig::Sinusoidal { order: SinusoidOrder::Interleaved };
    let embeddings = model(positions, &device).bert.embeddings;
    let ids = row(&[4, 4, 4], &device);
    let given = Tensor::<2, Int>::from_data([[0, 1, 0]], &device);
    let found = embeddings.forward_at(ids.clone(), ids.zeros_like(), None, Some(given));
    let found: Rows = floats(&found.into_data()).chunks(D).map(<[f64]>::to_vec).collect();
    assert_eq!(found[0], found[2]);
    assert!(furthest(&found[0], &found[1]) > 1e-2);
}

#[test]
fn a_configuration_knows_its_kind() {
    for positions in kinds() {
        let config = config(positions);
        config.validate().unwrap();
        assert_eq!(config.positions(), Some(positions));
        let again: BertConfig = serde_json::from_value(serde_json::to_value(&config).unwrap()).unwrap();
        assert_eq!(again, config);
    }
    for kind in PositionKind::ALL {
        let json = serde_json::to_value(kind).unwrap();
        assert_eq!(json, kind.name());
        assert_eq!(serde_json::to_value(PositionsConfig::from(kind)).unwrap()["kind"], json);
    }
    let both = config(PositionsConfig::Alibi).with_absolute_positions(true);
    assert_eq!(both.positions(), None);
    let far = PositionsConfig::Relative { max_distance: usize::MAX, values: true };
    let message = config(far).validate().unwrap_err().to_string();
    assert!(
        message.contains("`relative.max_distance` is 18446744073709551615, expected at most"),
        "{message}"
    );
    for positions in [PositionsConfig::Alibi, PositionKind::Relative.into()] {
        assert!(config(positions).fixed_heads().is_some());
    }
}
