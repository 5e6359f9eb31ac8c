//! The reference as a page.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use anyhow::{Result, ensure};

use crate::default::literal;
use crate::places::anchor;
use crate::prose::{capitalised, cell, without_name};
use crate::shape::{Choices, Content, DefaultValue, Key, Kind, KindKeys, Shape, Table};
use crate::{COMMON, Reference};

/// More choices than this have a table of their own.
const MOST_IN_A_CELL: usize = 8;

const INTRODUCTION: &str = "# Every key of a config

Made from the comments of the code that reads configs. [Configs](configs.md) describes the objectives and losses, and has an example of
every kind of run.

- A *required* key has no default. – marks a key that is unset by default, or a table whose own keys have the defaults.
- A list of tables may be written as `[[section]]`, once per table, or as `section = [{ … }, { … }]`.
- `--set section.key=value` sets a key from the command line. Paths are relative to the working directory.
- The run's folder records every key with its value, defaults included (`config.toml`).

";

/// The whole page.
pub fn write(reference: &Reference) -> Result<String> {
    let writer = Writer { reference };
    let mut page = INTRODUCTION.to_owned();
    page += "| run | |\n| --- | --- |\n";
    for kind in &reference.kinds {
        writeln!(page, "| [{}](#{}) | {} |", kind.title, anchor(kind.title), cell(&kind.about))?;
    }
    for (run, kind) in reference.kinds.iter().enumerate() {
        write!(page, "\n## {}\n\n{}\n\n| section | |\n| --- | --- |\n", kind.title, kind.about)?;
        for section in &kind.sections {
            writeln!(page, "| {} | {} |", writer.linked_section(section), writer.about(section))?;
        }
        let has_common = kind.title != COMMON && !kind.sections.iter().any(|key| key.names[0] == "probe");
        for common in reference.kinds.iter().filter(|other| other.title == COMMON && has_common) {
            let names = common.sections.iter().map(|key| writer.linked_section(key)).collect::<Vec<_>>();
            writeln!(page, "| {} | as in every run that trains |", names.join(", "))?;
        }
        for table in reference.places.of_run(run) {
            writer.table(table, &mut page)?;
        }
    }
    writer.choices(&mut page)?;
    let mut anchors = BTreeSet::new();
    for heading in page.lines().filter_map(|line| line.strip_prefix("## ").or(line.strip_prefix("### "))) {
        ensure!(anchors.insert(anchor(heading)), "two headings of the page of keys are alike: {heading}");
    }
    Ok(page)
}

struct Writer<'a> {
    reference: &'a Reference,
}

