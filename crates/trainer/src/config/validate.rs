//! Validates config values beyond their types.

use std::fmt::Display;
use std::ops::RangeInclusive;

use cloze_data::{AttentionConfig, CorpusConfig, MaskUnit, MaskingConfig, OnError, PairConfig};
use cloze_model::ModelError;
use cloze_model::blocks::PositionKind;
use cloze_model::huggingface::Family;

use super::languages;
use super::objective::Trained;
use super::{
    CheckpointSection, EvalSection, LogSection, ModelSection, NewModel, ObjectiveSection, OptimizerSection,
    RunConfig, TokenizerSection, TrainSection,
};
use crate::engine::Averaging;
use crate::engine::schedule::Schedule;
use crate::error::{Place, TrainerError};

/// An invalid value.
#[derive(Clone, Debug, PartialEq)]
pub struct Complaint {
    /// Its dotted key.
    pub key: String,
    /// The value.
    pub found: String,
    /// What was expected.
    pub expected: String,
}

impl Complaint {
    /// The error, with the location of the value in the config.
    pub(crate) fn at(self, place_of: impl FnOnce(&str) -> Place) -> TrainerError {
        let Self { key, found, expected } = self;
        TrainerError::BadValue { place: place_of(&key), key, found, expected }
    }
}

impl From<Complaint> for TrainerError {
    fn from(Complaint { key, found, expected }: Complaint) -> Self {
        Self::Setting { key, found, expected }
    }
}

/// Maximum tokens of a batch, and micro-batches of a step.
const MOST: usize = i32::MAX as usize;

/// The first invalid value, if any.
pub type Check = Result<(), Complaint>;

/// Checks every value of `config` and their consistency; returns the first complaint.
pub(super) fn validate(config: &RunConfig) -> Check {
    config.objective.check(Trained::Encoder)?;
    languages::check(config)?;
    let expected = "a tokenizer with a mask token, such as `train-wordpiece`";
    let has_mask = !config.tokenizer.is_for_language_models();
    ensure(has_mask, "tokenizer.kind", config.tokenizer.kind(), expected)?;
    tokenizer(&config.tokenizer)?;
    goes_with_the_model(&config.tokenizer, matches!(config.model, ModelSection::New(_)))?;
    examples(config)?;
    model(config)?;
    train(&config.train, config.examples.seq_len)?;
    distillation(config)?;
    config.common.check(config.train.steps)?;
    held_out(&config.eval)
}

/// Checks a teacher of masked pieces.
fn distillation(config: &RunConfig) -> Check {
    if let Some(layers) = config.model.as_pretrained().and_then(|model| model.layers.as_ref()) {
        let replaced = matches!(config.objective, ObjectiveSection::ReplacedTokens { .. });
        let expected = "none for `objective.kind` = \"replaced-tokens\", whose two encoders go together";
        ensure(!replaced, "model.layers", format!("{layers:?}"), expected)?;
    }
    let Some(section) = &config.distillation else { return Ok(()) };
    let masked = matches!(config.objective, ObjectiveSection::Masked {} | ObjectiveSection::SpanBoundary {});
    let expected = "\"masked\" or \"span-boundary\" with `[distillation]`: a teacher predicts masked pieces";
    ensure(masked, "objective.kind", format!("\"{}\"", config.objective.kind()), expected)?;
    let one = config.corpus.languages.is_empty();
    ensure(one, "corpus.languages", "given", "none with `[distillation]`: a teacher has no languages")?;
    ensure(!section.cache, "distillation.cache", true, "false: masks are new in every step")?;
    let all = config.examples.attention == Default::default();
    let expected = "no such table with `[distillation.inner]`: every token sees all others";
    ensure(all || section.inner.is_none(), "examples.attention", "given", expected)?;
    section.check(config.train.recompute)
}

/// Checks `[corpus]` of a monolingual run.
pub(super) fn corpus(corpus: &CorpusConfig) -> Check {
    let expected = "no such key: only an encoder is pretrained on several languages";
    ensure(corpus.languages.is_empty(), "corpus.languages", "a list", expected)?;
    let alpha = corpus.sampling_alpha;
    ensure(alpha.is_none(), "corpus.sampling_alpha", alpha.unwrap_or_default(), expected)?;
    ensure(!corpus.files.is_empty(), "corpus.files", "[]", "at least one file, folder or glob")?;
    corpus_bounds(corpus)
}

/// Checks `[corpus]` of a run that reads documents unsplit.
pub(super) fn running_text(config: &CorpusConfig) -> Check {
    corpus(config)?;
    let expected = "no such key: running text is not cut into sentences";
    ensure(config.language == CorpusConfig::default().language, "corpus.language", &config.language, expected)
}

