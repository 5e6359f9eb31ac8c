//! The states of words in every layer, computed once.

use crate::fit::check_fit;
use crate::input::packed;
use crate::periodic_notes::PeriodicNotes;
use crate::{Result, TrainerError};
use burn::tensor::{Device, Int, Tensor};
use cloze_data::labelled::{LabelSet, LongSentences, TaggedSentence, encode_tags};
use cloze_data::{TokenBatch, TokenSequence};
use cloze_evaluation::table;
use cloze_model::ParamInit;
use cloze_model::bert::Bert;
use cloze_model::blocks::{EncoderTrace, pack_weights};
use cloze_model::huggingface::PretrainedFolder;
use cloze_tokenizer::{Encoding, OffsetUnit, Sequence, Tokenizer, Truncation};
use rayon::prelude::*;
use std::path::Path;

/// An encoder whose layer states are read.
pub(crate) struct LayerEncoder {
    tokenizer: Tokenizer,
    model: Bert,
    device: Device,
    /// The layers to read, ascending; 0 is the embeddings.
    pub layers: Vec<usize>,
    /// Width of a state.
    pub width: usize,
    /// Maximum tokens of a sequence, special tokens included.
    pub max_len: usize,
    batch_tokens: usize,
}

/// A sequence and the positions whose states are read.
pub(crate) struct Reading {
    sequence: TokenSequence,
    places: Vec<usize>,
}

impl Reading {
    /// The same sequence, of which only the first token's state is read.
    pub fn of_first(self) -> Self {
        Self { places: vec![0], ..self }
    }
}

/// Vectors of each layer.
pub(crate) struct LayerVectors {
    /// For each layer read, `[n · width]`.
    pub of_layers: Vec<Vec<f32>>,
    pub width: usize,
}

/// The states of sentences' words.
pub(crate) struct WordStates {
    pub vectors: LayerVectors,
    /// The index of each sentence's first word, plus the total number of words.
    pub starts: Vec<usize>,
}

impl LayerEncoder {
    /// Loads a Hugging Face folder; `layers` default to all.
    ///
    /// # Errors
    /// A missing or damaged file in the folder; a tokenizer of another model; a missing layer.
    pub fn load(
        folder: &Path,
        layers: Option<&[usize]>,
        (max_len, batch_tokens): (usize, usize),
        device: &Device,
    ) -> Result<Self> {
        let tokenizer = Tokenizer::load(folder)?;
        let (config, mut model, _) =
            PretrainedFolder::open(folder)?.load_encoder(&mut ParamInit::new(device, 0))?;
        check_fit(&tokenizer, &config, folder, false)?;
        pack_weights(&mut model);
        let layers = layers.map_or_else(|| (0..=config.n_layers).collect(), <[usize]>::to_vec);
        if layers.iter().any(|layer| *layer > config.n_layers) {
            return Err(TrainerError::Setting {
                key: "model.layers".into(),
                found: format!("{layers:?}"),
                expected: format!("numbers from 0, the embeddings, to {}, the last layer", config.n_layers),
            });
        }
        let (width, max_len) = (config.d_model, max_len.min(config.max_positions));
        Ok(Self { tokenizer, model, device: device.clone(), layers, width, max_len, batch_tokens })
    }

    /// How to read each sentence of words: the first piece of each word, as in taggers (Devlin et al. 2019,
    /// §5.3). None for a sentence that is too long or has a word without a piece.
    ///
    /// # Errors
    /// Tokenizer errors.
    pub fn readings(&self, sentences: &[Vec<String>]) -> Result<Vec<Option<Reading>>> {
        let untagged: Vec<TaggedSentence> =
            sentences.iter().map(|words| TaggedSentence { words: words.clone(), tags: Vec::new() }).collect();
        let labels = LabelSet::given(["none"])?;
        let (features, _) =
            encode_tags(&self.tokenizer, &untagged, &labels, self.max_len, LongSentences::Truncate)?;
        let mut readings: Vec<Option<Reading>> = sentences.iter().map(|_| None).collect();
        for feature in features {
            if feature.words.len() == sentences[feature.sentence].len() {
                readings[feature.sentence] =
                    Some(Reading { sequence: feature.sequence, places: feature.positions });
            }
        }
        Ok(readings)
    }

    /// How to read texts: all tokens, including special ones. Texts that are too long are truncated.
    ///
    /// # Errors
    /// Tokenizer errors.
    pub fn texts(&self, texts: &[&str]) -> Result<Vec<Reading>> {
        let mut tokenizer = self.tokenizer.clone();
        tokenizer.set_truncation(Some(Truncation::to(self.max_len)))?;
        tokenizer.set_padding(None)?;
        tokenizer.set_keep_overflow(false);
        let texts: Vec<Sequence> = texts.iter().map(|text| Sequence::Text(text)).collect();
        let encodings = tokenizer.encode_inputs(&texts, true, OffsetUnit::Bytes)?;
        let reading = |encoding: &Encoding| {
            let sequence = TokenSequence::from(encoding);
            Reading { places: (0..sequence.len()).collect(), sequence }
        };
        Ok(encodings.iter().map(reading).collect())
    }

