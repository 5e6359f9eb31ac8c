//! Every config runs for a few steps, on a second backend too.

use crate::workplace::{self, Workplace};
use cloze_model::huggingface::SentenceConfig;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;
use toml::{Table, Value};

/// What makes a pretraining run a matter of seconds: few steps of few sequences …
const SHORT: [&str; 5] = [
    "train.steps=2",
    "train.batch_size=2",
    "schedule.warmup_steps=1",
    "eval.max_examples=8",
    "eval.heldout_fraction=0.2",
];
/// The same of a language model.
const SHORT_LANGUAGE_MODEL: [&str; 5] = [
    "train.steps=2",
    "train.batch_size=2",
    "schedule.warmup_steps=1",
    "eval.max_blocks=8",
    "eval.heldout_fraction=0.2",
];
/// … and, where there is no checkpoint to go on with, a vocabulary that the stand-in has words for and a network
/// of the same kind but small.
const SMALL: [&str; 5] =
    ["tokenizer.vocab_size=400", "model.d_model=32", "model.n_layers=2", "model.n_heads=2", "model.d_ff=64"];
/// A small AWD-LSTM.
const SMALL_AWD_LSTM: [&str; 4] =
    ["tokenizer.vocab_size=400", "model.d_embedding=16", "model.d_hidden=24", "model.n_layers=2"];
/// A small ELMo.
const SMALL_ELMO: [&str; 4] = [
    "tokenizer.vocab_size=400",
    "model.filters=[[1, 8], [3, 8]]",
    "model.d_hidden=24",
    "model.d_projection=16",
];

/// The same of a run on images without labels, which has epochs.
const SHORT_IMAGES: [&str; 3] = ["train.epochs=1", "train.batch_size=4", "schedule.warmup_steps=1"];
/// 200 drawn scenes.
const SHORT_SCENES: [&str; 6] = [
    "data.source={ kind = \"scenes\", train = 200, dev = 10, test = 10 }",
    "train.epochs=1",
    "train.batch_size=50",
    "schedule.warmup_steps=1",
    // The second backend is built without optimisation.
    "data.size=[32, 32]",
    "data.captions_per_image=1",
];
/// A small residual network.
const SMALL_RESNET: [&str; 2] = ["model.n_blocks=1", "model.widths=[8, 16]"];
/// A small encoder of scenes.
const SMALL_RESNET_ENCODER: [&str; 1] = ["model.encoder.widths=[8, 16]"];
const MINI_LM: &str = "model.path=\"../shared/models/all-MiniLM-L6-v2\"";
/// A small Vision Transformer.
const SMALL_VIT: [&str; 4] = ["model.d_model=32", "model.n_layers=2", "model.n_heads=2", "model.d_ff=64"];

/// The same of a translation run.
const SHORT_TRANSLATION: [&str; 6] = [
    "train.steps=2",
    // Devices round differently in bf16.
    "train.precision=\"f32\"",
    "train.batch_tokens=100",
    "schedule.warmup_steps=1",
    "tokenizer.vocab_size=100",
    "model.d_model=32",
];

/// What makes a model that translates small.
fn narrow(kind: &str) -> &'static [&'static str] {
    match kind {
        "recurrent" => &["model.d_embedding=16"],
        "transformer" => &["model.n_heads=2", "model.d_ff=64"],
        "convolutional" => &["model.d_embedding=16", "model.n_layers=2", "model.n_decoder_layers=2"],
        other => panic!("no small model is known of the kind {other}"),
    }
}

/// The configs' names in an order in which those that begin with what others leave come after them, with whether
/// they fine-tune.
fn in_order(configs: &BTreeMap<String, Table>) -> Vec<(&String, bool)> {
    // Those that probe train nothing.
    let runs = configs.iter().filter(|(_, config)| !config.contains_key("probe"));
    let names = runs.map(|(name, config)| (name, config.contains_key("task")));
    let (tuning, pretraining): (Vec<_>, Vec<_>) = names.partition(|(_, tunes)| *tunes);
    assert!(!tuning.is_empty() && !pretraining.is_empty());
    [pretraining, tuning].concat()
}

