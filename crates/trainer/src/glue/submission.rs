//! The answers to the tests, as gluebenchmark.com takes them: `submission.zip` with a file a test set, whose rows are an
//! index and a prediction.

use super::files::{GlueFolder, TaskFiles, TestFile, TestRow};
use super::tasks::GlueTask;
use super::zip::archive;
use crate::engine::origin::{Input, PROGRAM, model_files};
use crate::finetune::{Advance, Predictor};
use crate::metrics::progress::{Pass, RunProgress};
use crate::{Result, TrainerError};
use burn::tensor::Device;
use cloze_evaluation::table::grouped;
use cloze_files::write_atomic;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Rows that are held at a time.
const ROWS: usize = 4_096;

/// The first line of a file of the submission.
const HEADER: &str = "index\tprediction\n";

/// The archive's name.
const ARCHIVE: &str = "submission.zip";

/// What a file of predictions was made of, so that it need not be made again.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct MadeOf {
    program: String,
    inputs: Vec<Input>,
    rows: u64,
}

/// Answers the tests of a task with the model in a folder, in a file each in `folder`, unless that was done before.
/// Returns whether all are answered: not if `stop` was raised.
///
/// # Errors
/// A damaged model or test file; a file that cannot be written.
pub(super) fn answer(
    files: &TaskFiles,
    model: &Path,
    folder: &Path,
    device: &Device,
    stop: &AtomicBool,
    progress: &mut dyn RunProgress,
) -> Result<bool> {
    fs::create_dir_all(folder).map_err(TrainerError::io("make", folder))?;
    let mut predictor = None;
    for test in &files.tests {
        let (predictions, record) = paths(folder, test);
        let mut inputs = model_files(model)?;
        inputs.push(test.path.clone());
        let inputs = Input::of(inputs)?;
        let before: Option<MadeOf> =
            fs::read(&record).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let is_done = before.is_some_and(|before| before.program == PROGRAM && before.inputs == inputs);
        if is_done && predictions.exists() {
            progress.note(&format!("{} test: answered before", test.title));
            continue;
        }
        let predictor = match &mut predictor {
            Some(predictor) => predictor,
            none => none.insert(Predictor::load(model, device, false)?),
        };
        let Some((text, rows)) = predict(test, predictor, stop, progress)? else { return Ok(false) };
        if rows != test.published_rows {
            progress.note(&format!(
                "warning: {} has {} rows, and the one that GLUE distributes {}; the site takes answers to all of them",
                test.path.display(),
                grouped(rows),
                grouped(test.published_rows)
            ));
        }
        write_atomic(&predictions, text.as_bytes())?;
        let made = MadeOf { program: PROGRAM.into(), inputs, rows };
        let made = serde_json::to_string_pretty(&made).expect("strings and numbers serialise");
        write_atomic(&record, (made + "\n").as_bytes())?;
        progress.note(&format!("{} test: {} rows answered", test.title, grouped(rows)));
    }
    Ok(true)
}

fn paths(folder: &Path, test: &TestFile) -> (PathBuf, PathBuf) {
    (folder.join(format!("{}.tsv", test.title)), folder.join(format!("{}.json", test.title)))
}

