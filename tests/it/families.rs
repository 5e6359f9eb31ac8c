//! BERT's family against transformers: `tests/fixtures/families/export.py`.
//!
//! What is saved here lies in the folder `families` of cargo's folder for integration tests' files, where
//! `tests/interop/families.py` loads it in transformers.

use crate::golden::{Golden, fixture, gradients_of, relative_error};
use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::activation::relu;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use cloze_model::bert::{Bert, BertConfig, BertInput, Family, MlmHead};
use cloze_model::blocks::{EncoderTrace, Linear};
use cloze_model::huggingface::{
    Architecture, Checkpoint, FloatType, LoadReport, PretrainedConfig, SaveConfig, read_tensors,
    save_pretrained, write_tensors,
};
use cloze_model::ops::Packing;
use cloze_model::weights::{self, NamedTensors};
use cloze_model::{ParamInit, ops};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Largest error allowed, relative to the largest absolute value of the tensor.
const TOLERANCE: f32 = 1e-4;
const LENGTHS: [usize; 3] = [13, 9, 5];
const FAMILIES: [&str; 5] = ["bert", "roberta", "distilbert", "albert", "electra"];
const HEADS: [&str; 5] = ["mlm", "sequence", "tokens", "spans", "choice"];

#[derive(Module, Debug)]
struct Head {
    dense: Option<Linear>,
    output: Linear,
}

/// Sequence classification and multiple choice.
#[derive(Module, Debug)]
struct OverSequences {
    bert: Bert,
    head: Head,
}

/// Token classification and question answering.
#[derive(Module, Debug)]
struct OverTokens {
    bert: Bert,
    output: Linear,
}

#[derive(Module, Debug)]
struct MaskedLm {
    bert: Bert,
    mlm: MlmHead,
}

/// Logits, of padded or of packed input: a sequence or a token a row.
trait Logits: Module {
    fn logits(&self, family: Family, input: BertInput) -> Tensor<2>;
}

/// The rows of the tokens that are not padding.
fn token_states(bert: &Bert, input: BertInput) -> Tensor<2> {
    let packed = input.packing.is_some();
    let states = bert.forward(input).last_hidden_state;
    let [batch, len, d_model] = states.dims();
    let places = match packed {
        true => (0..len as i32).collect(),
        false => places(batch, len),
    };
    let places = Tensor::<1, Int>::from_data(places.as_slice(), &states.device());
    states.reshape([batch * len, d_model]).select(0, places)
}

/// Where the tokens are in a batch of the golden sequences, or in the first of them by itself.
fn places(batch: usize, len: usize) -> Vec<i32> {
    let row = |(row, n): (usize, usize)| (row * len) as i32..(row * len + n.min(len)) as i32;
    LENGTHS.into_iter().take(batch).enumerate().flat_map(row).collect()
}

impl Logits for OverSequences {
    fn logits(&self, family: Family, input: BertInput) -> Tensor<2> {
        let packing = input.packing.clone();
        let states = self.bert.forward(input).last_hidden_state;
        let summary = match (&self.bert.pooler, &packing) {
            (Some(pooler), packing) => pooler.forward(states, packing.as_ref()),
            (None, None) => states.narrow(1, 0, 1).squeeze_dim::<2>(1),
            (None, Some(packing)) => {
                let starts: Vec<i32> = packing.starts().map(|start| start as i32).collect();
                let starts = Tensor::<1, Int>::from_data(starts.as_slice(), &states.device());
                states.squeeze_dim::<2>(0).select(0, starts)
            }
        };
        let summary = match &self.head.dense {
            Some(dense) => {
                let x = dense.forward(summary);
                match family {
                    Family::Roberta => x.tanh(),
                    Family::DistilBert => relu(x),
                    _ => ops::gelu(x),
                }
            }
            None => summary,
        };
        self.head.output.forward(summary)
    }
}

impl Logits for OverTokens {
    fn logits(&self, _: Family, input: BertInput) -> Tensor<2> {
        self.output.forward(token_states(&self.bert, input))
    }
}

impl Logits for MaskedLm {
    fn logits(&self, _: Family, input: BertInput) -> Tensor<2> {
        let states = token_states(&self.bert, input);
        self.mlm.forward(states, self.bert.embeddings.tokens.weight.val())
    }
}

