//! Settings of fine-tuning that follow the size of the data: those that a config leaves out.
//!
//! The rule, for a number of training examples (after holding out, and after drawing `data.shots` or `data.examples`):
//!
//! - **Epochs**: as many as make 12,000 examples in all, but 20 at most, and 3 at least; from 5,000 examples on 2 at
//!   least, from 500,000 on 1.
//!   On few examples the usual three epochs stop before the model has learnt, and runs differ widely by seed; training
//!   longer, up to 20 epochs, cures both (Mosbach et al. 2021, §6; Zhang et al. 2021, §5).
//! - **Batch**: 8 below 500 examples, 16 below 5,000, else 32. A small set needs the updates: 240 examples in batches of
//!   32 are 8 updates per epoch. Where a loss compares the examples of a batch, 32 and 64: smaller batches compare with
//!   less.
//! - **Learning rate**: 4e-5 for an encoder of width 768 in batches of 16, within the range of Devlin et al. (2019, A.3),
//!   and in inverse proportion to the width, from 2e-5 to 2e-4: narrow encoders learn at higher rates. Batches of fewer than
//!   16, whose gradients are noisier, get 0.7 of it, the root of their proportion. Adapters (`model.lora`) get ten times as
//!   much (Biderman et al. 2024, §6).
//! - **Schedule**: linear, with a warm-up over the first tenth of the steps, which is what makes runs on few examples
//!   stable together with the low rate (Mosbach et al. 2021, §6).

use super::config::{FineTuneConfig, FineTuneRun};
use super::kind::{DataSize, TaskSettings};
use super::section::TaskSection;
use crate::config::ConfigFile;
use crate::error::{Place, Result, TrainerError};
use crate::runs::RunKind;
use cloze_evaluation::table::grouped;
use serde_json::Value as Json;
use std::path::{Path, PathBuf};

/// Training examples in all epochs together, however few there are.
const EXAMPLES: usize = 12_000;
/// The warm-up as a fraction of the steps.
const WARMUP: f64 = 0.1;
/// The width that the learning rate is for.
const WIDTH: usize = 768;

/// What is chosen for a size; see the [rule](self).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BySize {
    /// `train.epochs`
    pub epochs: u64,
    /// `train.batch_size` without `train.accumulate`.
    pub batch_size: usize,
    /// `optimizer.lr`
    pub lr: f64,
}

impl BySize {
    /// The choice for `examples` and an encoder of this width.
    pub fn of(examples: usize, width: usize) -> Self {
        let (least, batch_size) = match examples {
            0..500 => (3, 8),
            500..5_000 => (3, 16),
            5_000..500_000 => (2, 32),
            _ => (1, 32),
        };
        let epochs = EXAMPLES.div_ceil(examples.max(1)).clamp(least, 20) as u64;
        Self { epochs, batch_size, lr: rate(width, batch_size) }
    }

    /// The same for a loss that compares the examples of a batch.
    fn comparing(self, examples: usize) -> Self {
        Self { batch_size: if examples < 5_000 { 32 } else { 64 }, ..self }
    }
}

/// The learning rate for an encoder of this width in batches of this size.
fn rate(width: usize, batch_size: usize) -> f64 {
    let by_width = (4e-5 * WIDTH as f64 / width.max(1) as f64).clamp(2e-5, 2e-4);
    rounded(if batch_size < 16 { 0.7 * by_width } else { by_width })
}

/// To one digit, as people write rates.
fn rounded(lr: f64) -> f64 {
    format!("{lr:.0e}").parse().unwrap_or(lr)
}

/// A config whose absent keys are chosen.
#[derive(Debug)]
pub struct Choice {
    /// The config with all keys.
    pub file: ConfigFile,
    /// What was chosen, as a sentence; none if the config has another mistake, which reading it tells.
    pub told: Option<String>,
}

