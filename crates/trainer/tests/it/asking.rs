//! Models that were trained and saved are asked line by line, and say what training's own evaluation says.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use burn::tensor::Device;
use cloze_evaluation::figures::Figures;
use cloze_evaluation::report::Report;
use cloze_model::ParamInit;
use cloze_model::bert::BertConfig;
use cloze_model::huggingface::{Architecture, SaveConfig, save_pretrained};
use cloze_tokenizer::{Tokenizer, Vocab};
use cloze_trainer::engine::RunOptions;
use cloze_trainer::finetune::{EvaluationData, FineTuneConfig, Predictor, TASK_FILE, fine_tune};
use cloze_trainer::metrics::progress::Silent;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A task's config, its labelled data, and what is asked of each example.
struct Case {
    /// `[task]`.
    task: String,
    /// The data's file, which says its format.
    file: &'static str,
    data: String,
    lines: Vec<String>,
}

/// A model that was trained on a case, and what training measured at its end.
struct Trained {
    folder: TempDir,
    config: FineTuneConfig,
    figures: Figures,
}

fn word(i: usize) -> char {
    char::from(b'a' + (i % 26) as u8)
}

/// Digits are places, and persons where another follows; the longest sentences have windows.
fn tags(settings: &str) -> Case {
    let (mut data, mut lines) = (String::new(), Vec::new());
    for i in 0..40usize {
        let words: Vec<String> = (0..3 + i * 7 % 16)
            .map(|j| match (i * 31 + j * j * 5 + i * j) % 5 {
                0 | 1 => (j % 10).to_string(),
                _ => word(i + j * 3).to_string(),
            })
            .collect();
        let is_digit = |word: &String| word.as_bytes()[0].is_ascii_digit();
        for (j, word) in words.iter().enumerate() {
            let neighbours = [j.checked_sub(1).map(|before| &words[before]), words.get(j + 1)];
            let [before, after] = neighbours.map(|word| word.is_some_and(is_digit));
            let tag = match (is_digit(word), before, after) {
                (false, ..) => "O",
                (true, false, false) => "B-LOC",
                (true, true, _) => "I-PER",
                (true, false, true) => "B-PER",
            };
            data += &format!("{word} {tag}\n");
        }
        data.push('\n');
        lines.push(json!({ "words": words }).to_string());
    }
    let task = format!("kind = 'tagging'\nlong_sentences = {{ windows = {{ stride = 4 }} }}\n{settings}");
    Case { task, file: "data.conll", data, lines }
}

/// The answer is the context's only digit; every third has none. Contexts are longer than a window.
fn answers() -> Case {
    let mut lines = Vec::new();
    let paragraphs = (0..40usize).map(|i| {
        let (is_impossible, place) = (i % 3 == 0, i * 5 % 17);
        let words: Vec<String> = (0..17)
            .map(|j| match j == place && !is_impossible {
                true => (i % 10).to_string(),
                false => word(i * 7 + j * 3).to_string(),
            })
            .collect();
        let answers = match is_impossible {
            true => json!([]),
            false => json!([{ "text": words[place], "answer_start": 2 * place }]),
        };
        let context = words.join(" ");
        lines.push(json!({ "question": "x y", "context": context }).to_string());
        let question =
            json!({ "id": i.to_string(), "question": "x y", "answers": answers, "is_impossible": is_impossible });
        json!({ "context": context, "qas": [question] })
    });
    let paragraphs: Vec<Value> = paragraphs.collect();
    let data = json!({ "version": "v2.0", "data": [{ "title": "", "paragraphs": paragraphs }] }).to_string();
    Case { task: "kind = 'answers'\nstride = 4\nmax_question = 3".into(), file: "data.json", data, lines }
}

/// Two or three choices, of which the right one has a digit.
fn choices() -> Case {
    let (mut data, mut lines) = (String::new(), Vec::new());
    for i in 0..40usize {
        let n = 2 + i % 2;
        let right = i / 2 % n;
        let choice = |choice: usize| match choice == right {
            true => format!("a {}", i % 10),
            false => format!("a {} b", word(i + choice)),
        };
        let choices: Vec<String> = (0..n).map(choice).collect();
        data += &(json!({ "context": "x y", "choices": choices, "label": right }).to_string() + "\n");
        lines.push(json!({ "text": "x y", "choices": choices }).to_string());
    }
    Case { task: "kind = 'multiple-choice'".into(), file: "data.jsonl", data, lines }
}

