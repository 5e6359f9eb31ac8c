//! Where the page describes each table.

use std::collections::BTreeMap;

use crate::RunKind;
use crate::shape::{Content, Key, KindKeys, Shape, Table};

/// Where a table is described.
#[derive(Clone, Debug)]
struct Place {
    depth: usize,
    /// Index of the kind of run.
    run: usize,
    /// As `[data.train]`.
    path: String,
    /// The value of the tag that has these keys.
    kind: Option<String>,
}

/// The places of all tables, and their order.
pub struct Places {
    of: BTreeMap<usize, Place>,
    order: Vec<usize>,
}

impl Places {
    /// Each table is described where it is least deep, and there first.
    pub fn of(tables: &[Table], kinds: &[RunKind]) -> Self {
        let mut visits = Vec::new();
        for (run, kind) in kinds.iter().enumerate() {
            for section in &kind.sections {
                let place = Place { depth: 0, run, path: section.names[0].clone(), kind: None };
                visit(tables, &section.shape, &place, false, &mut visits);
            }
        }
        let mut of: BTreeMap<usize, (usize, Place)> = BTreeMap::new();
        for (at, (table, place)) in visits.into_iter().enumerate() {
            let is_better = of.get(&table).is_none_or(|(_, known)| place.depth < known.depth);
            if is_better {
                of.insert(table, (at, place));
            }
        }
        let mut order: Vec<usize> = of.keys().copied().collect();
        order.sort_by_key(|table| of[table].0);
        Self { of: of.into_iter().map(|(table, (_, place))| (table, place)).collect(), order }
    }

    /// The tables described under a kind of run, in order.
    pub fn of_run(&self, run: usize) -> impl Iterator<Item = usize> {
        self.order.iter().copied().filter(move |table| self.of[table].run == run)
    }

    /// The heading under which a table's keys are.
    pub fn heading(&self, kinds: &[RunKind], table: usize) -> String {
        let Some(Place { run, path, kind, .. }) = self.of.get(&table) else { return String::new() };
        let kind = kind.as_ref().map(|kind| format!(", kind `{kind}`")).unwrap_or_default();
        format!("{}: `{path}`{kind}", kinds[*run].title)
    }
}

/// Notes every table within a shape. `place.path` is the key's, without brackets.
fn visit(tables: &[Table], shape: &Shape, place: &Place, is_list: bool, visits: &mut Vec<(usize, Place)>) {
    let below = |keys: &[Key], visits: &mut Vec<(usize, Place)>| {
        for key in keys {
            let path = format!("{}.{}", place.path, key.names[0]);
            let inner = Place { depth: place.depth + 1, path, kind: None, ..*place };
            visit(tables, &key.shape, &inner, false, visits);
        }
    };
    match shape {
        Shape::Table(table) => {
            let path = if is_list { format!("[[{}]]", place.path) } else { format!("[{}]", place.path) };
            visits.push((*table, Place { path, ..place.clone() }));
            match &tables[*table].content {
                Content::Keys(keys) => below(keys, visits),
                Content::Kinds { kinds, .. } => {
                    for kind in kinds {
                        match &kind.keys {
                            KindKeys::Own(keys) => below(keys, visits),
                            KindKeys::Of(inner) => {
                                let place = Place { kind: Some(kind.names[0].clone()), ..place.clone() };
                                visit(tables, &Shape::Table(*inner), &place, is_list, visits);
                            }
                        }
                    }
                }
            }
        }
        Shape::List(inner) => visit(tables, inner, place, true, visits),
        Shape::Fixed(inner, _) | Shape::Names(inner) => visit(tables, inner, place, false, visits),
        Shape::Either(shapes) => shapes.iter().for_each(|shape| visit(tables, shape, place, false, visits)),
        _ => {}
    }
}

/// The anchor of a heading, as GitHub and mdBook make it.
pub fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}
