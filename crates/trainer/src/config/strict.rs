//! Deserialises merged config nodes strictly; errors name the place, the key and what was expected.
//!
//! serde's derived code reports structured facts (unknown field, missing field, wrong type) through
//! [`serde::de::Error`]; [`Fault`] keeps them and the path, where the usual error types flatten them to text.
//! It stops at the first one; [`mistakes`](super::mistakes) finds the others.

use std::fmt;

use serde::de::value::{MapDeserializer, SeqDeserializer, StrDeserializer};
use serde::de::{
    self, DeserializeOwned, Deserializer, Expected, IntoDeserializer, MapAccess, Unexpected, Visitor,
};

use super::layers::{Node, TAG, Value};
use super::mistakes;
use super::validate::Check;
use crate::error::TrainerError;
use cloze_model::nearest;

/// Reads `root` as a `T`, which `finish` completes and checks. `keys` are all existing dotted keys, for
/// suggestions across sections.
///
/// # Errors
/// All [mistakes](mistakes).
pub(super) fn read<T: FromNode>(
    root: &Node,
    keys: &[String],
    finish: impl Fn(&mut T) -> Check,
) -> Result<T, TrainerError> {
    if let Ok(mut config) = T::from_node(root)
        && finish(&mut config).is_ok()
    {
        return Ok(config);
    }
    Err(mistakes::all(root, keys, finish))
}

/// The same fault, with the key's valid values in place of the type that serde expects, so that -1 gets the
/// same message as 0.
///
/// To find them, reads a config that is right but for this key with a value of the right type that nothing accepts.
pub(super) fn precise<T: FromNode>(
    root: &Node,
    path: &[String],
    fault: Fault,
    finish: impl Fn(&mut T) -> Check,
) -> Fault {
    let What::WrongType { expected } = &fault.what else {
        return fault;
    };
    let probe: toml::Value = match expected.as_str() {
        "variant identifier" | "string or map" => String::new().into(),
        "f32" | "f64" => f64::NAN.into(),
        number if number.starts_with(['u', 'i']) && number[1..].parse::<u8>().is_ok() => 0.into(),
        "usize" | "isize" => 0.into(),
        _ => return fault,
    };
    let probe_is_whole = probe.is_integer();
    let mut probed = root.clone();
    let Some((name, table)) = path.split_last() else { return fault };
    let Some(entries) = probed.table_at(table) else { return fault };
    entries.insert(name.clone(), Node::scalar(probe, root.place.clone()));
    match T::from_node(&probed).map(|mut config| finish(&mut config)) {
        Ok(Err(complaint)) if complaint.key == path.join(".") => {
            Fault { what: What::Other(complaint.expected), ..fault }
        }
        Err(Fault { what: What::UnknownName { known, .. }, .. }) => {
            Fault { what: What::WrongType { expected: one_of(&known) }, ..fault }
        }
        // Another key is wrong too, and complains first: of the range of this one nothing is known.
        Ok(Err(_)) | Err(_) if probe_is_whole => {
            Fault { what: What::WrongType { expected: "a whole number".into() }, ..fault }
        }
        _ => fault,
    }
}

/// A type that can be read from a node.
pub(crate) trait FromNode: Sized {
    fn from_node(root: &Node) -> Result<Self, Fault>;
}

impl<T: DeserializeOwned> FromNode for T {
    fn from_node(root: &Node) -> Result<Self, Fault> {
        Self::deserialize(Source(root))
    }
}

