//! I-BERT against transformers in double precision (`tests/fixtures/ibert/export.py`), and folders of integers alone.

use crate::golden::fixture;
use burn::tensor::{Device, Int, Tensor, TensorData};
use cloze_model::bert::{BertConfig, BertInput};
use cloze_model::blocks::{Activation, EncoderTrace};
use cloze_model::huggingface::{
    Architecture, ConvertConfig, Family, PretrainedFolder, SaveConfig, check_floats, convert, save_pretrained,
};
use cloze_model::ops::integer_only::{Dyadic, IntegerGelu, IntegerLayerNorm, IntegerSoftmax, saturated};
use cloze_model::tasks::{BertForSequenceClassification, SequenceHead};
use cloze_model::{HasBackbone, ParamInit};
use cloze_trainer::embed::{EmbedConfig, Embedder};
use cloze_trainer::quantization::{QuantizeConfig, Ranges, WeightFormat, quantize};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

fn golden(file: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(fixture("ibert").join(file)).unwrap()).unwrap()
}

fn read<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

#[test]
fn the_functions_have_the_integers_of_transformers() {
    let golden = golden("arithmetic.json");
    let cases = |name: &str| golden[name].as_array().unwrap().clone();
    let number = |value: &Value| value.as_f64().unwrap();
    let integers = |value: &Value| read::<Vec<i64>>(value);
    for case in cases("dyadic") {
        let dyadic = Dyadic::new(number(&case["source"]) / number(&case["target"])).unwrap();
        let bits = case["bits"].as_u64().unwrap() as u32;
        let found: Vec<i64> =
            integers(&case["q"]).into_iter().map(|q| saturated(dyadic.apply(q), bits)).collect();
        assert_eq!(found, integers(&case["to"]));
    }
    for case in cases("gelu") {
        let scale = number(&case["scale"]);
        let gelu = IntegerGelu::new(scale);
        assert_eq!(IntegerGelu::output_scale(scale), number(&case["output_scale"]));
        let found: Vec<i64> = integers(&case["q"]).into_iter().map(|q| gelu.apply(q as i32)).collect();
        assert_eq!(found, integers(&case["to"]));
    }
    for case in cases("softmax") {
        let softmax = IntegerSoftmax::new(number(&case["scale"]), Some(number(&case["range"]))).unwrap();
        let scores: Vec<i32> = read(&case["q"]);
        let (mut found, mut memory) = (vec![0; scores.len()], vec![0; scores.len()]);
        softmax.apply(&scores, &mut found, &mut memory);
        assert_eq!(found, read::<Vec<i16>>(&case["to"]));
    }
    for case in cases("layer_norm") {
        let [gamma, beta, scales] =
            ["gamma", "beta", "output_scales"].map(|name| read::<Vec<f64>>(&case[name]));
        let norm = IntegerLayerNorm::new(&gamma, &beta, case["shift"].as_u64().unwrap() as u32);
        let n_shifted = norm.is_shifted().iter().filter(|is| **is).count();
        assert!(n_shifted + 2 >= gamma.len(), "{n_shifted} of {}", gamma.len());
        for (token, expected) in
            read::<Vec<Vec<i32>>>(&case["q"]).into_iter().zip(read::<Vec<Vec<i64>>>(&case["to"]))
        {
            let mut found = vec![0; token.len()];
            norm.apply(&token, &mut found);
            // What is far from 0 is added later.
            let kept = (0..found.len()).filter(|i| norm.is_shifted()[*i]);
            assert!(kept.into_iter().all(|i| found[i] == expected[i]));
        }
        for (gamma, scale) in gamma.iter().zip(scales) {
            assert_eq!(IntegerLayerNorm::output_scale(*gamma, beta.len()), scale);
        }
    }
}

