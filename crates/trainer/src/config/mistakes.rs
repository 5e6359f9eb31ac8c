//! All mistakes of a config at once: unknown and missing keys, and wrong values as far as they do not depend on each other.
//!
//! serde's derived code stops at the first mistake, and so do the checks after it. So a copy of the config is mended and read
//! again until both are content: an unknown key is removed, a missing one gets a stand-in, and so does a wrong value. A value
//! that is wrong only beside a stand-in is none of the user's mistakes: what is told does not change with the stand-ins.

use std::collections::BTreeMap;

use super::layers::{Node, TAG, Value};
use super::strict::{FromNode, What, find, locate, precise, report};
use super::validate::{Check, Complaint};
use crate::error::TrainerError;

/// Most attempts: more mistakes than any config has.
const MOST: usize = 200;

/// Most times that other stand-ins are taken.
const MOST_OTHERS: usize = 10;

/// A name that no option has.
const NO_NAME: &str = "\u{0}";

/// What a check finds in place of a key that serde does not require but the run does.
pub(crate) const MISSING: &str = "missing";

/// All mistakes of `root`, which has one at least. `keys` are all existing dotted keys, for suggestions; `finish` completes
/// and checks what was read.
pub(super) fn all<T: FromNode>(
    root: &Node,
    keys: &[String],
    finish: impl Fn(&mut T) -> Check,
) -> TrainerError {
    let mut mending = Mending { root: root.clone(), guessed: Vec::new(), stand_ins: Vec::new() };
    let (mut unknown, mut missing) = (Vec::new(), Vec::new());
    let (mut faults, mut complaints) = (Vec::new(), Vec::new());
    let mut others = 0;
    for _ in 0..MOST {
        let fault = match T::from_node(&mending.root) {
            Err(fault) => fault,
            Ok(mut config) => {
                let Err(complaint) = finish(&mut config) else { break };
                let is_only = unknown.is_empty() && missing.is_empty() && faults.is_empty();
                // By itself it is told with what may stand in its place.
                let is_missing = complaint.found == MISSING && !(is_only && complaints.is_empty());
                // What a kind needs that nobody has chosen is not missing.
                if !mending.guessed.is_empty() {
                    break;
                }
                let is_first = mending.stand_ins.is_empty();
                let told = match mending.has_stand_in(&complaint.key) {
                    true => None,
                    false if is_missing || is_first => Some(complaint.clone()),
                    false => match mending.without(&complaint, &finish) {
                        Depends::No => is_the_users(root, &complaint.key).then(|| complaint.clone()),
                        Depends::Wholly if others < MOST_OTHERS => {
                            others += 1;
                            continue;
                        }
                        Depends::Wholly => break,
                        Depends::InPart => None,
                    },
                };
                let key = complaint.key;
                mending.guess_sizes(&key);
                match told {
                    Some(told) if is_missing => missing.push(told.key),
                    told => complaints.extend(told),
                }
                if !mending.correct(&key, &finish) {
                    break;
                }
                continue;
            }
        };
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
                let found = [table.as_deref().unwrap_or(&path), &[(*name).to_owned()]].concat();
                // A wrong value was there.
                if !is_guessed && find(root, &found).is_none() {
                    missing.push(found.join("."));
                }
                if table.is_none() {
                    break;
                }
                mending.stand_ins.push(found);
            }
            What::UnknownName { .. } | What::WrongType { .. } | What::Other(_) => {
                let Some((name, table)) = path.split_last() else { break };
                if mending.root.table_at(table).and_then(|table| table.remove(name)).is_none() {
                    break;
                }
                if !mending.is_guessed(&path) && find(root, &path).is_some() {
                    faults.push((path.clone(), fault.clone()));
                }
                mending.guess_sizes(&path.join("."));
                mending.stand_ins.push(path);
            }
        }
    }
    // What a section lacks is not known before it is one.
    missing.retain(|key| {
        !faults
            .iter()
            .any(|(path, _)| key.strip_prefix(&path.join(".")).is_some_and(|rest| rest.starts_with('.')))
    });
    let faults = faults.into_iter().map(|(path, fault)| {
        // The values that the key may have follow from a config that is right but for it.
        let fault = precise(&mending.root, &path, fault, &finish);
        report(root, &path, fault, keys)
    });
    // What was meant by a misspelt key is not known before it is corrected.
    complaints.retain(|complaint| !unknown.iter().any(|error| explains(error, complaint)));
    let complaints = complaints.into_iter().map(|complaint| complaint.at(|key| root.place_of(key)));
    let values: Vec<TrainerError> = faults.chain(complaints).collect();
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
    let mut all: Vec<TrainerError> = unknown.into_iter().chain(missing).chain(values).collect();
    match all.len() {
        0 => first::<T>(root, keys, finish),
        1 => all.remove(0),
        _ => TrainerError::Mistakes(all),
    }
}

/// The first mistake, whatever it is.
fn first<T: FromNode>(root: &Node, keys: &[String], finish: impl Fn(&mut T) -> Check) -> TrainerError {
    match T::from_node(root).map(|mut config| finish(&mut config)) {
        Err(fault) => report(root, &locate::<T>(root, &fault), fault, keys),
        Ok(Err(complaint)) => complaint.at(|key| root.place_of(key)),
        Ok(Ok(())) => unreachable!("a config without a mistake is not asked for its mistakes"),
    }
}

/// Whether the user has written a key, and not a preset.
fn is_the_users(root: &Node, key: &str) -> bool {
    let Some(node) = root.at(key) else { return false };
    let Some((table, name)) = key.rsplit_once('.') else { return true };
    let preset = root.at(table).and_then(|table| table.get("preset"));
    name == "preset" || preset.is_none_or(|preset| preset.place != node.place)
}

