//! Explanations of classifiers of texts that are good or bad by one word of theirs.

use crate::finetuning::{Bench, rows};
use burn::tensor::Device;
use cloze_model::ParamInit;
use cloze_model::huggingface::{
    Architecture, PretrainedFolder, SaveConfig, read_tensors, save_pretrained, tensors_of,
};
use cloze_model::tasks::{BertForSequenceClassification, SequenceHead};
use cloze_trainer::engine::Outcome;
use cloze_trainer::finetune::TASK_FILE;
use cloze_trainer::inspect::{InspectRequest, Inspection, Inspector, Method};
use std::fs;
use std::path::{Path, PathBuf};

const DECIDE: [&str; 4] = ["dull", "weak", "fine", "great"];

/// Texts of which some words are masked, and their classes: that of the word that decides, if it is there. What stands in
/// place of words in explanations is then nothing that the model has never seen.
fn masked_rows(n: usize, seed: u64) -> String {
    let lines = rows(n, seed).into_iter().enumerate().map(|(number, (text, label, score))| {
        let every = 2 + number % 4;
        let words = text.split(' ').enumerate().map(|(place, word)| match (place + number) % every {
            0 => "[MASK]",
            _ => word,
        });
        let words: Vec<&str> = words.collect();
        let label = if words.iter().any(|word| DECIDE.contains(word)) { label } else { "none" };
        format!("{}\t{label}\t{score}\n", words.join(" "))
    });
    format!("text\tlabel\tscore\n{}", lines.collect::<String>())
}

/// A trained classifier of such texts, and its folder.
fn trained() -> (Bench, PathBuf) {
    let bench = Bench::new();
    fs::write(bench.path("train.tsv"), masked_rows(480, 1)).unwrap();
    fs::write(bench.path("dev.tsv"), masked_rows(60, 2)).unwrap();
    let config = bench.config("{ kind = \"classification\" }", "label", &[]);
    let Outcome::Done { model, .. } = bench.run_whole("run", &config) else { panic!("not stopped") };
    (bench, model)
}

/// A text explained for its own class.
fn explained(inspector: &Inspector, text: &str, label: &str) -> Inspection {
    let request = InspectRequest {
        label: Some(label.into()),
        methods: inspector.methods(),
        without_attention: true,
        ..InspectRequest::new(text)
    };
    inspector.inspect(&request).unwrap()
}

/// The word with the greatest sum over its pieces, of the text's words.
fn first_word<'a>(text: &'a str, seen: &Inspection, values: &[f64]) -> &'a str {
    let words: Vec<&str> = text.split(' ').collect();
    let mut sums = vec![0.0; words.len()];
    for (token, value) in seen.source.iter().zip(values) {
        if let Some(word) = token.word {
            sums[word] += value;
        }
    }
    let best = (0..words.len()).max_by(|a, b| sums[*a].total_cmp(&sums[*b])).unwrap();
    words[best]
}

#[test]
fn the_word_that_decides_is_put_first() {
    let _held = crate::generator();
    let (_bench, model) = trained();
    let inspector = Inspector::load(&model, &Device::flex()).unwrap();
    let methods = inspector.methods();
    assert_eq!(methods.len(), 5);
    let mut first = vec![0; methods.len()];
    let texts = rows(500, 7);
    for (text, label, _) in &texts {
        let seen = explained(&inspector, text, label);
        for (count, explanation) in first.iter_mut().zip(&seen.explanations) {
            *count += usize::from(DECIDE.contains(&first_word(text, &seen, &explanation.source)));
        }
    }
    for (method, count) in methods.iter().zip(&first) {
        println!("{method:?}: the deciding word first in {count} of {} texts", texts.len());
    }
    for (method, count) in methods.iter().zip(&first) {
        if matches!(method, Method::IntegratedGradients | Method::Occlusion) {
            assert!(*count * 100 >= 99 * texts.len(), "{method:?}: {count} of {}", texts.len());
        }
    }
}

/// A model that knows nothing explains otherwise: Adebayo et al. 2018, "Sanity checks for saliency maps".
#[test]
fn with_random_weights_the_ranks_are_others() {
    let _held = crate::generator();
    let (_bench, model) = trained();
    let open = |folder: &Path| Inspector::load(folder, &Device::flex()).unwrap();
    let trained = open(&model);
    // A single one may agree by chance.
    let random = [11, 12, 13, 14].map(|seed| {
        let folder = tempfile::tempdir().unwrap();
        forget(&model, folder.path(), seed);
        open(folder.path())
    });
    let method = |seen: &Inspection, method| {
        let found = seen.explanations.iter().find(|explanation| explanation.method == method).unwrap();
        let tokens = seen.source.iter().zip(&found.source).filter(|(token, _)| !token.special);
        tokens.map(|(_, value)| *value).collect::<Vec<f64>>()
    };
    let texts: Vec<_> = rows(200, 8).into_iter().filter(|(text, ..)| text.split(' ').count() > 6).collect();
    let names = [Method::IntegratedGradients, Method::Occlusion, Method::GradientTimesInput];
    let mut sums = [0.0; 3];
    for (text, label, _) in &texts {
        let exact = explained(&trained, text, label);
        for other in random.iter().map(|inspector| explained(inspector, text, label)) {
            for (sum, name) in sums.iter_mut().zip(names) {
                *sum += spearman(&method(&exact, name), &method(&other, name));
            }
        }
    }
    for (name, sum) in names.into_iter().zip(sums) {
        let mean: f64 = sum / (texts.len() * random.len()) as f64;
        println!("{name:?}: mean rank correlation {mean:.3} over {} texts", texts.len());
        assert!(mean.abs() < 0.2, "{name:?}: {mean}");
    }
}

/// The same folder with random weights.
fn forget(from: &Path, to: &Path, seed: u64) {
    let pretrained = PretrainedFolder::open(from).unwrap();
    let config = pretrained.encoder(Architecture::SequenceClassification);
    let init = &mut ParamInit::new(&Device::flex(), seed).with_std(0.2);
    let bert = config.init_encoder(init);
    let model = BertForSequenceClassification::new(bert, SequenceHead::new(config.d_model, 3, 0.0, init));
    save_pretrained(to, &model, &config, &SaveConfig::from(&pretrained.config)).unwrap();
    for name in [TASK_FILE, "tokenizer.json", "tokenizer_config.json"] {
        if from.join(name).exists() {
            fs::copy(from.join(name), to.join(name)).unwrap();
        }
    }
    let weights = |folder: &Path| read_tensors(&folder.join("model.safetensors")).unwrap();
    assert!(tensors_of(to).is_ok() && weights(to) != weights(from));
}

/// Spearman's correlation of ranks.
fn spearman(a: &[f64], b: &[f64]) -> f64 {
    let ranks = |values: &[f64]| {
        let mut order: Vec<usize> = (0..values.len()).collect();
        order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
        let mut ranks = vec![0.0; values.len()];
        order.into_iter().enumerate().for_each(|(rank, i)| ranks[i] = rank as f64);
        ranks
    };
    let n = a.len() as f64;
    let apart: f64 = ranks(a).iter().zip(ranks(b)).map(|(a, b)| (a - b) * (a - b)).sum();
    1.0 - 6.0 * apart / (n * (n * n - 1.0))
}
