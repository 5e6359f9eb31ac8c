//! `cargo xtask train`: builds `cloze` and trains with it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::{program, step};

/// The run that no arguments ask for, and where it goes.
const DEFAULT_CONFIG: &str = "configs/bert-tiny-sample.toml";
const DEFAULT_OUT: &str = "runs/bert-tiny-sample";

/// The trained model inside a run's folder.
const MODEL: &str = "model";

/// Sentences in the sample's manner that do not occur in it.
const UNSEEN: [&str; 5] = [
    "I ask the [MASK] to send me this bill before the summer.",
    "The people of the United [MASK] have never been afraid of hard work.",
    "We will build new schools and [MASK] in every county of this land.",
    "The Secretary of the [MASK] has laid his accounts before you.",
    "Our soldiers have shown great courage in this [MASK].",
];

/// Build `cloze` in release, with the backend that --device needs, and run `cloze train`.
///
/// Without a CONFIG it is the default run, a small BERT pretrained on the sample in datasets/,
/// which then fills masks in a few sentences it has not seen; paths are relative to the root then.
#[derive(clap::Args)]
pub struct Args {
    /// All passed on to `cloze train`; see `cloze train --help`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "CONFIG] [ARGS")]
    args: Vec<String>,
}

pub fn run(args: &Args) -> Result<()> {
    let args = &args.args;
    let device = option(args, "--device");
    let cloze = program::build(device.and_then(program::feature))?;

    if args.first().is_some_and(|first| !first.starts_with('-')) {
        return step::run("train", Command::new(&cloze).arg("train").args(args));
    }

    // The default run starts in the root, which its paths are relative to.
    let root = step::root();
    let mut train = Command::new(&cloze);
    train.arg("train").current_dir(&root).arg(DEFAULT_CONFIG).args(args);
    let out = match option(args, "--out") {
        Some(out) => root.join(out),
        None => {
            let out = default_out(&root, args.iter().any(|arg| arg == "--resume"));
            train.arg("--out").arg(&out);
            out
        }
    };
    step::run("train", &mut train)?;

    let mut fill = Command::new(&cloze);
    fill.arg("fill-mask").arg("--model").arg(out.join(MODEL)).args(["--top-k", "3"]);
    if let Some(device) = device {
        fill.args(["--device", device]);
    }
    step::run("fill masks in unseen sentences", fill.args(UNSEEN))
}

/// A folder no run was started in, so that a second run needs no tidying up; to resume, the last
/// one that was.
fn default_out(root: &Path, resume: bool) -> PathBuf {
    let folder = |number: usize| match number {
        1 => root.join(DEFAULT_OUT),
        _ => root.join(format!("{DEFAULT_OUT}-{number}")),
    };
    let free = (1..).find(|number| !folder(*number).exists()).unwrap_or(1);
    folder(if resume { free.saturating_sub(1).max(1) } else { free })
}

/// The value of `--name VALUE` or `--name=VALUE`.
fn option<'a>(args: &'a [String], name: &str) -> Option<&'a str> {
    args.iter().enumerate().find_map(|(at, arg)| match arg.strip_prefix(name)? {
        "" => args.get(at + 1).map(String::as_str),
        value => value.strip_prefix('='),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_run_takes_the_next_free_folder() {
        let root = std::env::temp_dir().join(format!("cloze-xtask-{}", std::process::id()));
        let made = |number: &str| root.join(format!("{DEFAULT_OUT}{number}"));
        assert_eq!(default_out(&root, false), made(""));
        assert_eq!(default_out(&root, true), made(""));
        std::fs::create_dir_all(made("")).unwrap();
        assert_eq!(default_out(&root, false), made("-2"));
        std::fs::create_dir_all(made("-2")).unwrap();
        assert_eq!(default_out(&root, false), made("-3"));
        assert_eq!(default_out(&root, true), made("-2"));
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn options_are_found_in_both_spellings() {
        let args = ["run.toml", "--device", "cuda:1", "--out=there", "--outer=x"].map(String::from);
        assert_eq!(option(&args, "--device"), Some("cuda:1"));
        assert_eq!(option(&args, "--out"), Some("there"));
        assert_eq!(option(&args, "--set"), None);
        assert_eq!(option(&args[..2], "--device"), None);
    }
}
