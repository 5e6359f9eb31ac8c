//! A run's initial weights: random, or a checkpoint's.

use crate::Result;
use crate::config::{PermutationConfig, XlnetSection};
use crate::engine::RunOptions;
use crate::fit::check_vocabulary;
use crate::memory::{self, Keys, Load, MemoryEstimate, Sizes};
use crate::running_text::initial::{InitialModel, check};
use burn::tensor::Device;
use cloze_data::{SpecialPieces, derive_seed};
use cloze_model::ParamInit;
use cloze_model::bert::BertConfig;
use cloze_model::huggingface::read_published;
use cloze_model::xlnet::XlnetConfig;
use cloze_tokenizer::Tokenizer;

/// Separates the random stream of the initial parameters from all others of a seed.
const INIT_STREAM: u64 = 0x8217;

/// The model configured by `config` for `tokenizer`.
///
/// # Errors
/// Sizes that are inconsistent or too large for memory; a model that could not be saved; checkpoint errors;
/// [`TrainerError::VocabularyMismatch`].
pub(super) fn initial_model(
    config: &PermutationConfig,
    tokenizer: &Tokenizer,
    options: &RunOptions<'_>,
) -> Result<InitialModel<XlnetConfig>> {
    let device = options.device.clone().autodiff();
    let mut init = ParamInit::new(&device, derive_seed(config.common.run.seed, &[INIT_STREAM]));
    match &config.model {
        XlnetSection::New(section) => {
            let mut xlnet = section.xlnet(tokenizer.vocab_size());
            let special = SpecialPieces::find(tokenizer);
            let id = |piece: Option<u32>| piece.map(|id| id as usize);
            xlnet.begin_token_id = id(special.begin);
            xlnet.end_token_id = id(special.end);
            xlnet.pad_token_id = id(tokenizer.special_ids().pad);
            xlnet.memory_len = Some(config.segments.memory_len).filter(|len| *len > 0);
            check(&xlnet)?;
            check_memory(config, &xlnet, options)?;
            let mut init = init.with_std(xlnet.init_std);
            Ok(InitialModel::new(xlnet, &mut init))
        }
        XlnetSection::Pretrained(section) => {
            let mut xlnet: XlnetConfig = read_published(&section.path)?;
            check_vocabulary(tokenizer, &section.path, xlnet.vocab_size)?;
            xlnet.dropout = section.dropout.unwrap_or(xlnet.dropout);
            // What is remembered is what the run says.
            xlnet.memory_len = Some(config.segments.memory_len).filter(|len| *len > 0);
            xlnet.reuse_len = None;
            check(&xlnet)?;
            check_memory(config, &xlnet, options)?;
            InitialModel::load(xlnet, &section.path, &mut init)
        }
    }
}

/// A lower bound of the run's memory: its attention keeps more than an encoder's.
pub(super) fn memory(config: &PermutationConfig, xlnet: &XlnetConfig, device: &Device) -> MemoryEstimate {
    let model = xlnet.init(&mut ParamInit::new(device, 0).deferred());
    let parameters = memory::n_parameters(&model);
    let mut encoder = BertConfig::new(xlnet.vocab_size, xlnet.n_layers, xlnet.d_model);
    encoder.n_heads = xlnet.n_heads;
    encoder.d_ff = xlnet.d_ff;
    let (train, order) = (&config.train, config.segments.order());
    // Both streams.
    let tokens = (order.seq_len + order.n_predicted()) as f64;
    let load = Load {
        sequences: train.batch_size as u64,
        mean_len: tokens,
        predicted: order.n_predicted() as f64 / tokens,
        batches: (train.accumulate + train.prefetch + train.workers) as u64,
        recompute: false,
    };
    MemoryEstimate::new(&encoder, parameters, parameters, load)
}

/// Rejects a run that certainly needs more memory than available.
///
/// # Errors
/// [`TrainerError::Memory`]; inconsistent sizes.
pub(super) fn check_memory(
    config: &PermutationConfig,
    xlnet: &XlnetConfig,
    options: &RunOptions<'_>,
) -> Result<()> {
    xlnet.validate()?;
    let XlnetConfig { n_layers, d_model, d_ff, vocab_size, .. } = *xlnet;
    let sizes = Sizes { n_layers, d_model, d_ff, max_positions: config.segments.seq_len, vocab_size };
    let seq_len = ("segments.seq_len", config.segments.seq_len);
    let mut keys = Keys::of_text(config.model.checkpoint(), &sizes, &config.train, seq_len, &options.device);
    keys.can_recompute = false;
    memory::check(&memory(config, xlnet, &options.device), options.memory, &keys)
}