/// The golden batch, packed and padded, and the lengths of its sequences.
fn batch() -> ([BertInput; 2], Vec<usize>) {
    let golden = golden("golden.json");
    let device = Device::flex();
    let ids: Vec<Vec<i32>> = read(&golden["input_ids"]);
    let mask: Vec<Vec<i32>> = read(&golden["attention_mask"]);
    let lengths: Vec<usize> = mask.iter().map(|row| row.iter().sum::<i32>() as usize).collect();
    let packed: Vec<i32> = ids.iter().zip(&lengths).flat_map(|(row, len)| row[..*len].to_vec()).collect();
    let shape = [ids.len(), ids[0].len()];
    let padded = Tensor::<2, Int>::from_data(TensorData::new(ids.concat(), shape), &device);
    let ignored: Vec<bool> = mask.concat().into_iter().map(|kept| kept == 0).collect();
    let padded =
        BertInput::new(padded).with_pad_mask(Tensor::from_data(TensorData::new(ignored, shape), &device));
    ([BertInput::packed(&packed, &lengths, &device), padded], lengths)
}

#[test]
fn a_model_of_transformers_has_its_integers_in_every_layer() {
    let golden = golden("golden.json");
    let ([packed, padded], lengths) = batch();
    let folder = fixture("ibert").join("model");
    let pretrained = PretrainedFolder::open(&folder).unwrap();
    assert_eq!(pretrained.config.family, Family::IBERT);
    let encoder = pretrained.encoder(Architecture::SequenceClassification);
    let init = &mut ParamInit::new(&Device::flex(), 0);
    let bert = encoder.init_encoder(&mut init.deferred());
    let head = SequenceHead::new(32, 3, 0.0, init).with_dense(Activation::Tanh, init);
    let model = BertForSequenceClassification::new(bert, head);
    let (model, report) = pretrained.load_into(model, Architecture::SequenceClassification, &[]).unwrap();
    assert!(report.missing.is_empty() && report.unexpected.is_empty(), "{report:?}");

    let scales: Vec<f64> = read(&golden["scales"]);
    let trace = EncoderTrace { hidden_states: true, ..EncoderTrace::default() };
    let output = model.bert.forward(packed.clone().with_trace(trace));
    assert_eq!(output.hidden_states.len(), 3);
    for ((states, scale), expected) in
        output.hidden_states.into_iter().zip(&scales).zip(read::<Vec<Vec<Vec<Vec<f32>>>>>(&golden["states"]))
    {
        let expected =
            expected.iter().zip(&lengths).flat_map(|(row, len)| row[..*len].concat()).collect::<Vec<_>>();
        // Scales have few bits: an integer times a scale is exact.
        let expected: Vec<f32> = expected.into_iter().map(|q| q * *scale as f32).collect();
        assert_eq!(states.into_data().try_into_vec::<f32>().unwrap(), expected);
    }
    let logits: Vec<Vec<f64>> = read(&golden["logits"]);
    // The head is one of floats, as in transformers.
    for input in [packed, padded] {
        let found = model.forward(input).into_data();
        for (found, expected) in found.iter::<f32>().zip(logits.concat()) {
            assert!((f64::from(found) - expected).abs() < 1e-5, "{found} {expected}");
        }
    }
    let error = check_floats(&folder).unwrap_err().to_string();
    assert!(error.contains("`quant_mode` is true, expected false"), "{error}");
    let floats = tempfile::tempdir().unwrap();
    convert(&folder, floats.path(), &ConvertConfig::default()).unwrap();
    check_floats(floats.path()).unwrap();
    PretrainedFolder::open(floats.path()).unwrap();
}

