//! Models of integers: rounded, saved, read by an embedder, refused where floats are needed.

use burn::tensor::Device;
use cloze_model::ParamInit;
use cloze_model::bert::BertConfig;
use cloze_model::huggingface::{
    Architecture, ConvertConfig, PretrainedFolder, ReducedFolder, SaveConfig, convert, save_pretrained,
    tensors_of,
};
use cloze_trainer::embed::{EmbedConfig, Embedder};
use cloze_trainer::quantization::{QuantizeConfig, QuantizeReport, Ranges, WeightFormat, quantize};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const FORMATS: [WeightFormat; 3] = [WeightFormat::Int8, WeightFormat::Q8_0, WeightFormat::Q4_0];

/// A random encoder with a vocabulary of letters. `d_ff` is no multiple of 32 in one of two layers' maps if it is not here.
fn model(d_ff: usize) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let letters = ('a'..='z').map(String::from).chain(('a'..='z').map(|letter| format!("##{letter}")));
    let pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].map(String::from).into_iter().chain(letters);
    let pieces: Vec<String> = pieces.collect();
    let mut config = BertConfig::new(pieces.len(), 2, 64);
    (config.d_ff, config.n_heads, config.max_positions) = (d_ff, 4, 40);
    let model = config.init(&mut ParamInit::new(&Device::flex(), 3).with_std(0.1));
    save_pretrained(folder.path(), &model, &config, &SaveConfig::new(Architecture::PreTraining)).unwrap();
    fs::write(folder.path().join("vocab.txt"), pieces.join("\n")).unwrap();
    folder
}

fn texts() -> Vec<String> {
    let word = |i: usize| {
        (0..1 + i % 5).map(|j| char::from(b'a' + ((i * 7 + j * 3) % 26) as u8)).collect::<String>()
    };
    (0..40).map(|i| (0..1 + i % 9).map(|j| word(i * 11 + j)).collect::<Vec<_>>().join(" ")).collect()
}

/// The folder with integers.
fn quantized(from: &Path, config: &QuantizeConfig) -> (tempfile::TempDir, QuantizeReport) {
    let to = tempfile::tempdir().unwrap();
    let texts = texts().into_iter().map(Ok);
    let report = quantize(from, to.path(), config, texts, &Device::flex(), |_| ()).unwrap();
    fs::copy(from.join("vocab.txt"), to.path().join("vocab.txt")).unwrap();
    (to, report)
}