/// Checks the limits common to all corpora.
pub(super) fn corpus_bounds(corpus: &CorpusConfig) -> Check {
    let skips = corpus.on_error == OnError::Skip;
    max_skipped("corpus.max_skipped", corpus.max_skipped, skips, "`corpus.on_error` = \"skip\"")?;
    at_least(1, "corpus.max_line_bytes", corpus.max_line_bytes)?;
    at_least(1, "corpus.max_document_bytes", corpus.max_document_bytes)
}

/// Checks the largest share that may be left out of data: a number from 0 to 1, which goes with the setting that leaves
/// anything out.
pub(crate) fn max_skipped(key: &'static str, share: Option<f64>, skips: bool, setting: &str) -> Check {
    let Some(share) = share else { return Ok(()) };
    ensure(
        skips,
        key,
        share,
        format!("no such key without {setting}, which leaves out what cannot be used"),
    )?;
    ensure((0.0..=1.0).contains(&share), key, share, "a number from 0 to 1")
}

pub(super) fn tokenizer(tokenizer: &TokenizerSection) -> Check {
    match *tokenizer {
        // Five special tokens and an alphabet are the least a vocabulary can do with; for bytes it is 256.
        TokenizerSection::TrainWordpiece { vocab_size, .. } => {
            at_least(32, "tokenizer.vocab_size", vocab_size)
        }
        TokenizerSection::TrainByteBpe { vocab_size, .. } => {
            at_least(261, "tokenizer.vocab_size", vocab_size)
        }
        // Both special pieces, and a word.
        TokenizerSection::TrainWords { vocab_size, .. } => at_least(3, "tokenizer.vocab_size", vocab_size),
        TokenizerSection::TrainCharacters {}
        | TokenizerSection::Load { .. }
        | TokenizerSection::Checkpoint {} => Ok(()),
    }
}

/// With a checkpoint, allows only its own tokenizer.
pub(super) fn goes_with_the_model(tokenizer: &TokenizerSection, is_new: bool) -> Check {
    let is_own = *tokenizer == TokenizerSection::Checkpoint {};
    let (fits, expected) = match is_new {
        true => (!is_own, "another one: a new model has no checkpoint"),
        false => (
            is_own,
            "no `[tokenizer]`, which cannot be combined with `model.path`: the vocabulary is the checkpoint's",
        ),
    };
    ensure(fits, "tokenizer.kind", tokenizer.kind(), expected)
}

fn examples(config: &RunConfig) -> Check {
    let seq_len = config.examples.seq_len;
    match &config.model {
        ModelSection::New(NewModel { max_positions, .. }) => ensure(
            (8..=*max_positions).contains(&seq_len),
            "examples.seq_len",
            seq_len,
            format!("8 to {max_positions} tokens (`model.max_positions`)"),
        ),
        // How many positions it has is known when it is open.
        ModelSection::Pretrained(_) => at_least(8, "examples.seq_len", seq_len),
    }?;
    match config.examples.pairs {
        PairConfig::NextSentence { short_seq_prob, random_next_prob } => {
            share("examples.pairs.short_seq_prob", short_seq_prob)?;
            share("examples.pairs.random_next_prob", random_next_prob)?;
        }
        PairConfig::SentenceOrder { short_seq_prob } => {
            share("examples.pairs.short_seq_prob", short_seq_prob)?;
        }
        _ => {}
    }
    if let ObjectiveSection::ReplacedTokens { .. } = config.objective {
        let expected = "\"doc-sentences\" or \"full-sentences\": `objective.kind` = \"replaced-tokens\" has no head for \
                        pairs";
        ensure(!config.examples.has_pairs(), "examples.pairs.kind", "of sentence pairs", expected)?;
    }
    masking(&config.examples.masking)?;
    attention(config)
}

