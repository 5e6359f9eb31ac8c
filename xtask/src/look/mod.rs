//! `cargo xtask look`: the pages that cloze writes, opened in a browser and measured.

mod browser;
mod inspection;
mod panels;
mod served;
mod used;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::bench::kept;
use crate::{program, step, test};
use browser::{Browser, View};

/// Open pages and pictures in Chromium, and measure what a reader would notice.
///
/// Every page is opened at 1280 and 390 pixels, in light and in dark, and printed. Letters that are small, that
/// do not stand out from their ground, that overlap or are cut off, and pages wider than their window, are
/// errors. Then pages are used, with the network off: the pointer moves over them, and an inspection beside its JSON is
/// clicked through and timed. Last, `cloze serve` is started with small models of each kind, trained on the embedded samples the first
/// time, and each panel of its page is asked. Without Chromium nothing is opened, which one line says.
#[derive(clap::Args)]
pub struct Args {
    /// Pages, pictures, and folders with these, such as a run's [default: an invented page of each kind].
    paths: Vec<PathBuf>,
    /// Write a screenshot of each view, and each page as PDF, to this folder.
    #[arg(long, value_name = "DIR")]
    write: Option<PathBuf>,
    /// A model of the served page, as `cloze serve --model` takes it; may be given several times [default: small models of
    /// each kind]. With it alone, the served page is the only one.
    #[arg(long, value_name = "[NAME=]MODEL")]
    model: Vec<String>,
    /// An index of the served page.
    #[arg(long, value_name = "[NAME=]DIR", requires = "model")]
    index: Vec<String>,
    /// The program that serves [default: `cloze`, built in release].
    #[arg(long, value_name = "PROGRAM")]
    cloze: Option<PathBuf>,
    /// Print how long pages take, and do not judge it: other work on the machine takes time too.
    #[arg(long)]
    no_times: bool,
    /// The browser's program.
    #[arg(long, value_name = "PROGRAM")]
    browser: Option<PathBuf>,
}

/// The names of Chromium's program on various systems.
const PROGRAMS: [&str; 5] =
    ["chromium", "chromium-browser", "google-chrome", "chrome", "chrome-headless-shell"];

/// The views of a page.
const VIEWS: [View; 5] = [
    View { name: "wide-light", width: 1280, dark: false, print: false },
    View { name: "wide-dark", width: 1280, dark: true, print: false },
    View { name: "narrow-light", width: 390, dark: false, print: false },
    View { name: "narrow-dark", width: 390, dark: true, print: false },
    // The width of A4 paper within its margins. A reader's dark mode must not be printed.
    View { name: "printed", width: 718, dark: true, print: true },
];

impl Args {
    /// The invented pages, without screenshots.
    pub fn usual() -> Self {
        Self {
            paths: Vec::new(),
            write: None,
            model: Vec::new(),
            index: Vec::new(),
            cloze: None,
            no_times: false,
            browser: None,
        }
    }
}

