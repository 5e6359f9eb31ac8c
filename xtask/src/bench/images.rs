//! Models of images beside transformers': training steps, answers of a ViT-B/16, and captions.

use std::fs;

use anyhow::{Context, Result};

use super::kept::target;
use super::measure::{self, Rounds, Row};
use super::report;

/// A row: what is measured, what both sides are asked, and the ratio that is wanted.
const STEPS: [(&str, &str, &str, f64); 5] = [
    ("step of ViT, 128 of CIFAR-10, f32", "vit", "f32", 2.0),
    ("step of ViT, 128 of CIFAR-10, bf16", "vit", "bf16", 2.0),
    ("step of ResNet-20, 128 of CIFAR-10, f32", "resnet", "f32", 2.0),
    ("step of MAE, 256 of CIFAR-10, f32", "mae", "f32", 2.0),
    ("step of MAE, 256 of CIFAR-10, bf16", "mae", "bf16", 2.0),
];

/// The same, of a batch of images of 224 × 224.
const ANSWERS: [(&str, &str, &str, f64); 4] = [
    ("ViT-B/16 at 224, one image, f32", "1", "f32", 1.5),
    ("ViT-B/16 at 224, 8 images, f32", "8", "f32", 1.5),
    ("ViT-B/16 at 224, 8 images, bf16", "8", "bf16", 1.5),
    ("ViT-B/16 at 224, 8 images, int8", "8", "int8", 1.5),
];

/// The same, of captions of 16 tokens by a beam of 5.
const CAPTIONS: [(&str, &str, &str, f64); 3] = [
    ("captions by ViT-B/16 and GPT-2, beam 5, 4 images, f32", "4", "f32", 2.0),
    ("captions by ViT-B/16 and GPT-2, beam 5, 4 images, bf16", "4", "bf16", 2.0),
    ("captions by ViT-B/16 and GPT-2, beam 5, 4 images, int8", "4", "int8", 2.0),
];

/// Steps, and answers, of a round.
const TIMES: &str = "5";

pub fn run(args: &Rounds) -> Result<()> {
    let python = measure::python();
    let executable = measure::build("cloze-trainer", "images")?;
    let [folder, captioner] =
        [("make", "vit-base"), ("make-captioner", "vit-base-gpt2")].map(|(make, name)| {
            let folder = target().join("images-bench").join(name);
            if let Some(python) = python.as_ref().filter(|_| !folder.join("config.json").exists()) {
                fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
                measure::output(&mut measure::peer(python, "images.py", &[make, &folder.to_string_lossy()]))?;
            }
            anyhow::Ok(folder.to_string_lossy().into_owned())
        });
    let (folder, captioner) = (folder?, captioner?);
    let steps =
        STEPS.map(|(work, what, precision, floor)| (work, vec!["step", what, TIMES, precision], floor));
    let answers = ANSWERS.map(|(work, batch, precision, floor)| {
        (work, vec!["predict", &folder, batch, TIMES, precision], floor)
    });
    let captions = CAPTIONS.map(|(work, batch, precision, floor)| {
        (work, vec!["caption", &captioner, batch, TIMES, precision], floor)
    });
    let answers = answers.into_iter().chain(captions);
    let has_model = python.is_some();
    let rows = steps.into_iter().chain(answers.filter(|_| has_model)).map(|(work, asked, floor)| {
        let peer = python.as_ref().map(|python| measure::peer(python, "images.py", &asked));
        Row { work, ours: measure::ours(&executable, &asked), peer: ("transformers", peer), floor }
    });
    let outcomes = measure::alternate(rows.collect(), args)?;
    let text = format!(
        "{}\n\nSteps: the models of `configs/cifar10-vit.toml`, `cifar10-cnn.toml` and `cifar10-mae.toml`; ResNet-20's peer is torch's layers with channels last; bf16 is autocast on the peer's side. Answers: random \
         weights; int8 is torch's dynamic quantization on the peer's side. Medians of {} alternating rounds of {TIMES}. {}.",
        report::beside(&outcomes, "images/s"),
        args.rounds,
        report::machine(python.as_ref())
    );
    println!("{text}");
    if args.write { report::write_class("images", &text) } else { Ok(()) }
}