impl Writer<'_> {
    fn heading(&self, table: usize) -> String {
        self.reference.places.heading(&self.reference.kinds, table)
    }

    fn link(&self, table: usize) -> String {
        format!("#{}", anchor(&self.heading(table)))
    }

    fn linked_section(&self, section: &Key) -> String {
        let name = format!("`[{}]`", section.names[0]);
        match inner_table(&section.shape) {
            Some(table) => format!("[{name}]({})", self.link(table)),
            None => name,
        }
    }

    /// What a section is for, and its default.
    fn about(&self, section: &Key) -> String {
        let default = match &section.default {
            DefaultValue::Told(text) => format!(" Default: {text}."),
            DefaultValue::Value(value) if !section.meaning.contains("Default ") => {
                format!(" Default: `{value}`.")
            }
            DefaultValue::Value(_) | DefaultValue::Required | DefaultValue::Unset => String::new(),
        };
        cell(&format!("{}{default}", capitalised(without_name(&section.meaning))))
    }

    /// A table's heading, what it is, and its keys.
    fn table(&self, table: usize, page: &mut String) -> Result<()> {
        let Table { doc, content, .. } = &self.reference.tables[table];
        write!(page, "\n### {}\n", self.heading(table))?;
        // What it says of the tag is said in the tag's row.
        for paragraph in doc.iter().filter(|paragraph| !paragraph.contains("` is optional: ")) {
            write!(page, "\n{}\n", capitalised(without_name(paragraph)))?;
        }
        let (tag, kinds) = match content {
            Content::Keys(keys) => {
                *page += "\n| key | type | default | meaning |\n| --- | --- | --- | --- |\n";
                keys.iter().for_each(|key| *page += &row(&self.cells(key)));
                return Ok(());
            }
            Content::Kinds { tag, kinds } => (tag, kinds),
        };
        *page += "\n";
        for kind in kinds {
            let names = spelled(&kind.names);
            let doc = kind.doc.trim_end_matches(':');
            match &kind.keys {
                KindKeys::Of(inner) => {
                    writeln!(page, "- {names}: {doc} [Its keys]({}).", self.link(*inner))?;
                }
                KindKeys::Own(_) => writeln!(page, "- {names}: {doc}")?,
            }
        }
        *page += "\n| key | type | default | meaning |\n| --- | --- | --- | --- |\n";
        let types: Vec<String> = kinds.iter().map(|kind| format!("`\"{}\"`", kind.names[0])).collect();
        let optional = doc.iter().find_map(|text| text.split_once(&format!("`{tag}` is optional: ")));
        let default = match optional {
            Some((_, text)) => text.split_once(". ").map_or(text, |(first, _)| first).trim_end_matches('.'),
            None => "*required*",
        };
        *page += &row(&[format!("`{tag}`"), any_of(&types), cell(default), "One of the above.".into()]);
        for cells in self.merged(kinds) {
            *page += &row(&cells);
        }
        Ok(())
    }

    /// The rows of the keys that kinds have in this table: equal keys of several kinds are one row.
    fn merged(&self, kinds: &[Kind]) -> Vec<[String; 4]> {
        let mut rows: Vec<([String; 4], Vec<&str>)> = Vec::new();
        for kind in kinds {
            let KindKeys::Own(keys) = &kind.keys else { continue };
            for key in keys {
                let cells = self.cells(key);
                match rows.iter_mut().find(|(known, _)| *known == cells) {
                    Some((_, of)) => of.push(&kind.names[0]),
                    None => rows.push((cells, vec![&kind.names[0]])),
                }
            }
        }
        // Those of a name together.
        let mut names: Vec<String> = Vec::new();
        for ([name, ..], _) in &rows {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        rows.sort_by_key(|([name, ..], _)| names.iter().position(|other| other == name));
        let rows = rows.into_iter().map(|([name, of, default, meaning], has)| {
            let has_all = has.len() == kinds.len();
            let has: Vec<String> = has.iter().map(|name| format!("`\"{name}\"`")).collect();
            let meaning = if has_all { meaning } else { format!("For {}: {meaning}", all_of(&has)) };
            [name, of, default, meaning]
        });
        rows.collect()
    }

    /// The cells of a key's row.
    fn cells(&self, key: &Key) -> [String; 4] {
        let default = match &key.default {
            DefaultValue::Required => "*required*".to_owned(),
            DefaultValue::Value(value) => format!("`{value}`"),
            // A value in the comment's spelling.
            DefaultValue::Told(text) if !text.contains(['`', ' ']) && literal(text).is_some() => {
                format!("`{}`", text.replace(',', ""))
            }
            DefaultValue::Told(text) => text.clone(),
            DefaultValue::Unset => "–".to_owned(),
        };
        let names: Vec<String> = key.names.iter().map(|name| format!("`{name}`")).collect();
        let mut meaning = capitalised(&key.meaning);
        if let Some(choices) =
            choices_of(&key.shape).filter(|choices| choices.choices.len() <= MOST_IN_A_CELL)
        {
            for choice in &choices.choices {
                let inner = choice.keys.iter().map(|key| {
                    let first = key.meaning.trim_end_matches('.');
                    format!(" `{}`: {}.", key.names[0], first.to_owned())
                });
                let inner: String = inner.collect();
                write!(meaning, "\n{}: {}{inner}", spelled(&choice.names), choice.doc).unwrap_or_default();
            }
        }
        let of = self.type_of(&key.shape, false);
        [names.join(", "), of, default, meaning].map(|text| cell(&text))
    }

    /// A shape in words.
    fn type_of(&self, shape: &Shape, is_plural: bool) -> String {
        let word = |one: &str, many: &str| if is_plural { many.to_owned() } else { one.to_owned() };
        match shape {
            Shape::Text => word("text", "texts"),
            Shape::Path => word("path", "paths"),
            Shape::Whole => word("whole number", "whole numbers"),
            Shape::Number => word("number", "numbers"),
            Shape::Flag => "true or false".to_owned(),
            Shape::Character => word("one character", "characters"),
            Shape::List(inner) => match &**inner {
                Shape::Table(table) => {
                    format!("[{}]({})", word("list of tables", "lists of tables"), self.link(*table))
                }
                inner => format!("{} of {}", word("list", "lists"), self.type_of(inner, true)),
            },
            Shape::Fixed(inner, n) => {
                format!("{} of {n} {}", word("list", "lists"), self.type_of(inner, true))
            }
            Shape::Names(inner) => {
                format!("{}: name → {}", word("table", "tables"), self.type_of(inner, false))
            }
            Shape::Table(table) => format!("[{}]({})", word("table", "tables"), self.link(*table)),
            Shape::OneOf(choices) if choices.choices.len() > MOST_IN_A_CELL => {
                format!("[a name](#{})", anchor(&title_of(choices)))
            }
            Shape::OneOf(choices) => {
                let names = choices.choices.iter().map(|choice| match choice.keys.as_slice() {
                    [] => format!("`\"{}\"`", choice.names[0]),
                    keys => {
                        let keys: Vec<_> = keys.iter().map(|key| format!("{} = …", key.names[0])).collect();
                        format!("`{{ {} = {{ {} }} }}`", choice.names[0], keys.join(", "))
                    }
                });
                any_of(&names.collect::<Vec<_>>())
            }
            Shape::Either(shapes) => {
                let flat = shapes.iter().flat_map(|shape| match shape {
                    Shape::Either(inner) => inner.as_slice(),
                    other => std::slice::from_ref(other),
                });
                any_of(&flat.map(|shape| self.type_of(shape, is_plural)).collect::<Vec<_>>())
            }
        }
    }

    /// The names that are too many for a cell.
    fn choices(&self, page: &mut String) -> Result<()> {
        let mut long: BTreeMap<String, &Choices> = BTreeMap::new();
        for table in &self.reference.tables {
            let kinds: Vec<&[Key]> = match &table.content {
                Content::Keys(keys) => vec![keys],
                Content::Kinds { kinds, .. } => {
                    let own = kinds.iter().filter_map(|kind| match &kind.keys {
                        KindKeys::Own(keys) => Some(keys.as_slice()),
                        KindKeys::Of(_) => None,
                    });
                    own.collect()
                }
            };
            for choices in kinds.into_iter().flatten().filter_map(|key| choices_of(&key.shape)) {
                if choices.choices.len() > MOST_IN_A_CELL {
                    long.insert(title_of(choices), choices);
                }
            }
        }
        for (title, choices) in long {
            write!(page, "\n## {title}\n\n| name | |\n| --- | --- |\n")?;
            for choice in &choices.choices {
                writeln!(page, "| {} | {} |", spelled(&choice.names), cell(&choice.doc))?;
            }
        }
        Ok(())
    }
}

