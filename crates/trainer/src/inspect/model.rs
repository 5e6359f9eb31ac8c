//! A model of any kind that is looked into: what it reads, and the scores of its answer.

use burn::module::{Module, ParamId};
use burn::tensor::{Device, Int, Tensor};
use cloze_data::{TokenBatch, TokenSequence};
use cloze_model::Sequences;
use cloze_model::awd_lstm::{AwdLstm, AwdLstmForSequenceClassification};
use cloze_model::bert::{Bert, BertInput, Pooling};
use cloze_model::blocks::{Embedding, LinearMap, LinearMaps};
use cloze_model::elmo::{Elmo, ElmoEncoder, ElmoForSequenceClassification, ElmoForTokenClassification};
use cloze_model::gpt::Gpt;
use cloze_model::seq2seq::{AnyEncoderDecoder, EncoderDecoder};
use cloze_model::tasks::{
    BertForMaskedLm, BertForQuestionAnswering, BertForSequenceClassification, BertForTokenClassification,
    RecurrentForSequenceClassification, RecurrentForTokenClassification, SpanLogits,
};

/// A model with the head that its answer comes from.
#[derive(Module, Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one model, and no list")]
pub(super) enum Model {
    /// An encoder without a head.
    Encoder(Bert),
    Masked(BertForMaskedLm),
    Texts(BertForSequenceClassification),
    Tags(BertForTokenClassification),
    Spans(BertForQuestionAnswering),
    RecurrentTexts(RecurrentForSequenceClassification),
    RecurrentTags(RecurrentForTokenClassification),
    AwdLstmTexts(AwdLstmForSequenceClassification),
    AwdLstmWriter(AwdLstm),
    ElmoTexts(ElmoForSequenceClassification),
    ElmoTags(ElmoForTokenClassification),
    /// The direction of a bidirectional model that reads from left to right.
    ElmoWriter(Elmo),
    /// A left-to-right model.
    Writer(Gpt),
    Translator(AnyEncoderDecoder),
}

impl LinearMaps for Model {
    fn linear_maps_mut(&mut self) -> Vec<LinearMap<'_>> {
        match self {
            Self::Encoder(model) => model.linear_maps_mut(),
            Self::Masked(model) => model.bert.linear_maps_mut(),
            Self::Texts(model) => model.bert.linear_maps_mut(),
            Self::Tags(model) => model.bert.linear_maps_mut(),
            Self::Spans(model) => model.bert.linear_maps_mut(),
            Self::RecurrentTexts(model) => model.linear_maps_mut(),
            Self::RecurrentTags(model) => model.linear_maps_mut(),
            Self::AwdLstmTexts(model) => model.linear_maps_mut(),
            Self::AwdLstmWriter(model) => model.linear_maps_mut(),
            Self::ElmoTexts(model) => model.linear_maps_mut(),
            Self::ElmoTags(model) => model.linear_maps_mut(),
            Self::ElmoWriter(model) => model.linear_maps_mut(),
            Self::Writer(model) => model.linear_maps_mut(),
            Self::Translator(model) => model.linear_maps_mut(),
        }
    }
}

/// What a model reads.
#[derive(Debug, Clone)]
pub(super) struct Input {
    pub source: TokenSequence,
    /// What an encoder–decoder has written so far, after the token that begins it; empty for other models.
    pub target: Vec<i32>,
}

/// Where a model is asked for its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// The whole text.
    Text,
    /// The state of this token, of the target if there is one.
    Token(usize),
}

impl Model {
    /// The encoder of a model that has nothing else but a head.
    pub fn bert(&self) -> Option<&Bert> {
        match self {
            Self::Encoder(bert) => Some(bert),
            Self::Masked(model) => Some(&model.bert),
            Self::Texts(model) => Some(&model.bert),
            Self::Tags(model) => Some(&model.bert),
            Self::Spans(model) => Some(&model.bert),
            Self::RecurrentTexts(_)
            | Self::RecurrentTags(_)
            | Self::AwdLstmTexts(_)
            | Self::AwdLstmWriter(_)
            | Self::ElmoTexts(_)
            | Self::ElmoTags(_)
            | Self::ElmoWriter(_)
            | Self::Writer(_)
            | Self::Translator(_) => None,
        }
    }

