//! GGUF files against llama.cpp's converter: `tests/fixtures/gguf/export.py`.

use crate::golden::fixture;
use burn::tensor::Device;
use cloze_gguf::{
    FolderTensor, GgufFile, Model, Pooling, Sentence, TensorType, Value, Values, export, unpack,
};
use cloze_model::gpt::GptConfig;
use cloze_model::huggingface::{SentenceConfig, load_published, tensors_of};
use cloze_model::{ParamInit, Sequences};
use cloze_tokenizer::Tokenizer;
use std::fs;
use std::path::Path;

const MODELS: [&str; 4] = ["bert", "nomic-bert", "gpt2", "llama"];

/// Writes the folder of a case as a GGUF file.
fn exported(name: &str, to: &Path, weights: TensorType) {
    let folder = fixture("gguf").join(name);
    let tokenizer = Tokenizer::load(&folder).unwrap();
    let saved = tempfile::tempdir().unwrap();
    tokenizer.save(saved.path()).unwrap();
    let json = |path: &Path| serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let config: serde_json::Map<_, _> =
        serde_json::from_slice(&fs::read(folder.join("config.json")).unwrap()).unwrap();
    let tensors = tensors_of(&folder).unwrap().floats;
    let sentence = SentenceConfig::load(&folder).unwrap();
    let model = Model {
        name,
        config: &config,
        tokenizer: &json(&saved.path().join("tokenizer.json")),
        tokenizer_config: &json(&saved.path().join("tokenizer_config.json")),
        sentence: sentence.map(|config| Sentence {
            pooling: Pooling::Mean,
            normalize: config.normalize,
            max_len: config.max_len,
        }),
        tensors: tensors
            .iter()
            .map(|(name, data)| FolderTensor {
                name,
                shape: data.shape().to_vec(),
                values: Values::Floats(data.as_slice::<f32>().unwrap().into()),
            })
            .collect(),
    };
    let report = export(to, &model, Some(weights)).unwrap();
    assert_eq!((report.architecture.name(), &report.in_f16), (name, &Vec::<String>::new()));
    assert_eq!(report.notes, Vec::<String>::new(), "{name}");
    let pooler = ["pooler.dense.bias", "pooler.dense.weight"].map(String::from);
    assert_eq!(report.left_out, if name == "bert" { pooler.to_vec() } else { Vec::new() });
}

#[test]
fn tensors_and_metadata_are_those_of_llama_cpps_converter() {
    let place = tempfile::tempdir().unwrap();
    for name in MODELS {
        let path = place.path().join(format!("{name}.gguf"));
        exported(name, &path, TensorType::Q8_0);
        let ours = GgufFile::open(&path).unwrap();
        let theirs = GgufFile::open(&fixture("gguf").join(format!("{name}.gguf"))).unwrap();
        assert_eq!(ours.tensors().len(), theirs.tensors().len(), "{name}");
        for expected in theirs.tensors() {
            let found = ours.tensors().iter().find(|found| found.name == expected.name).unwrap();
            assert_eq!(
                (&found.shape, found.kind()),
                (&expected.shape, expected.kind()),
                "{name}, {}",
                expected.name
            );
            let (found, theirs) = (ours.bytes(found).unwrap().1, theirs.bytes(expected).unwrap().1);
            if expected.name == "rope_freqs.weight" {
                let kind = TensorType::F32;
                let close = kind
                    .decode(found)
                    .into_iter()
                    .zip(kind.decode(theirs))
                    .all(|(a, b)| (a - b).abs() < 1e-5);
                assert!(close, "{name}: {:?} {:?}", kind.decode(found), kind.decode(theirs));
            } else {
                assert!(found == theirs, "{name}: the values of {} differ", expected.name);
            }
        }
        let mut different = Vec::new();
        for (key, expected) in theirs.metadata() {
            let ours = ours.get(key);
            match &**key {
                // Made up of the folder's name, and figures for people.
                "general.name" | "general.size_label" | "general.basename" => {}
                // Read for BPE alone; the exporter gives one name for all.
                "tokenizer.ggml.pre" if name != "gpt2" => {}
                // Theirs are SentencePiece's; ours the places of the merges, which have the same order.
                "tokenizer.ggml.scores" => assert!(ours.is_some()),
                // The width of a head, where it is that of the model over the number of heads.
                "nomic-bert.attention.key_length" | "nomic-bert.attention.value_length" if ours.is_none() => {
                    assert_eq!(expected, &Value::U32(16));
                }
                _ if ours != Some(expected) => different.push(key.clone()),
                _ => {}
            }
        }
        assert_eq!(different, Vec::<String>::new(), "{name}");
        assert_eq!(ours.get("general.name"), Some(&Value::Text(name.into())));
    }
}