/// Checks UniLM's attention masks.
fn attention(config: &RunConfig) -> Check {
    let AttentionConfig { bidirectional, left_to_right, right_to_left, sequence_to_sequence, .. } =
        config.examples.attention;
    let shares = [
        ("examples.attention.bidirectional", bidirectional),
        ("examples.attention.left_to_right", left_to_right),
        ("examples.attention.right_to_left", right_to_left),
        ("examples.attention.sequence_to_sequence", sequence_to_sequence),
    ];
    for (key, share) in shares {
        // Sums and quotients of what is larger or smaller would not be exact enough to draw by.
        let expected = "0, or a number of 1e-6 to 1e6";
        ensure(share == 0.0 || (1e-6..=1e6).contains(&share), key, share, expected)?;
    }
    let (some, expected) = (shares.iter().any(|(_, share)| *share > 0.0), "at least one share above 0");
    ensure(some, "examples.attention", "without shares", expected)?;
    if config.examples.attention.is_bidirectional() {
        return Ok(());
    }
    if config.objective != (ObjectiveSection::Masked {}) {
        let (key, share) = shares.into_iter().skip(1).find(|(_, share)| *share > 0.0).unwrap_or(shares[1]);
        let expected = format!(
            "0: `objective.kind` = \"{}\" is trained with bidirectional attention alone",
            config.objective.kind()
        );
        return ensure(false, key, share, expected);
    }
    let kind = config.examples.pairs.kind();
    let expected = format!("0: `examples.pairs.kind` = \"{kind}\" has no second segment");
    let has_pairs = config.examples.has_pairs();
    let key = "examples.attention.sequence_to_sequence";
    ensure(has_pairs || sequence_to_sequence == 0.0, key, sequence_to_sequence, expected)?;
    let expected = format!(
        "a number above 0: the labels of `examples.pairs.kind` = \"{kind}\" are predicted with bidirectional \
         attention alone"
    );
    let key = "examples.attention.bidirectional";
    ensure(!has_pairs || bidirectional > 0.0, key, bidirectional, expected)
}

fn masking(masking: &MaskingConfig) -> Check {
    let MaskingConfig { probability, mask_share, random_share, .. } = *masking;
    ensure(
        probability > 0.0 && probability <= 1.0,
        "examples.masking.probability",
        probability,
        "a number above 0, at most 1",
    )?;
    let of_unit = |key: &'static str, given: Option<String>, unit: MaskUnit, named: &str| match given {
        Some(found) if masking.unit != unit => {
            let expected = format!("no such key unless `examples.masking.unit` is \"{named}\"");
            ensure(false, key, found, expected)
        }
        _ => Ok(()),
    };
    let MaskingConfig { span_p, max_span, max_ngram, .. } = *masking;
    let shown = |length: Option<usize>| length.map(|length| length.to_string());
    of_unit("examples.masking.span_p", span_p.map(|p| p.to_string()), MaskUnit::Span, "span")?;
    of_unit("examples.masking.max_span", shown(max_span), MaskUnit::Span, "span")?;
    of_unit("examples.masking.max_ngram", shown(max_ngram), MaskUnit::NGram, "n-gram")?;
    if let Some(p) = span_p {
        ensure(p > 0.0 && p <= 1.0, "examples.masking.span_p", p, "a number above 0, at most 1")?;
    }
    for (key, length) in [("examples.masking.max_span", max_span), ("examples.masking.max_ngram", max_ngram)]
    {
        length.map_or(Ok(()), |length| within(1..=1_000, key, length))?;
    }
    share("examples.masking.mask_share", mask_share)?;
    share("examples.masking.random_share", random_share)?;
    // A hair more than 1, for shares like 0.9 and 0.1 that binary fractions only come near.
    ensure(
        mask_share + random_share <= 1.0 + 1e-9,
        "examples.masking.random_share",
        random_share,
        format!("at most 1 together with `examples.masking.mask_share`, which is {mask_share}"),
    )
}

fn model(config: &RunConfig) -> Check {
    let model = match &config.model {
        ModelSection::New(model) => model,
        ModelSection::Pretrained(model) => {
            below_one("model.hidden_dropout", model.hidden_dropout.unwrap_or(0.0))?;
            return below_one("model.attention_dropout", model.attention_dropout.unwrap_or(0.0));
        }
    };
    at_least(1, "model.n_layers", model.n_layers)?;
    at_least(1, "model.d_model", model.d_model)?;
    at_least(1, "model.n_heads", model.n_heads)?;
    at_least(1, "model.d_ff", model.d_ff)?;
    ensure(
        model.d_model.is_multiple_of(model.n_heads),
        "model.n_heads",
        model.n_heads,
        format!("a divisor of `model.d_model`, which is {}", model.d_model),
    )?;
    below_one("model.hidden_dropout", model.hidden_dropout)?;
    below_one("model.attention_dropout", model.attention_dropout)?;
    positive("model.layer_norm_eps", model.layer_norm_eps)?;
    positive("model.init_std", model.init_std)?;
    of_the_family(model, &config.objective)?;
    ensure(
        model.family.pretraining(false).is_some(),
        "model.family",
        format!("\"{}\"", model.family.model_type()),
        "a family with a masked-LM head; `objective.kind` = \"permutation\" pretrains an XLNet",
    )?;
    if config.examples.has_pairs() && model.family.pretraining(true).is_none() {
        let expected = format!(
            "\"doc-sentences\" or \"full-sentences\": `model.family` = \"{}\" has no head for pairs",
            model.family.model_type()
        );
        let found = format!("\"{}\"", config.examples.pairs.kind());
        return ensure(false, "examples.pairs.kind", found, expected);
    }
    // What could not be saved is not trained. It is so with any vocabulary.
    let (encoder, save) = model.published(config, model.with_vocabulary(1, 0));
    save.check(&encoder).map_err(|error| match error {
        ModelError::Setting { key, found, expected } => {
            Complaint { key: format!("model.{key}"), found, expected }
        }
        other => {
            let (key, found) = ("model".into(), "impossible to save".into());
            Complaint { key, found, expected: other.to_string() }
        }
    })
}

