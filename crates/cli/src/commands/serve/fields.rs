//! The fields of a body, taken one by one; what is left is not supported.

use serde_json::{Map, Value};

use super::refusal::{Refusal, Why};

/// The largest whole number that every client of JSON keeps.
pub const MAX_WHOLE: usize = (1 << 53) - 1;

/// The result of reading a field.
pub type Read<T> = Result<T, Refusal>;

/// The fields of a JSON object.
#[derive(Debug)]
pub struct Fields {
    fields: Map<String, Value>,
    /// What comes before a name in messages, such as `parameters.`.
    prefix: &'static str,
}

impl Fields {
    /// Parses a body.
    pub fn parse(body: &[u8]) -> Read<Self> {
        let malformed = |error: serde_json::Error| {
            Refusal::new(Why::Malformed, format!("the body is not JSON: {error}; expected an object"))
        };
        match serde_json::from_slice(body).map_err(malformed)? {
            Value::Object(fields) => Ok(Self { fields, prefix: "" }),
            other => {
                let message = format!("the body is {}, expected an object", kind(&other));
                Err(Refusal::new(Why::Invalid, message))
            }
        }
    }

    /// The fields of the object `name`; none if it is missing.
    pub fn object(&mut self, name: &'static str, prefix: &'static str) -> Read<Self> {
        match self.take(name) {
            None => Ok(Self { fields: Map::new(), prefix }),
            Some(Value::Object(fields)) => Ok(Self { fields, prefix }),
            Some(other) => Err(self.wrong(name, "an object", &other)),
        }
    }

    fn wrong(&self, name: &str, expected: &str, found: &Value) -> Refusal {
        wrong(&format!("{}{name}", self.prefix), expected, found)
    }

    /// A value, which stays.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.fields.get(name)
    }

    /// Takes a value; null counts as missing.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.fields.shift_remove(name).filter(|value| !value.is_null())
    }

    /// Takes a value that has to be there.
    pub fn required(&mut self, name: &str) -> Read<Value> {
        let missing = || Refusal::field(format!("{}{name}", self.prefix), "missing");
        self.fields.shift_remove(name).filter(|value| !value.is_null()).ok_or_else(missing)
    }

    pub fn text(&mut self, name: &str) -> Read<Option<String>> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(name, "a text", &other)),
        }
    }

    pub fn flag(&mut self, name: &str) -> Read<Option<bool>> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(other) => Err(self.wrong(name, "true or false", &other)),
        }
    }

    /// A number from `least` to `most`.
    pub fn count(&mut self, name: &str, least: usize, most: usize) -> Read<Option<usize>> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let count = whole(&value).and_then(|count| usize::try_from(count).ok());
        match count.filter(|count| (least..=most).contains(count)) {
            Some(count) => Ok(Some(count)),
            None => Err(self.wrong(name, &format!("a whole number from {least} to {most}"), &value)),
        }
    }

    /// Any finite number.
    pub fn number(&mut self, name: &str) -> Read<Option<f64>> {
        let Some(value) = self.take(name) else { return Ok(None) };
        match value.as_f64().filter(|number| number.is_finite()) {
            Some(number) => Ok(Some(number)),
            None => Err(self.wrong(name, "a number", &value)),
        }
    }

    /// Takes a field that may only have a value that changes nothing.
    pub fn only(&mut self, name: &str, allowed: &[Value]) -> Read<()> {
        match self.take(name) {
            Some(found) if !allowed.contains(&found) => {
                Err(Refusal::field(format!("{}{name}", self.prefix), format!("{found} is not supported")))
            }
            _ => Ok(()),
        }
    }

    /// Refuses what is left.
    pub fn end(self) -> Read<()> {
        match self.fields.keys().next() {
            None => Ok(()),
            Some(name) => {
                Err(Refusal::field(format!("{}{}", self.prefix, name.escape_debug()), "not supported"))
            }
        }
    }
}

/// A whole number, which may be written as `7.0`.
fn whole(value: &Value) -> Option<u64> {
    let float = || {
        let float = value.as_f64()?;
        (float.fract() == 0.0 && (0.0..9e15).contains(&float)).then_some(float as u64)
    };
    value.as_u64().or_else(float)
}

/// A value of another kind.
pub fn wrong(field: &str, expected: &str, found: &Value) -> Refusal {
    let found = match found {
        Value::Number(number) => number.to_string(),
        other => kind(other).to_owned(),
    };
    Refusal::field(field, format!("{found}, expected {expected}"))
}