fn embed(folder: &Path) -> Vec<f32> {
    Embedder::load(folder, EmbedConfig::default(), &Device::flex()).unwrap().embed(&texts()).unwrap().values
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

#[test]
fn a_model_of_integers_answers_nearly_as_before() {
    let from = model(96);
    let before = embed(from.path());
    for format in FORMATS {
        let mut configs = vec![QuantizeConfig::new(format)];
        let with = |change: fn(&mut QuantizeConfig)| {
            let mut config = QuantizeConfig::new(format);
            change(&mut config);
            config
        };
        configs.push(with(|config| config.tables = true));
        configs.push(with(|config| config.ranges = Some(Ranges::MinMax)));
        configs.push(with(|config| config.ranges = Some(Ranges::Percentile(99.99))));
        configs.push(with(|config| config.ranges = Some(Ranges::Mse)));
        configs.push(with(|config| (config.smooth, config.ranges) = (Some(0.5), Some(Ranges::MinMax))));
        configs.push(with(|config| (config.gptq, config.smooth) = (true, Some(0.3))));
        for config in configs {
            let (to, report) = quantized(from.path(), &config);
            assert_eq!(report.saved.quantized.len(), 2 * 6 + usize::from(config.tables), "{config:?}");
            assert!(report.uneven.is_empty() && report.saved.kept.is_empty());
            assert_eq!(report.n_texts, if config.needs_texts() { 40 } else { 0 });
            let after = embed(to.path());
            let floor = if format == WeightFormat::Q4_0 { 0.98 } else { 0.999 };
            let cosine = cosine(&before, &after);
            assert!(cosine > floor && before != after, "{config:?}: {cosine}");
        }
    }
}

#[test]
fn no_answer_depends_on_the_rest_of_its_batch() {
    let from = model(96);
    for format in FORMATS {
        let mut config = QuantizeConfig::new(format);
        config.tables = true;
        let (to, _) = quantized(from.path(), &config);
        let embedder = Embedder::load(to.path(), EmbedConfig::default(), &Device::flex()).unwrap();
        let together = embedder.embed(&texts()).unwrap().values;
        for (text, together) in texts().iter().zip(together.chunks_exact(64)) {
            assert_eq!(embedder.embed(&[text]).unwrap().values, together, "{format:?}: {text}");
        }
    }
}

#[test]
fn folders_become_smaller_and_floats_again() {
    let from = model(96);
    let size = |folder: &Path| fs::metadata(folder.join("model.safetensors")).unwrap().len();
    for (format, share) in [(WeightFormat::Int8, 0.5), (WeightFormat::Q8_0, 0.4), (WeightFormat::Q4_0, 0.3)] {
        let mut config = QuantizeConfig::new(format);
        config.tables = true;
        let (to, report) = quantized(from.path(), &config);
        assert!(
            (size(to.path()) as f64) < share * size(from.path()) as f64,
            "{format:?}: {}",
            size(to.path())
        );
        assert!(report.saved.n_bytes as u64 <= size(to.path()));
        let read = tensors_of(to.path()).unwrap();
        assert_eq!((read.quantized.len(), read.others.len()), (13, 0));
        // As floats they are the same numbers, and may be trained.
        let floats = tempfile::tempdir().unwrap();
        convert(to.path(), floats.path(), &ConvertConfig::default()).unwrap();
        let config: Value =
            serde_json::from_str(&fs::read_to_string(floats.path().join("config.json")).unwrap()).unwrap();
        assert_eq!(config.get("quantization_config"), None);
        for (name, tensor) in &read.quantized {
            let found = &tensors_of(floats.path()).unwrap().floats[name];
            assert_eq!(found.iter::<f32>().collect::<Vec<_>>(), tensor.matrix.dequantized(), "{name}");
        }
        // A model with all of its parameters in floats is the same, up to the rounding of tokens.
        fs::copy(from.path().join("vocab.txt"), floats.path().join("vocab.txt")).unwrap();
        assert!(cosine(&embed(floats.path()), &embed(to.path())) > 0.9999);
    }
}

#[test]
fn an_uneven_map_stays_in_floats() {
    let from = model(40);
    let (to, report) = quantized(from.path(), &QuantizeConfig::new(WeightFormat::Q4_0));
    assert_eq!(report.uneven, [0, 1].map(|layer| format!("encoder.layers.{layer}.feed_forward.down")));
    assert!(cosine(&embed(from.path()), &embed(to.path())) > 0.98);
    let (_, report) = quantized(from.path(), &QuantizeConfig::new(WeightFormat::Int8));
    assert!(report.uneven.is_empty());
}

#[test]
fn what_cannot_be_done_is_told() {
    let from = model(96);
    let device = Device::flex();
    let failed = |from: &Path, config: &QuantizeConfig, texts: &[&str]| {
        let to = tempfile::tempdir().unwrap();
        let texts = texts.iter().map(|text| Ok(text.to_string()));
        let error = quantize(from, to.path(), config, texts, &device, |_| ()).unwrap_err();
        assert_eq!(fs::read_dir(to.path()).unwrap().count(), 0, "nothing is half-written");
        let source =
            std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
        format!("{error}{source}")
    };
    let mut gptq = QuantizeConfig::new(WeightFormat::Q4_0);
    gptq.gptq = true;
    let error = failed(from.path(), &gptq, &[]);
    assert!(error.contains("`calibrate` is no text") || error.contains("calibrate"), "{error}");
    let mut smooth = QuantizeConfig::new(WeightFormat::Int8);
    smooth.smooth = Some(1.5);
    assert!(failed(from.path(), &smooth, &["a"]).contains("0 to 1"));

    let (to, _) = quantized(from.path(), &QuantizeConfig::new(WeightFormat::Int8));
    let integers = "the weights are integers, which can be neither trained nor changed";
    assert!(failed(to.path(), &QuantizeConfig::new(WeightFormat::Q4_0), &[]).contains(integers));
    assert!(ReducedFolder::open(to.path()).unwrap_err().to_string().contains(integers));

    // A file that says what is not followed.
    let path = to.path().join("config.json");
    let good: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    type Change = fn(&mut Value);
    let changes: [(Change, &str); 8] = [
        (|config| config["quant_method"] = "gptq".into(), "`quant_method` is \"gptq\""),
        (|config| config["kv_cache_scheme"] = json!({"num_bits": 8}), "`kv_cache_scheme` is"),
        (|config| config["config_groups"] = json!({}), "has no `config_groups`"),
        (
            |config| config["config_groups"]["group_0"]["weights"]["num_bits"] = 3.into(),
            "`config_groups.group_0.weights.num_bits` is 3",
        ),
        (
            |config| config["config_groups"]["group_0"]["weights"]["symmetric"] = false.into(),
            "`config_groups.group_0.weights.symmetric` is false",
        ),
        (
            |config| config["config_groups"]["group_0"]["output_activations"] = json!({"num_bits": 8}),
            "`config_groups.group_0.output_activations` is",
        ),
        (
            |config| config["config_groups"]["group_0"]["input_activations"]["num_bits"] = 4.into(),
            "`config_groups.group_0.input_activations.num_bits` is 4",
        ),
        (|config| config["config_groups"]["group_0"]["targets"] = json!(["re:("]), "`re:(`"),
    ];
    for (change, expected) in changes {
        let mut config = good.clone();
        change(&mut config["quantization_config"]);
        fs::write(&path, config.to_string()).unwrap();
        let error = PretrainedFolder::open(to.path()).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("config.json"), "{error}");
    }
    let mut config = good.clone();
    config["quantization_config"]["config_groups"]["group_0"]["weights"]["strategy"] = "tensor".into();
    config["quantization_config"]["config_groups"]["group_0"]["weights"]["group_size"] = Value::Null;
    fs::write(&path, config.to_string()).unwrap();
    let error = PretrainedFolder::open(to.path()).unwrap_err().to_string();
    assert!(error.contains("`weight_scale` has shape") && error.contains("expected [1]"), "{error}");
}
