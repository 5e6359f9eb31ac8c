//! `cloze caption`.

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use anyhow::{Result, anyhow};
use clap::builder::RangedU64ValueParser;
use cloze_evaluation::report::{AttendedWord, CaptionPage, CaptionedImage};
use cloze_model::huggingface::DecodeOptions;
use cloze_trainer::captions::{
    DescribeConfig, Described, Descriptions, ImageDescriber, WrittenCaption, is_captioner,
};
use serde_json::{Value, json};

use crate::compute::Compute;
use crate::failure::{WrongUsage, by_option};
use crate::images;
use crate::input::{InputArgs, Row};
use crate::model;
use crate::output::{Output, say};
use crate::progress::Progress;

/// Describe images in words.
///
/// Example: cloze caption --model nlpconnect/vit-gpt2-image-captioning photos/*.jpg
///
/// Images are files, folders and patterns; without any, rows of the input, each with an image as cloze predict takes it:
/// {"image": "a.png"}, {"image": "data:image/png;base64,..."} or "a.png". The model is one that cloze train made with
/// task.kind = "captions", or transformers' VisionEncoderDecoderModel of a ViT and a GPT-2.
///
/// Prints a line for each image: its name, a tab, and the caption. --attention makes a page that shows, word by word, where the
/// model looked; --json has the same numbers.
#[derive(clap::Args)]
#[command(after_long_help = "\
More examples:
  cloze caption --model runs/scenes-soft/model --attention page.html drawing.png
  cloze caption --model runs/scenes-soft/model --beam 10 --n-best 3 --json photos > captions.jsonl
  cloze caption --model runs/scenes-soft/model --input images.csv --columns image=file")]
pub struct Args {
    #[arg(long, value_name = "MODEL", help = model::HELP)]
    model: String,
    /// Images: files, folders and patterns (default: rows of the input).
    #[arg(value_name = "IMAGE")]
    images: Vec<String>,
    #[command(flatten)]
    input: InputArgs,
    /// Beam size; 1 is greedy decoding (default: from the folder, else 5).
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..=1000))]
    beam: Option<usize>,
    /// Number of captions per image, best first, each on its own line with its score.
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..=1000))]
    n_best: Option<usize>,
    /// The exponent A of the length penalty that divides log-probabilities (default: from the folder, else 1).
    #[arg(long, value_name = "A", allow_negative_numbers = true)]
    length_penalty: Option<f64>,
    /// Maximum tokens of a caption (default: from the folder, else 64).
    #[arg(long, value_name = "N")]
    max_new: Option<usize>,
    /// Write a page that shows where the model looked at each word.
    #[arg(long, value_name = "FILE")]
    attention: Option<PathBuf>,
    /// Print one JSON object per image.
    #[arg(long)]
    json: bool,
    /// Images computed at a time.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    batch: usize,
    #[command(flatten)]
    compute: Compute,
}

impl Args {
    fn config(&self) -> DescribeConfig {
        let mut options = DecodeOptions::default();
        let settings = &mut options.settings;
        settings.beams = self.beam;
        settings.sample = self.beam.map(|_| false);
        settings.length_penalty = self.length_penalty;
        settings.max_new = self.max_new;
        let mut config = DescribeConfig::default();
        config.decoding = options;
        config.n_best = self.n_best.unwrap_or(1);
        config.attention = self.json || self.attention.is_some();
        config.int8 = self.compute.int8;
        config
    }
}

/// Images on a page.
const MOST_SHOWN: usize = 100;

