//! `cloze eval` of a classifier of images.

use anyhow::{Result, anyhow};
use cloze_evaluation::report::Report;
use cloze_trainer::config::ConfigFile;
use cloze_trainer::finetune::Advance;
use cloze_trainer::images::{EvaluationSplit, ImageMeasurement, ImagePredictor, ImageRun};
use cloze_trainer::runs::RunKind;

use super::cost::SINGLY;
use super::{Args, Split, print};
use crate::failure::WrongUsage;
use crate::model;
use crate::output::say;
use crate::progress::Progress;

pub fn run(args: &Args, file: &ConfigFile) -> Result<()> {
    let path = &args.file.config;
    let wrong = |message: String| WrongUsage::new(anyhow!("{}: {message}", path.display()));
    let config = ImageRun::read(file, &args.file.settings).map_err(WrongUsage::new)?;
    let (name, split) = match args.split {
        Split::Dev => ("dev", EvaluationSplit::Dev),
        Split::Test => ("test", EvaluationSplit::Test),
    };
    let device = args.compute.open()?;
    let folder = model::folder(&args.model)?;
    let predictor = ImagePredictor::open(&folder, &device, args.compute.int8)?;
    let mut progress = Progress::new("images", false);
    let singly = if args.cost { SINGLY } else { 0 };
    let advanced = &mut |advance: Advance| progress.show(advance.done, Some(advance.share));
    let measured = args.compute.run(|| predictor.evaluate_singly(&config, split, singly, advanced));
    progress.finish();
    let Some(ImageMeasurement { predictions, figures, skipped, cost, .. }) = measured? else {
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
    print(args, &figures, args.cost.then_some(&cost), &folder)
}
