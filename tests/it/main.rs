//! One test binary for everything that crosses crates.
#![allow(missing_docs, clippy::unwrap_used)]

mod activations;
mod awd_lstm;
mod bert_parity;
mod config_keys;
mod decoders;
mod decoding;
mod dialects;
mod elmo;
mod embeddings;
mod families;
mod gguf;
mod golden;
mod onnx;
mod ops_parity;
mod own_projections;
mod pruning;
mod quantization;
mod recurrent_parity;
mod senses;
mod seq2seq_families;
mod t5_translation;
mod token_vectors;
mod unilm;
mod xlm;
mod xlnet;
