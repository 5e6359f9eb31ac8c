//! BERT (Devlin et al. 2019) and its relatives: encoder, pooler, and the heads it is pretrained with.
//!
//! RoBERTa, DistilBERT, ALBERT and ELECTRA are the same encoder with other switches in [`BertConfig`].

mod config;
mod embeddings;
mod heads;
mod model;
mod pooling;
mod pretraining;
mod span_boundary;

pub use config::BertConfig;
pub use embeddings::BertEmbeddings;
pub use heads::{MlmHead, NextSentenceHead, Pooler};
pub use model::{Bert, BertInput, BertOutput};
pub use pooling::{Pooling, SentencePooling};
pub use pretraining::{BertForPreTraining, PreTrainingLogits};
pub use span_boundary::{SpanBoundaries, SpanBoundaryHead};