    /// The tables in which words are looked up, that of the source first; see [`cloze_model::blocks::replace_embeddings`].
    pub fn tables(&self) -> Vec<ParamId> {
        match self.of_characters() {
            Some(encoder) => vec![encoder.characters.projection.weight.id],
            None => self.embeddings().into_iter().map(|table| table.weight.id).collect(),
        }
    }

    /// The word embeddings of each side, source first, `[1, len, d]` each.
    pub fn words(&self, input: &Input, device: &Device) -> Vec<Tensor<3>> {
        let source = &input.source.input_ids;
        if let Some(encoder) = self.of_characters() {
            return vec![encoder.words(source, device)];
        }
        let look_up = |table: &Embedding, ids: &[i32]| {
            table.forward(Tensor::<1, Int>::from_data(ids, device).unsqueeze_dim::<2>(0))
        };
        // Both sides of an encoder–decoder may have one table.
        let tables = self.embeddings();
        let of_source = tables.first().map(|table| look_up(table, source));
        let of_target = tables.last().filter(|_| !input.target.is_empty());
        of_source.into_iter().chain(of_target.map(|table| look_up(table, &input.target))).collect()
    }

    fn embeddings(&self) -> Vec<&Embedding> {
        let tables = match self {
            Self::RecurrentTexts(model) => vec![Some(&model.encoder.embedding)],
            Self::RecurrentTags(model) => vec![Some(&model.encoder.embedding)],
            Self::AwdLstmTexts(model) => vec![Some(&model.encoder.embedding)],
            Self::AwdLstmWriter(model) => vec![Some(&model.encoder.embedding)],
            Self::Writer(model) => vec![Some(&model.tokens)],
            Self::Translator(AnyEncoderDecoder::Transformer(model)) => {
                vec![model.source_embeddings.as_ref(), Some(&model.target_embeddings)]
            }
            Self::Translator(AnyEncoderDecoder::Recurrent(model)) => {
                vec![model.source_embedding.as_ref(), Some(&model.target_embedding)]
            }
            Self::Translator(AnyEncoderDecoder::Convolutional(model)) => {
                vec![model.source_embedding.as_ref(), Some(&model.target_embedding)]
            }
            _ => self.bert().map(|bert| Some(&bert.embeddings.tokens)).into_iter().collect(),
        };
        tables.into_iter().flatten().collect()
    }

    /// The encoder of a model that reads words by their characters.
    fn of_characters(&self) -> Option<&ElmoEncoder> {
        match self {
            Self::ElmoTexts(model) => Some(&model.encoder),
            Self::ElmoTags(model) => Some(&model.encoder),
            Self::ElmoWriter(model) => Some(&model.encoder),
            _ => None,
        }
    }

    /// Layers of the source's own attention, of the target's own, to the source from the target, and of a model whose
    /// attention has no heads.
    pub fn n_layers(&self) -> [usize; 4] {
        match self {
            Self::Writer(model) => [model.layers.len(), 0, 0, 0],
            Self::Translator(AnyEncoderDecoder::Transformer(model)) => {
                let n = model.decoder.layers.len();
                [model.encoder.order.len(), n, n, 0]
            }
            Self::Translator(AnyEncoderDecoder::Recurrent(model)) => {
                [0, 0, 0, usize::from(model.attention.is_some())]
            }
            Self::Translator(AnyEncoderDecoder::Convolutional(model)) => [0, 0, 0, model.decoder.len()],
            _ => [self.bert().map_or(0, |bert| bert.encoder.order.len()), 0, 0, 0],
        }
    }

    /// The most copies of an input of these tokens that are read at once.
    pub fn most_copies(&self, input: &Input) -> usize {
        const TOKENS: usize = 2_048;
        /// Logits of all target tokens are computed.
        const LOGITS: usize = 1 << 25;
        let (n_source, n_target) = (input.source.len(), input.target.len());
        let of_tokens = TOKENS / (n_source + n_target).max(1);
        let most = match self {
            // Its steps are ordered by time, and not by row.
            Self::Translator(AnyEncoderDecoder::Recurrent(_)) => 1,
            Self::Translator(_) => of_tokens.min(LOGITS / (n_target.max(1) * 65_536)),
            _ => of_tokens,
        };
        most.max(1)
    }

