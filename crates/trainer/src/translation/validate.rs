//! Validates translation config values beyond their types.

use super::config::{TranslationConfig, TranslationRun, VocabularySection};
use crate::config::validate::{
    Check, at_least, averaging, below_one, ensure, max_skipped, optimizer, schedule, within,
};
use cloze_data::parallel::OnBadPair;

/// The evaluation metrics.
pub(super) const METRICS: [&str; 4] = ["loss", "perplexity", "token_accuracy", "bleu"];

/// Maximum tokens of a batch: they are indexed with 31 bits.
const MOST: usize = i32::MAX as usize;

/// Checks every value of `config` and their consistency; returns the first complaint.
pub(super) fn validate(config: &TranslationConfig) -> Check {
    parallel(config)?;
    tokenizers(config)?;
    config.model.check(config.tokenizer.is_some(), config.parallel.max_len)?;
    train(config)?;
    optimizer(&config.common.optimizer)?;
    schedule(&config.common.schedule, config.train.steps)?;
    averaging(config.common.average.as_ref(), !config.parallel.dev.is_empty())?;
    eval(config)?;
    at_least(1, "checkpoint.every", config.common.checkpoint.every)?;
    at_least(1, "checkpoint.keep_last", config.common.checkpoint.keep_last)?;
    at_least(1, "log.every", config.common.log.every)
}

fn parallel(config: &TranslationConfig) -> Check {
    let section = &config.parallel;
    for (key, language) in [("parallel.source", &section.source), ("parallel.target", &section.target)] {
        ensure(!language.trim().is_empty(), key, "\"\"", "the language's name, such as \"en\"")?;
    }
    ensure(
        section.source != section.target,
        "parallel.target",
        &section.target,
        "another language than `parallel.source`",
    )?;
    let skips = section.on_bad_pair == OnBadPair::Skip;
    max_skipped("parallel.max_skipped", section.max_skipped, skips, "`parallel.on_bad_pair` = \"skip\"")?;
    // The piece that ends a text, and one of the text.
    at_least(2, "parallel.max_len", section.max_len)?;
    ensure(!section.train.is_empty(), "parallel.train", "empty", "files: `source` and `target`, or `files`")
}

fn tokenizers(config: &TranslationConfig) -> Check {
    let TranslationRun { tokenizer, source_tokenizer, target_tokenizer, .. } = &config.kind;
    let either = "either `tokenizer`, or both `source_tokenizer` and `target_tokenizer`";
    match (tokenizer, source_tokenizer, target_tokenizer) {
        (Some(tokenizer), None, None) => vocabulary("tokenizer.vocab_size", tokenizer),
        (None, Some(source), Some(target)) => {
            vocabulary("source_tokenizer.vocab_size", source)?;
            vocabulary("target_tokenizer.vocab_size", target)
        }
        (Some(_), Some(_), _) => ensure(false, "source_tokenizer", "there", either),
        (Some(_), None, Some(_)) => ensure(false, "target_tokenizer", "there", either),
        (None, None, _) => ensure(false, "tokenizer", "absent", either),
        (None, Some(_), None) => ensure(false, "target_tokenizer", "absent", either),
    }
}

pub(crate) fn vocabulary(key: &'static str, section: &VocabularySection) -> Check {
    match *section {
        // Four special tokens and an alphabet are the least a vocabulary can do with; of bytes there are 256.
        VocabularySection::TrainBpe { vocab_size, .. }
        | VocabularySection::TrainWordpiece { vocab_size, .. }
        | VocabularySection::TrainUnigram { vocab_size, .. } => at_least(32, key, vocab_size),
        VocabularySection::TrainByteBpe { vocab_size, .. } => at_least(261, key, vocab_size),
        // Four special tokens, and a word.
        VocabularySection::TrainWords { vocab_size, .. } => at_least(5, key, vocab_size),
        VocabularySection::Load { .. } => Ok(()),
    }
}

fn train(config: &TranslationConfig) -> Check {
    let train = &config.train;
    at_least(1, "train.steps", train.steps)?;
    ensure(
        train.batch_tokens.is_some() || train.batch_size.is_some(),
        "train.batch_tokens",
        "absent",
        "it or `train.batch_size`",
    )?;
    within(1..=MOST, "train.batch_tokens", train.batch_tokens.unwrap_or(1))?;
    within(1..=MOST / (2 * config.parallel.max_len), "train.batch_size", train.batch_size.unwrap_or(1))?;
    within(1..=MOST, "train.accumulate", train.accumulate)?;
    within(1..=256, "train.workers", train.workers)?;
    within(1..=65_536, "train.prefetch", train.prefetch)?;
    below_one("train.label_smoothing", train.label_smoothing)?;
    let output = config.model.output();
    let expected = format!(
        "0: targets are spread over the whole vocabulary, of which `model.output.kind` = \"{}\" computes a part",
        output.kind()
    );
    let is_possible = output.is_whole() || train.label_smoothing == 0.0;
    ensure(is_possible, "train.label_smoothing", train.label_smoothing, expected)
}

fn eval(config: &TranslationConfig) -> Check {
    let eval = &config.eval;
    at_least(1, "eval.every", eval.every)?;
    let listed = METRICS.map(|name| format!("\"{name}\"")).join(", ");
    ensure(METRICS.contains(&&*eval.metric), "eval.metric", &eval.metric, format!("one of {listed}"))?;
    ensure(
        eval.metric != "bleu" || eval.bleu_every == 1,
        "eval.bleu_every",
        eval.bleu_every,
        "1, as `eval.metric` is \"bleu\"",
    )?;
    within(1..=1_000, "eval.beams", eval.beams)?;
    at_least(1, "eval.patience", eval.patience.unwrap_or(1))?;
    ensure(
        eval.patience.is_none() || !config.parallel.dev.is_empty(),
        "eval.patience",
        eval.patience.unwrap_or(0),
        "it to be absent: it requires `parallel.dev`",
    )?;
    within(1..=MOST, "eval.batch_tokens", eval.batch_tokens)
}