/// Trains a small random encoder for so short that it is wrong often.
fn train(case: &Case) -> Trained {
    let folder = tempfile::tempdir().unwrap();
    let specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].map(String::from);
    let vocab = specials.into_iter().chain(('a'..='z').chain('0'..='9').map(String::from));
    let tokenizer = Tokenizer::bert(Vocab::from_tokens(vocab).unwrap(), false).unwrap();
    let shape = BertConfig::new(41, 1, 16).with_n_heads(2).with_d_ff(32).with_max_positions(32);
    let model = shape.init_encoder(&mut ParamInit::new(&Device::flex(), 7).with_std(0.1));
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("checkpoint")).unwrap();
    save_pretrained(&path("checkpoint"), &model, &shape, &SaveConfig::new(Architecture::Encoder)).unwrap();
    tokenizer.save(path("checkpoint")).unwrap();
    fs::write(path(case.file), &case.data).unwrap();
    let (name, file) = (folder.path().display(), case.file);
    let text = format!(
        "[task]\n{}\n[model]\npath = '{name}/checkpoint'\n\
         [data]\ntrain = {{ files = ['{name}/{file}'] }}\ndev = ['{name}/{file}']\nmax_len = 16\n\
         [train]\nepochs = 4\nbatch_size = 8\n[optimizer]\nlr = 1e-2\n[schedule]\nkind = 'constant'\n",
        case.task
    );
    fs::write(path("run.toml"), text).unwrap();
    let config = FineTuneConfig::load(path("run.toml"), &[]).unwrap();
    let stop = AtomicBool::new(false);
    let options = RunOptions::new(Device::flex(), path("out")).cache(path("cache")).stop(&stop);
    let outcome = fine_tune(&config, &options, &mut Silent).unwrap();
    let figures = outcome.figures("dev").unwrap().clone();
    Trained { folder, config, figures }
}

impl Trained {
    fn load(&self, int8: bool) -> Predictor {
        Predictor::load(&self.folder.path().join("out/model"), &Device::flex(), int8).unwrap()
    }

    /// What training's evaluation wrote for each example.
    fn reported(&self) -> Vec<Value> {
        rows(&self.folder.path().join("out/report/dev"))
    }

    /// What is said of all lines, so many at a time.
    fn ask(&self, lines: &[String], batch: usize) -> Vec<Value> {
        let predictor = self.load(false);
        let values = lines.chunks(batch).flat_map(|lines| {
            let mut shares = Vec::new();
            let predicted = predictor.predict(lines, &mut |advance| shares.push(advance.share)).unwrap();
            assert!(shares.is_sorted() && shares.last() == Some(&1.0), "{shares:?}");
            predicted.values
        });
        values.collect()
    }

    /// `eval` gives the figures and the report of training; in 8 bits it is near.
    fn measures_as_training_did(&self) {
        let evaluate = |int8| {
            let mut told = 0;
            let dev = EvaluationData::Files(&self.config.data.dev);
            let evaluation = self.load(int8).evaluate(&self.config, dev, &mut |_| told += 1).unwrap();
            assert!(told > 0);
            evaluation
        };
        let evaluation = evaluate(false);
        for (name, value) in self.figures.iter() {
            let found = evaluation.figures.get(name).unwrap();
            assert!((found - value).abs() < 1e-5, "{name}: {found}, in training {value}");
        }
        let folder = self.folder.path().join("report");
        let (figures, predictions) = (&evaluation.figures, &*evaluation.predictions);
        Report { title: "dev", facts: &[], figures, predictions: Some(predictions) }.write(&folder).unwrap();
        let trained = self.folder.path().join("out/report/dev");
        let files = |folder: &Path| {
            let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
            let mut names: Vec<_> = names.collect();
            names.sort();
            names
        };
        assert_eq!(files(&folder), files(&trained));
        for (found, expected) in rows(&folder).iter().zip(self.reported()) {
            assert_eq!(found["predicted"], expected["predicted"]);
        }
        let main = |figures: &Figures| figures.main().1;
        let int8 = evaluate(true);
        assert!((main(&int8.figures) - main(&self.figures)).abs() < 0.2, "{}", int8.figures);
        assert_ne!(int8.figures.get("loss"), evaluation.figures.get("loss"));
    }
}

fn rows(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("predictions.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The same but for the last digits of numbers.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => (a.as_f64().unwrap() - b.as_f64().unwrap()).abs() < 1e-4,
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|((key, a), (other, b))| key == other && same(a, b))
        }
        _ => a == b,
    }
}