#[test]
fn a_file_is_the_folder_that_it_was_made_of() {
    let place = tempfile::tempdir().unwrap();
    let cache = place.path().join("cache");
    for name in MODELS {
        let folder = fixture("gguf").join(name);
        let ours = place.path().join(format!("{name}.gguf"));
        exported(name, &ours, TensorType::Q8_0);
        let theirs = unpack(&fixture("gguf").join(format!("{name}.gguf")), &cache).unwrap();
        let ours = unpack(&ours, &cache).unwrap();
        let texts: Vec<(String, Vec<u32>)> =
            serde_json::from_slice(&fs::read(folder.join("ids.json")).unwrap()).unwrap();
        for folder in [&folder, &theirs, &ours] {
            let tokenizer = Tokenizer::load(folder).unwrap();
            for (text, ids) in &texts {
                let found = tokenizer.encode(text, true).unwrap().ids;
                // The ids in the file are of the classes' own; BERT's stages are those of the folder's tokenizer.json.
                assert_eq!(&found, ids, "{name}, {text:?}, {}", folder.display());
            }
        }
        // Both were rounded in the same way, and the rest is exact.
        let [theirs_read, ours_read] = [&theirs, &ours].map(|folder| tensors_of(folder).unwrap().floats);
        assert_eq!(theirs_read, ours_read, "{name}");
        let exact = tensors_of(&folder).unwrap().floats;
        for (tensor, found) in &ours_read {
            let expected = exact.iter().find(|(known, _)| known.ends_with(tensor.as_str())).unwrap().1;
            assert_eq!(found.shape(), expected.shape(), "{name}, {tensor}");
            let largest = expected.iter::<f32>().fold(0f32, |a, b| a.max(b.abs()));
            let error =
                found.iter::<f32>().zip(expected.iter::<f32>()).fold(0f32, |e, (a, b)| e.max((a - b).abs()));
            assert!(error <= largest / 200.0, "{name}, {tensor}: off by {error} of {largest}");
        }
        let sentence = SentenceConfig::load(&ours).unwrap();
        match name {
            "bert" => {
                let sentence = sentence.unwrap();
                assert_eq!(
                    (sentence.pooling_modes, sentence.normalize, sentence.max_len),
                    (vec!["mean".into()], true, Some(24))
                );
                assert_eq!(SentenceConfig::load(&theirs).unwrap().unwrap().max_len, Some(40));
            }
            _ => assert_eq!(sentence, None),
        }
        // The folder is there now, and is not made again.
        assert_eq!(unpack(&place.path().join(format!("{name}.gguf")), &cache).unwrap(), ours);
    }
    assert_eq!(fs::read_dir(&cache).unwrap().count(), 8);
}

#[test]
fn a_file_in_32_bits_gives_the_same_logits() {
    let place = tempfile::tempdir().unwrap();
    let device = Device::flex();
    for name in ["gpt2", "llama"] {
        let path = place.path().join(format!("{name}.gguf"));
        exported(name, &path, TensorType::F32);
        let logits = |folder: &Path| {
            let init = &mut ParamInit::new(&device, 1);
            let (_, model, report) = load_published::<GptConfig>(folder, init).unwrap();
            assert!(report.unexpected.is_empty(), "{name}: {:?}", report.unexpected);
            let texts: Sequences = [&[5, 6, 7, 300, 20, 21, 22, 8][..], &[7, 2, 11]].into_iter().collect();
            model.logits(&texts, &device).into_data()
        };
        let unpacked = unpack(&path, &place.path().join("cache")).unwrap();
        assert_eq!(logits(&unpacked), logits(&fixture("gguf").join(name)), "{name}");
    }
}
