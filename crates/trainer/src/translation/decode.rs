//! Translations of a split, for BLEU.

use super::folder::DecodingDefaults;
use super::vocabulary::Vocabularies;
use crate::Result;
use crate::engine::{Advance, share_out};
use burn::tensor::Device;
use cloze_data::parallel::LoadedPairs;
use cloze_evaluation::translation::{Bleu, score};
use cloze_model::generate::{BeamSearch, DecodeConfig, Request, Search, translate};
use cloze_model::seq2seq::EncoderDecoder;

/// The pairs' sources translated with this many beams; 1 is greedy.
///
/// # Errors
/// Non-finite model outputs; a tokenizer that cannot decode.
pub(super) fn translations<M: EncoderDecoder>(
    model: &M,
    vocabularies: &Vocabularies,
    pairs: &LoadedPairs,
    beams: usize,
    device: &Device,
    advanced: &mut dyn FnMut(Advance),
) -> Result<Vec<String>> {
    let special = vocabularies.special;
    let mut config = DecodeConfig::new(vec![special.end as i32]);
    config.forbidden_ids =
        [Some(special.pad), special.bos].into_iter().flatten().map(|id| id as i32).collect();
    config.forbidden_ids.retain(|id| *id != special.end as i32);
    if beams > 1 {
        config = config.with_search(Search::Beam(BeamSearch::new(beams)));
    }
    let lengths = DecodingDefaults::default();
    let requests = pairs.ids.iter().map(|[source, _]| {
        let input: Vec<i32> = source.iter().map(|id| *id as i32).collect();
        Request::new(input, lengths.max_new(source.len()))
    });
    let requests: Vec<Request> = requests.collect();
    share_out(requests.len(), |own| {
        let n = own.len();
        let mut translated = Vec::with_capacity(n);
        for texts in translate(model, special.begin as i32, &config, device, requests[own].iter().cloned())? {
            let best = texts?.into_iter().next().map_or_else(Vec::new, |text| text.ids);
            let ids: Vec<u32> = best.into_iter().map(|id| id as u32).collect();
            translated.push(vocabularies.target.decode(&ids, true)?.trim().to_owned());
            let share = translated.len() as f64 / n as f64;
            advanced(Advance { done: translated.len(), share });
        }
        Ok(translated)
    })
}

/// BLEU of translations of the pairs' sources, as sacreBLEU computes it by default, from 0 to 100.
///
/// # Errors
/// None if there are as many translations as pairs.
pub(super) fn bleu(translations: &[String], pairs: &LoadedPairs) -> Result<f64> {
    let references: Vec<&str> = pairs.texts.iter().map(|pair| pair.target.as_str()).collect();
    let translations: Vec<&str> = translations.iter().map(String::as_str).collect();
    Ok(score(&Bleu::default(), &translations, &[references])?.value)
}