/// The command that runs a config for a few steps.
fn command(place: &Workplace, (name, config): (&String, &Table), out: &str, more: &[&str]) -> Command {
    let tunes = config.contains_key("task");
    let has = |section: &str, key: &str| config.get(section).is_some_and(|table| table.get(key).is_some());
    let translates = config.contains_key("parallel");
    let objective = config.get("objective").and_then(|objective| objective["kind"].as_str());
    let is_elmo = objective == Some("bidirectional-language-model");
    let is_of_images = workplace::is_of_images(config);
    let kind = config.get("model").and_then(|model| model.get("kind")).and_then(Value::as_str);
    let is_resnet = kind == Some("resnet");
    let is_of_running_text = is_elmo || matches!(objective, Some("left-to-right" | "permutation"));
    let mut sets = match (tunes, translates, is_of_running_text) {
        // Enough of the digits, which are there, for a few steps.
        (true, ..) if ["digits-vit", "mnist-vit"].contains(&&**name) => {
            vec!["train.epochs=1", "data.fraction=0.05", "schedule.warmup_steps=1"]
        }
        // A few scenes, drawn at once.
        (true, ..) if name.starts_with("scenes-") => SHORT_SCENES.to_vec(),
        (true, ..) => vec!["train.epochs=1", "schedule.warmup_steps=1"],
        _ if is_of_images => SHORT_IMAGES.to_vec(),
        (_, true, _) => SHORT_TRANSLATION.to_vec(),
        (.., true) => SHORT_LANGUAGE_MODEL.to_vec(),
        _ => SHORT.to_vec(),
    };
    if translates {
        sets.extend(narrow(config["model"]["kind"].as_str().unwrap()));
    }
    if let Some(encoder) = config.get("model").and_then(|model| model.get("encoder")) {
        match encoder["kind"].as_str() {
            Some("resnet") => sets.extend(SMALL_RESNET_ENCODER),
            other => panic!("no small encoder is known of the kind {other:?}"),
        }
    }
    sets.extend(has("train", "accumulate").then_some("train.accumulate=2"));
    // The stand-ins lie in the folder of development data.
    let path = config.get("model").and_then(|model| model.get("path")).and_then(Value::as_str);
    sets.extend(path.is_some_and(|path| path.ends_with("/all-MiniLM-L6-v2")).then_some(MINI_LM));
    // The stand-ins have two layers.
    sets.extend(has("model", "layers").then_some("model.layers=[1]"));
    sets.extend((translates && has("average", "every")).then_some("average.every=1"));
    // The stand-ins for captions have a line each, and are short: they are to be several documents.
    sets.extend(has("corpus", "languages").then_some("corpus.max_document_bytes=300"));
    let small: &[&str] = match config.contains_key("streams") {
        true => &SMALL_AWD_LSTM,
        false if is_elmo => &SMALL_ELMO,
        false if is_resnet => &SMALL_RESNET,
        false if is_of_images => &SMALL_VIT,
        false => &SMALL,
    };
    let small = small.iter().filter(|set| !set.starts_with("tokenizer.") || has("tokenizer", "vocab_size"));
    let is_new = !has("model", "path") && (!tunes || is_of_images);
    sets.extend(small.filter(|_| is_new && !translates));
    let path = format!("configs/{name}.toml");
    let mut args = vec!["train", &path, "--out", out];
    args.extend(sets.into_iter().flat_map(|set| ["--set", set]));
    args.extend(more);
    let mut command = Command::new(env!("CARGO_BIN_EXE_cloze"));
    command.args(&args).current_dir(place.root());
    command
}

