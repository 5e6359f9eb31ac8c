//! Marian's, BART's and T5's encoder–decoders against transformers: `tests/fixtures/seq2seq_families/export.py`.
//!
//! What is saved here lies in the folder `seq2seq_families` of cargo's folder for integration tests' files, where
//! `tests/interop/seq2seq_families.py` loads it in transformers.

use crate::golden::{Golden, fixture, gradients_of, relative_error};
use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Int, Tensor, TensorData};
use cloze_model::blocks::Activation;
use cloze_model::generate::NextToken;
use cloze_model::huggingface::{
    ConvertConfig, FloatType, LoadReport, convert, load_published, read_published, read_tensors,
    save_published, write_tensors,
};
use cloze_model::ops::cross_entropy;
use cloze_model::seq2seq::{
    DecodeOptions, EncoderDecoder, OutputBias, PositionsConfig, SpecialTokens, TiedEmbeddings, Transformer,
    TransformerConfig,
};
use cloze_model::{ParamInit, Sequences, weights};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// Largest error allowed, relative to the largest absolute value of the tensor.
const TOLERANCE: f32 = 1e-4;
const CASES: [&str; 9] = [
    "marian",
    "marian_separate",
    "marian_untied",
    "bart",
    "bart_scaled",
    "t5",
    "t5_gated",
    "mt5",
    "bart_uneven",
];

struct Case {
    name: &'static str,
    folder: PathBuf,
    golden: Golden,
}

impl Case {
    fn all() -> impl Iterator<Item = Self> {
        CASES.into_iter().map(Self::new)
    }

    fn new(name: &'static str) -> Self {
        let folder = fixture("seq2seq_families").join(name);
        Self { name, golden: Golden::open(&folder), folder }
    }

    fn load(&self, device: &Device) -> (TransformerConfig, Transformer) {
        let (config, model, report) =
            load_published::<TransformerConfig>(&self.folder, &mut ParamInit::new(device, 0)).unwrap();
        assert_eq!(report, LoadReport::default(), "{}", self.name);
        (config, model)
    }

    fn ints(&self, name: &str) -> Vec<i32> {
        self.golden.data(name).iter::<i32>().collect()
    }

    fn sequences(&self, side: &str) -> Sequences {
        let (ids, mut sequences, mut start) = (self.ints(side), Sequences::new(), 0);
        for len in self.ints(&format!("{side}_lengths")) {
            sequences.push(&ids[start..start + len as usize]);
            start += len as usize;
        }
        sequences
    }

    fn assert_close(&self, what: &str, found: &TensorData, expected: &TensorData) {
        let error = relative_error(found, expected);
        assert!(error <= TOLERANCE, "{}: {what} is off by {error:e} of its scale", self.name);
    }
}

/// Fused and packed; composed and padded.
fn devices() -> [Device; 2] {
    [Device::flex().autodiff(), Device::flex().autodiff().gradient_checkpointing()]
}

#[test]
fn states_logits_loss_and_gradients_equal_transformers() {
    for (case, device) in Case::all().flat_map(|case| devices().map(|device| (Case::new(case.name), device)))
    {
        let (config, model) = case.load(&device);
        // Dropout is for training; the golden numbers are those without.
        let plain = config.clone().with_dropout(0.0).with_inner_dropouts(0.0, 0.0);
        let model = weights::replace(plain.init(&mut ParamInit::new(&device, 0)), weights::collect(&model));
        let (source, target) = (case.sequences("source"), case.sequences("target"));
        let states = model.encode(&source, &device);
        case.assert_close("the encoder's states", &states.into_data(), &case.golden.data("encoder"));
        let logits = model.logits(&source, &target, &device);
        case.assert_close("logits", &logits.clone().into_data(), &case.golden.data("logits"));
        let labels = Tensor::<1, Int>::from_data(case.ints("labels").as_slice(), &device);
        let loss = cross_entropy(logits, labels).mean();
        case.assert_close("the loss", &loss.clone().into_data(), &case.golden.data("loss"));

        // The gradients take the parameters' places, so that saving names and transposes them.
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        let as_model = weights::replace(model.valid(), gradients_of(&model, grads));
        let folder = tempfile::tempdir().unwrap();
        save_published(folder.path(), &as_model, &config, FloatType::F32).unwrap();
        let found = read_tensors(&folder.path().join("model.safetensors")).unwrap();
        let names = case.golden.names();
        let names: Vec<&str> = names.iter().filter_map(|name| name.strip_prefix("grad.")).collect();
        // All but the bias of the output layer, which is none of PyTorch's parameters. T5 has none.
        let biases = usize::from(config.output_bias == OutputBias::Fixed);
        // The two stacks' names of the one table, which transformers 5 asks for if the output projection is not tied. T5's always is.
        let is_t5 = matches!(config.positions, PositionsConfig::RelativeBias { .. });
        let copies = if config.tied == TiedEmbeddings::SourceTarget && !is_t5 { 2 } else { 0 };
        assert_eq!(names.len() + biases + copies, found.len(), "{}", case.name);
        for name in names {
            let expected = case.golden.data(&format!("grad.{name}"));
            case.assert_close(&format!("gradient of {name}"), &found[name], &expected);
        }
    }
}

