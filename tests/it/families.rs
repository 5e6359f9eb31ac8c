//! BERT's family against transformers: `tests/fixtures/families/export.py`.
//!
//! `saved.json` of each family holds the lines of each `config.json` that is saved of those models: what this crate
//! once wrote, and transformers loaded, is written to the byte.
//!
//! What is saved here lies in the folder `families` of cargo's folder for integration tests' files, where
//! `tests/interop/families.py` loads it in transformers.

use crate::golden::{Golden, fixture, gradients_but, relative_error};
use burn::optim::GradientsParams;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use cloze_model::bert::{
    Bert, BertConfig, BertInput, MlmHead, ReplacedTokenDetector, ReplacedTokenHead, replaced_token_loss,
};
use cloze_model::blocks::{EncoderTrace, Linear};
use cloze_model::huggingface::{
    Architecture, Family, FloatType, LoadReport, PretrainedConfig, PretrainedFolder, SaveConfig,
    read_tensors, save_pretrained, write_tensors,
};
use cloze_model::ops::Packing;
use cloze_model::tasks::{
    BertForMaskedLm, BertForMultipleChoice, BertForQuestionAnswering, BertForSequenceClassification,
    BertForTokenClassification, SpanLogits,
};
use cloze_model::weights::{self, NamedTensors};
use cloze_model::{HasBackbone, ParamInit};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Largest error allowed, relative to the largest absolute value of the tensor.
const TOLERANCE: f32 = 1e-4;
/// Below it a gradient is rounding.
const ROUNDING: f32 = 1e-5;
/// The folders of the fixtures, each with the prefix of its encoder's tensors.
const FAMILIES: [(&str, &str); 21] = [
    ("bert", "bert."),
    ("roberta", "roberta."),
    ("distilbert", "distilbert."),
    ("albert", "albert."),
    ("electra", "electra."),
    ("xlm-roberta", "roberta."),
    ("camembert", "roberta."),
    ("modernbert", "model."),
    ("modernbert-biased", "model."),
    ("mpnet", "mpnet."),
    ("deberta-v2", "deberta."),
    ("deberta-v3", "deberta."),
    ("deberta-plain", "deberta."),
    ("nomic", "nomic_bert."),
    ("nomic-published", "bert."),
    ("gte", "gte."),
    ("gte-new", "new."),
    ("xlnet", "transformer."),
    ("xlm", "transformer."),
    ("albert-groups", "albert."),
    ("deberta-conv", "deberta."),
];
/// The prefixes that are read, and written otherwise.
const RENAMED: [(&str, &str, &str); 2] =
    [("nomic-published", "bert.", "nomic_bert."), ("gte-new", "new.", "gte.")];
const HEADS: [&str; 5] = ["mlm", "sequence", "tokens", "spans", "choice"];
/// Families whose encoder is a part of another model, and what transformers has of it.
const ENCODERS: [&str; 2] = ["t5", "mt5"];
const OF_ENCODERS: [&str; 2] = ["encoder", "tokens"];
/// Families of left-to-right models, and what transformers has of them.
const WRITERS: [&str; 4] = ["gpt2", "llama", "mistral", "qwen2"];
const OF_WRITERS: [&str; 2] = ["sequence", "tokens"];
/// The head that ELECTRA alone has.
const REPLACED: (&str, &str) = ("electra", "replaced");

/// Logits, of padded or of packed input: a sequence or a token that is not padding a row.
trait Logits: HasBackbone {
    fn logits(&self, input: BertInput) -> Tensor<2>;
}

/// The lengths of a batch's sequences.
fn lengths(input: &BertInput) -> Vec<usize> {
    if let Some(packing) = &input.packing {
        return packing.lengths().to_vec();
    }
    let [_, len] = input.input_ids.dims();
    let ignored = input.pad_mask.clone().expect("sequences of unequal length").into_data();
    let ignored: Vec<bool> = ignored.iter::<bool>().collect();
    ignored.chunks(len).map(|row| row.iter().filter(|ignored| !**ignored).count()).collect()
}

