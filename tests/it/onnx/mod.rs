//! Exports to ONNX against the models that they are made of, and against transformers: each head of each family of
//! `tests/fixtures/families`, computed by an [interpreter] of the graph.
//!
//! `tests/interop/onnx_models.py` does the same with ONNX Runtime, transformers, optimum and sentence-transformers.

mod images;
mod interpreter;
mod quantized;

use crate::families::{Case, places};
use crate::golden::relative_error;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use cloze_model::ParamInit;
use cloze_model::bert::{Bert, BertConfig, BertInput, LocalAttention, Pooling, SentencePooling};
use cloze_model::blocks::{Activation, NormPlacement, PositionKind, RotaryConfig, RotaryScaling};
use cloze_model::huggingface::{Architecture, PretrainedFolder, SaveConfig, SentenceConfig, save_pretrained};
use cloze_onnx::proto::{EXTERNAL, FLOAT, INT8, ModelProto, UINT8};
use cloze_onnx::{ExportConfig, OPSET, OnnxModel, SentenceModel, SentenceModules, export};
use interpreter::{Array, run};
use prost::Message;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// Largest difference allowed, relative to the largest absolute value of the tensor.
const TOLERANCE: f32 = 1e-4;

fn read(path: &Path) -> ModelProto {
    ModelProto::decode(&*std::fs::read(path).unwrap()).unwrap()
}

/// A saved export.
struct Saved {
    folder: tempfile::TempDir,
    model: ModelProto,
}

impl Saved {
    fn new(model: &OnnxModel) -> Self {
        let folder = tempfile::tempdir().unwrap();
        model.save(&folder.path().join("model.onnx")).unwrap();
        let model = read(&folder.path().join("model.onnx"));
        check(&model);
        Self { folder, model }
    }

    fn of_folder(folder: &Path, states: bool) -> Self {
        let config = ExportConfig { states, ..ExportConfig::default() };
        Self::new(&export(folder, &config, &Device::flex()).unwrap().model)
    }

    /// The outputs for a batch of which `kept` says where the tokens are.
    fn run(&self, batch: &Batch) -> HashMap<String, Array> {
        let names = self.model.graph.as_ref().unwrap().input.iter().map(|input| input.name.as_str());
        let inputs = names.map(|name| {
            let values = match name {
                "input_ids" => &batch.ids,
                "token_type_ids" => &batch.types,
                "attention_mask" => &batch.mask,
                other => panic!("an input {other}"),
            };
            (name, Array::ints(&batch.shape, values.iter().copied()))
        });
        run(&self.model, self.folder.path(), &inputs.collect::<Vec<_>>())
    }
}

/// The structure of a graph: everything is defined before it is used, once, and of the declared size.
fn check(model: &ModelProto) {
    assert_eq!((model.ir_version, model.opset_import[0].version), (8, OPSET));
    let graph = model.graph.as_ref().unwrap();
    let mut defined = HashSet::new();
    let mut define = |name: &str| assert!(defined.insert(name.to_owned()), "{name} is defined twice");
    graph.input.iter().for_each(|input| define(&input.name));
    for tensor in &graph.initializer {
        define(&tensor.name);
        let width = match tensor.data_type {
            FLOAT => 4,
            INT8 | UINT8 => 1,
            _ => 8,
        };
        let n_bytes = tensor.dims.iter().product::<i64>() * width;
        if tensor.data_location != EXTERNAL {
            assert_eq!(tensor.raw_data.len() as i64, n_bytes, "{}", tensor.name);
        }
    }
    let (mut names, mut used) = (HashSet::new(), HashSet::new());
    for node in &graph.node {
        assert!(names.insert(&node.name), "two nodes {}", node.name);
        for input in &node.input {
            assert!(defined.contains(input), "{} reads {input}", node.name);
            used.insert(input);
        }
        for output in &node.output {
            assert!(defined.insert(output.clone()), "{output} is defined twice");
        }
    }
    graph.output.iter().for_each(|output| assert!(defined.contains(&output.name), "{}", output.name));
    // Nothing is there in vain.
    used.extend(graph.output.iter().map(|output| &output.name));
    let values = graph.node.iter().flat_map(|node| &node.output);
    let all = values.chain(graph.initializer.iter().map(|tensor| &tensor.name));
    let unused: Vec<_> = all.chain(graph.input.iter().map(|input| &input.name)).collect();
    let unused: Vec<_> = unused.into_iter().filter(|name| !used.contains(name)).collect();
    assert!(unused.is_empty(), "{unused:?}");
}

