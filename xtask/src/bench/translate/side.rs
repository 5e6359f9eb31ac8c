//! A run of either side, and what its model translates.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::models::Model;
use crate::bench::{measure, records};
use crate::step;

/// Both sides get as many, whatever the machine has.
pub const THREADS: &str = "2";

/// Beams that tests are translated with.
pub const BEAMS: &str = "5";

/// Where sources are divided by their number of words.
const LENGTHS: &str = "8,10,12,14,17,20";

/// A finished run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trained {
    /// Of all steps: without reading, tokenizing, evaluations and saving.
    pub seconds: f64,
    pub steps: u64,
    /// Of both sides, without padding.
    pub tokens: f64,
    /// Of a token of the held-out pairs, in nats, without smoothing.
    pub held_out_loss: Option<f64>,
    pub parameters: u64,
    /// On test 2016.
    pub bleu: f64,
    pub chrf: f64,
}

impl Trained {
    pub fn per_s(&self) -> f64 {
        self.tokens / self.seconds
    }

    pub fn line(&self) -> String {
        let Self { bleu, chrf, seconds, steps, .. } = self;
        format!("BLEU {bleu:.2}, chrF {chrf:.2}, {steps} steps in {:.1} min", seconds / 60.0)
    }
}

/// The data's files.
#[derive(Debug, Clone)]
pub struct Data(pub PathBuf);

impl Data {
    /// Test 2016 in a language.
    pub fn test(&self, language: &str) -> PathBuf {
        self.0.join("test_2016").with_extension(language)
    }
}

/// Our side: the program.
pub struct Ours {
    pub program: PathBuf,
    pub version: String,
}

impl Ours {
    pub fn new(program: PathBuf) -> Result<Self> {
        let version = said(Command::new(&program).arg("--version"))?;
        Ok(Self { program, version })
    }

    /// Trains in `folder`, or goes on with the run that is there unless it is to begin anew.
    pub fn train(&self, model: &Model, sets: &[&str], folder: &Path, anew: bool) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.current_dir(step::root()).env("RAYON_NUM_THREADS", THREADS);
        command.arg("train").arg(model.path()).arg("--out").arg(folder);
        command.args(model.sets.iter().chain(sets).flat_map(|set| ["--set", *set]));
        command.args(["--set", "checkpoint.keep_last=1"]);
        if anew {
            remove(folder)?;
        } else if folder.join("config.toml").exists() {
            command.arg("--resume");
        }
        measure::output(&mut command).map(drop)
    }

    /// What a finished run is worth.
    pub fn measure(&self, model: &Model, folder: &Path, data: &Data) -> Result<Trained> {
        let hypotheses = folder.join("hypotheses.txt");
        measure::process(&mut self.translate(folder, &[]), &data.test("en"), &hypotheses)?;
        let records = records::read(folder)?;
        let records::Steps { steps, tokens, seconds } = records::steps(&records)?;
        let held_out = records::evaluations(&records, "dev");
        let reference = data.test(model.target);
        Ok(Trained {
            seconds,
            steps,
            tokens,
            held_out_loss: held_out.last().and_then(|figures| figures["figures"]["loss"].as_f64()),
            parameters: parameters(&folder.join("model"))?,
            bleu: self.score("bleu", &reference, &hypotheses)?,
            chrf: self.score("chrf", &reference, &hypotheses)?,
        })
    }

    /// The program as it translates with a run's model.
    pub fn translate(&self, folder: &Path, options: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.env("RAYON_NUM_THREADS", THREADS);
        command.arg("translate").arg("--model").arg(folder.join("model"));
        command.args(["--beam", BEAMS]).args(options);
        command
    }

    /// Both sides' translations are scored by the same program.
    pub fn score(&self, metric: &str, reference: &Path, hypotheses: &Path) -> Result<f64> {
        let mut command = Command::new(&self.program);
        command.args(["score", metric, "--json", "--decimals", "4", "--reference"]).arg(reference);
        command.arg("--input").arg(hypotheses);
        let text = measure::output(&mut command)?;
        let line: Value =
            serde_json::from_str(&text).with_context(|| format!("{command:?} printed no JSON"))?;
        line["score"].as_f64().with_context(|| format!("{command:?} printed no score"))
    }

    /// BLEU against the length of sources: a table, and a picture of several systems, which are called by the names of
    /// their files in `folder`.
    pub fn by_length(
        &self,
        data: &Data,
        target: &str,
        folder: &Path,
        hypotheses: &[String],
        picture: &Path,
    ) -> Result<String> {
        let mut command = Command::new(&self.program);
        command.current_dir(folder);
        command.args(["score", "bleu", "--reference"]).arg(data.test(target));
        command.arg("--by-length").arg(data.test("en")).args(["--lengths", LENGTHS]);
        command.arg("--plot").arg(picture);
        if let [first, rest @ ..] = hypotheses {
            command.arg("--input").arg(first);
            if !rest.is_empty() {
                command.arg("--paired").args(rest);
            }
        }
        measure::output(&mut command)
    }
}