/// A serde error and its location: keys from the root down.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fault {
    path: Vec<String>,
    pub(super) what: What,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum What {
    UnknownKey { name: String, known: Vec<&'static str> },
    MissingKey(&'static str),
    UnknownName { name: String, known: Vec<&'static str> },
    WrongType { expected: String },
    Other(String),
}

impl Fault {
    fn new(what: What) -> Self {
        Self { path: Vec::new(), what }
    }

    /// The same fault; an unknown root key may also have meant one of these.
    pub(super) fn with_known(mut self, keys: &[&'static str]) -> Self {
        if let (true, What::UnknownKey { known, .. }) = (self.path.is_empty(), &mut self.what) {
            known.extend(keys);
        }
        self
    }

    /// The same fault, relative to the enclosing table.
    fn under(mut self, key: &str) -> Self {
        self.path.insert(0, key.to_owned());
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.path.join("."), self.what)
    }
}

impl std::error::Error for Fault {}

impl de::Error for Fault {
    fn custom<M: fmt::Display>(message: M) -> Self {
        Self::new(What::Other(message.to_string()))
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(What::WrongType { expected: expected.to_string() })
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(What::WrongType { expected: expected.to_string() })
    }

    fn unknown_variant(name: &str, known: &'static [&'static str]) -> Self {
        Self::new(What::UnknownName { name: name.to_owned(), known: known.to_vec() })
    }

    fn unknown_field(name: &str, known: &'static [&'static str]) -> Self {
        Self::new(What::UnknownKey { name: name.to_owned(), known: known.to_vec() })
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(What::MissingKey(field))
    }
}

/// A [`Node`] as a serde data source.
pub(super) struct Source<'a>(pub &'a Node);

impl<'a> IntoDeserializer<'a, Fault> for Source<'a> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Source<'de> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.0.value {
            Value::Table(table) => visitor.visit_map(Entries {
                map: MapDeserializer::new(table.iter().map(|(key, node)| (key.as_str(), Source(node)))),
                keys: table.keys(),
                key: "",
            }),
            Value::Array(items) => visitor.visit_seq(SeqDeserializer::new(items.iter().map(Source))),
            Value::Scalar(toml::Value::String(text)) => visitor.visit_borrowed_str(text),
            Value::Scalar(toml::Value::Integer(number)) => visitor.visit_i64(*number),
            Value::Scalar(toml::Value::Float(number)) => visitor.visit_f64(*number),
            Value::Scalar(toml::Value::Boolean(truth)) => visitor.visit_bool(*truth),
            Value::Scalar(_) => Err(de::Error::invalid_type(Unexpected::Other("a date"), &visitor)),
        }
    }

    /// Accepts only a table, not the list that serde takes for a struct.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match &self.0.value {
            Value::Array(_) => Err(de::Error::invalid_type(Unexpected::Seq, &visitor)),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match &self.0.value {
            Value::Scalar(toml::Value::String(text)) => {
                visitor.visit_enum(StrDeserializer::<Fault>::new(text))
            }
            _ => Err(Fault::new(What::WrongType { expected: one_of(names) })),
        }
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

/// A table's entries; adds the key to the faults of its value.
struct Entries<'a, M, K> {
    map: M,
    keys: K,
    key: &'a str,
}

impl<'a, M, K> MapAccess<'a> for Entries<'a, M, K>
where
    M: MapAccess<'a, Error = Fault>,
    K: Iterator<Item = &'a String>,
{
    type Error = Fault;

    fn next_key_seed<S: de::DeserializeSeed<'a>>(&mut self, seed: S) -> Result<Option<S::Value>, Fault> {
        self.key = self.keys.next().map_or("", String::as_str);
        self.map.next_key_seed(seed)
    }

    fn next_value_seed<S: de::DeserializeSeed<'a>>(&mut self, seed: S) -> Result<S::Value, Fault> {
        self.map.next_value_seed(seed).map_err(|fault| fault.under(self.key))
    }
}

/// The path of the faulty node.
///
/// serde buffers a table tagged by a `kind` and loses the path inside it. There, the faulty entry is the one
/// whose removal changes serde's error.
pub(super) fn locate<T: FromNode>(root: &Node, fault: &Fault) -> Vec<String> {
    let mut path = fault.path.clone();
    loop {
        let Some(Node { value: Value::Table(table), .. }) = find(root, &path) else {
            return path;
        };
        let culprit = match &fault.what {
            What::MissingKey(_) => return path,
            What::UnknownKey { name, .. } if table.contains_key(name) => return path,
            What::UnknownName { name, .. } => table.iter().find_map(|(key, node)| {
                let named = Value::Scalar(toml::Value::String(name.clone()));
                (node.value == named).then(|| key.clone())
            }),
            _ => None,
        };
        let blameless = |key: &String| {
            key == TAG || T::from_node(&without(root, &path, key)).err().as_ref() == Some(fault)
        };
        let culprit = culprit.or_else(|| table.keys().find(|key| !blameless(key)).cloned());
        match culprit {
            Some(key) => path.push(key),
            None => return path,
        }
    }
}

