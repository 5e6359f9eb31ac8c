//! `cloze runs`.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use cloze_evaluation::report::{RunCurves, RunsReport};
use cloze_evaluation::table::grouped;
use cloze_trainer::metrics::{METRICS_FILE, jsonl};

use crate::failure::WrongUsage;
use crate::output::{Output, say};

/// How often a watched page is written anew.
const SECONDS: u32 = 10;

/// Folders below the given one in which runs are looked for.
const DEPTH: usize = 3;

/// The files of a run beside its metrics.
const CONFIG_FILE: &str = "config.toml";
const RESULT_FILE: &str = "result.json";
const REPORT_FILE: &str = "index.html";

/// Compare runs on one page: their curves laid over one another, and what their configurations differ in.
///
/// Example: cloze runs runs --output runs.html
///
/// Each folder is a run's, as `cloze train --out` writes it, or has such folders in it. The page loads nothing; with --watch it is
/// written again every ten seconds, and the browser reads it again, until Ctrl-C.
#[derive(clap::Args)]
#[command(after_long_help = "\
More examples:
  cloze runs runs/sst2 runs/sst2-distil --output two.html
  cloze runs runs --output runs.html --watch")]
pub struct Args {
    /// Folders of runs, or folders that have some in them.
    #[arg(value_name = "DIR", required = true)]
    folders: Vec<PathBuf>,
    /// The page's file (default: standard output).
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write the page again every ten seconds.
    #[arg(long, requires = "output")]
    watch: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let write = || -> Result<()> {
        let (runs, read) = gathered(args)?;
        let title =
            args.folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ");
        let report =
            RunsReport { title: &title, facts: &[], runs: &runs, refresh: args.watch.then_some(SECONDS) };
        let mut output = Output::apart_from(args.output.as_deref(), read.iter().map(PathBuf::as_path))?;
        output.bytes(report.to_html().as_bytes())?;
        output.finish()
    };
    write()?;
    if let Some(path) = &args.output {
        say(path.display());
    }
    if args.watch {
        loop {
            thread::sleep(Duration::from_secs(SECONDS.into()));
            write()?;
        }
    }
    Ok(())
}

/// All runs, in the order of the folders, and of names within one; and the files that were read.
fn gathered(args: &Args) -> Result<(Vec<RunCurves>, Vec<PathBuf>)> {
    let (mut runs, mut files) = (Vec::new(), Vec::new());
    for folder in &args.folders {
        if !folder.is_dir() {
            let message =
                anyhow!("{}: no folder; expected a run's, or one with runs in it", folder.display());
            return Err(WrongUsage::new(message).into());
        }
        let mut found = Vec::new();
        find(folder, DEPTH, &mut found)?;
        if found.is_empty() {
            bail!(
                "{}: no run in it; expected folders with `{METRICS_FILE}`, as `cloze train` writes",
                folder.display()
            );
        }
        for path in found {
            let name = match path.strip_prefix(folder) {
                Ok(within) if !within.as_os_str().is_empty() => within.display().to_string(),
                _ => path.display().to_string(),
            };
            runs.push(read(&path, name, args.output.as_deref())?);
            // Nor may the page replace what a run is resumed from or linked to.
            files.extend([METRICS_FILE, CONFIG_FILE, RESULT_FILE, REPORT_FILE].map(|name| path.join(name)));
        }
    }
    Ok((runs, files))
}

