//! The ecosystem's files: `tokenizer.json`, `vocab.txt`, `vocab.json` with `merges.txt`, SentencePiece's
//! `.model`. Marian's are read in `marian`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use hashbrown::HashMap;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, MapAccess, SeqAccess, Visitor},
};
use serde_json::Value;

use crate::{
    AddedToken, Bpe, BpeConfig, Decoder, Error, Marian, MarianTokenizers, Model, Normalizer, Padding,
    PostProcessor, PreTokenizer, Result, Tokenizer, TokenizerConfig, Truncation, Unigram, Vocab, WordLevel,
    WordPiece,
    families::{Class, ModelConfig},
    json_path,
    sentencepiece::Spm,
};

const JSON: &str = "tokenizer.json";
pub(crate) const CONFIG: &str = "tokenizer_config.json";
pub(crate) const SPECIAL: &str = "special_tokens_map.json";
pub(crate) const ADDED: &str = "added_tokens.json";
/// The names that transformers' models give SentencePiece's files.
const SENTENCEPIECE: [&str; 4] = ["tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "spm.model"];

pub(crate) fn load(path: &Path) -> Result<Tokenizer> {
    let mut tokenizer = load_stages(path)?;
    if tokenizer.config.split_special_tokens == Some(true) {
        tokenizer.set_encode_special_tokens(true);
    }
    Ok(tokenizer)
}

fn load_stages(path: &Path) -> Result<Tokenizer> {
    if !path.is_dir() {
        return if path.extension().is_some_and(|e| e == "txt") {
            let config = path.with_file_name(CONFIG);
            load_vocab_txt(path, &config)
        } else if path.extension().is_some_and(|e| e == "model") {
            load_sentencepiece(path, &path.with_file_name(CONFIG))
        } else {
            let mut tokenizer = in_file(path, from_json)?;
            if path.file_name().is_some_and(|name| name == JSON) {
                let config = path.with_file_name(CONFIG);
                tokenizer.config = read_if_there(&config, TokenizerConfig::from_json)?.unwrap_or_default();
            }
            Ok(tokenizer)
        };
    }
    let [json, vocab_txt, vocab_json, merges, config] =
        [JSON, "vocab.txt", "vocab.json", "merges.txt", CONFIG].map(|f| path.join(f));
    if json.is_file() {
        let mut tokenizer = in_file(&json, from_json)?;
        tokenizer.config = read_if_there(&config, TokenizerConfig::from_json)?.unwrap_or_default();
        Ok(tokenizer)
    } else if vocab_txt.is_file() {
        load_vocab_txt(&vocab_txt, &config)
    } else if vocab_json.is_file() && merges.is_file() {
        load_bpe(&vocab_json, &merges, &config)
    } else if MarianTokenizers::are_in(path) {
        Ok(MarianTokenizers::load(path)?.source)
    } else if let Some(model) = SENTENCEPIECE.map(|f| path.join(f)).into_iter().find(|f| f.is_file()) {
        load_sentencepiece(&model, &config)
    } else {
        Err(Error::NotFound { path: path.to_owned() })
    }
}

pub(crate) fn save(tokenizer: &Tokenizer, path: &Path) -> Result<()> {
    if !path.is_dir() {
        return write(path.to_owned(), to_json(tokenizer));
    }
    let model = ModelConfig::read(path)?;
    write(path.join(JSON), to_json(tokenizer))?;
    write(path.join(SPECIAL), tokenizer.config.special_tokens_json(tokenizer))?;
    write(path.join(CONFIG), tokenizer.config.to_json(tokenizer, &model))
}

fn write(path: PathBuf, text: String) -> Result<()> {
    fs::write(&path, text).map_err(|source| Error::Io { action: "write", path, source })
}

fn read(path: &Path) -> Result<String> {
    cloze_files::read_text(path).map_err(|source| Error::Io { action: "read", path: path.to_owned(), source })
}

/// A file's bytes.
pub(crate) fn read_bytes(path: &Path) -> Result<Vec<u8>> {
    cloze_files::read(path).map_err(|source| Error::Io { action: "read", path: path.to_owned(), source })
}

/// Reads a file and parses it; errors name it.
pub(crate) fn in_file<T>(path: &Path, parse: impl FnOnce(&str) -> Result<T>) -> Result<T> {
    parse(&read(path)?).map_err(|error| error.in_file(path))
}

/// BERT's `vocab.txt`. Whether to lower-case is in `tokenizer_config.json`; without it, a vocabulary with
/// capital letters counts as cased.
fn load_vocab_txt(path: &Path, config: &Path) -> Result<Tokenizer> {
    let vocab = in_file(path, parse_vocab_txt)?;
    let declared = read_config(config)?;
    let lowercase = declared.as_ref().and_then(|c| c.do_lower_case).unwrap_or_else(|| {
        let cased = |token: &str| !token.starts_with('[') && token.contains(char::is_uppercase);
        !vocab.iter().any(|(_, token)| cased(token))
    });
    let tokenizer = Tokenizer::bert(vocab, lowercase).map_err(|error| error.in_file(path))?;
    match declared {
        Some(declared) => declared.set_bert(tokenizer).map_err(|error| error.in_file(config)),
        None => Ok(tokenizer),
    }
}

fn read_if_there<T>(path: &Path, parse: impl FnOnce(&str) -> Result<T>) -> Result<Option<T>> {
    path.is_file().then(|| in_file(path, parse)).transpose()
}

/// The `tokenizer_config.json` merged with its companion files, if any exist.
pub(crate) fn read_config(path: &Path) -> Result<Option<TokenizerConfig>> {
    fn json<T: DeserializeOwned>(what: &'static str) -> impl FnOnce(&str) -> Result<T> {
        move |text| serde_json::from_str(text).map_err(|error| Error::json(what, &error))
    }
    let config = read_if_there(path, TokenizerConfig::from_json)?;
    let [map, added] = [SPECIAL, ADDED].map(|name| path.with_file_name(name));
    let map = read_if_there(&map, json::<TokenizerConfig>(SPECIAL))?;
    let added = read_if_there(&added, json(ADDED))?;
    if config.is_none() && map.is_none() && added.is_none() {
        return Ok(None);
    }
    let mut config = config.unwrap_or_default();
    config.older_files(map.unwrap_or_default(), added.unwrap_or_default());
    Ok(Some(config))
}

/// The pieces by line. The last occurrence of a repeated piece counts, as in transformers; the other ids are
/// never produced, and their names say so.
fn parse_vocab_txt(text: &str) -> Result<Vocab> {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let last: HashMap<&str, usize> = lines.iter().enumerate().map(|(i, piece)| (*piece, i)).collect();
    let mut vocab = Vocab::default();
    for (i, piece) in lines.iter().enumerate() {
        let piece = match last[piece] == i {
            true => (*piece).to_owned(),
            // No word has a space in it.
            false => format!("{piece} (line {})", i + 1),
        };
        vocab.insert(piece, i as u32)?;
    }
    Ok(vocab)
}

fn load_sentencepiece(path: &Path, config: &Path) -> Result<Tokenizer> {
    let bytes = read_bytes(path)?;
    let declared = read_config(config)?;
    let model = ModelConfig::read(path.parent().unwrap_or(Path::new("")))?;
    let class = Class::named(declared.as_ref(), &model).map_err(|error| error.in_file(config))?;
    let spm = Spm::parse(&bytes).map_err(|error| error.in_file(path))?;
    if let Some(class) = class {
        return class.tokenizer(&spm, declared.unwrap_or_default()).map_err(|error| error.in_file(path));
    }
    let tokenizer = spm.tokenizer().map_err(|error| error.in_file(path))?;
    match declared {
        Some(declared) => declared.set_sentencepiece(tokenizer).map_err(|error| error.in_file(config)),
        None => Ok(tokenizer),
    }
}

/// GPT-2's and RoBERTa's files.
fn load_bpe(vocab: &Path, merges: &Path, config: &Path) -> Result<Tokenizer> {
    let vocab: Vocab =
        in_file(vocab, |text| serde_json::from_str(text).map_err(|e| Error::json("vocab.json", &e)))?;
    let tokenizer = in_file(merges, |text| {
        let pairs = parse_merges(text)?;
        Tokenizer::byte_level_bpe(Bpe::new(vocab, pairs, BpeConfig::default())?)
    })?;
    match read_config(config)? {
        Some(declared) => declared.set_byte_level(tokenizer).map_err(|error| error.in_file(config)),
        None => Ok(tokenizer),
    }
}

fn parse_merges(text: &str) -> Result<Vec<(&str, &str)>> {
    let mut pairs = Vec::new();
    for (i, line) in text.lines().enumerate() {
        if line.starts_with("#version") || (line.is_empty() && i > 0) {
            continue;
        }
        pairs.push(pair(line).ok_or_else(|| Error::Line {
            line: i + 1,
            message: format!("{line:?} is not two pieces with a space between them"),
        })?);
    }
    Ok(pairs)
}

fn pair(line: &str) -> Option<(&str, &str)> {
    line.split_once(' ').filter(|(a, b)| !a.is_empty() && !b.is_empty() && !b.contains(' '))
}

/// The raw `tokenizer.json`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenizerFile {
    version: Option<String>,
    truncation: Option<Truncation>,
    padding: Option<Padding>,
    #[serde(default)]
    added_tokens: Vec<AddedTokenEntry>,
    normalizer: Option<Value>,
    pre_tokenizer: Option<Value>,
    post_processor: Option<Value>,
    decoder: Option<Value>,
    model: ModelFile,
}

