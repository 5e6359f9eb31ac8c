//! Exports of quantised folders: the same integers, and the same answers as of the folder's numbers in floats.

use super::*;
use cloze_model::bert::BertForPreTraining;
use cloze_model::huggingface::{ConvertConfig, convert};
use cloze_onnx::proto::TensorProto;
use cloze_trainer::quantization::{QuantizeConfig, Ranges, WeightFormat, quantize};

const FORMATS: [WeightFormat; 3] = [WeightFormat::Int8, WeightFormat::Q8_0, WeightFormat::Q4_0];

/// A random encoder with its masked-LM head, and a vocabulary of letters.
fn model() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let letters = ('a'..='z').map(String::from).chain(('a'..='z').map(|letter| format!("##{letter}")));
    let special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].map(String::from);
    let pieces: Vec<String> = special.into_iter().chain(letters).collect();
    let mut config = BertConfig::new(pieces.len(), 2, 64);
    (config.d_ff, config.n_heads, config.max_positions) = (96, 4, 40);
    let model: BertForPreTraining = config.init(&mut ParamInit::new(&Device::flex(), 3).with_std(0.1));
    save_pretrained(folder.path(), &model, &config, &SaveConfig::new(Architecture::PreTraining)).unwrap();
    std::fs::write(folder.path().join("vocab.txt"), pieces.join("\n")).unwrap();
    folder
}

fn quantized(format: WeightFormat, change: impl Fn(&mut QuantizeConfig)) -> tempfile::TempDir {
    let (from, to) = (model(), tempfile::tempdir().unwrap());
    let mut config = QuantizeConfig::new(format);
    change(&mut config);
    let word = |i: usize| char::from(b'a' + (i % 26) as u8).to_string();
    let texts =
        (0..60).map(|i| Ok((0..1 + i % 9).map(|j| word(i * 7 + j * 3)).collect::<Vec<_>>().join(" ")));
    quantize(from.path(), to.path(), &config, texts, &Device::flex(), |_| ()).unwrap();
    to
}

/// Sequences of pieces of the vocabulary, the longest of them as long.
fn sequences(longest: usize) -> Batch {
    let mut batch = batch(longest);
    batch.types.fill(0);
    batch
}

fn initializers<'a>(saved: &'a Saved, end: &str) -> Vec<&'a TensorProto> {
    let all = saved.model.graph.as_ref().unwrap().initializer.iter();
    all.filter(|tensor| tensor.name.ends_with(end)).collect()
}

fn operators(saved: &Saved) -> HashMap<&str, usize> {
    let mut counts = HashMap::new();
    for node in &saved.model.graph.as_ref().unwrap().node {
        *counts.entry(&*node.op_type).or_default() += 1;
    }
    counts
}

#[test]
fn integers_are_multiplied_as_their_numbers_are() {
    for format in FORMATS {
        for (tables, smooth) in [(false, None), (true, None), (true, Some(0.5))] {
            let what = format!("{format:?}, tables {tables}, {smooth:?}");
            let folder = quantized(format, |config| (config.tables, config.smooth) = (tables, smooth));
            let floats = tempfile::tempdir().unwrap();
            convert(folder.path(), floats.path(), &ConvertConfig::default()).unwrap();
            let batch = sequences(20);
            for states in [true, false] {
                let [integers, floats] = [&folder, &floats].map(|of| Saved::of_folder(of.path(), states));
                let name = if states { "last_hidden_state" } else { "logits" };
                let [found, expected] =
                    [&integers, &floats].map(|saved| batch.of_tokens(&saved.run(&batch)[name]));
                assert_close(&what, &found, &expected);
                let kinds: Vec<i32> =
                    initializers(&integers, "query.weight").iter().map(|tensor| tensor.data_type).collect();
                let kind = if format == WeightFormat::Int8 { INT8 } else { UINT8 };
                assert_eq!(kinds, [kind; 2], "{what}");
                let table = initializers(&integers, "tokens.weight")[0];
                assert_eq!(table.data_type == FLOAT, !tables, "{what}");
                let n_factors = initializers(&integers, "input_factors").len();
                assert_eq!(n_factors, if smooth.is_some() { 12 } else { 0 }, "{what}");
            }
        }
    }
}

#[test]
fn a_range_of_all_tokens_is_that_of_the_folder() {
    for format in FORMATS {
        let folder = quantized(format, |config| config.ranges = Some(Ranges::MinMax));
        let saved = Saved::of_folder(folder.path(), true);
        let (bert, _) = {
            let folder = PretrainedFolder::open(folder.path()).unwrap();
            let (_, bert, report) = folder.load_encoder(&mut ParamInit::new(&Device::flex(), 0)).unwrap();
            (bert, report)
        };
        let batch = sequences(20);
        let found = batch.of_tokens(&saved.run(&batch)["last_hidden_state"]);
        let expected = states(&bert, &batch);
        // A number on the edge of two steps may fall on either.
        let error = relative_error(&found, &expected);
        assert!(error < 0.02, "{format:?}: {error:e}");
        let n_equal =
            found.iter::<f32>().zip(expected.iter::<f32>()).filter(|(a, b)| (a - b).abs() < 1e-4).count();
        assert!(n_equal * 2 > found.num_elements(), "{format:?}: {n_equal} of {}", found.num_elements());
        let operators = operators(&saved);
        assert_eq!(operators["QuantizeLinear"], 12);
        if format == WeightFormat::Int8 {
            // Signed weights would saturate in kernels without VNNI.
            assert_eq!(operators["DequantizeLinear"], 24);
            let weights = initializers(&saved, "query.weight");
            assert!(weights.iter().all(|weight| weight.data_type == UINT8));
        } else {
            assert_eq!((operators["DequantizeLinear"], operators["MatMulNBits"]), (12, 12));
        }
    }
}

#[test]
fn blocks_need_the_operators_of_onnx_runtime_and_others_do_not() {
    for (format, domains) in [
        (WeightFormat::Int8, &[""][..]),
        (WeightFormat::Q8_0, &["", "com.microsoft"]),
        (WeightFormat::Q4_0, &["", "com.microsoft"]),
    ] {
        let folder = quantized(format, |config| config.tables = true);
        let saved = Saved::of_folder(folder.path(), true);
        let found: Vec<&str> = saved.model.opset_import.iter().map(|opset| &*opset.domain).collect();
        assert_eq!(found, domains, "{format:?}");
        // No number is stored wider than in the folder; the scales of blocks are, and norms, biases and positions.
        let size = std::fs::metadata(saved.folder.path().join("model.onnx")).unwrap().len();
        let of_floats = Saved::of_folder(model().path(), true);
        let of_floats = std::fs::metadata(of_floats.folder.path().join("model.onnx")).unwrap().len();
        let share = size as f64 / of_floats as f64;
        assert!(share < if format == WeightFormat::Q4_0 { 0.4 } else { 0.5 }, "{format:?}: {share}");
    }
}