/// Padded sequences as the graph's inputs.
#[derive(Clone)]
struct Batch {
    shape: Vec<usize>,
    ids: Vec<i64>,
    types: Vec<i64>,
    mask: Vec<i64>,
}

impl Batch {
    /// The sequences of a case, with padding on the right.
    fn of(case: &Case) -> Self {
        let ints = |name| case.golden.data(name).iter::<i64>().collect::<Vec<_>>();
        let ignored = case.golden.data("pad_mask");
        let mask = ignored.iter::<bool>().map(|ignored| i64::from(!ignored)).collect();
        let shape = ignored.shape().to_vec();
        Self { shape, ids: ints("input_ids"), types: ints("token_type_ids"), mask }
    }

    fn lengths(&self) -> Vec<usize> {
        self.mask.chunks(self.len()).map(|row| row.iter().sum::<i64>() as usize).collect()
    }

    fn len(&self) -> usize {
        *self.shape.last().unwrap()
    }

    /// The same with the padding on the left.
    fn left(&self) -> Self {
        let lengths = self.lengths();
        let turned = |values: &[i64]| {
            let rows = values.chunks(self.len()).zip(&lengths);
            rows.flat_map(|(row, len)| row[*len..].iter().chain(&row[..*len]).copied()).collect()
        };
        Self {
            shape: self.shape.clone(),
            ids: turned(&self.ids),
            types: turned(&self.types),
            mask: turned(&self.mask),
        }
    }

    /// One sequence without padding.
    fn alone(&self, row: usize) -> Self {
        let (len, all) = (self.lengths()[row], self.len());
        let cut = |values: &[i64]| values[row * all..row * all + len].to_vec();
        Self { shape: vec![1, len], ids: cut(&self.ids), types: cut(&self.types), mask: cut(&self.mask) }
    }

    /// The rows of an output that belong to tokens.
    fn of_tokens(&self, output: &Array) -> TensorData {
        let d: usize = output.shape[2..].iter().product();
        let places = self.mask.iter().enumerate().filter(|(_, kept)| **kept == 1);
        let rows = places.flat_map(|(place, _)| output.values[place * d..(place + 1) * d].iter());
        let values: Vec<f32> = rows.map(|value| *value as f32).collect();
        TensorData::new(values.clone(), [values.len() / d, d])
    }
}

fn data(output: &Array) -> TensorData {
    TensorData::new(output.values.iter().map(|value| *value as f32).collect(), output.shape.clone())
}

/// The logits of a head, in the layout of the golden ones.
fn logits(head: &str, batch: &Batch, outputs: &HashMap<String, Array>) -> TensorData {
    match head {
        "sequence" | "choice" => data(&outputs["logits"]),
        "encoder" => batch.of_tokens(&outputs["last_hidden_state"]),
        "spans" => {
            let sides = ["start_logits", "end_logits"].map(|name| batch.of_tokens(&outputs[name]));
            let [starts, ends] = sides.map(|side| side.iter::<f32>().collect::<Vec<_>>());
            let pairs: Vec<f32> =
                starts.into_iter().zip(ends).flat_map(|(start, end)| [start, end]).collect();
            TensorData::new(pairs.clone(), [pairs.len() / 2, 2])
        }
        _ => batch.of_tokens(&outputs["logits"]),
    }
}

fn assert_close(what: &str, found: &TensorData, expected: &TensorData) {
    let error = relative_error(found, expected);
    assert!(error <= TOLERANCE, "{what} is off by {error:e} of its scale");
}