    /// The states of words, sentence by sentence.
    ///
    /// # Errors
    /// Those of [`means`](Self::means).
    pub fn words(&self, readings: &[Reading], what: &str, notes: &PeriodicNotes) -> Result<WordStates> {
        let mut starts = vec![0];
        for reading in readings {
            starts.push(starts[starts.len() - 1] + reading.places.len());
        }
        let mut vectors = self.zeros(starts[readings.len()]);
        self.read(readings, what, notes, |reading, layer, states| {
            let start = starts[reading] * self.width;
            vectors.of_layers[layer][start..start + states.len()].copy_from_slice(states);
        })?;
        Ok(WordStates { vectors, starts })
    }

    /// The mean of each sequence's states.
    ///
    /// # Errors
    /// [`TrainerError::OutputNotFinite`].
    pub fn means(&self, readings: &[Reading], what: &str, notes: &PeriodicNotes) -> Result<LayerVectors> {
        let mut vectors = self.zeros(readings.len());
        self.read(readings, what, notes, |reading, layer, states| {
            let mean = &mut vectors.of_layers[layer][reading * self.width..][..self.width];
            add_mean(states, mean);
        })?;
        Ok(vectors)
    }

    fn zeros(&self, n: usize) -> LayerVectors {
        let of_layers = self.layers.iter().map(|_| vec![0.0; n * self.width]).collect();
        LayerVectors { of_layers, width: self.width }
    }

    /// Passes on the states of each reading in each layer, `[places · width]`, in batches sorted by length.
    fn read(
        &self,
        readings: &[Reading],
        what: &str,
        notes: &PeriodicNotes,
        mut take: impl FnMut(usize, usize, &[f32]),
    ) -> Result<()> {
        let len = |reading: &usize| readings[*reading].sequence.len();
        // A tokenizer without special tokens makes nothing of an empty text: its mean stays zero.
        let mut order: Vec<usize> = (0..readings.len()).filter(|reading| len(reading) > 0).collect();
        order.sort_by_key(len);
        let total: usize = order.iter().map(len).sum();
        let (mut rest, mut done) = (&order[..], 0);
        while !rest.is_empty() {
            // The longest of a batch is its last one.
            let fits = rest.iter().enumerate().take_while(|(at, of)| (at + 1) * len(of) <= self.batch_tokens);
            let (batch, later) = rest.split_at(fits.count().max(1));
            self.read_batch(batch, readings, &mut take)?;
            done += batch.iter().map(len).sum::<usize>();
            rest = later;
            let share = done as f64 / total as f64;
            notes.note(|seconds| {
                let left = table::duration(seconds * (1.0 - share) / share);
                format!(
                    "{what}: {} of {} tokens · {left} left",
                    table::percent(share),
                    table::grouped(total as u64)
                )
            });
        }
        Ok(())
    }

    fn read_batch(
        &self,
        batch: &[usize],
        readings: &[Reading],
        take: &mut impl FnMut(usize, usize, &[f32]),
    ) -> Result<()> {
        let mut tokens = TokenBatch::new().with_max_len(self.max_len);
        let mut places = Vec::new();
        for reading in batch {
            let start = tokens.n_tokens();
            let Reading { sequence, places: of } = &readings[*reading];
            tokens.push(&sequence.input_ids, &sequence.token_type_ids);
            places.extend(of.iter().map(|place| (start + place) as i32));
        }
        let trace = EncoderTrace { hidden_states: true, ..EncoderTrace::default() };
        let output = self.model.forward(packed(&tokens, &self.device).with_trace(trace));
        let places = Tensor::<1, Int>::from_data(places.as_slice(), &self.device);
        for (at, layer) in self.layers.iter().enumerate() {
            let states = output.hidden_states[*layer].clone().squeeze_dim::<2>(0).select(0, places.clone());
            let states = states.into_data().try_into_vec::<f32>().expect("states are FP32");
            if !states.iter().all(|x| x.is_finite()) {
                return Err(TrainerError::OutputNotFinite);
            }
            let mut rest = &states[..];
            for reading in batch {
                let (of, later) = rest.split_at(readings[*reading].places.len() * self.width);
                take(*reading, at, of);
                rest = later;
            }
        }
        Ok(())
    }
}

impl WordStates {
    /// The number of words.
    pub fn len(&self) -> usize {
        self.starts[self.n_sentences()]
    }

    /// The number of sentences.
    pub fn n_sentences(&self) -> usize {
        self.starts.len() - 1
    }

    /// The words of a sentence in a layer, `[n_words · width]`.
    pub fn sentence(&self, layer: usize, sentence: usize) -> &[f32] {
        let width = self.vectors.width;
        &self.vectors.of_layers[layer][self.starts[sentence] * width..self.starts[sentence + 1] * width]
    }

    /// The mean of each sentence's words.
    pub fn means(&self) -> LayerVectors {
        let width = self.vectors.width;
        let of_layer = |layer: usize| {
            let mut means = vec![0.0; self.n_sentences() * width];
            means
                .par_chunks_exact_mut(width)
                .enumerate()
                .for_each(|(sentence, mean)| add_mean(self.sentence(layer, sentence), mean));
            means
        };
        LayerVectors { of_layers: (0..self.vectors.of_layers.len()).map(of_layer).collect(), width }
    }
}

/// Adds the mean of `states`, `[n · width]`, to `mean`, `[width]`.
fn add_mean(states: &[f32], mean: &mut [f32]) {
    let n = (states.len() / mean.len()) as f32;
    for state in states.chunks_exact(mean.len()) {
        mean.iter_mut().zip(state).for_each(|(mean, x)| *mean += x / n);
    }
}
