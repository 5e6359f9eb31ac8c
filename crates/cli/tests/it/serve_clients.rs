//! `cloze serve`, asked by the clients of others: openai, cohere, huggingface_hub and schemathesis, of Python.

use crate::library::models;
use crate::served::Served;
use std::path::Path;
use std::process::Command;

/// Names an interpreter that has them.
const PYTHON: &str = "CLOZE_CLIENTS_PYTHON";

const MODELS: [&str; 8] = [
    models::ENCODER,
    models::MASKED,
    models::CLASSIFIER,
    models::RERANKER,
    models::TAGGER,
    models::ANSWERER,
    models::TRANSLATOR,
    models::GENERATOR,
];

fn python() -> Option<String> {
    let python = std::env::var(PYTHON).ok();
    if python.is_none() {
        eprintln!("skipped: {PYTHON} names no Python with openai, cohere, huggingface_hub and schemathesis");
    }
    python
}

#[track_caller]
fn done(command: &mut Command) {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn clients_of_others_get_the_same_answers() {
    let Some(python) = python() else { return };
    let served = Served::start(&MODELS, &[]);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients.py");
    done(Command::new(python).arg(script).arg(&served.address));
}

#[test]
fn the_description_is_true() {
    let Some(python) = python() else { return };
    let served = Served::start(&MODELS, &[]);
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(python);
    command.args(["-m", "schemathesis.cli", "run", &format!("{}/openapi.json", served.address)]);
    command.args([
        "--max-examples",
        "30",
        "--seed",
        "1",
        "--checks",
        "all",
        "--request-timeout",
        "60",
        "--max-response-time",
        "60",
    ]);
    command.args(["--suppress-health-check", "all", "--continue-on-failure"]);
    done(command.current_dir(folder.path()));
}
