//! Held-out texts with their noise, and a model's outputs.

use super::tokenizer::first_piece;
use crate::Result;
use crate::translation::Vocabularies;
use burn::tensor::Device;
use cloze_data::DenoisingConfig;
use cloze_data::parallel::PairBatch;
use cloze_model::generate::{DecodeConfig, Request, translate};
use cloze_model::seq2seq::EncoderDecoder;

/// Number of samples in a run's report.
pub(super) const SAMPLES: usize = 8;

/// Tokens that a model may generate beyond the target's length.
const BEYOND: usize = 8;

/// A noisy text, its target, and the model's output.
pub(super) struct Sample {
    pub source: String,
    pub target: String,
    pub said: String,
}

impl std::fmt::Display for Sample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { source, target, said } = self;
        write!(f, "noisy   {source}\ntarget  {target}\nmodel   {said}")
    }
}

/// The first held-out texts, each decoded greedily.
///
/// # Errors
/// Non-finite model outputs; a tokenizer that cannot decode.
pub(super) fn samples<M: EncoderDecoder>(
    model: &M,
    vocabularies: &Vocabularies,
    noise: &DenoisingConfig,
    batches: &[PairBatch],
    device: &Device,
) -> Result<Vec<Sample>> {
    let pairs = batches.iter().flat_map(|batch| batch.source.iter().zip(batch.target.iter())).take(SAMPLES);
    let pairs: Vec<(&[i32], &[i32])> = pairs.collect();
    let special = vocabularies.special;
    let first = first_piece(vocabularies, noise);
    let mut config = DecodeConfig::new(vec![special.end as i32]);
    config.forbidden_ids = [Some(special.pad), first].into_iter().flatten().map(|id| id as i32).collect();
    config.forbidden_ids.retain(|id| *id != special.end as i32);
    let requests: Vec<Request> = pairs
        .iter()
        .map(|(source, target)| {
            let prefix = first.iter().map(|id| *id as i32).collect();
            Request::new(source.to_vec(), target.len() + BEYOND).with_prefix(prefix)
        })
        .collect();
    // Masks and sentinels are shown, what stands around a text is not.
    let around = [Some(special.end), Some(special.pad), first];
    let text = |ids: &[i32]| -> Result<String> {
        let ids: Vec<u32> =
            ids.iter().map(|id| *id as u32).filter(|id| !around.contains(&Some(*id))).collect();
        let text = vocabularies.target.decode(&ids, false)?;
        Ok(text.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let mut samples = Vec::with_capacity(pairs.len());
    let said = translate(model, special.begin as i32, &config, device, requests)?;
    for ((source, target), said) in pairs.iter().zip(said) {
        let said = said?.into_iter().next().map_or_else(Vec::new, |best| best.ids);
        samples.push(Sample { source: text(source)?, target: text(target)?, said: text(&said)? });
    }
    Ok(samples)
}
