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
    let endings = at("endings.jsonl");
    fs::write(&endings, ENDINGS).with_context(|| format!("cannot write {}", endings.display()))?;
    let small = |task: &str, data: &str| {
        let args = ["train", task, "--model", &encoder, "--data", data];
        let sets = ["--set", "train.epochs=8", "--set", "optimizer.lr=1e-3"];
        args.iter().chain(&sets).map(|arg| (*arg).to_owned()).collect::<Vec<_>>()
    };
    let of = |args: &[&str]| args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>();
    let columns = |mut args: Vec<String>, columns: &str| {
        args.extend(of(&["--columns", columns]));
        args
    };
    let mut choose = of(&["train", "configs/swag.toml", "--set", "train.epochs=2"]);
    let rows = format!("{{ files = [{:?}] }}", text(endings));
    for set in [format!("model.path={encoder:?}"), format!("data.train={rows}"), format!("data.dev={rows}")] {
        choose.extend(["--set".to_owned(), set]);
    }
    let steps = |config: &str, steps: &str| of(&["train", config, "--set", steps]);
    let models: Vec<(&str, Vec<String>)> = vec![
        ("fill", steps("configs/bert-tiny-sample.toml", "train.steps=150")),
        ("classify", columns(small("classification", "datasets/reviews.csv"), "text=review,label=sentiment")),
        ("tag", small("tagging", "datasets/people.conll")),
        ("answer", small("answers", "datasets/passages.json")),
        ("embed", columns(small("embedding", "datasets/questions.csv"), "text=question,pair=passage")),
        ("translate", steps("configs/phrases-transformer.toml", "train.steps=150")),
        ("write", steps("configs/gpt-char-sample.toml", "train.steps=200")),
        ("choose", choose),
    ];
    for (name, args) in &models {
        if !at(name).join("model").join("config.json").exists() {
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
const ENDINGS: &str = r#"{"text": "The sailor saw the storm coming and", "choices": ["took down the sails.", "baked a loaf of bread."], "label": 0}
{"text": "The baker opened the oven and", "choices": ["raised the anchor.", "took out the bread."], "label": 1}
{"text": "The train was late, so they", "choices": ["waited at the station.", "ate the timetable."], "label": 0}
{"text": "It began to rain, so she", "choices": ["watered the garden.", "opened her umbrella."], "label": 1}
"#;
