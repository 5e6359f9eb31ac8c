//! SentencePiece's `.model` files.
//!
//! They hold pieces with scores and normalisation rules, as a protocol buffer
//! (`sentencepiece_model.proto`). The resulting tokenizer is that of transformers' converters:
//! `SpmConverter` for Unigram and for BPE of characters, `LlamaConverter` for BPE with byte fallback.

use hashbrown::HashMap;
use serde_json::{Value, json};

use crate::{
    AddedToken, Error, Marian, Metaspace, Model, Normalizer, PreTokenizer, Precompiled, PrependScheme,
    Result, SentencePiece, Tokenizer, Unigram, Vocab, files,
    protobuf::{Field, Message},
};

/// SentencePiece's symbol for a space.
const SPACE: &str = "▁";

/// The relevant parts of a `.model` file.
pub(crate) struct Spm {
    pieces: Vec<SpmPiece>,
    model_type: i64,
    unk_id: i64,
    unk_piece: String,
    byte_fallback: bool,
    whitespace_as_suffix: bool,
    charsmap: Vec<u8>,
    add_dummy_prefix: bool,
    remove_extra_whitespaces: bool,
    escape_whitespaces: bool,
}

struct SpmPiece {
    text: String,
    score: f32,
    kind: i64,
}

const UNIGRAM: i64 = 1;
const BPE: i64 = 2;
const CONTROL: i64 = 3;
const USER_DEFINED: i64 = 4;
const NORMAL: i64 = 1;

/// How the ids of a class of tokenizers differ from those of its SentencePiece file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Layout {
    /// Pieces with scores to add before.
    pub before: Vec<(String, f64)>,
    /// Number of the file's first pieces to skip.
    pub shift: usize,
    /// Pieces with scores to add after.
    pub after: Vec<(String, f64)>,
    /// The id of the piece for unknown characters, if it is not the file's.
    pub unk: Option<u32>,
    /// Whether pieces of a digit and a comma, such as `2000,`, are avoided.
    pub cuts_number_commas: bool,
}

/// Lowers the score of pieces that are avoided.
const AVOIDED: f64 = 100.0;

impl Spm {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self> {
        let mut spm = Self {
            pieces: Vec::new(),
            model_type: UNIGRAM,
            unk_id: 0,
            unk_piece: "<unk>".into(),
            byte_fallback: false,
            whitespace_as_suffix: false,
            charsmap: Vec::new(),
            add_dummy_prefix: true,
            remove_extra_whitespaces: true,
            escape_whitespaces: true,
        };
        each(Message::new(bytes), |field| match field.number {
            1 => spm.piece(field.message()?),
            2 => spm.trainer_spec(field.message()?),
            3 => spm.normalizer_spec(field.message()?),
            5 => each(field.message()?, |field| match field.number {
                2 if !field.bytes()?.is_empty() => {
                    Err(Error::invalid("denormalizer_spec", "rules for decoding are not supported"))
                }
                _ => Ok(()),
            }),
            _ => Ok(()),
        })?;
        if spm.pieces.is_empty() {
            return Err(Error::invalid("pieces", "there are none; this is no SentencePiece model"));
        }
        Ok(spm)
    }

    fn piece(&mut self, message: Message) -> Result<()> {
        let mut piece = SpmPiece { text: String::new(), score: 0.0, kind: 1 };
        each(message, |field| {
            match field.number {
                1 => piece.text = field.string()?.to_owned(),
                2 => piece.score = field.float()?,
                3 => piece.kind = field.int()?,
                _ => {}
            }
            Ok(())
        })?;
        self.pieces.push(piece);
        Ok(())
    }

    fn trainer_spec(&mut self, message: Message) -> Result<()> {
        each(message, |field| {
            match field.number {
                3 => self.model_type = field.int()?,
                24 => self.whitespace_as_suffix = field.bool()?,
                35 => self.byte_fallback = field.bool()?,
                40 => self.unk_id = field.int()?,
                45 => self.unk_piece = field.string()?.to_owned(),
                _ => {}
            }
            Ok(())
        })
    }

    fn normalizer_spec(&mut self, message: Message) -> Result<()> {
        each(message, |field| {
            match field.number {
                2 => self.charsmap = field.bytes()?.to_vec(),
                3 => self.add_dummy_prefix = field.bool()?,
                4 => self.remove_extra_whitespaces = field.bool()?,
                5 => self.escape_whitespaces = field.bool()?,
                _ => {}
            }
            Ok(())
        })
    }