    /// The tokens whose last states the answer is read from.
    pub fn read_from(&self, asked: Asked, n_tokens: usize) -> Vec<usize> {
        let pooling = match (self, asked) {
            (_, Asked::Token(token)) => return vec![token],
            (Self::Texts(model), Asked::Text) => match (model.pooling, &model.bert.pooler) {
                (None, Some(_)) => Pooling::Cls,
                (pooling, _) => pooling.unwrap_or(model.bert.pooling),
            },
            _ => Pooling::Mean,
        };
        match pooling {
            Pooling::Cls => vec![0],
            Pooling::LastToken => vec![n_tokens - 1],
            _ => (0..n_tokens).collect(),
        }
    }

    /// Reads the input once, with all that can be seen of it.
    pub fn read(&self, input: &Input, device: &Device) {
        match self {
            Self::Writer(model) => drop(model.states(&copies_of(&input.source.input_ids, 1), device)),
            Self::Translator(model) => {
                let [source, target] = [&input.source.input_ids, &input.target].map(|ids| copies_of(ids, 1));
                drop(model.logits(&source, &target, device));
            }
            _ => {
                if let Some(bert) = self.bert() {
                    drop(bert.forward(batch(bert, &input.source, 1, device)));
                }
            }
        }
    }

    /// The scores of the answers before they are normalised, for copies of an input: logits of classes or pieces, a number,
    /// or of spans those of all first tokens and then of all last ones.
    ///
    /// # Shapes
    /// - returns `[copies, answers]`
    pub fn outputs(&self, input: &Input, asked: Asked, copies: usize, device: &Device) -> Tensor<2> {
        let token = match asked {
            Asked::Token(token) => token,
            Asked::Text => 0,
        };
        let numbers = |len: usize| (0..copies).map(|copy| (copy * len + token) as i32).collect::<Vec<i32>>();
        let rows = |len: usize| Tensor::<1, Int>::from_data(numbers(len).as_slice(), device);
        let source = &input.source;
        match self {
            Self::Encoder(_) => unreachable!("an encoder without a head is asked for nothing"),
            Self::Masked(model) => {
                model.forward(batch(&model.bert, source, copies, device), rows(source.len()))
            }
            Self::Texts(model) => model.forward(batch(&model.bert, source, copies, device)),
            Self::Tags(model) => {
                model.forward(batch(&model.bert, source, copies, device), rows(source.len()))
            }
            Self::RecurrentTexts(model) => model.forward(&copies_of(&source.input_ids, copies), device),
            Self::AwdLstmTexts(model) => model.forward(&copies_of(&source.input_ids, copies), device),
            Self::ElmoTexts(model) => model.forward(&copies_of(&source.input_ids, copies), device),
            Self::RecurrentTags(model) => {
                model.forward(&copies_of(&source.input_ids, copies), &numbers(source.len()), device)
            }
            Self::ElmoTags(model) => {
                model.forward(&copies_of(&source.input_ids, copies), &numbers(source.len()), device)
            }
            Self::AwdLstmWriter(model) => {
                let states = model.forward(&copies_of(&source.input_ids, copies), None, device).dropped;
                model.project(states.select(0, rows(source.len())))
            }
            Self::ElmoWriter(model) => {
                let states = model.encoder.forward(&copies_of(&source.input_ids, copies), device).forward;
                model.output.forward(states.select(0, rows(source.len())))
            }
            Self::Spans(model) => {
                let SpanLogits { start, end } =
                    model.forward(batch(&model.bert, source, copies, device), None);
                Tensor::cat(vec![start, end], 1)
            }
            Self::Writer(model) => {
                let states = model.states(&copies_of(&source.input_ids, copies), device);
                model.project(states.select(0, rows(source.len())))
            }
            Self::Translator(model) => {
                let [sources, targets] = [&source.input_ids, &input.target].map(|ids| copies_of(ids, copies));
                model.logits(&sources, &targets, device).select(0, rows(input.target.len()))
            }
        }
    }
}

/// A text several times over.
fn batch(bert: &Bert, text: &TokenSequence, copies: usize, device: &Device) -> BertInput {
    let mut tokens = TokenBatch::new().with_max_len(text.len());
    for _ in 0..copies {
        tokens.push(&text.input_ids, &text.token_type_ids);
    }
    crate::input::input(bert, &tokens, device)
}

pub(super) fn copies_of(ids: &[i32], copies: usize) -> Sequences {
    std::iter::repeat_n(ids, copies).collect()
}
