//! The reference of every key of every config, made from the doc comments of the types that serde reads.
//!
//! `cargo xtask docs` writes it as a page of the book; a test in `tests` compares it with what serde accepts
//! and with the defaults that it gives.
//!
//! The sources are parsed, so that neither this crate nor `xtask` depends on the trainer. What a key means,
//! and what its type and choices are, comes from the structs; a default comes from the code if it is a
//! literal there, else from the sentence `Default …` of the comment, which must not contradict the code. A
//! key without a comment is an error.

mod attributes;
mod default;
mod page;
mod places;
mod prose;
mod reader;
mod shape;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use syn::{Expr, Item, Type};

use places::Places;
use reader::Shapes;
pub use shape::{Choice, Choices, Content, DefaultValue, Key, Kind, KindKeys, Shape, Table};
use source::Sources;

/// The keys of tables, by the tables' paths.
type Tables = BTreeMap<String, BTreeSet<String>>;

/// The sections that all runs have which train.
pub const COMMON: &str = "Every run that trains";

/// The Rust types of the kinds of runs, in the page's order, and their headings.
const TITLES: [(&str, &str); 14] = [
    ("Common", COMMON),
    ("Pretraining", "Pretraining"),
    ("LanguageModelRun", "Language models"),
    ("AwdLstmRun", "AWD-LSTM"),
    ("ElmoRun", "ELMo"),
    ("PermutationRun", "XLNet"),
    ("TranslationRun", "Translation"),
    ("DenoisingRun", "Denoising"),
    ("FineTuneRun", "Fine-tuning"),
    ("ImageRun", "Images"),
    ("CaptionRun", "Captions"),
    ("MaskedPatchesRun", "Masked patches"),
    ("ContrastiveViewsRun", "Contrastive views"),
    ("ProbeConfig", "Probing"),
];

/// Every key.
pub struct Reference {
    tables: Vec<Table>,
    kinds: Vec<RunKind>,
    places: Places,
}

/// A kind of run.
pub struct RunKind {
    /// The page's heading.
    pub title: &'static str,
    /// What it is, in a sentence.
    about: String,
    /// Its sections: keys of the file whose values are tables.
    pub sections: Vec<Key>,
}

/// A key that a config sets.
pub struct Found<'a> {
    /// As `train.steps`.
    pub path: String,
    /// The heading under which the page has it.
    pub heading: String,
    /// What the reference says of it.
    pub key: &'a Key,
    /// Its value in the config.
    pub value: &'a toml::Value,
}

impl Reference {
    /// Reads the sources of the repository at `root`.
    ///
    /// # Errors
    /// Sources that cannot be read; keys that cannot be told from them; all keys and choices without a doc
    /// comment, and all comments that contradict the code or speak of Rust items.
    pub fn read(root: &Path) -> Result<Self> {
        Self::of(&Sources::read(root)?, &TITLES)
    }

    /// Of these sources, which must define the types of `titles`.
    fn of(sources: &Sources, titles: &[(&'static str, &'static str)]) -> Result<Self> {
        for name in kinds_of_runs(sources) {
            let is_known = titles.iter().any(|(of, _)| *of == name);
            ensure!(is_known, "the kind of run `{name}` has no heading: add it to `TITLES` in xtask/keys");
        }
        let roots = titles.iter().map(|(name, _)| sources.named(name)).collect::<Result<Vec<_>>>()?;
        let mut shapes = Shapes::new(sources, roots.clone());
        let mut kinds = Vec::new();
        for ((name, title), root) in titles.iter().zip(roots) {
            let Shape::Table(table) = shapes.of_definition(root)? else { bail!("{name} is no table") };
            let Content::Keys(sections) = shapes.tables[table].content.clone() else {
                bail!("{name} has no sections")
            };
            let attributes = match (alias_of(sources, name), &sources.definitions[root].item) {
                (Some(attributes), _) => attributes,
                (None, Item::Struct(item)) => &item.attrs,
                _ => bail!("{name} is no struct"),
            };
            let about = prose::paragraphs(&attributes::doc(attributes)).into_iter().next();
            let about = about.with_context(|| format!("{} has no doc comment", sources.place(root)))?;
            kinds.push(RunKind { title, about, sections });
        }
        ensure!(shapes.faults.is_empty(), "of the doc comments of configs:\n{}", shapes.faults.join("\n"));
        let places = Places::of(&shapes.tables, &kinds);
        Ok(Self { tables: shapes.tables, kinds, places })
    }