    fn check(&self) -> Result<()> {
        let error = |at, message: &str| Err(Error::invalid(at, message));
        match self.model_type {
            UNIGRAM | BPE => {}
            3 | 4 => {
                return error(
                    "trainer_spec.model_type",
                    "WORD and CHAR are not supported, only UNIGRAM and BPE",
                );
            }
            other => {
                let message = format!("{other} is not known; expected 1 (UNIGRAM) or 2 (BPE)");
                return error("trainer_spec.model_type", &message);
            }
        }
        if self.whitespace_as_suffix {
            return error("trainer_spec.treat_whitespace_as_suffix", "true is not supported, only false");
        }
        if !self.escape_whitespaces {
            return error("normalizer_spec.escape_whitespaces", "false is not supported, only true");
        }
        Ok(())
    }

    /// Whether the whole text is one word, as in BPE with byte fallback.
    fn whole_text(&self) -> bool {
        self.model_type == BPE && self.byte_fallback
    }

    fn model(&self) -> Result<Model> {
        if self.model_type == UNIGRAM {
            let unk = self.unk_id()?;
            let pieces = self.pieces.iter().map(|p| (p.text.as_str(), f64::from(p.score)));
            return Ok(Model::Unigram(Unigram::new(pieces, Some(unk), self.byte_fallback)?));
        }
        let vocab: serde_json::Map<String, Value> =
            self.pieces.iter().zip(0u32..).map(|(p, id)| (p.text.clone(), id.into())).collect();
        files::model_from_value(json!({
            "type": "BPE",
            "unk_token": self.unk_piece,
            "fuse_unk": true,
            "byte_fallback": self.byte_fallback,
            "vocab": vocab,
            "merges": self.merges(),
        }))
    }

    /// A tokenizer of just the pieces, with their scores and the ids of `layout`. There is no byte fallback,
    /// as in transformers' converters.
    pub(crate) fn with_layout(&self, layout: &Layout) -> Result<Tokenizer> {
        self.check()?;
        if self.model_type != UNIGRAM {
            let message = "expected 1 (UNIGRAM), as the models of this class have";
            return Err(Error::invalid("trainer_spec.model_type", message));
        }
        if self.pieces.len() <= layout.shift {
            let message = format!("{} are too few for a model of this class", self.pieces.len());
            return Err(Error::invalid("pieces", message));
        }
        let ends_in_number_comma = |text: &str| {
            let mut last = text.chars().rev();
            last.next() == Some(',') && last.next().is_some_and(|c| c.is_numeric())
        };
        let own = self.pieces[layout.shift..].iter().map(|piece| {
            let avoided = layout.cuts_number_commas && ends_in_number_comma(&piece.text);
            (piece.text.clone(), f64::from(piece.score) - if avoided { AVOIDED } else { 0.0 })
        });
        let unk = match layout.unk {
            Some(unk) => unk,
            None => self.unk_id()?,
        };
        let pieces = layout.before.iter().cloned().chain(own).chain(layout.after.iter().cloned());
        Ok(Tokenizer::new(Model::Unigram(Unigram::new(pieces, Some(unk), false)?)))
    }

    fn unk_id(&self) -> Result<u32> {
        u32::try_from(self.unk_id).map_err(|_| {
            Error::invalid("trainer_spec.unk_id", format!("{} is not the id of a piece", self.unk_id))
        })
    }

    /// The rules for characters, if the file has any.
    pub(crate) fn rules(&self) -> Result<Option<Precompiled>> {
        (!self.charsmap.is_empty()).then(|| Precompiled::new(self.charsmap.clone())).transpose()
    }

    /// The pieces matched in texts: control pieces, which are special, and user-defined ones.
    pub(crate) fn added(&self) -> impl Iterator<Item = AddedToken> {
        let added = self.pieces.iter().filter(|p| matches!(p.kind, CONTROL | USER_DEFINED));
        added.map(|p| AddedToken { special: p.kind == CONTROL, ..AddedToken::special(p.text.clone()) })
    }

    /// Every way to make a piece from two others, ordered by SentencePiece's scores; ties are broken as in
    /// transformers (`generate_merges`).
    fn merges(&self) -> Vec<(&str, &str)> {
        let ids: HashMap<&str, usize> =
            self.pieces.iter().enumerate().map(|(id, p)| (p.text.as_str(), id)).collect();
        let mut merges = Vec::new();
        for piece in &self.pieces {
            let cuts = piece.text.char_indices().skip(1).map(|(at, _)| piece.text.split_at(at));
            let first = merges.len();
            merges.extend(cuts.filter_map(|(a, b)| Some((piece.score, a, b, (ids.get(a)?, ids.get(b)?)))));
            merges[first..].sort_by_key(|merge| merge.3);
        }
        let chars = |text: &str| text.chars().count();
        merges.sort_by(|x, y| {
            let lengths = |(_, a, b, _): &(f32, &str, &str, _)| (chars(a), chars(b));
            y.0.total_cmp(&x.0).then_with(|| lengths(y).cmp(&lengths(x)))
        });
        merges.into_iter().map(|(_, a, b, _)| (a, b)).collect()
    }

