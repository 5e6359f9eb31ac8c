//! The same run and the same embeddings on every backend, beside flex; what a backend costs to build.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::report::{self, short};
use super::{kept, measure};
use crate::{program, step};

/// The run that is measured, on the sample in the repository.
const CONFIG: &str = "configs/bert-tiny-sample.toml";
/// Steps after which everything that is compiled for a shape has been compiled, if it ever is.
const STEPS: usize = 100;
/// The last steps, whose median is the time of a step.
const LAST: usize = 10;
/// Texts that are embedded.
const TEXTS: usize = 512;

/// Train and embed on devices, beside flex.
///
/// The run is that of configs/bert-tiny-sample.toml with 16 sequences a step, and the embeddings are those of its model.
/// All times are of the program `cloze`. On devices that compile kernels it is counted how many.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  cargo xtask bench backends
  cargo xtask bench backends wgpu tch
  cargo xtask bench backends flex wgpu --build --write")]
pub struct Args {
    /// The devices, by the names that `cloze --device` takes; flex is always among them [default: flex ndarray]
    devices: Vec<String>,
    /// How often each device is measured.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Also build each backend from an empty folder, which takes from ten minutes to an hour.
    #[arg(long)]
    build: bool,
    /// Put the table into benches/README.md.
    #[arg(long)]
    write: bool,
}

/// What a device did.
#[derive(Default)]
struct Outcome {
    /// Seconds of the run's first step.
    first: Vec<f64>,
    /// Milliseconds of a step at the end.
    step: Vec<f64>,
    /// Kernels that were compiled in a run of one step, and in one of a hundred; nothing where there are none.
    kernels: Option<[usize; 2]>,
    /// Texts embedded in a second, of the whole process.
    texts: Vec<f64>,
    build: Option<Build>,
}

/// A build from an empty folder.
#[derive(Clone, Copy)]
struct Build {
    minutes: f64,
    /// Megabytes of the program.
    program: f64,
    /// Gigabytes of the folder.
    folder: f64,
}

pub fn run(args: &Args) -> Result<()> {
    let mut devices = vec!["flex"];
    match args.devices.is_empty() {
        true => devices.push("ndarray"),
        false => devices.extend(args.devices.iter().map(String::as_str).filter(|device| *device != "flex")),
    }
    let place = std::env::temp_dir().join(format!("cloze-bench-backends-{}", std::process::id()));
    let measured = measure_devices(&devices, args, &place);
    // It holds nothing that is needed any more; that it cannot be removed is no failure.
    let _ = fs::remove_dir_all(&place);
    let mut text = table(&devices, &measured?);
    text += &format!(
        "\n\n`cargo xtask bench backends {}`: {STEPS} steps of BERT-tiny on 16 sequences of the sample; a step is the \
         median of the last {LAST}, the first step has the compiling of kernels in it. Kernels are counted after 1 step \
         and after {STEPS}. Texts are embedded by the whole process `cloze embed`. {}.",
        devices[1..].join(" "),
        report::machine(None)
    );
    println!("{text}");
    if args.write { report::write_class("backends", &text) } else { Ok(()) }
}

fn measure_devices(devices: &[&str], args: &Args, place: &Path) -> Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    for (number, device) in devices.iter().enumerate() {
        // Flex is in every program: that of the next device will do.
        let feature = program::feature(device);
        let cloze = program::build(feature.or_else(|| program::feature(devices.get(number + 1)?)))?;
        let mut outcome = measure_device(&cloze, device, args, place)?;
        if args.build {
            outcome.build = Some(build_anew(feature)?);
        }
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

fn measure_device(cloze: &Path, device: &str, args: &Args, place: &Path) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for round in 0..args.rounds {
        let folder = place.join(format!("{}-{round}", device.replace(':', "-")));
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        eprintln!("{device}, round {}", round + 1);
        let one = train(cloze, device, 1, &folder)?;
        let all = train(cloze, device, STEPS, &folder)?;
        outcome.first.extend(one.seconds.first());
        let last = all.seconds.iter().rev().take(LAST).map(|seconds| 1e3 * seconds);
        outcome.step.extend(measure::median(last));
        outcome.kernels = one.kernels.zip(all.kernels).map(|(one, all)| [one, all]);
        outcome.texts.push(embed(cloze, device, &all.folder, &folder)?);
    }
    Ok(outcome)
}

/// A run that was made.
struct Run {
    folder: PathBuf,
    /// Of each step.
    seconds: Vec<f64>,
    kernels: Option<usize>,
}

fn train(cloze: &Path, device: &str, steps: usize, place: &Path) -> Result<Run> {
    let root = step::root();
    let folder = place.join(format!("run-{steps}"));
    let sample = serde_json::json!([root.join("datasets/sotu.txt.zst")]);
    let mut command = Command::new(cloze);
    command.arg("train").arg(root.join(CONFIG)).args(["--device", device]).arg("--out").arg(&folder);
    for set in [
        format!("corpus.files={sample}"),
        format!("train.steps={steps}"),
        "train.batch_size=16".to_owned(),
        "schedule.warmup_steps=0".to_owned(),
        "eval.every=100000".to_owned(),
        "eval.max_examples=16".to_owned(),
        "log.every=1".to_owned(),
    ] {
        command.args(["--set", &set]);
    }
    let log = place.join(format!("kernels-{steps}.log"));
    run_logged(&mut command, place, &log)?;
    let metrics = fs::read_to_string(folder.join("metrics.jsonl")).context("the run has no metrics")?;
    let records = metrics.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    // Of training: evaluations have no rate. Each tells the seconds since the first step began.
    let of_training = records.filter(|record| record.get("tokens_per_second").is_some());
    let since_start: Vec<f64> = of_training.filter_map(|record| record["seconds"].as_f64()).collect();
    let before = std::iter::once(0.0).chain(since_start.iter().copied());
    let seconds: Vec<f64> = since_start.iter().zip(before).map(|(end, begin)| end - begin).collect();
    if seconds.len() != steps {
        bail!("{device}: {} of {steps} steps have a time", seconds.len())
    }
    Ok(Run { folder, seconds, kernels: compiled(&log) })
}