/// What is said of each line beside training's report of its example, whatever is asked together.
fn says_what_training_did(case: &Case, agrees: impl Fn(&Value, &Value) -> bool) {
    let trained = train(case);
    let reported = trained.reported();
    let values = trained.ask(&case.lines, 8);
    assert_eq!((values.len(), reported.len()), (case.lines.len(), case.lines.len()));
    for (value, row) in values.iter().zip(&reported) {
        assert!(agrees(value, row), "asked: {value}\nin training: {row}");
    }
    let reversed: Vec<String> = case.lines.iter().rev().cloned().collect();
    let mut backwards = trained.ask(&reversed, 40);
    backwards.reverse();
    for other in [trained.ask(&case.lines, 1), backwards] {
        for (a, b) in values.iter().zip(&other) {
            assert!(same(a, b), "{a}\n{b}");
        }
    }
    trained.measures_as_training_did();
}

fn same_entities(value: &Value, row: &Value) -> bool {
    let entity = |entity: &Value| {
        let end = entity["last"].as_u64().unwrap() + 1;
        json!({ "label": entity["type"], "start": entity["first"], "end": end })
    };
    let entities: Vec<Value> = value["entities"].as_array().unwrap().iter().map(entity).collect();
    Value::from(entities) == row["predicted_spans"]
}

#[test]
fn tags_by_themselves() {
    let _held = crate::generator();
    let case = tags("");
    says_what_training_did(&case, same_entities);
}

#[test]
fn tags_with_a_field() {
    let _held = crate::generator();
    let case = tags("crf = true\npredict_scheme = 'bioes'\ncrf_lr_scale = 10.0");
    says_what_training_did(&case, same_entities);
}

#[test]
fn answers_and_none() {
    let _held = crate::generator();
    says_what_training_did(&answers(), |value, row| {
        // The report has the best answer's probability without none among the candidates.
        value["answer"] == row["predicted"]
    });
}

#[test]
fn choices_of_any_number() {
    let _held = crate::generator();
    says_what_training_did(&choices(), |value, row| {
        let choice = value["choice"].as_u64().unwrap() as usize;
        row["choices"][choice] == row["predicted"] && same(&value["score"], &row["score"])
    });
}

/// Without its `task.json` a folder is like one of transformers.
#[test]
fn folders_without_a_task_say_theirs_too() {
    let _held = crate::generator();
    for case in [tags(""), answers(), choices()] {
        let trained = train(&case);
        // These have no windows, whose length `task.json` alone knows.
        let short = &case.lines[..2];
        let before = trained.ask(short, 2);
        fs::remove_file(trained.folder.path().join("out/model").join(TASK_FILE)).unwrap();
        let mut predictor = trained.load(false);
        let after = trained.ask(short, 2);
        match case.file {
            // Whether there may be no answer is not known.
            "data.json" => {
                assert!(after.iter().all(|value| value["answer"] != ""));
                predictor.list(2).unwrap();
            }
            _ => {
                assert!(before.iter().zip(&after).all(|(a, b)| same(a, b)), "{before:?}\n{after:?}");
                let error = predictor.list(2).unwrap_err().to_string();
                assert!(error.starts_with("`n_best` is 2; expected none: a model for "), "{error}");
            }
        }
    }
}

#[test]
fn tags_have_weights_and_smoothing() {
    let _held = crate::generator();
    // A tag without weight is never learnt, and the others are found everywhere.
    let case = tags("class_weights = [0.0, 1, 1, 1, 1]\nlabel_smoothing = 0.1");
    let trained = train(&case);
    let values = trained.ask(&case.lines, 8);
    let outside = |value: &Value| value["tags"].as_array().unwrap().iter().filter(|tag| *tag == "O").count();
    assert_eq!(values.iter().map(outside).sum::<usize>(), 0);
    let file = fs::read_to_string(trained.folder.path().join("out/model").join(TASK_FILE)).unwrap();
    assert!(!file.contains("class_weights"), "{file}");

    let error = |sets: &[&str]| {
        let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
        FineTuneConfig::load(trained.folder.path().join("run.toml"), &sets).unwrap_err().to_string()
    };
    let smoothed = error(&["task.crf=true", "task.class_weights=[]"]);
    assert!(
        smoothed.ends_with("is 0.1; expected 0 with `task.crf`, whose loss is of whole sentences"),
        "{smoothed}"
    );
    let weighted = error(&["task.crf=true", "task.label_smoothing=0"]);
    assert!(
        weighted.contains("`task.class_weights` is [0.0, 1.0, 1.0, 1.0, 1.0]; expected none"),
        "{weighted}"
    );
    let negative = error(&["task.class_weights=[-1, 1, 1, 1, 1]"]);
    assert!(negative.contains("`task.class_weights` is -1; expected a number of 0 or more"), "{negative}");
}