    /// The normalisers after the character rules, in `tokenizer.json` form.
    fn normalizers(&self) -> Vec<Value> {
        let mut stages = Vec::new();
        if self.remove_extra_whitespaces {
            // A prefix that `Metaspace` adds is not added to a space that is there.
            let left = self.whole_text() || !self.add_dummy_prefix;
            stages.push(json!({"type": "Strip", "strip_left": left, "strip_right": true}));
            let regex = json!({"Regex": " {2,}"});
            stages.push(json!({"type": "Replace", "pattern": regex, "content": SPACE}));
        }
        if self.whole_text() {
            if self.add_dummy_prefix {
                stages.push(json!({"type": "Prepend", "prepend": SPACE}));
            }
            stages.push(json!({"type": "Replace", "pattern": {"String": " "}, "content": SPACE}));
        }
        stages
    }

    fn metaspace(&self) -> Value {
        let scheme = if self.add_dummy_prefix { "always" } else { "never" };
        json!({"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": true})
    }

    fn pre_tokenizer(&self) -> Option<Value> {
        (!self.whole_text()).then(|| self.metaspace())
    }

    fn decoder(&self) -> Value {
        if !self.byte_fallback {
            return self.metaspace();
        }
        let mut decoders = vec![
            json!({"type": "Replace", "pattern": {"String": SPACE}, "content": " "}),
            json!({"type": "ByteFallback"}),
            json!({"type": "Fuse"}),
        ];
        if self.add_dummy_prefix {
            decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
        }
        json!({"type": "Sequence", "decoders": decoders})
    }

    /// The result of transformers' converters for a file without further settings.
    pub(crate) fn tokenizer(&self) -> Result<Tokenizer> {
        self.check()?;
        let mut tokenizer = Tokenizer::new(self.model()?);
        let mut normalizers = Vec::new();
        normalizers.extend(self.rules()?.map(Normalizer::Precompiled));
        for (i, stage) in self.normalizers().into_iter().enumerate() {
            normalizers.extend(files::normalizer_from_value(stage, &format!("normalizers[{i}]"))?);
        }
        tokenizer.normalizer = Some(Normalizer::Sequence { normalizers });
        tokenizer.pre_tokenizer = files::pre_tokenizer_from_value(self.pre_tokenizer())?;
        tokenizer.decoder = files::decoder_from_value(Some(self.decoder()))?;
        // With the normaliser set, which `normalized: false` makes the search independent of.
        tokenizer.add_tokens(self.added())?;
        Ok(tokenizer)
    }

    /// The pieces for segmentation, with their log probabilities. User-defined pieces are used wherever they
    /// match.
    fn spelling(&self) -> impl Iterator<Item = (&str, f64)> {
        let normal = self.pieces.iter().filter(|piece| piece.kind == NORMAL);
        let best = normal.map(|piece| piece.score).fold(f32::NEG_INFINITY, f32::max);
        let score = move |piece: &SpmPiece| match piece.kind {
            USER_DEFINED => piece.text.len() as f32 * best.max(f32::MIN) - 0.1,
            _ => piece.score,
        };
        let used = self.pieces.iter().filter(|piece| matches!(piece.kind, NORMAL | USER_DEFINED));
        used.map(move |piece| (piece.text.as_str(), f64::from(score(piece))))
    }

    /// SentencePiece's own tokenizer, with the ids of `vocab`.
    fn marian(&self, vocab: Vocab, unk_token: &str) -> Result<Tokenizer> {
        self.check()?;
        if self.model_type != UNIGRAM {
            return Err(Error::invalid(
                "trainer_spec.model_type",
                "expected 1 (UNIGRAM), as Marian's models have",
            ));
        }
        let model = Marian::new(self.spelling(), vocab, unk_token, self.byte_fallback)?;
        // Words can be cut first where no piece goes beyond one.
        let spans_words =
            self.spelling().any(|(piece, _)| piece.chars().skip(1).any(|c| SPACE.starts_with(c)));
        let split = !spans_words && self.spelling().any(|(piece, _)| piece == SPACE);
        let rules = self.rules()?;
        let tokenizer = Tokenizer::new(Model::Marian(model))
            .with_normalizer(Normalizer::SentencePiece(SentencePiece {
                rules,
                add_dummy_prefix: self.add_dummy_prefix,
                remove_extra_whitespaces: self.remove_extra_whitespaces,
            }))?
            .with_pre_tokenizer(PreTokenizer::Metaspace(Metaspace {
                prepend_scheme: PrependScheme::Never,
                split,
                ..Metaspace::default()
            }));
        Ok(tokenizer)
    }
}

/// Calls `read` with every field of a message.
fn each<'a>(mut message: Message<'a>, mut read: impl FnMut(Field<'a>) -> Result<()>) -> Result<()> {
    while let Some(field) = message.next()? {
        read(field)?;
    }
    Ok(())
}

