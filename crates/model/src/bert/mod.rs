//! BERT (Devlin et al. 2019) and its relatives: encoder, pooler, and the two heads it is pretrained with.
//!
//! RoBERTa, DistilBERT, ALBERT and ELECTRA are the same encoder with other switches in [`BertConfig`].

mod config;
mod embeddings;
mod heads;
mod model;
mod pooling;
mod pretraining;

pub use config::BertConfig;
pub use embeddings::BertEmbeddings;
pub use heads::{MlmHead, NextSentenceHead, Pooler};
pub use model::{Bert, BertInput, BertOutput};
pub use pooling::{Pooling, SentencePooling};
pub use pretraining::{BertForPreTraining, PreTrainingLogits};
