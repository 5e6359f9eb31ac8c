//! The reference of config keys, which is made from comments and code without running either, says what serde
//! does.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use cloze_model::huggingface::Family;
use cloze_trainer::captions::{CaptionRun, CaptionRunConfig};
use cloze_trainer::config::{
    AwdLstmRun, AwdLstmRunConfig, ConfigFile, DenoisingRun, DenoisingRunConfig, ElmoRun, ElmoRunConfig,
    FolderConfig, LanguageModelConfig, LanguageModelRun, PermutationConfig, PermutationRun, Pretraining,
    RunConfig,
};
use cloze_trainer::finetune::{FineTuneConfig, FineTuneRun};
use cloze_trainer::images::{
    ContrastiveViewsRun, ContrastiveViewsRunConfig, ImageRun, ImageRunConfig, MaskedPatchesRun,
    MaskedPatchesRunConfig,
};
use cloze_trainer::probing::ProbeConfig;
use cloze_trainer::runs::RunKind;
use cloze_trainer::translation::{TranslationConfig, TranslationRun};
use config_keys::{COMMON, DefaultValue, Found, Reference};
use toml::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn reference() -> Reference {
    Reference::read(&root()).unwrap_or_else(|error| panic!("{error:#}"))
}

/// Tables of configs: the kind of run, the `--set`s that choose the table's kind, and the `--set` that puts a
/// key into it which there is not.
const TABLES: &[(&str, &[&str], &str)] = &[
    (COMMON, &[], "run.zzzzzzzz=1"),
    (COMMON, &[], "optimizer.zzzzzzzz=1"),
    (COMMON, &[], "optimizer.groups=[{ parameters = \"*\", zzzzzzzz = 1 }]"),
    (COMMON, &["schedule.kind=linear"], "schedule.zzzzzzzz=1"),
    (COMMON, &["schedule.kind=cosine"], "schedule.zzzzzzzz=1"),
    (COMMON, &["schedule.kind=constant"], "schedule.zzzzzzzz=1"),
    (COMMON, &["schedule.kind=inverse-sqrt"], "schedule.zzzzzzzz=1"),
    (COMMON, &["schedule={kind=\"trapezoidal\", decay_steps=9}"], "schedule.zzzzzzzz=1"),
    (COMMON, &["schedule.kind=slanted-triangular"], "schedule.zzzzzzzz=1"),
    (COMMON, &["average={kind=\"ema\", decay=0.9}"], "average.zzzzzzzz=1"),
    (COMMON, &["average={kind=\"last\", checkpoints=2, every=3}"], "average.zzzzzzzz=1"),
    (COMMON, &["average={kind=\"best\", checkpoints=2}"], "average.zzzzzzzz=1"),
    (COMMON, &[], "checkpoint.zzzzzzzz=1"),
    (COMMON, &[], "log.zzzzzzzz=1"),
    (COMMON, &[], "ranks.zzzzzzzz=1"),
    ("Pretraining", &["objective.kind=replaced-tokens"], "objective.zzzzzzzz=1"),
    ("Pretraining", &["objective.kind=translation-language-model"], "objective.zzzzzzzz=1"),
    (
        "Pretraining",
        &["objective.kind=translation-language-model"],
        "objective.parallel=[{ languages = [\"a\", \"b\"], text = {}, zzzzzzzz = 1 }]",
    ),
    (
        "Pretraining",
        &["objective.kind=translation-language-model"],
        "objective.parallel=[{ languages = [\"a\", \"b\"], text = { zzzzzzzz = 1 } }]",
    ),
    ("Pretraining", &[], "corpus.zzzzzzzz=1"),
    ("Pretraining", &[], "corpus.languages=[{ name = \"en\", zzzzzzzz = 1 }]"),
    ("Pretraining", &["tokenizer.kind=train-wordpiece"], "tokenizer.zzzzzzzz=1"),
    ("Pretraining", &["tokenizer.kind=train-byte-bpe"], "tokenizer.zzzzzzzz=1"),
    ("Pretraining", &["tokenizer.kind=load"], "tokenizer.zzzzzzzz=1"),
    ("Pretraining", &["distillation.teacher=a"], "distillation.zzzzzzzz=1"),
    ("Pretraining", &["distillation.teacher=a"], "distillation.inner.zzzzzzzz=1"),
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
    (
        "Language models",
        &["model.shape=llama", "model.rotary={ scaling = { kind = \"yarn\" } }"],
        "model.rotary.scaling.zzzzzzzz=1",
    ),
    (
        "Language models",
        &["model.shape=llama", "model.rotary={ scaling = { kind = \"long-rope\" } }"],
        "model.rotary.scaling.zzzzzzzz=1",
    ),
    ("Language models", &["model={ path = \"a\" }", "tokenizer.kind=checkpoint"], "model.zzzzzzzz=1"),
    ("Language models", &["tokenizer={ kind = \"train-words\", vocab_size = 99 }"], "tokenizer.zzzzzzzz=1"),
    ("Language models", &["tokenizer={ kind = \"load\", path = \"a\" }"], "tokenizer.zzzzzzzz=1"),
    ("Language models", &["model.output={ kind = \"sampled\", samples = 9 }"], "model.output.zzzzzzzz=1"),
    ("Language models", &["model.output={ kind = \"adaptive\", cutoffs = [9] }"], "model.output.zzzzzzzz=1"),
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
    ("Denoising", &["model={ kind = \"transformer\" }"], "model.zzzzzzzz=1"),
    ("Denoising", &["model={ kind = \"recurrent\" }"], "model.zzzzzzzz=1"),
    ("Denoising", &["model={ kind = \"convolutional\" }"], "model.zzzzzzzz=1"),
    ("Fine-tuning", &["task.kind=classification"], "task.zzzzzzzz=1"),
    ("Fine-tuning", &["task.kind=multi-label"], "task.zzzzzzzz=1"),
    ("Fine-tuning", &["task.kind=regression"], "task.zzzzzzzz=1"),
    ("Fine-tuning", &["task.kind=tagging"], "task.zzzzzzzz=1"),
    ("Fine-tuning", &["task.kind=answers"], "task.zzzzzzzz=1"),
    ("Fine-tuning", &["task.kind=prompt"], "task.zzzzzzzz=1"),
    ("Fine-tuning", &["task={ kind = \"embedding\", loss = { kind = \"cosent\" } }"], "task.zzzzzzzz=1"),
    (
        "Fine-tuning",
        &["task={ kind = \"embedding\", loss = { kind = \"cosent\" } }"],
        "task.prompts.zzzzzzzz=1",
    ),
    (
        "Fine-tuning",
        &["task={ kind = \"embedding\", loss = { kind = \"cosent\" }, matryoshka = { dims = [8] } }"],
        "task.matryoshka.zzzzzzzz=1",
    ),
    (
        "Fine-tuning",
        &["task={ kind = \"embedding\", loss = { kind = \"in-batch-negatives\" } }"],
        "task.loss.zzzzzzzz=1",
    ),
    (
        "Fine-tuning",
        &["task={ kind = \"embedding\", loss = { kind = \"guided-negatives\" } }"],
        "task.loss.zzzzzzzz=1",
    ),
    (
        "Fine-tuning",
        &["task={ kind = \"embedding\", loss = { kind = \"triplet\" } }"],
        "task.loss.zzzzzzzz=1",
    ),
    ("Fine-tuning", &["task={ kind = \"embedding\", loss = { kind = \"cosine\" } }"], "task.loss.zzzzzzzz=1"),
    (
        "Fine-tuning",
        &["task={ kind = \"embedding\", loss = { kind = \"distillation\", teacher = \"a\" } }"],
        "task.loss.zzzzzzzz=1",
    ),
    ("Fine-tuning", &[], "model.zzzzzzzz=1"),
    ("Fine-tuning", &[], "model.dropout.zzzzzzzz=1"),
    ("Fine-tuning", &[], "model.recurrent.zzzzzzzz=1"),
    ("Fine-tuning", &[], "model.lora.zzzzzzzz=1"),
    ("Fine-tuning", &["distillation.teacher=a"], "distillation.zzzzzzzz=1"),
    ("Fine-tuning", &["distillation.teacher=a"], "distillation.inner.zzzzzzzz=1"),
    ("Fine-tuning", &["quantization.weights=int8"], "quantization.zzzzzzzz=1"),
    ("Fine-tuning", &["pruning.kind=magnitude"], "pruning.zzzzzzzz=1"),
    ("Fine-tuning", &["pruning.kind=random"], "pruning.zzzzzzzz=1"),
    ("Fine-tuning", &["pruning.kind=movement"], "pruning.zzzzzzzz=1"),
    ("Fine-tuning", &["pruning.kind=gates"], "pruning.zzzzzzzz=1"),
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
    ("Images", &[], "task.zzzzzzzz=1"),
    ("Images", &[], "model.zzzzzzzz=1"),
    ("Images", &["model={ kind = \"pretrained\", path = \"a\" }"], "model.zzzzzzzz=1"),
    ("Images", &["model={ kind = \"resnet\", n_blocks = 1 }"], "model.zzzzzzzz=1"),
    ("Images", &[], "data.zzzzzzzz=1"),
    ("Images", &[], "augment.zzzzzzzz=1"),
    ("Images", &["augment.crop={ kind = \"padded\", padding = 1 }"], "augment.crop.zzzzzzzz=1"),
    ("Images", &["augment.crop={ kind = \"resized\" }"], "augment.crop.zzzzzzzz=1"),
    ("Images", &[], "augment.jitter.zzzzzzzz=1"),
    ("Images", &[], "augment.rand_augment.zzzzzzzz=1"),
    ("Images", &[], "augment.erasing.zzzzzzzz=1"),
    ("Images", &[], "mix.zzzzzzzz=1"),
    ("Images", &["distillation.teacher=a"], "distillation.zzzzzzzz=1"),
    ("Images", &[], "train.zzzzzzzz=1"),
    ("Images", &[], "eval.zzzzzzzz=1"),
    ("Captions", &[], "task.zzzzzzzz=1"),
    ("Captions", &[], "model.zzzzzzzz=1"),
    ("Captions", &[], "model.encoder.zzzzzzzz=1"),
    (
        "Captions",
        &["model.encoder={ kind = \"vit\", patch_size = 8, n_layers = 1, d_model = 8, n_heads = 1 }"],
        "model.encoder.zzzzzzzz=1",
    ),
    ("Captions", &["model.encoder={ kind = \"resnet\", n_blocks = 1 }"], "model.encoder.zzzzzzzz=1"),
    ("Captions", &["model.encoder={ kind = \"pretrained\", path = \"a\" }"], "model.encoder.zzzzzzzz=1"),
    ("Captions", &[], "model.decoder.zzzzzzzz=1"),
    (
        "Captions",
        &["model.decoder={ kind = \"transformer\", n_layers = 1, d_model = 8, n_heads = 1 }"],
        "model.decoder.zzzzzzzz=1",
    ),
    ("Captions", &["model={ kind = \"pretrained\", path = \"x\" }"], "model.zzzzzzzz=1"),
    ("Captions", &[], "data.zzzzzzzz=1"),
    ("Captions", &[], "data.source.zzzzzzzz=1"),
    (
        "Captions",
        &["data.source={ kind = \"tables\", train = { files = [\"a\"] } }"],
        "data.source.zzzzzzzz=1",
    ),
    ("Captions", &[], "eval.zzzzzzzz=1"),
    ("Masked patches", &[], "objective.zzzzzzzz=1"),
    ("Masked patches", &[], "model.zzzzzzzz=1"),
    ("Masked patches", &[], "model.decoder.zzzzzzzz=1"),
    ("Contrastive views", &[], "objective.zzzzzzzz=1"),
    ("Contrastive views", &[], "model.zzzzzzzz=1"),
    ("Contrastive views", &["model={ kind = \"resnet\", n_blocks = 1 }"], "model.zzzzzzzz=1"),
    ("Probing", &[], "model.zzzzzzzz=1"),
    ("Probing", &[], "data.zzzzzzzz=1"),
    ("Probing", &[], "probe.zzzzzzzz=1"),
    ("Probing", &[], "structure.zzzzzzzz=1"),
    ("Probing", &[], "geometry.zzzzzzzz=1"),
    ("Probing", &[], "geometry.similarity.zzzzzzzz=1"),
];