#[test]
fn decoding_step_by_step_gives_the_same_logits() {
    for case in Case::all() {
        for device in devices().map(Device::inner) {
            let (_, model) = case.load(&device);
            let (source, target) = (case.sequences("source"), case.sequences("target"));
            let expected = case.golden.float::<2>("logits", &device);
            let mut state = model.begin(&source, DecodeOptions::default(), &device);
            // Rows whose targets are longer than the step; the others have left.
            let mut rows: Vec<usize> = (0..target.len()).collect();
            for step in 0..target.longest() {
                let left: Vec<usize> =
                    (0..rows.len()).filter(|row| target.lengths()[rows[*row]] > step).collect();
                model.select(&mut state, &left);
                rows = left.into_iter().map(|row| rows[row]).collect();
                let starts: Vec<usize> = target.packing().starts().collect();
                let places: Vec<usize> = rows.iter().map(|row| starts[*row] + step).collect();
                let tokens: Vec<i32> = places.iter().map(|place| target.ids()[*place]).collect();
                let logits = model.step(&tokens, &mut state).logits;
                let places: Vec<i32> = places.into_iter().map(|place| place as i32).collect();
                let places = Tensor::<1, Int>::from_data(places.as_slice(), &device);
                let expected = expected.clone().select(0, places);
                case.assert_close(&format!("step {step}"), &logits.into_data(), &expected.into_data());
            }
        }
    }
}

#[test]
fn configurations_say_what_the_files_say() {
    let config = |name| read_published::<TransformerConfig>(&Case::new(name).folder).unwrap();
    let marian = config("marian");
    assert_eq!((marian.n_encoder_layers, marian.n_decoder_layers, marian.tied), (1, 2, TiedEmbeddings::All));
    assert_eq!(marian.output_bias, OutputBias::Fixed);
    let mut tokens = SpecialTokens::new(30, 0).with_decoder_start(30);
    (tokens.forced_eos, tokens.suppressed) = (Some(0), vec![30]);
    assert_eq!(marian.tokens, tokens);
    assert_eq!(config("marian_separate").tied, TiedEmbeddings::TargetOutput);
    assert_eq!(config("marian_untied").tied, TiedEmbeddings::SourceTarget);
    let bart = config("bart");
    assert_eq!(bart.positions, PositionsConfig::Learned { offset: 2 });
    assert_eq!((bart.attention_dropout, bart.activation_dropout), (0.3, 0.2));
    assert_eq!((bart.tokens.bos, bart.tokens.forced_bos), (Some(0), Some(0)));
    assert_eq!(config("bart_scaled").tokens.forced_bos, None);
    let uneven = config("bart_uneven");
    assert_eq!((uneven.n_heads, uneven.n_decoder_heads, uneven.d_decoder_ff), (4, Some(2), Some(12)));
    assert_eq!((bart.n_decoder_heads, bart.d_decoder_ff), (None, None));
    let t5 = config("t5");
    assert_eq!(t5.positions, PositionsConfig::RelativeBias { n_buckets: 8, max_distance: 7 });
    assert_eq!((t5.n_encoder_layers, t5.n_decoder_layers, t5.d_head), (3, 2, Some(6)));
    assert_eq!(
        (t5.tokens, t5.gated, t5.activation),
        (SpecialTokens::new(0, 1).with_decoder_start(0), false, Activation::Relu)
    );
    assert_eq!((t5.tied, t5.scaled_output), (TiedEmbeddings::All, true));
    let gated = config("t5_gated");
    assert_eq!((gated.gated, gated.activation), (true, Activation::GeluTanh));
    assert_eq!((gated.tied, gated.scaled_output), (TiedEmbeddings::SourceTarget, false));
    assert_eq!([gated.dropout, gated.attention_dropout, gated.activation_dropout], [0.2; 3]);
    assert_eq!(config("mt5").tied, TiedEmbeddings::All);
}