/// The heading of choices: the Rust type's name in words.
fn title_of(choices: &Choices) -> String {
    let mut words = String::from("Names:");
    for letter in choices.of.chars() {
        if letter.is_uppercase() {
            words.push(' ');
        }
        words.extend(letter.to_lowercase());
    }
    words
}

/// The choices of a value, or of a list's values.
fn choices_of(shape: &Shape) -> Option<&Choices> {
    match shape {
        Shape::OneOf(choices) => Some(choices),
        Shape::List(inner) => choices_of(inner),
        _ => None,
    }
}

fn inner_table(shape: &Shape) -> Option<usize> {
    match shape {
        Shape::Table(table) => Some(*table),
        Shape::List(inner) => inner_table(inner),
        _ => None,
    }
}

/// A name, with other spellings of it.
fn spelled(names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`\"{name}\"`")).collect();
    match quoted.split_first() {
        Some((first, [])) => first.clone(),
        Some((first, others)) => format!("{first} (also {})", others.join(", ")),
        None => String::new(),
    }
}

/// `a, b or c`.
fn any_of(names: &[String]) -> String {
    joined(names, "or")
}

/// `a, b and c`.
fn all_of(names: &[String]) -> String {
    joined(names, "and")
}

fn joined(names: &[String], word: &str) -> String {
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} {word} {last}", rest.join(", ")),
        _ => names.concat(),
    }
}

fn row(cells: &[String; 4]) -> String {
    format!("| {} |\n", cells.join(" | "))
}