/// The keys that a table may have, as the refusal of another one lists them.
fn keys(title: &str, sets: &[&str], unknown: &str) -> BTreeSet<String> {
    let sets: Vec<String> = sets.iter().chain([&unknown]).map(|set| (*set).to_owned()).collect();
    let file = |name: &str| root().join("configs").join(name);
    let error = match title {
        "Fine-tuning" => FineTuneConfig::load(file("sst2.toml"), &sets).err(),
        "Denoising" => DenoisingRunConfig::load(file("bart-mini-corpus.toml"), &sets).err(),
        "Language models" => LanguageModelConfig::load(file("gpt-mini-corpus.toml"), &sets).err(),
        "AWD-LSTM" => AwdLstmRunConfig::load(file("ulmfit-mini-corpus.toml"), &sets).err(),
        "ELMo" => ElmoRunConfig::load(file("elmo-mini-corpus.toml"), &sets).err(),
        "XLNet" => PermutationConfig::load(file("xlnet-mini-corpus.toml"), &sets).err(),
        "Probing" => ProbeConfig::load(file("probe-ud-ewt.toml"), &sets).err(),
        "Images" => ImageRunConfig::load(file("digits-vit.toml"), &sets).err(),
        "Captions" => CaptionRunConfig::load(file("scenes-soft.toml"), &sets).err(),
        "Masked patches" => MaskedPatchesRunConfig::load(file("cifar10-mae.toml"), &sets).err(),
        "Contrastive views" => ContrastiveViewsRunConfig::load(file("cifar10-simclr.toml"), &sets).err(),
        "Translation" => TranslationConfig::load(file("multi30k-rnn-attention.toml"), &sets).err(),
        _ => RunConfig::load(file("bert-tiny-sample.toml"), &sets).err(),
    };
    let error = error.unwrap_or_else(|| panic!("{unknown} is taken")).to_string();
    let (_, known) = error.split_once("; expected one of ").unwrap_or_else(|| panic!("{error}"));
    // Keys that are missing too.
    let known = known.split("; also ").next().unwrap_or_default();
    known.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The dotted path of the table that a `--set` puts a key into.
fn table_of(unknown: &str) -> String {
    let (path, value) = unknown.split_once('=').unwrap();
    match (path.strip_suffix(".zzzzzzzz"), value.contains("text = { zzz")) {
        (Some(table), _) => table.to_owned(),
        (None, true) => format!("{path}.text"),
        (None, false) => path.to_owned(),
    }
}

#[test]
fn the_reference_has_every_key_that_serde_reads_and_no_other() {
    let reference = reference();
    let mut known: BTreeMap<(&str, String), BTreeSet<String>> = BTreeMap::new();
    for (title, sets, unknown) in TABLES {
        known.entry((title, table_of(unknown))).or_default().extend(keys(title, sets, unknown));
    }
    let without_tag = |keys: &BTreeSet<String>| {
        keys.iter().filter(|key| *key != "kind").cloned().collect::<BTreeSet<String>>()
    };
    for kind in reference.kinds() {
        for (table, keys) in reference.keys_of_tables(kind.title) {
            let keys = without_tag(&keys);
            match known.remove(&(kind.title, table.clone())) {
                Some(read) => assert_eq!(keys, without_tag(&read), "{}: `{table}`", kind.title),
                // A table of one kind of run may be that of another.
                None => {
                    let is_another = TABLES.iter().any(|(title, _, unknown)| {
                        let other = reference.keys_of_tables(title);
                        other.get(&table_of(unknown)).map(&without_tag).as_ref() == Some(&keys)
                    });
                    assert!(keys.is_empty() || is_another, "{}: nothing tests `{table}`", kind.title);
                }
            }
        }
    }
    assert!(known.is_empty(), "the reference lacks {:?}", known.keys());
}

/// A config file as serde completes it, and the heading of its kind of run.
fn completed(path: &Path) -> (&'static str, toml::Table) {
    fn of<K: RunKind>(file: &ConfigFile) -> Option<String> {
        K::is_of(file).then(|| K::read(file, &[]).unwrap_or_else(|error| panic!("{error}")).to_toml())
    }
    let file = ConfigFile::open(path).unwrap();
    let kinds = [
        ("Pretraining", of::<Pretraining> as fn(&ConfigFile) -> Option<String>),
        ("Language models", of::<LanguageModelRun>),
        ("AWD-LSTM", of::<AwdLstmRun>),
        ("ELMo", of::<ElmoRun>),
        ("XLNet", of::<PermutationRun>),
        ("Denoising", of::<DenoisingRun>),
        ("Fine-tuning", of::<FineTuneRun>),
        ("Images", of::<ImageRun>),
        ("Captions", of::<CaptionRun>),
        ("Masked patches", of::<MaskedPatchesRun>),
        ("Contrastive views", of::<ContrastiveViewsRun>),
        ("Translation", of::<TranslationRun>),
    ];
    let (title, text) = match file.has("probe") {
        true => ("Probing", ProbeConfig::read(&file, &[]).unwrap().to_toml()),
        false => kinds.iter().find_map(|(title, of)| Some((*title, of(&file)?))).unwrap(),
    };
    (title, text.parse().unwrap())
}

/// Whether a file sets a key, or a list in which it may be set.
fn sets(file: &toml::Table, path: &str) -> bool {
    let mut table = file;
    for part in path.split('.') {
        match table.get(part) {
            Some(Value::Table(inner)) => table = inner,
            Some(_) => return true,
            None => return false,
        }
    }
    true
}

/// Whether a default is a value; of a table, the reference only has the keys that choose its kind.
fn is_same(default: &Value, value: &Value) -> bool {
    match (default, value) {
        (Value::Table(default), Value::Table(value)) => {
            default.iter().all(|(name, of)| value.get(name).is_some_and(|value| is_same(of, value)))
        }
        (Value::Integer(default), Value::Float(value)) => *default as f64 == *value,
        _ => default == value,
    }
}

#[test]
fn the_reference_s_defaults_are_those_that_serde_gives() {
    let reference = reference();
    let mut compared = BTreeSet::new();
    for entry in std::fs::read_dir(root().join("configs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let file: toml::Table = std::fs::read_to_string(&path).unwrap().parse().unwrap();
        let (title, completed) = completed(&path);
        let found = reference.walk(title, &completed).unwrap_or_else(|error| panic!("{error:#}"));
        for Found { path: key, key: of, value, .. } in found {
            let DefaultValue::Value(default) = &of.default else { continue };
            if sets(&file, &key) {
                continue;
            }
            let default: toml::Table = format!("value = {default}").parse().unwrap();
            let default = &default["value"];
            assert!(is_same(default, value), "{}: `{key}` is {value}, not {default}", path.display());
            compared.insert(format!("{title}: {key}"));
        }
    }
    assert!(compared.len() > 200, "{}: {compared:?}", compared.len());
}

#[test]
fn the_families_of_new_encoders_are_named() {
    let reference = reference();
    let pretraining = reference.kinds().iter().find(|kind| kind.title == "Pretraining").unwrap();
    let model = pretraining.sections.iter().find(|key| key.names[0] == "model").unwrap();
    let family = reference.key_of(&model.shape, "family").unwrap();
    let names: Vec<&str> =
        family.meaning.split("`\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        let json = format!("\"{name}\"");
        assert!(serde_json::from_str::<Family>(&json).is_ok(), "there is no family {json}");
    }
}
