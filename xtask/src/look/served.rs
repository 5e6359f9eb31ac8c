//! The page of `cloze serve`, with models that answer.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::browser::{Browser, View};
use super::{VIEWS, measured, panels, used};
use crate::bench::kept;
use crate::step;

/// A service that ends with this value.
struct Service {
    child: Child,
    address: String,
    // The service would wait for someone to read what it says.
    _lines: Receiver<String>,
}

impl Service {
    fn start(program: &Path, models: &[String], indexes: &[String], more: &[&str]) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(["serve", "--port", "0"]).args(more);
        command.args(models.iter().flat_map(|model| ["--model", model]));
        command.args(indexes.iter().flat_map(|index| ["--index", index]));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot start `cloze serve`")?;
        let stderr = child.stderr.take().context("`cloze serve` has no standard error")?;
        let (told, lines) = channel();
        thread::spawn(move || {
            BufReader::new(stderr).lines().map_while(Result::ok).for_each(|line| drop(told.send(line)));
        });
        let mut service = Self { child, address: String::new(), _lines: lines };
        let mut said = String::new();
        loop {
            let Ok(line) = service._lines.recv_timeout(Duration::from_secs(120)) else {
                bail!("`cloze serve` is not ready: {said}");
            };
            if let Some(address) = line.strip_prefix("listening on ") {
                service.address = address.to_owned();
            }
            if line.starts_with("ready: ") {
                return Ok(service);
            }
            said = line;
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What is wrong with the page of a service with these models, or with small ones of each kind.
pub fn look(
    browser: &mut Browser,
    program: &Path,
    models: &[String],
    indexes: &[String],
    write: Option<&Path>,
) -> Result<Vec<String>> {
    let (models, indexes) = match models.is_empty() {
        true => trained(program)?,
        false => (models.to_vec(), indexes.to_vec()),
    };
    let service = Service::start(program, &models, &indexes, &[])?;
    browser.network(true)?;
    let mut problems = Vec::new();
    let mut names = Vec::new();
    for view in &VIEWS {
        names = panels::names(browser, &service.address, view)?;
        for name in &names {
            browser.errors();
            let mut found = panels::ask(browser, &service.address, name, view)?;
            found.extend(measured(browser, view, &format!("serve-{name}"), write)?);
            note(browser, found, &format!("{name}, {}", view.name), &mut problems);
        }
    }
    for view in VIEWS.iter().filter(|view| used::VIEWS.contains(&view.name)) {
        for name in &names {
            let found = panels::use_panel(browser, &service.address, name, view)
                .with_context(|| format!("the served page, {name}, {}", view.name))?;
            note(browser, found, &format!("{name}, {}, in use", view.name), &mut problems);
        }
    }
    drop(service);
    let found = panels::left_alone(browser)?;
    problems.extend(found);
    // The browser itself complains about a service that is gone.
    browser.errors();
    problems.extend(with_a_key(browser, program, &models[..1], &VIEWS[0], write)?);
    browser.network(false)?;
    eprintln!(
        "==> look: the served page, {} panels in {} views, {} problems",
        names.len(),
        VIEWS.len(),
        problems.len()
    );
    Ok(problems)
}

/// Adds what was found, and what the page has complained about.
fn note(browser: &mut Browser, found: Vec<String>, place: &str, problems: &mut Vec<String>) {
    let errors = browser.errors().into_iter().map(|error| format!("an error in the console: {error}"));
    problems.extend(found.into_iter().chain(errors).map(|problem| format!("{place}: {problem}")));
}

/// A service that needs a key: the page can be opened without, and asks for it.
fn with_a_key(
    browser: &mut Browser,
    program: &Path,
    models: &[String],
    view: &View,
    write: Option<&Path>,
) -> Result<Vec<String>> {
    let keys = kept::target().join("look-keys");
    fs::write(&keys, "open sesame\n").with_context(|| format!("cannot write {}", keys.display()))?;
    let keys = keys.display().to_string();
    let service = Service::start(program, models, &[], &["--api-key-file", &keys])?;
    browser.show_url(&service.address, view)?;
    panels::ready(browser)?;
    let mut problems = measured(browser, view, "serve-key", write)?;
    problems.extend(panels::unlock(browser, "open sesame")?);
    // The browser complains about the answers without a key.
    browser.errors();
    Ok(problems)
}

/// Small models of each kind, and an index, trained on the embedded samples; they are kept for the next time.
fn trained(program: &Path) -> Result<(Vec<String>, Vec<String>)> {
    let folder = kept::target().join("look-models");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let at = |name: &str| folder.join(name);
    let text = |path: PathBuf| path.display().to_string();
    let encoder = text(at("fill").join("model"));
    let [endings, rows] =
        [("endings.jsonl", ENDINGS.to_owned()), ("pairs.csv", pairs())].map(|(name, rows)| (at(name), rows));
    for (path, rows) in [&endings, &rows] {
        fs::write(path, rows).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let small = |task: &str, data: &str| {
        let args = ["train", task, "--model", &encoder, "--data", data];
        let sets = ["--set", "train.epochs=8", "--set", "optimizer.lr=1e-3", "--set", "data.max_len=64"];
        args.iter().chain(&sets).map(|arg| (*arg).to_owned()).collect::<Vec<_>>()
    };
    let of = |args: &[&str]| args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>();
    let columns = |mut args: Vec<String>, columns: &str| {
        args.extend(of(&["--columns", columns]));
        args
    };
    let mut choose =
        of(&["train", "configs/swag.toml", "--set", "train.epochs=2", "--set", "data.max_len=64"]);
    let endings = format!("[{:?}]", text(endings.0));
    let train = format!("data.train={{ files = {endings} }}");
    // Of two steps; the config's warm-up takes a hundred.
    let warmup = "schedule.warmup_steps=1".to_owned();
    for set in [format!("model.path={encoder:?}"), train, format!("data.dev={endings}"), warmup] {
        choose.extend(["--set".to_owned(), set]);
    }
    let mut answer = small("answers", "datasets/passages.json");
    answer.extend(of(&["--set", "task.max_question=20", "--set", "task.stride=16"]));
    let steps = |config: &str, steps: &str| of(&["train", config, "--set", steps]);
    let models: Vec<(&str, Vec<String>)> = vec![
        ("fill", steps("configs/bert-tiny-sample.toml", "train.steps=150")),
        ("classify", columns(small("classification", "datasets/reviews.csv"), "text=review,label=sentiment")),
        ("tag", small("tagging", "datasets/people.conll")),
        ("answer", answer),
        ("embed", columns(small("embedding", "datasets/questions.csv"), "text=question,pair=passage")),
        ("translate", steps("configs/phrases-transformer.toml", "train.steps=150")),
        ("write", steps("configs/gpt-char-sample.toml", "train.steps=200")),
        ("choose", choose),
        ("rank", columns(small("classification", &text(rows.0)), "text=query,pair=text,label=fits")),
    ];
    for (name, args) in &models {
        if !at(name).join("model").join("config.json").exists() {
            if at(name).exists() {
                fs::remove_dir_all(at(name)).with_context(|| {
                    format!("cannot remove {}, which was not finished", at(name).display())
                })?;
            }
            let mut train = Command::new(program);
            train.args(args).arg("--out").arg(at(name)).current_dir(step::root()).stdout(Stdio::null());
            step::run(&format!("train a small model: {name}"), &mut train)?;
        }
    }
    let index = at("reviews");
    if !index.exists() {
        let mut command = Command::new(program);
        let model = text(at("embed").join("model"));
        command
            .args(["search", "index", "--model", &model, "--columns", "text=review", "--index"])
            .arg(&index);
        command.arg("datasets/reviews.csv").current_dir(step::root()).stdout(Stdio::null());
        step::run("make a small index", &mut command)?;
    }
    let models = models.iter().map(|(name, _)| format!("{name}={}", text(at(name).join("model"))));
    Ok((models.collect(), vec![format!("reviews={}", text(index))]))
}

/// Texts with two endings each.
const ENDINGS: &str = r#"{"context": "The sailor saw the storm coming and", "choices": ["took down the sails.", "baked a loaf of bread."], "label": 0}
{"context": "The baker opened the oven and", "choices": ["raised the anchor.", "took out the bread."], "label": 1}
{"context": "The train was late, so they", "choices": ["waited at the station.", "ate the timetable."], "label": 0}
{"context": "It began to rain, so she", "choices": ["watered the garden.", "opened her umbrella."], "label": 1}
"#;

/// Questions with their answers: each pair of them is a row, which fits or not.
const PAIRS: [(&str, &str); 5] = [
    ("how does snow become ice", "new snow presses the old snow into ice"),
    ("when does the bakery open", "the bakery opens at six"),
    ("where is the station", "the station is behind the church"),
    ("who wrote the letter", "the letter was written by her brother"),
    ("what is bread made of", "bread is made of flour"),
];

/// A table of all pairs.
fn pairs() -> String {
    let row = |(query, right): &(&str, &str), (_, text): &(&str, &str)| {
        format!("{query},{text},{}\n", if right == text { "yes" } else { "no" })
    };
    let rows = PAIRS.iter().flat_map(|query| PAIRS.iter().map(move |text| row(query, text)));
    "query,text,fits\n".to_owned() + &rows.collect::<String>()
}