#[test]
fn what_is_saved_is_what_was_loaded() {
    for case in Case::all() {
        let (config, model) = case.load(&Device::flex());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("seq2seq_families").join(case.name);
        let report = save_published(&folder, &model, &config, FloatType::F32).unwrap();
        assert!(report.unknown.is_empty(), "{}: {report:?}", case.name);
        let tensors = |folder: &Path| read_tensors(&folder.join("model.safetensors")).unwrap();
        let (mut found, expected) = (tensors(&folder), tensors(&case.folder));
        // What is saved under both of its names, for transformers 5.
        for copy in ["model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"] {
            if !expected.contains_key(copy)
                && let Some(copied) = found.remove(copy)
            {
                assert!(copied == expected["model.shared.weight"], "{}: {copy}", case.name);
            }
        }
        assert!(found == expected, "{}", case.name);
        assert_eq!(read_published::<TransformerConfig>(&folder).unwrap(), config, "{}", case.name);
        let json = |folder: &Path, file| -> Value {
            serde_json::from_str(&fs::read_to_string(folder.join(file)).unwrap()).unwrap()
        };
        for file in ["config.json", "generation_config.json"] {
            let (found, expected) = (json(&folder, file), json(&case.folder, file));
            for (key, value) in found.as_object().unwrap().iter().filter(|(_, value)| !value.is_null()) {
                // Ours alone, or said elsewhere by transformers of today.
                let old = ["torch_dtype", "static_position_embeddings", "tie_word_embeddings"];
                // An mT5 is saved as the T5 that it is.
                let class = case.name == "mt5" && ["model_type", "architectures"].contains(&key.as_str());
                if old.contains(&key.as_str()) || expected.get(key).is_none() || class {
                    continue;
                }
                let value =
                    if key == "activation_function" && value == "silu" { &json!("swish") } else { value };
                assert_eq!(Some(value), expected.get(key), "{}, {file}: {key}", case.name);
            }
        }
    }
}

#[test]
fn what_is_converted_is_what_was_loaded() {
    for case in Case::all() {
        let (config, model) = case.load(&Device::flex());
        let to = tempfile::tempdir().unwrap();
        convert(&case.folder, to.path(), &ConvertConfig::default()).unwrap();
        // The program copies it: it is no part of the model.
        fs::copy(case.folder.join("generation_config.json"), to.path().join("generation_config.json"))
            .unwrap();
        let init = &mut ParamInit::new(&Device::flex(), 1);
        let (read, loaded, report) = load_published::<TransformerConfig>(to.path(), init).unwrap();
        assert_eq!((read, report), (config, LoadReport::default()), "{}", case.name);
        assert_eq!(weights::collect(&loaded), weights::collect(&model), "{}", case.name);
    }
}

#[test]
fn a_model_that_no_class_computes_has_a_folder_of_its_own() {
    let device = Device::flex();
    for config in [
        TransformerConfig::new(40, 1, 16).with_norm(cloze_model::blocks::NormPlacement::Pre),
        TransformerConfig::new(40, 1, 16).with_source_vocab(30).with_output_bias(OutputBias::Learned),
        TransformerConfig::new(40, 1, 16)
            .with_tied(TiedEmbeddings::None)
            .with_positions(PositionsConfig::Learned { offset: 0 }),
        // T5's classes have one number of heads.
        TransformerConfig::t5(40, 1, 16).with_heads(2).with_decoder(4, 24),
        TransformerConfig::new(40, 1, 16)
            .with_heads(2)
            .with_decoder(4, 24)
            .with_positions(PositionsConfig::Rotary { theta: 100.0 }),
    ] {
        let model = config.init(&mut ParamInit::new(&device, 3));
        let folder = tempfile::tempdir().unwrap();
        let report = save_published(folder.path(), &model, &config, FloatType::F32).unwrap();
        let text = fs::read_to_string(folder.path().join("config.json")).unwrap();
        assert!(text.contains("\"cloze-transformer\""), "{text}");
        let (read, loaded, found) =
            load_published::<TransformerConfig>(folder.path(), &mut ParamInit::new(&device, 4)).unwrap();
        assert_eq!((read, found), (config, LoadReport::default()));
        assert_eq!(weights::collect(&loaded), weights::collect(&model));
        drop(report);
    }
}

