//! BERT (Devlin et al. 2019) and its relatives: encoder, pooler, and the heads it is pretrained with.
//!
//! The other published [families](crate::huggingface::Family) of encoders, from RoBERTa to ModernBERT, are
//! the same encoder with different switches in [`BertConfig`].

mod chosen_layers;
mod config;
mod electra;
mod embeddings;
mod heads;
pub mod integer_only;
mod model;
mod pooling;
#[cfg(test)]
mod position_tests;
mod pretraining;
mod removal;
mod span_boundary;
mod teacher_maps;

pub use config::{BertConfig, LayerGroups, LocalAttention};
pub use electra::{
    Electra, ElectraConfig, Generator, ReplacedTokenDetector, ReplacedTokenHead, replaced_token_loss,
    sampled_pieces, with_pieces,
};
pub use embeddings::BertEmbeddings;
pub use heads::{MlmHead, NextSentenceHead, Pooler};
pub use model::{Bert, BertInput, BertOutput};
pub use pooling::{Pooling, SentencePooling};
pub use pretraining::{BertForPreTraining, PreTrainingLogits};
pub use removal::Removal;
pub use span_boundary::{SpanBoundaries, SpanBoundaryHead};
pub use teacher_maps::TeacherMaps;
