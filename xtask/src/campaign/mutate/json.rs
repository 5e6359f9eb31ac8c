//! Damage to JSON, and to TOML by way of it, that leaves it JSON: keys, types, numbers, lists.

use serde_json::{Map, Number, Value, json};

use super::{ODD, extreme};
use crate::campaign::random::Random;

/// Marks what is put in place after the value became text, since no value can hold it.
const MARK: &str = "\u{1}";
/// Deeper than parsers go.
const DEEP: usize = 20_000;

/// Another text than `seed` gives.
pub fn json(random: &mut Random, seed: &Value) -> String {
    let plain = seed.to_string();
    for _ in 0..20 {
        let mut value = seed.clone();
        for _ in 0..1 + random.below(3) / 2 {
            mutate(random, &mut value, seed);
        }
        let text = placed(&value.to_string());
        if text != plain {
            return text;
        }
    }
    format!("[{plain}]")
}

/// Another text than `seed` gives. What TOML cannot hold is left out.
pub fn toml(random: &mut Random, seed: &toml::Table) -> String {
    let plain = seed.to_string();
    let as_json = serde_json::to_value(seed).unwrap_or_default();
    for _ in 0..50 {
        let mut value = as_json.clone();
        mutate(random, &mut value, &as_json);
        without_null(&mut value);
        let Ok(text) = toml::to_string(&value) else { continue };
        if text != plain && !text.contains("\\u0001") {
            return text;
        }
    }
    format!("unknown = 1\n{plain}")
}

fn without_null(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(without_null);
        }
        Value::Array(list) => {
            list.retain(|value| !value.is_null());
            list.iter_mut().for_each(without_null);
        }
        _ => {}
    }
}

/// Changes one thing, somewhere. Each branch of the tree is as likely as its neighbours, however much it holds.
fn mutate(random: &mut Random, value: &mut Value, whole: &Value) {
    let is_leaf = !matches!(value, Value::Object(map) if !map.is_empty())
        && !matches!(value, Value::Array(list) if !list.is_empty());
    if is_leaf || random.one_in(8) {
        *value = other(random, value, whole);
        return;
    }
    // At the children themselves, or further down.
    let here = random.one_in(4);
    match value {
        Value::Object(map) => {
            let key = map.keys().nth(random.below(map.len())).cloned().unwrap_or_default();
            match here {
                true => change_keys(random, map, &key, whole),
                false => mutate(random, &mut map[&key], whole),
            }
        }
        Value::Array(list) => {
            let at = random.below(list.len());
            match here {
                true => change_list(random, list, at),
                false => mutate(random, &mut list[at], whole),
            }
        }
        _ => {}
    }
}

fn change_keys(random: &mut Random, map: &mut Map<String, Value>, key: &str, whole: &Value) {
    let value = map.get(key).cloned().unwrap_or_default();
    match random.below(5) {
        0 => drop(map.shift_remove(key)),
        1 => {
            map.shift_remove(key);
            map.insert(format!("{key}_"), value);
        }
        // The same key twice.
        2 => drop(map.insert(format!("{key}{MARK}twice"), other(random, &value, whole))),
        3 => drop(map.insert(random.pick(&ODD).to_string(), value)),
        _ => {
            let swapped = map.keys().nth(random.below(map.len())).cloned().unwrap_or_default();
            let old = map.insert(swapped, value).unwrap_or_default();
            map.insert(key.to_owned(), old);
        }
    }
}

fn change_list(random: &mut Random, list: &mut Vec<Value>, at: usize) {
    match random.below(6) {
        0 => drop(list.remove(at)),
        1 | 2 => list.insert(at, list[at].clone()),
        3 => {
            let to = random.below(list.len());
            list.swap(at, to);
        }
        4 => list.clear(),
        _ => {
            let item = list[at].clone();
            list.extend(std::iter::repeat_n(item, *random.pick(&[3, 100, 3_000])));
        }
    }
}

