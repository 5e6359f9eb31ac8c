//! `cloze transfer` on six tasks: how alike their encoders are, what they give one another with few examples, and whether the one
//! tells the other (Luo et al. 2022).

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::kept::{Kept, Key, remove_checkpoints, target};
use super::lexicon::sentences;
use super::{measure, report};
use crate::{program, step};

/// Configs in `configs/`, all of which have development data.
const TASKS: [&str; 6] = ["sst2", "cola", "mrpc", "rte", "sick", "sts2015"];

/// What is trained.
#[derive(clap::Args)]
#[command(after_long_help = "\
All runs are kept in target/transfer-bench, and an interrupted benchmark continues. A part in a few minutes:
  cargo xtask bench transfer --tasks rte,mrpc,cola --seeds 1 --source-epochs 1 --epochs 1 --examples 32 --sentences 100")]
pub struct Args {
    /// Only these tasks: sst2, cola, mrpc, rte, sick, sts2015.
    #[arg(long, value_delimiter = ',', value_name = "TASKS", conflicts_with = "write")]
    tasks: Vec<String>,
    /// Each target is trained from each source once with each of these.
    #[arg(long, value_delimiter = ',', value_name = "SEEDS", default_value = "1,2,3")]
    seeds: Vec<u64>,
    /// Training examples of a target.
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    examples: u64,
    /// Epochs of a target.
    #[arg(long, default_value_t = 10, value_name = "EPOCHS", value_parser = clap::value_parser!(u64).range(1..))]
    epochs: u64,
    /// Epochs of a source in place of its config's.
    #[arg(long, value_name = "EPOCHS", conflicts_with = "write", value_parser = clap::value_parser!(u64).range(1..))]
    source_epochs: Option<u64>,
    /// Sentences that encoders are compared on: the first ones of SemCor.
    #[arg(long, default_value_t = 1_000, value_name = "N", value_parser = clap::value_parser!(u64).range(3..))]
    sentences: u64,
    /// Compare the encoders alone.
    #[arg(long, conflicts_with = "write")]
    no_matrix: bool,
    /// A folder with semcor.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Train anew what is kept.
    #[arg(long)]
    again: bool,
    /// Put the tables into benches/README.md.
    #[arg(long)]
    write: bool,
}

struct Bench<'a> {
    program: PathBuf,
    version: String,
    kept: Kept,
    args: &'a Args,
}

pub fn run(args: &Args) -> Result<()> {
    let tasks = chosen(&args.tasks)?;
    if args.seeds.is_empty() {
        bail!("--seeds: expected one seed or more");
    }
    let program = program::build(None)?;
    let version = measure::output(Command::new(&program).arg("--version"))?.trim().to_owned();
    let bench = Bench { program, version, kept: Kept::open(target().join("transfer-bench"))?, args };
    let sources = tasks.iter().map(|task| Ok((*task, bench.source(task)?)));
    let sources = sources.collect::<Result<Vec<_>>>()?;
    let compared = bench.compare(&sources)?;
    let text = format!(
        "{}\n\nOne checkpoint, fine-tuned for each task; {} sentences of SemCor. {}.",
        tables(&compared)?,
        report::short(args.sentences as f64),
        report::machine(None)
    );
    println!("{text}");
    if args.write { report::write("transfer", &text) } else { Ok(()) }
}

fn chosen(names: &[String]) -> Result<Vec<&'static str>> {
    if let Some(name) = names.iter().find(|name| !TASKS.contains(&name.trim())) {
        bail!("no task {name:?}; there are {}", TASKS.join(", "));
    }
    let is_wanted = |task: &&str| names.is_empty() || names.iter().any(|name| name.trim() == *task);
    let tasks: Vec<&str> = TASKS.into_iter().filter(is_wanted).collect();
    if tasks.len() < 2 {
        bail!("--tasks: expected two or more");
    }
    Ok(tasks)
}

