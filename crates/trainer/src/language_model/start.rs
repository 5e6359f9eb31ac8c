//! A run's initial weights: random, or a checkpoint's.

use crate::config::{LanguageModelConfig, LanguageModelSection};
use crate::engine::RunOptions;
use crate::fit::check_vocabulary;
use crate::memory::{self, Keys, Load, MemoryEstimate, Sizes};
use crate::running_text::initial::{InitialModel, check, check_sampled};
use crate::{Result, TrainerError};
use burn::tensor::Device;
use cloze_data::{SpecialPieces, derive_seed};
use cloze_model::ParamInit;
use cloze_model::bert::BertConfig;
use cloze_model::gpt::GptConfig;
use cloze_model::huggingface::read_published;
use cloze_tokenizer::Tokenizer;

/// Separates the random stream of the initial parameters from all others of a seed.
const INIT_STREAM: u64 = 0x6217;

/// The model configured by `config` for `tokenizer`.
///
/// # Errors
/// Sizes that are inconsistent or too large for memory; a model that could not be saved; checkpoint errors;
/// blocks longer than its positions; [`TrainerError::VocabularyMismatch`].
pub(super) fn initial_model(
    config: &LanguageModelConfig,
    tokenizer: &Tokenizer,
    options: &RunOptions<'_>,
) -> Result<InitialModel<GptConfig>> {
    let device = options.device.clone().autodiff();
    let mut init = ParamInit::new(&device, derive_seed(config.common.run.seed, &[INIT_STREAM]));
    match &config.model {
        LanguageModelSection::New(section) => {
            let mut gpt = section.gpt(tokenizer.vocab_size());
            let special = SpecialPieces::find(tokenizer);
            gpt.begin_token_id = special.begin.map(|id| id as usize);
            gpt.end_token_id = special.end.map(|id| id as usize);
            check(&gpt)?;
            check_sampled(&section.output, gpt.vocab_size)?;
            check_memory(config, &gpt, options)?;
            let mut init = init.with_std(gpt.init_std);
            Ok(InitialModel::new(gpt, &mut init))
        }
        LanguageModelSection::Pretrained(section) => {
            let mut gpt: GptConfig = read_published(&section.path)?;
            let (found, seq_len) = (gpt.max_positions, config.blocks.seq_len);
            if seq_len > found {
                let expected = format!("at most {found}, the positions of `model.path`");
                let (key, found) = ("blocks.seq_len".into(), seq_len.to_string());
                return Err(TrainerError::Setting { key, found, expected });
            }
            check_vocabulary(tokenizer, &section.path, gpt.vocab_size)?;
            if let Some(dropout) = section.hidden_dropout {
                (gpt.embedding_dropout, gpt.hidden_dropout) = (dropout, dropout);
            }
            gpt.attention_dropout = section.attention_dropout.unwrap_or(gpt.attention_dropout);
            check(&gpt)?;
            check_memory(config, &gpt, options)?;
            InitialModel::load(gpt, &section.path, &mut init)
        }
    }
}

/// The run's memory estimate.
pub(super) fn memory(config: &LanguageModelConfig, gpt: &GptConfig, device: &Device) -> MemoryEstimate {
    let model = gpt.init(&mut ParamInit::new(device, 0).deferred());
    let parameters = memory::n_parameters(&model);
    // An encoder that keeps as much: its last layer works on some tokens alone, this one's on all.
    let n_logits = match &config.model {
        LanguageModelSection::New(section) => section.output.n_logits(gpt.vocab_size),
        LanguageModelSection::Pretrained(_) => gpt.vocab_size,
    };
    let mut encoder = BertConfig::new(n_logits, gpt.n_layers + 1, gpt.d_model);
    encoder.n_heads = gpt.n_heads;
    encoder.d_ff = if gpt.gated { gpt.d_ff.saturating_mul(3) / 2 } else { gpt.d_ff };
    let train = &config.train;
    let load = Load {
        sequences: train.batch_size as u64,
        mean_len: config.blocks.seq_len as f64,
        predicted: 1.0,
        batches: (train.accumulate + train.prefetch + train.workers) as u64,
        recompute: train.recompute,
    };
    MemoryEstimate::new(&encoder, parameters, parameters, load)
}

/// Rejects a run that certainly needs more memory than available.
///
/// # Errors
/// [`TrainerError::Memory`]; inconsistent sizes.
pub(super) fn check_memory(
    config: &LanguageModelConfig,
    gpt: &GptConfig,
    options: &RunOptions<'_>,
) -> Result<()> {
    gpt.validate()?;
    let GptConfig { n_layers, d_model, d_ff, max_positions, vocab_size, .. } = *gpt;
    let sizes = Sizes { n_layers, d_model, d_ff, max_positions, vocab_size };
    let seq_len = ("blocks.seq_len", config.blocks.seq_len);
    let keys = Keys::of_text(config.model.checkpoint(), &sizes, &config.train, seq_len, &options.device);
    memory::check(&memory(config, gpt, &options.device), options.memory, &keys)
}