    /// The page, as Markdown.
    ///
    /// # Errors
    /// Two headings with the same anchor.
    pub fn page(&self) -> Result<String> {
        page::write(self)
    }

    /// The kinds of runs.
    pub fn kinds(&self) -> &[RunKind] {
        &self.kinds
    }

    /// The sections of a kind of run, with those of every run that trains.
    fn sections<'a>(&'a self, kind: &'a RunKind) -> impl Iterator<Item = &'a Key> {
        let common = self.kinds.iter().filter(|other| other.title == COMMON && kind.title != COMMON);
        let has = |name: &str| kind.sections.iter().any(|key| key.names[0] == name);
        // Probing has a `[run]` of its own, and trains no model.
        let common = common.flat_map(|common| &common.sections).filter(move |_| !has("probe"));
        kind.sections.iter().chain(common)
    }

    /// The keys that a config of a kind of run sets.
    ///
    /// # Errors
    /// A key that the reference does not have, by its path; no such kind.
    pub fn walk<'a>(&'a self, title: &str, config: &'a toml::Table) -> Result<Vec<Found<'a>>> {
        let kind = self.kinds.iter().find(|kind| kind.title == title).context("no such kind of run")?;
        let sections: Vec<&Key> = self.sections(kind).collect();
        let mut found = Vec::new();
        for (name, value) in config {
            let section = sections.iter().find(|key| key.names.contains(name));
            let section = section.with_context(|| format!("{title} has no `[{name}]`"))?;
            self.walk_value(&section.shape, value, name, &mut found)?;
        }
        Ok(found)
    }