pub fn run(args: &Args) -> Result<()> {
    let found =
        PROGRAMS.iter().map(PathBuf::from).find(|name| step::succeeds(Command::new(name).arg("--version")));
    let Some(program) = args.browser.clone().or(found) else {
        eprintln!("==> look: skipped, Chromium is not installed (Debian: apt-get install chromium)");
        return Ok(());
    };
    let paths = match args.paths.is_empty() {
        true if args.model.is_empty() => vec![invented()?],
        _ => args.paths.clone(),
    };
    let mut pages = Vec::new();
    for path in &paths {
        gather(path, &mut pages)?;
    }
    if pages.is_empty() && !paths.is_empty() {
        bail!("no .html or .svg file in {}", shown(&paths));
    }
    if let Some(folder) = &args.write {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let mut browser = Browser::open(&program)?;
    let mut problems = 0;
    for page in &pages {
        for view in &VIEWS {
            let found = look(&mut browser, page, view, args.write.as_deref(), &paths)
                .with_context(|| format!("{}, {}", page.display(), view.name))?;
            for problem in &found {
                println!("{}, {}: {problem}", page.display(), view.name);
            }
            problems += found.len();
        }
    }
    for page in pages.iter().filter(|page| page.extension().is_some_and(|ending| ending == "html")) {
        for view in VIEWS.iter().filter(|view| used::VIEWS.contains(&view.name)) {
            let found = used::use_page(&mut browser, page, view, !args.no_times)
                .with_context(|| format!("{}, {}", page.display(), view.name))?;
            for problem in &found {
                println!("{}, {}, in use: {problem}", page.display(), view.name);
            }
            problems += found.len();
        }
    }
    eprintln!("==> look: {} pages in {} views, {problems} problems", pages.len(), VIEWS.len());
    if args.paths.is_empty() || !args.model.is_empty() {
        let program = args.cloze.clone().map_or_else(|| program::build(None), Ok)?;
        let found = served::look(&mut browser, &program, &args.model, &args.index, args.write.as_deref())?;
        for problem in &found {
            println!("the served page: {problem}");
        }
        problems += found.len();
    }
    if problems > 0 {
        bail!("{problems} problems in pages");
    }
    Ok(())
}

/// An invented page of each kind.
fn invented() -> Result<PathBuf> {
    let folder = kept::target().join("look");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    let mut build = step::cargo("build");
    match program::is_built_with_tests() {
        true => build.arg("--workspace").args(test::PROFILE).args(test::features()),
        false => build.args(["--package", "cloze-evaluation"]),
    };
    let example = step::executable("build the pages' example", build.args(["--example", "pages"]), "pages")?;
    step::run("write a page of each kind", Command::new(example).arg(&folder))?;
    Ok(folder)
}

/// The pages and pictures at or below a path, sorted.
fn gather(path: &Path, pages: &mut Vec<PathBuf>) -> Result<()> {
    if path.is_dir() {
        let entries = fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut below = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
        below.sort();
        return below.iter().try_for_each(|path| gather(path, pages));
    }
    if path.extension().is_some_and(|ending| ending == "html" || ending == "svg") {
        let page = fs::canonicalize(path).with_context(|| format!("cannot read {}", path.display()))?;
        pages.push(page);
    }
    Ok(())
}

/// What is wrong with a page in a view.
fn look(
    browser: &mut Browser,
    page: &Path,
    view: &View,
    write: Option<&Path>,
    paths: &[PathBuf],
) -> Result<Vec<String>> {
    browser.show(page, view)?;
    measured(browser, view, &name(page, paths), write)
}

/// What is wrong with the page that is open, of which a screenshot is written if there is a folder for it.
fn measured(browser: &mut Browser, view: &View, name: &str, write: Option<&Path>) -> Result<Vec<String>> {
    let measured = browser.evaluate(include_str!("measure.js"))?;
    if let Some(folder) = write {
        let name = format!("{name}.{}", view.name);
        fs::write(folder.join(format!("{name}.png")), browser.screenshot(view)?)?;
        if view.print {
            fs::write(folder.join(format!("{name}.pdf")), browser.pdf()?)?;
        }
    }
    let problems = measured.as_array().context("the measurement is no list")?;
    Ok(problems.iter().filter_map(Value::as_str).map(String::from).collect())
}

/// A page's path below the given paths as one name.
fn name(page: &Path, paths: &[PathBuf]) -> String {
    let below = paths.iter().find_map(|path| {
        let whole = fs::canonicalize(path).ok()?;
        let below = page.strip_prefix(&whole).ok()?.to_owned();
        Some(if below.as_os_str().is_empty() { PathBuf::from(page.file_name()?) } else { below })
    });
    let below = below.unwrap_or_else(|| page.to_owned());
    below.components().map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("-")
}

fn shown(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_found_in_folders_and_named_by_their_paths() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("report")).unwrap();
        for file in ["curve.svg", "report/report.html", "report/worst.tsv"] {
            fs::write(folder.path().join(file), "").unwrap();
        }
        let mut pages = Vec::new();
        gather(folder.path(), &mut pages).unwrap();
        let paths = [folder.path().to_owned()];
        let names: Vec<String> = pages.iter().map(|page| name(page, &paths)).collect();
        assert_eq!(names, ["curve.svg", "report-report.html"]);
        assert_eq!(name(&pages[0], &[pages[0].clone()]), "curve.svg");
    }
}
