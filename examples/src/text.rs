//! Running text in blocks, for language models: the repository's sample as ids.

use cloze_data::{Assemble, CorpusConfig, DataError, Permutation, Placed, derive_seed, documents};
use cloze_tokenizer::Tokenizer;
use cloze_tokenizer::train::BpeTrainer;
use cloze_trainer::Result;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The sample in two parts.
pub struct Text {
    /// What made the ids: byte-level BPE, trained on the sample.
    pub tokenizer: Tokenizer,
    /// The first nineteen twentieths.
    pub train: Arc<Blocks>,
    /// The rest.
    pub held_out: Arc<Blocks>,
}

/// Text cut into blocks of so many ids, in another order each epoch. A batch is its blocks' ids one after another.
pub struct Blocks {
    ids: Vec<i32>,
    /// Ids of a block.
    pub len: usize,
    seed: u64,
}

impl Text {
    /// The sample in blocks of `len` ids.
    ///
    /// # Errors
    /// A sample that is not there.
    pub fn load(len: usize, seed: u64) -> Result<Self> {
        let config =
            CorpusConfig { files: vec![crate::sample().display().to_string()], ..Default::default() };
        let texts: std::result::Result<Vec<String>, DataError> = documents(&config, Path::new(""))?
            .map(|document| document.map(|document| document.text().to_string()))
            .collect();
        let texts = texts?;
        let trainer = BpeTrainer { vocab_size: 2_048, ..Default::default() };
        let tokenizer = trainer.train(texts.iter())?;
        let ids = tokenizer.encode_ids_batch(&texts, false)?;
        let ids: Vec<i32> = ids.into_iter().flatten().map(|id| id as i32).collect();
        let (train, held_out) = ids.split_at(ids.len() / 20 * 19);
        let blocks = |ids: &[i32]| Arc::new(Blocks { ids: ids.to_vec(), len, seed });
        Ok(Self { train: blocks(train), held_out: blocks(held_out), tokenizer })
    }
}

impl Assemble for Blocks {
    type Plan = Permutation;
    type Batch = Vec<i32>;

    fn plan(&self, epoch: u64, _stop: &AtomicBool) -> cloze_data::Result<Permutation> {
        Ok(Permutation::new((self.ids.len() / self.len) as u64, derive_seed(self.seed, &[epoch])))
    }

    fn n_examples(&self, _: &Permutation) -> u64 {
        (self.ids.len() / self.len) as u64
    }

    fn assemble(&self, examples: &[Placed<'_, Permutation>]) -> cloze_data::Result<Vec<i32>> {
        let block = |placed: &Placed<'_, Permutation>| placed.plan.get(placed.place) as usize * self.len;
        Ok(examples.iter().flat_map(|placed| &self.ids[block(placed)..][..self.len]).copied().collect())
    }
}
