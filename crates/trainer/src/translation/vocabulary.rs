//! A translation run's tokenizers: loaded, or trained on the training pairs.

use super::config::{TranslationConfig, VocabularySection};
use crate::config::OutputSection;
use crate::engine::checkpoint::Checkpoints;
use crate::engine::run_folder::RunFolder;
use crate::metrics::progress::RunProgress;
use crate::periodic_notes::{PeriodicNotes, training_tokenizer};
use crate::pretraining::saved;
use crate::{Result, TrainerError};
use cloze_data::DataError;
use cloze_data::parallel::sides;
use cloze_evaluation::table;
use cloze_tokenizer::train::{BpeTrainer, TrainProgress, UnigramTrainer, WordLevelTrainer, WordPieceTrainer};
use cloze_tokenizer::{
    AddedToken, ByteLevel, Decoder, Metaspace, Normalizer, PostProcessor, PreTokenizer, Punctuation,
    SpecialToken, SplitBehavior, TemplatePiece, TemplateProcessing, TemplateSequence, Tokenizer,
    TokenizerConfig,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// The tokenizers of both languages, and the target's special pieces.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Vocabularies {
    /// The source's.
    pub source: Arc<Tokenizer>,
    /// The target's; the same object if the vocabulary is shared.
    pub target: Arc<Tokenizer>,
    /// The target's special pieces.
    pub special: TargetPieces,
}

/// Special pieces of the target's vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TargetPieces {
    /// The first token of decoding. It is not part of the output.
    pub begin: u32,
    /// The end-of-text piece.
    pub end: u32,
    /// The padding piece. It has the same id in the source's vocabulary.
    pub pad: u32,
    /// The begin-of-text piece, if the vocabulary has one.
    pub bos: Option<u32>,
}

/// Sizes and special pieces of vocabularies, for a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct VocabularySizes {
    /// Size of the target's vocabulary.
    pub target: usize,
    /// Size of the source's vocabulary, if separate.
    pub source: Option<usize>,
    /// The special pieces.
    pub special: TargetPieces,
}

impl VocabularySizes {
    /// Placeholder sizes of a vocabulary that is yet to be trained and that this output fits, for checks that do not depend
    /// on its size.
    pub(crate) fn unknown(is_joint: bool, output: &OutputSection) -> Self {
        let special = TargetPieces { begin: 0, end: 2, pad: 1, bos: Some(0) };
        Self { target: output.smallest_vocabulary().max(32), source: (!is_joint).then_some(32), special }
    }
}

impl Vocabularies {
    /// Their sizes and special pieces.
    pub fn sizes(&self) -> VocabularySizes {
        let source = (!self.is_joint()).then(|| self.source.vocab_size());
        VocabularySizes { target: self.target.vocab_size(), source, special: self.special }
    }

    /// One tokenizer for both languages.
    ///
    /// # Errors
    /// Those of [`separate`](Self::separate).
    pub fn joint(tokenizer: Tokenizer) -> Result<Self> {
        let tokenizer = Arc::new(tokenizer);
        let special = target_pieces(&tokenizer, "tokenizer")?;
        Ok(Self { source: tokenizer.clone(), target: tokenizer, special })
    }

    /// A tokenizer for each language.
    ///
    /// # Errors
    /// [`TrainerError::Setting`] for tokenizers unsuitable for translation: one whose texts do not end with a
    /// piece such as `</s>`, or two with different padding ids.
    pub fn separate(source: Tokenizer, target: Tokenizer) -> Result<Self> {
        let special = target_pieces(&target, "target_tokenizer")?;
        let of_source = target_pieces(&source, "source_tokenizer")?;
        if of_source.pad != special.pad {
            return Err(TrainerError::Setting {
                key: "source_tokenizer".into(),
                found: format!("a tokenizer that pads with the id {}", of_source.pad),
                expected: format!("one that pads with {}, as the target's does", special.pad),
            });
        }
        Ok(Self { source: Arc::new(source), target: Arc::new(target), special })
    }

    /// Whether both languages share one vocabulary.
    pub fn is_joint(&self) -> bool {
        Arc::ptr_eq(&self.source, &self.target)
    }
}

