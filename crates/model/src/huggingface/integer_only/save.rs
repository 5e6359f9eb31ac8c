//! A folder rewritten with integers in place of its encoder.

use super::own::SCALE;
use super::parts::{EMBEDDED, LayerNames, MAPS, POOLED, SUM, TABLES, activations};
use super::{METHOD, head_of};
use crate::bert::integer_only::{IntegerBert, IntegerMap, IntegerParts, IntegerTable};
use crate::huggingface::fields::Fields;
use crate::huggingface::quantization::KEY;
use crate::huggingface::text_file::write_text;
use crate::huggingface::{Architecture, MAX_SHARD_SIZE, PretrainedFolder, QuantizedReport, save_tensors};
use crate::ops::{IntegerMatrix, Scales};
use crate::weights::NamedTensors;
use crate::{ModelError, Result};
use burn::tensor::{Bytes, DType, TensorData};
use serde_json::json;
use std::path::Path;

impl PretrainedFolder {
    /// Writes this folder's `config.json` and weights to `to` with integers alone in its encoder, and in its head if the
    /// parts have one. Other tensors are stored as they are, in FP32.
    ///
    /// # Errors
    /// [`ModelError::Weights`] for parts that do not fit together; any error in writing.
    pub fn save_integer_only(&self, to: &Path, parts: &IntegerParts) -> Result<QuantizedReport> {
        let wrong = |reason| ModelError::Weights { path: self.folder().into(), reason };
        IntegerBert::new(parts).map_err(wrong)?;
        let mut tensors = NamedTensors::new();
        let mut modules = Vec::new();
        let map = |module: &str, map: &IntegerMap, tensors: &mut NamedTensors| {
            put_matrix(module, &map.matrix, tensors);
            let bias: Vec<i32> = map.bias.iter().map(|bias| *bias as i32).collect();
            let n = bias.len();
            tensors.insert(format!("{module}.bias"), TensorData::new(bias, [n]));
        };
        for (module, IntegerTable { matrix, .. }) in TABLES.iter().zip(&parts.tables) {
            put_matrix(module, matrix, &mut tensors);
            modules.push((*module).to_owned());
        }
        let put_scale = |activation: &str, scale: f64, tensors: &mut NamedTensors| {
            tensors.insert(format!("{activation}.{SCALE}"), TensorData::new(vec![scale as f32], [1]));
        };
        put_scale(SUM, parts.sum_scale, &mut tensors);
        put_scale(EMBEDDED, parts.output_scale, &mut tensors);
        for (number, layer) in parts.layers.iter().enumerate() {
            let names = LayerNames::new(number);
            let maps = [&layer.query, &layer.key, &layer.value, &layer.output, &layer.up, &layer.down];
            for ((module, _), of) in MAPS.iter().zip(maps) {
                map(&names.of(module), of, &mut tensors);
                modules.push(names.of(module));
            }
            for (activation, scale) in activations(&layer.scales) {
                put_scale(&names.of(activation), scale, &mut tensors);
            }
        }
        if let (Some(classifier), Some([dense, output])) = (&parts.classifier, head_of(&self.config)) {
            map(dense, &classifier.dense, &mut tensors);
            map(output, &classifier.output, &mut tensors);
            put_scale(POOLED, classifier.dense_scale, &mut tensors);
            modules.extend([dense.to_owned(), output.to_owned()]);
        }
        // The names of this file, whatever the class puts before them.
        let rules = self.config.family.rules(Architecture::Encoder, &self.config.encoder, "");
        let source = self.tensors();
        let find = |canonical: &str| source.floats.keys().find(|name| rules.canonical(name) == *canonical);
        let prefix = find("embeddings.word_embeddings.weight")
            .and_then(|name| name.strip_suffix("embeddings.word_embeddings.weight"))
            .unwrap_or_default()
            .to_owned();
        let is_of_head = |name: &str| {
            head_of(&self.config).is_some_and(|head| {
                head.iter().any(|module| {
                    !module.starts_with("pooler.")
                        && name.strip_prefix(module).is_some_and(|rest| rest.starts_with('.'))
                })
            })
        };
        let mut all = NamedTensors::new();
        let quantized = modules.iter().map(|module| match is_of_head(&format!("{module}.")) {
            true => format!("{module}.weight"),
            false => format!("{prefix}{module}.weight"),
        });
        let mut report = QuantizedReport { quantized: quantized.collect(), ..QuantizedReport::default() };
        for (name, data) in &source.floats {
            let is_replaced = modules.iter().any(|module| {
                let canonical = rules.canonical(name);
                canonical
                    .strip_prefix(module.as_str())
                    .is_some_and(|rest| rest == ".weight" || rest == ".bias")
            });
            if !is_replaced {
                all.insert(name.clone(), data.clone());
            }
        }
        for (name, data) in tensors {
            let name = if is_of_head(&name) { name } else { format!("{prefix}{name}") };
            all.insert(name, data);
        }
        report.n_bytes = all.values().map(|data| data.as_bytes().len()).sum();
        save_tensors(to, &all, MAX_SHARD_SIZE)?;
        let mut config = Fields::read(&self.folder().join("config.json"))?.map().clone();
        config.insert(KEY.into(), json!({ "quant_method": METHOD }));
        let text = serde_json::to_string_pretty(&config).expect("JSON that was read serialises") + "\n";
        write_text(&to.join("config.json"), &text)?;
        Ok(report)
    }
}

fn put_matrix(module: &str, matrix: &IntegerMatrix, tensors: &mut NamedTensors) {
    let [rows, columns] = matrix.dims();
    let bytes = Bytes::from_bytes_vec(matrix.values().to_vec());
    tensors.insert(format!("{module}.weight"), TensorData::from_bytes(bytes, [rows, columns], DType::I8));
    if let Scales::Rows(scales) = matrix.scales() {
        let scales = TensorData::new(scales.clone(), [rows, 1]);
        tensors.insert(format!("{module}.weight_scale"), scales);
    }
}