impl Bench<'_> {
    /// The run of a task with all of its data, trained if it is not kept.
    fn source(&self, task: &str) -> Result<PathBuf> {
        let path = step::root().join("configs").join(task).with_extension("toml");
        let config = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let sets: Vec<String> = match self.args.source_epochs {
            None => Vec::new(),
            Some(epochs) => vec![format!("train.epochs={epochs}"), "schedule.warmup_fraction=0.1".into()],
        };
        let texts: Vec<&str> = sets.iter().map(String::as_str).collect();
        let key = Key::new(task, "source", 0, &config, &texts, &self.version);
        let folder = self.kept.scratch(&key);
        if self.kept.read::<bool>(&key)?.is_some() && !self.args.again {
            eprintln!("{key}: kept");
            return Ok(folder);
        }
        eprintln!("{key} …");
        if self.args.again && folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        let mut command = Command::new(&self.program);
        command.current_dir(step::root()).arg("train").arg(&path).arg("--out").arg(&folder);
        command.args(sets.iter().flat_map(|set| ["--set", set])).args(["--set", "checkpoint.keep_last=1"]);
        if folder.join("config.toml").exists() {
            command.arg("--resume");
        }
        measure::output(&mut command)?;
        remove_checkpoints(&folder)?;
        self.kept.write(&key, &true)?;
        Ok(folder)
    }

    /// What `cloze transfer` prints of the sources; it continues by itself.
    fn compare(&self, sources: &[(&str, PathBuf)]) -> Result<Value> {
        let data = self.args.data.clone().unwrap_or_else(|| step::root().join("../shared/data"));
        let semcor = data.join("semcor/semcor.jsonl");
        let lines =
            fs::read_to_string(&semcor).with_context(|| format!("cannot read {}", semcor.display()))?;
        let text = sentences(&lines).with_context(|| semcor.display().to_string())?;
        let file = target().join("transfer-bench/sentences.txt");
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;

        let matrix = [
            format!("--examples={}", self.args.examples),
            format!("--set=train.epochs={}", self.args.epochs),
            // Warm-ups of the configs are for all of their data.
            "--set=schedule.warmup_fraction=0.1".to_owned(),
            "--set=checkpoint.keep_last=1".to_owned(),
        ];
        let folders = sources.iter().map(|(_, folder)| folder.to_string_lossy());
        let sets: Vec<String> = matrix.iter().cloned().chain(folders.map(String::from)).collect();
        // Not the seeds: `cloze transfer` adds a seed to a folder that has others.
        let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
        let out = self.kept.scratch(&Key::new("transfer", "ours", 0, "", &sets, &self.version));
        if self.args.again && out.exists() {
            fs::remove_dir_all(&out).with_context(|| format!("cannot remove {}", out.display()))?;
        }
        let seeds: Vec<String> = self.args.seeds.iter().map(u64::to_string).collect();
        // A run is a target and a source, its model a source alone.
        let command = |most: u64, is_target: &dyn Fn(&str) -> bool| {
            let mut command = Command::new(&self.program);
            command.current_dir(step::root()).args(["transfer", "--json", "--sentences"]).arg(&file);
            command.arg(format!("--most={most}")).arg("--out").arg(&out);
            if !self.args.no_matrix {
                command.arg("--matrix").args(&matrix).args(["--seeds", &seeds.join(",")]);
            }
            for (task, folder) in sources {
                let model = format!("{task}={}", folder.join("model").display());
                if is_target(task) {
                    command.arg(folder)
                } else {
                    command.arg(model)
                };
            }
            command
        };
        if !self.args.no_matrix {
            // One target after another, so that the checkpoints of one alone lie on the disk; few sentences, as this is not yet
            // the comparison.
            for (target, _) in sources {
                eprintln!("{target} from {} encoders, {} …", sources.len() + 1, report::seeds(seeds.len()));
                measure::output(&mut command(3, &|task| task == *target))?;
                remove_checkpoints(&out)?;
            }
        }
        let mut all = command(self.args.sentences, &|_| true);
        let printed = measure::output(&mut all)?;
        serde_json::from_str(&printed).with_context(|| format!("{all:?} printed no figures"))
    }
}

/// The similarity in the last layer with its dendrogram, the gains, and whether one tells the other.
fn tables(compared: &Value) -> Result<String> {
    let names = texts(&compared["names"]);
    let layers = compared["layers"].as_object().context("no layers")?;
    let (last, layer) = layers
        .iter()
        .max_by_key(|(layer, _)| layer.parse::<i64>().unwrap_or_default())
        .context("no layers")?;
    let header = ["similarity"].into_iter().chain(names.iter().map(String::as_str));
    let rows = rows(&names, &layer["similarity"], |value| format!("{value:.3}"))?;
    let mut parts = vec![
        format!("RSA, layer {last}:\n\n{}", report::table(header, rows)),
        format!("Joined by average linkage of 1 − similarity: {}.", dendrogram(&names, &layer["merges"])?),
    ];
    let transfer = &compared["transfer"];
    if !transfer.is_null() {
        parts.extend(transferred(&names, transfer)?);
    }
    Ok(parts.join("\n\n"))
}