/// The first and last pieces of translations. If texts begin with a special piece, as BART's do with `<s>`,
/// decoding starts from the end-of-text piece; otherwise it starts with `<s>`, or with padding if there is
/// none, as in Marian.
fn target_pieces(tokenizer: &Tokenizer, key: &str) -> Result<TargetPieces> {
    let config = tokenizer.config();
    let find = |declared: &Option<AddedToken>, usual: &[&str]| {
        let declared = declared.iter().map(|token| token.content.as_str());
        declared.chain(usual.iter().copied()).find_map(|name| tokenizer.token_to_id(name))
    };
    let refuse = |found: &str, expected: &str| TrainerError::Setting {
        key: key.into(),
        found: found.into(),
        expected: expected.into(),
    };
    let around = tokenizer.encode_ids("", true)?;
    let end = find(&config.eos_token, &["</s>", "[SEP]"]);
    let end = end.filter(|end| around.last() == Some(end)).ok_or_else(|| {
        refuse(
            "a tokenizer whose texts do not end with a piece of their own",
            "one that ends texts with `</s>`",
        )
    })?;
    let pad = find(&config.pad_token, &["<pad>", "[PAD]"]);
    let pad = pad.ok_or_else(|| refuse("a tokenizer without a padding piece", "one with `<pad>`"))?;
    let bos = find(&config.bos_token, &["<s>", "[CLS]"]);
    let begin = if around.len() > 1 { end } else { bos.unwrap_or(pad) };
    Ok(TargetPieces { begin, end, pad, bos })
}

/// The run's tokenizers, which are saved in its folder if trained.
///
/// Existing ones there are reused if a checkpoint was trained with them.
///
/// # Errors
/// Unreadable texts or tokenizers; a folder that cannot be written to; those of [`Vocabularies`].
pub(super) fn run_vocabularies(
    config: &TranslationConfig,
    folder: &RunFolder,
    resume: bool,
    progress: &mut dyn RunProgress,
) -> Result<Vocabularies> {
    let has_checkpoint = resume && !Checkpoints::open(folder.checkpoints())?.steps()?.is_empty();
    let mut tokenizer = |section: &VocabularySection, wanted: [bool; 2], path: PathBuf, of: &str| {
        if let Some(path) = section.path() {
            return load(path);
        }
        if has_checkpoint && path.exists() {
            return Ok(Tokenizer::load(&path)?);
        }
        let start = Instant::now();
        progress.note(&format!("training the {of}tokenizer"));
        let tokenizer = train(config, section, wanted, &PeriodicNotes::new(progress))?;
        let tokenizer = saved(&tokenizer, &path)?;
        let (pieces, seconds) = (tokenizer.vocab_size() as u64, start.elapsed().as_secs_f64());
        progress.note(&format!(
            "{of}tokenizer: {} pieces, {}",
            table::grouped(pieces),
            table::duration(seconds)
        ));
        Ok(tokenizer)
    };
    if let Some(section) = &config.tokenizer {
        return Vocabularies::joint(tokenizer(section, [true, true], folder.tokenizer(), "")?);
    }
    let missing = || TrainerError::Setting {
        key: "tokenizer".into(),
        found: "absent".into(),
        expected: "it, or `source_tokenizer` and `target_tokenizer`".into(),
    };
    let source = config.source_tokenizer.as_ref().ok_or_else(missing)?;
    let target = config.target_tokenizer.as_ref().ok_or_else(missing)?;
    // Each in a folder of its own, as in the result: the files beside a tokenizer say which piece is for what.
    let place = |side: &str| {
        let place = folder.path().join(side);
        std::fs::create_dir_all(&place).map_err(TrainerError::io("make", &place))?;
        Ok::<_, TrainerError>(place.join("tokenizer.json"))
    };
    let source = tokenizer(source, [true, false], place("source")?, "source ")?;
    let target = tokenizer(target, [false, true], place("target")?, "target ")?;
    Vocabularies::separate(source, target)
}

pub(crate) fn load(path: &Path) -> Result<Tokenizer> {
    let mut tokenizer = Tokenizer::load(path)?;
    // What it was last used for may have been shorter texts than the model takes.
    tokenizer.set_truncation(None)?;
    tokenizer.set_padding(None)?;
    Ok(tokenizer)
}

/// Trains a tokenizer on the given sides of the training pairs.
fn train(
    config: &TranslationConfig,
    section: &VocabularySection,
    wanted: [bool; 2],
    notes: &PeriodicNotes<'_>,
) -> Result<Tokenizer> {
    let parallel = &config.parallel;
    let texts = sides(&parallel.train, Path::new(""), parallel.languages(), wanted)?;
    let mut report = |progress| notes.note(|seconds| training_tokenizer(progress, seconds));
    train_on(section, texts, &mut report).map_err(|error| match error {
        // What is wrong is a file, and no tokenizer.
        TrainerError::Tokenizer(cloze_tokenizer::Error::Corpus { item, source }) => {
            match source.downcast::<DataError>() {
                Ok(error) => TrainerError::Data(*error),
                Err(source) => cloze_tokenizer::Error::Corpus { item, source }.into(),
            }
        }
        other => other,
    })
}

