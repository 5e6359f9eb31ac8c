//! Config values with their locations, and how layers are merged.
//!
//! A [`Node`] is a TOML value with its [`Place`]. Layers (preset, file, `--set`) are parsed into nodes and
//! merged as tables; later errors, by type or by range, look up their key's place here.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::{Place, Result, TrainerError};

/// The key that names the variant of a tagged table.
pub(super) const TAG: &str = "kind";

/// Maximum parts of an argument's dotted key: more than any config has, few enough not to overflow the stack.
const DEEPEST: usize = 16;

/// A config value and where it was set.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub value: Value,
    pub place: Place,
    /// Whether it replaces the lower layer's table as a whole, as a table given by an argument does.
    whole: bool,
}

/// A TOML value with nodes as its parts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Table(BTreeMap<String, Node>),
    Array(Vec<Node>),
    /// Anything but a table or an array.
    Scalar(toml::Value),
}

impl Node {
    fn of(value: Value, place: Place) -> Self {
        Self { value, place, whole: false }
    }

    /// An empty table.
    pub fn empty(place: Place) -> Self {
        Self::of(Value::Table(BTreeMap::new()), place)
    }

    /// An empty list.
    pub fn list(place: Place) -> Self {
        Self::of(Value::Array(Vec::new()), place)
    }

    /// A scalar.
    pub fn scalar(value: impl Into<toml::Value>, place: Place) -> Self {
        Self::of(Value::Scalar(value.into()), place)
    }

    /// Parses a whole file; `file` is its place, without a line.
    ///
    /// # Errors
    /// [`TrainerError::ConfigSyntax`] with the line.
    pub fn parse(text: &str, file: &Place) -> Result<Self> {
        let lines = Lines::new(text);
        let root = DeTable::parse(text).map_err(|error| {
            let line = error.span().map_or(1, |span| lines.of(span.start));
            TrainerError::ConfigSyntax { place: file.line(line), message: one_line(error.message()) }
        })?;
        let mut node = table(root.into_inner(), &|offset| file.line(lines.of(offset)))?;
        node.place = file.clone();
        Ok(node)
    }

    /// Parses `--set` arguments, `section.key=value`, into one layer; if a key is repeated, the last one wins.
    ///
    /// The value is TOML; anything else (`tiny`, `data/a.txt`) is taken as a string.
    ///
    /// # Errors
    /// [`TrainerError::ConfigSyntax`] naming the argument.
    pub fn parse_sets(sets: &[String]) -> Result<Self> {
        let mut layer = Self::empty(Place::argument(""));
        for argument in sets {
            let place = Place::argument(argument);
            let syntax = |message: String| TrainerError::ConfigSyntax { place: place.clone(), message };
            let (key, text) = argument
                .split_once('=')
                .ok_or_else(|| syntax("expected section.key=value, as in train.steps=100".to_owned()))?;
            let path: Vec<&str> = key.split('.').map(str::trim).collect();
            if path.len() > DEEPEST || path.iter().any(|part| part.is_empty()) {
                return Err(syntax(format!(
                    "`{}` is not a dotted key; expected section.key=value, as in train.steps=100",
                    key.trim()
                )));
            }
            let text = text.trim();
            let value = match DeValue::parse(text) {
                Ok(value) => Self { whole: true, ..node(value, &|_| place.clone())? },
                // A quote or bracket announces TOML: then its absence of sense is an error, not a string.
                Err(error) if text.starts_with(['"', '\'', '[', '{']) => {
                    return Err(syntax(one_line(error.message())));
                }
                Err(_) => Self::scalar(text, place.clone()),
            };
            let nested = path.iter().rev().fold(value, |inner, part| {
                Self::of(Value::Table(BTreeMap::from([((*part).to_owned(), inner)])), place.clone())
            });
            layer.lay(nested);
        }
        Ok(layer)
    }

    /// Merges `upper` over this layer: tables merge key by key, anything else is replaced.
    ///
    /// A table whose [`TAG`] changes is replaced as a whole, so that no key of the old variant survives; so is
    /// one that an argument sets to a table.
    pub fn lay(&mut self, upper: Node) {
        let changes_kind = match (self.get(TAG), upper.get(TAG)) {
            (Some(old), Some(new)) => old.value != new.value,
            _ => false,
        };
        match (&mut self.value, upper.value) {
            (Value::Table(below), Value::Table(above)) if !changes_kind && !upper.whole => {
                for (key, node) in above {
                    match below.get_mut(&key) {
                        Some(old) => old.lay(node),
                        None => {
                            below.insert(key, node);
                        }
                    }
                }
            }
            (_, value) => *self = Self { value, ..upper },
        }
    }