/// What a value is.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(true) => "true",
        Value::Bool(false) => "false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// A text, or the ids of one.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    Text(String),
    Ids(Vec<u32>),
}

impl Input {
    /// A text or a list of ids.
    pub fn of(field: &str, value: Value) -> Read<Self> {
        match value {
            Value::String(text) => Ok(Self::Text(text)),
            Value::Array(all) if all.first().is_some_and(Value::is_number) => ids(field, all).map(Self::Ids),
            Value::Array(all) if all.is_empty() => {
                Err(Refusal { why: Why::Empty, ..Refusal::field(field, "an empty list") })
            }
            other => Err(wrong(field, "a text or a list of ids", &other)),
        }
    }

    /// A text, a list of ids, or a list of either.
    pub fn all(field: &str, value: Value) -> Read<Vec<Self>> {
        match value {
            Value::Array(all) if !all.first().is_none_or(Value::is_number) => {
                let named = all.into_iter().enumerate().map(|(i, one)| (format!("{field}[{i}]"), one));
                named.map(|(field, one)| Self::of(&field, one)).collect()
            }
            one => Ok(vec![Self::of(field, one)?]),
        }
    }
}

/// A list of ids.
pub fn ids(field: &str, all: Vec<Value>) -> Read<Vec<u32>> {
    let id = |(i, value): (usize, Value)| match whole(&value).and_then(|id| u32::try_from(id).ok()) {
        Some(id) => Ok(id),
        None => Err(wrong(&format!("{field}[{i}]"), "an id", &value)),
    };
    all.into_iter().enumerate().map(id).collect()
}

/// One text, or a list of texts, of which there is one at least.
pub fn texts(field: &str, value: Value) -> Read<(Vec<String>, bool)> {
    match value {
        Value::String(text) => Ok((vec![text], false)),
        Value::Array(all) if all.is_empty() => {
            Err(Refusal { why: Why::Empty, ..Refusal::field(field, "an empty list") })
        }
        Value::Array(all) => {
            let text = |(i, value)| match value {
                Value::String(text) => Ok(text),
                other => Err(wrong(&format!("{field}[{i}]"), "a text", &other)),
            };
            Ok((all.into_iter().enumerate().map(text).collect::<Read<_>>()?, true))
        }
        other => Err(wrong(field, "a text or a list of texts", &other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn inputs_have_four_forms() {
        let text = |text: &str| Input::Text(text.into());
        let of = |value| Input::all("inputs", value);
        assert_eq!(of(json!("a")).unwrap(), [text("a")]);
        assert_eq!(of(json!([1.0, 2])).unwrap(), [Input::Ids(vec![1, 2])]);
        assert_eq!(of(json!(["a", [3]])).unwrap(), [text("a"), Input::Ids(vec![3])]);
        for (value, message) in [
            (json!([]), "inputs: an empty list"),
            (json!(["a", {}]), "inputs[1]: an object, expected a text or a list of ids"),
            (json!([[1, -1]]), "inputs[0][1]: -1, expected an id"),
            (json!([1, "a"]), "inputs[1]: a text, expected an id"),
            (json!([1, 2.5]), "inputs[1]: 2.5, expected an id"),
            (json!(7), "inputs: 7, expected a text or a list of ids"),
        ] {
            assert_eq!(of(value).unwrap_err().message, message);
        }
    }

    #[test]
    fn what_is_left_is_refused_by_name() {
        let mut fields = Fields::parse(br#"{"a": 1, "b": null, "c": "x"}"#).unwrap();
        assert_eq!(fields.count("a", 0, 9).unwrap(), Some(1));
        assert_eq!(fields.text("b").unwrap(), None);
        assert_eq!(fields.end().unwrap_err().message, "c: not supported");
        for body in [&b"[1]"[..], b"{", b"\xff", "[".repeat(100_000).as_bytes()] {
            assert!(Fields::parse(body).is_err());
        }
        let mut fields = Fields::parse(br#"{"n": 3, "f": 1}"#).unwrap();
        assert_eq!(fields.count("n", 5, 9).unwrap_err().message, "n: 3, expected a whole number from 5 to 9");
        assert_eq!(fields.flag("f").unwrap_err().message, "f: 1, expected true or false");
    }
}