/// One head of one family as transformers saved it, in a folder of its own.
struct Case {
    name: String,
    head: &'static str,
    folder: tempfile::TempDir,
    golden: Golden,
}

impl Case {
    fn new(family: &str, head: &'static str) -> Self {
        let fixtures = fixture("families").join(family);
        let json = fs::read_to_string(fixtures.join("models.json")).unwrap();
        let models: Value = serde_json::from_str(&json).unwrap();
        let stored = read_tensors(&fixtures.join("models.safetensors")).unwrap();
        let names = models[head]["tensors"].as_object().unwrap();
        let tensors =
            names.iter().map(|(name, key)| (name.clone(), stored[key.as_str().unwrap()].clone())).collect();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("config.json"), models[head]["config"].to_string()).unwrap();
        write_tensors(&folder.path().join("model.safetensors"), &tensors, &[]).unwrap();
        Self { name: format!("{family}, {head}"), head, folder, golden: Golden::open(&fixtures) }
    }

    fn all() -> impl Iterator<Item = Self> {
        FAMILIES.into_iter().flat_map(|family| HEADS.map(|head| Self::new(family, head)))
    }

    fn open(&self) -> Checkpoint {
        Checkpoint::open(self.folder.path()).unwrap()
    }

    fn tensors(&self) -> NamedTensors {
        read_tensors(&self.folder.path().join("model.safetensors")).unwrap()
    }

    fn padded(&self, device: &Device) -> BertInput {
        BertInput::new(self.golden.int("input_ids", device))
            .with_token_types(self.golden.int("token_type_ids", device))
            .with_pad_mask(Tensor::<2, Bool>::from_data(self.golden.data("pad_mask"), device))
    }

    fn packed(&self, device: &Device) -> BertInput {
        let cells = |name| -> Vec<i32> {
            let all: Vec<i32> = self.golden.data(name).iter::<i32>().collect();
            places(3, LENGTHS[0]).into_iter().map(|place| all[place as usize]).collect()
        };
        let types = cells("token_type_ids");
        let types = TensorData::new(types.clone(), [1, types.len()]);
        BertInput::packed(&cells("input_ids"), &LENGTHS, device)
            .with_token_types(Tensor::from_data(types, device))
    }

    fn assert_close(&self, what: &str, actual: &TensorData, expected: &TensorData) {
        let error = relative_error(actual, expected);
        assert!(error <= TOLERANCE, "{}: {what} is off by {error:e} of its scale", self.name);
    }

    /// Logits in both forms of a batch, gradients, and saving.
    fn check<M: Logits>(&self, architecture: Architecture, init: impl Fn(&BertConfig, &mut ParamInit) -> M) {
        let device = Device::flex().autodiff();
        let checkpoint = self.open();
        let config = checkpoint.config.clone();
        assert_eq!(config.architecture, architecture, "{}", self.name);
        let encoder = checkpoint.encoder(architecture);
        let model = init(&encoder, &mut ParamInit::new(&device, 0).deferred());
        let (model, report) = checkpoint.load_into(model, architecture, &[]).unwrap();
        assert_eq!(report, LoadReport::default(), "{}", self.name);

        let expected = self.golden.data(&format!("{}.logits", self.head));
        let mut loss = None;
        for input in [self.packed(&device), self.padded(&device)] {
            let logits = model.logits(encoder.family, input);
            // The choices of one question are a row of the golden file.
            let shape: Vec<i32> = expected.shape().iter().map(|n| *n as i32).collect();
            let logits = logits.reshape([shape[0], shape[1]]);
            self.assert_close("logits", &logits.clone().into_data(), &expected);
            let n = logits.shape().num_elements() as i64;
            let weights = Tensor::<1, Int>::arange(0..n, &device).float().sin();
            loss = Some((logits.reshape([n as i32]) * weights).sum());
        }
        let grads = GradientsParams::from_grads(loss.unwrap().backward(), &model);

        // Saved as it was loaded, the tensors are the same to the bit.
        let family = self.name.split(',').next().unwrap();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("families").join(family).join(self.head);
        fs::create_dir_all(&folder).unwrap();
        let save = SaveConfig::from(&config);
        let plain = model.valid();
        let report = save_pretrained(&folder, &plain, &encoder, &save).unwrap();
        assert!(report.unknown.is_empty(), "{}: {report:?}", self.name);
        assert!(read_tensors(&folder.join("model.safetensors")).unwrap() == self.tensors(), "{}", self.name);
        assert_eq!(PretrainedConfig::read(&folder.join("config.json")).unwrap(), config, "{}", self.name);

        // The gradients take the parameters' places, so that saving names and transposes them.
        let gradients = tempfile::tempdir().unwrap();
        let as_model = weights::replace(plain, gradients_of(&model, grads));
        save_pretrained(gradients.path(), &as_model, &encoder, &save).unwrap();
        let found = read_tensors(&gradients.path().join("model.safetensors")).unwrap();
        let prefix = format!("{}.grad.", self.head);
        let mut n = 0;
        for name in self.golden.names().iter().filter_map(|name| name.strip_prefix(&prefix)) {
            let expected = self.golden.data(&format!("{prefix}{name}"));
            self.assert_close(&format!("gradient of {name}"), &found[name], &expected);
            n += 1;
        }
        assert!(n >= 5, "{}: {n} gradients", self.name);
    }
}

