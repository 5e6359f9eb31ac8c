//! All unknown and missing keys of a config at once.
//!
//! serde's derived code stops at the first mistake. So a copy of the config is mended and read again until serde is
//! content: an unknown key is removed, and a missing one gets a stand-in, a value of the type that serde accepts there.

use std::collections::BTreeMap;

use super::layers::{Node, TAG, Value};
use super::strict::{Fault, FromNode, What, find, locate, report};
use super::validate::Check;
use crate::error::TrainerError;

/// Most mended keys: more than any config has.
const MOST: usize = 200;

/// A name that no option has.
const NO_NAME: &str = "\u{0}";

/// What a check finds in place of a key that serde does not require but the run does.
pub(crate) const MISSING: &str = "missing";

/// All unknown and missing keys of `root`, the first of which is `fault`; none if that is another mistake. `keys` are
/// all existing dotted keys, for suggestions; `finish` may find more missing keys.
pub(super) fn all<T: FromNode>(
    root: &Node,
    fault: &Fault,
    keys: &[String],
    finish: impl Fn(&mut T) -> Check,
) -> Option<TrainerError> {
    let mut mending = Mending { root: root.clone(), guessed: Vec::new() };
    let (mut unknown, mut missing) = (Vec::new(), Vec::new());
    let mut fault = fault.clone();
    for _ in 0..MOST {
        let path = locate::<T>(&mending.root, &fault);
        match &fault.what {
            What::UnknownKey { name, .. } => {
                if !mending.is_guessed(&path) {
                    unknown.push(report(&mending.root, &path, fault.clone(), keys));
                }
                if mending.root.table_at(&path).and_then(|table| table.remove(name)).is_none() {
                    break;
                }
            }
            What::MissingKey(name) => {
                let is_guessed = mending.is_guessed(&path);
                let table = mending.stand_in::<T>(&path, name);
                if !is_guessed {
                    missing.push(dotted(table.as_deref().unwrap_or(&path), name));
                }
                if table.is_none() {
                    break;
                }
            }
            _ => break,
        }
        match T::from_node(&mending.root) {
            Err(next) => fault = next,
            Ok(mut config) => {
                // What a kind needs that nobody has chosen is not missing.
                if let Err(complaint) = finish(&mut config)
                    && complaint.found == MISSING
                    && mending.guessed.is_empty()
                {
                    missing.push(complaint.key);
                }
                break;
            }
        }
    }
    // A section with missing keys is named with them.
    let sections = missing.clone();
    missing.retain(|key| {
        !sections.iter().any(|other| other.strip_prefix(&**key).is_some_and(|rest| rest.starts_with('.')))
    });
    // A misspelt key is told once.
    missing.retain(|key| !unknown.iter().any(|error| suggests(error, key)));
    let missing = match &missing[..] {
        [] => None,
        [key] => Some(TrainerError::MissingKey { place: root.place_of(key), key: key.clone() }),
        _ => Some(TrainerError::MissingKeys { place: root.place.clone(), keys: by_section(&missing) }),
    };
    let mut all: Vec<TrainerError> = unknown.into_iter().chain(missing).collect();
    match all.len() {
        0 | 1 => all.pop(),
        _ => Some(TrainerError::Mistakes(all)),
    }
}

/// A config that serde is to be content with.
struct Mending {
    root: Node,
    /// Tables whose `kind` is a stand-in: of their other keys nothing is known.
    guessed: Vec<Vec<String>>,
}

impl Mending {
    fn is_guessed(&self, path: &[String]) -> bool {
        self.guessed.iter().any(|table| path.starts_with(table))
    }

    /// Gives the key `name` a value in the table at `path`, or in one within it: of tables tagged by a `kind`, serde
    /// does not tell which. Returns the path of the table; none if serde accepts no value.
    fn stand_in<T: FromNode>(&mut self, path: &[String], name: &str) -> Option<Vec<String>> {
        let mut tables = Vec::new();
        tables_within(find(&self.root, path)?, path, &mut tables);
        tables.into_iter().find(|table| self.takes::<T>(table, name, path))
    }