/// Texts in a second.
fn embed(cloze: &Path, device: &str, run: &Path, place: &Path) -> Result<f64> {
    let texts = place.join("texts.txt");
    let mut file = File::create(&texts)?;
    for text in 0..TEXTS {
        writeln!(
            file,
            "The {text} members of the Congress met in the winter, and the people of the States were content."
        )?;
    }
    file.flush()?;
    let mut command = Command::new(cloze);
    command.arg("embed").arg("--model").arg(run.join("model")).args(["--device", device]);
    command.stdin(File::open(&texts)?);
    let began = Instant::now();
    run_logged(&mut command, place, &place.join("embed.log"))?;
    Ok(TEXTS as f64 / began.elapsed().as_secs_f64())
}

/// Runs a program in a folder where CubeCL finds that it is to log the kernels it compiles.
fn run_logged(command: &mut Command, place: &Path, log: &Path) -> Result<()> {
    let logger = toml::toml! {
        [compilation.logger]
        level = "basic"
    };
    let mut settings = logger;
    settings["compilation"]["logger"]
        .as_table_mut()
        .context("a table")?
        .insert("file".into(), toml::Value::String(log.display().to_string()));
    fs::write(place.join("cubecl.toml"), settings.to_string())?;
    let output = command.current_dir(place).stdout(Stdio::null()).stderr(Stdio::piped()).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?} ended with {}: {}", output.status, said.lines().last().unwrap_or_default())
    }
    Ok(())
}

/// How many kernels a log has; nothing where no device logs any.
fn compiled(log: &Path) -> Option<usize> {
    let text = fs::read_to_string(log).ok()?;
    Some(text.lines().filter(|line| line.starts_with("[Compiling kernel]")).count())
}

fn build_anew(feature: Option<&str>) -> Result<Build> {
    let folder = kept::target().join(format!("bench-build-{}", feature.unwrap_or("flex")));
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    let mut build = step::cargo("build");
    build.args(["--release", "--package", "cloze", "--bin", "cloze"]).arg("--target-dir").arg(&folder);
    if let Some(feature) = feature {
        build.args(["--features", &format!("cloze/{feature}")]).envs(program::environment(Some(feature))?);
    }
    let began = Instant::now();
    let cloze = step::executable("build from an empty folder", &mut build, "cloze")?;
    let minutes = began.elapsed().as_secs_f64() / 60.0;
    let program = fs::metadata(&cloze).with_context(|| format!("cannot read {}", cloze.display()))?.len();
    let built = Build { minutes, program: program as f64 / 1e6, folder: bytes(&folder)? as f64 / 1e9 };
    fs::remove_dir_all(&folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    Ok(built)
}

/// Of all files in a folder; two links to one file count twice.
fn bytes(folder: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(folder)? {
        let (entry, path) = entry.map(|entry| (entry.metadata(), entry.path()))?;
        let entry = entry?;
        sum += if entry.is_dir() { bytes(&path)? } else { entry.len() };
    }
    Ok(sum)
}

fn table(devices: &[&str], outcomes: &[Outcome]) -> String {
    let median = |values: &[f64]| measure::median(values.iter().copied()).unwrap_or(f64::NAN);
    let flex = &outcomes[0];
    let (flex_step, flex_texts) = (median(&flex.step), median(&flex.texts));
    let header = [
        "device",
        "first step, s",
        "a step, ms",
        "× flex",
        "kernels",
        "texts/s",
        "× flex",
        "build, min",
        "program, MB",
        "folder, GB",
    ];
    let built = |outcome: &Outcome, of: fn(&Build) -> f64| {
        outcome.build.as_ref().map_or("–".into(), |b| short(of(b)))
    };
    let rows = devices.iter().zip(outcomes).map(|(device, outcome)| {
        let (step, texts) = (median(&outcome.step), median(&outcome.texts));
        [
            (*device).to_owned(),
            short(median(&outcome.first)),
            short(step),
            ratio(flex_step / step),
            outcome.kernels.map_or("–".into(), |[one, all]| format!("{one}, {all}")),
            short(texts),
            ratio(texts / flex_texts),
            built(outcome, |build| build.minutes),
            built(outcome, |build| build.program),
            built(outcome, |build| build.folder),
        ]
    });
    report::table(header, rows)
}

/// Two digits that count: a software adapter is a hundred times as slow.
fn ratio(value: f64) -> String {
    let digits = (1.0 - value.log10().floor()).clamp(1.0, 6.0) as usize;
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_ratios_keep_two_digits() {
        assert_eq!(
            [12.34, 1.0, 0.456, 0.012_08, 0.000_89].map(ratio),
            ["12.3", "1.0", "0.46", "0.012", "0.00089"]
        );
    }

    #[test]
    fn kernels_are_counted_in_a_log() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("kernels.log");
        assert_eq!(compiled(&log), None);
        fs::write(&log, "[Compiling kernel] a::Fill\nother\n[Compiling kernel] a::Fill\n").unwrap();
        assert_eq!(compiled(&log), Some(2));
    }
}