/// Rejects a family that the objective does not train, and keys of positions and of local attention for a family without
/// the choice.
fn of_the_family(model: &NewModel, objective: &ObjectiveSection) -> Check {
    if matches!(objective, ObjectiveSection::ReplacedTokens { .. }) {
        let is_electra = [Family::BERT, Family::ELECTRA].contains(&model.family);
        let found = format!("\"{}\"", model.family.model_type());
        let expected = "\"electra\", or no such key: `objective.kind` is \"replaced-tokens\"";
        ensure(is_electra, "model.family", found, expected)?;
    }
    let expected = "\"bert\" with `model.positions`, which chooses this format itself";
    ensure(model.family != Family::CLOZE_BERT, "model.family", "\"cloze-bert\"", expected)?;
    if let Some(kind) = model.positions {
        let found = format!("\"{}\"", kind.name());
        let family = model.family.model_type();
        let expected =
            format!("no such key: a \"{family}\", which `model.family` asks for, has positions of its own");
        ensure(model.family == Family::BERT, "model.positions", &found, expected)?;
        let is_electra = matches!(objective, ObjectiveSection::ReplacedTokens { .. });
        let expected =
            "\"learned\", or no such key: `objective.kind` is \"replaced-tokens\", and ELECTRA has no others";
        ensure(!is_electra || kind == PositionKind::Learned, "model.positions", &found, expected)?;
        rotated_in_pairs(kind, model.d_model, model.n_heads)?;
    }
    let is_local = model.family == Family::MODERNBERT;
    let expected = "no such key unless `model.family` is \"modernbert\"";
    for (key, given, least) in
        [("model.local_window", model.local_window, 0), ("model.global_every", model.global_every, 1)]
    {
        let Some(found) = given else { continue };
        ensure(is_local, key, found, expected)?;
        at_least(least, key, found)?;
    }
    Ok(())
}

/// Checks that rotary positions find pairs of features in the heads, which share `d_model` evenly.
pub(crate) fn rotated_in_pairs(kind: PositionKind, d_model: usize, n_heads: usize) -> Check {
    let width = d_model / n_heads;
    let expected = format!(
        "heads of an even width, whose features `model.positions` = \"rotary\" rotates in pairs: {d_model} / {n_heads} is \
         {width}"
    );
    ensure(kind != PositionKind::Rotary || width.is_multiple_of(2), "model.n_heads", n_heads, expected)
}

/// Checks `[train]` with sequences of this many tokens.
pub(super) fn train(train: &TrainSection, seq_len: usize) -> Check {
    at_least(1, "train.steps", train.steps)?;
    // Tokens of a batch are numbered in 31 bits.
    within(1..=MOST / seq_len.clamp(1, MOST), "train.batch_size", train.batch_size)?;
    within(1..=MOST, "train.accumulate", train.accumulate)?;
    within(1..=256, "train.workers", train.workers)?;
    within(1..=65_536, "train.prefetch", train.prefetch)
}

/// Checks `[optimizer]` of any run.
pub(crate) fn optimizer(optimizer: &OptimizerSection) -> Check {
    positive("optimizer.lr", optimizer.lr)?;
    below_one("optimizer.beta1", optimizer.beta1)?;
    below_one("optimizer.beta2", optimizer.beta2)?;
    positive("optimizer.eps", optimizer.eps)?;
    not_negative("optimizer.weight_decay", optimizer.weight_decay)?;
    not_negative("optimizer.clip_norm", optimizer.clip_norm)?;
    for group in &optimizer.groups {
        not_negative("optimizer.groups.lr_scale", group.lr_scale)?;
        not_negative("optimizer.groups.weight_decay", group.weight_decay.unwrap_or(0.0))?;
    }
    Ok(())
}

/// Checks `[schedule]` of a run of this many steps.
pub(crate) fn schedule(schedule: &Schedule, steps: u64) -> Check {
    schedule.check_warmup(steps)?;
    decay(schedule)
}