fn has_dense(config: &BertConfig, architecture: Architecture) -> bool {
    match config.family {
        Family::Bert | Family::Albert => false,
        Family::Roberta => architecture == Architecture::SequenceClassification,
        Family::DistilBert | Family::Electra => true,
    }
}

fn over_sequences(
    architecture: Architecture,
    n: usize,
) -> impl Fn(&BertConfig, &mut ParamInit) -> OverSequences {
    move |config, init| {
        let d = config.d_model;
        let dense = has_dense(config, architecture).then(|| Linear::new(d, d, init));
        let head = Head { dense, output: Linear::new(d, n, init) };
        OverSequences { bert: config.init_encoder(init), head }
    }
}

fn over_tokens(n: usize) -> impl Fn(&BertConfig, &mut ParamInit) -> OverTokens {
    move |config, init| {
        let output = Linear::new(config.d_model, n, init);
        OverTokens { bert: config.init_encoder(init), output }
    }
}

#[test]
fn every_head_of_every_family_equals_transformers() {
    for case in Case::all() {
        match case.head {
            "mlm" => case.check(Architecture::MaskedLm, |config, init| MaskedLm {
                bert: config.init_encoder(init),
                mlm: MlmHead::new(config, init),
            }),
            "sequence" => {
                let architecture = Architecture::SequenceClassification;
                assert_eq!(case.open().config.labels, ["no", "maybe", "yes"]);
                case.check(architecture, over_sequences(architecture, 3));
            }
            "choice" => {
                let architecture = Architecture::MultipleChoice;
                case.check(architecture, over_sequences(architecture, 1));
            }
            "tokens" => case.check(Architecture::TokenClassification, over_tokens(3)),
            "spans" => case.check(Architecture::QuestionAnswering, over_tokens(2)),
            other => unreachable!("{other}"),
        }
    }
}

