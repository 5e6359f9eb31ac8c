//! Translation models that write together: seeds of one network, and different networks; how good, and how long.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::kept::{Kept, Key, target};
use super::pretrained::scaled;
use super::translate::Bench;
use super::translate::models::{MODELS, Model, TRANSFORMER};
use super::translate::side::{BEAMS, THREADS};
use super::{measure, report};

/// The networks that are combined beside the seeds.
const NETWORKS: [&str; 3] = ["RNN with attention", "Convolutional", "Transformer"];

/// What is trained and combined.
#[derive(clap::Args)]
#[command(after_long_help = "\
The runs are those of `bench translate`, kept in target/translate-bench, with more seeds; what is translated is kept in
target/ensembles-bench. Interrupted, both continue. A part in a few minutes:
  cargo xtask bench ensembles --only seeds --steps 60")]
pub struct Args {
    /// Seeds of the Transformer. 42 is the run of `bench translate`.
    #[arg(long, value_delimiter = ',', value_name = "SEEDS", default_value = "42,1,2")]
    seeds: Vec<u64>,
    /// Only the ensemble of seeds, or that of networks.
    #[arg(long, value_enum, conflicts_with = "write")]
    only: Option<Part>,
    /// Steps of each run in place of the config's.
    #[arg(long, value_name = "STEPS", conflicts_with = "write", value_parser = clap::value_parser!(u64).range(1..))]
    steps: Option<u64>,
    /// A folder with Multi30k: train, val and test_2016 in en and de.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Translate anew what is kept. Models stay; `bench translate --again` trains anew.
    #[arg(long)]
    again: bool,
    /// Put the tables into benches/README.md.
    #[arg(long)]
    write: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Seeds,
    Networks,
}

/// A model or several that write together.
struct System {
    name: String,
    /// Folders of models.
    models: Vec<PathBuf>,
    /// How the probabilities of several models are combined.
    mean: &'static str,
    role: Role,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// One of those that are combined.
    Member,
    /// All members.
    Ensemble,
    /// Another model.
    Other,
}

/// What a system translated.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Translated {
    bleu: f64,
    /// Of the whole command.
    seconds: f64,
}

/// A row of a table.
struct Row {
    name: String,
    role: Role,
    translated: Translated,
    /// The paired bootstrap's, against each member.
    p_values: Vec<f64>,
}

pub fn run(args: &Args) -> Result<()> {
    ensure!(args.seeds.len() > 1, "--seeds: expected two or more");
    let bench = Bench::ours(args.data.as_deref(), false)?;
    let kept = Kept::open(target().join("ensembles-bench"))?;
    let mut text = Vec::new();
    if args.only != Some(Part::Networks) {
        let mut members = Vec::new();
        for seed in &args.seeds {
            members.push((format!("seed {seed}"), train(&bench, TRANSFORMER, Some(*seed), args.steps)?));
        }
        let averaged = target().join("ensembles-bench/averaged");
        average(&members.iter().map(|(_, folder)| folder.clone()).collect::<Vec<_>>(), &averaged)?;
        let other = System {
            name: "one model of their mean weights".into(),
            models: vec![averaged],
            mean: "log",
            role: Role::Other,
        };
        let rows = rows(&bench, &kept, args, systems(members, Some(other)))?;
        text.push(format!("Seeds of the Transformer:\n\n{}", table(&rows)));
    }
    if args.only != Some(Part::Seeds) {
        let mut members = Vec::new();
        for name in NETWORKS {
            let model =
                MODELS.iter().find(|model| model.name == name).context("a network without a config")?;
            members.push((name.to_owned(), train(&bench, model, None, args.steps)?));
        }
        let rows = rows(&bench, &kept, args, systems(members, None))?;
        text.push(format!("Networks:\n\n{}", table(&rows)));
    }
    text.push(format!(
        "multi30k, en→de, test 2016, beam {BEAMS}, {THREADS} threads. Each member is the mean of its run's last five checkpoints. \
         The difference is that to the members' mean BLEU; p is the largest of the paired bootstrap's against each member. Seconds \
         are those of the whole command, beside the sum of the members'. {}.",
        report::machine(None)
    ));
    let text = text.join("\n\n");
    println!("{text}");
    if args.write { report::write_class("ensembles", &text) } else { Ok(()) }
}

