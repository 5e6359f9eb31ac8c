//! Question answering and multiple choice, from a tiny checkpoint and tiny files to a saved model and its report.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use burn::tensor::Device;
use cloze_evaluation::figures::Figures;
use cloze_model::ParamInit;
use cloze_model::bert::BertConfig;
use cloze_model::huggingface::{Architecture, Family, PretrainedFolder, SaveConfig, save_pretrained};
use cloze_tokenizer::{Tokenizer, Vocab};
use cloze_trainer::Result;
use cloze_trainer::engine::{Outcome, RunOptions};
use cloze_trainer::finetune::{FineTuneConfig, TaskFile, TaskSection, fine_tune};
use cloze_trainer::metrics::progress::Silent;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A folder with an encoder of random weights, without dropout, and its tokenizer of letters and digits.
fn checkpoint() -> TempDir {
    checkpoint_of(Family::BERT)
}

/// The same of another family.
fn checkpoint_of(family: Family) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].map(String::from);
    let vocab = specials.into_iter().chain(('a'..='z').chain('0'..='9').map(String::from));
    let tokenizer = Tokenizer::bert(Vocab::from_tokens(vocab).unwrap(), false).unwrap();
    let config = BertConfig::new(41, 1, 16)
        .with_n_heads(2)
        .with_d_ff(32)
        .with_max_positions(32)
        .with_hidden_dropout(0.0)
        .with_attention_dropout(0.0);
    let config = family.encoder(config);
    let model = config.init_encoder(&mut ParamInit::new(&Device::flex(), 7).with_std(0.1));
    let path = folder.path().join("model");
    fs::create_dir(&path).unwrap();
    let save = SaveConfig::new(Architecture::Encoder).with_family(family);
    save_pretrained(&path, &model, &config, &save).unwrap();
    tokenizer.save(&path).unwrap();
    crate::frame_for(family, &path);
    folder
}

/// Fine-tunes what `checkpoint` made with the examples in `file`, which it is measured with too.
fn run(folder: &Path, kind: &str, file: &str, sets: &[&str]) -> Result<Outcome> {
    let folder_name = folder.display();
    let text = format!(
        "[task]\n{kind}\n[model]\npath = '{folder_name}/model'\n\
         [data]\ntrain = {{ files = ['{folder_name}/{file}'] }}\ndev = ['{folder_name}/{file}']\nmax_len = 16\n\
         [train]\nepochs = 12\nbatch_size = 8\n[optimizer]\nlr = 1e-2\n[schedule]\nkind = 'linear'\n"
    );
    let path = folder.join("run.toml");
    fs::write(&path, text).unwrap();
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    let config = FineTuneConfig::load(&path, &sets).unwrap();
    let stop = AtomicBool::new(false);
    let out = folder.join("out");
    let options = RunOptions::new(Device::flex(), out).cache(folder.join("cache")).stop(&stop);
    fine_tune(&config, &options, &mut Silent)
}

fn dev(outcome: Outcome) -> Figures {
    outcome.figures("dev").cloned().unwrap_or_else(|| panic!("{outcome:?}"))
}

/// Questions whose answer is the context's only digit, in contexts longer than a window; with `impossible`,
/// every third context has none.
fn squad(impossible: bool) -> Value {
    let paragraphs: Vec<Value> = (0..48usize)
        .map(|i| {
            let none = impossible && i % 3 == 0;
            let place = i * 5 % 17;
            let words: Vec<String> = (0..17)
                .map(|word| match word == place && !none {
                    true => (i % 10).to_string(),
                    false => char::from(b'a' + ((i * 7 + word * 3) % 26) as u8).to_string(),
                })
                .collect();
            let answers = match none {
                true => json!([]),
                false => json!([{"text": words[place], "answer_start": 2 * place}]),
            };
            let mut question = json!({"id": i.to_string(), "question": "x y", "answers": answers});
            if impossible {
                question["is_impossible"] = none.into();
            }
            json!({"context": words.join(" "), "qas": [question]})
        })
        .collect();
    let version = if impossible { "v2.0" } else { "1.1" };
    json!({"version": version, "data": [{"title": "digits", "paragraphs": paragraphs}]})
}

const ANSWERS: &str = "kind = 'answers'\nstride = 4\nmax_question = 3";

#[test]
fn answers_are_learned_over_windows() {
    let _held = crate::generator();
    let folder = checkpoint();
    let path = folder.path();
    fs::write(path.join("squad.json"), squad(false).to_string()).unwrap();
    let figures = dev(run(path, ANSWERS, "squad.json", &[]).unwrap());
    assert_eq!(figures.main().0, "f1");
    assert!(figures.get("exact").unwrap() > 0.9, "{figures}");
    assert_eq!(figures.get("NoAns_f1"), None);

    let out = path.join("out");
    let task = TaskFile::read(&out.join("model")).unwrap().unwrap();
    assert_eq!(task.max_len, 16);
    assert!(matches!(
        task.task,
        TaskSection::Answers { stride: 4, max_question: 3, null_threshold: None, .. }
    ));
    let saved = PretrainedFolder::open(&out.join("model")).unwrap();
    assert_eq!(saved.config.architecture, Architecture::QuestionAnswering);
    assert!(out.join("report/dev/report.html").is_file());
}

#[test]
fn a_head_of_several_layers_learns_answers_and_choices() {
    let _held = crate::generator();
    learns_answers_and_choices(Family::MODERNBERT, "ModernBertForQuestionAnswering");
}