#[test]
fn every_head_of_every_family_equals_transformers() {
    let mut n = 0;
    for case in Case::all() {
        let mut batch = Batch::of(&case);
        if case.head == "choice" {
            batch.shape.insert(0, 1);
        }
        let saved = Saved::of_folder(case.folder.path(), case.head == "encoder");
        // XLM's golden sequences are of several languages, an export is of one.
        let expected = match case.family() {
            "xlm" => None,
            _ => Some(case.golden.data(&format!("{}.logits", case.head))),
        };
        let right = logits(case.head, &batch, &saved.run(&batch));
        if let Some(expected) = &expected {
            assert_close(&case.name, &right, expected);
        }
        let left = batch.left();
        assert_close(
            &format!("{}, padded on the left", case.name),
            &logits(case.head, &left, &saved.run(&left)),
            &right,
        );
        n += 1;
    }
    assert!(n > 90, "{n} heads");
}

#[test]
fn states_equal_the_models_whatever_is_beside_them() {
    let device = Device::flex();
    for case in Case::all() {
        if !["tokens", "encoder"].contains(&case.head) {
            continue;
        }
        let mut batch = Batch::of(&case);
        let (config, bert, _) = case.open().load_encoder(&mut ParamInit::new(&device, 0)).unwrap();
        if let Some(language) = config.language {
            batch.types.fill(language as i64);
        }
        let saved = Saved::of_folder(case.folder.path(), true);
        let outputs = batch.of_tokens(&saved.run(&batch)["last_hidden_state"]);
        assert_close(&case.name, &outputs, &states(&bert, &batch));
        let rows = (0..batch.shape[0]).flat_map(|row| {
            let alone = batch.alone(row);
            alone.of_tokens(&saved.run(&alone)["last_hidden_state"]).iter::<f32>().collect::<Vec<_>>()
        });
        let rows = TensorData::new(rows.collect(), outputs.shape().clone());
        assert_close(&format!("{}, one by one", case.name), &rows, &outputs);
    }
}

/// The model's states of a padded batch's tokens.
fn states(bert: &Bert, batch: &Batch) -> TensorData {
    let output = bert.forward(input(batch)).last_hidden_state;
    let [rows, len, d] = output.dims();
    let places = places(&batch.lengths());
    let places = Tensor::<1, Int>::from_data(places.as_slice(), &Device::flex());
    output.reshape([rows * len, d]).select(0, places).into_data()
}

fn input(batch: &Batch) -> BertInput {
    let device = Device::flex();
    let shape = [batch.shape[0], batch.shape[1]];
    let ints = |values: &[i64]| {
        let values: Vec<i32> = values.iter().map(|value| *value as i32).collect();
        Tensor::<2, Int>::from_data(TensorData::new(values, shape), &device)
    };
    let ignored = batch.mask.iter().map(|kept| *kept == 0).collect();
    let ignored = Tensor::<2, Bool>::from_data(TensorData::new(ignored, shape), &device);
    BertInput::new(ints(&batch.ids)).with_token_types(ints(&batch.types)).with_pad_mask(ignored)
}

/// Three sequences of a vocabulary of 31.
fn batch(longest: usize) -> Batch {
    let lengths = [longest, 3, longest / 2];
    let cells = |f: &dyn Fn(usize, usize) -> i64| -> Vec<i64> {
        (0..3)
            .flat_map(|row| (0..longest).map(move |place| (row, place)))
            .map(|(row, place)| f(row, place))
            .collect()
    };
    let is_kept = |row: usize, place: usize| i64::from(place < lengths[row]);
    Batch {
        shape: vec![3, longest],
        ids: cells(&|row, place| ((row * 7 + place * 11) % 31) as i64 * is_kept(row, place)),
        types: cells(&|row, place| i64::from(place > 1) * is_kept(row, place)),
        mask: cells(&is_kept),
    }
}

fn small() -> BertConfig {
    BertConfig::new(31, 2, 16).with_d_ff(24).with_n_heads(2).with_max_positions(64)
}

