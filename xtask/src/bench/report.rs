//! Tables, for a terminal and for benches/README.md.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};
use comfy_table::{CellAlignment, Table, presets};

use super::measure::{Measured, Outcome};
use super::processor::{Class, Processor};
use crate::step;

/// A table in Markdown, which is also readable as it is; all columns but the first are numbers.
pub fn table<'a>(
    header: impl IntoIterator<Item = &'a str>,
    rows: impl IntoIterator<Item: IntoIterator<Item = String>>,
) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(header);
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    // The dashes say to Markdown what the alignment is.
    let text = table.to_string();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if let Some(line) = lines.get_mut(1) {
        let mut parts: Vec<String> = line.split('|').map(str::to_owned).collect();
        for part in parts.iter_mut().skip(2).filter(|part| part.ends_with('-')) {
            part.pop();
            part.push(':');
        }
        *line = parts.join("|");
    }
    lines.join("\n")
}

/// Both sides, the ratio of their rates, and their memory; `unit` is what a rate counts.
pub fn beside(outcomes: &[Outcome], unit: &str) -> String {
    let header = ["work", "ours, ms", unit, "peer", "its ms", "ratio", "at least", "MB", "peer's MB"];
    table(
        header,
        outcomes.iter().map(|outcome| {
            let Outcome { work, peer, floor, ours, theirs } = outcome;
            let shown = |of: fn(&Measured) -> f64| theirs.as_ref().map_or("–".into(), |m| short(of(m)));
            [
                work.to_string(),
                short(ours.ms),
                short(ours.per_s),
                peer.to_string(),
                shown(|m| m.ms),
                theirs.map_or("–".into(), |m| format!("{:.2} ×", ours.per_s / m.per_s)),
                if *floor > 0.0 { format!("{floor} ×") } else { "–".into() },
                short(ours.peak_mb),
                shown(|m| m.peak_mb),
            ]
        }),
    )
}

/// Three significant digits, and thousands in groups; a dash for what was not measured.
pub fn short(value: f64) -> String {
    match value {
        value if value.is_nan() => "–".into(),
        value if value < 10.0 => format!("{value:.2}"),
        value if value < 100.0 => format!("{value:.1}"),
        value => {
            let digits = format!("{value:.0}");
            let head = (digits.len() - 1) % 3 + 1;
            let mut grouped = digits[..head].to_owned();
            for start in (head..digits.len()).step_by(3) {
                grouped += ",";
                grouped += &digits[start..start + 3];
            }
            grouped
        }
    }
}

/// A whole number, thousands in groups.
pub fn count(value: u64) -> String {
    if value < 1_000 { value.to_string() } else { short(value as f64) }
}

/// So many seeds.
pub fn seeds(n: usize) -> String {
    if n == 1 { "one seed".into() } else { format!("{n} seeds") }
}

/// Processor, cores and versions, in one line.
pub fn machine(python: Option<&std::ffi::OsString>) -> String {
    let said = |command: &mut Command| {
        let output = command.output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let rustc = said(Command::new("rustc").arg("--version")).unwrap_or_default();
    let versions = "import torch, transformers; print('PyTorch', torch.__version__ + ', transformers', \
                    transformers.__version__)";
    let peers = python.and_then(|python| said(Command::new(python).args(["-c", versions])));
    let parts =
        [Some(Processor::here().to_string()), Some(rustc.replace(" (", ", (").replace(", (", " (")), peers];
    parts.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
}

/// Puts `text` into benches/README.md, between the marks of the section `name`.
pub fn write(name: &str, text: &str) -> Result<()> {
    edit(name, |page| replace_section(page, name, text))
}

/// Puts `text` into the section `name` of benches/README.md as what this processor's class has there; that of the
/// other classes stays.
pub fn write_class(name: &str, text: &str) -> Result<()> {
    let here = Processor::here();
    let text = format!("### {}: {here}\n\n{text}", here.class);
    edit(name, |page| replace_class(page, name, here.class, &text))
}

fn edit(name: &str, change: impl FnOnce(&str) -> Option<String>) -> Result<()> {
    let path = step::root().join("benches/README.md");
    let page = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let Some(page) = change(&page) else {
        bail!("{} has no marks `<!-- {name} -->` and `<!-- end of {name} -->`", path.display());
    };
    fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))
}