#[test]
fn a_preset_is_saved_as_marians() {
    let device = Device::flex();
    let config = TransformerConfig::new(40, 1, 16);
    let folder = tempfile::tempdir().unwrap();
    let model = config.init(&mut ParamInit::new(&device, 3));
    save_published(folder.path(), &model, &config, FloatType::F32).unwrap();
    let (read, loaded, report) =
        load_published::<TransformerConfig>(folder.path(), &mut ParamInit::new(&device, 4)).unwrap();
    // The class has a bias, which is zero where the file has none, and says nothing of how weights were drawn.
    assert_eq!(report.missing, ["final_logits_bias"]);
    let source: Sequences = [&[5, 6, 2][..]].into_iter().collect();
    let logits = |model: &Transformer| model.logits(&source, &source, &device).into_data();
    assert_eq!(logits(&loaded), logits(&model));
    let expected = config.with_initial(read.initial).with_output_bias(OutputBias::Fixed);
    assert_eq!(read, expected);
}

/// A copy of a case's folder, with a key of a file replaced.
fn changed(case: &str, file: &str, key: &str, value: Value) -> tempfile::TempDir {
    let (from, to) = (fixture("seq2seq_families").join(case), tempfile::tempdir().unwrap());
    for name in ["config.json", "generation_config.json", "model.safetensors"] {
        fs::copy(from.join(name), to.path().join(name)).unwrap();
    }
    let path = to.path().join(file);
    let mut json: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    json[key] = value;
    fs::write(&path, json.to_string()).unwrap();
    to
}