/// Where the tokens are in the flattened batch of padded sequences.
pub fn places(lengths: &[usize]) -> Vec<i32> {
    let longest = lengths.iter().copied().max().unwrap_or_default();
    let row = |(row, n): (usize, &usize)| (row * longest) as i32..(row * longest + n) as i32;
    lengths.iter().enumerate().flat_map(row).collect()
}

fn token_positions(input: &BertInput) -> Tensor<1, Int> {
    let [_, len] = input.input_ids.dims();
    let positions = match &input.packing {
        Some(_) => (0..len as i32).collect(),
        None => places(&lengths(input)),
    };
    Tensor::from_data(positions.as_slice(), &input.input_ids.device())
}

/// The states.
impl Logits for Bert {
    fn logits(&self, input: BertInput) -> Tensor<2> {
        let positions = token_positions(&input);
        self.states_at(input, positions)
    }
}

impl Logits for BertForSequenceClassification {
    fn logits(&self, input: BertInput) -> Tensor<2> {
        self.forward(input)
    }
}

impl Logits for BertForMultipleChoice {
    fn logits(&self, input: BertInput) -> Tensor<2> {
        let choices = lengths(&input).len();
        self.forward(input, choices)
    }
}

impl Logits for BertForTokenClassification {
    fn logits(&self, input: BertInput) -> Tensor<2> {
        let positions = token_positions(&input);
        self.forward(input, positions)
    }
}

impl Logits for BertForMaskedLm {
    fn logits(&self, input: BertInput) -> Tensor<2> {
        let positions = token_positions(&input);
        self.forward(input, positions)
    }
}

impl Logits for ReplacedTokenDetector {
    fn logits(&self, input: BertInput) -> Tensor<2> {
        let positions = token_positions(&input);
        self.forward(input, positions).unsqueeze_dim(1)
    }
}

impl Logits for BertForQuestionAnswering {
    fn logits(&self, input: BertInput) -> Tensor<2> {
        let device = input.input_ids.device();
        let places = places(&lengths(&input));
        let SpanLogits { start, end } = self.forward(input, None);
        let [rows, len] = start.dims();
        let places = Tensor::<1, Int>::from_data(places.as_slice(), &device);
        let column = |x: Tensor<2>| x.reshape([rows * len, 1]).select(0, places.clone());
        Tensor::cat(vec![column(start), column(end)], 1)
    }
}

/// One head of one family as transformers saved it, in a folder of its own.
pub struct Case {
    pub name: String,
    pub head: &'static str,
    pub folder: tempfile::TempDir,
    pub golden: Golden,
}

/// The heads of a family's classes.
fn heads(family: &str) -> Vec<&'static str> {
    let json = fs::read_to_string(fixture("families").join(family).join("models.json")).unwrap();
    let models: Value = serde_json::from_str(&json).unwrap();
    let heads: Vec<&str> = HEADS.into_iter().filter(|head| models.get(head).is_some()).collect();
    assert!(heads.len() >= 3, "{family}: {heads:?}");
    heads
}

impl Case {
    /// A head that is not over sequences: the masked-LM head if the family has one.
    fn of_tokens(family: &str) -> Self {
        let head = heads(family).into_iter().find(|head| *head != "sequence");
        Self::new(family, head.unwrap())
    }

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

    pub fn all() -> impl Iterator<Item = Self> {
        let of_family = |(family, _)| heads(family).into_iter().map(move |head| Self::new(family, head));
        let common = FAMILIES.into_iter().flat_map(of_family);
        let encoders =
            ENCODERS.into_iter().flat_map(|family| OF_ENCODERS.map(|head| Self::new(family, head)));
        let writers = WRITERS.into_iter().flat_map(|family| OF_WRITERS.map(|head| Self::new(family, head)));
        common.chain([Self::new(REPLACED.0, REPLACED.1)]).chain(encoders).chain(writers)
    }