/// A tokenizer of SentencePiece's pieces with the ids of `vocab`, without a decoder, and whether it uses byte
/// fallback.
pub(crate) fn marian(bytes: &[u8], vocab: Vocab, unk_token: &str) -> Result<(Tokenizer, bool)> {
    let spm = Spm::parse(bytes)?;
    Ok((spm.marian(vocab, unk_token)?, spm.byte_fallback))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_bytes(bytes: &[u8]) -> Result<Tokenizer> {
        Spm::parse(bytes)?.tokenizer()
    }

    macro_rules! golden {
        ($name:literal) => {{
            let bytes = include_bytes!(concat!("../tests/data/sentencepiece/", $name, ".model"));
            let json = include_str!(concat!("../tests/data/sentencepiece/", $name, ".json"));
            (bytes.as_slice(), serde_json::from_str::<Value>(json).unwrap())
        }};
    }

    /// All stages as transformers' converter has them.
    #[test]
    fn as_transformers_converts_them() {
        for (bytes, json) in
            [golden!("unigram"), golden!("unigram-bytes"), golden!("bpe"), golden!("bpe-bytes")]
        {
            let spm = Spm::parse(bytes).unwrap();
            let mut normalizers = spm.normalizers();
            if !spm.charsmap.is_empty() {
                let rules = Normalizer::Precompiled(Precompiled::new(spm.charsmap.clone()).unwrap());
                normalizers.insert(0, serde_json::to_value(rules).unwrap());
            }
            assert_eq!(json["normalizer"]["normalizers"], Value::from(normalizers));
            assert_eq!(json["pre_tokenizer"], spm.pre_tokenizer().unwrap_or(Value::Null));
            assert_eq!(json["decoder"], spm.decoder());
            let model = &json["model"];
            if spm.model_type == BPE {
                assert_eq!(model["merges"], json!(spm.merges()));
                continue;
            }
            let ours = Tokenizer::new(spm.model().unwrap());
            let ours: Value = serde_json::from_str(&ours.to_json()).unwrap();
            assert_eq!(&ours["model"], model);
        }
    }

    #[test]
    fn what_is_read() {
        let spm = Spm::parse(golden!("unigram-plain").0).unwrap();
        assert!(!spm.add_dummy_prefix && !spm.remove_extra_whitespaces && spm.charsmap.is_empty());
        assert_eq!((spm.unk_id, spm.pieces[0].text.as_str(), spm.pieces[0].kind), (2, "<s>", CONTROL));
        assert_eq!(spm.metaspace()["prepend_scheme"], "never");
        assert!(spm.normalizers().is_empty());
        let spm = Spm::parse(golden!("unigram").0).unwrap();
        assert!(spm.pieces.iter().any(|p| p.text == "<sep>" && p.kind == USER_DEFINED));
    }

    /// A message of one field that is a message of one number.
    fn spec(outer: u8, number: u16, value: u8) -> Vec<u8> {
        let tag = number << 3;
        let inner = [(tag & 0x7F) as u8 | 0x80, (tag >> 7) as u8, value];
        [&[outer << 3 | 2, inner.len() as u8], inner.as_slice()].concat()
    }

    #[test]
    fn what_is_not_supported_is_named() {
        let (model, _) = golden!("unigram");
        let error = |more: &[u8]| from_bytes(&[model, more].concat()).unwrap_err().to_string();
        assert!(error(&spec(2, 3, 3)).starts_with("trainer_spec.model_type: WORD and CHAR"));
        assert!(error(&spec(2, 3, 9)).starts_with("trainer_spec.model_type: 9 is not known"));
        assert!(error(&spec(2, 24, 1)).starts_with("trainer_spec.treat_whitespace_as_suffix"));
        assert!(error(&spec(3, 5, 0)).starts_with("normalizer_spec.escape_whitespaces"));
        assert!(error(&[5 << 3 | 2, 3, 2 << 3 | 2, 1, 7]).starts_with("denormalizer_spec"));
        assert!(from_bytes(b"").unwrap_err().to_string().starts_with("pieces: there are none"));
        assert!(from_bytes(b"plain text").is_err());
    }

    #[test]
    fn damaged_files_are_refused_or_work() {
        for (model, _) in [golden!("unigram"), golden!("bpe-bytes")] {
            for at in 0..model.len() {
                let mut bytes = model.to_vec();
                bytes[at] ^= 1 << (at % 8);
                if let Ok(tokenizer) = from_bytes(&bytes) {
                    tokenizer.encode("a ship, e\u{301}", true).unwrap();
                }
                if at % 16 == 0 {
                    let _ = Spm::parse(&model[..at]);
                }
            }
        }
    }
}