#[test]
fn what_would_be_computed_otherwise_is_refused() {
    const CONFIG: &str = "config.json";
    const GENERATION: &str = "generation_config.json";
    for (case, file, key, value, expected) in [
        ("marian", CONFIG, "normalize_before", json!(true), "`normalize_before` is true, expected false"),
        ("marian", CONFIG, "static_position_embeddings", json!(false), "is false, expected true"),
        (
            "bart",
            CONFIG,
            "normalize_embedding",
            json!(false),
            "`normalize_embedding` is false, expected true",
        ),
        ("bart", CONFIG, "decoder_layerdrop", json!(0.1), "`decoder_layerdrop` is 0.1, expected 0"),
        (
            "bart",
            CONFIG,
            "activation_function",
            json!("prelu"),
            "`activation_function` is \"prelu\", expected \"gelu\"",
        ),
        ("bart", CONFIG, "decoder_ffn_dim", json!(0), "`decoder_ffn_dim` is 0, expected at least 1"),
        ("bart", CONFIG, "decoder_ffn_dim", json!(12), "fc1.weight` has shape [20, 16]"),
        (
            "bart",
            CONFIG,
            "decoder_attention_heads",
            json!(3),
            "`decoder_attention_heads` is 3, expected a divisor of `d_model`, which is 16",
        ),
        ("bart", CONFIG, "is_encoder_decoder", json!(false), "`is_encoder_decoder` is false, expected true"),
        ("bart", CONFIG, "tie_encoder_decoder", json!(true), "`tie_encoder_decoder` is true, expected false"),
        ("bart", CONFIG, "dropout", json!(1.5), "`dropout` is 1.5, expected a number, 0 or more and below 1"),
        ("bart", CONFIG, "d_model", json!("x"), "`d_model` is \"x\", expected a whole number"),
        (
            "bart",
            CONFIG,
            "d_model",
            json!(18),
            "`encoder_attention_heads` is 4, expected a divisor of `d_model`, which is 18",
        ),
        ("bart", CONFIG, "vocab_size", json!(0), "`vocab_size` is 0, expected at least 1"),
        ("bart", CONFIG, "bos_token_id", json!(31), "is 31, expected below `vocab_size`, which is 31"),
        ("marian", CONFIG, "decoder_vocab_size", json!(12), "`decoder_vocab_size` is 12, expected 31"),
        (
            "marian",
            CONFIG,
            "model_type",
            json!("mbart"),
            "`model_type` is \"mbart\", expected \"cloze-transformer\"",
        ),
        ("marian", GENERATION, "bad_words_ids", json!([1, 2]), "is [1,2], expected a list of lists of ids"),
        ("marian", GENERATION, "pad_token_id", json!(5), "is 5, expected 30, as in config.json"),
        ("marian", CONFIG, "d_model", json!(12), "has shape [31, 16], the configuration asks for [31, 12]"),
        ("t5", CONFIG, "is_encoder_decoder", json!(false), "`is_encoder_decoder` is false, expected true"),
        ("t5", CONFIG, "tie_encoder_decoder", json!(true), "`tie_encoder_decoder` is true, expected false"),
        ("t5", CONFIG, "d_kv", json!(0), "`d_kv` is 0, expected at least 1"),
        (
            "t5",
            CONFIG,
            "dropout_rate",
            json!(1),
            "`dropout_rate` is 1, expected a number, 0 or more and below 1",
        ),
        ("t5", CONFIG, "dense_act_fn", json!("prelu"), "`dense_act_fn` is \"prelu\", expected \"gelu\""),
        (
            "t5",
            CONFIG,
            "feed_forward_proj",
            json!("half-relu"),
            "`feed_forward_proj` is \"half-relu\", expected",
        ),
        (
            "t5",
            CONFIG,
            "relative_attention_max_distance",
            json!(4),
            "`relative_attention_max_distance` is 4, expected more than half of `relative_attention_num_buckets`, \
             which is 4",
        ),
        (
            "t5",
            CONFIG,
            "layer_norm_epsilon",
            json!(-1),
            "`layer_norm_epsilon` is -1, expected a number of 0 or more",
        ),
        ("t5", CONFIG, "d_kv", json!(5), "has shape [18, 16], the configuration asks for [15, 16]"),
        (
            "t5",
            CONFIG,
            "is_gated_act",
            json!(true),
            "10 tensors are missing, the first is `decoder.block.0.layer.2.DenseReluDense.wi_0.weight`",
        ),
        (
            "marian",
            CONFIG,
            "decoder_layers",
            json!(3),
            "tensors are missing, the first is `model.decoder.layers.2.",
        ),
    ] {
        let folder = changed(case, file, key, value);
        let error =
            load_published::<TransformerConfig>(folder.path(), &mut ParamInit::new(&Device::flex(), 0));
        let error = error.unwrap_err().to_string();
        assert!(error.contains(expected), "{case}, {key}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn old_files_hold_sinusoids_which_are_looked_at() {
    let load =
        |folder: &Path| load_published::<TransformerConfig>(folder, &mut ParamInit::new(&Device::flex(), 0));
    let folder = changed("marian", "config.json", "static_position_embeddings", json!(true));
    let file = folder.path().join("model.safetensors");
    let mut tensors = read_tensors(&file).unwrap();
    // The first rows of transformers' table: sines, then cosines.
    let mut values = vec![0f32; 14 * 16];
    for (place, value) in values.iter_mut().enumerate() {
        let (pos, feature) = (place / 16, place % 16);
        let angle = pos as f64 / 10_000f64.powf((2 * (feature % 8)) as f64 / 16.0);
        *value = (if feature < 8 { angle.sin() } else { angle.cos() }) as f32;
    }
    let name = "model.decoder.embed_positions.weight";
    tensors.insert(name.into(), TensorData::new(values.clone(), [14, 16]));
    write_tensors(&file, &tensors, &[]).unwrap();
    assert_eq!(load(folder.path()).unwrap().2, LoadReport::default());
    values[20] += 0.5;
    tensors.insert(name.into(), TensorData::new(values, [14, 16]));
    write_tensors(&file, &tensors, &[]).unwrap();
    let error = load(folder.path()).unwrap_err().to_string();
    assert!(
        error.ends_with(
            "tensor `model.decoder.embed_positions.weight` differs from what the model computes instead"
        ),
        "{error}"
    );
}