    pub fn open(&self) -> PretrainedFolder {
        PretrainedFolder::open(self.folder.path()).unwrap()
    }

    pub fn family(&self) -> &str {
        self.name.split(',').next().unwrap()
    }

    fn tensors(&self) -> NamedTensors {
        read_tensors(&self.folder.path().join("model.safetensors")).unwrap()
    }

    /// The tensors by the names that are written.
    fn written(&self) -> NamedTensors {
        let renamed = RENAMED.iter().find(|(family, ..)| *family == self.family());
        let name = |name: String| match renamed.and_then(|(_, read, _)| name.strip_prefix(read)) {
            Some(inner) => format!("{}{inner}", renamed.map_or("", |(.., written)| written)),
            None => name,
        };
        self.tensors().into_iter().map(|(old, data)| (name(old), data)).collect()
    }

    fn padded(&self, device: &Device) -> BertInput {
        BertInput::new(self.golden.int("input_ids", device))
            .with_token_types(self.golden.int("token_type_ids", device))
            .with_pad_mask(Tensor::<2, Bool>::from_data(self.golden.data("pad_mask"), device))
    }

    fn lengths(&self) -> Vec<usize> {
        lengths(&self.padded(&Device::flex()))
    }

    fn packed(&self, device: &Device) -> BertInput {
        let lengths = self.lengths();
        let cells = |name| -> Vec<i32> {
            let all: Vec<i32> = self.golden.data(name).iter::<i32>().collect();
            places(&lengths).into_iter().map(|place| all[place as usize]).collect()
        };
        let types = cells("token_type_ids");
        let types = TensorData::new(types.clone(), [1, types.len()]);
        BertInput::packed(&cells("input_ids"), &lengths, device)
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
        let mut config = checkpoint.config.clone();
        assert_eq!(config.architecture, architecture, "{}", self.name);
        let encoder = checkpoint.encoder(architecture);
        let model = init(&encoder, &mut ParamInit::new(&device, 0).deferred());
        let (model, report) = checkpoint.load_into(model, architecture, &[]).unwrap();
        assert_eq!(report, LoadReport::default(), "{}", self.name);

        let expected = self.golden.data(&format!("{}.logits", self.head));
        let mut loss = None;
        for input in [self.packed(&device), self.padded(&device)] {
            let logits = model.logits(input);
            self.assert_close("logits", &logits.clone().into_data(), &expected);
            let n = logits.shape().num_elements() as i64;
            let weights = Tensor::<1, Int>::arange(0..n, &device).float().sin();
            loss = Some((logits.reshape([n as i32]) * weights).sum());
        }
        let grads = GradientsParams::from_grads(loss.unwrap().backward(), &model);

        // Saved as it was loaded, the tensors are the same to the bit.
        let family = self.family();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("families").join(family).join(self.head);
        fs::create_dir_all(&folder).unwrap();
        let save = SaveConfig::from(&config);
        let plain = model.valid();
        let report = save_pretrained(&folder, &plain, &encoder, &save).unwrap();
        assert!(report.unknown.is_empty(), "{}: {report:?}", self.name);
        assert!(read_tensors(&folder.join("model.safetensors")).unwrap() == self.written(), "{}", self.name);
        let path = folder.join("config.json");
        config.architectures = vec![architecture.name(config.family)];
        assert_eq!(PretrainedConfig::read(&path).unwrap(), config, "{}", self.name);
        // And the configuration is the one that was saved before, to the byte.
        let saved = fs::read_to_string(fixture("families").join(family).join("saved.json")).unwrap();
        let saved: Value = serde_json::from_str(&saved).unwrap();
        let lines = saved[self.head].as_array().unwrap().iter().map(|line| line.as_str().unwrap());
        let expected = lines.map(|line| format!("{line}\n")).collect::<String>();
        assert_eq!(fs::read_to_string(&path).unwrap(), expected, "{}", self.name);

        // The gradients take the parameters' places, so that saving names and transposes them.
        let gradients = tempfile::tempdir().unwrap();
        let unused = M::path_of("embeddings.query");
        let mut of_parameters = gradients_but(&model, grads, &unused);
        if let Some(data) = weights::collect(&plain).remove(&unused) {
            of_parameters.insert(unused, TensorData::zeros::<f32, _>(data.shape().clone()));
        }
        let as_model = weights::replace(plain, of_parameters);
        save_pretrained(gradients.path(), &as_model, &encoder, &save).unwrap();
        let found = read_tensors(&gradients.path().join("model.safetensors")).unwrap();
        let prefix = format!("{}.grad.", self.head);
        let mut n = 0;
        for name in self.golden.names().iter().filter_map(|name| name.strip_prefix(&prefix)) {
            let expected = self.golden.data(&format!("{prefix}{name}"));
            let is_rounding = |data: &TensorData| data.iter::<f32>().all(|value| value.abs() < ROUNDING);
            match is_rounding(&expected) {
                // Nothing in exact arithmetic, as that of the keys' biases, which shift all scores alike.
                true => assert!(is_rounding(&found[name]), "{}: gradient of {name}", self.name),
                false => self.assert_close(&format!("gradient of {name}"), &found[name], &expected),
            }
            n += 1;
        }
        assert!(n >= 5, "{}: {n} gradients", self.name);
    }
}