#[test]
fn without_quant_mode_it_is_roberta() {
    let folder = tempfile::tempdir().unwrap();
    let from = fixture("ibert").join("model");
    fs::copy(from.join("model.safetensors"), folder.path().join("model.safetensors")).unwrap();
    let config = fs::read_to_string(from.join("config.json")).unwrap();
    let load = |config: &str| {
        fs::write(folder.path().join("config.json"), config).unwrap();
        let pretrained = PretrainedFolder::open(folder.path()).map_err(|error| error.to_string())?;
        let loaded = pretrained.load_encoder(&mut ParamInit::new(&Device::flex(), 0)).unwrap();
        let ([packed, _], _) = batch();
        Ok::<_, String>((loaded.1.forward(packed).last_hidden_state.into_data(), loaded.2))
    };
    let (integers, _) = load(&config).unwrap();
    let (floats, report) = load(&config.replace("\"quant_mode\": true", "\"quant_mode\": false")).unwrap();
    let heads = ["classifier.dense.bias", "classifier.dense.weight", "classifier.out_proj.bias"];
    assert_eq!(report.unexpected[..3], heads);
    let renamed = config.replace("\"ibert\"", "\"roberta\"").replace("IBert", "Roberta");
    let roberta = load(&renamed.replace("\"quant_mode\": true", "\"quant_mode\": false")).unwrap().0;
    assert_eq!(floats, roberta);
    let numbers = |data: TensorData| data.try_into_vec::<f32>().unwrap();
    let cosine = cosine(&numbers(integers), &numbers(floats));
    assert!((0.97..0.9999).contains(&cosine), "{cosine}");
    let error = load(&config.replace("\"none\"", "\"gelu\"")).unwrap_err();
    assert!(error.contains("`force_dequant` is \"gelu\", expected \"none\""), "{error}");
}

/// A random encoder with a vocabulary of letters, and a head over sequences.
fn model(config: impl Fn(&mut BertConfig)) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let letters = ('a'..='z').map(String::from).chain(('a'..='z').map(|letter| format!("##{letter}")));
    let pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].map(String::from).into_iter().chain(letters);
    let pieces: Vec<String> = pieces.collect();
    let mut encoder = BertConfig::new(pieces.len(), 2, 64);
    (encoder.d_ff, encoder.n_heads, encoder.max_positions) = (96, 4, 40);
    config(&mut encoder);
    let init = &mut ParamInit::new(&Device::flex(), 3).with_std(0.1);
    let head = SequenceHead::new(64, 3, 0.0, init);
    let model = BertForSequenceClassification::new(encoder.init_encoder(init), head);
    let save = SaveConfig::new(Architecture::SequenceClassification);
    save_pretrained(folder.path(), &model, &encoder, &save).unwrap();
    fs::write(folder.path().join("vocab.txt"), pieces.join("\n")).unwrap();
    folder
}

fn texts() -> Vec<String> {
    let word = |i: usize| {
        (0..1 + i % 5).map(|j| char::from(b'a' + ((i * 7 + j * 3) % 26) as u8)).collect::<String>()
    };
    (0..40).map(|i| (0..1 + i % 9).map(|j| word(i * 11 + j)).collect::<Vec<_>>().join(" ")).collect()
}

fn integers_only(ranges: Ranges) -> QuantizeConfig {
    let mut config = QuantizeConfig::new(WeightFormat::Int8);
    (config.integers_only, config.ranges) = (true, Some(ranges));
    config
}

