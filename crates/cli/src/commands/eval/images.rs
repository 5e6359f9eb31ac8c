//! `cloze eval` of a model of images: a classifier, or one that describes them.

use anyhow::{Result, anyhow};
use cloze_evaluation::report::Report;
use cloze_trainer::captions::{CaptionRun, DescribeConfig, ImageDescriber};
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
    let split = match args.split.unwrap_or(Split::Dev) {
        Split::Dev => EvaluationSplit::Dev,
        Split::Test => EvaluationSplit::Test,
    };
    let name = split.name();
    let device = args.compute.open()?;
    let singly = if args.cost { SINGLY } else { 0 };
    let mut progress = Progress::new("images", false);
    let advanced = &mut |advance: Advance| progress.show(advance.done, Some(advance.share));
    let (run, folder, key, measured) = if CaptionRun::is_of(file) {
        let config = CaptionRun::read(file, &args.file.settings).map_err(WrongUsage::new)?;
        let folder = model::folder(&args.model)?;
        let mut how = DescribeConfig::default();
        how.int8 = args.compute.int8;
        let describer = ImageDescriber::open(&folder, &how, &device)?;
        let measured = args.compute.run(|| describer.evaluate(&config, split, singly, advanced));
        (config.common.run.name, folder, "data.source", measured)
    } else {
        let config = ImageRun::read(file, &args.file.settings).map_err(WrongUsage::new)?;
        let folder = model::folder(&args.model)?;
        let predictor = ImagePredictor::open(&folder, &device, args.compute.int8)?;
        let measured = args.compute.run(|| predictor.evaluate_singly(&config, split, singly, advanced));
        (config.common.run.name, folder, "data", measured)
    };
    progress.finish();
    let Some(ImageMeasurement { predictions, figures, skipped, cost, .. }) = measured? else {
        return Err(wrong(format!("names no images in `{key}.{name}`")).into());
    };
    if !skipped.is_empty() {
        say(format_args!("{name}: skipped {}", skipped.among(predictions.len() as u64, "rows")));
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
        let title = format!("{run}: {name}");
        Report { title: &title, facts: &facts, figures: &figures, predictions: Some(&*predictions) }
            .write(out)?;
        say(format_args!("{}", out.join("report.html").display()));
    }
    print(args, &figures, args.cost.then_some(&cost), &folder)
}