fn sequences(family: Family, config: &BertConfig, init: &mut ParamInit) -> BertForSequenceClassification {
    let head = Architecture::SequenceClassification.sequence_head(family, config, 3, 0.0, init);
    BertForSequenceClassification::new(config.init_encoder(init), head)
}

fn masked_lm(config: &BertConfig, init: &mut ParamInit) -> BertForMaskedLm {
    BertForMaskedLm { bert: config.init_encoder(init), mlm: MlmHead::new(config, init) }
}

#[test]
fn every_head_of_every_family_equals_transformers() {
    for case in Case::all() {
        let family = case.open().config.family;
        match case.head {
            "mlm" => case.check(Architecture::MaskedLm, masked_lm),
            "encoder" => case.check(Architecture::Encoder, BertConfig::init_encoder),
            "sequence" => {
                assert_eq!(case.open().config.labels, ["no", "maybe", "yes"]);
                case.check(Architecture::SequenceClassification, |config, init| {
                    sequences(family, config, init)
                });
            }
            "choice" => case.check(Architecture::MultipleChoice, |config, init| BertForMultipleChoice {
                bert: config.init_encoder(init),
                head: Architecture::MultipleChoice.sequence_head(family, config, 1, 0.0, init),
            }),
            "tokens" => {
                case.check(Architecture::TokenClassification, |config, init| BertForTokenClassification {
                    bert: config.init_encoder(init),
                    transform: Architecture::TokenClassification.head_transform(family, config, init),
                    output: Linear::new(config.d_model, 3, init),
                    crf: None,
                    dropout: 0.0,
                });
            }
            "spans" => case.check(Architecture::QuestionAnswering, |config, init| BertForQuestionAnswering {
                bert: config.init_encoder(init),
                transform: Architecture::QuestionAnswering.head_transform(family, config, init),
                output: Linear::new(config.d_model, 2, init),
            }),
            "replaced" => case.check(Architecture::ReplacedTokens, |config, init| ReplacedTokenDetector {
                bert: config.init_encoder(init),
                head: ReplacedTokenHead::new(config, init),
            }),
            other => unreachable!("{other}"),
        }
    }
}