#[test]
fn xlnet_learns_answers_and_choices() {
    let _held = crate::generator();
    learns_answers_and_choices(Family::XLNET, "XLNetForQuestionAnsweringSimple");
}

fn learns_answers_and_choices(family: Family, class: &str) {
    let folder = checkpoint_of(family);
    let path = folder.path();
    fs::write(path.join("squad.json"), squad(false).to_string()).unwrap();
    let figures = dev(run(path, ANSWERS, "squad.json", &[]).unwrap());
    assert!(figures.get("exact").unwrap() > 0.9, "{figures}");
    let saved = PretrainedFolder::open(&path.join("out/model")).unwrap();
    assert_eq!(saved.config.architectures, [class]);

    fs::remove_dir_all(path.join("out")).unwrap();
    fs::write(path.join("choices.jsonl"), choices()).unwrap();
    let figures = dev(run(path, "kind = 'multiple-choice'", "choices.jsonl", &[]).unwrap());
    assert!(figures.main().1 > 0.9, "{figures}");
}

#[test]
fn questions_without_an_answer_make_it_squad_2() {
    let _held = crate::generator();
    let folder = checkpoint();
    let path = folder.path();
    fs::write(path.join("squad.json"), squad(true).to_string()).unwrap();
    let figures = dev(run(path, ANSWERS, "squad.json", &[]).unwrap());
    for name in ["HasAns_exact", "NoAns_exact"] {
        assert!(figures.get(name).unwrap() > 0.8, "{figures}");
    }
    let task = TaskFile::read(&path.join("out/model")).unwrap().unwrap().task;
    assert!(matches!(task, TaskSection::Answers { null_threshold: Some(0.0), .. }));
}

/// Texts that end with a digit are right.
fn choices() -> String {
    let lines = (0..48usize).map(|i| {
        let n = 2 + i % 2;
        let right = i / 2 % n;
        let choices: Vec<String> = (0..n)
            .map(|choice| match choice == right {
                true => format!("a {}", i % 10),
                false => format!("a {} b", char::from(b'c' + ((i + choice) % 20) as u8)),
            })
            .collect();
        json!({"context": "x y z", "choices": choices, "label": right}).to_string() + "\n"
    });
    lines.collect()
}

#[test]
fn choices_are_learned_whatever_their_number() {
    let _held = crate::generator();
    let folder = checkpoint();
    let path = folder.path();
    fs::write(path.join("choices.jsonl"), choices()).unwrap();
    let figures = dev(run(path, "kind = 'multiple-choice'", "choices.jsonl", &[]).unwrap());
    assert_eq!(figures.main().0, "accuracy");
    assert!(figures.main().1 > 0.9, "{figures}");
    let saved = PretrainedFolder::open(&path.join("out/model")).unwrap();
    assert_eq!(saved.config.architecture, Architecture::MultipleChoice);
    assert_eq!(
        TaskFile::<TaskSection>::read(&path.join("out/model")).unwrap().unwrap().task,
        TaskSection::MultipleChoice {}
    );
}

#[test]
fn answers_and_choices_are_learned_from_a_teacher_alone() {
    let _held = crate::generator();
    let folder = checkpoint();
    let path = folder.path();
    fs::write(path.join("squad.json"), squad(false).to_string()).unwrap();
    fs::write(path.join("choices.jsonl"), choices()).unwrap();
    for (name, kind, file) in
        [("answers", ANSWERS, "squad.json"), ("choices", "kind = 'multiple-choice'", "choices.jsonl")]
    {
        run(path, kind, file, &[]).unwrap();
        let teacher = path.join(name);
        fs::rename(path.join("out/model"), &teacher).unwrap();
        for cache in [false, true] {
            fs::remove_dir_all(path.join("out")).unwrap();
            let teacher = format!("distillation.teacher={:?}", teacher.display().to_string());
            let cache = format!("distillation.cache={cache}");
            let figures = dev(run(path, kind, file, &[&teacher, "distillation.soft=1", &cache]).unwrap());
            assert!(figures.main().1 > 0.9, "{name}, {cache}: {figures}");
        }
        fs::remove_dir_all(path.join("out")).unwrap();
    }
    // Outputs of single tokens can only be compared where these are the same.
    let teacher = path.join("answers");
    let vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].map(String::from).into_iter();
    let vocab = vocab.chain(('0'..='9').chain('a'..='z').map(String::from));
    Tokenizer::bert(Vocab::from_tokens(vocab).unwrap(), false).unwrap().save(&teacher).unwrap();
    let teacher = format!("distillation.teacher={:?}", teacher.display().to_string());
    let error = run(path, ANSWERS, "squad.json", &[&teacher]).unwrap_err().to_string();
    assert!(error.contains("expected a teacher with the student's tokenizer"), "{error}");
}

#[test]
fn settings_that_do_not_fit_are_errors() {
    let _held = crate::generator();
    let folder = checkpoint();
    let path = folder.path();
    fs::write(path.join("squad.json"), squad(false).to_string()).unwrap();
    let message = |sets: &[&str]| {
        let message = run(path, ANSWERS, "squad.json", sets).unwrap_err().to_string();
        fs::remove_dir_all(path.join("out")).unwrap();
        message
    };
    let long = message(&["data.max_len=33"]);
    assert!(long.contains("`data.max_len`") && long.contains("at most 32"), "{long}");
    let short = message(&["data.max_len=10"]);
    assert!(short.contains("`max_len` = 10") && short.contains("`stride`"), "{short}");
    let dropout = message(&["model.dropout.head=0.1"]);
    assert!(dropout.contains("`model.dropout.head`"), "{dropout}");
}
