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
use cloze_trainer::inspect::{Baseline, InspectRequest, Inspection, Inspector, Method};
use std::fs;
use std::path::Path;

const DECIDE: [&str; 4] = ["dull", "weak", "fine", "great"];

/// A text explained for its own class, against the other one.
fn explained(inspector: &Inspector, text: &str, label: &str, baseline: Baseline) -> Inspection {
    let against = if label == "good" { "bad" } else { "good" };
    let request = InspectRequest {
        label: Some(label.into()),
        against: Some(against.into()),
        methods: inspector.methods(),
        baseline,
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
    let bench = Bench::new();
    let config = bench.config("{ kind = \"classification\" }", "label", &[]);
    let Outcome::Done { model, .. } = bench.run_whole("run", &config) else { panic!("not stopped") };
    let inspector = Inspector::load(&model, &Device::flex()).unwrap();
    let methods = inspector.methods();
    assert_eq!(methods.len(), 5);
    let mut first = vec![0; methods.len()];
    let texts = rows(500, 7);
    for (text, label, _) in &texts {
        let seen = explained(&inspector, text, label, Baseline::Piece);
        for (count, explanation) in first.iter_mut().zip(&seen.explanations) {
            *count += usize::from(DECIDE.contains(&first_word(text, &seen, &explanation.source)));
        }
    }
    for (method, count) in methods.iter().zip(&first) {
        println!("{method:?}: the deciding word first in {count} of {} texts", texts.len());
        if matches!(method, Method::IntegratedGradients | Method::Occlusion) {
            assert!(*count * 100 >= 99 * texts.len(), "{method:?}: {count} of {}", texts.len());
        }
    }
}

/// A model that knows nothing explains otherwise: Adebayo et al. 2018, "Sanity checks for saliency maps".
#[test]
fn with_random_weights_the_ranks_are_others() {
    let _held = crate::generator();
    let bench = Bench::new();
    let config = bench.config("{ kind = \"classification\" }", "label", &[]);
    let Outcome::Done { model, .. } = bench.run_whole("run", &config) else { panic!("not stopped") };
    let random = tempfile::tempdir().unwrap();
    forget(&model, random.path());
    let [trained, random] =
        [&model, random.path()].map(|folder| Inspector::load(folder, &Device::flex()).unwrap());
    let method = |seen: &Inspection, method| {
        let found = seen.explanations.iter().find(|explanation| explanation.method == method).unwrap();
        let tokens = seen.source.iter().zip(&found.source).filter(|(token, _)| !token.special);
        tokens.map(|(_, value)| *value).collect::<Vec<f64>>()
    };
    let texts: Vec<_> = rows(200, 8).into_iter().filter(|(text, ..)| text.split(' ').count() > 6).collect();
    for name in [Method::IntegratedGradients, Method::Occlusion, Method::GradientTimesInput] {
        let mut sum = 0.0;
        for (text, label, _) in &texts {
            let [a, b] = [&trained, &random]
                .map(|inspector| method(&explained(inspector, text, label, Baseline::Piece), name));
            sum += spearman(&a, &b);
        }
        let mean = sum / texts.len() as f64;
        println!("{name:?}: mean rank correlation {mean:.3} over {} texts", texts.len());
        assert!(mean.abs() < 0.2, "{name:?}: {mean}");
    }
}

/// The same folder with random weights.
fn forget(from: &Path, to: &Path) {
    let pretrained = PretrainedFolder::open(from).unwrap();
    let config = pretrained.encoder(Architecture::SequenceClassification);
    let init = &mut ParamInit::new(&Device::flex(), 11).with_std(0.2);
    let bert = config.init_encoder(init);
    let model = BertForSequenceClassification::new(bert, SequenceHead::new(config.d_model, 2, 0.0, init));
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