    /// The value of `key`, if this is a table that has it.
    pub fn get(&self, key: &str) -> Option<&Node> {
        match &self.value {
            Value::Table(table) => table.get(key),
            _ => None,
        }
    }

    /// The value of a dotted key, if it is set.
    pub fn at(&self, key: &str) -> Option<&Self> {
        key.split('.').try_fold(self, |node, part| node.get(part))
    }

    /// The `kind` of a table in this one: empty if it has none; `None` if there is no such table.
    pub fn kind(&self, table: &str) -> Option<&str> {
        self.get(table).map(|table| match table.get(TAG).map(|kind| &kind.value) {
            Some(Value::Scalar(toml::Value::String(kind))) => kind.as_str(),
            _ => "",
        })
    }

    /// The keys and values of a table; nothing for anything else.
    pub fn table_mut(&mut self) -> Option<&mut BTreeMap<String, Node>> {
        match &mut self.value {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }

    /// The keys and values of the table at a path of keys, if there is one.
    pub fn table_at(&mut self, path: &[String]) -> Option<&mut BTreeMap<String, Node>> {
        path.iter().try_fold(self, |node, part| node.table_mut()?.get_mut(part))?.table_mut()
    }

    /// Splits this table in two: the entries with these keys, and the others.
    pub fn parted(&self, keys: &[&str]) -> (Self, Self) {
        let Value::Table(table) = &self.value else { return (self.clone(), self.clone()) };
        let of = |inside: bool| {
            let entries = table.iter().filter(|(key, _)| keys.contains(&key.as_str()) == inside);
            let entries = entries.map(|(key, node)| (key.clone(), node.clone())).collect();
            Self { value: Value::Table(entries), place: self.place.clone(), whole: self.whole }
        };
        (of(true), of(false))
    }

    /// The place of the dotted `key`, or of the innermost enclosing table that was set.
    pub fn place_of(&self, key: &str) -> Place {
        let mut node = self;
        for part in key.split('.') {
            match node.get(part) {
                Some(inner) => node = inner,
                None => break,
            }
        }
        node.place.clone()
    }
}

/// Converts a parsed table; `place` maps byte offsets to places.
fn table(table: DeTable<'_>, place: &dyn Fn(usize) -> Place) -> Result<Node> {
    let mut entries = BTreeMap::new();
    for (key, value) in table {
        entries.insert(key.into_inner().into_owned(), node(value, place)?);
    }
    Ok(Node::of(Value::Table(entries), place(0)))
}

/// Converts a parsed value; `place` maps byte offsets to places.
fn node(value: Spanned<DeValue<'_>>, place: &dyn Fn(usize) -> Place) -> Result<Node> {
    let here = place(value.span().start);
    if value.get_ref().is_table() {
        let DeValue::Table(entries) = value.into_inner() else { unreachable!("checked above") };
        return Ok(Node { place: here, ..table(entries, place)? });
    }
    if value.get_ref().is_array() {
        let DeValue::Array(items) = value.into_inner() else { unreachable!("checked above") };
        let items = items.into_iter().map(|item| node(item, place)).collect::<Result<_>>()?;
        return Ok(Node::of(Value::Array(items), here));
    }
    let scalar = serde::Deserialize::deserialize(toml::de::ValueDeserializer::from(value));
    // The parser has accepted its form: what is left is a number that no 64 bits hold.
    let scalar = scalar.map_err(|_: toml::de::Error| TrainerError::ConfigSyntax {
        place: here.clone(),
        message: format!("a number out of range; whole numbers end at {}", i64::MAX),
    })?;
    Ok(Node::of(Value::Scalar(scalar), here))
}

/// A parser's message, which may span lines, on one line.
fn one_line(message: &str) -> String {
    message.lines().map(str::trim).collect::<Vec<_>>().join("; ")
}

/// Line numbers by byte offset.
struct Lines(Vec<usize>);

impl Lines {
    fn new(text: &str) -> Self {
        Self(text.match_indices('\n').map(|(offset, _)| offset).collect())
    }

    /// The line (from 1) of the byte at `offset`.
    fn of(&self, offset: usize) -> usize {
        1 + self.0.partition_point(|&end| end < offset)
    }
}