#[test]
fn every_switch_is_exported() {
    let rotary = |scaling| {
        let rotary = RotaryConfig { theta: 50.0, scaling, ..RotaryConfig::default() };
        small().with_absolute_positions(false).with_rotary(Some(rotary))
    };
    let mut configs: Vec<(String, BertConfig)> = [
        Activation::Gelu,
        Activation::GeluTanh,
        Activation::Relu,
        Activation::Tanh,
        Activation::Silu,
        Activation::GeluClipped,
        Activation::QuickGelu,
        Activation::ReluSquared,
        Activation::Relu6,
        Activation::LeakyRelu,
        Activation::Mish,
        Activation::Laplace,
        Activation::HardSwish,
        Activation::Sigmoid,
        Activation::Identity,
    ]
    .into_iter()
    .map(|activation| (format!("{activation:?}"), small().with_activation(activation)))
    .collect();
    let yarn = RotaryScaling::Yarn {
        factor: 4.0,
        original_positions: 16,
        beta_fast: 32.0,
        beta_slow: 1.0,
        truncate: true,
        magnitude: 1.1,
    };
    let long = RotaryScaling::LongRope {
        short_factors: vec![1.0, 1.5, 2.0, 2.5],
        long_factors: vec![3.0, 4.0, 5.0, 6.0],
        original_positions: 8,
        magnitude: 1.2,
    };
    // Of the batch's sequences some are long and some are not.
    let dynamic = RotaryScaling::Dynamic { factor: 2.0, original_positions: 8 };
    let scalings = [None, Some(RotaryScaling::Linear { factor: 2.0 }), Some(yarn), Some(long), Some(dynamic)];
    configs.extend(scalings.into_iter().map(|scaling| (format!("{scaling:?}"), rotary(scaling))));
    let neighbours = RotaryConfig { interleaved: true, n_features: Some(6), ..RotaryConfig::default() };
    let local = LocalAttention::new(2, 2).with_theta(Some(20.0));
    configs.extend([
        ("pre-norm".into(), small().with_norm(NormPlacement::Pre)),
        ("neighbours".into(), small().with_rotary(Some(neighbours))),
        ("windows".into(), rotary(None).with_local(Some(local)).with_n_layers(3)),
        ("left to right".into(), small().with_causal(true).with_n_kv_heads(Some(1))),
        (
            "a window to the left".into(),
            small().with_causal(true).with_local(Some(LocalAttention::new(2, 2))),
        ),
        ("wide heads".into(), small().with_d_head(Some(12)).with_scaled_scores(false)),
        ("a bias by distance".into(), small().with_positions(PositionKind::RelativeBias.into())),
        ("no positions".into(), small().with_positions(PositionKind::None.into())),
    ]);
    for (name, config) in configs {
        let bert = config.init_encoder(&mut ParamInit::new(&Device::flex(), 3).with_std(0.4));
        let saved = Saved::new(&OnnxModel::new(&bert, &config).unwrap());
        let batch = batch(20);
        let found = batch.of_tokens(&saved.run(&batch)["last_hidden_state"]);
        assert_close(&name, &found, &states(&bert, &batch));
    }
}

#[test]
fn positions_without_an_onnx_form_are_named() {
    for (kind, expected) in [
        (PositionKind::Sinusoidal, "sinusoidal positions cannot be exported to ONNX; learned, "),
        (
            PositionKind::Relative,
            "relative positions (Shaw et al. 2018) cannot be exported to ONNX; learned, ",
        ),
        (PositionKind::Alibi, "positions by ALiBi cannot be exported to ONNX; learned, "),
    ] {
        let config = small().with_positions(kind.into());
        let bert = config.init_encoder(&mut ParamInit::new(&Device::flex(), 3));
        let message = OnnxModel::new(&bert, &config).err().unwrap().to_string();
        assert!(message.starts_with(expected), "{message}");
    }
}

#[test]
fn embeddings_are_pooled_as_the_model_pools_them() {
    let device = Device::flex();
    let batch = batch(9);
    for poolings in [
        vec![Pooling::Mean],
        vec![Pooling::Cls],
        vec![Pooling::Max],
        vec![Pooling::MeanSqrtLen],
        vec![Pooling::WeightedMean],
        vec![Pooling::LastToken],
        vec![Pooling::Cls, Pooling::Mean],
    ] {
        for normalize in [false, true] {
            let config = small().with_pooler(false);
            let bert = config.init_encoder(&mut ParamInit::new(&device, 5).with_std(0.4));
            let pooling = SentencePooling::concatenated(poolings.clone()).unwrap();
            let expected = pooling.forward(&bert, input(&batch));
            let length = expected.clone().square().sum_dim(1).sqrt();
            let expected = if normalize { expected / length } else { expected };
            let modules = SentenceModules { pooling, dense: Vec::new(), normalize };
            let model = SentenceModel { bert, modules };
            let saved = Saved::new(&OnnxModel::new(&model, &config).unwrap());
            let outputs = saved.run(&batch);
            let what = format!("{poolings:?}, {normalize}");
            assert_close(&what, &data(&outputs["sentence_embedding"]), &expected.into_data());
            assert_close(
                &what,
                &batch.of_tokens(&outputs["last_hidden_state"]),
                &states(&model.bert, &batch),
            );
            let left = saved.run(&batch.left());
            assert_close(&what, &data(&left["sentence_embedding"]), &data(&outputs["sentence_embedding"]));
        }
    }
}