/// The folder of a trained model.
fn train(bench: &Bench, model: &Model, seed: Option<u64>, steps: Option<u64>) -> Result<PathBuf> {
    let path = model.path();
    let config = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let sets = sets(&config, seed, steps)?;
    let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
    let (folder, _) = bench.trained(model, &sets)?;
    Ok(folder.join("model"))
}

/// What is set in a run's config. The seed of the config is not, so that the run is the one of `bench translate`.
fn sets(config: &str, seed: Option<u64>, steps: Option<u64>) -> Result<Vec<String>> {
    let mut sets: Vec<String> =
        seed.filter(|seed| *seed != 42).map(|seed| format!("run.seed={seed}")).into_iter().collect();
    if let Some(steps) = steps {
        sets.extend(scaled(config, steps)?);
    }
    Ok(sets)
}

/// The members, all of them together in two ways, and another model.
fn systems(members: Vec<(String, PathBuf)>, other: Option<System>) -> Vec<System> {
    let all: Vec<PathBuf> = members.iter().map(|(_, folder)| folder.clone()).collect();
    let member = |(name, folder)| System { name, models: vec![folder], mean: "log", role: Role::Member };
    let ensemble = |(name, mean): (&str, _)| System {
        name: name.into(),
        models: all.clone(),
        mean,
        role: Role::Ensemble,
    };
    let ensembles = [("ensemble, log-probabilities", "log"), ("ensemble, probabilities", "probability")];
    members.into_iter().map(member).chain(ensembles.map(ensemble)).chain(other).collect()
}

/// Translates what is not kept, and compares each system with the members.
fn rows(bench: &Bench, kept: &Kept, args: &Args, systems: Vec<System>) -> Result<Vec<Row>> {
    let mut all = Vec::new();
    for system in systems {
        let (hypotheses, translated) = translate(bench, kept, args.again, &system)?;
        all.push((system, hypotheses, translated));
    }
    let members: Vec<PathBuf> = all
        .iter()
        .filter(|(system, ..)| system.role == Role::Member)
        .map(|(_, path, _)| path.clone())
        .collect();
    let row = |(system, hypotheses, translated): (System, PathBuf, Translated)| {
        let p_values = match system.role {
            Role::Member => Vec::new(),
            Role::Ensemble | Role::Other => p_values(bench, &hypotheses, &members)?,
        };
        Ok(Row { name: system.name, role: system.role, translated, p_values })
    };
    all.into_iter().map(row).collect()
}

/// What a system makes of the test, in a file, and how good and how fast that is.
fn translate(bench: &Bench, kept: &Kept, again: bool, system: &System) -> Result<(PathBuf, Translated)> {
    let hashes = system.models.iter().map(|folder| hash(folder)).collect::<Result<Vec<_>>>()?;
    let sets: Vec<&str> = [system.mean].into_iter().chain(hashes.iter().map(String::as_str)).collect();
    let key = Key::new("translated", "ours", 0, "", &sets, &bench.ours.version);
    let hypotheses = kept.scratch(&key).with_extension("txt");
    if let Some(kept) = kept.read::<Translated>(&key)?.filter(|_| !again && hypotheses.exists()) {
        return Ok((hypotheses, kept));
    }
    eprintln!("{}: translated …", system.name);
    let mut command = Command::new(&bench.ours.program);
    command.env("RAYON_NUM_THREADS", THREADS).args(["translate", "--beam", BEAMS]);
    if let [_, _, ..] = system.models[..] {
        command.args(["--mean", system.mean]);
    }
    command.args(system.models.iter().flat_map(|folder| [Path::new("--model"), folder]));
    let milliseconds = measure::process(&mut command, &bench.data.test("en"), &hypotheses)?;
    let bleu = bench.ours.score("bleu", &bench.data.test("de"), &hypotheses)?;
    let translated = Translated { bleu, seconds: milliseconds / 1e3 };
    kept.write(&key, &translated)?;
    Ok((hypotheses, translated))
}

