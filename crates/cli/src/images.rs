//! Images that a command reads: rows that name them, or files.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use cloze_data::images::{ImageSource, image_files};
use cloze_trainer::TrainerError;
use serde_json::json;

use crate::input::{Asked, Blank, IMAGE, Input, InputArgs, Kept, Row};
use crate::lines::Longer;
use crate::rows::{RowFormat, say_left_out};

/// The images of rows, up to the first that names none, and what is wrong with that one.
fn sources(rows: &[Row]) -> (Vec<ImageSource>, Option<anyhow::Error>) {
    let mut sources = Vec::with_capacity(rows.len());
    for row in rows {
        match ImageSource::of_text(row.text().trim(), Path::new(""), "the row's image") {
            Ok(source) => sources.push(source),
            Err(problem) => return (sources, Some(anyhow!("{problem}"))),
        }
    }
    (sources, None)
}

/// Answers rows: those after one that cannot be used in turn, if such rows are skipped. Returns how many were answered.
///
/// `answer` gets rows with their images. It answers the first ones, and returns how many, with what is wrong with the
/// image after them if that is why it stopped.
pub fn in_turn(
    input: &mut Input,
    rows: &[Row],
    mut answer: impl FnMut(&[Row], Vec<ImageSource>) -> Result<(usize, Option<TrainerError>)>,
) -> Result<usize> {
    let (mut done, mut answered) = (0, 0);
    while done < rows.len() {
        let rest = &rows[done..];
        let (sources, unread) = sources(rest);
        let n = sources.len();
        let (count, refused) = answer(rest, sources)?;
        done += count;
        answered += count;
        let problem = match refused {
            Some(error) => Some(anyhow!(error)),
            None if n < rest.len() => unread,
            None => None,
        };
        if let Some(problem) = problem {
            input.refuse(&rows[done].place, problem)?;
            done += 1;
        }
    }
    Ok(answered)
}

/// What is read of a row.
pub fn asked() -> Asked {
    Asked {
        fields: &IMAGE,
        expected: r#"{"image": "path"}, {"image": "data:image/png;base64,…"} or "path""#,
        replaced: &[],
        default: RowFormat::Jsonl,
        longer: Longer::Refused,
        blank: Blank::Refused,
    }
}

/// A row `{"image": path}` for each image in folders, files and those that patterns match.
pub fn of_paths(option: &'static str, paths: &[String], input: &InputArgs) -> Result<Input> {
    let (files, skipped) = image_files(paths, Path::new("")).context(option)?;
    say_left_out(option, &skipped);
    let row = |path: std::path::PathBuf| {
        let Some(path) = path.to_str() else {
            bail!("{}: the path is not UTF-8, which JSON needs; rename the file", path.display());
        };
        let kept = Kept::Object { text: json!({ "image": path }).to_string(), keys: vec!["image".into()] };
        Ok(Row::made(path.to_owned(), vec![path.into()], kept))
    };
    let rows: Vec<Row> = files.into_iter().map(row).collect::<Result<_>>()?;
    Ok(Input::made(option, rows, asked(), &input.rows.bad))
}