/// The file of a test set's predictions, and its rows; none if `stop` was raised.
fn predict(
    test: &TestFile,
    predictor: &Predictor,
    stop: &AtomicBool,
    progress: &mut dyn RunProgress,
) -> Result<Option<(String, u64)>> {
    let work = format!("answering {}", test.title);
    let started = Instant::now();
    let (mut text, mut done, mut cut) = (HEADER.to_owned(), 0, 0);
    let mut rows = test.rows()?;
    loop {
        let chunk: Vec<TestRow> = rows.by_ref().take(ROWS).collect::<Result<_>>()?;
        if chunk.is_empty() {
            break;
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let line = |row: &TestRow| match &row.pair {
            Some(pair) => json!({ "text": row.text, "pair": pair }).to_string(),
            None => json!({ "text": row.text }).to_string(),
        };
        let lines: Vec<String> = chunk.iter().map(line).collect();
        let advanced = &mut |advance: Advance| {
            let done = done + advance.done;
            let share = (done as f64 / test.published_rows as f64).min(0.99);
            progress.pass(&Pass { work: &work, done, share, elapsed: started.elapsed() });
        };
        let predicted = predictor.predict(&lines, advanced)?;
        if let Some(error) = predicted.refused {
            // The values are those of the rows before it.
            let row = chunk.get(predicted.values.len()).map_or(0, |row| row.index);
            let problem = format!("{}: the row of index {row}: {error}", test.path.display());
            return Err(TrainerError::BadInput { problem });
        }
        done += chunk.len();
        cut += predicted.truncated;
        for (row, value) in chunk.iter().zip(&predicted.values) {
            writeln!(text, "{}\t{}", row.index, prediction(value)?).expect("a string takes any text");
        }
    }
    progress.pass(&Pass { work: &work, done, share: 1.0, elapsed: started.elapsed() });
    if done == 0 {
        let problem = format!("{} has no rows below its header; expected test rows", test.path.display());
        return Err(TrainerError::BadInput { problem });
    }
    if cut > 0 {
        progress.note(&format!(
            "{}: {} of {} rows were cut",
            test.title,
            grouped(cut as u64),
            grouped(done as u64)
        ));
    }
    Ok(Some((text, done as u64)))
}

/// A prediction as the site takes it: a label's name, or a score from 0 to 5 with three decimals.
fn prediction(value: &Value) -> Result<String> {
    if let Some(label) = value["label"].as_str() {
        return Ok(label.to_owned());
    }
    match value["value"].as_f64() {
        Some(score) if score.is_finite() => Ok(format!("{:.3}", score.clamp(0.0, 5.0))),
        _ => Err(TrainerError::OutputNotFinite),
    }
}

/// Writes the archive of the predictions in `folder` beside that folder, after checking that each file has a row for each
/// row of its test file. Returns its path.
///
/// # Errors
/// A file with more or fewer rows; files that cannot be read or written.
pub(super) fn pack(glue: &GlueFolder, folder: &Path, progress: &mut dyn RunProgress) -> Result<PathBuf> {
    let path = folder.with_file_name(ARCHIVE);
    let mut packed = Vec::new();
    for test in glue.tasks.iter().flat_map(|files| &files.tests) {
        let (predictions, _) = paths(folder, test);
        let bytes = fs::read(&predictions).map_err(TrainerError::io("read", &predictions))?;
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        let found = lines.saturating_sub(1);
        let mut expected = 0;
        for row in test.rows()? {
            row?;
            expected += 1;
        }
        if found != expected {
            let problem = format!(
                "{} has {found} rows and {} has {expected}; remove the first, and the same command makes it again",
                predictions.display(),
                test.path.display()
            );
            return Err(TrainerError::BadInput { problem });
        }
        packed.push((format!("{}.tsv", test.title), bytes));
    }
    write_atomic(&path, &archive(&path, &packed)?)?;
    let given: Vec<&str> = packed.iter().filter_map(|(name, _)| name.strip_suffix(".tsv")).collect();
    let all = GlueTask::ALL.into_iter().flat_map(|task| task.facts().tests);
    let missing: Vec<&str> = all.map(|test| test.title).filter(|title| !given.contains(title)).collect();
    if !missing.is_empty() {
        progress.note(&format!(
            "warning: {} lacks {}; the site takes submissions of all tasks",
            path.display(),
            missing.join(", ")
        ));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_within_the_scale() {
        let of = |value: f64| prediction(&json!({ "value": value })).unwrap();
        assert_eq!([of(-0.2), of(1.2346), of(5.01)], ["0.000", "1.235", "5.000"]);
        assert_eq!(
            prediction(&json!({ "label": "not_entailment", "score": 0.5 })).unwrap(),
            "not_entailment"
        );
        assert!(prediction(&json!({ "value": null })).is_err());
    }
}