    fn walk_value<'a>(
        &'a self,
        shape: &'a Shape,
        value: &'a toml::Value,
        path: &str,
        found: &mut Vec<Found<'a>>,
    ) -> Result<()> {
        match (shape, value) {
            (Shape::Table(table), toml::Value::Table(values)) => {
                self.walk_table(*table, values, path, found)?;
            }
            (Shape::List(inner) | Shape::Fixed(inner, _), toml::Value::Array(values)) => {
                for value in values {
                    self.walk_value(inner, value, path, found)?;
                }
            }
            (Shape::Names(inner), toml::Value::Table(values)) => {
                for (name, value) in values {
                    self.walk_value(inner, value, &format!("{path}.{name}"), found)?;
                }
            }
            (Shape::OneOf(choices), toml::Value::Table(values)) => {
                for (name, value) in values {
                    let choice = choices.choices.iter().find(|choice| choice.names.contains(name));
                    let choice = choice.with_context(|| format!("`{path}` has no `{name}`"))?;
                    for inner in value.as_table().into_iter().flat_map(toml::Table::keys) {
                        let has = choice.keys.iter().any(|key| key.names.contains(inner));
                        ensure!(has, "`{path}.{name}` has no `{inner}`");
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn walk_table<'a>(
        &'a self,
        table: usize,
        values: &'a toml::Table,
        path: &str,
        found: &mut Vec<Found<'a>>,
    ) -> Result<()> {
        for (name, value) in values {
            let path = format!("{path}.{name}");
            let Some((home, key)) = self.key(table, values, name) else {
                let is_tag = matches!(&self.tables[table].content, Content::Kinds { tag, .. } if tag == name);
                ensure!(is_tag, "there is no key `{path}`");
                continue;
            };
            found.push(Found {
                heading: self.places.heading(&self.kinds, home),
                key,
                value,
                path: path.clone(),
            });
            self.walk_value(&key.shape, value, &path, found)?;
        }
        Ok(())
    }

    /// A key of a table with these values, and the table under whose heading it is.
    fn key<'a>(&'a self, table: usize, values: &toml::Table, name: &str) -> Option<(usize, &'a Key)> {
        let named = |keys: &'a [Key]| keys.iter().find(|key| key.names.iter().any(|of| of == name));
        match &self.tables[table].content {
            Content::Keys(keys) => Some((table, named(keys)?)),
            Content::Kinds { tag, kinds } => {
                let chosen = values.get(tag).and_then(toml::Value::as_str);
                // Where the kind may be left out, the key that is set decides.
                let may_be =
                    |kind: &&Kind| chosen.is_none_or(|chosen| kind.names.iter().any(|of| of == chosen));
                kinds.iter().filter(may_be).find_map(|kind| match &kind.keys {
                    KindKeys::Own(keys) => Some((table, named(keys)?)),
                    KindKeys::Of(inner) => Some((*inner, self.key(*inner, values, name)?.1)),
                })
            }
        }
    }

    /// A key of a table, whatever the table's kind.
    pub fn key_of<'a>(&'a self, shape: &Shape, name: &str) -> Option<&'a Key> {
        let Shape::Table(table) = shape else { return None };
        Some(self.key(*table, &toml::Table::new(), name)?.1)
    }

    /// The keys of each table of a kind of run, those of all kinds of a table together: `schedule` has `kind`
    /// and `warmup_steps`.
    pub fn keys_of_tables(&self, title: &str) -> Tables {
        let mut tables = Tables::new();
        for kind in self.kinds.iter().filter(|kind| kind.title == title) {
            for section in &kind.sections {
                self.collect(&section.shape, &section.names[0], &mut tables);
            }
        }
        tables
    }

    fn collect(&self, shape: &Shape, path: &str, tables: &mut Tables) {
        match shape {
            Shape::Table(table) => match &self.tables[*table].content {
                Content::Keys(keys) => self.collect_keys(keys, path, tables),
                Content::Kinds { tag, kinds } => {
                    tables.entry(path.to_owned()).or_default().insert(tag.clone());
                    for kind in kinds {
                        match &kind.keys {
                            KindKeys::Own(keys) => self.collect_keys(keys, path, tables),
                            KindKeys::Of(inner) => self.collect(&Shape::Table(*inner), path, tables),
                        }
                    }
                }
            },
            Shape::List(inner) | Shape::Fixed(inner, _) => self.collect(inner, path, tables),
            _ => {}
        }
    }

    fn collect_keys(&self, keys: &[Key], path: &str, tables: &mut Tables) {
        for key in keys {
            tables.entry(path.to_owned()).or_default().extend(key.names.iter().cloned());
            self.collect(&key.shape, &format!("{path}.{}", key.names[0]), tables);
        }
    }
}

/// The types in the table of the kinds of runs.
fn kinds_of_runs(sources: &Sources) -> Vec<String> {
    let tables = sources.files.iter().enumerate().filter_map(|(file, _)| sources.constant(file, "KINDS"));
    let entries = tables.filter_map(|table| match table {
        Expr::Array(array) => Some(&array.elems),
        _ => None,
    });
    let types = entries.flatten().filter_map(|entry| {
        let Expr::Call(call) = entry else { return None };
        let Expr::Path(function) = &*call.func else { return None };
        let last = function.path.segments.last()?;
        let inner = reader::arguments(&last.arguments);
        match inner.first()? {
            Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
            _ => None,
        }
    });
    types.collect()
}

/// The attributes of the alias `Run<NAME>`.
fn alias_of<'a>(sources: &'a Sources, name: &str) -> Option<&'a [syn::Attribute]> {
    sources.definitions.iter().find_map(|definition| {
        let Item::Type(alias) = &definition.item else { return None };
        let Type::Path(path) = &*alias.ty else { return None };
        let last = path.path.segments.last().filter(|last| last.ident == "Run")?;
        let is_it = reader::arguments(&last.arguments).iter().any(|inner| match inner {
            Type::Path(path) => path.path.segments.last().is_some_and(|last| last.ident == name),
            _ => false,
        });
        is_it.then_some(alias.attrs.as_slice())
    })
}

#[cfg(test)]
mod tests;
