use super::fields::Fields;
use crate::Result;
use serde_json::{Map, Value};

/// The names of the classes that a head predicts, in the order of its outputs, from `id2label`, `label2id` or
/// `num_labels`; transformers' default of two if all three are missing.
pub(super) fn read(fields: &Fields) -> Result<Vec<String>> {
    if let Some(map) = fields.value("id2label").filter(|map| map.as_object().is_none_or(|m| !m.is_empty())) {
        let expected = "an object of the ids from 0 on and a name each";
        let pair = |(id, label): (&String, &Value)| Some((id.parse().ok()?, label_text(label)?));
        let pairs = map.as_object().and_then(|map| map.iter().map(pair).collect());
        return pairs.and_then(in_order).ok_or_else(|| fields.refuse("id2label", map, expected));
    }
    if let Some(map) = fields.value("label2id").filter(|map| map.as_object().is_none_or(|m| !m.is_empty())) {
        let expected = "an object of names and an id each, from 0 on";
        let pair =
            |(label, id): (&String, &Value)| Some((usize::try_from(id.as_u64()?).ok()?, label.clone()));
        let pairs = map.as_object().and_then(|map| map.iter().map(pair).collect());
        return pairs.and_then(in_order).ok_or_else(|| fields.refuse("label2id", map, expected));
    }
    let key = if fields.value("num_labels").is_some() { "num_labels" } else { "_num_labels" };
    let n = fields.typed(key, "at most a million", |value| value.as_u64().filter(|n| *n <= 1_000_000))?;
    Ok((0..n.unwrap_or(2)).map(|id| format!("LABEL_{id}")).collect())
}

/// Old files have numbers as names.
fn label_text(label: &Value) -> Option<String> {
    match label {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The names of ids 0, 1, …; each id must occur exactly once.
fn in_order(mut pairs: Vec<(usize, String)>) -> Option<Vec<String>> {
    pairs.sort();
    let complete = pairs.iter().enumerate().all(|(place, (id, _))| place == *id);
    complete.then(|| pairs.into_iter().map(|(_, label)| label).collect())
}

/// `id2label` and `label2id`.
pub(super) fn write(labels: &[String], map: &mut Map<String, Value>) {
    write_both(labels, ["id2label", "label2id"], map);
}

/// The names of a model's languages in the order of their ids, from XLM's `lang2id`; none if it is missing.
pub(super) fn read_languages(fields: &Fields) -> Result<Vec<String>> {
    let pair = |(name, id): (&String, &Value)| Some((usize::try_from(id.as_u64()?).ok()?, name.clone()));
    let names = |map: &Value| in_order(map.as_object()?.iter().map(pair).collect::<Option<_>>()?);
    let expected = "an object of names and an id each, from 0 on";
    Ok(fields.typed("lang2id", expected, names)?.unwrap_or_default())
}

/// `id2lang` and `lang2id`, as in published XLMs.
pub(super) fn write_languages(languages: &[String], map: &mut Map<String, Value>) {
    write_both(languages, ["id2lang", "lang2id"], map);
}

/// Names by ids, and ids by names.
fn write_both(names: &[String], keys: [&str; 2], map: &mut Map<String, Value>) {
    let ids = names.iter().enumerate();
    let by_id = ids.clone().map(|(id, name)| (id.to_string(), name.clone().into())).collect();
    let by_name = ids.map(|(id, name)| (name.clone(), id.into())).collect();
    map.insert(keys[0].into(), Value::Object(by_id));
    map.insert(keys[1].into(), Value::Object(by_name));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(json: &str) -> Result<Vec<String>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        std::fs::write(&path, json).unwrap();
        read(&Fields::read(&path).unwrap())
    }

    #[test]
    fn every_dialect_names_the_classes() {
        let many: String = (0..12).map(|i| format!(r#""{i}": "c{i}","#)).collect();
        let many = format!("{{\"id2label\": {{{}}}}}", many.trim_end_matches(','));
        assert_eq!(labels(&many).unwrap(), (0..12).map(|i| format!("c{i}")).collect::<Vec<_>>());
        assert_eq!(labels(r#"{"label2id": {"b": 0, "a": 1}}"#).unwrap(), ["b", "a"]);
        assert_eq!(labels(r#"{"num_labels": 1, "id2label": null}"#).unwrap(), ["LABEL_0"]);
        assert_eq!(labels("{}").unwrap(), ["LABEL_0", "LABEL_1"]);
        assert_eq!(labels(r#"{"id2label": {"0": 4, "1": "x"}}"#).unwrap(), ["4", "x"]);
    }

    #[test]
    fn what_does_not_count_from_zero_is_refused() {
        for json in [
            r#"{"id2label": {"0": "a", "2": "b"}}"#,
            r#"{"id2label": {"x": "a"}}"#,
            r#"{"id2label": ["a"]}"#,
            r#"{"label2id": {"a": 0, "b": 0}}"#,
            r#"{"label2id": {"a": "0"}}"#,
            r#"{"num_labels": 99999999999}"#,
        ] {
            let message = labels(json).unwrap_err().to_string();
            assert!(message.contains("label") && message.contains("config.json"), "{message}");
        }
    }

    #[test]
    fn what_is_written_reads_the_same() {
        let names: Vec<String> = (0..11).map(|i| format!("x{i}")).collect();
        let mut map = Map::new();
        write(&names, &mut map);
        assert_eq!(labels(&Value::Object(map).to_string()).unwrap(), names);
    }
}