/// The folders of runs in a folder, which may be one itself.
fn find(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<()> {
    if folder.join(METRICS_FILE).is_file() {
        found.push(folder.to_owned());
        return Ok(());
    }
    if depth == 0 {
        return Ok(());
    }
    let cannot = || format!("cannot read {}", folder.display());
    let mut within = Vec::new();
    for entry in fs::read_dir(folder).with_context(cannot)? {
        let path = entry.with_context(cannot)?.path();
        if path.is_dir() {
            within.push(path);
        }
    }
    within.sort();
    within.iter().try_for_each(|path| find(path, depth - 1, found))
}

fn read(folder: &Path, name: String, page: Option<&Path>) -> Result<RunCurves> {
    let records = jsonl::read(&folder.join(METRICS_FILE))?;
    let mut curves: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for record in &records {
        for (name, value) in record.scalars() {
            let point = (record.step() as f64, value);
            match curves.iter_mut().find(|(known, _)| *known == name) {
                Some((_, points)) => points.push(point),
                None => curves.push((name, vec![point])),
            }
        }
    }
    let last = records.iter().map(cloze_trainer::metrics::Record::step).max().unwrap_or(0);
    let state = match folder.join(RESULT_FILE).exists() {
        true => format!("finished after {} steps", grouped(last)),
        false => format!("step {}", grouped(last)),
    };
    let config = folder.join(CONFIG_FILE);
    let text = fs::read_to_string(&config).with_context(|| format!("cannot read {}", config.display()))?;
    let table: toml::Table = text.parse().with_context(|| format!("{}: not TOML", config.display()))?;
    let mut keys = Vec::new();
    flatten("", &table, &mut keys);
    let report = folder.join(REPORT_FILE);
    let link = report.is_file().then(|| link(&report, page)).flatten();
    Ok(RunCurves { name, state, page: link, curves, config: keys })
}

/// The way from a page to another file: relative to the page's folder where the file lies below it, else absolute.
fn link(to: &Path, page: Option<&Path>) -> Option<String> {
    let to = fs::canonicalize(to).ok()?;
    let from = page.and_then(|page| {
        fs::canonicalize(
            page.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")),
        )
        .ok()
    });
    let within = from.as_ref().and_then(|from| to.strip_prefix(from).ok());
    Some(within.unwrap_or(&to).to_str()?.to_owned())
}

/// A config's keys with their sections, and their values.
fn flatten(section: &str, table: &toml::Table, keys: &mut Vec<(String, String)>) {
    for (key, value) in table {
        let key = if section.is_empty() { key.clone() } else { format!("{section}.{key}") };
        match value {
            toml::Value::Table(table) => flatten(&key, table, keys),
            toml::Value::String(text) => keys.push((key, text.clone())),
            value => keys.push((key, value.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_their_sections() {
        let table = "a = 1\n[b]\nc = \"x\"\n[b.d]\ne = [1, 2]\n".parse().unwrap();
        let mut keys = Vec::new();
        flatten("", &table, &mut keys);
        let keys: Vec<(&str, &str)> = keys.iter().map(|(key, value)| (&**key, &**value)).collect();
        assert_eq!(keys, [("a", "1"), ("b.c", "x"), ("b.d.e", "[1, 2]")]);
    }

    #[test]
    fn a_page_replaces_no_file_of_a_run() {
        let place = tempfile::tempdir().unwrap();
        let run = place.path().join("a");
        fs::create_dir(&run).unwrap();
        fs::write(run.join(METRICS_FILE), "").unwrap();
        fs::write(run.join(CONFIG_FILE), "").unwrap();
        let args = |output: PathBuf| Args { folders: vec![run.clone()], output: Some(output), watch: false };
        let (_, read) = gathered(&args(run.join("page.html"))).unwrap();
        assert!(read.contains(&run.join(METRICS_FILE)) && read.contains(&run.join(CONFIG_FILE)));
        let error = super::run(&args(run.join(CONFIG_FILE))).unwrap_err();
        assert!(error.to_string().contains("this file is read, so it cannot be the output"), "{error}");
        assert_eq!(fs::read_to_string(run.join(CONFIG_FILE)).unwrap(), "");
    }

    #[test]
    fn a_report_below_the_page_is_linked_from_there() {
        let place = tempfile::tempdir().unwrap();
        let run = place.path().join("runs/a");
        fs::create_dir_all(&run).unwrap();
        fs::write(run.join("index.html"), "").unwrap();
        let page = place.path().join("page.html");
        assert_eq!(link(&run.join("index.html"), Some(&page)).unwrap(), "runs/a/index.html");
        assert!(link(&run.join("index.html"), None).unwrap().starts_with('/'));
    }
}