/// Runs a config for a few steps, and returns its folder.
fn run(place: &Workplace, (name, config): (&String, &Table), out: &str, more: &[&str]) -> PathBuf {
    let ran = command(place, (name, config), out, more).output().unwrap();
    assert!(ran.status.success(), "{name}, {more:?}: {}", String::from_utf8_lossy(&ran.stderr));
    let folder = place.root().join(out);
    assert!(folder.join("model/model.safetensors").is_file(), "{name} leaves no model");
    let page = std::fs::read_to_string(folder.join("index.html")).unwrap();
    assert!(page.contains("href=\"model/\"") && page.contains("<svg class=\"chart\""), "{name}: {page}");
    folder
}

#[test]
fn every_config_runs() {
    let place = Workplace::new();
    let configs = place.configs();
    for (name, _) in in_order(&configs) {
        run(&place, (name, &configs[name]), &format!("runs/{name}"), &[]);
    }
}

/// Runs `cloze probe` with the config for probing, quickly, and returns its exit status and what it wrote to its streams.
fn probe(place: &Workplace, out: &str, more: &[&str]) -> (Option<i32>, String, String) {
    let sets =
        ["probe.epochs=1", "structure.epochs=1", "structure.rank=4", "probe.hidden=8", "geometry.pairs=50"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_cloze"));
    command.args(["probe", "configs/probe-ud-ewt.toml", "--out", out]);
    command.args(sets.iter().chain(more).flat_map(|set| ["--set", *set]));
    let ran = command.current_dir(place.root()).output().unwrap();
    let [out, err] = [ran.stdout, ran.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (ran.status.code(), out, err)
}

#[test]
fn the_config_for_probing_makes_the_same_report_twice() {
    let place = Workplace::new();
    let report = |out: &str| {
        let (status, tables, error) = probe(&place, out, &[]);
        assert_eq!(status, Some(0), "{error}");
        assert!(error.contains("states: "), "{error}");
        for title in
            ["part of speech", "word order", "dependency trees", "anisotropy", "similarity of sentences"]
        {
            assert!(tables.contains(title), "{title} is missing in {tables}");
        }
        let read = |name: &str| std::fs::read_to_string(place.root().join(out).join(name)).unwrap();
        (read("probe.json"), read("probe.html"))
    };
    let (json, page) = report("runs/probe-1");
    assert_eq!((json.clone(), page.clone()), report("runs/probe-2"));
    assert!(page.contains("<svg"));
    // The name of SVG's elements is an address that nobody opens.
    let opened = page.replace(r#"xmlns="http://www.w3.org/2000/svg""#, "");
    assert!(["<script", "http:", "https:", "src="].iter().all(|foreign| !opened.contains(foreign)));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["layers"], serde_json::json!([0, 1, 2]));
    // Capital letters tell the stand-in's parts of speech, so words do.
    let accuracies = json["panels"]["part of speech"]["linear: accuracy"].as_array().unwrap();
    assert_eq!(accuracies.len(), 3);
    let trees = json["panels"]["dependency trees"]["UUAS"].as_array().unwrap();
    assert!(trees.iter().all(|share| (0.0..=1.0).contains(&share.as_f64().unwrap())), "{trees:?}");
}

#[test]
fn what_cannot_be_probed_is_said_in_one_line() {
    let place = Workplace::new();
    for (name, text) in [("plain.conllu", "We go .\n\n"), ("empty.conllu", "")] {
        std::fs::write(place.root().join(name), text).unwrap();
    }
    let cases = [
        ("model.layers=[0, 9]", "`model.layers` is [0, 9]; expected numbers from 0, the embeddings, to 2"),
        ("data.train=[\"plain.conllu\"]", "1 column between tabs, expected 10"),
        ("data.dev=[\"empty.conllu\"]", "empty.conllu"),
        ("data.max_gib=1e-6", "`data.max_gib` is 0.000001, but the states need"),
        ("geometry.components=17", "`geometry.components` is 17; expected at most 16"),
        ("probe.tasks=[\"colour\"]", "expected one of"),
    ];
    for (set, expected) in cases {
        let (status, tables, error) = probe(&place, "runs/bad", &[set]);
        assert!(matches!(status, Some(1 | 2)) && tables.is_empty(), "{set}: {status:?}");
        let errors = error.lines().filter(|line| line.starts_with("error:")).count();
        assert!(errors == 1 && error.contains(expected), "{set}: {error}");
    }
}

/// What the file of several languages says is possible with it.
#[test]
fn languages_may_go_without_translations_or_with_embeddings_of_their_own() {
    let place = Workplace::new();
    let configs = place.configs();
    let name = "xlm-mini-multi30k".to_owned();
    let config = (&name, &configs[&name]);
    let types = |folder: PathBuf| {
        let text = std::fs::read_to_string(folder.join("model/config.json")).unwrap();
        let config: serde_json::Value = serde_json::from_str(&text).unwrap();
        config["type_vocab_size"].as_u64()
    };
    let alone = run(&place, config, "runs/alone", &["--set", "objective.kind=masked"]);
    assert_eq!(types(alone), Some(2));
    let embedded = run(&place, config, "runs/embedded", &["--set", "model.language_embeddings=true"]);
    assert_eq!(types(embedded), Some(3));
}

fn has_checkpoint(folder: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("step-"))
}

/// Each objective of pretraining keeps its random state, and whatever else it carries from step to step, in the
/// checkpoint.
#[test]
fn every_pretraining_config_goes_on_after_a_kill_with_the_same_bits() {
    let place = Workplace::new();
    let configs = place.configs();
    let mut kills = 0;
    for (name, tunes) in in_order(&configs) {
        let config = (name, &configs[name]);
        if tunes || config.1.get("model").is_some_and(|model| model.get("path").is_some()) {
            continue;
        }
        let length = if workplace::is_of_images(config.1) { "train.epochs=2" } else { "train.steps=6" };
        let sets = ["--set", length, "--set", "checkpoint.every=1"];
        let whole = run(&place, config, &format!("runs/{name}"), &sets);
        let out = format!("runs/{name}-killed");
        let mut child = command(&place, config, &out, &sets).stderr(Stdio::null()).spawn().unwrap();
        let checkpoints = place.root().join(&out).join("checkpoints");
        while !has_checkpoint(&checkpoints) && child.try_wait().unwrap().is_none() {
            sleep(Duration::from_micros(100));
        }
        child.kill().unwrap();
        kills += u32::from(!child.wait().unwrap().success());
        let resumed = run(&place, config, &out, &[&sets[..], &["--resume"]].concat());
        let [whole, resumed] =
            [whole, resumed].map(|run| std::fs::read(run.join("model/model.safetensors")).unwrap());
        assert!(whole == resumed, "{name}: another model after a kill");
    }
    assert!(kills >= 5, "only {kills} kills struck before the end");
}

/// The numbers of a run's metrics that tell how good the model is, in their order.
#[cfg(feature = "ndarray")]
fn losses(run: &Path) -> Vec<(String, f64)> {
    let metrics = std::fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let mut losses = Vec::new();
    for line in metrics.lines() {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        for figures in [&event, &event["figures"]["figures"]] {
            for name in ["loss", "grad_norm", "mse", "masked_loss"] {
                let what = format!("{} {} {name}", event["event"], event["step"]);
                losses.extend(figures[name].as_f64().map(|value| (what, value)));
            }
        }
    }
    losses
}

/// Without dropout, whose masks a device draws in its own way.
#[cfg(feature = "ndarray")]
#[test]
fn every_config_learns_the_same_on_a_second_backend() {
    let place = Workplace::new();
    let configs = place.configs();
    for (name, tunes) in in_order(&configs) {
        let config = &configs[name];
        let mut sets = vec!["log.every=1"];
        match tunes {
            // Those have none.
            true if name.starts_with("scenes-") => {}
            true if name == "cifar10-cnn" => {}
            true if workplace::is_of_images(config) => sets.push("model.stochastic_depth=0"),
            // Those have none.
            false if workplace::is_of_images(config) => {}
            true if config["model"].get("recurrent").is_some() => sets.push("model.recurrent.dropout=0"),
            // Its language model was trained without dropout.
            true if name.starts_with("ulmfit") => sets.push("model.dropout.head=0"),
            true if name.starts_with("elmo") => {
                sets.extend(["model.dropout.hidden=0", "model.dropout.head=0"]);
            }
            true => {
                sets.extend(["model.dropout.hidden=0", "model.dropout.attention=0"]);
                let kind = config["task"]["kind"].as_str().unwrap();
                let drops = !["answers", "prompt", "embedding"].contains(&kind);
                sets.extend(drops.then_some("model.dropout.head=0"));
            }
            false if config.contains_key("streams") => {
                sets.push("model.dropout={ word = 0, input = 0, weight = 0, hidden = 0, output = 0 }");
            }
            false if name.starts_with("elmo") => sets.push("model.dropout=0"),
            false if ["parallel", "segments", "denoising"].iter().any(|key| config.contains_key(*key)) => {
                sets.push("model.dropout=0");
            }
            false => sets.extend(["model.hidden_dropout=0", "model.attention_dropout=0"]),
        }
        let sets: Vec<&str> = sets.into_iter().flat_map(|set| ["--set", set]).collect();
        let first = losses(&run(&place, (name, config), &format!("runs/{name}"), &sets));
        let more = [&sets[..], &["--device", "ndarray"]].concat();
        let second = losses(&run(&place, (name, config), &format!("runs/{name}-2"), &more));
        assert!(first.len() >= 2, "{name}: {first:?}");
        assert_eq!(first.len(), second.len(), "{name}");
        for ((what, first), (_, second)) in first.into_iter().zip(second) {
            // The reward of hard attention is the difference of two sums that are rounded by themselves.
            let within = if name == "scenes-hard" { 1e-3 } else { 1e-4 };
            let near = (first - second).abs() <= within * first.abs().max(1.0);
            assert!(near, "{name}, {what}: {first} on the first, {second} on the second");
        }
    }
}

#[cfg(feature = "ndarray")]
#[test]
fn a_second_backend_says_that_it_cannot_recompute() {
    let place = Workplace::new();
    for name in ["bert-tiny-sample", "sst2"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cloze"));
        let config = format!("configs/{name}.toml");
        command.args(["train", &config, "--device", "ndarray", "--set", "train.recompute=true"]);
        let ran = command.current_dir(place.root()).output().unwrap();
        let error = String::from_utf8_lossy(&ran.stderr);
        let expected =
            "`train.recompute` is true; expected false on this device: only flex can recompute layers";
        assert!(!ran.status.success() && error.contains(expected), "{name}: {error}");
    }
}

#[test]
fn fine_tuning_takes_several_seeds_and_is_profiled() {
    let place = Workplace::new();
    let train = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cloze"));
        let ran = command.arg("train").args(args).current_dir(place.root()).output().unwrap();
        let [out, err] = [ran.stdout, ran.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        (ran.status.code(), out, err)
    };
    let seeds = ["configs/sst2.toml", "--set", "train.epochs=1", "--out", "runs/seeds", "--seeds", "7,2"];
    let (code, first, err) = train(&seeds);
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("± deviation") && err.contains("seed 2, 2 of 2"), "{err}");
    let model = place.root().join(first.trim_end());
    assert!(model.join("model.safetensors").is_file(), "{first}");
    assert!(place.root().join("runs/seeds/seeds.html").is_file());
    let (code, again, err) = train(&seeds);
    assert_eq!((code, again), (Some(0), first.clone()));
    assert_eq!(err.matches("done before").count(), 2, "{err}");

    // The model is in a folder of the run's.
    let of_run = Path::new(first.trim_end()).parent().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_cloze"));
    let ran = command.args(["predict", "--model"]).arg(of_run).current_dir(place.root()).output().unwrap();
    let expected =
        format!("error: {} is a run's folder: its model is in {}\n", of_run.display(), first.trim_end());
    assert_eq!((ran.status.code(), String::from_utf8(ran.stderr).unwrap()), (Some(2), expected));

    let (_, _, err) = train(&["configs/sst2.toml", "--set", "model.path=./no-model", "--out", "runs/none"]);
    assert!(err.starts_with("error: `model.path`: there is no folder \"./no-model\""), "{err}");
    let (code, _, err) = train(&["configs/sst2.toml", "--seeds", "1,1"]);
    assert_eq!((code, err.as_str()), (Some(2), "error: --seeds has a duplicate seed\n"));
    let sets = ["--set", "train.batch_size=2", "--set", "train.epochs=2"];
    let (code, _, err) =
        train(&[&["configs/sst2.toml", "--out", "runs/profiled", "--profile", "6"], &sets[..]].concat());
    assert_eq!(code, Some(0), "{err}");
    let table = err.split_once("profile of 6 steps").expect("a profile").1;
    for row in ["step", "forward", "backward", "update", "everything else"] {
        assert!(table.contains(row), "{row}: {err}");
    }
    let trace = std::fs::read_to_string(place.root().join("runs/profiled/trace.json")).unwrap();
    let events: Vec<serde_json::Value> = serde_json::from_str(&trace).unwrap();
    assert_eq!(events.iter().filter(|event| event["name"] == "step" && event["ph"] == "B").count(), 6);
}