/// An added token with its id.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AddedTokenEntry {
    id: u32,
    content: String,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    #[serde(default)]
    normalized: bool,
    #[serde(default)]
    special: bool,
}

/// A model of any type; `type` decides which fields are required.
#[derive(Deserialize)]
struct ModelFile {
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    vocab: VocabField,
    merges: Option<Vec<MergeField>>,
    unk_token: Option<String>,
    continuing_subword_prefix: Option<String>,
    max_input_chars_per_word: Option<usize>,
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    fuse_unk: Option<bool>,
    ignore_merges: Option<bool>,
    /// Marian's, with log probabilities.
    pieces: Option<Vec<(String, f64)>>,
    byte_fallback: Option<bool>,
    dropout: Option<f32>,
    unk_id: Option<u32>,
}

/// A vocabulary with ids, or Unigram's list with log probabilities.
#[derive(Default)]
enum VocabField {
    #[default]
    Missing,
    Ids(Vocab),
    Scores(Vec<(String, f64)>),
}

impl<'de> Deserialize<'de> for VocabField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = VocabField;

            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("an object of pieces and ids, or a list of pairs of piece and score")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<VocabField, A::Error> {
                let map = serde::de::value::MapAccessDeserializer::new(map);
                Ok(VocabField::Ids(Vocab::deserialize(map)?))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<VocabField, A::Error> {
                let seq = serde::de::value::SeqAccessDeserializer::new(seq);
                Ok(VocabField::Scores(Vec::deserialize(seq)?))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// A merge: `"a b"` in older files, `["a", "b"]` in newer ones.
struct MergeField(String, String);

impl<'de> Deserialize<'de> for MergeField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = MergeField;

            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("two pieces, as \"a b\" or [\"a\", \"b\"]")
            }

            fn visit_str<E: serde::de::Error>(self, line: &str) -> Result<MergeField, E> {
                let (a, b) =
                    pair(line).ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(line), &self))?;
                Ok(MergeField(a.to_owned(), b.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<MergeField, A::Error> {
                let seq = serde::de::value::SeqAccessDeserializer::new(seq);
                let (a, b) = <(String, String)>::deserialize(seq)?;
                Ok(MergeField(a, b))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

pub(crate) fn from_json(json: &str) -> Result<Tokenizer> {
    let file: TokenizerFile = serde_json::from_str(json).map_err(|e| Error::json(JSON, &e))?;
    if let Some(version) = file.version.filter(|v| v != "1.0") {
        let message = format!("{version:?} is not known; expected \"1.0\"");
        return Err(Error::invalid("version", message));
    }
    let mut tokenizer = Tokenizer::new(model(file.model)?);
    if let Some(normalizer) = file.normalizer {
        tokenizer.normalizer = normalizer_from_value(normalizer, "normalizer")?;
    }
    tokenizer.pre_tokenizer = pre_tokenizer_from_value(file.pre_tokenizer)?;
    tokenizer.decoder = decoder_from_value(file.decoder)?;
    let processor: Option<PostProcessor> =
        component(file.post_processor, "post_processor", PostProcessor::TYPES, "processors")?;
    if let Some(processor) = processor {
        tokenizer = tokenizer.with_post_processor(processor)?;
    }
    tokenizer.add_with_ids(file.added_tokens.into_iter().map(|entry| {
        let AddedTokenEntry { id, content, single_word, lstrip, rstrip, normalized, special } = entry;
        let token = AddedToken { content, single_word, lstrip, rstrip, normalized, special };
        (Some(id), token)
    }))?;
    tokenizer.set_truncation(file.truncation)?;
    tokenizer.set_padding(file.padding)?;
    Ok(tokenizer)
}

fn model(file: ModelFile) -> Result<Model> {
    let kind = match &file.kind {
        Some(kind) => kind.as_str(),
        // Files of before 2020 leave it out.
        None if file.merges.is_some() => "BPE",
        None if matches!(file.vocab, VocabField::Scores(_)) => "Unigram",
        None => "WordPiece",
    };
    if !Model::TYPES.contains(&kind) {
        return Err(Error::Unsupported {
            at: "model".into(),
            found: kind.to_owned(),
            supported: Model::TYPES.to_vec(),
        });
    }
    let vocab = match (file.vocab, kind) {
        (VocabField::Scores(pieces), "Unigram") => {
            let byte_fallback = file.byte_fallback.unwrap_or(false);
            return Ok(Model::Unigram(Unigram::new(pieces, file.unk_id, byte_fallback)?));
        }
        (_, "Unigram") => {
            return Err(Error::invalid("model.vocab", "expected a list of pairs of piece and score"));
        }
        (VocabField::Ids(vocab), _) => vocab,
        _ => return Err(Error::invalid("model.vocab", "expected an object of pieces and ids")),
    };
    if kind == "Marian" {
        let pieces = file.pieces.ok_or_else(|| {
            Error::invalid("model.pieces", "a Marian model needs a list of pairs of piece and score")
        })?;
        let unk = file.unk_token.as_deref().unwrap_or("<unk>");
        let byte_fallback = file.byte_fallback.unwrap_or(false);
        return Ok(Model::Marian(Marian::new(pieces, vocab, unk, byte_fallback)?));
    }
    if kind == "WordLevel" {
        let unk = file.unk_token.ok_or_else(|| {
            Error::invalid("model.unk_token", "a WordLevel model needs the token of unknown words")
        })?;
        return Ok(Model::WordLevel(WordLevel::new(vocab, &unk)));
    }
    if kind == "WordPiece" {
        let unk = file.unk_token.as_deref().unwrap_or("[UNK]");
        let prefix = file.continuing_subword_prefix.as_deref().unwrap_or("##");
        let max = file.max_input_chars_per_word.unwrap_or(100);
        return Ok(Model::WordPiece(WordPiece::with(vocab, unk, prefix, max)?));
    }
    let merges = file.merges.ok_or_else(|| Error::invalid("model.merges", "a BPE model needs its merges"))?;
    let config = BpeConfig {
        dropout: file.dropout,
        byte_fallback: file.byte_fallback.unwrap_or(false),
        unk_token: file.unk_token,
        continuing_subword_prefix: file.continuing_subword_prefix.filter(|p| !p.is_empty()),
        end_of_word_suffix: file.end_of_word_suffix.filter(|s| !s.is_empty()),
        fuse_unk: file.fuse_unk.unwrap_or(false),
        ignore_merges: file.ignore_merges.unwrap_or(false),
    };
    let merges = merges.into_iter().map(|MergeField(a, b)| (a, b));
    Ok(Model::Bpe(Bpe::new(vocab, merges, config)?))
}

pub(crate) fn model_from_value(value: Value) -> Result<Model> {
    model(ModelFile::deserialize(value).map_err(|e| Error::invalid("model", e.to_string()))?)
}

pub(crate) fn normalizer_from_value(value: Value, at: &str) -> Result<Option<Normalizer>> {
    component(Some(value), at, Normalizer::TYPES, "normalizers")
}

pub(crate) fn pre_tokenizer_from_value(value: Option<Value>) -> Result<Option<PreTokenizer>> {
    component(value, "pre_tokenizer", PreTokenizer::TYPES, "pretokenizers")
}

pub(crate) fn decoder_from_value(value: Option<Value>) -> Result<Option<Decoder>> {
    component(value, "decoder", Decoder::TYPES, "decoders")
}

/// Reads a component after checking that it and everything inside it (in `list`, for a sequence) are
/// supported.
fn component<T: DeserializeOwned>(
    value: Option<Value>,
    at: &str,
    types: &[&'static str],
    list: &str,
) -> Result<Option<T>> {
    let Some(value) = value else {
        return Ok(None);
    };
    check_types(&value, at, types, list)?;
    T::deserialize(&value).map(Some).map_err(|error| json_path::blame::<T>(value, at, &error.to_string()))
}

fn check_types(value: &Value, at: &str, types: &[&'static str], list: &str) -> Result<()> {
    let Some(found) = value.get("type").and_then(Value::as_str) else {
        let message = format!("expected an object with a \"type\", one of {}", types.join(", "));
        return Err(Error::invalid(at, message));
    };
    if !types.contains(&found) {
        return Err(Error::Unsupported {
            at: at.to_owned(),
            found: found.to_owned(),
            supported: types.to_vec(),
        });
    }
    let parts = value.get(list).filter(|_| found == "Sequence").and_then(Value::as_array);
    for (i, part) in parts.into_iter().flatten().enumerate() {
        check_types(part, &format!("{at}.{list}[{i}]"), types, list)?;
    }
    Ok(())
}

pub(crate) fn to_json(tokenizer: &Tokenizer) -> String {
    #[derive(Serialize)]
    struct Out<'a> {
        version: &'static str,
        truncation: &'a Option<Truncation>,
        padding: &'a Option<Padding>,
        added_tokens: Vec<OutToken<'a>>,
        normalizer: &'a Option<Normalizer>,
        pre_tokenizer: &'a Option<PreTokenizer>,
        post_processor: &'a Option<PostProcessor>,
        decoder: &'a Option<Decoder>,
        model: OutModel<'a>,
    }
    #[derive(Serialize)]
    struct OutToken<'a> {
        id: u32,
        #[serde(flatten)]
        token: &'a AddedToken,
    }
    #[derive(Serialize)]
    #[serde(tag = "type")]
    enum OutModel<'a> {
        WordPiece {
            unk_token: &'a str,
            continuing_subword_prefix: &'a str,
            max_input_chars_per_word: usize,
            vocab: &'a Vocab,
        },
        #[serde(rename = "BPE")]
        Bpe {
            #[serde(flatten)]
            config: &'a BpeConfig,
            vocab: &'a Vocab,
            merges: Vec<(&'a str, &'a str)>,
        },
        Unigram {
            unk_id: Option<u32>,
            vocab: Vec<(&'a str, f64)>,
            byte_fallback: bool,
        },
        WordLevel {
            vocab: &'a Vocab,
            unk_token: &'a str,
        },
        Marian {
            unk_token: &'a str,
            byte_fallback: bool,
            pieces: Vec<(&'a str, f64)>,
            vocab: &'a Vocab,
        },
    }
    let out = Out {
        version: "1.0",
        truncation: &tokenizer.truncation,
        padding: &tokenizer.padding,
        added_tokens: tokenizer.added.iter().map(|(id, token)| OutToken { id, token }).collect(),
        normalizer: &tokenizer.normalizer,
        pre_tokenizer: &tokenizer.pre_tokenizer,
        post_processor: &tokenizer.post_processor,
        decoder: &tokenizer.decoder,
        model: match &tokenizer.model {
            Model::WordPiece(model) => OutModel::WordPiece {
                unk_token: model.unk_token(),
                continuing_subword_prefix: model.continuing_subword_prefix(),
                max_input_chars_per_word: model.max_input_chars_per_word(),
                vocab: model.vocab(),
            },
            Model::Bpe(model) => OutModel::Bpe {
                config: model.config(),
                vocab: model.vocab(),
                merges: model.merges().collect(),
            },
            Model::Unigram(model) => OutModel::Unigram {
                unk_id: model.unk_id(),
                vocab: model.scored().collect(),
                byte_fallback: model.byte_fallback(),
            },
            Model::WordLevel(model) => {
                OutModel::WordLevel { vocab: model.vocab(), unk_token: model.unk_token() }
            }
            Model::Marian(model) => OutModel::Marian {
                unk_token: model.vocab().token(model.unk_id()).unwrap_or_default(),
                byte_fallback: model.byte_fallback(),
                pieces: model.scored().collect(),
                vocab: model.vocab(),
            },
        },
    };
    serde_json::to_string_pretty(&out).expect("strings, numbers and maps with string keys")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(json: &str) -> String {
        from_json(json).unwrap_err().to_string()
    }

    fn with(component: &str) -> String {
        format!(r#"{{{component},"model":{{"type":"WordPiece","vocab":{{"[UNK]":0}}}}}}"#)
    }

    #[test]
    fn what_is_not_supported_is_named() {
        let json = with(
            r#""pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Whitespace"},{"type":"Klingon"}]}"#,
        );
        assert!(error(&json).starts_with("pre_tokenizer.pretokenizers[1]: \"Klingon\" is not supported"));
        let klingon = r#"{"model":{"type":"Klingon","vocab":[["a",0.5]]}}"#;
        assert!(error(klingon).starts_with("model: \"Klingon\" is not supported"));
        let unigram = r#"{"model":{"type":"Unigram","vocab":{"a":0}}}"#;
        assert!(error(unigram).starts_with("model.vocab: expected a list of pairs"));
        let word_level = r#"{"model":{"type":"WordLevel","vocab":[["a",0.5]]}}"#;
        assert!(error(word_level).starts_with("model.vocab: expected an object"));
        let json = with(r#""normalizer":{"type":"BertNormalizer","lowercse":true}"#);
        assert!(
            error(&json).starts_with("normalizer.lowercse: unknown field `lowercse`"),
            "{}",
            error(&json)
        );
        assert!(error(&with(r#""decoder":7"#)).starts_with("decoder: expected an object"));
        assert!(error(&with(r#""version":"2.0""#)).starts_with("version: \"2.0\""));
        assert!(error(&with(r#""surprise":1"#)).contains("unknown field `surprise`"));
        let dropout = r#"{"model":{"type":"BPE","vocab":{},"merges":[],"dropout":-0.1}}"#;
        assert!(error(dropout).starts_with("model.dropout: -0.1"));
    }

    #[test]
    fn errors_say_where_in_the_file() {
        let sequence = |name: &str, list: &str, parts: &str| {
            error(&with(&format!(r#""{name}":{{"type":"Sequence","{list}":[{parts}]}}"#)))
        };
        for (parts, expected) in [
            (
                r#"{"type":"NFC"},{"type":"Replace","pattern":{"Regex":"a("},"content":""}"#,
                r#"normalizer.normalizers[1].pattern: "a(" is not a regular expression"#,
            ),
            (
                r#"{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Strip","strip_left":7,"strip_right":true}]}"#,
                "normalizer.normalizers[0].normalizers[1].strip_left: invalid type: integer `7`",
            ),
            (
                r#"{"type":"Strip","strip_left":true}"#,
                "normalizer.normalizers[0]: missing field `strip_right`",
            ),
            (
                r#"{"type":"Precompiled","precompiled_charsmap":"%"}"#,
                "normalizer.normalizers[0].precompiled_charsmap: ",
            ),
        ] {
            let error = sequence("normalizer", "normalizers", parts);
            assert!(error.starts_with(expected), "{error}");
        }
        for (parts, expected) in [
            (r#"{"type":"FixedLength","length":0}"#, "pre_tokenizer.pretokenizers[0].length: it is 0"),
            (
                r#"{"type":"Whitespace"},{"type":"Metaspace","replacement":"ab"}"#,
                "pre_tokenizer.pretokenizers[1].replacement: invalid value: string \"ab\"",
            ),
            (
                r#"{"type":"Metaspace","replacement":"a","add_prefix_space":false}"#,
                "pre_tokenizer.pretokenizers[0].add_prefix_space: false does not go with",
            ),
            (
                r#"{"type":"Punctuation","behavior":"Melted"}"#,
                "pre_tokenizer.pretokenizers[0].behavior: unknown variant `Melted`",
            ),
        ] {
            let error = sequence("pre_tokenizer", "pretokenizers", parts);
            assert!(error.starts_with(expected), "{error}");
        }
        for (parts, expected) in [
            (
                r#"{"type":"BertProcessing","sep":["[SEP]","x"],"cls":["[CLS]",1]}"#,
                "post_processor.processors[0].sep[1]: invalid type: string \"x\"",
            ),
            (
                r#"{"type":"BertProcessing","sep":["[SEP]"],"cls":["[CLS]",1]}"#,
                "post_processor.processors[0].sep: invalid length 1",
            ),
            (
                r#"{"type":"TemplateProcessing","single":[{"Sequence":{"id":"C","type_id":0}}],"pair":[],"special_tokens":{}}"#,
                "post_processor.processors[0].single[0]: unknown variant `C`",
            ),
            (
                r#"{"type":"TemplateProcessing","single":[],"pair":[],"special_tokens":{"type":{"id":"type","ids":["x"],"tokens":[]}}}"#,
                "post_processor.processors[0].special_tokens.type.ids[0]: invalid type: string \"x\"",
            ),
            (
                r#"{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"C","type_id":0}}],"pair":[],"special_tokens":{}}"#,
                r#"post_processor.processors[0].single[0]: "C" is not in special_tokens"#,
            ),
        ] {
            let error = sequence("post_processor", "processors", parts);
            assert!(error.starts_with(expected), "{error}");
        }
        for (parts, expected) in [
            (
                r#"{"type":"Fuse"},{"type":"Strip","content":"ab","start":0,"stop":0}"#,
                "decoder.decoders[1].content: invalid value: string \"ab\"",
            ),
            (r#"{"type":"WordPiece","prefix":"a"}"#, "decoder.decoders[0]: missing field `cleanup`"),
            (
                r#"{"type":"BPEDecoder","suffix":"a","prefix":"b"}"#,
                "decoder.decoders[0].prefix: unknown field `prefix`",
            ),
        ] {
            let error = sequence("decoder", "decoders", parts);
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn bad_json_has_a_position() {
        assert_eq!(
            error("{\n  \"version\": x}"),
            "not a valid tokenizer.json, line 2, column 14: expected value"
        );
    }

    #[test]
    fn old_and_new_merges() {
        for merges in [r#"["a b"]"#, r#"[["a","b"]]"#] {
            let json =
                format!(r#"{{"model":{{"type":"BPE","vocab":{{"a":0,"b":1,"ab":2}},"merges":{merges}}}}}"#);
            let tokenizer = from_json(&json).unwrap();
            assert_eq!(tokenizer.encode("ab", false).unwrap().ids, [2]);
            assert_eq!(from_json(&to_json(&tokenizer)).unwrap().encode("aab", false).unwrap().ids, [0, 2]);
        }
    }

    #[test]
    fn vocabulary_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name| folder.path().join(name);
        assert!(load(folder.path()).unwrap_err().to_string().starts_with("no tokenizer in "));
        fs::write(path("merges.txt"), "#version: 0.2\na b\nab\n").unwrap();
        fs::write(path("vocab.json"), r#"{"a":0,"b":1,"ab":2}"#).unwrap();
        let text = |error: Error| format!("{error}: {}", std::error::Error::source(&error).unwrap());
        assert!(
            text(load(folder.path()).unwrap_err())
                .ends_with("merges.txt: line 3: \"ab\" is not two pieces with a space between them")
        );
        // As transformers has it: the last line of a piece, blank ones among them.
        fs::write(path("vocab.txt"), "[UNK]\nhello\n\nHello\nhello\n\n").unwrap();
        let twice = load(folder.path()).unwrap();
        assert_eq!(twice.encode("hello Hello", false).unwrap().ids, [4, 3]);
        assert_eq!((twice.vocab_size(), twice.id_to_token(1)), (6, Some("hello (line 2)")));
        fs::write(path("vocab.txt"), "[UNK]\nhello\nHello\n").unwrap();
        assert_eq!(load(folder.path()).unwrap().encode("Hello", false).unwrap().ids, [2]);
        fs::write(path("tokenizer_config.json"), r#"{"do_lower_case":true,"other":1}"#).unwrap();
        let lower = load(&path("vocab.txt")).unwrap();
        assert_eq!(lower.encode("Hello", false).unwrap().ids, [1]);
        lower.save(folder.path()).unwrap();
        assert_eq!(load(folder.path()).unwrap().to_json(), lower.to_json());
    }

    #[test]
    fn older_files_name_added_tokens() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name| folder.path().join(name);
        fs::write(path("vocab.txt"), "[PAD]\n[UNK]\n[CLS]\n[SEP]\nhello\nworld\n<cls>\n").unwrap();
        fs::write(path(ADDED), r#"{"<extra>":7,"<new word>":8}"#).unwrap();
        let map =
            r#"{"cls_token":{"content":"<cls>","lstrip":true},"additional_special_tokens":["<extra>"]}"#;
        fs::write(path(SPECIAL), map).unwrap();
        let tokenizer = load(folder.path()).unwrap();
        assert_eq!(tokenizer.encode("hello <extra> <new word>", true).unwrap().ids, [6, 4, 7, 8, 3]);
        assert_eq!(tokenizer.config().cls_token.as_ref().unwrap().content, "<cls>");
        assert!(tokenizer.is_special(7) && !tokenizer.is_special(8));
        fs::write(path(CONFIG), r#"{"added_tokens_decoder":{"7":{"content":"<other>","special":true}}}"#)
            .unwrap();
        let newer = load(folder.path()).unwrap();
        assert_eq!((newer.token_to_id("<other>"), newer.token_to_id("<extra>")), (Some(7), None));
        fs::write(path(ADDED), "{\"a\":\n-1}").unwrap();
        let error = load(folder.path()).unwrap_err();
        assert!(error.to_string().ends_with(ADDED), "{error}");
        assert!(std::error::Error::source(&error).unwrap().to_string().contains("line 2"));
    }

    #[test]
    fn a_sentencepiece_folder_has_a_config() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name| folder.path().join(name);
        fs::write(path("tokenizer.model"), include_bytes!("../tests/data/sentencepiece/bpe-bytes.model"))
            .unwrap();
        let plain = load(folder.path()).unwrap();
        let ids = plain.encode("a ship", true).unwrap().ids;
        let (bos, next) = (plain.token_to_id("<s>").unwrap(), plain.vocab_size() as u32);
        let config = r#"{"bos_token":"<s>","add_bos_token":true,"model_max_length":99}"#;
        fs::write(path(CONFIG), config).unwrap();
        fs::write(path(ADDED), format!(r#"{{"<more>":{next}}}"#)).unwrap();
        for at in [folder.path().to_owned(), path("tokenizer.model")] {
            let tokenizer = load(&at).unwrap();
            assert_eq!(tokenizer.encode("a ship", true).unwrap().ids, [&[bos], ids.as_slice()].concat());
            assert_eq!(tokenizer.encode("<more>", false).unwrap().ids, [next]);
            assert_eq!(tokenizer.config().model_max_length, Some(99));
        }
        // The model's own ids stay what they are.
        fs::write(path(ADDED), r#"{"<s>":0}"#).unwrap();
        assert!(load(folder.path()).unwrap_err().to_string().ends_with(CONFIG));
    }
}
