//! Converts a folder from one format to another, tensor by tensor.

use super::any_model::read_as_all;
use super::fields::Fields;
use super::float_type::{FloatType, lossless, overflows, stored_as};
use super::integer_only::QUANT_MODE;
use super::keys::CONFIG_KEYS;
use super::quantization::KEY as QUANTIZATION;
use super::text_file::write_text;
use super::{MAX_SHARD_SIZE, PretrainedConfig, save_tensors, tensors_of};
use crate::weights::NamedTensors;
use crate::{ModelError, Result};
use std::path::Path;

/// How a folder's weights are converted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConvertConfig {
    /// The float type that weights are stored as. None: the one in `config.json` if it loses no bit, else FP32, which
    /// never does.
    pub dtype: Option<FloatType>,
    /// The maximum size of a file of weights in bytes, beyond which another is begun.
    pub max_shard_size: usize,
}

impl Default for ConvertConfig {
    fn default() -> Self {
        Self { dtype: None, max_shard_size: MAX_SHARD_SIZE }
    }
}

/// The result of a conversion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConvertReport {
    /// The float type that the weights were stored as.
    pub dtype: FloatType,
    /// The number of tensors written.
    pub n_tensors: usize,
    /// Omitted tensors that are no weights: `position_ids` in old checkpoints.
    pub left_out: Vec<String>,
}

/// Writes the `config.json` and the weights of the folder `from`, in any format, to the folder `to`, which is created
/// if necessary: as safetensors, in one file or in shards with an index. The folder may hold any model that this crate
/// reads: an encoder, a decoder, an encoder–decoder, or one in this crate's own format.
///
/// Weights of integers become floats. Every float tensor keeps its name, even in heads and classes that this crate does not know, and its values, bit for
/// bit unless they are narrowed. `config.json` keeps every key except the float type's; old files without a
/// `model_type` get one.
///
/// # Errors
/// Those of [`PretrainedConfig::read`] and [`read_published`](super::read_published), of [`tensors_of`] and of
/// [`save_tensors`]; [`ModelError::Narrowed`] for a value outside the range of the requested float type.
pub fn convert(from: &Path, to: &Path, config: &ConvertConfig) -> Result<ConvertReport> {
    let fields = Fields::read(&from.join("config.json"))?;
    let model_type = model_type_of(&fields)?;
    let declared = FloatType::read(&fields)?;
    let weights = tensors_of(from)?.dequantized();
    let dtype = config.dtype.unwrap_or_else(|| lossless(declared, weights.floats.values()));
    let mut tensors = NamedTensors::new();
    for (name, data) in weights.floats {
        let stored = stored_as(&data, dtype);
        if dtype != FloatType::F32 && overflows(&data, &stored) {
            return Err(ModelError::Narrowed { path: from.into(), name, dtype: dtype.name() });
        }
        tensors.insert(name, stored);
    }
    save_tensors(to, &tensors, config.max_shard_size)?;

    write_config(&fields, model_type, dtype, to)?;
    Ok(ConvertReport { dtype, n_tensors: tensors.len(), left_out: weights.others })
}

/// Writes the `config.json` of the folder `from` to the folder `to` for weights in FP32 in another format than
/// transformers', such as ONNX. It keeps every key except the float type's; old files without a `model_type` get one.
///
/// # Errors
/// Those of [`convert`] for the file.
pub fn convert_config(from: &Path, to: &Path) -> Result<()> {
    let fields = Fields::read(&from.join("config.json"))?;
    let model_type = model_type_of(&fields)?;
    write_config(&fields, model_type, FloatType::F32, to)
}

fn write_config(fields: &Fields, model_type: String, dtype: FloatType, to: &Path) -> Result<()> {
    let mut map = fields.map().clone();
    map.insert("model_type".into(), model_type.into());
    map.shift_remove("dtype");
    map.shift_remove(QUANTIZATION);
    // The ranges of activations are not written.
    if map.contains_key(QUANT_MODE) {
        map.insert(QUANT_MODE.into(), false.into());
    }
    map.insert("torch_dtype".into(), dtype.name().into());
    let text = serde_json::to_string_pretty(&map).expect("JSON that was read serialises") + "\n";
    write_text(&to.join("config.json"), &text)
}

