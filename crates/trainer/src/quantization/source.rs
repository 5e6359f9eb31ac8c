//! The model that is quantised.

use crate::Result;
use crate::fit::{check_fit, check_vocabulary};
use crate::input::input;
use burn::module::ParamId;
use burn::tensor::{DType, Device, Tensor};
use cloze_data::{TokenBatch, TokenSequence};
use cloze_model::bert::Bert;
use cloze_model::blocks::{LinearMap, LinearMapKind, LinearMaps};
use cloze_model::gpt::{Gpt, GptConfig};
use cloze_model::huggingface::{
    Architecture, FloatType, Format, PretrainedConfig, PretrainedFolder, QuantizedParameters,
    QuantizedReport, load_published, model_type, save_quantized_as,
};
use cloze_model::seq2seq::{Transformer, TransformerConfig};
use cloze_model::{ParamInit, Sequences};
use cloze_tokenizer::{Encoding, Tokenizer, Truncation};
use std::path::{Path, PathBuf};

/// A linear map.
pub struct Map {
    pub path: String,
    pub id: ParamId,
    /// `[d_in, d_out]`: the model's own, not a copy.
    weight: Tensor<2>,
    /// The model's, for errors.
    pub folder: PathBuf,
}

impl Map {
    pub fn d_out(&self) -> usize {
        self.weight.dims()[1]
    }

    pub fn d_in(&self) -> usize {
        self.weight.dims()[0]
    }

    /// `[d_out, d_in]`
    pub fn rows(&self) -> Vec<f32> {
        let rows = self.weight.clone().transpose().into_data().convert_dtype(DType::F32);
        rows.try_into_vec::<f32>().expect("just converted")
    }
}

/// A model with its tokenizer.
pub struct Source {
    folder: PathBuf,
    model: Model,
}

enum Model {
    Encoder(Box<Bert>, Box<Tokenizer>),
    Decoder(Box<(GptConfig, Gpt)>, Box<Tokenizer>),
    Translator(Box<(TransformerConfig, Transformer)>),
}

/// A folder's tokenizer for texts of at most so many tokens.
pub(super) fn tokenizer_of(folder: &Path, most: usize) -> Result<Tokenizer> {
    /// Longer texts say no more about features.
    const MOST: usize = 512;
    let mut tokenizer = Tokenizer::load(folder)?;
    tokenizer.set_truncation(Some(Truncation::to(most.min(MOST))))?;
    tokenizer.set_padding(None)?;
    Ok(tokenizer)
}

impl Source {
    pub fn open(folder: &Path, device: &Device) -> Result<Self> {
        let init = &mut ParamInit::new(device, 0);
        let kind = model_type(folder)?;
        let is = |kinds: &[&str]| kind.as_deref().is_some_and(|kind| kinds.contains(&kind));
        // T5's folders hold an encoder–decoder, or the encoder alone: the class tells.
        let is_encoder = || {
            PretrainedConfig::read(&folder.join("config.json")).is_ok_and(|config| {
                config.architectures.iter().any(|name| Architecture::parse(name).is_some())
            })
        };
        let model = if is(GptConfig::MODEL_TYPES) {
            let (config, model, _) = load_published::<GptConfig>(folder, init)?;
            let tokenizer = tokenizer_of(folder, model.max_positions())?;
            check_vocabulary(&tokenizer, folder, config.vocab_size)?;
            Model::Decoder(Box::new((config, model)), Box::new(tokenizer))
        } else if is(TransformerConfig::MODEL_TYPES) && !is_encoder() {
            let (config, model, _) = load_published::<TransformerConfig>(folder, init)?;
            Model::Translator(Box::new((config, model)))
        } else {
            let (config, model, _) = PretrainedFolder::open(folder)?.load_encoder(init)?;
            let tokenizer = tokenizer_of(folder, config.max_positions)?;
            check_fit(&tokenizer, &config, folder, false)?;
            Model::Encoder(Box::new(model), Box::new(tokenizer))
        };
        Ok(Self { folder: folder.into(), model })
    }

    fn linear_maps(&mut self) -> Vec<LinearMap<'_>> {
        match &mut self.model {
            Model::Encoder(model, _) => model.linear_maps_mut(),
            Model::Decoder(model, _) => model.1.linear_maps_mut(),
            Model::Translator(model) => model.1.linear_maps_mut(),
        }
    }

    /// The maps that may be integers.
    pub fn maps(&mut self) -> Vec<Map> {
        let folder = self.folder.clone();
        let maps = self.linear_maps().into_iter().filter(|map| map.is_convertible);
        let plain = maps.filter_map(|map| match map.kind {
            LinearMapKind::Plain(linear) => Some(Map {
                path: map.path,
                id: linear.weight.id,
                weight: linear.weight.val(),
                folder: folder.clone(),
            }),
            _ => None,
        });
        plain.collect()
    }

    /// The tables of pieces, with their rows.
    pub fn tables(&mut self) -> Vec<(String, Vec<f32>, [usize; 2])> {
        let tables = match &mut self.model {
            Model::Encoder(model, _) => model.tables_mut(),
            Model::Decoder(model, _) => model.1.tables_mut(),
            Model::Translator(model) => model.1.tables_mut(),
        };
        let rows = tables.into_iter().map(|(path, table)| {
            let data = table.weight.val().into_data().convert_dtype(DType::F32);
            let dims = table.weight.lazy_shape().dims();
            (path.to_owned(), data.try_into_vec::<f32>().expect("just converted"), dims)
        });
        rows.collect()
    }

    /// The tokens of a text; none for a model whose inputs are not observed.
    pub fn encode(&self, text: &str) -> Option<Result<Encoding>> {
        match &self.model {
            Model::Encoder(_, tokenizer) | Model::Decoder(_, tokenizer) => {
                Some(tokenizer.encode(text, true).map_err(Into::into))
            }
            Model::Translator(_) => None,
        }
    }

    /// Whether several texts are computed without padding, which is no input.
    pub fn takes_packed(&self) -> bool {
        match &self.model {
            Model::Encoder(model, _) => model.takes_packed(),
            _ => true,
        }
    }

    /// Computes the states of texts.
    pub fn compute(&self, texts: &[Encoding], device: &Device) {
        match &self.model {
            Model::Encoder(model, _) => {
                let mut tokens = TokenBatch::new();
                tokens.extend(&texts.iter().map(TokenSequence::from).collect::<Vec<_>>());
                drop(model.forward(input(&**model, &tokens, device)));
            }
            Model::Decoder(model, _) => {
                let mut sequences = Sequences::default();
                for text in texts {
                    sequences.push(&text.ids.iter().map(|id| *id as i32).collect::<Vec<_>>());
                }
                drop(model.1.states(&sequences, device));
            }
            Model::Translator(_) => {}
        }
    }

    /// Writes the folder with integers in place of its parameters. The model's own weights are let go before the file's are
    /// read.
    pub fn save(
        self,
        from: &Path,
        to: &Path,
        parameters: &QuantizedParameters,
        rest: Option<FloatType>,
    ) -> Result<QuantizedReport> {
        Ok(match self.model {
            Model::Encoder(model, _) => {
                drop(model);
                PretrainedFolder::open(from)?.save_quantized(to, parameters, rest)?
            }
            Model::Decoder(model, _) => {
                let (config, model) = *model;
                drop(model);
                save_quantized_as(&config, from, to, parameters, rest)?
            }
            Model::Translator(model) => {
                let (config, model) = *model;
                drop(model);
                save_quantized_as(&config, from, to, parameters, rest)?
            }
        })
    }
}
