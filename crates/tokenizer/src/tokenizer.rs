//! The tokenizer pipeline.

use std::{ops::Range, path::Path};

use rand_pcg::{
    Pcg64Mcg,
    rand_core::{Rng, SeedableRng},
};
use rayon::prelude::*;

use crate::{
    AddedToken, BertNormalizer, Bpe, ByteLevel, Decoder, Encoding, Error, Input, Model, Normalizer,
    OffsetUnit, Padding, PostProcessor, PreTokenizer, Result, Sampling, Sequence, TemplateProcessing,
    TokenizerConfig, Truncation, Vocab, WordPiece,
    added::AddedVocabulary,
    cache::{Cache, Caches, Pieces},
    families::ModelConfig,
    splits::{Split, Splits},
};

/// Text to ids and back: normaliser, pre-tokenizer, model, post-processor and decoder, with added
/// tokens, truncation and padding.
///
/// Cheap to share between threads; a clone copies the vocabulary.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    pub(crate) normalizer: Option<Normalizer>,
    pub(crate) pre_tokenizer: Option<PreTokenizer>,
    pub(crate) model: Model,
    pub(crate) post_processor: Option<PostProcessor>,
    pub(crate) decoder: Option<Decoder>,
    pub(crate) added: AddedVocabulary,
    pub(crate) truncation: Option<Truncation>,
    pub(crate) padding: Option<Padding>,
    pub(crate) config: TokenizerConfig,
    pub(crate) keep_overflow: bool,
    caches: Caches,
}

/// The ids of the tokens that pretraining needs, found by their usual names: BERT's (`[PAD]`, `[UNK]`,
/// `[CLS]`, `[SEP]`, `[MASK]`), else RoBERTa's (`<pad>`, `<unk>`, `<s>`, `</s>`, `<mask>`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpecialIds {
    /// Pads short sequences.
    pub pad: Option<u32>,
    /// Stands for what the vocabulary cannot spell.
    pub unk: Option<u32>,
    /// Begins a sequence.
    pub cls: Option<u32>,
    /// Ends a segment.
    pub sep: Option<u32>,
    /// Hides a piece.
    pub mask: Option<u32>,
}

impl Tokenizer {
    /// A tokenizer with only a model, which treats the whole text as one word; add the other stages
    /// with the `with_…` methods.
    pub fn new(model: Model) -> Self {
        Self {
            normalizer: None,
            pre_tokenizer: None,
            added: AddedVocabulary::with_codes(model.codes()),
            model,
            post_processor: None,
            decoder: None,
            truncation: None,
            padding: None,
            config: TokenizerConfig::default(),
            keep_overflow: true,
            caches: Caches::default(),
        }
    }