/// Trains a tokenizer whose texts end with `</s>`.
pub(crate) fn train_on(
    section: &VocabularySection,
    texts: impl Iterator<Item = cloze_data::Result<String>>,
    report: &mut dyn FnMut(TrainProgress),
) -> Result<Tokenizer> {
    let normalizer = |lowercase: bool| match lowercase {
        false => Normalizer::NFC,
        true => Normalizer::Sequence { normalizers: vec![Normalizer::NFC, Normalizer::Lowercase] },
    };
    // Pieces are of words with the space before them, or of punctuation.
    let words = || PreTokenizer::Sequence {
        pretokenizers: vec![
            PreTokenizer::Metaspace(Metaspace::default()),
            PreTokenizer::Punctuation(Punctuation { behavior: SplitBehavior::Isolated }),
        ],
    };
    let special = |unk: &str| ["<s>", "<pad>", "</s>", unk].map(String::from).to_vec();
    let tokenizer = match *section {
        VocabularySection::TrainBpe { vocab_size, lowercase, min_frequency } => BpeTrainer {
            vocab_size,
            min_frequency,
            special_tokens: special("<unk>"),
            normalizer: Some(normalizer(lowercase)),
            pre_tokenizer: Some(words()),
            byte_level: false,
            ..BpeTrainer::default()
        }
        .train_with(texts, report)?
        .with_decoder(Decoder::Metaspace(Metaspace::default())),
        VocabularySection::TrainByteBpe { vocab_size, lowercase, min_frequency } => BpeTrainer {
            vocab_size,
            min_frequency,
            special_tokens: special("<unk>"),
            normalizer: lowercase.then_some(Normalizer::Lowercase),
            ..BpeTrainer::default()
        }
        .train_with(texts, report)?
        .with_pre_tokenizer(PreTokenizer::ByteLevel(ByteLevel {
            add_prefix_space: true,
            ..ByteLevel::default()
        }))
        .with_decoder(Decoder::ByteLevel(ByteLevel::default())),
        VocabularySection::TrainWordpiece { vocab_size, lowercase, min_frequency } => WordPieceTrainer {
            vocab_size,
            lowercase,
            min_frequency,
            special_tokens: special("[UNK]"),
            ..WordPieceTrainer::default()
        }
        .train_with(texts, report)?,
        VocabularySection::TrainUnigram { vocab_size, lowercase } => UnigramTrainer {
            vocab_size,
            special_tokens: special("<unk>"),
            normalizer: Some(normalizer(lowercase)),
            pre_tokenizer: Some(words()),
            ..UnigramTrainer::default()
        }
        .train_with(texts, report)?,
        VocabularySection::TrainWords { vocab_size, lowercase, min_frequency } => WordLevelTrainer {
            vocab_size,
            min_frequency,
            special_tokens: special("<unk>"),
            unk_token: "<unk>".into(),
            normalizer: Some(normalizer(lowercase)),
            ..WordLevelTrainer::default()
        }
        .train_with(texts, report)?,
        VocabularySection::Load { ref path } => return load(path),
    };
    ends_texts(tokenizer)
}

/// The tokenizer with `</s>` appended to each text, and with its special pieces' roles set.
fn ends_texts(mut tokenizer: Tokenizer) -> Result<Tokenizer> {
    let known = |name: &str| tokenizer.token_to_id(name).map(|_| AddedToken::special(name));
    let config = TokenizerConfig {
        bos_token: known("<s>"),
        eos_token: known("</s>"),
        pad_token: known("<pad>"),
        unk_token: known("<unk>").or_else(|| known("[UNK]")),
        ..TokenizerConfig::default()
    };
    let all = [&config.bos_token, &config.eos_token, &config.pad_token, &config.unk_token];
    tokenizer.add_tokens(all.into_iter().flatten().cloned().collect::<Vec<_>>())?;
    let mut tokenizer = surrounded(tokenizer, None, "</s>")?;
    tokenizer.set_config(config);
    Ok(tokenizer)
}

