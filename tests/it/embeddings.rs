//! Sentence embeddings: against transformers' (`tests/fixtures/minilm_embeddings/export.py`), and of a small
//! model whose folder is made here.

use burn::tensor::{Device, TensorData};
use cloze_model::huggingface::{read_tensors, write_tensors};
use cloze_model::ops::{Precision, with_precision};
use cloze_trainer::embed::{EmbedConfig, EmbedRequest, Embedder, Pooling, Prompt, SentencePooling};
use cloze_trainer::requests::Respond;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

#[test]
fn minilm_embeds_as_transformers_does() {
    let model = root().join("../../shared/models/all-MiniLM-L6-v2");
    if !model.exists() {
        println!("skipped: no shared/models/all-MiniLM-L6-v2 beside the repository");
        return;
    }
    let golden = root().join("fixtures/minilm_embeddings");
    let texts: Vec<String> =
        serde_json::from_str(&fs::read_to_string(golden.join("texts.json")).unwrap()).unwrap();
    let golden = read_tensors(&golden.join("golden.safetensors")).unwrap();
    let cls =
        EmbedConfig { pooling: Some(Pooling::Cls.into()), normalize: Some(false), ..EmbedConfig::default() };
    for (name, config) in [("mean", EmbedConfig::default()), ("cls", cls)] {
        // Few tokens at a time, so that there are several batches.
        let config = EmbedConfig { batch_tokens: 300, ..config };
        let embedder = Embedder::load(&model, config, &Device::flex()).unwrap();
        assert_eq!((embedder.width(), embedder.max_len()), (384, 256));
        assert!(embedder.report().missing.is_empty() && embedder.report().unexpected.is_empty());
        let found = embedder.embed(&texts).unwrap();
        assert_eq!(found.truncated(), 1);
        let expected: Vec<f32> = golden[name].iter::<f32>().collect();
        let rows = found.values.chunks_exact(384).zip(expected.chunks_exact(384));
        for (i, (found, expected)) in rows.enumerate() {
            let cosine = cosine(found, expected);
            assert!(cosine > 0.99999, "{name} of text {i}: cosine {cosine}");
            for (a, b) in found.iter().zip(expected) {
                assert!((a - b).abs() < 1e-4, "{name} of text {i}: {a} is not {b}");
            }
        }
        let rounded = with_precision(Precision::Bf16, || embedder.embed(&texts)).unwrap().values;
        assert_ne!(rounded, found.values);
        for (i, (a, b)) in rounded.chunks_exact(384).zip(expected.chunks_exact(384)).enumerate() {
            let cosine = cosine(a, b);
            assert!(cosine > 0.999, "{name} of text {i} in bf16: cosine {cosine}");
        }
        for (text, together) in texts.iter().zip(found.values.chunks_exact(384)) {
            let alone = embedder.embed(&[text]).unwrap().values;
            assert!(cosine(&alone, together) > 0.99999, "{text} by itself");
        }
    }
}

/// The random model of another fixture, with a vocabulary.
fn small_model(folder: &Path) {
    for name in ["config.json", "model.safetensors"] {
        fs::copy(root().join("fixtures/bert_pretraining").join(name), folder.join(name)).unwrap();
    }
    let letters = ('a'..='z').map(String::from).chain(('a'..='z').map(|letter| format!("##{letter}")));
    let pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].map(String::from).into_iter().chain(letters);
    fs::write(folder.join("vocab.txt"), pieces.collect::<Vec<_>>().join("\n")).unwrap();
}

/// The types of tokens of this model are languages where it is told so.
#[test]
fn texts_are_of_the_language_that_is_said() {
    let folder = tempfile::tempdir().unwrap();
    small_model(folder.path());
    let load = |language: Option<&str>| {
        let config = EmbedConfig { language: language.map(String::from), ..EmbedConfig::default() };
        Embedder::load(folder.path(), config, &Device::flex())
    };
    let embed = |language| load(language).unwrap().embed(&["a b c", "x"]).unwrap().values;
    assert_eq!(embed(None), embed(Some("0")));
    assert_ne!(embed(Some("1")), embed(Some("0")));
    let error = load(Some("de")).unwrap_err().to_string();
    let expected = "`language` is \"de\"; expected a number below 2: the model has no names of languages";
    assert!(error.ends_with(expected), "{error}");

    // With names, and a language that the folder says.
    let path = folder.path().join("config.json");
    let mut config: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    config["lang2id"] = serde_json::json!({ "en": 0, "de": 1 });
    config["lang_id"] = 1.into();
    fs::write(&path, config.to_string()).unwrap();
    let [en, de] = ["en", "de"].map(|name| embed(Some(name)));
    assert!(en != de && embed(None) == de);
    let error = load(Some("fr")).unwrap_err().to_string();
    assert!(error.ends_with("`language` is \"fr\"; expected \"en\" or \"de\""), "{error}");
}