/// A folder of a small model.
fn folder(config: &BertConfig) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let model = config.init_encoder(&mut ParamInit::new(&Device::flex(), 5).with_std(0.4));
    save_pretrained(folder.path(), &model, config, &SaveConfig::new(Architecture::Encoder)).unwrap();
    folder
}

#[test]
fn a_sentence_models_folder_has_an_embedding() {
    let config = small().with_pooler(false);
    let folder = folder(&config);
    let sentence =
        SentenceConfig { pooling_modes: vec!["max".into()], normalize: true, ..SentenceConfig::default() };
    sentence.save(folder.path(), config.d_model).unwrap();
    let exported = export(folder.path(), &ExportConfig::default(), &Device::flex()).unwrap();
    assert!(exported.is_sentence);
    let outputs = Saved::new(&exported.model).run(&batch(6));
    assert_eq!(outputs["sentence_embedding"].shape, [3, 16]);
    let config = ExportConfig { states: true, ..ExportConfig::default() };
    let exported = export(folder.path(), &config, &Device::flex()).unwrap();
    assert!(!exported.is_sentence);
    let outputs = Saved::new(&exported.model).run(&batch(6));
    assert_eq!(outputs.keys().collect::<Vec<_>>(), ["last_hidden_state"]);

    let without = SentenceConfig { excludes_prompt: true, ..sentence };
    without.save(folder.path(), 16).unwrap();
    let error = export(folder.path(), &ExportConfig::default(), &Device::flex()).err().unwrap().to_string();
    assert!(
        error.starts_with("pooling without the prompt (`include_prompt`: false) cannot be exported"),
        "{error}"
    );
}

#[test]
fn a_large_models_numbers_are_a_file_of_their_own() {
    let config = small();
    let bert = config.init_encoder(&mut ParamInit::new(&Device::flex(), 5).with_std(0.4));
    let model = OnnxModel::new(&bert, &config).unwrap();
    let whole = Saved::new(&model);
    let folder = tempfile::tempdir().unwrap();
    model.save_within(&folder.path().join("model.onnx"), 1_000).unwrap();
    let mut names: Vec<PathBuf> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    assert_eq!(names, ["model.onnx", "model.onnx_data"].map(|name| folder.path().join(name)));
    let split = Saved { model: read(&folder.path().join("model.onnx")), folder };
    check(&split.model);
    assert!(split.model.encoded_len() < 40_000);
    assert_eq!(split.run(&batch(5)), whole.run(&batch(5)));
}

#[test]
fn what_cannot_be_exported_is_named() {
    let folder = folder(&small().with_pooler(false));
    let path = folder.path().join("config.json");
    let json = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, json.replace("BertModel", "BertLMHeadModel")).unwrap();
    let states = |states| ExportConfig { states, ..ExportConfig::default() };
    let error = export(folder.path(), &states(false), &Device::flex()).err().unwrap().to_string();
    assert_eq!(
        error,
        "BertLMHeadModel cannot be exported to ONNX; an encoder with a head of its family's classes can, or its states \
         alone (--states)"
    );
    export(folder.path(), &states(true), &Device::flex()).unwrap();

    // A disk that takes nothing: neither file is left.
    let exported = export(folder.path(), &states(true), &Device::flex()).unwrap();
    let taken = folder.path().join("taken");
    std::fs::create_dir(&taken).unwrap();
    let error = exported.model.save(&taken).unwrap_err().to_string();
    assert_eq!(error, format!("cannot write {}", taken.display()));
    assert!(!taken.with_extension("partial").exists());
    PretrainedFolder::open(folder.path()).unwrap();
}
