//! What is known of the keys of settings files that no reader asks for. A key that a reader [asks for](Fields) is
//! followed; it needs no entry here.

use super::fields::Fields;
use super::integer_only::is_integer_only;
use super::quantization::{KEY as QUANTIZATION, QuantizationConfig};
use crate::Result;
use serde_json::Value;

/// The keys of one kind of file.
pub(super) struct Keys {
    /// Keys that change no result of this crate, whatever they say.
    pub harmless: &'static [&'static [&'static str]],
    /// Keys that change results and are not followed: only these values, in JSON, do what this crate does. `null` always
    /// does.
    pub neutral: &'static [(&'static str, &'static str)],
}

/// A `config.json`.
pub(super) const CONFIG_KEYS: Keys = Keys {
    harmless: &[
        // Of the file, and of how Python runs the model.
        &[
            "_attn_implementation",
            "_attn_implementation_autoset",
            "_commit_hash",
            "_name_or_path",
            "_num_labels",
            "attn_implementation",
            "auto_map",
            "chunk_size_feed_forward",
            "deterministic_flash_attn",
            "gradient_checkpointing",
            "label2id",
            "num_labels",
            "output_attentions",
            "output_hidden_states",
            "output_past",
            "pretraining_tp",
            "reference_compile",
            "reorder_and_upcast_attn",
            "repad_logits_with_grad",
            "return_dict",
            "tokenizer_class",
            "torchscript",
            "transformers_version",
            "use_bfloat16",
            "use_cache",
            "xla_device",
        ],
        // Of training, and of losses.
        &[
            "initializer_cutoff_factor",
            "initializer_factor",
            "initializer_range",
            "embed_init_std",
            "init_std",
            "keep_in_fp32_modules",
            "sparse_pred_ignore_index",
            "sparse_prediction",
            "tf_legacy_loss",
        ],
        // Special tokens, which tokenizers know, and which encoders do not ask for.
        &[
            "bos_index",
            "bos_token_id",
            "cls_token_id",
            "decoder_start_token_id",
            "eos_index",
            "eos_token_id",
            // Read by those classes of encoders alone that are causal then.
            "is_decoder",
            "is_encoder_decoder",
            "mask_index",
            "mask_token_id",
            "pad_token_id",
            "sep_token_id",
            "unk_index",
            "unk_token_id",
        ],
        // Of parts that this crate does not build: GPT-2's second head, T5's decoder beside an encoder, the search of XLM's
        // and XLNet's old heads for answers, memories between segments, which nobody hands over.
        &[
            "end_n_top",
            "mem_len",
            "num_decoder_layers",
            "reuse_len",
            "start_n_top",
            "summary_first_dropout",
            "summary_proj_to_labels",
            "use_mems_eval",
            "use_mems_train",
        ],
        // Sizes that follow from others: GPT-2's, and BART's number of encoder layers.
        &["n_ctx", "num_hidden_layers"],
        // Of parts of Vision Transformers that this crate does not build: the pooler, and the head that restores pixels.
        &["encoder_stride", "pooler_act", "pooler_output_size"],
        // Of MAE's decoder and its loss, for its encoder by itself.
        &[
            "decoder_hidden_size",
            "decoder_intermediate_size",
            "decoder_num_attention_heads",
            "decoder_num_hidden_layers",
            "mask_ratio",
            "norm_pix_loss",
        ],
        // Of pipelines, and of sentence-transformers, which other readers ask for.
        &["prefix", "sbert_ce_default_activation_function", "sentence_transformers", "task_specific_params"],
        // Of heads, for models that have none; of BART's the dropout in training.
        &["classifier_dropout", "dtype", "finetuning_task", "id2label", "problem_type", "torch_dtype"],
        // Of a switch that is off: whoever reads it as on asks for them. DistilBERT's sinusoids are in its file as weights.
        &["max_relative_positions", "max_window_layers", "sinusoidal_pos_embds", "sliding_window"],
        // Of GPT-2's second head; XLM and XLNet ask for theirs.
        &["summary_activation", "summary_type", "summary_use_proj"],
        // Left behind by BERT's and ALBERT's first programs. No class ever read them.
        &[
            "directionality",
            "down_scale_factor",
            "gap_size",
            "language",
            "net_structure_type",
            "num_memory_blocks",
            "pooler_fc_size",
            "pooler_num_attention_heads",
            "pooler_num_fc_layers",
            "pooler_size_per_head",
            "pooler_type",
        ],
        // Of decoding; `read_decode_settings` follows or refuses them.
        FOLLOWED_IN_DECODING,
        HARMLESS_IN_DECODING,
        NOT_FOLLOWED_IN_DECODING,
    ],
    neutral: &[
        ("add_cross_attention", "false"),
        ("attention_bias", "false"),
        ("attn_type", "\"bi\""),
        ("bi_data", "false"),
        ("clamp_len", "-1"),
        ("cross_attention_hidden_size", "null"),
        ("mlp_bias", "false"),
        ("partial_rotary_factor", "1.0"),
        ("pruned_heads", "{}"),
        ("quant_mode", "false"),
        ("quantization_config", "null"),
        ("same_length", "false"),
        ("scale_attn_by_inverse_layer_idx", "false"),
        ("scale_attn_weights", "true"),
        ("tie_encoder_decoder", "false"),
        ("untie_r", "true"),
    ],
};

pub(super) const FOLLOWED_IN_DECODING: &[&str] = &[
    "bad_words_ids",
    "begin_suppress_tokens",
    "decoder_start_token_id",
    "do_sample",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "encoder_repetition_penalty",
    "eos_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "length_penalty",
    "max_length",
    "max_new_tokens",
    "min_length",
    "min_new_tokens",
    "min_p",
    "no_repeat_ngram_size",
    "num_beams",
    "renormalize_logits",
    "repetition_penalty",
    "suppress_tokens",
    "temperature",
    "top_k",
    "top_p",
];

/// Of what a program returns besides tokens, and of how it is made fast; `remove_invalid_values` makes something of numbers
/// that are an error here.
const HARMLESS_IN_DECODING: &[&str] = &[
    "_commit_hash",
    "_from_model_config",
    "assistant_confidence_threshold",
    "assistant_early_exit",
    "assistant_ensemble_weight",
    "assistant_lookbehind",
    "bos_token_id",
    "cache_config",
    "cache_implementation",
    "compile_config",
    "continuous_batching_config",
    "disable_compile",
    "is_assistant",
    "low_memory",
    "max_cache_len",
    "max_matching_ngram_size",
    "num_assistant_tokens",
    "num_assistant_tokens_schedule",
    "output_attentions",
    "output_hidden_states",
    "output_logits",
    "output_scores",
    "pad_token_id",
    "prefill_chunk_size",
    "prompt_lookup_num_tokens",
    "remove_invalid_values",
    "return_dict_in_generate",
    "return_legacy_cache",
    "speculation_type",
    "target_lookbehind",
    "transformers_version",
    "use_cache",
    "use_mtp",
];

pub(super) const NOT_FOLLOWED_IN_DECODING: &[&str] = &[
    "constraints",
    "diversity_penalty",
    "dola_layers",
    "epsilon_cutoff",
    "eta_cutoff",
    "exponential_decay_length_penalty",
    "force_words_ids",
    "guidance_scale",
    "max_time",
    "num_beam_groups",
    "num_return_sequences",
    "penalty_alpha",
    "sequence_bias",
    "stop_strings",
    "token_healing",
    "top_h",
    "typical_p",
    "watermarking_config",
];

/// A `generation_config.json`.
pub(super) const GENERATION_KEYS: Keys = Keys {
    harmless: &[HARMLESS_IN_DECODING],
    neutral: &[
        ("constraints", "null"),
        ("diversity_penalty", "0.0"),
        ("dola_layers", "null"),
        ("epsilon_cutoff", "0.0"),
        ("eta_cutoff", "0.0"),
        ("exponential_decay_length_penalty", "null"),
        ("force_words_ids", "null"),
        ("guidance_scale", "1.0"),
        ("max_time", "null"),
        ("num_beam_groups", "1"),
        ("num_return_sequences", "1"),
        ("penalty_alpha", "0.0"),
        ("sequence_bias", "null"),
        ("stop_strings", "null"),
        ("token_healing", "false"),
        ("top_h", "null"),
        ("typical_p", "1.0"),
        ("watermarking_config", "null"),
    ],
};

/// The files of sentence-transformers: the encoder's, pooling's and the whole model's. A cross-encoder's activation is
/// the affair of those who use one.
pub(super) const SENTENCE_KEYS: Keys = Keys {
    harmless: &[&[
        "__version__",
        "activation_fn",
        "embedding_dimension",
        "keep_in_fp32_modules",
        "model_type",
        "module_output_name",
        "unpad_inputs",
        "word_embedding_dimension",
    ]],
    neutral: &[
        ("config_args", "{}"),
        ("document_length", "null"),
        ("model_args", "{}"),
        ("module_input_name", "\"sentence_embedding\""),
        ("processing_kwargs", "{}"),
        ("query_expansion", "null"),
        ("query_length", "null"),
        ("tokenizer_args", "{}"),
        ("truncate_dim", "null"),
    ],
};

impl Keys {
    /// Whether anything is known of a key.
    pub fn has(&self, key: &str) -> bool {
        self.harmless.iter().any(|keys| keys.contains(&key)) || self.neutral(key).is_some()
    }

