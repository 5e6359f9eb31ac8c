//! Every run in `configs/` resolves, reads back as itself, and says what its file claims; `configs/README.md` has
//! every key there is, and no other.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::path::{Path, PathBuf};

use cloze_data::DenoisingConfig;
use cloze_trainer::Place;
use cloze_trainer::config::{
    AwdLstmRun, AwdLstmRunConfig, ConfigFile, DenoisingRun, DenoisingRunConfig, ElmoRun, ElmoRunConfig,
    FolderConfig, LanguageModelConfig, LanguageModelRun, ModelPreset, PermutationConfig, PermutationRun,
    Pretraining, RunConfig,
};
use cloze_trainer::engine::Plan;
use cloze_trainer::engine::schedule::Schedule;
use cloze_trainer::finetune::{FineTuneConfig, FineTuneRun};
use cloze_trainer::probing::ProbeConfig;
use cloze_trainer::runs::{KINDS, RunKind, plan_of};
use cloze_trainer::translation::{TranslationConfig, TranslationRun};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs")
}

fn paths() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder()).expect("the folder is there");
    let paths = entries.map(|entry| entry.expect("it can be listed").path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "toml")).collect()
}

fn load(name: &str) -> RunConfig {
    RunConfig::load(folder().join(name), &[]).unwrap_or_else(|error| panic!("{error}"))
}