#[test]
fn the_loss_of_replaced_tokens_equals_transformers() {
    let device = Device::flex();
    let case = Case::new(REPLACED.0, REPLACED.1);
    let checkpoint = case.open();
    let config = checkpoint.encoder(Architecture::ReplacedTokens);
    let init = &mut ParamInit::new(&device, 0).deferred();
    let (bert, head) = (config.init_encoder(init), ReplacedTokenHead::new(&config, init));
    let model = ReplacedTokenDetector { bert, head };
    let (model, _) = checkpoint.load_into(model, Architecture::ReplacedTokens, &[]).unwrap();
    let labels = case.golden.int::<1>("replaced.labels", &device);
    for input in [case.packed(&device), case.padded(&device)] {
        let positions = token_positions(&input);
        let loss = replaced_token_loss(model.forward(input, positions), labels.clone()).mean();
        case.assert_close("the loss", &loss.into_data(), &case.golden.data("replaced.loss"));
    }
}

#[test]
fn hidden_states_equal_transformers_however_they_are_batched() {
    let device = Device::flex();
    let cases = FAMILIES.into_iter().map(|(family, _)| Case::of_tokens(family));
    for case in cases.chain(ENCODERS.into_iter().chain(WRITERS).map(|family| Case::new(family, "tokens"))) {
        let (config, bert, _) = case.open().load_encoder(&mut ParamInit::new(&device, 0)).unwrap();
        let trace = EncoderTrace { hidden_states: true, attentions: false };
        let places = token_positions(&case.padded(&device));
        let padded = bert.forward(case.padded(&device).with_trace(trace)).hidden_states;
        let packed = bert.forward(case.packed(&device).with_trace(trace)).hidden_states;
        let n_layers = config.n_applied_layers();
        assert_eq!((padded.len(), packed.len()), (n_layers + 1, n_layers + 1));
        let d = config.d_model as i32;
        for (i, (padded, packed)) in padded.into_iter().zip(packed).enumerate() {
            let expected = case.golden.data(&format!("hidden_states.{i}"));
            let padded = padded.reshape([-1, d]).select(0, places.clone());
            case.assert_close(&format!("state {i}, padded"), &padded.into_data(), &expected);
            case.assert_close(&format!("state {i}, packed"), &packed.reshape([-1, d]).into_data(), &expected);
        }
        let expected = case.golden.float::<2>(&format!("hidden_states.{n_layers}"), &device);
        let lengths = case.lengths();
        for (row, (start, len)) in Packing::new(&lengths[..]).starts().zip(lengths).enumerate() {
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
    for (family, prefix) in FAMILIES {
        let case = Case::of_tokens(family);
        let whole = case.open().load_encoder(&mut ParamInit::new(&device, 0)).unwrap().1;
        let bare = |tensors: NamedTensors| -> NamedTensors {
            let bare = |name: String| name.strip_prefix(prefix).map_or(name.clone(), str::to_string);
            tensors.into_iter().map(|(name, data)| (bare(name), data)).collect()
        };
        let file = case.folder.path().join("model.safetensors");
        write_tensors(&file, &bare(case.tensors()), &[]).unwrap();

        let architecture = Architecture::SequenceClassification;
        let load = |new: &[&str]| {
            let checkpoint = case.open();
            let config = checkpoint.encoder(architecture);
            let model =
                sequences(checkpoint.config.family, &config, &mut ParamInit::new(&device, 3).deferred());
            checkpoint.load_into(model, architecture, new)
        };
        let message = load(&["bert.pooler.*"]).unwrap_err().to_string();
        let named = ["classifier.", "pre_classifier.", "logits_proj.", "sequence_summary."];
        let named = named.iter().any(|name| message.contains(&format!("is `{name}")));
        assert!(named, "{message}");
        assert!(message.contains("for the parameter `head."), "{message}");
        let (model, report) = load(&["head.*", "bert.pooler.*"]).unwrap();
        let of_head = ["classifier", "pooler", "logits_proj", "sequence_summary"];
        let is_of_head = |name: &String| of_head.iter().any(|part| name.contains(part));
        let names = report.missing.iter().all(is_of_head);
        assert!(names && report.missing.len() >= 2, "{report:?}");
        // ModernBERT's has the same names as other heads, and a bias of its own, if any.
        assert!(!report.unexpected.is_empty() || prefix == "model.", "the masked-LM head");
        let mut loaded = weights::collect(&model.bert);
        loaded.retain(|name, _| !name.starts_with("pooler."));
        assert_eq!(loaded, weights::collect(&whole), "{family}");
    }
}

/// The folder of a whole T5 is read without the decoder, as `T5EncoderModel` does.
#[test]
fn the_encoder_of_a_whole_t5_is_read_alone() {
    let device = Device::flex();
    for (name, family) in [("t5", Family::T5), ("t5_gated", Family::T5), ("mt5", Family::MT5)] {
        let folder = fixture("seq2seq_families").join(name);
        let golden = Golden::open(&folder);
        let checkpoint = PretrainedFolder::open(&folder).unwrap();
        assert_eq!(checkpoint.config.family, family);
        let (_, bert, report) = checkpoint.load_encoder(&mut ParamInit::new(&device, 0)).unwrap();
        let others = |name: &String| name.starts_with("decoder.") || name == "lm_head.weight";
        assert!(report.missing.is_empty() && report.unexpected.iter().all(others), "{report:?}");
        let ids: Vec<i32> = golden.data("source").iter::<i32>().collect();
        let lengths: Vec<usize> =
            golden.data("source_lengths").iter::<i64>().map(|len| len as usize).collect();
        let states = bert.forward(BertInput::packed(&ids, &lengths, &device)).last_hidden_state;
        let error = relative_error(&states.squeeze_dim::<2>(0).into_data(), &golden.data("encoder"));
        assert!(error <= TOLERANCE, "{name}: states are off by {error:e} of their scale");
    }
}

/// What transformers has no class for is refused before it is trained.
#[test]
fn a_head_that_the_family_has_no_class_for_is_refused() {
    let encoder = Family::T5.encoder(BertConfig::new(31, 1, 16));
    SaveConfig::new(Architecture::TokenClassification).with_family(Family::T5).check(&encoder).unwrap();
    let save = SaveConfig::new(Architecture::SequenceClassification).with_family(Family::T5);
    let message = save.check(&encoder).unwrap_err().to_string();
    let expected = "`family` is \"t5\", expected another one: of T5 there are only T5EncoderModel and \
                    T5ForTokenClassification in transformers, so such a model cannot be saved";
    assert!(message.ends_with(expected), "{message}");
}

/// That a checkpoint in half precision that is loaded and saved is the same file.
fn keeps_bits<M: HasBackbone>(
    case: &Case,
    architecture: Architecture,
    init: impl Fn(&BertConfig, &mut ParamInit) -> M,
) {
    let checkpoint = case.open();
    let loaded = checkpoint.config.family;
    let config = checkpoint.encoder(architecture);
    let model = init(&config, &mut ParamInit::new(&Device::flex(), 0).deferred());
    let (model, _) = checkpoint.load_into(model, architecture, &[]).unwrap();
    let save = SaveConfig::new(architecture).with_family(loaded).with_dtype(FloatType::Bf16);
    let file: PathBuf = case.folder.path().join("model.safetensors");
    save_pretrained(case.folder.path(), &model, &config, &save).unwrap();
    let half = fs::read(&file).unwrap();
    let checkpoint = case.open();
    let save = SaveConfig::from(&checkpoint.config);
    let (model, report) = checkpoint.load_into(model, architecture, &[]).unwrap();
    assert_eq!(report, LoadReport::default());
    save_pretrained(case.folder.path(), &model, &config, &save).unwrap();
    assert_eq!(fs::read(&file).unwrap(), half, "{}", case.name);
}

#[test]
fn half_precision_checkpoints_keep_their_bits() {
    for (family, _) in FAMILIES {
        match heads(family).contains(&"mlm") {
            true => keeps_bits(&Case::new(family, "mlm"), Architecture::MaskedLm, masked_lm),
            false => {
                let case = Case::new(family, "sequence");
                let family = case.open().config.family;
                keeps_bits(&case, Architecture::SequenceClassification, |config, init| {
                    sequences(family, config, init)
                });
            }
        }
    }
}
