use super::fields::{Fields, is_present};
use super::keys::GENERATION_KEYS;
use crate::generate::{DecodeSettings, EarlyStopping};
use crate::{ModelError, Result};
use serde_json::Value;
use std::path::Path;

/// The file with a model's settings of decoding.
pub(super) const GENERATION: &str = "generation_config.json";

/// Where to decode a folder's model otherwise than the folder says.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct DecodeOptions {
    /// What takes precedence over the folder's settings.
    pub settings: DecodeSettings,
    /// The keys of the folder's file that are left out.
    pub ignored: Vec<String>,
}

/// A folder's settings of decoding, after those of the options: what `generation_config.json` says, or `config.json` in a
/// folder without it, as in transformers 4; in transformers 5 such a `config.json` says nothing of decoding.
///
/// # Errors
/// [`ModelError::Io`] and [`ModelError::Json`] for a file that cannot be read, [`ModelError::Config`] for an invalid
/// value, for a setting that is not supported, and for an ignored key that the file does not have.
pub fn read_decode_settings(folder: &Path, options: &DecodeOptions) -> Result<DecodeSettings> {
    let (own, general) = (folder.join(GENERATION), folder.join("config.json"));
    let has_own = is_present(&own);
    let mut found = DecodeSettings::default();
    let path = if has_own { &own } else { &general };
    let Some(fields) = Fields::read_if_present(path)? else { return Ok(options.settings.clone().or(&found)) };
    let fields = fields.without(&options.ignored)?;
    read(&fields, &mut found)?;
    let samples = options.settings.sample.or(found.sample) == Some(true);
    if samples && options.settings.beams.or(found.beams).unwrap_or(1) > 1 {
        return Err(fields.error(
            "`do_sample` with `num_beams` above 1 is not supported, expected one of them: a beam, or tokens that are drawn",
        ));
    }
    // Of a `config.json` the rest is the model's.
    for (key, value) in fields.left_over().filter(|(key, _)| has_own || GENERATION_KEYS.has(key)) {
        if !samples && OF_SAMPLING.contains(&key) {
            continue;
        }
        GENERATION_KEYS.check(&fields, key, value)?;
    }
    // A file of decoding may leave it to the model what ends a text.
    if found.stop_ids.is_empty()
        && has_own
        && let Some(fields) = Fields::read_if_present(&general)?
    {
        found.stop_ids = ids_of(&fields, "eos_token_id")?;
    }
    Ok(options.settings.clone().or(&found))
}

/// Settings that act where tokens are drawn.
const OF_SAMPLING: [&str; 4] = ["typical_p", "epsilon_cutoff", "eta_cutoff", "top_h"];

fn read(fields: &Fields, found: &mut DecodeSettings) -> Result<()> {
    let real = |key| Ok::<_, ModelError>(fields.number(key)?.map(|number| number as f32));
    found.beams = fields.size("num_beams")?;
    found.length_penalty = fields.number("length_penalty")?;
    found.early_stopping =
        fields.typed("early_stopping", "true, false or \"never\"", |value| match value {
            Value::Bool(true) => Some(EarlyStopping::Full),
            Value::Bool(false) => Some(EarlyStopping::Likely),
            Value::String(never) if never == "never" => Some(EarlyStopping::Never),
            _ => None,
        })?;
    found.sample = fields.flag("do_sample")?;
    found.temperature = real("temperature")?;
    // transformers draws from 50 tokens where nothing else is said.
    found.top_k = fields.size("top_k")?.or((found.sample == Some(true)).then_some(50));
    found.top_p = real("top_p")?;
    found.min_p = real("min_p")?;
    found.max_new = fields.size("max_new_tokens")?;
    found.max_length = fields.size("max_length")?;
    found.min_new = fields.size("min_new_tokens")?;
    found.min_length = fields.size("min_length")?;
    found.repetition_penalty = real("repetition_penalty")?;
    found.input_repetition_penalty = real("encoder_repetition_penalty")?;
    found.no_repeat_ngram = fields.size("no_repeat_ngram_size")?;
    found.no_repeat_input_ngram = fields.size("encoder_no_repeat_ngram_size")?;
    found.renormalize = fields.flag("renormalize_logits")?;
    found.start_id = fields.typed("decoder_start_token_id", "an id", id)?;
    found.stop_ids = ids_of(fields, "eos_token_id")?;
    found.forced_first = fields.typed("forced_bos_token_id", "an id", id)?;
    found.forced_last = ids_of(fields, "forced_eos_token_id")?;
    let words = fields.typed("bad_words_ids", "a list of lists of ids", |value| {
        value.as_array()?.iter().map(ids).collect::<Option<Vec<_>>>()
    })?;
    found.forbidden_words = words.unwrap_or_default();
    found.forbidden_ids = ids_of(fields, "suppress_tokens")?;
    found.forbidden_first = ids_of(fields, "begin_suppress_tokens")?;
    Ok(())
}

fn ids_of(fields: &Fields, key: &str) -> Result<Vec<i32>> {
    Ok(fields.typed(key, "an id, or a list of ids", ids)?.unwrap_or_default())
}