/// A hash of a model's weights.
fn hash(folder: &Path) -> Result<String> {
    let path = folder.join("model.safetensors");
    let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(blake3::hash(&bytes).to_hex()[..16].to_owned())
}

/// Of the paired bootstrap (Koehn 2004): whether a system differs from each member.
fn p_values(bench: &Bench, hypotheses: &Path, members: &[PathBuf]) -> Result<Vec<f64>> {
    let mut command = Command::new(&bench.ours.program);
    command.args(["score", "bleu", "--json", "--reference"]).arg(bench.data.test("de"));
    command.arg("--input").arg(hypotheses).arg("--paired").args(members);
    let printed = measure::output(&mut command)?;
    read_p_values(&printed).with_context(|| format!("{command:?} printed no p-values"))
}

/// The first system is what the others are compared with.
fn read_p_values(printed: &str) -> Option<Vec<f64>> {
    let systems: Vec<Value> = serde_json::from_str(printed).ok()?;
    systems.get(1..)?.iter().map(|system| system["BLEU"]["p_value"].as_f64()).collect()
}

/// Writes a model whose weights are the means of several models' weights, with the other files of the first.
fn average(folders: &[PathBuf], to: &Path) -> Result<()> {
    let weights = folders.iter().map(|folder| {
        let path = folder.join("model.safetensors");
        fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
    });
    let mean = mean_weights(&weights.collect::<Result<Vec<_>>>()?)?;
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    let [first, ..] = folders else { bail!("no model") };
    for entry in fs::read_dir(first).with_context(|| format!("cannot read {}", first.display()))? {
        let path = entry?.path();
        let copy = to.join(path.file_name().unwrap_or_default());
        if path.is_file() {
            fs::copy(&path, &copy).with_context(|| format!("cannot write {}", copy.display()))?;
        }
    }
    let path = to.join("model.safetensors");
    fs::write(&path, mean).with_context(|| format!("cannot write {}", path.display()))
}

/// The mean of files of 32-bit floats: a header with its length before it, and numbers.
fn mean_weights(files: &[Vec<u8>]) -> Result<Vec<u8>> {
    let [first, ..] = files else { bail!("no weights") };
    let length =
        first.first_chunk::<8>().and_then(|bytes| 8usize.checked_add(u64::from_le_bytes(*bytes) as usize));
    let length = length.filter(|length| *length <= first.len()).context("weights without a header")?;
    let header: Value = serde_json::from_slice(&first[8..length]).context("weights without a header")?;
    let dtypes = header.as_object().into_iter().flatten().filter_map(|(_, tensor)| tensor["dtype"].as_str());
    ensure!(dtypes.into_iter().all(|dtype| dtype == "F32"), "weights that are not 32-bit floats");
    // The same order of tensors, which our side always writes.
    let same = files.iter().all(|file| file.len() == first.len() && file[8..length] == first[8..length]);
    ensure!(same, "models with other tensors");
    let mut mean = first[..length].to_vec();
    for place in (length..first.len()).step_by(4) {
        let number =
            |file: &Vec<u8>| file.get(place..place + 4).and_then(|bytes| bytes.first_chunk::<4>().copied());
        let numbers =
            files.iter().map(number).collect::<Option<Vec<_>>>().context("weights that end in a number")?;
        let sum: f64 = numbers.into_iter().map(|bytes| f64::from(f32::from_le_bytes(bytes))).sum();
        mean.extend(((sum / files.len() as f64) as f32).to_le_bytes());
    }
    Ok(mean)
}