/// The tokenizer with the piece `end` appended to each text, and the piece `begin` prepended, if given.
///
/// # Errors
/// A name that no template can have.
pub(crate) fn surrounded(tokenizer: Tokenizer, begin: Option<&str>, end: &str) -> Result<Tokenizer> {
    let special = |name: &str, type_id| TemplatePiece::SpecialToken { id: name.into(), type_id };
    let text = |id| TemplatePiece::Sequence { id, type_id: 0 };
    let template = |texts: &[TemplateSequence]| {
        let begin = begin.map(|name| special(name, 0));
        let texts = texts.iter().map(|id| text(*id));
        begin.into_iter().chain(texts).chain([special(end, 0)]).collect::<Vec<_>>()
    };
    let piece = |name: &str| {
        let id = tokenizer.token_to_id(name).unwrap_or_default();
        (name.to_owned(), SpecialToken { id: name.into(), ids: vec![id], tokens: vec![name.into()] })
    };
    let template = TemplateProcessing {
        single: template(&[TemplateSequence::A]),
        pair: template(&[TemplateSequence::A, TemplateSequence::B]),
        special_tokens: begin.into_iter().chain([end]).map(piece).collect(),
    };
    Ok(tokenizer.with_post_processor(PostProcessor::TemplateProcessing(template))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXTS: [&str; 4] = [
        "A dog, two dogs (and a cat) run.",
        "Ein Hund, zwei Hunde (und eine Katze) laufen.",
        "Zwei Männer stehen am Herd; der Mann lacht.",
        "Two men stand at the stove, the man laughs.",
    ];

    fn trained(section: &VocabularySection) -> Tokenizer {
        let texts = TEXTS.iter().cycle().take(40).map(|text| Ok((*text).to_owned()));
        train_on(section, texts, &mut |_| ()).unwrap()
    }

    #[test]
    fn texts_end_with_a_piece_and_come_back() {
        let (lowercase, min_frequency) = (false, 2);
        for (section, decoded) in [
            (VocabularySection::TrainBpe { vocab_size: 120, lowercase, min_frequency }, TEXTS),
            (VocabularySection::TrainByteBpe { vocab_size: 320, lowercase, min_frequency }, TEXTS),
            (VocabularySection::TrainUnigram { vocab_size: 120, lowercase }, TEXTS),
            (
                VocabularySection::TrainWordpiece { vocab_size: 120, lowercase, min_frequency },
                TEXTS.map(|text| match text.contains('(') {
                    true if text.starts_with('A') => "A dog, two dogs ( and a cat ) run.",
                    true => "Ein Hund, zwei Hunde ( und eine Katze ) laufen.",
                    false if text.starts_with('Z') => "Zwei Männer stehen am Herd ; der Mann lacht.",
                    false => text,
                }),
            ),
        ] {
            let tokenizer = trained(&section);
            let again = Tokenizer::from_json(&tokenizer.to_json()).unwrap();
            for (text, decoded) in TEXTS.iter().zip(decoded) {
                let ids = tokenizer.encode_ids(text, true).unwrap();
                assert_eq!((ids.last(), ids[..ids.len() - 1].contains(&2)), (Some(&2), false), "{section:?}");
                assert_eq!(again.encode_ids(text, true).unwrap(), ids);
                let found = tokenizer.decode(&ids, true).unwrap();
                assert_eq!(found.trim_start(), decoded, "{section:?}");
            }
            let of = Vocabularies::joint(tokenizer).unwrap();
            let TargetPieces { begin, end, pad, bos } = of.special;
            assert_eq!((begin, end, pad, bos), (0, 2, 1, Some(0)));
            assert!(of.is_joint());
        }
        let lower = trained(&VocabularySection::TrainBpe { vocab_size: 120, lowercase: true, min_frequency });
        let ids = lower.encode_ids("EIN HUND", true).unwrap();
        assert_eq!(lower.decode(&ids, true).unwrap(), "ein hund");
    }

    #[test]
    fn unfit_tokenizers_are_refused() {
        let gpt =
            BpeTrainer { vocab_size: 270, special_tokens: vec!["<pad>".into()], ..BpeTrainer::default() };
        let message = Vocabularies::joint(gpt.train(TEXTS).unwrap()).unwrap_err().to_string();
        assert_eq!(
            message,
            "`tokenizer` is a tokenizer whose texts do not end with a piece of their own; expected one that ends texts \
             with `</s>`"
        );
        // BART's begin with a piece of their own, so that decoding begins with the other.
        let bart = BpeTrainer { vocab_size: 270, ..BpeTrainer::default() }.train(TEXTS).unwrap();
        let of = Vocabularies::joint(bart.clone()).unwrap();
        assert_eq!((of.special.begin, of.special.end, of.special.bos), (2, 2, Some(0)));
        let bert = WordPieceTrainer { vocab_size: 100, ..Default::default() }.train(TEXTS).unwrap();
        let message = Vocabularies::separate(bert, bart).unwrap_err().to_string();
        assert!(message.contains("pads with the id 0; expected one that pads with 1"), "{message}");
    }
}
