//! `cloze eval` of a classifier of images.

use anyhow::{Result, anyhow};
use cloze_evaluation::report::Report;
use cloze_trainer::config::ConfigFile;
use cloze_trainer::finetune::Advance;
use cloze_trainer::images::{EvaluationSplit, ImageMeasurement, ImagePredictor, ImageRun};
use cloze_trainer::runs::RunKind;

use super::{Args, Split};
use crate::failure::WrongUsage;
use crate::model;
use crate::output::{Output, say};
use crate::progress::Progress;

pub fn run(args: &Args, file: &ConfigFile) -> Result<()> {
    let path = &args.file.config;
    let wrong = |message: String| WrongUsage::new(anyhow!("{}: {message}", path.display()));
    let config = ImageRun::read(file, &args.file.settings).map_err(WrongUsage::new)?;
    if args.cost {
        return Err(wrong("--cost measures models of texts; leave it out".into()).into());
    }
    let (name, split) = match args.split {
        Split::Dev => ("dev", EvaluationSplit::Dev),
        Split::Test => ("test", EvaluationSplit::Test),
    };
    let device = args.compute.open()?;
    let folder = model::folder(&args.model)?;
    let predictor = ImagePredictor::open(&folder, &device, args.compute.int8)?;
    let mut progress = Progress::new("images", false);
    let advanced = &mut |advance: Advance| progress.show(advance.done, Some(advance.share));
    let measured = args.compute.run(|| predictor.evaluate(&config, split, advanced));
    progress.finish();
    let Some(ImageMeasurement { predictions, figures, skipped, .. }) = measured? else {
        return Err(wrong(format!("names no files in `data.{name}`")).into());
    };
    if !skipped.is_empty() {
        say(format_args!("{name}: skipped {skipped}"));
    }
    if let Some(warning) = predictions.warning() {
        say(format_args!("warning: {name}: {warning}"));
    }
    if let Some(out) = &args.out {
        let facts = [
            ("model", folder.display().to_string()),
            ("split", name.to_string()),
            ("multiplies in", args.compute.to_string()),
        ];
        let title = format!("{}: {name}", config.common.run.name);
        Report { title: &title, facts: &facts, figures: &figures, predictions: Some(&*predictions) }
            .write(out)?;
        say(format_args!("{}", out.join("report.html").display()));
    }
    let mut output = Output::new();
    match args.json {
        true => output.line(serde_json::to_string(&figures)?)?,
        false => output.line(&figures)?,
    }
    output.flush()
}