pub fn run(args: &Args) -> Result<()> {
    if !args.images.is_empty() && !args.input.is_default() {
        let error =
            anyhow!("IMAGE ... names the images itself; leave out --input and the options of its rows");
        return Err(WrongUsage::new(error).into());
    }
    let device = args.compute.open()?;
    args.input.check()?;
    let folder = model::folder(&args.model)?;
    if !is_captioner(&folder) {
        let error = anyhow!(
            "--model {}: it does not describe images; cloze train makes such a model with `task.kind = \"captions\"`",
            args.model
        );
        return Err(WrongUsage::new(error).into());
    }
    let describer = ImageDescriber::open(&folder, &args.config(), &device).map_err(by_option)?;
    let mut input = match args.images.is_empty() {
        true => args.input.open(images::asked())?,
        false => images::of_paths("IMAGE", &args.images, &args.input)?,
    };
    let mut output = Output::new();
    let mut progress = Progress::new("images", io::stdout().is_terminal());
    let (mut count, mut page) = (0, Vec::new());
    loop {
        let rows = input.read(args.batch)?;
        if rows.is_empty() {
            break;
        }
        count += images::in_turn(&mut input, &rows, |rows, sources| {
            let Descriptions { images: described, refused, .. } =
                args.compute.run(|| describer.describe(sources))?;
            for (row, image) in rows.iter().zip(&described) {
                print(args, &mut output, row, image)?;
                if args.attention.is_some() && page.len() < MOST_SHOWN {
                    page.extend(shown(row, image));
                }
            }
            output.flush()?;
            Ok((described.len(), refused))
        })?;
        progress.show(count, None);
    }
    progress.finish();
    if let Some(path) = &args.attention {
        if count > page.len() {
            say(format_args!("{}: the first {MOST_SHOWN} of {count} images", path.display()));
        }
        if page.iter().all(|image| image.words.iter().all(|word| word.attention.is_empty()))
            && !page.is_empty()
        {
            say(format_args!(
                "{}: the model has no attention, so the page has captions alone",
                path.display()
            ));
        }
        CaptionPage { title: format!("Captions of {}", args.model), images: page }.write(path)?;
    }
    output.finish()
}

/// The name of a row's image: its path, or the row's place if it has the bytes.
fn name(row: &Row) -> &str {
    let text = row.text().trim();
    if text.starts_with("data:") { &row.place } else { text }
}

fn print(args: &Args, output: &mut Output, row: &Row, image: &Described) -> Result<()> {
    if args.json {
        return output.line(json(name(row), image));
    }
    for caption in &image.captions {
        // A line of the output is a caption.
        let text = caption.text.replace(['\n', '\r', '\t'], " ");
        match args.n_best {
            Some(_) => output.line(format_args!("{}\t{text}\t{:.6}", name(row), caption.score))?,
            None => output.line(format_args!("{}\t{text}", name(row)))?,
        }
    }
    Ok(())
}

/// `{"image": ..., "grid": [rows, columns], "captions": [{"text": ..., "score": ..., "words": [...]}]}`
fn json(name: &str, image: &Described) -> Value {
    let caption = |caption: &WrittenCaption| {
        let WrittenCaption { text, score, log_prob, cut, words, .. } = caption;
        let words = words.iter().map(|word| {
            let mut one = json!({ "word": text[word.range.clone()] });
            if !word.attention.is_empty() {
                one["attention"] = json!(word.attention);
            }
            one
        });
        let words: Vec<Value> = words.collect();
        json!({ "text": text, "score": score, "log_probability": log_prob, "cut": cut, "words": words })
    };
    let captions: Vec<Value> = image.captions.iter().map(caption).collect();
    json!({ "image": name, "grid": image.grid, "captions": captions })
}

/// An image for the page, with its best caption.
fn shown(row: &Row, image: &Described) -> Option<CaptionedImage> {
    let (caption, input) = (image.captions.first()?, image.input.as_ref()?);
    let word = |word: &cloze_trainer::captions::WrittenWord| AttendedWord {
        word: caption.text[word.range.clone()].to_owned(),
        attention: word.attention.clone(),
    };
    Some(CaptionedImage {
        name: name(row).to_owned(),
        png: input.to_png(),
        width: input.width(),
        height: input.height(),
        grid: image.grid,
        words: caption.words.iter().map(word).collect(),
        log_prob: caption.log_prob,
    })
}