fn quantized(from: &Path, config: &QuantizeConfig) -> Result<tempfile::TempDir, String> {
    let to = tempfile::tempdir().unwrap();
    let texts = texts().into_iter().map(Ok);
    quantize(from, to.path(), config, texts, &Device::flex(), |_| ()).map_err(|error| error.to_string())?;
    fs::copy(from.join("vocab.txt"), to.path().join("vocab.txt")).unwrap();
    Ok(to)
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

fn classifier(folder: &Path) -> BertForSequenceClassification {
    let pretrained = PretrainedFolder::open(folder).unwrap();
    let init = &mut ParamInit::new(&Device::flex(), 0);
    let bert = pretrained.encoder(Architecture::SequenceClassification).init_encoder(&mut init.deferred());
    let model = BertForSequenceClassification::new(bert, SequenceHead::new(64, 3, 0.0, init));
    let (model, report) = pretrained.load_into(model, Architecture::SequenceClassification, &[]).unwrap();
    assert!(report.missing.is_empty() && report.unexpected.is_empty(), "{report:?}");
    model
}

#[test]
fn integers_alone_answer_nearly_as_floats_and_each_text_for_itself() {
    let from = model(|_| ());
    let embed = |folder: &Path, texts: &[String]| {
        let embedder = Embedder::load(folder, EmbedConfig::default(), &Device::flex()).unwrap();
        embedder.embed(texts).unwrap().values
    };
    let before = embed(from.path(), &texts());
    for ranges in [Ranges::MinMax, Ranges::Percentile(99.99), Ranges::Mse] {
        let to = quantized(from.path(), &integers_only(ranges)).unwrap();
        let after = embed(to.path(), &texts());
        let found = cosine(&before, &after);
        assert!((0.99..0.999_999).contains(&found), "{ranges:?}: {found}");
        for (text, together) in texts().into_iter().zip(after.chunks_exact(64)) {
            assert_eq!(embed(to.path(), &[text]), together);
        }
    }
}

#[test]
fn logits_are_integers_and_the_same_bits_in_any_batch() {
    let from = model(|_| ());
    let to = quantized(from.path(), &integers_only(Ranges::MinMax)).unwrap();
    let (floats, integers) = (classifier(from.path()), classifier(to.path()));
    let device = Device::flex();
    let lengths: Vec<usize> = (0..60).map(|i| 1 + i * 7 % 33).collect();
    let ids: Vec<i32> = (0..lengths.iter().sum::<usize>()).map(|i| 5 + (i * 31 % 52) as i32).collect();
    let input = || BertInput::packed(&ids, &lengths, &device);
    let numbers = |logits: Tensor<2>| logits.into_data().try_into_vec::<f32>().unwrap();
    let (expected, found) = (numbers(floats.forward(input())), numbers(integers.forward(input())));
    assert!(cosine(&expected, &found) > 0.98, "{}", cosine(&expected, &found));
    let mut start = 0;
    for (len, found) in lengths.iter().zip(found.chunks_exact(3)) {
        let alone = BertInput::packed(&ids[start..start + len], &[*len], &device);
        assert_eq!(numbers(integers.forward(alone)), found);
        start += len;
    }
    for n_threads in [1, 2, 3] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
        assert_eq!(pool.install(|| numbers(integers.forward(input()))), found);
    }
    assert_ne!(expected, found);
}

#[test]
fn a_folder_of_integers_is_named_as_one_and_becomes_floats_again() {
    let from = model(|_| ());
    let to = quantized(from.path(), &integers_only(Ranges::Mse)).unwrap();
    let size = |folder: &Path| fs::metadata(folder.join("model.safetensors")).unwrap().len();
    assert!((size(to.path()) as f64) < 0.4 * size(from.path()) as f64, "{}", size(to.path()));
    let config: Value =
        serde_json::from_str(&fs::read_to_string(to.path().join("config.json")).unwrap()).unwrap();
    assert_eq!(config["quantization_config"], json!({ "quant_method": "i-bert" }));
    assert!(check_floats(to.path()).unwrap_err().to_string().contains("the weights are integers"));
    let exported = cloze_onnx::export(to.path(), &Default::default(), &Device::flex());
    let told = exported.err().unwrap().to_string();
    assert!(told.starts_with("a model of integers alone (I-BERT) cannot be exported to ONNX"), "{told}");
    let again = quantized(to.path(), &integers_only(Ranges::Mse)).unwrap_err();
    assert!(again.contains("the weights are integers"), "{again}");

    let floats = tempfile::tempdir().unwrap();
    convert(to.path(), floats.path(), &ConvertConfig::default()).unwrap();
    check_floats(floats.path()).unwrap();
    let (mut before, mut after) = (classifier(from.path()), classifier(floats.path()));
    let weight = |model: &mut BertForSequenceClassification| {
        let layer = &model.backbone_mut().encoder.layers[1];
        let bias = layer.feed_forward.up.bias.as_ref().unwrap().val().into_data();
        [layer.attention.query.weight.val().into_data(), bias].map(|data| data.try_into_vec::<f32>().unwrap())
    };
    for (before, after) in weight(&mut before).into_iter().zip(weight(&mut after)) {
        let greatest = before.iter().fold(0f32, |most, x| most.max(x.abs()));
        assert!(before.iter().zip(&after).all(|(a, b)| (a - b).abs() <= 0.51 / 127.0 * greatest));
    }
}