fn id(value: &Value) -> Option<i32> {
    i32::try_from(value.as_u64()?).ok()
}

/// One id, or several.
fn ids(value: &Value) -> Option<Vec<i32>> {
    match value {
        Value::Array(all) => all.iter().map(id).collect(),
        one => Some(vec![id(one)?]),
    }
}

/// What is known of a folder's file of decoding: the names of keys that are not. See
/// [`unknown_settings`](super::unknown_settings).
pub(super) fn unknown(folder: &Path) -> Result<Vec<String>> {
    let Some(fields) = Fields::read_if_present(&folder.join(GENERATION))? else { return Ok(Vec::new()) };
    read(&fields, &mut DecodeSettings::default())?;
    Ok(fields
        .left_over()
        .filter(|(key, _)| !GENERATION_KEYS.has(key))
        .map(|(key, _)| key.to_owned())
        .collect())
}

/// The keys that are asked for.
#[cfg(test)]
pub(super) fn followed() -> std::collections::BTreeSet<String> {
    let fields = Fields::of(GENERATION.as_ref(), serde_json::Map::new());
    read(&fields, &mut DecodeSettings::default()).unwrap();
    fields.asked()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> (tempfile::TempDir, impl Fn(&str, &str)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        (folder, move |name: &str, text: &str| std::fs::write(path.join(name), text).unwrap())
    }

    #[test]
    fn ids_are_read_from_either_file() {
        let (folder, write) = folder();
        let read = || read_decode_settings(folder.path(), &DecodeOptions::default());
        assert_eq!(read().unwrap(), DecodeSettings::default());
        write("config.json", r#"{"eos_token_id": 3, "bad_words_ids": [[7], [8, 9]], "num_beams": 4}"#);
        let found = read().unwrap();
        assert_eq!((found.stop_ids, found.forbidden_words), (vec![3], vec![vec![7], vec![8, 9]]));
        assert_eq!(found.beams, Some(4));
        write("generation_config.json", r#"{"temperature": 0.3}"#);
        let found = read().unwrap();
        // What ends a text is in either file, all else in the one alone.
        assert_eq!((found.stop_ids, found.beams, found.temperature), (vec![3], None, Some(0.3)));
        write("generation_config.json", r#"{"eos_token_id": [4, 5]}"#);
        assert_eq!(read().unwrap().stop_ids, [4, 5]);
        write("generation_config.json", r#"{"eos_token_id": -1}"#);
        let error = read().unwrap_err().to_string();
        assert!(error.contains("`eos_token_id` is -1, expected an id, or a list of ids"), "{error}");
    }

    #[test]
    fn what_is_not_followed_is_refused_by_name() {
        let (folder, write) = folder();
        let read = |settings: DecodeSettings, ignored: &[&str]| {
            let ignored = ignored.iter().map(|key| (*key).to_owned()).collect();
            read_decode_settings(folder.path(), &DecodeOptions { settings, ignored })
        };
        let none = DecodeSettings::default;
        for (key, value, neutral) in [
            ("guidance_scale", "1.5", "1"),
            ("sequence_bias", "[[[3], 1.0]]", "null"),
            ("num_beam_groups", "2", "1"),
            ("diversity_penalty", "0.5", "0.0"),
            ("exponential_decay_length_penalty", "[3, 1.1]", "null"),
            ("num_return_sequences", "3", "1"),
            ("stop_strings", r#"["."]"#, "null"),
            ("penalty_alpha", "0.6", "null"),
        ] {
            write("generation_config.json", &format!(r#"{{"{key}": {value}}}"#));
            let error = read(none(), &[]).unwrap_err().to_string();
            assert!(error.contains(&format!("generation_config.json: `{key}` is ")), "{error}");
            read(none(), &[key]).unwrap();
            write("generation_config.json", &format!(r#"{{"{key}": {neutral}}}"#));
            read(none(), &[]).unwrap();
        }
        // Where nothing is drawn, what drawing is like does not matter.
        write("generation_config.json", r#"{"typical_p": 0.9}"#);
        read(none(), &[]).unwrap();
        let draws = DecodeSettings { sample: Some(true), ..none() };
        let error = read(draws.clone(), &[]).unwrap_err().to_string();
        assert!(error.contains("`typical_p` is 0.9"), "{error}");
        write("generation_config.json", r#"{"num_beams": 3}"#);
        let error = read(draws.clone(), &[]).unwrap_err().to_string();
        assert!(error.contains("`do_sample` with `num_beams`"), "{error}");
        read(DecodeSettings { beams: Some(1), ..draws }, &[]).unwrap();
        let error = read(none(), &["num_beam"]).unwrap_err().to_string();
        assert!(error.contains("there is no `num_beam` to ignore; did you mean \"num_beams\"?"), "{error}");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_not_absent() {
        let (folder, write) = folder();
        write("config.json", "{}");
        std::fs::create_dir(folder.path().join(GENERATION)).unwrap();
        let error = read_decode_settings(folder.path(), &DecodeOptions::default()).unwrap_err().to_string();
        assert!(error.contains(GENERATION), "{error}");
    }
}