#[test]
fn hidden_states_equal_transformers_however_they_are_batched() {
    let device = Device::flex();
    for family in FAMILIES {
        let case = Case::new(family, "mlm");
        let (config, bert, _) = case.open().load_encoder(&mut ParamInit::new(&device, 0)).unwrap();
        let trace = EncoderTrace { hidden_states: true, attentions: false };
        let places = Tensor::<1, Int>::from_data(places(3, LENGTHS[0]).as_slice(), &device);
        let padded = bert.forward(case.padded(&device).with_trace(trace)).hidden_states;
        let packed = bert.forward(case.packed(&device).with_trace(trace)).hidden_states;
        assert_eq!((padded.len(), packed.len()), (config.n_layers + 1, config.n_layers + 1));
        let d = config.d_model as i32;
        for (i, (padded, packed)) in padded.into_iter().zip(packed).enumerate() {
            // The embeddings of ALBERT and ELECTRA are projected here before the first state is kept, which
            // ELECTRA's and ALBERT's of transformers do as well.
            let expected = case.golden.data(&format!("hidden_states.{i}"));
            let padded = padded.reshape([-1, d]).select(0, places.clone());
            case.assert_close(&format!("state {i}, padded"), &padded.into_data(), &expected);
            case.assert_close(&format!("state {i}, packed"), &packed.reshape([-1, d]).into_data(), &expected);
        }
        let expected = case.golden.float::<2>(&format!("hidden_states.{}", config.n_layers), &device);
        for (row, (start, len)) in Packing::new(LENGTHS).starts().zip(LENGTHS).enumerate() {
            let cut = |name| case.golden.int::<2>(name, &device).slice([row..row + 1, 0..len]);
            let alone = BertInput::new(cut("input_ids")).with_token_types(cut("token_type_ids"));
            let alone = bert.forward(alone).last_hidden_state.squeeze_dim::<2>(0);
            let expected = expected.clone().slice([start..start + len, 0..config.d_model]);
            case.assert_close(&format!("row {row} alone"), &alone.into_data(), &expected.into_data());
        }
    }
}

#[test]
fn a_head_may_be_new_and_a_prefix_missing() {
    let device = Device::flex();
    for family in FAMILIES {
        let case = Case::new(family, "mlm");
        let whole = case.open().load_encoder(&mut ParamInit::new(&device, 0)).unwrap().1;
        let prefix = format!("{family}.");
        let bare = |tensors: NamedTensors| -> NamedTensors {
            let bare = |name: String| name.strip_prefix(&prefix).map_or(name.clone(), str::to_string);
            tensors.into_iter().map(|(name, data)| (bare(name), data)).collect()
        };
        let file = case.folder.path().join("model.safetensors");
        write_tensors(&file, &bare(case.tensors()), &[]).unwrap();

        let architecture = Architecture::SequenceClassification;
        let load = |new: &[&str]| {
            let checkpoint = case.open();
            let config = checkpoint.encoder(architecture);
            let model = over_sequences(architecture, 3)(&config, &mut ParamInit::new(&device, 3).deferred());
            checkpoint.load_into(model, architecture, new)
        };
        let message = load(&["bert.pooler.*"]).unwrap_err().to_string();
        assert!(message.contains("is `classifier.") || message.contains("is `pre_classifier."), "{message}");
        assert!(message.contains("for the parameter `head."), "{message}");
        let (model, report) = load(&["head.*", "bert.pooler.*"]).unwrap();
        let names = report.missing.iter().all(|name| name.contains("classifier") || name.contains("pooler"));
        assert!(names && report.missing.len() >= 2, "{report:?}");
        assert!(!report.unexpected.is_empty(), "the masked-LM head");
        let mut loaded = weights::collect(&model.bert);
        loaded.retain(|name, _| !name.starts_with("pooler."));
        assert_eq!(loaded, weights::collect(&whole), "{family}");
    }
}

#[test]
fn half_precision_checkpoints_keep_their_bits() {
    for family in FAMILIES {
        let case = Case::new(family, "mlm");
        let checkpoint = case.open();
        let config = checkpoint.encoder(Architecture::MaskedLm);
        let init = &mut ParamInit::new(&Device::flex(), 0).deferred();
        let model = MaskedLm { bert: config.init_encoder(init), mlm: MlmHead::new(&config, init) };
        let (model, _) = checkpoint.load_into(model, Architecture::MaskedLm, &[]).unwrap();
        let save = SaveConfig { dtype: FloatType::Bf16, ..SaveConfig::new(Architecture::MaskedLm) };
        let file: PathBuf = case.folder.path().join("model.safetensors");
        save_pretrained(case.folder.path(), &model, &config, &save).unwrap();
        let half = fs::read(&file).unwrap();
        let checkpoint = case.open();
        let save = SaveConfig::from(&checkpoint.config);
        let (model, report) = checkpoint.load_into(model, Architecture::MaskedLm, &[]).unwrap();
        assert_eq!(report, LoadReport::default());
        save_pretrained(case.folder.path(), &model, &config, &save).unwrap();
        assert_eq!(fs::read(&file).unwrap(), half, "{family}");
    }
}