/// The names of all configs of a kind. Each resolves, has its file's name, and reads back as itself.
fn read_back<K: RunKind + PartialEq + Debug>() -> Vec<String> {
    let mut names = Vec::new();
    for path in paths() {
        let file = ConfigFile::open(&path).unwrap();
        if !K::is_of(&file) || file.has("probe") {
            continue;
        }
        let config = K::read(&file, &[]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(path.file_stem().unwrap(), config.name());
        let resolved = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
        std::fs::write(&resolved, config.to_toml()).unwrap();
        let again = ConfigFile::open(resolved.path()).and_then(|file| K::read(&file, &[]));
        let again = again.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(again, config);
        assert_eq!(again.fingerprint(), config.fingerprint());
        names.push(config.name().to_owned());
    }
    names.sort();
    names
}

#[test]
fn every_config_resolves_and_reads_back_as_itself() {
    let encoders = read_back::<Pretraining>();
    let expected = [
        "albert-mini-corpus",
        "bert-base",
        "bert-mini-corpus",
        "bert-tiny-sample",
        "domain-mlm",
        "electra-mini-corpus",
        "modernbert-mini-corpus",
        "roberta-base",
        "spanbert-mini-corpus",
        "unilm-mini-corpus",
        "xlm-mini-multi30k",
    ];
    let (tuned, translating) = (read_back::<FineTuneRun>(), read_back::<TranslationRun>());
    assert_eq!(encoders, expected);
    let left_to_right = read_back::<LanguageModelRun>();
    let expected = ["gpt-char-sample", "gpt-mini-corpus", "gpt-shakespeare-char", "llama-mini-corpus"];
    assert_eq!(left_to_right, expected);
    let denoising = read_back::<DenoisingRun>();
    assert_eq!(denoising, ["bart-mini-corpus", "t5-mini-corpus"]);
    let others = [
        read_back::<AwdLstmRun>(),
        read_back::<ElmoRun>(),
        read_back::<PermutationRun>(),
        tuned,
        translating,
    ];
    assert!(others.iter().all(|names| !names.is_empty()), "{others:?}");
    let mut probes = 0;
    for path in paths() {
        let file = ConfigFile::open(&path).unwrap();
        if file.has("probe") {
            probes += 1;
            continue;
        }
        // Whatever the order of the kinds, one takes the file.
        let mut kinds = KINDS;
        let plan = plan_of(&file, &[], &kinds).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(path.file_stem().unwrap(), plan.name());
        kinds.reverse();
        let plan = plan_of(&file, &[], &kinds).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(path.file_stem().unwrap(), plan.name());
    }
    let named = [encoders.len(), left_to_right.len(), denoising.len()].iter().sum::<usize>();
    let named = named + others.iter().map(Vec::len).sum::<usize>();
    assert_eq!(named + probes, paths().len());
}

#[test]
fn an_objective_that_no_kind_has_is_told_with_all_that_there_are() {
    let text = "[objective]\nkind = \"left-to-rigth\"\n[blocks]\nseq_len = 8\n";
    let file = ConfigFile::parse(text, "x", &Place::file(Path::new("x.toml"))).unwrap();
    let Err(error) = plan_of(&file, &[], &KINDS) else { panic!("it is taken") };
    let message = error.to_string();
    assert!(
        message.starts_with("x.toml:2: `objective.kind` is \"left-to-rigth\"; expected one of"),
        "{message}"
    );
    assert!(message.ends_with("did you mean \"left-to-right\"?"), "{message}");
}

#[test]
fn the_denoising_configs_have_the_papers_noise() {
    let load = |name: &str| {
        DenoisingRunConfig::load(folder().join(name), &[]).unwrap_or_else(|error| panic!("{error}"))
    };
    assert_eq!(load("bart-mini-corpus.toml").denoising, DenoisingConfig::default());
    let t5 = load("t5-mini-corpus.toml");
    assert!(
        matches!(t5.denoising, DenoisingConfig::T5 { density: 0.15, mean_span: 3.0 }),
        "{:?}",
        t5.denoising
    );
}

#[test]
fn every_probing_config_resolves_and_reads_back_as_itself() {
    let is_probe = |path: &PathBuf| ConfigFile::open(path).unwrap().has("probe");
    let paths: Vec<PathBuf> = paths().into_iter().filter(is_probe).collect();
    assert!(!paths.is_empty());
    for path in paths {
        let config = ProbeConfig::load(&path, &[]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(path.file_stem().unwrap(), config.run.name.as_str());
        let resolved = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
        std::fs::write(&resolved, config.to_toml()).unwrap();
        assert_eq!(ProbeConfig::load(resolved.path(), &[]).unwrap(), config);
    }
}

#[test]
fn bert_base_is_the_papers() {
    let config = load("bert-base.toml");
    let model = config.model.as_new().unwrap();
    assert_eq!(model.preset, Some(ModelPreset::Base));
    assert_eq!((model.n_layers, model.d_model, model.n_heads, model.d_ff), (12, 768, 12, 3072));
    assert_eq!(config.train.batch_size * config.train.accumulate, 256);
    // Half-way down the decay, at step (1,000,001 + 10,000) / 2, the rate is half the peak.
    let rate = config.common.schedule.learning_rate(config.common.optimizer.lr, 505_000, config.train.steps);
    assert!((rate - 0.5e-4).abs() < 1e-9, "{rate}");
}

#[test]
fn roberta_base_is_the_papers() {
    let config = load("roberta-base.toml");
    assert_eq!(config.train.batch_size * config.train.accumulate, 8_192);
    assert_eq!((config.common.optimizer.beta2, config.common.optimizer.clip_norm), (0.98, 0.0));
    assert_eq!(config.common.schedule, Schedule::Linear { warmup_steps: 24_000, final_fraction: 0.0 });
}

#[test]
fn the_default_run_needs_nothing_from_outside_the_repository() {
    for file in &load("bert-tiny-sample.toml").corpus.files {
        let path = folder().join("..").join(file);
        assert!(path.is_file(), "{} is missing", path.display());
    }
}

/// Every table of a config: the part of the reference that has its section, the `--set`s that choose its kind, and
/// the `--set` that puts a key into it which there is not.
const TABLES: &[(&str, &[&str], &str)] = &[
    ("Both", &[], "run.zzzzzzzz=1"),
    ("Both", &[], "optimizer.zzzzzzzz=1"),
    ("Both", &[], "optimizer.groups=[{ parameters = \"*\", zzzzzzzz = 1 }]"),
    ("Both", &["schedule.kind=linear"], "schedule.zzzzzzzz=1"),
    ("Both", &["schedule.kind=cosine"], "schedule.zzzzzzzz=1"),
    ("Both", &["schedule.kind=constant"], "schedule.zzzzzzzz=1"),
    ("Both", &["schedule.kind=inverse-sqrt"], "schedule.zzzzzzzz=1"),
    ("Both", &["schedule={kind=\"trapezoidal\", decay_steps=9}"], "schedule.zzzzzzzz=1"),
    ("Both", &["schedule.kind=slanted-triangular"], "schedule.zzzzzzzz=1"),
    ("Both", &["average={kind=\"ema\", decay=0.9}"], "average.zzzzzzzz=1"),
    ("Both", &["average={kind=\"last\", checkpoints=2, every=3}"], "average.zzzzzzzz=1"),
    ("Both", &["average={kind=\"best\", checkpoints=2}"], "average.zzzzzzzz=1"),
    ("Both", &[], "checkpoint.zzzzzzzz=1"),
    ("Both", &[], "log.zzzzzzzz=1"),
    ("Pretraining", &["objective.kind=replaced-tokens"], "objective.zzzzzzzz=1"),
    ("Pretraining", &["objective.kind=translation-language-model"], "objective.zzzzzzzz=1"),
    (
        "Pretraining",
        &["objective.kind=translation-language-model"],
        "objective.parallel=[{ languages = [\"a\", \"b\"], text = {}, zzzzzzzz = 1 }]",
    ),
    ("Pretraining", &[], "corpus.zzzzzzzz=1"),
    ("Pretraining", &[], "corpus.languages=[{ name = \"en\", zzzzzzzz = 1 }]"),
    ("Pretraining", &["tokenizer.kind=train-wordpiece"], "tokenizer.zzzzzzzz=1"),
    ("Pretraining", &["tokenizer.kind=train-byte-bpe"], "tokenizer.zzzzzzzz=1"),
    ("Pretraining", &["tokenizer.kind=load"], "tokenizer.zzzzzzzz=1"),
    ("Pretraining", &[], "examples.zzzzzzzz=1"),
    ("Pretraining", &["examples.pairs.kind=next-sentence"], "examples.pairs.zzzzzzzz=1"),
    ("Pretraining", &["examples.pairs.kind=sentence-order"], "examples.pairs.zzzzzzzz=1"),
    ("Pretraining", &[], "examples.masking.zzzzzzzz=1"),
    ("Pretraining", &[], "examples.attention.zzzzzzzz=1"),
    ("Pretraining", &[], "model.zzzzzzzz=1"),
    ("Pretraining", &["model.path=a", "tokenizer.kind=checkpoint"], "model.zzzzzzzz=1"),
    ("Pretraining", &[], "train.zzzzzzzz=1"),
    ("Pretraining", &[], "eval.zzzzzzzz=1"),
    ("Language models", &[], "corpus.zzzzzzzz=1"),
    ("Language models", &[], "blocks.zzzzzzzz=1"),
    ("Language models", &[], "model.zzzzzzzz=1"),
    ("Language models", &["model.shape=llama"], "model.rotary.zzzzzzzz=1"),
    (
        "Language models",
        &["model.shape=llama", "model.rotary={ scaling = { kind = \"linear\", factor = 2.0 } }"],
        "model.rotary.scaling.zzzzzzzz=1",
    ),
    (
        "Language models",
        &["model.shape=llama", "model.rotary={ scaling = { kind = \"llama3\" } }"],
        "model.rotary.scaling.zzzzzzzz=1",
    ),
    ("Language models", &["model={ path = \"a\" }", "tokenizer.kind=checkpoint"], "model.zzzzzzzz=1"),
    ("Language models", &[], "train.zzzzzzzz=1"),
    ("Language models", &[], "eval.zzzzzzzz=1"),
    ("AWD-LSTM", &[], "streams.zzzzzzzz=1"),
    ("AWD-LSTM", &[], "model.zzzzzzzz=1"),
    ("AWD-LSTM", &[], "model.dropout.zzzzzzzz=1"),
    ("AWD-LSTM", &[], "regularisation.zzzzzzzz=1"),
    ("ELMo", &[], "model.zzzzzzzz=1"),
    ("XLNet", &[], "segments.zzzzzzzz=1"),
    ("XLNet", &[], "model.zzzzzzzz=1"),
    ("XLNet", &["model={ path = \"a\" }", "tokenizer.kind=checkpoint"], "model.zzzzzzzz=1"),
    ("Denoising", &[], "examples.zzzzzzzz=1"),
    ("Denoising", &["denoising.kind=bart"], "denoising.zzzzzzzz=1"),
    ("Denoising", &["denoising={ kind = \"t5\" }"], "denoising.zzzzzzzz=1"),
    ("Denoising", &[], "denoising.noises=[{ kind = \"infilling\", zzzzzzzz = 1 }]"),
    ("Denoising", &[], "denoising.noises=[{ kind = \"substitution\", zzzzzzzz = 1 }]"),
    ("Denoising", &[], "denoising.noises=[{ kind = \"reordering\", zzzzzzzz = 1 }]"),
    ("Denoising", &[], "denoising.noises=[{ kind = \"rotation\", zzzzzzzz = 1 }]"),
    ("Denoising", &["model.kind=bart"], "model.zzzzzzzz=1"),
    ("Denoising", &["model.kind=t5"], "model.zzzzzzzz=1"),
    ("Fine-tuning", &["task.kind=classification"], "task.zzzzzzzz=1"),
    ("Fine-tuning", &["task.kind=multi-label"], "task.zzzzzzzz=1"),
    ("Fine-tuning", &["task.kind=regression"], "task.zzzzzzzz=1"),
    ("Fine-tuning", &["task.kind=tagging"], "task.zzzzzzzz=1"),
    ("Fine-tuning", &["task.kind=answers"], "task.zzzzzzzz=1"),
    ("Fine-tuning", &["task.kind=prompt"], "task.zzzzzzzz=1"),
    ("Fine-tuning", &["task={ kind = \"embedding\", loss = { kind = \"cosent\" } }"], "task.zzzzzzzz=1"),
    ("Fine-tuning", &[], "model.zzzzzzzz=1"),
    ("Fine-tuning", &[], "model.dropout.zzzzzzzz=1"),
    ("Fine-tuning", &[], "model.recurrent.zzzzzzzz=1"),
    ("Fine-tuning", &[], "model.lora.zzzzzzzz=1"),
    ("Fine-tuning", &[], "data.zzzzzzzz=1"),
    ("Fine-tuning", &[], "data.train.zzzzzzzz=1"),
    ("Fine-tuning", &[], "train.zzzzzzzz=1"),
    ("Fine-tuning", &[], "eval.zzzzzzzz=1"),
    ("Translation", &[], "parallel.zzzzzzzz=1"),
    ("Translation", &[], "parallel.train.zzzzzzzz=1"),
    ("Translation", &["parallel.train.columns={source=1, target=2}"], "parallel.train.columns.zzzzzzzz=1"),
    ("Translation", &["tokenizer={kind=\"train-bpe\", vocab_size=99}"], "tokenizer.zzzzzzzz=1"),
    ("Translation", &["tokenizer={kind=\"train-unigram\", vocab_size=99}"], "tokenizer.zzzzzzzz=1"),
    ("Translation", &["tokenizer={kind=\"load\", path=\"a\"}"], "tokenizer.zzzzzzzz=1"),
    ("Translation", &["model.kind=recurrent"], "model.zzzzzzzz=1"),
    ("Translation", &["model.kind=transformer"], "model.zzzzzzzz=1"),
    ("Translation", &["model.kind=convolutional"], "model.zzzzzzzz=1"),
    ("Translation", &[], "train.zzzzzzzz=1"),
    ("Translation", &[], "eval.zzzzzzzz=1"),
    ("Probing", &[], "model.zzzzzzzz=1"),
    ("Probing", &[], "data.zzzzzzzz=1"),
    ("Probing", &[], "probe.zzzzzzzz=1"),
    ("Probing", &[], "structure.zzzzzzzz=1"),
    ("Probing", &[], "geometry.zzzzzzzz=1"),
];

/// What stands between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The keys that a table may have, as the refusal of another one lists them.
fn keys(part: &str, sets: &[&str], unknown: &str) -> Vec<String> {
    let sets: Vec<String> = sets.iter().chain([&unknown]).map(|set| (*set).to_owned()).collect();
    let error = match part {
        "Fine-tuning" => FineTuneConfig::load(folder().join("sst2.toml"), &sets).err(),
        "Denoising" => DenoisingRunConfig::load(folder().join("bart-mini-corpus.toml"), &sets).err(),
        "Language models" => LanguageModelConfig::load(folder().join("gpt-mini-corpus.toml"), &sets).err(),
        "AWD-LSTM" => AwdLstmRunConfig::load(folder().join("ulmfit-mini-corpus.toml"), &sets).err(),
        "ELMo" => ElmoRunConfig::load(folder().join("elmo-mini-corpus.toml"), &sets).err(),
        "XLNet" => PermutationConfig::load(folder().join("xlnet-mini-corpus.toml"), &sets).err(),
        "Probing" => ProbeConfig::load(folder().join("probe-ud-ewt.toml"), &sets).err(),
        "Translation" => TranslationConfig::load(folder().join("multi30k-rnn-attention.toml"), &sets).err(),
        _ => RunConfig::load(folder().join("bert-tiny-sample.toml"), &sets).err(),
    };
    let error = error.unwrap_or_else(|| panic!("{unknown} is taken")).to_string();
    let (_, known) = error.split_once("; expected one of ").unwrap_or_else(|| panic!("{error}"));
    quoted(known).map(str::to_owned).collect()
}

#[test]
fn the_reference_has_every_key_and_no_other() {
    let reference = std::fs::read_to_string(folder().join("README.md")).unwrap();
    let mut sections: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    let (mut part, mut section) = ("", "");
    for line in reference.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            part = heading;
        } else if let Some(heading) = line.strip_prefix("### `[") {
            section = heading.trim_end_matches("]`");
        } else if line.starts_with('|') {
            sections.entry((part, section)).or_default().push(line);
        }
    }

    let mut known: BTreeMap<(&str, &str), BTreeSet<String>> = BTreeMap::new();
    for (part, sets, unknown) in TABLES {
        let table = unknown.split('=').next().unwrap().trim_end_matches(".zzzzzzzz");
        let section = table.split('.').next().unwrap();
        let rows = sections.get(&(*part, section)).unwrap_or_else(|| panic!("no [{section}] in {part}"));
        for key in keys(part, sets, unknown) {
            let found =
                rows.iter().flat_map(|row| quoted(row)).any(|name| name.split('.').any(|part| part == key));
            assert!(found, "configs/README.md lacks `{table}.{key}`");
            known.entry((*part, section)).or_default().insert(key);
        }
    }
    for ((part, section), rows) in sections {
        for row in rows {
            for name in quoted(row.split('|').nth(1).unwrap()) {
                let key = name.rsplit('.').next().unwrap();
                let known = known.get(&(part, section)).is_some_and(|known| known.contains(key));
                assert!(known || key == "kind", "{part}: [{section}] has no key `{name}`");
            }
        }
    }
}