/// Chooses what a fine-tuning config of a checkpoint leaves out of `train.epochs`, `train.batch_size`, `optimizer.lr` and
/// `[schedule]`, by the size of its training data, which it reads. `folder` finds the folder of `model.path`. Returns
/// none if nothing is left out, or if the config is of another kind.
///
/// # Errors
/// Those of reading the data, and of `folder`.
pub fn choose_absent<E: From<TrainerError>>(
    file: &ConfigFile,
    sets: &[String],
    folder: impl FnOnce(&Path) -> std::result::Result<PathBuf, E>,
) -> std::result::Result<Option<Choice>, E> {
    let Some(absent) = Absent::of(file, sets) else { return Ok(None) };
    // Values that any config can have show whether the rest of it is right.
    let provisional = absent.provisional(file)?;
    let Ok(config) = FineTuneRun::read(&provisional, sets) else {
        return Ok(Some(Choice { file: provisional, told: None }));
    };
    let folder = folder(&config.model.path)?;
    let config: &FineTuneConfig = &config;
    let size = config.task.kind().size(&config.data.train).map_err(TrainerError::of_training_data)?;
    let Some(size) = size else { return Ok(None) };
    let examples = training_examples(config, size);
    let width = width(&folder)?;
    let mut chosen = BySize::of(examples, width);
    if size.compares {
        chosen = chosen.comparing(examples);
    }
    // Shards have cut a micro-batch into more of them.
    let accumulate = config.train.accumulate.max(1);
    let batch_size = if absent.batch_size { chosen.batch_size } else { config.train.batch_size * accumulate };
    chosen.lr = rate(width, batch_size);
    if config.model.lora.is_some() {
        chosen.lr = rounded(10.0 * chosen.lr);
    }
    chosen.batch_size = absent.shards * chosen.batch_size.div_ceil(accumulate);
    let place = Place::file(Path::new(&format!("chosen for {} training examples", grouped(examples as u64))));
    Ok(Some(Choice { told: Some(absent.tell(chosen, examples)), file: absent.filled(file, chosen, &place)? }))
}

/// Reads a fine-tuning config for something else than training, such as an evaluation: keys that
/// [`choose_absent`] would choose have some value, and no data is read.
///
/// # Errors
/// Those of reading a config.
pub fn read_without_training(file: &ConfigFile, sets: &[String]) -> Result<FineTuneConfig> {
    match Absent::of(file, sets) {
        Some(absent) => FineTuneRun::read(&absent.provisional(file)?, sets),
        None => FineTuneRun::read(file, sets),
    }
}

/// The examples that training sees.
fn training_examples(config: &FineTuneConfig, size: DataSize) -> usize {
    let held =
        config.data.dev_fraction.map_or(0, |share| ((share * size.rows as f64).round() as usize).max(1));
    let kept = size.rows.saturating_sub(held).min(config.data.examples.unwrap_or(usize::MAX));
    match (config.data.shots, size.classes) {
        (Some(shots), Some(classes)) => kept.min(shots.saturating_mul(classes)),
        _ => kept,
    }
}

/// The width of a checkpoint's hidden states, or that of BERT-base where its config has none of the usual names.
fn width(folder: &Path) -> Result<usize> {
    let path = folder.join("config.json");
    let text = std::fs::read_to_string(&path).map_err(TrainerError::io("read", &path))?;
    let config: Json = serde_json::from_str(&text)
        .map_err(|error| TrainerError::Text { path, reason: format!("not JSON: {error}") })?;
    let named = ["hidden_size", "dim", "d_model", "n_embd", "emb_dim"]
        .into_iter()
        .find_map(|key| config[key].as_u64());
    Ok(named.map_or(WIDTH, |width| width.clamp(1, 1 << 20) as usize))
}

/// Which keys a config leaves out.
#[derive(Clone, Copy, Debug)]
struct Absent {
    epochs: bool,
    batch_size: bool,
    lr: bool,
    schedule: bool,
    /// Of the schedule: a config may have only a warm-up.
    warmup: bool,
    /// The number of micro-batches that a batch is cut into, without a rest.
    shards: usize,
}

impl Absent {
    /// Those of a config with the `sets` over it; none if it is not about a checkpoint and labelled data.
    fn of(file: &ConfigFile, sets: &[String]) -> Option<Self> {
        let merged = file.merged(sets)?;
        let kind = merged.kind_of("task")?;
        if !TaskSection::KINDS.contains(&kind) || merged.has_key("model.recurrent") {
            return None;
        }
        let absent = |key: &str| !merged.has_key(key);
        let schedule = absent("schedule.kind");
        let absent = Self {
            epochs: absent("train.epochs"),
            batch_size: absent("train.batch_size"),
            lr: absent("optimizer.lr"),
            schedule,
            warmup: schedule && absent("schedule.warmup_steps") && absent("schedule.warmup_fraction"),
            // A batch of embeddings stays whole: its examples are compared.
            shards: merged.whole("train.shards").filter(|_| kind != "embedding").unwrap_or(1).max(1),
        };
        (absent.epochs || absent.batch_size || absent.lr || absent.schedule).then_some(absent)
    }

