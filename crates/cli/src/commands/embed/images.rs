//! `cloze embed --images`.

use std::io::{self, IsTerminal};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use cloze_data::images::{ImageSource, image_files};
use cloze_trainer::embed::VectorRanges;
use cloze_trainer::images::{ImageEmbedConfig, ImageEmbedder, ImageEmbeddings};
use serde_json::json;

use super::sink::Sink;
use super::{Args, check_calibration, few_to_calibrate};
use crate::failure::WrongUsage;
use crate::input::{Asked, IMAGE, Input, Kept, Row};
use crate::lines::{Batch, Lines, Longer};
use crate::model;
use crate::progress::Progress;
use crate::rows::{RowFormat, say_skipped};

/// Rows read at a time, which hold the bytes of images.
const BATCH: usize = 64;

pub fn run(args: &Args, paths: &[String]) -> Result<()> {
    check_calibration(args.vectors.quantized(), args.calibrate.as_deref())?;
    if !paths.is_empty() && !args.input.is_default() {
        let error =
            anyhow!("--images PATH … names the images itself; leave out --input and the options of its rows");
        return Err(WrongUsage::new(error).into());
    }
    let device = args.compute.open()?;
    args.input.check()?;
    let config = ImageEmbedConfig { normalize: args.normalize.unwrap_or(false), int8: args.compute.int8 };
    let embedder = ImageEmbedder::open(&model::folder(&args.model)?, config, &device)?;
    let ranges = args.calibrate.as_deref().map(|path| ranges(args, path, &embedder)).transpose()?;
    let mut input = match paths.is_empty() {
        true => args.input.open(asked())?,
        false => of_paths(args, paths)?,
    };
    let mut sink = Sink::new(args, &input, embedder.width(), ranges)?;
    let mut progress = Progress::new("images", args.answers.is_stdout() && io::stdout().is_terminal());
    let mut count = 0;
    loop {
        let rows = input.read(BATCH)?;
        if rows.is_empty() {
            break;
        }
        // The rows after one that cannot be used are embedded in turn, if such rows are skipped.
        let mut done = 0;
        while done < rows.len() {
            let rest = &rows[done..];
            let (sources, unread) = sources(rest);
            let n = sources.len();
            let ImageEmbeddings { values, refused } = args.compute.run(|| embedder.embed(sources))?;
            let embedded = values.len() / embedder.width();
            sink.write(&rest[..embedded], &values)?;
            done += embedded;
            count += embedded;
            let problem = match refused {
                Some(error) => Some(anyhow!(error)),
                None if n < rest.len() => unread,
                None => None,
            };
            if let Some(problem) = problem {
                input.refuse(problem.context(rows[done].place.clone()))?;
                done += 1;
            }
        }
        progress.show(count, None);
    }
    progress.finish();
    sink.finish()
}

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

/// What is read of a row.
fn asked() -> Asked {
    Asked {
        fields: &IMAGE,
        expected: r#"{"image": "path"}, {"image": "data:image/png;base64,…"} or "path""#,
        replaced: &[],
        default: RowFormat::Jsonl,
        longer: Longer::Refused,
    }
}

/// A row `{"image": path}` for each image in folders, files and those that patterns match.
fn of_paths(args: &Args, paths: &[String]) -> Result<Input> {
    let (files, skipped) = image_files(paths, Path::new("")).context("--images")?;
    say_skipped("--images", &skipped);
    let row = |path: std::path::PathBuf| {
        let Some(path) = path.to_str() else {
            bail!("{}: the path is not UTF-8, which JSON needs; rename the file", path.display());
        };
        let kept = Kept::Object { text: json!({ "image": path }).to_string(), keys: vec!["image".into()] };
        Ok(Row::made(path.to_owned(), vec![path.into()], kept))
    };
    let rows: Vec<Row> = files.into_iter().map(row).collect::<Result<_>>()?;
    Ok(Input::made("--images", rows, asked(), &args.input.rows.bad))
}

/// The ranges of the vectors of a file's images.
fn ranges(args: &Args, path: &Path, embedder: &ImageEmbedder) -> Result<VectorRanges> {
    let mut lines = Lines::of(Some(path), args.input.rows.bad.max_line_bytes)?;
    let (mut ranges, mut batch, mut n_lines) = (VectorRanges::new(embedder.width()), Batch::default(), 0);
    while lines.read(BATCH, &mut batch)? {
        let place = |index: usize| lines.place(batch.first() + index);
        let source = |(index, line): (usize, &str)| match line.trim().starts_with(['{', '"']) {
            true => ImageEmbedder::source_of_line(line).with_context(|| place(index)),
            false => ImageSource::of_text(line.trim(), Path::new(""), "the line's image")
                .map_err(|problem| anyhow!("{}: {problem}", place(index))),
        };
        let sources =
            batch.iter().map(|line| line.text).enumerate().map(source).collect::<Result<Vec<_>>>()?;
        n_lines += sources.len();
        let ImageEmbeddings { values, refused } = args.compute.run(|| embedder.embed(sources))?;
        if let Some(error) = refused {
            return Err(anyhow!(error).context(place(values.len() / embedder.width())));
        }
        values.chunks_exact(embedder.width()).for_each(|vector| ranges.widen(vector));
    }
    few_to_calibrate(path, n_lines, "images")?;
    Ok(ranges)
}
