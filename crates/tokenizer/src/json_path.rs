//! Locates an error in a JSON value, since serde loses the location when it reads an enum by its
//! `type`.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::Error;

/// A field that nothing has, and a value that nothing accepts.
const NO_FIELD: &str = "\u{10ffff}";
const NO_VALUE: f64 = -8.593_75e-7;

/// The error of reading `value`, found `at` a path, as a `T`, with the path of the culprit.
///
/// Entries are read in order, and the first bad one ends reading. So an error belongs to an entry if it
/// stays the same when the entries after it are replaced by an invalid one; the smallest number of entries
/// that preserves the error ends with the culprit.
pub(crate) fn blame<T: DeserializeOwned>(mut value: Value, at: &str, message: &str) -> Error {
    let same = |value: &Value| T::deserialize(value).is_err_and(|error| error.to_string() == message);
    let mut path = at.to_owned();
    let mut last = String::new();
    let mut pointer = String::new();
    while let Some((key, is_index)) = culprit(&mut value, &pointer, &same) {
        path += &if is_index { format!("[{key}]") } else { format!(".{key}") };
        pointer += &format!("/{}", key.replace('~', "~0").replace('/', "~1"));
        last = key;
    }
    // Errors of this crate begin with the field.
    let whole = value.pointer(&pointer).and_then(Value::as_object);
    match message.split_once(": ") {
        Some((field, rest)) if field == last => Error::invalid(path, rest),
        Some((field, rest)) if whole.is_some_and(|fields| fields.contains_key(field)) => {
            Error::invalid(format!("{path}.{field}"), rest)
        }
        _ => Error::invalid(path, message),
    }
}

/// The bad entry of the list or object at `pointer`, and whether that is a list; `None` if the whole
/// value is at fault.
fn culprit(root: &mut Value, pointer: &str, same: &impl Fn(&Value) -> bool) -> Option<(String, bool)> {
    let whole = root.pointer_mut(pointer)?.take();
    let entries = match &whole {
        Value::Array(list) => list.len(),
        Value::Object(fields) => fields.len(),
        _ => 0,
    };
    let mut stays = |count: usize| {
        if let Some(place) = root.pointer_mut(pointer) {
            *place = first(&whole, count);
        }
        same(root)
    };
    let found = if entries > 0 && stays(entries) {
        let (mut too_few, mut enough) = (0, entries);
        while enough - too_few > 1 {
            let middle = too_few.midpoint(enough);
            *(if stays(middle) { &mut enough } else { &mut too_few }) = middle;
        }
        match &whole {
            Value::Object(fields) => fields.keys().nth(too_few).map(|key| (key.clone(), false)),
            _ => Some((too_few.to_string(), true)),
        }
    } else {
        None
    };
    if let Some(place) = root.pointer_mut(pointer) {
        *place = whole;
    }
    found
}

/// The first `count` entries of a list or object, the `type` of a component in any case, and a wrong one.
fn first(whole: &Value, count: usize) -> Value {
    match whole {
        Value::Array(list) => list[..count].iter().cloned().chain([json!(NO_VALUE)]).collect(),
        Value::Object(fields) => {
            let numbered = fields.iter().enumerate();
            let kept = numbered.filter(|(i, (key, value))| *i < count || *key == "type" && value.is_string());
            let mut kept: Map<_, _> = kept.map(|(_, (key, value))| (key.clone(), value.clone())).collect();
            kept.insert(NO_FIELD.to_owned(), json!(NO_VALUE));
            Value::Object(kept)
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        #[serde(rename = "a/b~c")]
        _names: Vec<String>,
        #[serde(rename = "numbers")]
        _numbers: Option<(u32, u32)>,
    }

    fn error(value: Value) -> String {
        let message = Outer::deserialize(&value).err().unwrap().to_string();
        blame::<Outer>(value, "top", &message).to_string()
    }

    #[test]
    fn the_first_wrong_entry() {
        for at in 0..9 {
            let mut names: Vec<Value> = (0..9).map(|i| json!(format!("{i}"))).collect();
            names[at] = json!(7);
            names[8] = json!(7);
            let expected = format!("top.a/b~c[{at}]: invalid type: integer `7`, expected a string");
            assert_eq!(error(json!({"numbers": null, "a/b~c": names})), expected);
        }
        assert!(error(json!({"a/b~c": [], "numbers": [1]})).starts_with("top.numbers: invalid length 1"));
        assert!(error(json!({"numbers": [1, 2]})).starts_with("top: missing field `a/b~c`"));
        assert!(error(json!({"a/b~c": [], "d": 1, "e": 2})).starts_with("top.d: unknown field `d`"));
    }
}