fn replace_section(page: &str, name: &str, text: &str) -> Option<String> {
    let [begin, end] = marks(name);
    let (before, rest) = page.split_once(&format!("{begin}\n"))?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}\n\n{text}\n\n{end}{after}"))
}

/// A class that the section has nothing of yet comes before the next one that it has something of.
fn replace_class(page: &str, name: &str, class: Class, text: &str) -> Option<String> {
    let of = |class: Class| format!("{name}: {class}");
    let new = || {
        let [begin, end] = marks(&of(class));
        let later = Class::ALL.into_iter().filter(|other| *other > class);
        let next = later.map(|other| marks(&of(other))[0].clone()).find(|mark| page.contains(mark));
        let (before, after) = page.split_at(page.find(&next.unwrap_or_else(|| marks(name)[1].clone()))?);
        Some(format!("{before}{begin}\n\n{text}\n\n{end}\n\n{after}"))
    };
    replace_section(page, &of(class), text).or_else(new)
}

/// Where a section begins and where it ends.
fn marks(name: &str) -> [String; 2] {
    [format!("<!-- {name} -->"), format!("<!-- end of {name} -->")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let shown = [0.123, 9.876, 12.34, 123.4, 1234.5, 1234567.0].map(short);
        assert_eq!(shown, ["0.12", "9.88", "12.3", "123", "1,234", "1,234,567"]);
        assert_eq!(short(f64::NAN), "–");
    }

    #[test]
    fn tables_are_markdown() {
        let text = table(["work", "ms"], [["a step".to_owned(), "12".to_owned()]]);
        assert_eq!(text, "| work   | ms |\n|--------|---:|\n| a step | 12 |");
    }

    #[test]
    fn a_section_is_replaced_and_the_rest_kept() {
        let page = "# a\n<!-- train -->\nold\n<!-- end of train -->\nrest\n";
        let new = replace_section(page, "train", "new").unwrap();
        assert_eq!(new, "# a\n<!-- train -->\n\nnew\n\n<!-- end of train -->\nrest\n");
        assert_eq!(replace_section(&new, "train", "new").unwrap(), new);
        assert!(replace_section(page, "infer", "").is_none());
    }

    #[test]
    fn a_class_is_replaced_and_the_others_stay_in_their_order() {
        let part = |class: Class, text: &str| {
            format!("<!-- train: {class} -->\n\n{text}\n\n<!-- end of train: {class} -->\n\n")
        };
        let page = |parts: &[String]| {
            format!("# a\n<!-- train -->\n\n{}<!-- end of train -->\nrest\n", parts.concat())
        };
        let write = |page: &str, class, text: &str| replace_class(page, "train", class, text).unwrap();

        let avx512 = part(Class::Avx512, "old");
        let one = write(&page(&[]), Class::Avx512, "old");
        assert_eq!(one, page(std::slice::from_ref(&avx512)));
        let two = write(&one, Class::Amx, "tiles");
        assert_eq!(two, page(&[part(Class::Amx, "tiles"), avx512.clone()]));
        let three = write(&two, Class::Other, "slow");
        let other = part(Class::Other, "slow");
        assert_eq!(three, page(&[part(Class::Amx, "tiles"), avx512.clone(), other.clone()]));
        assert_eq!(write(&three, Class::Amx, "new"), page(&[part(Class::Amx, "new"), avx512, other]));
        assert!(replace_class(&three, "infer", Class::Amx, "").is_none());
    }

    #[test]
    fn the_page_has_the_sections_that_are_written_whole() {
        let page = include_str!("../../../benches/README.md");
        for name in ["finetune", "glue", "lexicon", "transfer"] {
            assert!(replace_section(page, name, "").is_some(), "{name}");
        }
    }

    #[test]
    fn the_page_has_the_sections_that_are_written_by_class() {
        let page = include_str!("../../../benches/README.md");
        for (name, class) in [
            "train",
            "steps",
            "images",
            "seeing",
            "infer",
            "scaling",
            "load",
            "whole",
            "translate",
            "ensembles",
            "languages",
            "generate",
            "positions",
            "tokenizers",
            "backends",
            "search",
        ]
        .into_iter()
        .flat_map(|n| Class::ALL.map(|c| (n, c)))
        {
            assert!(replace_class(page, name, class, "").is_some(), "{name}");
        }
    }
}