fn table(rows: &[Row]) -> String {
    let members: Vec<Translated> =
        rows.iter().filter(|row| row.role == Role::Member).map(|row| row.translated).collect();
    let seconds: f64 = members.iter().map(|member| member.seconds).sum();
    let bleu = members.iter().map(|member| member.bleu).sum::<f64>() / members.len() as f64;
    let dash = || "–".to_owned();
    let line = |row: &Row| {
        let Translated { bleu: own, seconds: own_seconds } = row.translated;
        let p = row.p_values.iter().copied().reduce(f64::max);
        [
            row.name.clone(),
            format!("{own:.2}"),
            format!("{:+.2}", own - bleu),
            p.map_or_else(dash, |p| format!("{p:.3}")),
            report::short(own_seconds),
            if row.role == Role::Ensemble { format!("{:.2}", own_seconds / seconds) } else { dash() },
        ]
    };
    let is_member = |row: &&Row| row.role == Role::Member;
    let mean = [
        "members, mean".to_owned(),
        format!("{bleu:.2}"),
        dash(),
        dash(),
        report::short(seconds / members.len() as f64),
        dash(),
    ];
    let lines = rows.iter().filter(is_member).map(line).chain([mean]);
    let lines = lines.chain(rows.iter().filter(|row| !is_member(row)).map(line));
    report::table(["system", "BLEU", "difference", "p", "seconds", "of the members' sum"], lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ensemble_stands_beside_its_members() {
        let row = |name: &str, role, bleu, seconds, p_values: &[f64]| Row {
            name: name.into(),
            role,
            translated: Translated { bleu, seconds },
            p_values: p_values.to_vec(),
        };
        let text = table(&[
            row("a", Role::Member, 30.0, 10.0, &[]),
            row("b", Role::Member, 31.0, 12.0, &[]),
            row("both", Role::Ensemble, 31.5, 19.8, &[0.001, 0.02]),
            row("weights", Role::Other, 1.0, 11.0, &[0.001, 0.001]),
        ]);
        let cells: Vec<Vec<&str>> = text
            .lines()
            .skip(2)
            .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
            .collect();
        assert_eq!(cells[1], ["b", "31.00", "+0.50", "–", "12.0", "–"]);
        assert_eq!(cells[2], ["members, mean", "30.50", "–", "–", "11.0", "–"]);
        assert_eq!(cells[3], ["both", "31.50", "+1.00", "0.020", "19.8", "0.90"]);
        assert_eq!(cells[4], ["weights", "1.00", "-29.50", "0.001", "11.0", "–"]);
    }

    #[test]
    fn weights_are_averaged_number_by_number() {
        let file = |dtype: &str, numbers: &[f32]| {
            let header = format!(
                "{{\"w\":{{\"dtype\":\"{dtype}\",\"shape\":[{}],\"data_offsets\":[0,8]}}}}",
                numbers.len()
            );
            let numbers: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &numbers].concat()
        };
        let files = [file("F32", &[1.0, -2.0]), file("F32", &[2.0, 0.5])];
        assert_eq!(mean_weights(&files).unwrap(), file("F32", &[1.5, -0.75]));
        assert!(mean_weights(&[file("F32", &[1.0]), file("F32", &[1.0, 2.0])]).is_err());
        assert!(mean_weights(&[file("BF16", &[1.0])]).is_err());
        assert!(mean_weights(&[vec![255; 12]]).is_err() && mean_weights(&[]).is_err());
    }

    #[test]
    fn p_values_are_those_of_all_but_the_first_system() {
        let printed = r#"[{"BLEU":{"p_value":null}},{"BLEU":{"p_value":0.5}},{"BLEU":{"p_value":0.25}}]"#;
        assert_eq!(read_p_values(printed), Some(vec![0.5, 0.25]));
        assert_eq!(read_p_values("{}"), None);
    }

    #[test]
    fn the_first_seed_is_the_run_of_the_config() {
        let config = fs::read_to_string(TRANSFORMER.path()).unwrap();
        assert!(config.contains("seed = 42"));
        let of = |seed, steps| sets(&config, seed, steps).unwrap();
        assert!(of(Some(42), None).is_empty() && of(None, None).is_empty());
        assert_eq!(of(Some(1), None), ["run.seed=1"]);
        assert_eq!(of(Some(1), Some(60)), ["run.seed=1", "train.steps=60", "schedule.warmup_steps=20"]);
        for name in NETWORKS {
            assert!(MODELS.iter().any(|model| model.name == name && model.target == "de"), "{name}");
        }
    }
}
