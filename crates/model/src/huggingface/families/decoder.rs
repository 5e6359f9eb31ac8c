//! Left-to-right models: one configuration, whose folder is that of the class that builds it.

use super::super::fields::Fields;
use super::super::{Format, Published, TensorRule, TensorRules};
use super::{gpt2, llama};
use crate::gpt::{Gpt, GptConfig};
use crate::{ModelError, ParamInit, Result};
use serde_json::{Map, Value};

impl Published for GptConfig {
    type Model = Gpt;

    fn init(&self, init: &mut ParamInit) -> Gpt {
        self.init(init)
    }
}

/// What stands before the `model_type` of a model with an adaptive output, which transformers has no class for. The rest is as the
/// class has it, and `output` is the configuration of the output.
const ADAPTIVE: &str = "cloze-";

/// The key of an adaptive output's configuration.
const OUTPUT: &str = "output";

/// The tensors of an adaptive output, called as those of PyTorch's `AdaptiveLogSoftmaxWithLoss`.
fn adaptive_rules() -> TensorRules {
    let tail = TensorRules::new()
        .with(TensorRule::transpose("0.weight", "down.weight"))
        .with(TensorRule::transpose("1.weight", "up.weight"));
    TensorRules::new()
        .with(TensorRule::transpose("head.weight", "head.weight"))
        .and(tail.within("tail.*.", "tails.*."))
        .within("lm_head.", "adaptive.")
}

/// With learned positions, it is a GPT-2; with rotary positions, a model of Llama's kind.
impl Format for GptConfig {
    const MODEL_TYPES: &'static [&'static str] = &[
        "gpt2",
        "llama",
        "mistral",
        "ministral",
        "qwen2",
        "cloze-gpt2",
        "cloze-llama",
        "cloze-mistral",
        "cloze-ministral",
        "cloze-qwen2",
    ];

    fn untied(&self) -> Option<Self> {
        self.tied.then(|| Self { tied: false, ..self.clone() })
    }

    fn read(fields: &Fields) -> Result<Self> {
        let mut config = match fields.text("model_type")? {
            Some("gpt2" | "cloze-gpt2") => gpt2::read(fields)?,
            _ => llama::read(fields)?,
        };
        if fields.text("model_type")?.is_some_and(|found| found.starts_with(ADAPTIVE)) {
            config.output = fields.nested(OUTPUT)?;
            if config.output.is_none() {
                return Err(fields.refuse(OUTPUT, &Value::Null, "the cutoffs of an adaptive output"));
            }
        }
        checked(fields, config)
    }

    fn write(&self, config: &mut Map<String, Value>) -> Result<()> {
        self.validate()?;
        match self.rotary {
            None => gpt2::write(self, config)?,
            Some(_) => llama::write(self, config)?,
        }
        if let Some(output) = &self.output {
            for key in ["model_type", "architectures"] {
                let (prefix, name) = match key {
                    "model_type" => (ADAPTIVE, config[key].as_str()),
                    _ => ("Cloze", config[key][0].as_str()),
                };
                let name = Value::from(format!("{prefix}{}", name.unwrap_or_default()));
                let value = if key == "architectures" { vec![name].into() } else { name };
                config.insert(key.into(), value);
            }
            config.insert(OUTPUT.into(), serde_json::to_value(output).expect("plain values serialise"));
        }
        Ok(())
    }

    fn rules(&self) -> TensorRules {
        let rules = match self.rotary {
            None => gpt2::rules(self),
            Some(_) => llama::rules(self),
        };
        match self.output {
            Some(_) => rules.and(adaptive_rules()),
            None => rules,
        }
    }

    fn telling(&self) -> Vec<(String, Vec<usize>)> {
        let telling = match self.rotary {
            None => gpt2::telling(self),
            Some(_) => llama::telling(self),
        };
        telling.to_vec()
    }
}