/// The node at `path`.
pub(super) fn find<'a>(root: &'a Node, path: &[String]) -> Option<&'a Node> {
    path.iter().try_fold(root, |node, key| node.get(key))
}

/// A copy of `root` without `key` in the table at `path`.
fn without(root: &Node, path: &[String], key: &str) -> Node {
    let mut copy = root.clone();
    if let Some(table) = copy.table_at(path) {
        table.remove(key);
    }
    copy
}

/// The user's error for `fault` at `path`.
pub(super) fn report(root: &Node, path: &[String], fault: Fault, keys: &[String]) -> TrainerError {
    let dotted = |last: &str| path.iter().map(String::as_str).chain([last]).collect::<Vec<_>>().join(".");
    let place = |key: &str| root.place_of(key);
    let bad_value = |expected: String| {
        let key = path.join(".");
        let found = find(root, path).map_or_else(String::new, describe);
        TrainerError::BadValue { place: place(&key), key, found, expected }
    };
    match fault.what {
        What::UnknownKey { name, known } => {
            let key = dotted(&name);
            TrainerError::UnknownKey { place: place(&key), hint: hint(&name, &dotted, &known, keys), key }
        }
        What::MissingKey(name) => {
            let key = dotted(name);
            TrainerError::MissingKey { place: place(&key), key }
        }
        What::UnknownName { name, known } => {
            let nearest = nearest(&name, known.iter().copied());
            bad_value(nearest.map_or_else(
                || one_of(&known),
                |near| format!("{}; did you mean \"{near}\"?", one_of(&known)),
            ))
        }
        What::WrongType { expected } => bad_value(in_words(&expected)),
        What::Other(message) => bad_value(message),
    }
}

/// A suggestion for the unknown key `name`: the nearest key of its table, the same key of another section, or
/// else all keys of its table.
fn hint(name: &str, dotted: &dyn Fn(&str) -> String, known: &[&str], keys: &[String]) -> String {
    if let Some(near) = nearest(name, known.iter().copied()) {
        return format!("did you mean `{}`?", dotted(near));
    }
    let elsewhere = keys.iter().find(|key| key.rsplit('.').next() == Some(name));
    match elsewhere {
        Some(key) => format!("did you mean `{key}`?"),
        None if known.is_empty() => "expected no key here".to_owned(),
        None => format!("expected one of {}", list(known, '`')),
    }
}

/// `one of "a", "b" or "c"`.
fn one_of(names: &[&str]) -> String {
    format!("one of {}", list(names, '"'))
}

/// `"a", "b" or "c"`.
fn list(names: &[&str], quote: char) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("{quote}{name}{quote}")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

/// serde's name of a Rust type in plain words.
fn in_words(expected: &str) -> String {
    match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number of 0 or more",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        // The second is a name's in a table that is tagged by a kind, which does not tell the names.
        "a string" | "string or map" => "a string in quotes",
        "a sequence" => "a list in brackets",
        "struct" | "a map" => "a table",
        "path string" => "a path in quotes",
        "variant identifier" | "field identifier" => "a name in quotes",
        other if other.starts_with("a nonzero") => "a whole number of 1 or more",
        other if other.starts_with("struct ") || other.contains(" enum ") => "a table",
        other => other,
    }
    .to_owned()
}

/// A value for messages: on one line, truncated if long.
pub(super) fn describe(node: &Node) -> String {
    const LONGEST: usize = 60;
    let text = match &node.value {
        Value::Table(_) => "a table".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Scalar(toml::Value::String(text)) => format!("{text:?}"),
        // Otherwise with all its zeros.
        Value::Scalar(toml::Value::Float(number)) if number.abs() >= 1e15 => format!("{number:e}"),
        Value::Scalar(scalar) => scalar.to_string(),
    };
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