/// Values that may stand in for one like `found`, if there is any; none removes the key.
fn stand_ins(found: Option<&Node>) -> Vec<Option<toml::Value>> {
    let whole = [1, 2, 8, 64, 512, 4_096].map(toml::Value::from);
    let fractions = [0.5, 0.1, 0.0, 1e-3].map(toml::Value::from);
    let others = [toml::Value::from(true), false.into(), "x".into()];
    let fits = |value: &toml::Value| match found.map(|node| &node.value) {
        None => true,
        Some(Value::Scalar(toml::Value::Integer(_) | toml::Value::Float(_))) => {
            value.is_integer() || value.is_float()
        }
        Some(Value::Scalar(scalar)) => scalar.same_type(value),
        Some(Value::Table(_) | Value::Array(_)) => false,
    };
    let values = whole.into_iter().chain(fractions).chain(others).filter(fits);
    std::iter::once(None).chain(values.map(Some)).collect()
}

/// Whether a complaint depends on stand-ins.
enum Depends {
    No,
    /// With another stand-in, which the config has now, there is no such complaint.
    Wholly,
    /// The same key is wrong with any of them, but for another reason.
    InPart,
}

/// A config that serde and its checks are to be content with.
#[derive(Clone)]
struct Mending {
    root: Node,
    /// Tables whose `kind` or `preset` is a stand-in: of their other keys nothing is known.
    guessed: Vec<Vec<String>>,
    /// Keys that have a stand-in, or that were removed.
    stand_ins: Vec<Vec<String>>,
}

impl Mending {
    fn has_stand_in(&self, key: &str) -> bool {
        self.stand_ins.iter().any(|path| path.join(".") == key)
    }

    /// Sets a key, or removes it. Whether there is a table that can have it.
    fn set(&mut self, path: &[String], value: Option<Node>) -> bool {
        let Some((name, table)) = path.split_last() else { return false };
        let Some(entries) = self.root.table_at(table) else { return false };
        match value {
            Some(node) => entries.insert(name.clone(), node),
            None => entries.remove(name),
        };
        true
    }

    /// Gives a key a value of which `finish` does not complain. Whether there is one.
    fn correct<T: FromNode>(&mut self, key: &str, finish: impl Fn(&mut T) -> Check) -> bool {
        let path: Vec<String> = key.split('.').map(str::to_owned).collect();
        let place = self.root.place.clone();
        let found = find(&self.root, &path).cloned();
        for value in stand_ins(found.as_ref()) {
            if !self.set(&path, value.map(|value| Node::scalar(value, place.clone()))) {
                return false;
            }
            let is_wrong = |mut config: T| finish(&mut config).is_err_and(|complaint| complaint.key == key);
            if T::from_node(&self.root).is_ok_and(|config| !is_wrong(config)) {
                if !self.stand_ins.contains(&path) {
                    self.stand_ins.push(path);
                }
                return true;
            }
        }
        self.set(&path, found);
        false
    }

    /// Whether a complaint depends on the stand-ins: tries others in the place of each of them. Keeps one with which there
    /// is no such complaint.
    fn without<T: FromNode>(&mut self, complaint: &Complaint, finish: impl Fn(&mut T) -> Check) -> Depends {
        let place = self.root.place.clone();
        let mut depends = Depends::No;
        for path in self.stand_ins.clone() {
            for value in stand_ins(find(&self.root, &path)) {
                let mut other = self.clone();
                other.set(&path, value.map(|value| Node::scalar(value, place.clone())));
                match other.clone().stays(complaint, &finish) {
                    Some(Depends::Wholly) => {
                        *self = other;
                        return Depends::Wholly;
                    }
                    Some(Depends::InPart) => depends = Depends::InPart,
                    Some(Depends::No) | None => {}
                }
            }
        }
        depends
    }

    /// Whether there is this complaint, when what else is wrong is corrected; none if that cannot be known.
    fn stays<T: FromNode>(
        mut self,
        complaint: &Complaint,
        finish: impl Fn(&mut T) -> Check,
    ) -> Option<Depends> {
        for _ in 0..MOST_OTHERS {
            let mut config = T::from_node(&self.root).ok()?;
            match finish(&mut config) {
                Ok(()) => return Some(Depends::Wholly),
                Err(other) if other == *complaint => return Some(Depends::No),
                Err(other) if other.key == complaint.key => return Some(Depends::InPart),
                Err(other) if self.correct(&other.key, &finish) => {}
                Err(_) => return None,
            }
        }
        None
    }

    /// A wrong preset gives no sizes: those are not missing beside it.
    fn guess_sizes(&mut self, key: &str) {
        if let Some(table) = key.strip_suffix(".preset") {
            self.guessed.push(table.split('.').map(str::to_owned).collect());
        }
    }

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

/// Whether an error suggests a key, or a section that it is in.
fn suggests(error: &TrainerError, key: &str) -> bool {
    let TrainerError::UnknownKey { hint, .. } = error else { return false };
    let ends = key.match_indices('.').map(|(end, _)| end).chain([key.len()]);
    ends.into_iter().any(|end| hint.contains(&format!("did you mean `{}`?", &key[..end])))
}

/// Whether a complaint is of the key that an error suggests, or names it as what the value goes by.
fn explains(error: &TrainerError, complaint: &Complaint) -> bool {
    suggests(error, &complaint.key)
        || complaint.expected.split('`').skip(1).step_by(2).any(|quoted| suggests(error, quoted))
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