fn transferred(names: &[String], transfer: &Value) -> Result<[String; 2]> {
    let targets = texts(&transfer["targets"]);
    let metrics = texts(&transfer["metrics"]);
    let columns: Vec<String> =
        targets.iter().zip(&metrics).map(|(target, metric)| format!("{target}, {metric}")).collect();
    let header = ["from"].into_iter().chain(columns.iter().map(String::as_str));
    let alone = rows(&["the checkpoint".to_owned()], &serde_json::json!([transfer["alone"]]), |value| {
        format!("{value:.4}")
    })?;
    let gains = rows(names, &transfer["gains"], |value| format!("{value:+.4}"))?;
    let gains = report::table(header, alone.into_iter().chain(gains));

    let agreement = transfer["agreement"].as_object().context("no agreement")?;
    let mut layers: Vec<(i64, &Value)> =
        agreement.iter().map(|(layer, of)| (layer.parse().unwrap_or_default(), of)).collect();
    layers.sort_by_key(|(layer, _)| *layer);
    let line = |(layer, of): (i64, &Value)| {
        let correlations = of["targets"].as_array().into_iter().flatten();
        let correlations = correlations.map(|target| shown(&target["correlation"]));
        let means = [shown(&of["mean_correlation"]), shown(&of["mean_rank"])];
        [layer.to_string()].into_iter().chain(correlations).chain(means).collect::<Vec<_>>()
    };
    let header = ["layer"].into_iter().chain(targets.iter().map(String::as_str)).chain(["mean", "mean rank"]);
    let agreement = report::table(header, layers.into_iter().map(line));
    Ok([
        format!(
            "Transfer with few examples: the target's score from the checkpoint, and what is added to it by beginning with a source's \
             encoder:\n\n{gains}"
        ),
        format!(
            "Does RSA rank the sources as transfer does? Spearman's correlation of similarity and gain over a target's sources, and the \
             mean rank by gain of the source that is most similar:\n\n{agreement}"
        ),
    ])
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn shown(value: &Value) -> String {
    value.as_f64().map_or("–".into(), |value| format!("{value:.2}"))
}

fn rows(names: &[String], values: &Value, shown: impl Fn(f64) -> String) -> Result<Vec<Vec<String>>> {
    let of = values.as_array().filter(|rows| rows.len() == names.len()).context("a table of another size")?;
    let cell = |value: &Value| value.as_f64().map_or("–".into(), &shown);
    let row = |(name, values): (&String, &Value)| {
        let cells = values.as_array().into_iter().flatten().map(cell);
        [name.clone()].into_iter().chain(cells).collect()
    };
    Ok(names.iter().zip(of).map(row).collect())
}

/// Groups in brackets, each with the distance at which its two parts are joined. A merge makes the group after all before it.
fn dendrogram(names: &[String], merges: &Value) -> Result<String> {
    let mut groups = names.to_vec();
    for merge in merges.as_array().into_iter().flatten() {
        let part = |place: usize| {
            let place = merge["groups"][place].as_u64().and_then(|place| usize::try_from(place).ok());
            place.and_then(|place| groups.get(place)).context("a merge of no group")
        };
        let joined = format!("({} + {}, {})", part(0)?, part(1)?, shown(&merge["distance"]));
        groups.push(joined);
    }
    groups.pop().context("no encoder")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_task_has_its_config_with_development_data() {
        for task in TASKS {
            let path = step::root().join("configs").join(task).with_extension("toml");
            let config: toml::Table = fs::read_to_string(&path).unwrap().parse().unwrap();
            assert!(config["data"].get("dev").is_some() && config.contains_key("schedule"), "{task}");
        }
        assert_eq!(chosen(&["rte".into(), "cola".into()]).unwrap(), ["cola", "rte"]);
        assert!(chosen(&["trec".into()]).is_err() && chosen(&["rte".into()]).is_err());
    }

    #[test]
    fn groups_are_joined_in_order() {
        let names = ["a", "b", "c"].map(str::to_owned);
        let merges = json!([{"groups": [0, 2], "distance": 0.25}, {"groups": [1, 3], "distance": 0.5}]);
        assert_eq!(dendrogram(&names, &merges).unwrap(), "(b + (a + c, 0.25), 0.50)");
        assert!(dendrogram(&names, &json!([{"groups": [0, 7], "distance": 0.1}])).is_err());
        assert!(dendrogram(&[], &json!([])).is_err());
    }

    #[test]
    fn tables_are_of_what_the_program_prints() {
        let layer = |similar: f64| json!({"similarity": [[1.0, similar], [similar, 1.0]], "merges": [{"groups": [0, 1], "distance": 1.0 - similar}]});
        let agreement = json!({"mean_correlation": 0.5, "mean_rank": 1.0, "targets": [{"correlation": 0.5}, {"correlation": null}]});
        let mut compared = json!({
            "names": ["rte", "sick"],
            "layers": {"2": layer(0.25), "10": layer(0.75)},
            "transfer": {
                "targets": ["rte", "sick"], "metrics": ["accuracy", "pearson"], "alone": [0.5, 0.6],
                "gains": [[0.0, 0.1], [-0.02, 0.0]], "agreement": {"10": agreement, "2": agreement},
            },
        });
        let text = tables(&compared).unwrap();
        let has = |line: &str| {
            let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
            text.lines().any(|found| cells(found) == cells(line))
        };
        assert!(text.starts_with("RSA, layer 10:") && text.contains("(rte + sick, 0.25)."), "{text}");
        assert!(has("| sick | 0.750 | 1.000 |") && has("| from | rte, accuracy | sick, pearson |"), "{text}");
        assert!(has("| the checkpoint | 0.5000 | 0.6000 |") && has("| rte | +0.0000 | +0.1000 |"), "{text}");
        assert!(has("| 2 | 0.50 | – | 0.50 | 1.00 |"), "{text}");
        assert!(text.find("| 2 ").unwrap() < text.find("| 10 ").unwrap(), "{text}");
        compared["transfer"] = Value::Null;
        assert!(!tables(&compared).unwrap().contains("checkpoint"));
        assert!(tables(&json!({})).is_err());
    }
}
