//! BERT (Devlin et al. 2019): encoder, pooler, and the two heads it is pretrained with.

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
pub use pooling::Pooling;
pub use pretraining::{BertForPreTraining, PreTrainingLogits};