/// The peer: PyTorch.
pub struct Theirs {
    pub python: OsString,
    pub version: String,
}

/// What the peer's script prints.
#[derive(Deserialize)]
struct Printed {
    seconds: f64,
    steps: u64,
    tokens: f64,
    held_out_loss: Option<f64>,
    parameters: u64,
}

impl Theirs {
    pub fn new(python: &OsString) -> Result<Self> {
        let versions = "import torch, tokenizers; print(torch.__version__, tokenizers.__version__)";
        let version = said(Command::new(python).args(["-c", versions]))?;
        Ok(Self { python: python.clone(), version })
    }

    /// Trains the network of our config for as many steps, with the tokenizer of our run, and translates the test.
    pub fn train(
        &self,
        model: &Model,
        sets: &[&str],
        tokenizer: &Path,
        folder: &Path,
        data: &Data,
        ours: &Ours,
    ) -> Result<Trained> {
        let mut command = self.command(model, sets, tokenizer, folder);
        command.arg("--translate").arg(data.test("en")).args(["--beams", BEAMS]);
        let line = measure::last_line(&mut command)?;
        let Printed { seconds, steps, tokens, held_out_loss, parameters } =
            serde_json::from_str(&line).with_context(|| format!("{command:?} printed no run"))?;
        let (hypotheses, reference) = (folder.join("hypotheses.txt"), data.test(model.target));
        let bleu = ours.score("bleu", &reference, &hypotheses)?;
        let chrf = ours.score("chrf", &reference, &hypotheses)?;
        Ok(Trained { seconds, steps, tokens, held_out_loss, parameters, bleu, chrf })
    }

    /// A run of the peer.
    pub fn command(&self, model: &Model, sets: &[&str], tokenizer: &Path, folder: &Path) -> Command {
        let config = model.path().to_string_lossy().into_owned();
        let mut command = measure::peer(&self.python, "translate.py", &[&config]);
        command.current_dir(step::root()).env("OMP_NUM_THREADS", THREADS);
        command.env("TOKENIZERS_PARALLELISM", "false");
        command.arg("--tokenizer").arg(tokenizer).arg("--out").arg(folder);
        command.args(model.sets.iter().chain(sets).flat_map(|set| ["--set", *set]));
        command
    }
}

/// Numbers in a folder's weights.
pub fn parameters(model: &Path) -> Result<u64> {
    let path = model.join("model.safetensors");
    let read = || -> Result<u64> {
        let file = fs::read(&path)?;
        let length = file.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes) as usize);
        let header = length.and_then(|length| file.get(8..8 + length)).context("it has no header")?;
        let header: serde_json::Map<String, Value> = serde_json::from_slice(header)?;
        let tensors = header.iter().filter(|(name, _)| *name != "__metadata__");
        let count = |tensor: &Value| -> u64 {
            tensor["shape"].as_array().into_iter().flatten().filter_map(Value::as_u64).product()
        };
        Ok(tensors.map(|(_, tensor)| count(tensor)).sum())
    };
    read().with_context(|| format!("cannot read {}", path.display()))
}

/// Removes a folder, if it is there.
pub fn remove(folder: &Path) -> Result<()> {
    match folder.exists() {
        true => fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display())),
        false => Ok(()),
    }
}

/// What a program prints.
fn said(command: &mut Command) -> Result<String> {
    Ok(measure::output(command)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_counted_in_the_header() {
        let folder = std::env::temp_dir().join(format!("cloze-translate-bench-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let header = r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[3,4],"data_offsets":[0,48]},"b":{"dtype":"F32","shape":[5],"data_offsets":[48,68]}}"#;
        let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 68]].concat();
        fs::write(folder.join("model.safetensors"), file).unwrap();
        assert_eq!(parameters(&folder).unwrap(), 17);
        fs::write(folder.join("model.safetensors"), "short").unwrap();
        assert!(parameters(&folder).is_err());
        remove(&folder).unwrap();
        remove(&folder).unwrap();
    }
}