#[test]
fn what_has_another_arithmetic_is_refused_before_anything_is_written() {
    type Change = fn(&mut BertConfig);
    let cases: [(Change, &str); 1] = [(
        |config| config.activation = Activation::Relu,
        "`hidden_act` is relu, expected gelu: I-BERT has no other arithmetic",
    )];
    for (change, expected) in cases {
        let error = quantized(model(change).path(), &integers_only(Ranges::Mse)).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    let plain = model(|_| ());
    let config = fs::read_to_string(plain.path().join("config.json")).unwrap();
    let electra = config.replace("\"bert\"", "\"electra\"").replace("\"BertFor", "\"ElectraFor");
    fs::write(plain.path().join("config.json"), electra).unwrap();
    let error = quantized(plain.path(), &integers_only(Ranges::Mse)).unwrap_err();
    assert!(error.contains("`model_type` is electra, expected bert, roberta, xlm-roberta"), "{error}");
    fs::write(plain.path().join("config.json"), config).unwrap();

    let refused = |change: fn(&mut QuantizeConfig)| {
        let mut config = integers_only(Ranges::Mse);
        change(&mut config);
        quantized(plain.path(), &config).unwrap_err()
    };
    assert!(refused(|config| config.weights = WeightFormat::Q4_0).contains("q4_0; expected int8"));
    assert!(refused(|config| config.gptq = true).contains("given with --gptq"));
    assert!(refused(|config| config.smooth = Some(0.5)).contains("given with --smooth"));
    let to = tempfile::tempdir().unwrap();
    let none = Vec::<cloze_trainer::Result<String>>::new();
    let error = quantize(plain.path(), to.path(), &integers_only(Ranges::Mse), none, &Device::flex(), |_| ());
    assert!(error.unwrap_err().to_string().contains("no text"));
    assert!(fs::read_dir(to.path()).unwrap().next().is_none());
}

#[test]
fn damaged_folders_are_named() {
    let from = model(|_| ());
    let to = quantized(from.path(), &integers_only(Ranges::MinMax)).unwrap();
    let file = to.path().join("model.safetensors");
    let bytes = fs::read(&file).unwrap();
    // The tensors' names are in the file's header, and as long as before.
    let renamed = |old: &str, new: &str| {
        let at = bytes.windows(old.len()).position(|window| window == old.as_bytes()).unwrap();
        let mut bytes = bytes.clone();
        bytes[at..at + old.len()].copy_from_slice(new.as_bytes());
        fs::write(&file, bytes).unwrap();
        PretrainedFolder::open(to.path()).unwrap_err().to_string()
    };
    let error = renamed("layer.1.attention.self.query.bias", "layer.1.attention.self.query.bia_");
    assert!(
        error.contains("tensor `encoder.layer.1.attention.self.query.bias` of I32 is missing"),
        "{error}"
    );
    let error =
        renamed("layer.0.pre_output_act.act_scaling_factor", "layer.0.pre_output_act.act_scaling_facto_");
    assert!(
        error.contains("tensor `encoder.layer.0.pre_output_act.act_scaling_factor` is missing"),
        "{error}"
    );
}
