//! What is computed on every device.

mod captions;
mod decoders;
mod encoders;
mod heads;
mod images;
mod operations;
mod probes;
mod recurrent;
mod sentences;
mod seq2seq;
mod xlnet;

use crate::Values;
use burn::tensor::Device;

/// A model, or an operation, with inputs.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// Computes it on a device without autodiff, and where there are gradients on the same device with it.
    pub run: fn(&Device) -> Values,
}

/// All of them; operations first, as they tell why a model fails.
pub const CASES: &[Case] = &[
    Case { name: "attention with padding", run: operations::padded },
    Case { name: "attention, every mask", run: operations::masks },
    Case { name: "attention with one mask for all heads", run: operations::one_mask_for_all_heads },
    Case { name: "rows without a visible key", run: operations::nothing_visible },
    Case { name: "normalisations and activations", run: operations::pointwise },
    Case { name: "embedding with repeated ids", run: operations::embedding },
    Case { name: "BERT", run: encoders::bert },
    Case { name: "BERT, 300 tokens", run: encoders::long },
    Case { name: "BERT, one sequence of one token", run: encoders::least },
    Case { name: "RoBERTa", run: encoders::roberta },
    Case { name: "DistilBERT", run: encoders::distilbert },
    Case { name: "ALBERT", run: encoders::albert },
    Case { name: "ELECTRA", run: encoders::electra },
    Case { name: "ModernBERT", run: encoders::modernbert },
    Case { name: "ModernBERT, 300 tokens", run: encoders::modernbert_long },
    Case { name: "MPNet", run: encoders::mpnet },
    Case { name: "T5's encoder", run: encoders::t5 },
    Case { name: "DeBERTa v3", run: encoders::deberta },
    Case { name: "DeBERTa v2 with maps for distances", run: encoders::deberta_with_maps },
    Case { name: "NomicBERT", run: encoders::nomic },
    Case { name: "GTE", run: encoders::gte },
    Case { name: "XLNet, padding and segments", run: encoders::xlnet },
    Case { name: "pretraining heads", run: heads::pretraining },
    Case { name: "span boundaries", run: heads::span_boundary },
    Case { name: "generator and discriminator", run: heads::replaced_tokens },
    Case { name: "masked LM", run: heads::masked_lm },
    Case { name: "masked LM without a transform", run: heads::masked_lm_without_transform },
    Case { name: "sequence classification", run: heads::sequence },
    Case { name: "regression", run: heads::regression },
    Case { name: "regression by binary cross-entropy", run: heads::binary },
    Case { name: "multiple choice", run: heads::choice },
    Case { name: "token classification", run: heads::tokens },
    Case { name: "token classification with a CRF", run: heads::crf },
    Case { name: "question answering", run: heads::spans },
    Case { name: "sentence embeddings, in-batch negatives", run: sentences::in_batch },
    Case { name: "sentence embeddings, gradients in chunks", run: sentences::in_chunks },
    Case { name: "probe with a hidden layer", run: probes::class },
    Case { name: "probe of a mean over layers", run: probes::mixed },
    Case { name: "structural probe", run: probes::structural },
    Case { name: "ViT", run: images::vit },
    Case { name: "ViT, resized positions, mean of patches", run: images::resized },
    Case { name: "DeiT, both heads", run: images::deit },
    Case { name: "residual network", run: images::resnet },
    Case { name: "MAE", run: images::mae },
    Case { name: "SimCLR", run: images::simclr },
    Case { name: "captions, soft attention", run: captions::soft },
    Case { name: "captions, hard attention", run: captions::hard },
    Case { name: "captions, Transformer", run: captions::transformer },
    Case { name: "captions, word by word", run: captions::word_by_word },
    Case { name: "GPT-2", run: decoders::gpt2 },
    Case { name: "Llama", run: decoders::llama },
    Case { name: "Mistral's window", run: decoders::window },
    Case { name: "GPT-2 token by token", run: decoders::token_by_token },
    Case { name: "XLNet, both streams with a memory", run: xlnet::streams },
    Case { name: "Transformer", run: seq2seq::transformer },
    Case { name: "Transformer, pre-norm, GELU", run: seq2seq::pre_norm },
    Case { name: "Transformer, learned positions", run: seq2seq::learned },
    Case { name: "Transformer, relative positions", run: seq2seq::relative },
    Case { name: "Transformer, rotary positions", run: seq2seq::rotary },
    Case { name: "Transformer, ALiBi", run: seq2seq::alibi },
    Case { name: "T5", run: seq2seq::t5 },
    Case { name: "ConvS2S", run: seq2seq::convolutional },
    Case { name: "LSTM without attention", run: seq2seq::lstm },
    Case { name: "GRU with additive attention", run: seq2seq::bahdanau },
    Case { name: "LSTM with input feeding", run: seq2seq::luong },
    Case { name: "BiLSTM classifier", run: recurrent::classifier },
    Case { name: "BiLSTM classifier with attention", run: recurrent::attention },
    Case { name: "BiLSTM-CRF tagger", run: recurrent::tagger },
    Case { name: "ELMo, both losses", run: recurrent::elmo },
    Case { name: "ELMo's tagger", run: recurrent::elmo_tagger },
];