    /// BERT's tokenizer for a vocabulary. `[PAD]`, `[UNK]`, `[CLS]`, `[SEP]` and `[MASK]` become
    /// special tokens if in the vocabulary.
    ///
    /// # Errors
    /// The vocabulary has no `[UNK]`.
    pub fn bert(vocab: Vocab, lowercase: bool) -> Result<Self> {
        let model = WordPiece::new(vocab)?;
        let normalizer = if lowercase { BertNormalizer::uncased() } else { BertNormalizer::cased() };
        let decoder = Decoder::WordPiece { prefix: "##".into(), cleanup: true };
        let mut tokenizer = Self::new(Model::WordPiece(model))
            .with_normalizer(Normalizer::BertNormalizer(normalizer))?
            .with_pre_tokenizer(PreTokenizer::BertPreTokenizer)
            .with_decoder(decoder);
        tokenizer.add_known(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])?;
        match (tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]")) {
            (Some(cls), Some(sep)) => {
                let template = TemplateProcessing::bert(("[CLS]", cls), ("[SEP]", sep));
                tokenizer.with_post_processor(PostProcessor::TemplateProcessing(template))
            }
            _ => Ok(tokenizer),
        }
    }

    /// A byte-level BPE tokenizer: RoBERTa's if the vocabulary has `<s>` and `</s>`, else GPT-2's.
    ///
    /// # Errors
    /// Does not fail for a valid model.
    pub fn byte_level_bpe(model: Bpe) -> Result<Self> {
        let mut tokenizer = Self::new(Model::Bpe(model))
            .with_pre_tokenizer(PreTokenizer::ByteLevel(ByteLevel {
                add_prefix_space: false,
                ..ByteLevel::default()
            }))
            .with_decoder(Decoder::ByteLevel(ByteLevel::default()));
        tokenizer.add_known(["<s>", "<pad>", "</s>", "<unk>", "<|endoftext|>"])?;
        if let Some(id) = tokenizer.model.vocab().id("<mask>") {
            // RoBERTa's mask takes the space before it, since words carry theirs.
            let mask = AddedToken { lstrip: true, ..AddedToken::special("<mask>") };
            tokenizer.add_with_ids([(Some(id), mask)])?;
        }
        let processor = match (tokenizer.token_to_id("<s>"), tokenizer.token_to_id("</s>")) {
            (Some(cls), Some(sep)) => PostProcessor::RobertaProcessing {
                sep: ("</s>".into(), sep),
                cls: ("<s>".into(), cls),
                trim_offsets: true,
                add_prefix_space: false,
            },
            _ => PostProcessor::ByteLevel(ByteLevel {
                add_prefix_space: true,
                trim_offsets: false,
                use_regex: true,
            }),
        };
        tokenizer.with_post_processor(processor)
    }

    /// Reads a `tokenizer.json`, a `vocab.txt` (any other file name ending in `.txt`), a SentencePiece model
    /// (any file name ending in `.model`), or a folder: its `tokenizer.json`, else `vocab.txt`, else
    /// `vocab.json` and `merges.txt`, else the source tokenizer of
    /// [`MarianTokenizers`](crate::MarianTokenizers), else a SentencePiece model, each with the settings of a
    /// `tokenizer_config.json`.
    ///
    /// # Errors
    /// Names the file, and the line or JSON path in it.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        crate::files::load(path.as_ref())
    }

    /// Writes a `tokenizer.json`; if `path` is a folder, into it, with a `tokenizer_config.json` and a
    /// `special_tokens_map.json` so that transformers' `AutoTokenizer` can read the folder. If the folder has
    /// a model's `config.json`, they include the model's inputs and padding side.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        crate::files::save(self, path.as_ref())
    }

    /// Reads the text of a `tokenizer.json`.
    ///
    /// # Errors
    /// Names line and column, or the JSON path of the unsupported part.
    pub fn from_json(json: &str) -> Result<Self> {
        crate::files::from_json(json)
    }

    /// The text of a `tokenizer.json`.
    pub fn to_json(&self) -> String {
        crate::files::to_json(self)
    }

    /// Sets the normaliser.
    ///
    /// # Errors
    /// The added tokens cannot be normalised (there are too many for their search tables).
    pub fn with_normalizer(mut self, normalizer: Normalizer) -> Result<Self> {
        self.normalizer = Some(normalizer);
        self.added.refresh(self.normalizer.as_ref())?;
        Ok(self)
    }

    /// Sets the pre-tokenizer.
    pub fn with_pre_tokenizer(mut self, pre_tokenizer: PreTokenizer) -> Self {
        self.pre_tokenizer = Some(pre_tokenizer);
        self
    }

    /// Sets the post-processor.
    ///
    /// # Errors
    /// Its template names a token that it does not define.
    pub fn with_post_processor(mut self, post_processor: PostProcessor) -> Result<Self> {
        post_processor.check("post_processor")?;
        self.post_processor = Some(post_processor);
        Ok(self)
    }

    /// Sets the decoder.
    pub fn with_decoder(mut self, decoder: Decoder) -> Self {
        self.decoder = Some(decoder);
        self
    }

    /// Adds tokens: those in the vocabulary keep their ids, the others get the next ones. Returns the
    /// number of newly added tokens.
    ///
    /// # Errors
    /// An empty token.
    pub fn add_tokens(&mut self, tokens: impl IntoIterator<Item = AddedToken>) -> Result<usize> {
        self.add_with_ids(tokens.into_iter().map(|token| (None, token)))
    }

    pub(crate) fn add_with_ids(
        &mut self,
        tokens: impl IntoIterator<Item = (Option<u32>, AddedToken)>,
    ) -> Result<usize> {
        self.added.add(tokens, &self.model, self.normalizer.as_ref())
    }

    /// Adds those in the vocabulary as special tokens.
    fn add_known<const N: usize>(&mut self, names: [&str; N]) -> Result<()> {
        let known = names.into_iter().filter(|name| self.model.vocab().id(name).is_some());
        let known: Vec<_> = known.map(AddedToken::special).collect();
        self.add_tokens(known).map(|_| ())
    }

    /// Sets or disables truncation.
    ///
    /// # Errors
    /// `max_length` leaves no room besides the special tokens, or none to advance by with this
    /// `stride`.
    pub fn set_truncation(&mut self, truncation: Option<Truncation>) -> Result<()> {
        if let Some(t) = &truncation {
            let added = self.post_processor.as_ref().map_or(0, |p| p.added_tokens(false));
            if t.max_length < added || (t.stride > 0 && t.stride >= t.max_length - added) {
                let message = format!(
                    "max_length {} less {added} special tokens must be more than stride {}",
                    t.max_length, t.stride
                );
                return Err(Error::invalid("truncation", message));
            }
        }
        self.truncation = truncation;
        Ok(())
    }

    /// Sets or disables padding.
    ///
    /// # Errors
    /// A length of more than 16,777,216 pieces.
    pub fn set_padding(&mut self, padding: Option<Padding>) -> Result<()> {
        if let Some(padding) = &padding {
            padding.check()?;
        }
        self.padding = padding;
        Ok(())
    }

    /// The current truncation, including one declared by a file.
    pub fn truncation(&self) -> Option<&Truncation> {
        self.truncation.as_ref()
    }

    /// The current padding, including one declared by a file.
    pub fn padding(&self) -> Option<&Padding> {
        self.padding.as_ref()
    }

    /// Sets or disables Unigram sampling in [`encode_sampled`](Self::encode_sampled);
    /// [`encode`](Self::encode) is unaffected. Files do not store this.
    ///
    /// ```
    /// # use cloze_tokenizer::{Model, Sampling, Tokenizer, Unigram};
    /// use rand_pcg::{Pcg64Mcg, rand_core::SeedableRng};
    ///
    /// let model = Unigram::new([("<unk>", 0.0), ("a", -1.0), ("aa", -1.5)], Some(0), false)?;
    /// let mut tokenizer = Tokenizer::new(Model::Unigram(model));
    /// tokenizer.set_sampling(Some(Sampling { alpha: 0.2, nbest: None }))?;
    /// let mut rng = Pcg64Mcg::seed_from_u64(7);
    /// let drawn: Vec<_> = (0..50).map(|_| tokenizer.encode_sampled("aa", false, &mut rng)).collect::<Result<_, _>>()?;
    /// let drew = |ids: &[u32]| drawn.iter().any(|encoding| encoding.ids == ids);
    /// assert!(drew(&[2]) && drew(&[1, 1]));
    /// assert_eq!(tokenizer.encode("aa", false)?.ids, [2]);
    /// # Ok::<_, cloze_tokenizer::Error>(())
    /// ```
    ///
    /// # Errors
    /// Settings that [`Unigram::with_sampling`](crate::Unigram::with_sampling) rejects; sampling for a model
    /// that is not Unigram.
    pub fn set_sampling(&mut self, sampling: Option<Sampling>) -> Result<()> {
        match &mut self.model {
            Model::Unigram(model) => model.set_sampling(sampling)?,
            _ if sampling.is_some() => {
                return Err(Error::invalid("sampling", "only a Unigram model draws from its probabilities"));
            }
            _ => {}
        }
        Ok(())
    }

    /// The contents of the folder's `tokenizer_config.json`; empty if there was none.
    pub fn config(&self) -> &TokenizerConfig {
        &self.config
    }

    /// The text of the `tokenizer_config.json` that [`save`](Self::save) writes in a folder without a model.
    pub fn config_json(&self) -> String {
        self.config.to_json(self, &ModelConfig::default())
    }

    /// Sets what [`save`](Self::save) declares in a `tokenizer_config.json`: the roles of tokens and the
    /// maximum length. The stages do not change.
    pub fn set_config(&mut self, config: TokenizerConfig) {
        self.config = config;
    }

    /// Whether special tokens in a text are treated as ordinary text, as is advisable for untrusted text.
    /// Off unless set here, or by `split_special_tokens` in a `tokenizer_config.json`.
    ///
    /// ```
    /// # use cloze_tokenizer::{Tokenizer, Vocab};
    /// let mut tokenizer = Tokenizer::bert(Vocab::from_tokens(["[UNK]", "[SEP]", "[", "]", "sep"])?, true)?;
    /// assert_eq!(tokenizer.encode("[SEP]", false)?.ids, [1]);
    /// tokenizer.set_encode_special_tokens(true);
    /// assert_eq!(tokenizer.encode("[SEP]", false)?.ids, [2, 4, 3]);
    /// # Ok::<_, cloze_tokenizer::Error>(())
    /// ```
    pub fn set_encode_special_tokens(&mut self, on: bool) {
        self.added.ignore_special = on;
    }

    /// Whether truncation keeps what it cuts off, as [`Encoding::overflowing`]. On by default; files do not
    /// store this.
    ///
    /// When off, encoding reads only as much of a long text as determines the pieces kept, if the stages
    /// allow it: time and memory no longer grow with the text. [`Encoding::truncated`] says whether pieces
    /// were cut off. The ids, offsets and other fields are the same either way.
    ///
    /// The whole text is still read if truncation cuts at the beginning, or if a stage may look arbitrarily
    /// far ahead: a regular expression that is not one of the known ones (see [`Pattern`](crate::Pattern)), a
    /// `Replace` of more than 64 bytes, `Strip` on the right, or a pre-tokenizer that leaves the text one
    /// word.
    ///
    /// ```
    /// # use cloze_tokenizer::{Tokenizer, Truncation, Vocab};
    /// let mut tokenizer = Tokenizer::bert(Vocab::from_tokens(["[UNK]", "old", "sea"])?, true)?;
    /// tokenizer.set_truncation(Some(Truncation::to(2)))?;
    /// tokenizer.set_keep_overflow(false);
    /// let encoding = tokenizer.encode(&"old sea ".repeat(100_000), false)?;
    /// assert_eq!(encoding.ids, [1, 2]);
    /// assert!(encoding.truncated && encoding.overflowing.is_empty());
    /// # Ok::<_, cloze_tokenizer::Error>(())
    /// ```
    pub fn set_keep_overflow(&mut self, on: bool) {
        self.keep_overflow = on;
    }

    /// The normaliser.
    pub fn normalizer(&self) -> Option<&Normalizer> {
        self.normalizer.as_ref()
    }

    /// The pre-tokenizer.
    pub fn pre_tokenizer(&self) -> Option<&PreTokenizer> {
        self.pre_tokenizer.as_ref()
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The post-processor.
    pub fn post_processor(&self) -> Option<&PostProcessor> {
        self.post_processor.as_ref()
    }

    /// The decoder.
    pub fn decoder(&self) -> Option<&Decoder> {
        self.decoder.as_ref()
    }

    /// The added tokens with their ids, by id.
    pub fn added_tokens(&self) -> impl Iterator<Item = (u32, &AddedToken)> {
        self.added.iter()
    }

    /// Encodes a text. Truncation and padding are applied as set.
    ///
    /// A model with dropout restarts its generator at each call, so a text always becomes the same
    /// pieces; [`encode_sampled`](Self::encode_sampled) takes a generator.
    ///
    /// # Errors
    /// [`Error::PatternGaveUp`], for a tokenizer with a regular expression that is not one of the known ones.
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Encoding> {
        self.encode_input(text, add_special, OffsetUnit::Bytes)
    }

    /// Encodes two texts as one sequence; BERT's post-processors give the second type id 1.
    ///
    /// # Errors
    /// Those of [`encode`](Self::encode).
    pub fn encode_pair(&self, a: &str, b: &str, add_special: bool) -> Result<Encoding> {
        self.encode_input((a, b), add_special, OffsetUnit::Bytes)
    }

    /// Encodes a text with random pieces from `rng`, if the model is random: BPE with dropout, or Unigram
    /// with [`Sampling`](crate::Sampling), where each word is sampled independently. (SentencePiece
    /// samples from the `nbest` of the whole text.) Without a generator, Unigram uses the most probable
    /// pieces.
    ///
    /// ```
    /// # use cloze_tokenizer::{Bpe, BpeConfig, Model, Tokenizer, Vocab};
    /// use rand_pcg::{Pcg64Mcg, rand_core::SeedableRng};
    ///
    /// let vocab = Vocab::from_tokens(["a", "b", "ab"])?;
    /// let half = BpeConfig { dropout: Some(0.5), ..BpeConfig::default() };
    /// let tokenizer = Tokenizer::new(Model::Bpe(Bpe::new(vocab, [("a", "b")], half)?));
    /// let mut rng = Pcg64Mcg::seed_from_u64(7);
    /// let whole = |_: &i32| tokenizer.encode_sampled("ab", false, &mut rng).is_ok_and(|drawn| drawn.ids == [2]);
    /// let times = (0..1000).filter(whole).count();
    /// assert!((400..600).contains(&times), "about half of the time");
    /// # Ok::<_, cloze_tokenizer::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`encode`](Self::encode).
    pub fn encode_sampled(&self, text: &str, add_special: bool, rng: &mut dyn Rng) -> Result<Encoding> {
        let pieces = self.pieces(&self.split(text, true)?, Some(rng), 0);
        Ok(self.padded(self.finish(pieces, None, add_special, OffsetUnit::Bytes)))
    }

    /// Encodes texts in parallel, and pads them as one batch.
    ///
    /// # Errors
    /// [`Error::Batch`] with the first text that fails, for the reasons of [`encode`](Self::encode).
    pub fn encode_batch<T: AsRef<str> + Sync>(
        &self,
        texts: &[T],
        add_special: bool,
    ) -> Result<Vec<Encoding>> {
        self.encode_all(texts, |text| Input::from(text.as_ref()), add_special, OffsetUnit::Bytes)
    }

    /// The ids of a text, optionally with special tokens, truncated as set and not padded: the ids of
    /// [`encode`](Self::encode), without strings and offsets. The fast way to make model input.
    ///
    /// Only as much of a long text is read as truncation keeps, as without
    /// [`set_keep_overflow`](Self::set_keep_overflow).
    ///
    /// ```
    /// # use cloze_tokenizer::{Tokenizer, Vocab};
    /// let vocab = Vocab::from_tokens(["[UNK]", "[CLS]", "[SEP]", "old", "sea"])?;
    /// let tokenizer = Tokenizer::bert(vocab, true)?;
    /// assert_eq!(tokenizer.encode_ids("The old sea", true)?, [1, 0, 3, 4, 2]);
    /// assert_eq!(tokenizer.encode_ids_batch(&["old", "sea old"], false)?, [vec![3], vec![4, 3]]);
    /// # Ok::<_, cloze_tokenizer::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`encode`](Self::encode).
    pub fn encode_ids(&self, text: &str, add_special: bool) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        self.encode_ids_into(text, add_special, &mut ids)?;
        Ok(ids)
    }

    /// Appends to `ids` the [`encode_ids`](Self::encode_ids) of a text, of its words, or of the beginning of
    /// a longer text. One vector serves any number of texts.
    ///
    /// ```
    /// # use cloze_tokenizer::{Tokenizer, Vocab};
    /// let tokenizer = Tokenizer::bert(Vocab::from_tokens(["[UNK]", "[CLS]", "[SEP]", "old", "sea"])?, true)?;
    /// let mut ids = Vec::new();
    /// tokenizer.encode_ids_into("old", true, &mut ids)?;
    /// tokenizer.encode_ids_into("sea", false, &mut ids)?;
    /// assert_eq!(ids, [1, 3, 2, 4]);
    /// # Ok::<_, cloze_tokenizer::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`encode_input`](Self::encode_input); nothing is appended then.
    pub fn encode_ids_into<'a>(
        &self,
        text: impl Into<Sequence<'a>>,
        add_special: bool,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        let start = ids.len();
        let read = self.append_ids(text.into(), ids);
        if read.is_err() {
            ids.truncate(start);
            return read;
        }
        let processor = self.post_processor.as_ref();
        if let Some(truncation) = &self.truncation {
            let special = processor.filter(|_| add_special).map_or(0, |p| p.added_tokens(false));
            truncation.apply_to_ids(ids, start, special);
        }
        if let Some(processor) = processor {
            processor.apply_to_ids(ids, start, add_special);
        }
        Ok(())
    }

    /// Appends the ids of a text, before truncation and special tokens.
    fn append_ids(&self, text: Sequence, ids: &mut Vec<u32>) -> Result<()> {
        let start = ids.len();
        let least = self.least_pieces();
        let mut append = |text: &str, whole: bool, least: Option<usize>| {
            let start = ids.len();
            let of_splits = |splits: &Splits| {
                // Of an earlier, shorter beginning of the text.
                ids.truncate(start);
                self.push_ids(splits, ids);
                ids.len() - start
            };
            self.read(text, whole, least, false, of_splits, |count| *count)?;
            Ok(ids.len())
        };
        match text {
            Sequence::Text(text) => append(text, true, least).map(drop),
            Sequence::Beginning(text) => append(text, false, least).map(drop),
            Sequence::Words(words) => {
                for word in words {
                    let count = append(word, true, None)? - start;
                    if least.is_some_and(|least| count >= least) {
                        break;
                    }
                }
                Ok(())
            }
        }
    }

    /// The [`encode_ids`](Self::encode_ids) of texts, computed in parallel and returned in order.
    ///
    /// # Errors
    /// [`Error::Batch`] with the first text that fails.
    pub fn encode_ids_batch<T: AsRef<str> + Sync>(
        &self,
        texts: &[T],
        add_special: bool,
    ) -> Result<Vec<Vec<u32>>> {
        let ids: Vec<_> = texts.par_iter().map(|text| self.encode_ids(text.as_ref(), add_special)).collect();
        in_order(ids)
    }

    /// Appends the ids of the words in `splits`.
    fn push_ids(&self, splits: &Splits, ids: &mut Vec<u32>) {
        ids.reserve(splits.splits.len() * 5 / 4 + 2);
        self.with_words(splits, None, |words| {
            for split in &splits.splits {
                match split.added {
                    Some(id) => ids.push(id),
                    None => _ = words.pieces(split).ids(ids),
                }
            }
        });
    }

    /// Appends the ids of `text`, without special tokens, truncation or padding, and for each whether it
    /// begins a word. Use it to encode a corpus: there are no offsets, and frequent words are cached.
    ///
    /// # Errors
    /// Those of [`encode`](Self::encode); nothing is appended then.
    pub fn encode_into(&self, text: &str, ids: &mut Vec<u32>, word_starts: &mut Vec<bool>) -> Result<()> {
        self.append(text, ids, word_starts, None)
    }

    /// The same with pieces drawn from `rng`, as [`encode_sampled`](Self::encode_sampled) does.
    ///
    /// # Errors
    /// Those of [`encode`](Self::encode); nothing is appended then.
    pub fn encode_into_sampled(
        &self,
        text: &str,
        ids: &mut Vec<u32>,
        word_starts: &mut Vec<bool>,
        rng: &mut dyn Rng,
    ) -> Result<()> {
        self.append(text, ids, word_starts, Some(rng))
    }

    fn append(
        &self,
        text: &str,
        ids: &mut Vec<u32>,
        word_starts: &mut Vec<bool>,
        rng: Option<&mut dyn Rng>,
    ) -> Result<()> {
        let splits = self.split(text, false)?;
        self.with_words(&splits, rng, |words| {
            for split in &splits.splits {
                let count = match split.added {
                    Some(id) => {
                        ids.push(id);
                        1
                    }
                    None => words.pieces(split).ids(ids),
                };
                if count > 0 {
                    let len = word_starts.len() + count;
                    // Most words have few pieces: these few at once, then to length.
                    word_starts.extend_from_slice(&[true, false, false, false, false, false, false, false]);
                    word_starts.resize(len, false);
                }
            }
        });
        Ok(())
    }

    /// Current size of all threads' word caches, in bytes.
    pub fn cache_memory(&self) -> usize {
        self.caches.memory()
    }

    /// The text of `ids`; unknown ids are omitted, and special tokens on request.
    ///
    /// # Errors
    /// [`Error::PatternGaveUp`], for a decoder with a regular expression.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String> {
        let tokens = ids.iter().filter(|id| !skip_special || !self.is_special(**id));
        let text = |id: u32| self.added.decoded(id).or_else(|| self.model.vocab().token(id));
        let tokens: Vec<String> = tokens.filter_map(|&id| text(id)).map(str::to_owned).collect();
        match &self.decoder {
            Some(decoder) => decoder.decode(tokens),
            None => Ok(tokens.join(" ")),
        }
    }

    /// Number of tokens, including added ones.
    pub fn vocab_size(&self) -> usize {
        let vocab = self.model.vocab();
        let outside = self.added.iter().filter(|(id, _)| vocab.token(*id).is_none());
        vocab.len() + outside.count()
    }

    /// Fails unless all ids are below `vocab_size`. A vocabulary with gaps has fewer tokens than its highest
    /// id suggests.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the part of a `tokenizer.json` and the first token out of range.
    pub fn check_ids(&self, vocab_size: usize) -> Result<()> {
        let ids = self.model.vocab().iter().map(|(id, token)| ("model", id, token));
        let added = self.added.iter().map(|(id, token)| ("added_tokens", id, token.content.as_str()));
        match ids.chain(added).find(|(_, id, _)| *id as usize >= vocab_size) {
            None => Ok(()),
            Some((at, id, token)) => {
                let message = format!("{token:?} has id {id}; the model's ids are below {vocab_size}");
                Err(Error::invalid(at, message))
            }
        }
    }

    /// Fails unless a model of `vocab_size` pieces and `n_token_types` token types (0 for a model without
    /// them) accepts everything this tokenizer produces for a text, or for a `pair` of texts: all ids, the
    /// type ids and special tokens of the post-processor, and each text once.
    ///
    /// ```
    /// # use cloze_tokenizer::{PostProcessor, TemplateProcessing, Tokenizer, Vocab};
    /// let tokenizer = Tokenizer::bert(Vocab::from_tokens(["[UNK]", "a", "[CLS]", "[SEP]"])?, true)?;
    /// tokenizer.check_inputs(4, 2, true)?;
    /// let error = tokenizer.check_inputs(4, 1, true).unwrap_err().to_string();
    /// assert_eq!(error, "post_processor: a pair of texts gets the type id 1; the model's type ids are below 1");
    /// # Ok::<_, cloze_tokenizer::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] with the part of a `tokenizer.json` and what the model does not accept.
    pub fn check_inputs(&self, vocab_size: usize, n_token_types: usize, pair: bool) -> Result<()> {
        self.check_ids(vocab_size)?;
        let Some(processor) = &self.post_processor else {
            return Ok(());
        };
        let texts: u32 = if pair { 2 } else { 1 };
        let piece = |sequence| {
            let mut piece = Encoding::default();
            piece.push(0, "", (0, 0), Some(0), sequence);
            piece
        };
        let parts = processor.apply((0..texts).map(piece).collect(), true, OffsetUnit::Bytes);
        let invalid = |message| Err(Error::invalid("post_processor", message));
        let what = if pair { "a pair of texts" } else { "a text" };
        for sequence in 0..texts {
            let times =
                parts.iter().flat_map(|part| &part.sequence_ids).filter(|id| **id == Some(sequence)).count();
            if times != 1 {
                let name = if sequence == 0 { "A" } else { "B" };
                return invalid(format!("{what} has its sequence {name} {times} times; expected once"));
            }
        }
        for part in &parts {
            if let Some(place) = part.ids.iter().position(|id| *id as usize >= vocab_size) {
                let (id, token) = (part.ids[place], &part.tokens[place]);
                return invalid(format!("{token:?} has id {id}; the model's ids are below {vocab_size}"));
            }
            if let Some(id) =
                part.type_ids.iter().find(|id| n_token_types > 0 && **id as usize >= n_token_types)
            {
                return invalid(format!(
                    "{what} gets the type id {id}; the model's type ids are below {n_token_types}"
                ));
            }
        }
        Ok(())
    }

    /// The id of a token.
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.added.id(token).or_else(|| self.model.vocab().id(token))
    }

    /// The token with an id.
    pub fn id_to_token(&self, id: u32) -> Option<&str> {
        let added = self.added.get(id).map(|token| token.content.as_str());
        added.or_else(|| self.model.vocab().token(id))
    }

    /// Whether the token with this id is special.
    pub fn is_special(&self, id: u32) -> bool {
        self.added.get(id).is_some_and(|token| token.special)
    }

    /// The ids of the tokens that pretraining needs: those that a `tokenizer_config.json` declares, else
    /// those with the usual names.
    pub fn special_ids(&self) -> SpecialIds {
        let find = |declared: &Option<AddedToken>, usual: [&str; 2]| {
            let declared = declared.iter().map(|token| token.content.as_str());
            declared.chain(usual).find_map(|name| self.token_to_id(name))
        };
        SpecialIds {
            pad: find(&self.config.pad_token, ["[PAD]", "<pad>"]),
            unk: find(&self.config.unk_token, ["[UNK]", "<unk>"]),
            cls: find(&self.config.cls_token, ["[CLS]", "<s>"]),
            sep: find(&self.config.sep_token, ["[SEP]", "</s>"]),
            mask: find(&self.config.mask_token, ["[MASK]", "<mask>"]),
        }
    }

    /// Normalised text, cut into words and added tokens.
    pub(crate) fn split(&self, text: &str, track: bool) -> Result<Splits> {
        let mut splits = self.added.split(text, self.normalizer.as_ref(), self.tracks(track))?;
        if let Some(pre_tokenizer) = &self.pre_tokenizer {
            pre_tokenizer.cut(&mut splits)?;
        }
        if !self.model.spells_bytes() {
            splits.write_bytes();
        }
        Ok(splits)
    }

    /// Whether the stages must track where text comes from, if only internally.
    pub(crate) fn tracks(&self, wanted: bool) -> bool {
        wanted || self.pre_tokenizer.as_ref().is_some_and(PreTokenizer::needs_spans)
    }

    /// Runs `work` with the source of the pieces of the words in `splits`.
    fn with_words<T>(
        &self,
        splits: &Splits,
        rng: Option<&mut dyn Rng>,
        work: impl FnOnce(&mut Words) -> T,
    ) -> T {
        let model = &self.model;
        if !model.is_random(rng.is_some()) {
            let words = self.caches.words;
            return self.caches.with(|cache| work(&mut Words { model, splits, cache, words, rng: None }));
        }
        let mut anew = Pcg64Mcg::seed_from_u64(0);
        let rng: &mut dyn Rng = match rng {
            Some(rng) => rng,
            None => &mut anew,
        };
        work(&mut Words { model, splits, cache: &mut Cache::default(), words: 0, rng: Some(rng) })
    }

    /// The pieces of the words in `splits`, before truncation and special tokens.
    pub(crate) fn pieces(&self, splits: &Splits, rng: Option<&mut dyn Rng>, sequence: u32) -> Encoding {
        let mut encoding = Encoding::with_capacity(splits.splits.len() * 5 / 4 + 2);
        self.for_each_piece(splits, rng, |word, id, part| {
            let text = splits.text.get(part.clone()).unwrap_or_default();
            let token = if splits.splits[word].added.is_some() { text } else { self.model.token(id, text) };
            encoding.push_piece(id, token, splits.original(part), word as u32);
        });
        encoding.complete(sequence);
        encoding
    }

    /// Calls `each` with the index of a word in `splits`, the id of one of its pieces, and the range of the normalised
    /// text that the piece stands for; with all pieces in order.
    #[inline]
    pub(crate) fn for_each_piece(
        &self,
        splits: &Splits,
        rng: Option<&mut dyn Rng>,
        mut each: impl FnMut(usize, u32, Range<usize>),
    ) {
        self.with_words(splits, rng, |words| {
            for (word, split) in splits.splits.iter().enumerate() {
                let Split { range, added } = split;
                if let Some(id) = added {
                    each(word, *id, range.clone());
                    continue;
                }
                let mut part = 0..0;
                words.pieces(split).for_each(|piece| {
                    // Pieces that end together stand for the same text.
                    if piece.end > part.end {
                        part = part.end..piece.end;
                    }
                    each(word, piece.id, range.start + part.start..range.start + part.end);
                });
            }
        });
    }

    /// Truncates, and adds special tokens.
    pub(crate) fn finish(
        &self,
        mut first: Encoding,
        mut second: Option<Encoding>,
        add_special: bool,
        unit: OffsetUnit,
    ) -> Encoding {
        let mut truncated = false;
        if let Some(truncation) = &self.truncation {
            let processor = self.post_processor.as_ref().filter(|_| add_special);
            let reserved = processor.map_or(0, |p| p.added_tokens(second.is_some()));
            truncated = truncation.apply(&mut first, second.as_mut(), reserved);
            if !self.keep_overflow {
                first.overflowing.clear();
                second.iter_mut().for_each(|second| second.overflowing.clear());
            }
        }
        let parts: Vec<_> = std::iter::once(first).chain(second).collect();
        let parts = match &self.post_processor {
            Some(processor) => processor.apply(parts, add_special, unit),
            None => parts,
        };
        let mut parts = parts.into_iter();
        let mut whole = parts.next().unwrap_or_default();
        parts.for_each(|part| whole.append(part));
        whole.truncated = truncated;
        whole
    }

    pub(crate) fn padded(&self, encoding: Encoding) -> Encoding {
        let mut batch = [encoding];
        if let Some(padding) = &self.padding {
            padding.apply(&mut batch);
        }
        let [encoding] = batch;
        encoding
    }
}

/// All results, or the first error with its index.
pub(crate) fn in_order<T>(results: Vec<Result<T>>) -> Result<Vec<T>> {
    let texts = results.len();
    let named = |(index, result): (usize, Result<T>)| {
        result.map_err(|error| Error::Batch { index, texts, source: Box::new(error) })
    };
    results.into_iter().enumerate().map(named).collect()
}

/// The source of words' pieces: the model, or a cache in front of it.
struct Words<'a> {
    model: &'a Model,
    splits: &'a Splits,
    cache: &'a mut Cache,
    /// Maximum number of cached words.
    words: usize,
    /// The generator for a random model.
    rng: Option<&'a mut dyn Rng>,
}

impl Words<'_> {
    #[inline]
    fn pieces(&mut self, split: &Split) -> Pieces<'_> {
        let Self { model, splits, cache, words, rng } = self;
        let word = (splits.text.as_str(), split.range.start, split.range.end);
        cache.pieces(word, *words, |word, out| {
            let rng = rng.as_mut().map(|rng| &mut **rng as &mut dyn Rng);
            if splits.bytes { model.byte_pieces(word, rng, out) } else { model.pieces(word, rng, out) }
        })
    }
}