/// Something else in a value's place, mostly of its type.
fn other(random: &mut Random, value: &Value, whole: &Value) -> Value {
    if random.one_in(5) {
        let deep = Value::String(format!("{MARK}{}", random.pick(&["list", "object"])));
        let types = [
            Value::Null,
            json!(true),
            json!(0),
            json!(-1),
            json!("x"),
            json!([]),
            json!({}),
            json!([[]]),
            json!({"a": {}}),
            deep,
        ];
        return random.pick(&types).clone();
    }
    match value {
        Value::Bool(is) => Value::Bool(!is),
        Value::Number(old) => number(random, old),
        Value::String(text) if text.starts_with(MARK) => value.clone(),
        Value::String(text) => match random.below(5) {
            0 => Value::String(text.repeat(2_000)),
            1 => Value::String(text.chars().skip(1).collect()),
            2 => another(random, whole).unwrap_or_default(),
            _ => Value::String(random.pick(&ODD).to_string()),
        },
        _ => another(random, whole).unwrap_or(Value::Null),
    }
}

fn number(random: &mut Random, old: &Number) -> Value {
    let near = |by: i64| old.as_i64().and_then(|old| old.checked_add(by)).map(Value::from);
    let near = match random.below(8) {
        0 => near(1),
        1 => near(-1),
        2 => old.as_i64().and_then(|old| old.checked_mul(2)).map(Value::from),
        _ => None,
    };
    near.unwrap_or_else(|| serde_json::from_str(extreme(random)).unwrap_or_default())
}

/// The value of another place in the same file, if it is a small one.
fn another(random: &mut Random, whole: &Value) -> Option<Value> {
    let mut value = whole;
    while !random.one_in(4) {
        value = match value {
            Value::Object(map) if !map.is_empty() => map.values().nth(random.below(map.len()))?,
            Value::Array(list) if !list.is_empty() => &list[random.below(list.len())],
            _ => break,
        };
    }
    (value.to_string().len() < 10_000).then(|| value.clone())
}

/// Puts in what the marks stand for.
fn placed(text: &str) -> String {
    let mark = "\\u0001";
    if !text.contains(mark) {
        return text.to_owned();
    }
    let deep = |open: &str, inner: &str, close: &str| open.repeat(DEEP) + inner + &close.repeat(DEEP);
    text.replace(&format!("{mark}twice\""), "\"")
        .replace(&format!("\"{mark}list\""), &deep("[", "", "]"))
        .replace(&format!("\"{mark}object\""), &deep("{\"a\":", "1", "}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seed() -> Value {
        json!({"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b"]},
            "post_processor": {"single": [{"Sequence": {"id": "A", "type_id": 0}}]}, "flag": true, "none": null})
    }

    #[test]
    fn json_comes_out_different_and_always_the_same_way() {
        let (mut valid, mut twice, mut deep) = (0, 0, 0);
        for index in 0..2_000 {
            let mutated = json(&mut Random::of(1, "json", index), &seed());
            assert_ne!(mutated, seed().to_string());
            assert_eq!(mutated, json(&mut Random::of(1, "json", index), &seed()));
            assert!(!mutated.contains("\\u0001"), "{mutated}");
            valid += usize::from(serde_json::from_str::<Value>(&mutated).is_ok());
            deep +=
                usize::from(mutated.contains("[[[[[[[[") || mutated.contains("{\"a\":{\"a\":{\"a\":{\"a\""));
            twice += usize::from(
                ["version", "vocab", "type_id"].iter().any(|key| mutated.matches(key).count() > 1),
            );
        }
        assert!(valid > 1_500 && deep > 10 && twice > 10, "{valid} {deep} {twice}");
    }

    #[test]
    fn toml_comes_out_different_and_readable() {
        let seed: toml::Table =
            "[train]\nsteps = 3\nlr = 0.1\n[corpus]\nfiles = [\"a\", \"b\"]".parse().unwrap();
        for index in 0..500 {
            let mutated = toml(&mut Random::of(1, "toml", index), &seed);
            assert_ne!(mutated, seed.to_string());
            assert!(mutated.parse::<toml::Table>().is_ok(), "{mutated}");
        }
    }
}