    /// Tries stand-ins for one key; `missed` is where serde has missed it.
    fn takes<T: FromNode>(&mut self, table: &[String], name: &str, missed: &[String]) -> bool {
        if self.root.table_at(table).is_none_or(|entries| entries.contains_key(name)) {
            return false;
        }
        let place = self.root.place.clone();
        let scalar = |value: toml::Value| Node::scalar(value, place.clone());
        // An empty list would be taken for a table without a `kind`.
        for node in [
            scalar(1.into()),
            scalar(NO_NAME.into()),
            scalar(true.into()),
            Node::empty(place.clone()),
            Node::list(place.clone()),
        ] {
            match self.with::<T>(table, name, node, missed) {
                Taken::Yes => return true,
                Taken::No => {}
                Taken::ButNamed(first) => {
                    let taken = self.with::<T>(table, name, scalar(first.into()), missed);
                    if matches!(taken, Taken::Yes) {
                        if name == TAG {
                            self.guessed.push(table.to_vec());
                        }
                        return true;
                    }
                }
            }
        }
        if let Some(entries) = self.root.table_at(table) {
            entries.remove(name);
        }
        false
    }

    /// Sets a key and asks serde.
    fn with<T: FromNode>(&mut self, table: &[String], name: &str, node: Node, missed: &[String]) -> Taken {
        let Some(entries) = self.root.table_at(table) else { return Taken::No };
        entries.insert(name.to_owned(), node);
        let Err(fault) = T::from_node(&self.root) else { return Taken::Yes };
        let path = locate::<T>(&self.root, &fault);
        let is_taken = match &fault.what {
            What::UnknownName { name: unknown, known } if unknown == NO_NAME => {
                return known.first().map_or(Taken::No, |first| Taken::ButNamed(first));
            }
            // serde still misses it.
            What::MissingKey(other) => *other != name || path != missed,
            What::UnknownKey { name: other, .. } => other != name || path != table,
            // A bad `kind` is located at its table.
            _ if name == TAG => !path.starts_with(table),
            _ => !path.starts_with(&[table, &[name.to_owned()]].concat()),
        };
        if is_taken { Taken::Yes } else { Taken::No }
    }
}

/// Whether serde takes a stand-in.
enum Taken {
    Yes,
    No,
    /// A string, but one of some names, of which this is the first.
    ButNamed(&'static str),
}

/// The paths of a table and of all tables in it, the outer ones first.
fn tables_within(node: &Node, path: &[String], tables: &mut Vec<Vec<String>>) {
    if let Value::Table(table) = &node.value {
        tables.push(path.to_vec());
        for (key, node) in table {
            let path: Vec<String> = path.iter().chain([key]).cloned().collect();
            tables_within(node, &path, tables);
        }
    }
}

fn dotted(table: &[String], key: &str) -> String {
    table.iter().map(String::as_str).chain([key]).collect::<Vec<_>>().join(".")
}

/// Whether an error suggests a key, or a section that it is in.
fn suggests(error: &TrainerError, key: &str) -> bool {
    let TrainerError::UnknownKey { hint, .. } = error else { return false };
    let ends = key.match_indices('.').map(|(end, _)| end).chain([key.len()]);
    ends.into_iter().any(|end| hint.contains(&format!("did you mean `{}`?", &key[..end])))
}

/// `` `steps` and `batch_size` in `[train]`, `lr` in `[optimizer]` ``: in the order in which they were found.
fn by_section(keys: &[String]) -> String {
    let mut sections: Vec<&str> = Vec::new();
    let mut of: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut parts = Vec::new();
    for key in keys {
        match key.rsplit_once('.') {
            Some((section, key)) => {
                if !sections.contains(&section) {
                    sections.push(section);
                }
                of.entry(section).or_default().push(format!("`{key}`"));
            }
            None => parts.push(format!("the section `[{key}]`")),
        }
    }
    parts.extend(sections.iter().map(|section| {
        let keys = match of[section].split_last() {
            Some((last, [])) => last.clone(),
            Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
            None => String::new(),
        };
        format!("{keys} in `[{section}]`")
    }));
    parts.join(", ")
}
