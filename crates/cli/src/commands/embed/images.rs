//! `cloze embed --images`.

use std::io::{self, IsTerminal};
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use cloze_data::images::ImageSource;
use cloze_trainer::embed::VectorRanges;
use cloze_trainer::images::{ImageEmbedConfig, ImageEmbedder, ImageEmbeddings};

use super::sink::Sink;
use super::{Args, check_calibration, few_to_calibrate};
use crate::failure::WrongUsage;
use crate::images;
use crate::lines::{Batch, Lines};
use crate::model;
use crate::progress::Progress;

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
        true => args.input.open(images::asked())?,
        false => images::of_paths("--images", paths, &args.input)?,
    };
    let mut sink = Sink::new(args, &input, embedder.width(), ranges)?;
    let mut progress = Progress::new("images", args.answers.is_stdout() && io::stdout().is_terminal());
    let mut count = 0;
    loop {
        let rows = input.read(BATCH)?;
        if rows.is_empty() {
            break;
        }
        count += images::in_turn(&mut input, &rows, |rows, sources| {
            let ImageEmbeddings { values, refused } = args.compute.run(|| embedder.embed(sources))?;
            let n = values.len() / embedder.width();
            sink.write(&rows[..n], &values)?;
            Ok((n, refused))
        })?;
        progress.show(count, None);
    }
    progress.finish();
    sink.finish()
}

/// The ranges of the vectors of a file's images.
fn ranges(args: &Args, path: &Path, embedder: &ImageEmbedder) -> Result<VectorRanges> {
    let mut lines = Lines::of(Some(path), args.input.rows.bad.max_line_bytes())?;
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