/// Checks `[schedule]` of a run whose number of steps only the data decides; the engine then checks the warm-up.
pub(crate) fn schedule_of_epochs(schedule: &Schedule) -> Check {
    // The number of steps is not known yet, so no warm-up is too long.
    schedule.check_warmup(0)?;
    decay(schedule)
}

/// Checks a schedule except for its warm-up.
fn decay(schedule: &Schedule) -> Check {
    match *schedule {
        Schedule::Linear { final_fraction, .. } | Schedule::Cosine { final_fraction, .. } => {
            share("schedule.final_fraction", final_fraction)
        }
        Schedule::Trapezoidal { decay_steps, final_fraction, .. } => {
            at_least(1, "schedule.decay_steps", decay_steps)?;
            share("schedule.final_fraction", final_fraction)
        }
        Schedule::SlantedTriangular { ratio, .. } => ensure(
            ratio >= 1.0 && ratio.is_finite(),
            "schedule.ratio",
            ratio,
            "a number of 1 or more, such as 32",
        ),
        Schedule::InverseSqrt { .. } | Schedule::Constant { .. } => Ok(()),
    }
}

/// Checks `[average]` of any run; averaging the best models needs evaluations.
pub(crate) fn averaging(average: Option<&Averaging>, is_measured: bool) -> Check {
    match average {
        None => Ok(()),
        Some(Averaging::Ema { decay }) => below_one("average.decay", *decay),
        Some(Averaging::Last { checkpoints, every }) => {
            within(1..=1_000, "average.checkpoints", *checkpoints)?;
            at_least(1, "average.every", *every)
        }
        Some(Averaging::Best { checkpoints }) => {
            within(1..=1_000, "average.checkpoints", *checkpoints)?;
            let expected = "another one: there is no data to measure with during training";
            ensure(is_measured, "average.kind", "\"best\"", expected)
        }
    }
}

/// Checks `[eval]` of a run with held-out documents.
pub(super) fn held_out(eval: &EvalSection) -> Check {
    let heldout = eval.heldout_fraction;
    ensure(heldout > 0.0 && heldout < 1.0, "eval.heldout_fraction", heldout, "a number above 0 and below 1")?;
    at_least(1, "eval.every", eval.every)?;
    at_least(1, "eval.batch_size", eval.batch_size)?;
    at_least(1, "eval.max_examples", eval.max_examples)?;
    at_least(1, "eval.patience", eval.patience.unwrap_or(1))
}

/// Checks `[checkpoint]` and `[log]`.
pub(super) fn records(checkpoint: &CheckpointSection, log: &LogSection) -> Check {
    at_least(1, "checkpoint.every", checkpoint.every)?;
    at_least(1, "checkpoint.keep_last", checkpoint.keep_last)?;
    at_least(1, "log.every", log.every)
}

pub(crate) fn ensure(
    holds: bool,
    key: &'static str,
    found: impl Display,
    expected: impl Into<String>,
) -> Check {
    if holds {
        return Ok(());
    }
    Err(Complaint { key: key.into(), found: found.to_string(), expected: expected.into() })
}

/// A number for a message, without many zeros.
pub(crate) fn shown(number: f64) -> String {
    let size = number.abs();
    match size > 0.0 && !(1e-3..1e15).contains(&size) && number.is_finite() {
        true => format!("{number:e}"),
        false => number.to_string(),
    }
}

pub(crate) fn at_least<T: PartialOrd + Display>(least: T, key: &'static str, value: T) -> Check {
    let expected = format!("a whole number of {least} or more");
    ensure(value >= least, key, value, expected)
}

pub(crate) fn within(range: RangeInclusive<usize>, key: &'static str, value: usize) -> Check {
    let expected = format!("a whole number from {} to {}", range.start(), range.end());
    ensure(range.contains(&value), key, value, expected)
}

// Comparisons with NaN are false, so that these refuse it.

pub(crate) fn share(key: &'static str, value: f64) -> Check {
    ensure((0.0..=1.0).contains(&value), key, value, "a number from 0 to 1")
}

pub(crate) fn below_one(key: &'static str, value: f64) -> Check {
    ensure((0.0..1.0).contains(&value), key, value, "a number from 0 to below 1")
}

pub(crate) fn positive(key: &'static str, value: f64) -> Check {
    ensure(value > 0.0 && value.is_finite(), key, value, "a number above 0")
}

pub(crate) fn not_negative(key: &'static str, value: f64) -> Check {
    ensure(value >= 0.0 && value.is_finite(), key, value, "a number of 0 or more")
}