/// The `model_type` in a `config.json` that this crate reads as some model; of an old file without one, the family's.
///
/// # Errors
/// [`ModelError::Config`] for a model of another kind, or a value that this crate does not support.
fn model_type_of(fields: &Fields) -> Result<String> {
    let model_type = match fields.text("model_type")? {
        None => PretrainedConfig::of(fields)?.family.model_type().to_string(),
        Some(model_type) => {
            let mut results = read_as_all(fields, model_type);
            if results.iter().all(Result::is_err) {
                results.swap_remove(0)?;
            }
            model_type.to_string()
        }
    };
    CONFIG_KEYS.check_left_over(fields)?;
    Ok(model_type)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::NormPlacement;
    use crate::huggingface::{load_published, save_published, write_tensors};
    use crate::seq2seq::{EncoderDecoder, OutputBias, PositionsConfig, TiedEmbeddings, TransformerConfig};
    use crate::{ParamInit, Sequences};
    use burn::tensor::{DType, Device, TensorData};
    use serde_json::Value;
    use std::fs;

    fn folder(config: &str, values: &[f32], dtype: DType) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("config.json"), config).unwrap();
        let tensor = |values: &[f32]| TensorData::new(values.to_vec(), [values.len()]).convert_dtype(dtype);
        let tensors = [("bert.encoder.x", tensor(values)), ("someone.elses.head", tensor(&[0.5, -0.0]))];
        let tensors = tensors.map(|(name, data)| (name.to_string(), data)).into();
        write_tensors(&folder.path().join("model.safetensors"), &tensors, &[]).unwrap();
        folder
    }

    fn converted(
        from: &tempfile::TempDir,
        config: ConvertConfig,
    ) -> Result<(tempfile::TempDir, ConvertReport)> {
        let to = tempfile::tempdir().unwrap();
        let report = convert(from.path(), to.path(), &config)?;
        Ok((to, report))
    }

    fn bytes(folder: &tempfile::TempDir, file: &str) -> Vec<u8> {
        fs::read(folder.path().join(file)).unwrap()
    }

    fn field(folder: &tempfile::TempDir, key: &str) -> Value {
        serde_json::from_slice::<Value>(&bytes(folder, "config.json")).unwrap()[key].clone()
    }

    #[test]
    fn nothing_changes_that_need_not() {
        for (dtype, name) in [(DType::F32, "float32"), (DType::F16, "float16"), (DType::BF16, "bfloat16")] {
            let config = format!(r#"{{"hidden_size": 12, "torch_dtype": "{name}", "mine": [1, 1e-12]}}"#);
            let from = folder(&config, &[0.1, 1e-3, 7.0], dtype);
            let (to, report) = converted(&from, ConvertConfig::default()).unwrap();
            assert_eq!((report.dtype.name(), report.n_tensors), (name, 2));
            let (before, after) = (tensors_of(from.path()).unwrap(), tensors_of(to.path()).unwrap());
            assert_eq!(before.floats, after.floats);
            let sizes = [&from, &to].map(|folder| tensor_bytes(&bytes(folder, "model.safetensors")).to_vec());
            assert_eq!(sizes[0], sizes[1], "{name}");
            assert_eq!(field(&to, "mine"), serde_json::json!([1, 1e-12]));
            assert_eq!(field(&to, "model_type"), "bert");
            assert_eq!(field(&to, "torch_dtype"), name);
        }
    }

    /// The bytes after the header of a safetensors file.
    fn tensor_bytes(file: &[u8]) -> &[u8] {
        let (size, rest) = file.split_first_chunk::<8>().unwrap();
        &rest[u64::from_le_bytes(*size) as usize..]
    }

    #[test]
    fn a_float_type_that_the_config_has_wrong_costs_no_bit() {
        // FP32 weights declared as FP16, as in some checkpoints that were trained further.
        let from = folder(r#"{"torch_dtype": "float16"}"#, &[0.1], DType::F32);
        let (to, report) = converted(&from, ConvertConfig::default()).unwrap();
        assert_eq!(report.dtype, FloatType::F32);
        assert_eq!(
            tensors_of(to.path()).unwrap().floats["bert.encoder.x"],
            TensorData::new(vec![0.1f32], [1])
        );
        assert_eq!(field(&to, "torch_dtype"), "float32");
    }

    #[test]
    fn weights_are_narrowed_on_request_and_never_to_infinity() {
        let from = folder("{}", &[0.1, 70_000.0], DType::F32);
        let narrow = |dtype| converted(&from, ConvertConfig { dtype: Some(dtype), ..Default::default() });
        let (to, report) = narrow(FloatType::Bf16).unwrap();
        assert_eq!(report.dtype, FloatType::Bf16);
        let found = tensors_of(to.path()).unwrap().floats;
        let expected = [0.1f32, 70_000.0].map(|x| burn::tensor::bf16::from_f32(x).to_f32());
        assert_eq!(found["bert.encoder.x"], TensorData::new(expected.to_vec(), [2]));
        let message = narrow(FloatType::F16).unwrap_err().to_string();
        assert!(
            message.ends_with("tensor `bert.encoder.x` has values that float16 cannot hold"),
            "{message}"
        );
    }

    #[test]
    fn an_encoder_decoder_is_converted_with_its_output() {
        let bart =
            TransformerConfig { embedding_norm: true, ..TransformerConfig::new(23, 2, 8).with_d_ff(8) }
                .with_positions(PositionsConfig::Learned { offset: 2 })
                .with_output_bias(OutputBias::Fixed);
        let marian = TransformerConfig::new(23, 2, 8).with_d_ff(8).with_tied(TiedEmbeddings::TargetOutput);
        let t5 = TransformerConfig::t5(23, 1, 8).with_d_ff(8);
        // No class of transformers computes it.
        let own = marian.clone().with_norm(NormPlacement::Pre);
        for (config, model_type) in
            [(bart, "bart"), (marian, "marian"), (t5, "t5"), (own, "cloze-transformer")]
        {
            let (device, from) = (Device::flex(), tempfile::tempdir().unwrap());
            let model = config.init(&mut ParamInit::new(&device, 3));
            save_published(from.path(), &model, &config, FloatType::F32).unwrap();
            let source: Sequences = [&[5, 6, 2][..], &[7, 2]].into_iter().collect();
            let logits = |folder: &tempfile::TempDir| {
                let init = &mut ParamInit::new(&device, 4);
                let (_, model, _) = load_published::<TransformerConfig>(folder.path(), init).unwrap();
                model.logits(&source, &source, &device).into_data()
            };
            let (to, report) = converted(&from, ConvertConfig::default()).unwrap();
            assert_eq!((field(&to, "model_type"), report.dtype), (model_type.into(), FloatType::F32));
            assert_eq!(logits(&to), logits(&from), "{model_type}");
            let half = ConvertConfig { dtype: Some(FloatType::Bf16), ..ConvertConfig::default() };
            let (half, _) = converted(&from, half).unwrap();
            assert_eq!(field(&half, "torch_dtype"), "bfloat16");
            assert_ne!(logits(&half), logits(&from), "{model_type}");
        }
    }

    #[test]
    fn a_setting_that_no_model_has_is_refused_by_name() {
        for (config, expected) in [
            (r#"{"model_type": "bart", "encoder_layerdrop": 0.5}"#, "`encoder_layerdrop` is 0.5"),
            (r#"{"model_type": "t5", "d_model": 0}"#, "`d_model` is 0"),
            (r#"{"model_type": "marian", "quantization_config": {"bits": 4}}"#, "`quantization_config` is"),
            (r#"{"model_type": "whisper"}"#, "`model_type` is \"whisper\""),
        ] {
            let error = converted(&folder(config, &[0.5], DType::F32), ConvertConfig::default()).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn shards_are_as_small_as_asked() {
        let from = folder("{}", &[1.0; 8], DType::F32);
        let (to, _) = converted(&from, ConvertConfig { max_shard_size: 16, ..Default::default() }).unwrap();
        assert!(to.path().join("model-00002-of-00002.safetensors").is_file());
        assert_eq!(tensors_of(to.path()).unwrap().floats, tensors_of(from.path()).unwrap().floats);
    }
}