    fn neutral(&self, key: &str) -> Option<&'static str> {
        self.neutral.iter().find_map(|(known, value)| (*known == key).then_some(*value))
    }

    /// Checks a key that no reader asked for.
    ///
    /// # Errors
    /// [`ModelError::Config`](crate::ModelError::Config) for a value that is not followed.
    pub fn check(&self, fields: &Fields, key: &str, found: &Value) -> Result<()> {
        if key == QUANTIZATION {
            return match is_integer_only(fields) {
                true => Ok(()),
                false => QuantizationConfig::read(fields).map(drop),
            };
        }
        let Some(neutral) = self.neutral(key) else { return Ok(()) };
        let is_neutral = found.is_null()
            || match serde_json::from_str::<Value>(neutral) {
                Ok(Value::Number(number)) => found.as_f64() == number.as_f64(),
                Ok(Value::Null) => is_empty(found),
                Ok(neutral) => *found == neutral || is_empty(found) && is_empty(&neutral),
                Err(_) => false,
            };
        match is_neutral {
            true => Ok(()),
            false => Err(fields.refuse(key, found, &format!("{neutral}: another value is not supported"))),
        }
    }

    /// [Checks](Self::check) all keys that no reader asked for.
    ///
    /// # Errors
    /// [`ModelError::Config`](crate::ModelError::Config) for the first value that is not followed.
    pub fn check_left_over(&self, fields: &Fields) -> Result<()> {
        fields.left_over().try_for_each(|(key, value)| self.check(fields, key, value))
    }

    /// The keys that no reader asked for, and that nothing is known of.
    pub fn unknown(&self, fields: &Fields) -> Vec<String> {
        fields.left_over().filter(|(key, _)| !self.has(key)).map(|(key, _)| key.to_owned()).collect()
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(all) => all.is_empty(),
        Value::Object(all) => all.is_empty(),
        _ => false,
    }
}

impl Fields {
    /// The same file without some of its keys.
    ///
    /// # Errors
    /// [`ModelError::Config`](crate::ModelError::Config) for a key that it does not have.
    pub(super) fn without(&self, keys: &[String]) -> Result<Self> {
        let mut map = self.map().clone();
        for key in keys {
            if map.remove(key).is_none() {
                let near = crate::nearest(key, self.map().keys().map(String::as_str));
                let meant = near.map(|near| format!("; did you mean \"{near}\"?")).unwrap_or_default();
                return Err(self.error(&format!("there is no `{}` to ignore{meant}", key.escape_debug())));
            }
        }
        Ok(Self::of(self.path(), map))
    }
}