    /// The config with values of these keys that any config can have.
    fn provisional(self, file: &ConfigFile) -> Result<ConfigFile> {
        let any = BySize::of(1_000, WIDTH);
        let any = BySize { batch_size: self.shards * any.batch_size, ..any };
        self.filled(file, any, &Place::file(Path::new("no data")))
    }

    /// The config with these keys below its own.
    fn filled(self, file: &ConfigFile, chosen: BySize, place: &Place) -> Result<ConfigFile> {
        let mut lines = String::new();
        let BySize { epochs, batch_size, lr } = chosen;
        for (is_absent, line) in [
            (self.epochs, format!("train.epochs = {epochs}\n")),
            (self.batch_size, format!("train.batch_size = {batch_size}\n")),
            (self.lr, format!("optimizer.lr = {lr:e}\n")),
            (self.schedule, "schedule.kind = \"linear\"\n".into()),
            (self.warmup, format!("schedule.warmup_fraction = {WARMUP}\n")),
        ] {
            if is_absent {
                lines += &line;
            }
        }
        Ok(file.over(ConfigFile::parse(&lines, "", place)?))
    }

    /// What was chosen, as a sentence.
    fn tell(self, chosen: BySize, examples: usize) -> String {
        let BySize { epochs, batch_size, lr } = chosen;
        let s = if epochs == 1 { "" } else { "s" };
        let parts = [
            (self.epochs, format!("{epochs} epoch{s}")),
            (self.batch_size, format!("batches of {batch_size}")),
            (self.lr, format!("learning rate {lr:e}")),
            (self.schedule && self.warmup, format!("warm-up over {:.0} % of the steps", 100.0 * WARMUP)),
            (self.schedule, "linear decay".into()),
        ];
        let parts: Vec<String> = parts.into_iter().filter_map(|(is, part)| is.then_some(part)).collect();
        format!(
            "chosen for {} training examples: {}; the run's config.toml has all of it, to be edited",
            grouped(examples as u64),
            parts.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_examples_are_read_more_often_in_smaller_batches() {
        let of = |examples| {
            let BySize { epochs, batch_size, .. } = BySize::of(examples, 384);
            (epochs, batch_size)
        };
        assert_eq!([of(20), of(240), of(700), of(1_215)], [(20, 8), (20, 8), (18, 16), (10, 16)]);
        assert_eq!([of(4_999), of(5_000), of(67_000), of(1 << 20)], [(3, 16), (3, 32), (2, 32), (1, 32)]);
        // No set is so small that the model is hardly updated.
        for examples in [100, 300, 499, 500, 900, 2_000, 4_000, 5_000, 10_000, 100_000] {
            let (epochs, batch) = of(examples);
            assert!(epochs as usize * examples.div_ceil(batch) >= 250, "{examples}");
        }
    }

    #[test]
    fn narrow_encoders_learn_at_higher_rates() {
        let lr = |examples, width| BySize::of(examples, width).lr;
        assert_eq!([128, 384, 768, 4_096].map(|width| lr(600, width)), [2e-4, 8e-5, 4e-5, 2e-5]);
        assert_eq!([128, 384, 768, 4_096].map(|width| lr(300, width)), [1e-4, 6e-5, 3e-5, 1e-5]);
    }

    /// A folder with data, and a checkpoint as far as a choice reads it.
    fn world(rows: usize) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let text: String = (0..rows).map(|row| format!("text {row},{}\n", ["no", "yes"][row % 2])).collect();
        std::fs::write(folder.path().join("data.csv"), format!("text,label\n{text}")).unwrap();
        std::fs::write(folder.path().join("config.json"), r#"{"hidden_size": 384}"#).unwrap();
        folder
    }

    fn choose(folder: &Path, more: &str, sets: &[&str]) -> Option<Choice> {
        let data = folder.join("data.csv");
        let text = format!(
            "task.kind = \"classification\"\nmodel.path = \"m\"\ndata.train.files = [{data:?}]\n{more}"
        );
        let file = ConfigFile::parse(&text, "run", &Place::file(Path::new("run.toml"))).unwrap();
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        let found = |path: &Path| {
            assert_eq!(path, Path::new("m"));
            Ok::<_, TrainerError>(folder.to_owned())
        };
        choose_absent(&file, &sets, found).unwrap()
    }

    #[test]
    fn three_lines_are_a_config() {
        let world = world(300);
        let choice = choose(world.path(), "data.dev_fraction = 0.2\n", &[]).unwrap();
        assert_eq!(
            choice.told.unwrap(),
            "chosen for 240 training examples: 20 epochs, batches of 8, learning rate 6e-5, warm-up over 10 % of the \
             steps, linear decay; the run's config.toml has all of it, to be edited"
        );
        let config = <FineTuneRun>::read(&choice.file, &[]).unwrap();
        assert_eq!((config.train.epochs, config.train.batch_size, config.common.optimizer.lr), (20, 8, 6e-5));
        assert_eq!(config.common.schedule.warmup_steps(600), 60);
    }

    #[test]
    fn given_values_are_kept() {
        let world = world(700);
        let more = "train.epochs = 4\nschedule.warmup_steps = 7\n";
        let sets = ["optimizer.lr=1e-3", "train.accumulate=4"];
        let choice = choose(world.path(), more, &sets).unwrap();
        assert!(
            choice.told.unwrap().starts_with("chosen for 700 training examples: batches of 4, linear decay;")
        );
        let config = <FineTuneRun>::read(&choice.file, &sets.map(str::to_owned)).unwrap();
        assert_eq!((config.train.epochs, config.train.batch_size, config.common.optimizer.lr), (4, 4, 1e-3));
        assert_eq!(config.common.schedule.warmup_steps(100), 7);
        let all =
            "train = { epochs = 1, batch_size = 2 }\noptimizer.lr = 1.0\nschedule.kind = \"constant\"\n";
        assert!(choose(world.path(), all, &[]).is_none());
        let shots = choose(world.path(), "data.shots = 8\n", &[]).unwrap().told.unwrap();
        assert!(shots.starts_with("chosen for 16 training examples"), "{shots}");
        let few = choose(world.path(), "data.examples = 100\n", &[]).unwrap().told.unwrap();
        assert!(few.starts_with("chosen for 100 training examples: 20 epochs, batches of 8"), "{few}");
        let lora = choose(world.path(), "model.lora.rank = 8\n", &[]).unwrap().told.unwrap();
        assert!(lora.contains("learning rate 8e-4"), "{lora}");
    }

    /// A batch is cut into shards once, and is as large as it is without them.
    #[test]
    fn shards_divide_a_chosen_batch() {
        let world = world(700);
        for (shards, batch) in [(1, 16), (3, 18), (4, 16), (32, 32)] {
            let sets = [format!("train.shards={shards}")];
            let choice = choose(world.path(), "", &[&sets[0]]).unwrap();
            let told = choice.told.unwrap();
            assert!(told.contains(&format!("batches of {batch}, learning rate 8e-5")), "{told}");
            let config = <FineTuneRun>::read(&choice.file, &sets).unwrap();
            assert_eq!(config.train.batch_size * config.train.accumulate, batch, "{shards} shards");
        }
    }

    /// The rate follows the batch that there is.
    #[test]
    fn a_given_batch_has_the_rate_of_its_size() {
        let world = world(300);
        let rate = |more: &str| {
            let choice = choose(world.path(), more, &[]).unwrap();
            <FineTuneRun>::read(&choice.file, &[]).unwrap().common.optimizer.lr
        };
        assert_eq!([rate("train.batch_size = 32\n"), rate("train.batch_size = 4\n")], [8e-5, 6e-5]);
    }

    #[test]
    fn another_mistake_is_told_by_itself() {
        let world = world(30);
        let choice = choose(world.path(), "dta.test = []\n", &[]).unwrap();
        assert!(choice.told.is_none());
        let error = <FineTuneRun>::read(&choice.file, &[]).unwrap_err().to_string();
        assert_eq!(error, "run.toml:4: unknown key `dta`; did you mean `data`?");
        assert!(choose(world.path(), "model.recurrent = { kind = \"lstm\" }\n", &[]).is_none());
    }
}
