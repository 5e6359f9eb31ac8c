//! The published families, one file each: how its `config.json` is read and written, and the names of its classes,
//! heads and tensors.

mod activations;
mod albert;
mod awd_lstm;
mod bart;
mod bert;
mod cloze_bert;
mod convolutional;
mod deberta;
mod decoder;
mod decoder_keys;
mod definition;
mod distilbert;
mod electra;
mod elmo;
mod encoder_format;
mod encoder_keys;
mod family;
mod gpt2;
mod gte;
mod layer_types;
mod left_to_right;
mod llama;
mod marian;
mod modernbert;
mod mpnet;
mod nomic;
mod own;
mod pruned_heads;
mod recurrent;
mod recurrent_tasks;
mod resnet;
mod roberta;
mod rope_parameters;
mod seq2seq;
mod t5;
mod t5_encoder;
mod transformer;
mod vision_encoder_decoder;
mod vit;
mod vit_mae;
mod xlm;
mod xlnet;

pub use family::Family;