/// The stand-in for a checkpoint makes embeddings of sentences.
#[test]
fn a_sentence_encoder_that_is_pretrained_on_stays_one() {
    let place = Workplace::new();
    let configs = place.configs();
    let checkpoint = place.root().join(configs["domain-mlm"]["model"]["path"].as_str().unwrap());
    let mut modules = SentenceConfig::default();
    (modules.pooling_modes, modules.normalize) = (vec!["cls".into()], true);
    let shape: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(checkpoint.join("config.json")).unwrap()).unwrap();
    modules.save(&checkpoint, shape["hidden_size"].as_u64().unwrap() as usize).unwrap();
    let config = configs.get_key_value("domain-mlm").unwrap();
    let ran = command(&place, config, "runs/domain", &[]).output().unwrap();
    let told = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{told}");
    assert!(
        told.contains("which get worse by pretraining. Its pooling and normalisation are kept"),
        "{told}"
    );
    let kept = SentenceConfig::load(&place.root().join("runs/domain/model")).unwrap().unwrap();
    assert_eq!((kept.pooling_modes, kept.normalize), (modules.pooling_modes, true));
}

#[test]
fn pretraining_takes_several_seeds_and_ends_early() {
    let place = Workplace::new();
    let folder = |name: &str| place.root().join(name);
    let seeds = ["--set", "eval.every=1", "--set", "train.steps=4", "--seeds", "5,3"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_cloze"));
    let sets = SHORT.iter().flat_map(|set| ["--set", set]);
    command.args(["train", "configs/domain-mlm.toml", "--out", "runs/seeds"]).args(sets).args(seeds);
    let ran = command.current_dir(place.root()).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let text = std::fs::read_to_string(folder("runs/seeds/seeds.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["heldout"]["figures"]["masked_loss"]["runs"], 2);
    let best = format!("runs/seeds/seed-{}/model\n", json["best"]);
    assert_eq!(String::from_utf8(ran.stdout).unwrap(), best);
    let page = std::fs::read_to_string(folder("runs/seeds/seed-5/report/heldout/report.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("unigram_loss"));

    // A rate this high only makes it worse: the untrained model's successors are not waited for long.
    let configs = place.configs();
    let (name, config) = configs.get_key_value("domain-mlm").unwrap();
    let sets = ["optimizer.lr=1.0", "train.steps=60", "eval.every=2", "eval.patience=2"];
    let sets: Vec<&str> = sets.into_iter().flat_map(|set| ["--set", set]).collect();
    let run = run(&place, (name, config), "runs/early", &sets);
    let metrics = std::fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let last: serde_json::Value = serde_json::from_str(metrics.lines().last().unwrap()).unwrap();
    assert!(last["step"].as_u64().unwrap() < 60, "{last}");
}