#[test]
fn a_folder_without_modules_is_averaged_and_not_scaled() {
    let folder = tempfile::tempdir().unwrap();
    small_model(folder.path());
    let load = |config| Embedder::load(folder.path(), config, &Device::flex()).unwrap();
    let texts = ["a b c", "", "hello world and more of it than fits", "x"];
    let plain = load(EmbedConfig::default());
    // The model has 20 positions; heads are not the encoder's.
    assert_eq!(plain.max_len(), 20);
    assert!(plain.report().missing.is_empty());
    assert!(plain.report().unexpected.iter().all(|name| name.starts_with("cls.")));
    assert!(!plain.report().unexpected.is_empty());
    let found = plain.embed(&texts).unwrap();
    assert_eq!((found.values.len(), found.truncated()), (4 * 24, 1));
    for (text, together) in texts.iter().zip(found.values.chunks_exact(24)) {
        for (a, b) in plain.embed(&[text]).unwrap().values.iter().zip(together) {
            assert!((a - b).abs() < 1e-4, "{text}");
        }
    }
    let scaled = load(EmbedConfig { normalize: Some(true), ..EmbedConfig::default() }).embed(&texts).unwrap();
    for (plain, scaled) in found.values.chunks_exact(24).zip(scaled.values.chunks_exact(24)) {
        let length: f32 = scaled.iter().map(|x| x * x).sum();
        assert!((length - 1.0).abs() < 1e-5);
        assert!(cosine(plain, scaled) > 0.999_999);
    }
    assert!(plain.embed::<&str>(&[]).unwrap().values.is_empty());
}

#[test]
fn what_a_folder_lacks_is_named() {
    let folder = tempfile::tempdir().unwrap();
    small_model(folder.path());
    let error = |config| Embedder::load(folder.path(), config, &Device::flex()).unwrap_err().to_string();
    let modules = r#"[{"path": "p", "type": "sentence_transformers.models.Pooling"}]"#;
    fs::write(folder.path().join("modules.json"), modules).unwrap();
    fs::create_dir(folder.path().join("p")).unwrap();
    fs::write(folder.path().join("p/config.json"), r#"{"pooling_mode": "attention"}"#).unwrap();
    let message = error(EmbedConfig::default());
    assert!(message.contains("pooling `attention` is not supported"), "{message}");
    let last4 = EmbedConfig { pooling: Some(SentencePooling::last4()), ..EmbedConfig::default() };
    assert!(error(last4).ends_with("pooling of the last 4 layers, but the model has 2"));
    // Whoever chooses the pooling needs no other.
    let chosen = EmbedConfig { pooling: Some(Pooling::Mean.into()), ..EmbedConfig::default() };
    Embedder::load(folder.path(), chosen.clone(), &Device::flex()).unwrap();
    let vocab = folder.path().join("vocab.txt");
    let longer =
        fs::read_to_string(&vocab).unwrap() + &(0..20).map(|i| format!("\nw{i}")).collect::<String>();
    fs::write(&vocab, longer).unwrap();
    let message = error(chosen.clone());
    assert!(message.contains("77"), "{message}");
    fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    assert!(error(chosen).contains("model.safetensors"));
}

/// A copy of the poolings' model whose modules are those of sentence-transformers with `pooling`.
fn with_modules(pooling: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors", "vocab.txt"] {
        fs::copy(root().join("fixtures/poolings").join(name), folder.path().join(name)).unwrap();
    }
    let modules = r#"[{"path": "", "type": "sentence_transformers.models.Transformer"},
        {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]"#;
    fs::write(folder.path().join("modules.json"), modules).unwrap();
    fs::create_dir(folder.path().join("1_Pooling")).unwrap();
    fs::write(folder.path().join("1_Pooling/config.json"), pooling).unwrap();
    folder
}