/// The configuration if it is valid; errors have the names in the file.
pub(super) fn checked(fields: &Fields, config: GptConfig) -> Result<GptConfig> {
    config.validate().map_err(|error| match error {
        ModelError::Setting { key, found, expected } => {
            let key_of = match config.rotary {
                None => gpt2::key_of,
                Some(_) => llama::key_of,
            };
            let expected = expected.replace("n_heads", key_of("n_heads"));
            fields.error(&format!("`{}` is {found}, expected {expected}", key_of(key)))
        }
        other => other,
    })?;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use crate::blocks::{
        Activation, AdaptiveSoftmaxConfig, NormKind, NormPlacement, RotaryConfig, RotaryScaling,
    };
    use crate::gpt::GptConfig;
    use crate::huggingface::{
        FloatType, LoadReport, check_published, load_published, read_published, read_tensors, save_published,
        write_tensors,
    };
    use crate::weights::{self, NamedTensors};
    use crate::{ModelError, ParamInit, Result};
    use burn::tensor::{Device, TensorData};
    use std::path::Path;

    fn read(json: &str) -> Result<GptConfig> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.json"), json).unwrap();
        read_published(folder.path())
    }

    fn init() -> ParamInit {
        ParamInit::new(&Device::flex(), 5)
    }

    fn saved(config: &GptConfig) -> (tempfile::TempDir, NamedTensors) {
        let folder = tempfile::tempdir().unwrap();
        let model = config.init(&mut init());
        save_published(folder.path(), &model, config, FloatType::F32).unwrap();
        (folder, weights::collect(&model))
    }

    fn load(folder: &Path) -> Result<(GptConfig, NamedTensors, LoadReport)> {
        let (config, model, report) = load_published::<GptConfig>(folder, &mut init())?;
        Ok((config, weights::collect(&model), report))
    }

    fn configs() -> Vec<GptConfig> {
        let llama = GptConfig { n_kv_heads: 1, d_head: 6, ..GptConfig::llama(31, 2, 128) };
        let scaled =
            |scaling| Some(RotaryConfig { theta: 500.0, scaling: Some(scaling), ..RotaryConfig::default() });
        let long = RotaryScaling::Llama3 {
            factor: 8.0,
            low_frequency_factor: 1.0,
            high_frequency_factor: 4.0,
            original_positions: 256,
        };
        let qwen = GptConfig::llama(31, 1, 64);
        let output = Some(AdaptiveSoftmaxConfig::new(vec![7, 20]));
        vec![
            GptConfig { end_token_id: Some(3), ..GptConfig::gpt2(31, 2, 128) },
            GptConfig { tied: false, activation: Activation::Relu, d_ff: 40, ..GptConfig::gpt2(31, 1, 64) },
            llama.clone(),
            GptConfig { tied: true, rotary: scaled(RotaryScaling::Linear { factor: 2.0 }), ..llama.clone() },
            GptConfig { rotary: scaled(long), begin_token_id: Some(1), ..llama.clone() },
            GptConfig {
                attention_bias: true,
                attention_output_bias: true,
                feed_forward_bias: true,
                ..llama.clone()
            },
            GptConfig { window: Some(7), ..llama.clone() },
            GptConfig { window: Some(7), window_layers: Some(vec![false, true]), ..llama },
            GptConfig { attention_bias: true, ..qwen.clone() },
            GptConfig { attention_bias: true, window: Some(4), ..qwen.clone() },
            GptConfig { tied: false, output: output.clone(), ..GptConfig::gpt2(31, 2, 128) },
            GptConfig { window: Some(7), output: output.clone(), ..GptConfig::llama(31, 2, 128) },
            GptConfig { attention_bias: true, output, ..qwen },
        ]
    }

    #[test]
    fn what_is_left_out_is_transformers_default() {
        let config = read(r#"{"model_type": "gpt2"}"#).unwrap();
        let gpt2 = GptConfig { begin_token_id: Some(50_256), ..GptConfig::gpt2(50_257, 12, 768) };
        assert_eq!(config, GptConfig { end_token_id: Some(50_256), ..gpt2 });

        let llama = read(r#"{"model_type": "llama"}"#).unwrap();
        let expected = GptConfig {
            n_heads: 32,
            n_kv_heads: 32,
            d_head: 128,
            d_ff: 11_008,
            begin_token_id: Some(1),
            end_token_id: Some(2),
            ..GptConfig::llama(32_000, 32, 4096)
        };
        assert_eq!(llama, expected);
        let mistral = read(r#"{"model_type": "mistral"}"#).unwrap();
        assert_eq!((mistral.n_kv_heads, mistral.window, mistral.d_ff), (8, Some(4095), 14_336));
        let qwen2 = read(r#"{"model_type": "qwen2"}"#).unwrap();
        assert_eq!((qwen2.vocab_size, qwen2.window, qwen2.attention_bias), (151_936, None, true));
        assert!(!qwen2.attention_output_bias && !qwen2.tied);
    }

    #[test]
    fn what_is_written_reads_the_same() {
        for config in configs() {
            let (folder, tensors) = saved(&config);
            let (found, loaded, report) = load(folder.path()).unwrap();
            assert_eq!(found, config);
            assert_eq!(report, LoadReport::default());
            assert!(loaded == tensors);
        }
    }

    #[test]
    fn a_prefix_may_be_missing_and_a_tied_copy_may_be_there() {
        for config in [configs().swap_remove(0), configs().swap_remove(3)] {
            let (folder, tensors) = saved(&config);
            let path = folder.path().join("model.safetensors");
            let mut stored = read_tensors(&path).unwrap();
            let prefix = if config.rotary.is_none() { "transformer." } else { "model." };
            assert!(stored.keys().all(|name| name.starts_with(prefix)), "{:?}", stored.keys());
            let table = if config.rotary.is_none() { "wte.weight" } else { "embed_tokens.weight" };
            stored.insert("lm_head.weight".into(), stored[&format!("{prefix}{table}")].clone());
            let bare = stored.into_iter().map(|(name, data)| (name.replacen(prefix, "", 1), data));
            write_tensors(&path, &bare.collect(), &[]).unwrap();
            let (_, loaded, report) = load(folder.path()).unwrap();
            assert_eq!(report, LoadReport::default());
            assert!(loaded == tensors);
        }
    }

    #[test]
    fn what_is_missing_or_of_another_shape_is_named() {
        let (folder, _) = saved(&configs()[0]);
        let path = folder.path().join("model.safetensors");
        let whole = read_tensors(&path).unwrap();
        let error = |change: &dyn Fn(&mut NamedTensors)| {
            let mut tensors = whole.clone();
            change(&mut tensors);
            write_tensors(&path, &tensors, &[]).unwrap();
            load(folder.path()).unwrap_err().to_string()
        };
        const FUSED: &str = "transformer.h.1.attn.c_attn.weight";
        const NORM: &str = "transformer.h.1.ln_1.weight";
        let message = error(&|tensors| _ = tensors.remove(NORM));
        assert!(message.contains(&format!("1 tensors are missing, the first is `{NORM}`")), "{message}");
        let message = error(&|tensors| _ = tensors.remove(FUSED));
        assert!(message.ends_with(&format!("tensor `{FUSED}` is missing, which the configuration asks for")));
        let message = error(&|tensors| {
            _ = tensors.insert(FUSED.into(), TensorData::new(vec![0f32; 128 * 128], [128, 128]));
        });
        let expected =
            format!("tensor `{FUSED}` has shape [128, 128], the configuration asks for [128, 384]");
        assert!(message.ends_with(&expected), "{message}");
        let message = error(&|tensors| {
            _ = tensors.insert("transformer.ln_f.bias".into(), TensorData::new(vec![f32::NAN; 128], [128]));
        });
        assert!(message.contains("`transformer.ln_f.bias` is NaN at [0]"), "{message}");
    }

    #[test]
    fn sizes_that_the_weights_do_not_have_are_refused_before_there_is_a_model() {
        let (gpt2, llama) = (GptConfig::gpt2(31, 2, 128), GptConfig::llama(31, 2, 128));
        for (config, key, value, expected) in [
            (&gpt2, "n_layer", 9_999, "tensor `transformer.h.9998.attn.c_attn.weight` is missing"),
            (&gpt2, "n_embd", 1 << 30, "has shape [128, 384], the configuration asks for [1073741824, "),
            (&gpt2, "n_positions", i32::MAX as usize, "`transformer.wpe.weight` has shape [1024, 128]"),
            (
                &llama,
                "num_hidden_layers",
                9_999,
                "tensor `model.layers.9998.self_attn.k_proj.weight` is missing",
            ),
            (
                &llama,
                "head_dim",
                1 << 29,
                "has shape [128, 128], the configuration asks for [1073741824, 128]",
            ),
            (&llama, "hidden_size", i32::MAX as usize - 1, "has shape [128, 128]"),
        ] {
            let (folder, _) = saved(config);
            let path = folder.path().join("config.json");
            let mut json: serde_json::Value =
                serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
            json[key] = value.into();
            std::fs::write(&path, json.to_string()).unwrap();
            let started = std::time::Instant::now();
            let message = load(folder.path()).unwrap_err().to_string();
            assert!(message.contains(expected) && !message.contains('\n'), "{key}: {message}");
            // What is made of such sizes takes seconds and gigabytes.
            assert!(started.elapsed().as_secs_f64() < 0.5, "{key}: {:?}", started.elapsed());
        }
    }

    #[test]
    fn an_adaptive_output_is_saved_in_a_format_of_our_own() {
        let output = Some(AdaptiveSoftmaxConfig::new(vec![7, 20]).with_divisor(2.0));
        let (folder, _) = saved(&GptConfig { output, ..GptConfig::llama(31, 1, 64) });
        let json: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(folder.path().join("config.json")).unwrap())
                .unwrap();
        assert_eq!(json["model_type"], "cloze-llama");
        assert_eq!(json["architectures"], serde_json::json!(["ClozeLlamaForCausalLM"]));
        assert_eq!(json["output"], serde_json::json!({ "cutoffs": [7, 20], "divisor": 2.0 }));
        let tensors = read_tensors(&folder.path().join("model.safetensors")).unwrap();
        for (name, shape) in [
            ("lm_head.head.weight", [9, 64]),
            ("lm_head.tail.0.0.weight", [32, 64]),
            ("lm_head.tail.1.1.weight", [11, 16]),
        ] {
            assert_eq!(tensors[name].shape().as_slice(), shape);
        }
        assert!(!tensors.contains_key("lm_head.weight"));
    }

    #[test]
    fn what_there_is_no_model_for_is_named() {
        for (json, expected) in [
            (
                r#"{"model_type": "cloze-gpt2"}"#,
                "`output` is null, expected the cutoffs of an adaptive output",
            ),
            (
                r#"{"model_type": "cloze-gpt2", "tie_word_embeddings": false, "output": {"cutoffs": [99999]}}"#,
                "`output.cutoffs` is [99999], expected numbers below the size of the vocabulary, which is 50257",
            ),
            (
                r#"{"model_type": "cloze-gpt2", "output": {"cutoffs": [9]}}"#,
                "`tie_word_embeddings` is true, expected false",
            ),
            (r#"{"model_type": "bert"}"#, "`model_type` is \"bert\", expected \"gpt2\", \"llama\""),
            ("{}", "`model_type` is null"),
            (r#"{"model_type": "gpt2", "n_embd": 10}"#, "`n_head` is 12, expected a divisor of `n_embd`"),
            (r#"{"model_type": "gpt2", "n_layer": 0}"#, "`n_layer` is 0, expected at least 1"),
            (
                r#"{"model_type": "gpt2", "activation_function": "prelu"}"#,
                "`activation_function` is \"prelu\"",
            ),
            (
                r#"{"model_type": "gpt2", "scale_attn_by_inverse_layer_idx": true}"#,
                "`scale_attn_by_inverse_layer_idx` is true, expected false",
            ),
            (r#"{"model_type": "gpt2", "scale_attn_weights": false}"#, "`scale_attn_weights` is false"),
            (r#"{"model_type": "gpt2", "resid_pdrop": 1}"#, "`resid_pdrop` is 1, expected 0 or more"),
            (r#"{"model_type": "gpt2", "eos_token_id": "x"}"#, "`eos_token_id` is \"x\", expected a whole"),
            (
                r#"{"model_type": "llama", "num_key_value_heads": 5}"#,
                "`num_key_value_heads` is 5, expected a divisor of `num_attention_heads`, which is 32",
            ),
            (r#"{"model_type": "llama", "head_dim": 7}"#, "`head_dim` is 7, expected an even number"),
            (r#"{"model_type": "llama", "rope_theta": 0}"#, "`rope_theta` is 0, expected a number above 0"),
            (
                r#"{"model_type": "llama", "rope_scaling": {"rope_type": "su", "factor": 2.0}}"#,
                "`rope_scaling.rope_type` is \"su\", expected \"default\", \"linear\", \"llama3\", \"dynamic\"",
            ),
            (
                r#"{"model_type": "llama", "rope_scaling": {"type": "linear"}}"#,
                "`rope_scaling.factor` is null",
            ),
            (
                r#"{"model_type": "llama", "rope_scaling": {"type": "linear", "rope_type": "llama3"}}"#,
                "`rope_scaling.type` is \"linear\", expected \"llama3\" as in `rope_type`, or none",
            ),
            (r#"{"model_type": "llama", "rope_scaling": 7}"#, "`rope_scaling` is 7, expected a table"),
            (
                r#"{"model_type": "llama", "rope_parameters": []}"#,
                "`rope_parameters` is [], expected a table",
            ),
            (
                r#"{"model_type": "llama", "rope_parameters": {"rope_type": "default", "factors": 2}}"#,
                "`rope_parameters.factors` is 2, expected none: the keys are",
            ),
            (
                r#"{"model_type": "llama", "rope_parameters": {"full_attention": {"rope_theta": 5}}}"#,
                "expected none: this class has one table for all layers",
            ),
            (
                r#"{"model_type": "qwen2", "rope_parameters": {"rope_theta": -1}}"#,
                "`rope_parameters.rope_theta` is -1, expected a number above 0",
            ),
            (
                r#"{"model_type": "llama", "partial_rotary_factor": 0.5}"#,
                "`partial_rotary_factor` is 0.5, expected 1: this class turns all features",
            ),
            (
                r#"{"model_type": "llama", "rope_parameters": {"partial_rotary_factor": 0.5}}"#,
                "`rope_parameters.partial_rotary_factor` is 0.5, expected 1",
            ),
            (
                r#"{"model_type": "llama", "rope_scaling": {"rope_type": "dynamic", "factor": 2,
                    "original_max_position_embeddings": 100}}"#,
                "`rope_scaling.original_max_position_embeddings` is 100, expected 2048 as in",
            ),
            (
                r#"{"model_type": "llama", "rope_scaling": {"rope_type": "dynamic", "factor": 0.5}}"#,
                "`rope_scaling.factor` is 0.5, expected a number, 1 or more",
            ),
            (
                r#"{"model_type": "llama", "rope_scaling": {"rope_type": "dynamic", "factor": 1e30}}"#,
                "`max_position_embeddings` is",
            ),
            (
                r#"{"model_type": "llama", "rope_scaling": {"rope_type": "yarn", "factor": 2, "beta_fast": 0.5}}"#,
                "`rope_scaling.beta_fast` is 0.5, expected at least `beta_slow`, which is 1",
            ),
            (
                r#"{"model_type": "llama", "rope_scaling": {"rope_type": "yarn", "factor": 2, "truncate": 1}}"#,
                "`rope_scaling.truncate` is 1, expected true or false",
            ),
            (
                r#"{"model_type": "llama", "rope_scaling": {"rope_type": "longrope", "short_factor": [1],
                    "long_factor": [1]}}"#,
                "`rope_scaling.short_factor` is 1 numbers, expected 64 numbers, one a pair of features",
            ),
            (
                r#"{"model_type": "llama", "rope_scaling": {"rope_type": "longrope", "short_factor": 1}}"#,
                "`rope_scaling.short_factor` is 1, expected a list of numbers",
            ),
            (
                r#"{"model_type": "llama", "num_hidden_layers": 1, "layer_types": ["sliding_attention"]}"#,
                "`layer_types` is [\"sliding_attention\"], expected \"full_attention\" in every layer",
            ),
            (r#"{"model_type": "llama", "sliding_window": 64}"#, "`sliding_window` is 64, expected null"),
            (r#"{"model_type": "gpt2", "sliding_window": 64}"#, "`sliding_window` is 64, expected null"),
            (
                r#"{"model_type": "mistral", "num_hidden_layers": 2, "layer_types": ["full_attention"]}"#,
                "expected a list of \"full_attention\" and \"sliding_attention\", one a layer, of which there are 2",
            ),
            (
                r#"{"model_type": "qwen2", "num_hidden_layers": 1, "layer_types": ["sliding_attention"]}"#,
                "in every layer: there is no `sliding_window`",
            ),
            (
                r#"{"model_type": "qwen2", "use_sliding_window": true, "sliding_window": 0}"#,
                "`sliding_window` is 0, expected at least 1",
            ),
            (
                r#"{"model_type": "llama", "num_hidden_layers": 99999999999999}"#,
                "`num_hidden_layers` is 99999999999999, expected at most 10000",
            ),
            (
                r#"{"model_type": "qwen2", "num_hidden_layers": 99999999999999}"#,
                "`num_hidden_layers` is 99999999999999, expected at most 10000",
            ),
            (
                r#"{"model_type": "mistral", "sliding_window": 0}"#,
                "`sliding_window` is 0, expected at least 1",
            ),
        ] {
            let message = read(json).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
            assert!(!message.contains('\n'));
        }
    }

    #[test]
    fn a_model_that_transformers_cannot_build_is_refused() {
        let (gpt2, llama) = (GptConfig::gpt2(31, 1, 64), GptConfig::llama(31, 1, 64));
        let interleaved = Some(RotaryConfig { interleaved: true, ..RotaryConfig::default() });
        let growing = RotaryScaling::Dynamic { factor: 2.0, original_positions: 50 };
        let dynamic = Some(RotaryConfig { scaling: Some(growing), ..RotaryConfig::default() });
        for (config, expected) in [
            (GptConfig { norm: NormPlacement::Post, ..gpt2.clone() }, "norm"),
            (GptConfig { norm_kind: NormKind::Rms, ..gpt2.clone() }, "norm_kind"),
            (GptConfig { gated: true, ..gpt2.clone() }, "gated"),
            (GptConfig { attention_bias: false, ..gpt2.clone() }, "attention_bias"),
            (GptConfig { d_head: 32, ..gpt2.clone() }, "d_head"),
            (GptConfig { window: Some(3), ..gpt2 }, "window"),
            (GptConfig { norm_kind: NormKind::Layer, ..llama.clone() }, "norm_kind"),
            (GptConfig { gated: false, ..llama.clone() }, "gated"),
            (GptConfig { rotary: interleaved, ..llama.clone() }, "rotary.interleaved"),
            (GptConfig { hidden_dropout: 0.1, ..llama.clone() }, "hidden_dropout"),
            (GptConfig { attention_output_bias: true, ..llama.clone() }, "attention_output_bias"),
            (
                GptConfig { attention_output_bias: true, window: Some(3), ..llama.clone() },
                "attention_output_bias",
            ),
            (GptConfig { window_layers: Some(vec![true]), ..llama.clone() }, "window_layers"),
            (
                GptConfig { window: Some(3), window_layers: Some(vec![true; 2]), ..llama.clone() },
                "window_layers",
            ),
            (GptConfig { rotary: dynamic, max_positions: 99, ..llama.clone() }, "max_positions"),
            (GptConfig { n_kv_heads: 0, ..llama }, "n_kv_heads"),
        ] {
            match check_published(&config) {
                Err(ModelError::Setting { key, .. }) => assert_eq!(key, expected),
                other => panic!("{other:?}, expected `{expected}`"),
            }
        }
    }
}