/// The tokens of a prompt are left out as sentence-transformers does it (`tests/fixtures/poolings/export_prompt.py`).
#[test]
fn a_prompts_tokens_may_be_left_out() {
    let golden = root().join("fixtures/poolings");
    let texts: Vec<String> =
        serde_json::from_str(&fs::read_to_string(golden.join("texts.json")).unwrap()).unwrap();
    let golden = read_tensors(&golden.join("prompt.safetensors")).unwrap();
    for (name, expected) in golden {
        let folder = with_modules(&format!(r#"{{"pooling_mode": "{name}", "include_prompt": false}}"#));
        let prompt = "a query of ";
        let load = |prompt: Option<&str>| {
            let prompt = prompt.map(|prompt| Prompt::Text(prompt.into()));
            Embedder::load(folder.path(), EmbedConfig { prompt, ..EmbedConfig::default() }, &Device::flex())
        };
        let expected: Vec<f32> = expected.iter::<f32>().collect();
        let close = |found: &[f32], expected: &[f32], how: &str| {
            for (i, (a, b)) in found.iter().zip(expected).enumerate() {
                assert!((a - b).abs() < 1e-5, "{name}, {how}, number {i}: {a} is not {b}");
            }
        };
        let found = load(Some(prompt)).unwrap().embed(&texts).unwrap().values;
        assert_eq!(found.len(), expected.len());
        close(&found, &expected, "by the embedder's prompt");
        // A request's own prompt in place of the embedder's.
        for before in [None, Some("x y ")] {
            let embedder = load(before).unwrap();
            for (text, expected) in texts.iter().zip(expected.chunks(24)) {
                let request = EmbedRequest { prompt: Some(prompt.into()), ..EmbedRequest::of(text) };
                let unit = embedder.encode(request).unwrap();
                close(&embedder.answer(&[&unit]).remove(0).unwrap().values, expected, "by the request's");
            }
        }
    }
}

/// Every pooling against sentence-transformers' (`tests/fixtures/poolings/export.py`), by the folder's modules
/// and by choice.
#[test]
fn poolings_are_those_of_sentence_transformers() {
    let golden = root().join("fixtures/poolings");
    let texts: Vec<String> =
        serde_json::from_str(&fs::read_to_string(golden.join("texts.json")).unwrap()).unwrap();
    let golden = read_tensors(&golden.join("golden.safetensors")).unwrap();
    let old = |modes: &[&str]| {
        let keys = modes.iter().map(|mode| format!(r#""pooling_mode_{mode}": true"#));
        format!(r#"{{"pooling_mode_weightedmean": false, {}}}"#, keys.collect::<Vec<_>>().join(", "))
    };
    let new = |mode: &str| format!(r#"{{"embedding_dimension": 24, "pooling_mode": {mode}}}"#);
    let modes = [
        ("mean", Pooling::Mean, "mean_tokens"),
        ("cls", Pooling::Cls, "cls_token"),
        ("max", Pooling::Max, "max_tokens"),
        ("mean_sqrt_len_tokens", Pooling::MeanSqrtLen, "mean_sqrt_len_tokens"),
        ("weightedmean", Pooling::WeightedMean, "weightedmean_tokens"),
        ("lasttoken", Pooling::LastToken, "lasttoken"),
    ];
    let mut cases: Vec<(&str, String, Option<SentencePooling>)> = Vec::new();
    for (name, pooling, key) in modes {
        cases.push((name, new(&format!("{name:?}")), None));
        cases.push((name, old(&[key]), None));
        cases.push((name, new("\"mean\""), Some(pooling.into())));
    }
    cases.push(("several", old(&["lasttoken", "mean_tokens", "max_tokens", "cls_token"]), None));
    cases.push(("several", new(r#"["cls", "max", "mean", "lasttoken"]"#), None));
    cases.push(("last4", new("\"cls\""), Some(SentencePooling::last4())));
    for (name, modules, pooling) in cases {
        let folder = with_modules(&modules);
        let load = |int8| {
            // Few tokens at a time, so that there are several batches.
            let config =
                EmbedConfig { pooling: pooling.clone(), batch_tokens: 30, int8, ..EmbedConfig::default() };
            Embedder::load(folder.path(), config, &Device::flex()).unwrap()
        };
        let embedder = load(false);
        let expected: Vec<f32> = golden[name].iter::<f32>().collect();
        let width = embedder.width();
        assert_eq!(width * texts.len(), expected.len(), "{name}");
        let found = embedder.embed(&texts).unwrap();
        assert_eq!(found.truncated(), 1);
        for (i, (a, b)) in found.values.iter().zip(&expected).enumerate() {
            assert!((a - b).abs() < 1e-5, "{name} of text {}: {a} is not {b}", i / width);
        }
        for (text, together) in texts.iter().zip(found.values.chunks_exact(width)) {
            let alone = embedder.embed(&[text]).unwrap().values;
            assert!(alone.iter().zip(together).all(|(a, b)| (a - b).abs() < 1e-5), "{name} of {text:?}");
        }
        let rounded = load(true).embed(&texts).unwrap().values;
        assert_ne!(rounded, found.values);
        for (a, b) in rounded.chunks_exact(width).zip(found.values.chunks_exact(width)) {
            let cosine = cosine(a, b);
            assert!(cosine > 0.99, "{name} in 8 bits: cosine {cosine}");
        }
        let rounded = with_precision(Precision::Bf16, || embedder.embed(&texts)).unwrap().values;
        assert_ne!(rounded, found.values);
        for (a, b) in rounded.chunks_exact(width).zip(found.values.chunks_exact(width)) {
            let cosine = cosine(a, b);
            assert!(cosine > 0.999, "{name} in bf16: cosine {cosine}");
        }
    }
}

/// Modules `Dense` map the pooled states, and what comes of that is scaled.
#[test]
fn embeddings_are_mapped_as_the_modules_say() {
    let folder = with_modules(r#"{"pooling_mode": "mean"}"#);
    let texts = ["a b c", "some words"];
    let load = || Embedder::load(folder.path(), EmbedConfig::default(), &Device::flex());
    let pooled = load().unwrap().embed(&texts).unwrap().values;
    let module = |path: &str, kind: &str| serde_json::json!({"path": path, "type": format!("sentence_transformers.models.{kind}")});
    let modules =
        [module("1_Pooling", "Pooling"), module("2_Dense", "Dense"), module("3_Normalize", "Normalize")];
    fs::write(folder.path().join("modules.json"), serde_json::json!(modules).to_string()).unwrap();
    fs::create_dir(folder.path().join("2_Dense")).unwrap();
    let write = |d_in: usize, bias: bool| {
        let activation = "torch.nn.modules.activation.Tanh";
        let config = serde_json::json!({
            "in_features": d_in, "out_features": 2, "bias": bias, "activation_function": activation,
        });
        fs::write(folder.path().join("2_Dense/config.json"), config.to_string()).unwrap();
        let weight: Vec<f32> = (0..2 * d_in).map(|i| (i as f32 * 0.7).cos()).collect();
        let tensors = [
            ("linear.weight".to_owned(), TensorData::new(weight.clone(), [2, d_in])),
            ("linear.bias".to_owned(), TensorData::new(vec![0.3_f32, -0.2], [2])),
        ];
        write_tensors(&folder.path().join("2_Dense/model.safetensors"), &tensors.into(), &[]).unwrap();
        weight
    };
    for (bias, added) in [(true, [0.3, -0.2]), (false, [0.0, 0.0])] {
        let weight = write(24, bias);
        let embedder = load().unwrap();
        assert_eq!(embedder.width(), 2);
        let found = embedder.embed(&texts).unwrap().values;
        for (found, pooled) in found.chunks_exact(2).zip(pooled.chunks_exact(24)) {
            let mapped: Vec<f32> = weight
                .chunks_exact(24)
                .zip(added)
                .map(|(row, added)| (row.iter().zip(pooled).map(|(a, b)| a * b).sum::<f32>() + added).tanh())
                .collect();
            let length = mapped.iter().map(|x| x * x).sum::<f32>().sqrt();
            for (found, mapped) in found.iter().zip(&mapped) {
                assert!((found - mapped / length).abs() < 1e-5, "{found}, not {}", mapped / length);
            }
        }
    }
    write(23, true);
    let error = load().unwrap_err().to_string();
    assert!(error.ends_with("2_Dense: it takes 23 features, expected 24, those of what it maps"), "{error}");
}

/// A folder as those of Nomic's embeddings: published keys and names, modules and prompts of sentence-transformers.
fn nomic() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let fixture = root().join("fixtures/families/nomic-published");
    let models: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(fixture.join("models.json")).unwrap()).unwrap();
    let (model, stored) = (&models["mlm"], read_tensors(&fixture.join("models.safetensors")).unwrap());
    let names = model["tensors"].as_object().unwrap();
    let tensors = names.iter().filter_map(|(name, key)| {
        Some((name.strip_prefix("bert.")?.to_string(), stored[key.as_str().unwrap()].clone()))
    });
    write_tensors(&folder.path().join("model.safetensors"), &tensors.collect(), &[]).unwrap();
    let mut config = model["config"].clone();
    config["architectures"] = serde_json::json!(["NomicBertModel"]);
    let letters = ('a'..='z').map(String::from);
    let pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].map(String::from).into_iter().chain(letters);
    fs::create_dir(folder.path().join("1_Pooling")).unwrap();
    for (name, text) in [
        ("config.json", config.to_string()),
        ("vocab.txt", pieces.collect::<Vec<_>>().join("\n")),
        (
            "modules.json",
            r#"[{"path": "", "type": "sentence_transformers.models.Transformer"},
                {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
                {"path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}]"#
                .into(),
        ),
        ("sentence_bert_config.json", r#"{"max_seq_length": 8192, "do_lower_case": false}"#.into()),
        ("1_Pooling/config.json", r#"{"pooling_mode_mean_tokens": true, "include_prompt": true}"#.into()),
        (
            "config_sentence_transformers.json",
            r#"{"prompts": {"search_query": "s q ", "search_document": "s d "}}"#.into(),
        ),
    ] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

#[test]
fn prompts_stand_before_the_texts() {
    let folder = nomic();
    let load = |prompt| {
        let config = EmbedConfig { prompt, ..EmbedConfig::default() };
        Embedder::load(folder.path(), config, &Device::flex())
    };
    let named = |name: &str| Some(Prompt::Name(name.into()));
    let embed = |prompt, texts: &[&str]| load(prompt).unwrap().embed(texts).unwrap().values;
    let plain = load(None).unwrap();
    assert!(plain.report().missing.is_empty() && plain.report().unexpected.is_empty());
    assert_eq!((plain.width(), plain.max_len()), (8, 18));
    let texts = ["a b c", "", "x"];
    let vectors = embed(None, &texts);
    for vector in vectors.chunks_exact(8) {
        assert!((vector.iter().map(|x| x * x).sum::<f32>() - 1.0).abs() < 1e-5);
    }
    for (name, prompt, whole) in [
        ("search_query", "s q ", ["s q a b c", "s q ", "s q x"]),
        ("search_document", "s d ", ["s d a b c", "s d", "s d x"]),
    ] {
        let expected = embed(None, &whole);
        assert_ne!(expected, vectors);
        assert_eq!(embed(named(name), &texts), expected);
        assert_eq!(embed(Some(Prompt::Text(prompt.into())), &texts), expected);
        let default = format!(r#"{{"prompts": {{"{name}": "{prompt}"}}, "default_prompt_name": "{name}"}}"#);
        let before = folder.path().join("config_sentence_transformers.json");
        let prompts = fs::read(&before).unwrap();
        fs::write(&before, default).unwrap();
        assert_eq!(embed(None, &texts), expected);
        assert_eq!(embed(Some(Prompt::Text(String::new())), &texts), vectors);
        fs::write(&before, prompts).unwrap();
    }
    let message = load(named("search_doc")).unwrap_err().to_string();
    let expected = "prompt \"search_doc\" is unknown, expected \"search_document\" or \"search_query\"";
    assert!(message.contains(expected), "{message}");
    let pooling = r#"{"pooling_mode_cls_token": true, "include_prompt": false}"#;
    fs::write(folder.path().join("1_Pooling/config.json"), pooling).unwrap();
    load(None).unwrap();
    let message = load(named("search_query")).unwrap_err().to_string();
    assert!(message.contains("`include_prompt`: false"), "{message}");
}
