//! A folder rewritten with integers in place of some of its weights.

use super::{Group, Inputs, KEY, QuantizationConfig, QuantizedTensor, Strategy, Target};
use crate::huggingface::fields::Fields;
use crate::huggingface::float_type::{FloatType, lossless, overflows, stored_as};
use crate::huggingface::published::Published;
use crate::huggingface::text_file::write_text;
use crate::huggingface::transfer::Transfer;
use crate::huggingface::{
    Architecture, MAX_SHARD_SIZE, PretrainedFolder, TensorRules, save_tensors, tensors_of,
};
use crate::ops::{BLOCK, Bits, IntegerMatrix, Scales};
use crate::weights::NamedTensors;
use crate::{ModelError, Result};
use burn::tensor::{Bytes, DType, TensorData};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Matrices by the paths of the parameters that they replace: of linear maps `[d_out, d_in]`, of tables `[n, d]`.
pub type QuantizedParameters = BTreeMap<String, QuantizedTensor>;

/// What was saved as integers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QuantizedReport {
    /// The tensors that are integers, by the names of their weights in the file.
    pub quantized: Vec<String>,
    /// The paths of parameters that the file cannot hold as integers: it has several in one tensor, or the transpose.
    pub kept: Vec<String>,
    /// The size of the weights in bytes.
    pub n_bytes: usize,
}

impl PretrainedFolder {
    /// Writes this folder's `config.json` and weights to `to` with integers in place of parameters of its encoder. Other
    /// weights are stored as `rest`, or as they are.
    ///
    /// # Errors
    /// [`ModelError::Weights`] if a parameter's tensor is not there, or none can be stored as integers; any error in
    /// writing.
    pub fn save_quantized(
        &self,
        to: &Path,
        parameters: &QuantizedParameters,
        rest: Option<FloatType>,
    ) -> Result<QuantizedReport> {
        let encoder = self.encoder(Architecture::Encoder);
        let rules = self.config.family.rules(Architecture::Encoder, &encoder, "");
        save(self.folder(), to, &rules, parameters, rest)
    }
}

/// [`PretrainedFolder::save_quantized`] for a folder with this configuration.
///
/// # Errors
/// As there.
pub fn save_quantized_as<C: Published>(
    config: &C,
    from: &Path,
    to: &Path,
    parameters: &QuantizedParameters,
    rest: Option<FloatType>,
) -> Result<QuantizedReport> {
    save(from, to, &config.rules(), parameters, rest)
}

fn save(
    from: &Path,
    to: &Path,
    rules: &TensorRules,
    parameters: &QuantizedParameters,
    rest: Option<FloatType>,
) -> Result<QuantizedReport> {
    let fields = Fields::read(&from.join("config.json"))?;
    let source = tensors_of(from)?;
    let declared = FloatType::read(&fields)?;
    let dtype = rest.unwrap_or_else(|| lossless(declared, source.floats.values()));
    let names: BTreeMap<String, &String> =
        source.floats.keys().map(|name| (rules.canonical(name), name)).collect();
    let mut report = QuantizedReport::default();
    let mut by_module = BTreeMap::new();
    for transfer in Transfer::all(rules, &shapes_of(parameters))? {
        let parts = transfer.parameters.iter().map(|(path, _)| parameters[path].clone());
        let parts: Vec<QuantizedTensor> = parts.collect();
        let Some((name, tensor)) = transfer.store_integers(parts) else {
            report.kept.extend(transfer.parameters.into_iter().map(|(path, _)| path));
            continue;
        };
        let Some(name) = names.get(&rules.canonical(&name)) else {
            let reason = format!("tensor `{name}` is missing, which the configuration asks for");
            return Err(ModelError::Weights { path: from.into(), reason });
        };
        report.quantized.push((*name).clone());
        by_module.insert(name.trim_end_matches(".weight").to_owned(), tensor);
    }
    if by_module.is_empty() {
        let reason =
            "no linear map of this family can be stored as integers: its file holds their transposes";
        return Err(ModelError::Weights { path: from.into(), reason: reason.into() });
    }
    let mut tensors = NamedTensors::new();
    for (name, data) in source.floats {
        if name.strip_suffix(".weight").is_some_and(|module| by_module.contains_key(module)) {
            continue;
        }
        let stored = match dtype {
            FloatType::F32 => data,
            _ => {
                let stored = stored_as(&data, dtype);
                if overflows(&data, &stored) {
                    return Err(ModelError::Narrowed { path: from.into(), name, dtype: dtype.name() });
                }
                stored
            }
        };
        tensors.insert(name, stored);
    }
    let config = scheme(&by_module);
    for (module, tensor) in by_module {
        tensors.extend(parts_of(&module, tensor));
    }
    report.n_bytes = tensors.values().map(|data| data.as_bytes().len()).sum();
    save_tensors(to, &tensors, MAX_SHARD_SIZE)?;
    let mut map = fields.map().clone();
    map.insert(KEY.into(), config.to_json());
    let text = serde_json::to_string_pretty(&map).expect("JSON that was read serialises") + "\n";
    write_text(&to.join("config.json"), &text)?;
    Ok(report)
}

/// The parameters' shapes in a model, as transfers ask for them: every parameter of a rule has to be there.
fn shapes_of(parameters: &QuantizedParameters) -> Vec<(String, Vec<usize>)> {
    let shape = |tensor: &QuantizedTensor| {
        let [rows, columns] = tensor.matrix.dims();
        if tensor.tokens.is_some() { vec![columns, rows] } else { vec![rows, columns] }
    };
    parameters.iter().map(|(path, tensor)| (path.clone(), shape(tensor))).collect()
}

/// The tensors of a module.
fn parts_of(module: &str, tensor: QuantizedTensor) -> Vec<(String, TensorData)> {
    let QuantizedTensor { matrix, tokens } = tensor;
    let [rows, columns] = matrix.dims();
    let bytes = |of: &[u8], shape: &[usize], dtype| {
        TensorData::from_bytes(Bytes::from_bytes_vec(of.to_vec()), shape.to_vec(), dtype)
    };
    let mut parts = match matrix.bits() {
        Bits::Eight => vec![("weight", bytes(matrix.values(), &[rows, columns], DType::I8))],
        Bits::Four => vec![
            ("weight_packed", bytes(matrix.values(), &[rows, columns / 8], DType::I32)),
            ("weight_shape", TensorData::new(vec![rows as i64, columns as i64], [2])),
        ],
    };
    parts.push(match matrix.scales() {
        Scales::Rows(scales) => ("weight_scale", TensorData::new(scales.clone(), [rows, 1])),
        Scales::Blocks(scales) => {
            let scales = TensorData::new(scales.clone(), [rows, columns / BLOCK]);
            let halves = stored_as(&scales, FloatType::F16);
            let exact = halves.iter::<f32>().eq(scales.iter::<f32>());
            ("weight_scale", if exact { halves } else { scales })
        }
    });
    if let Some(range) = tokens.as_ref().and_then(|tokens| tokens.range) {
        parts.push(("input_scale", TensorData::new(vec![range.scale], [1])));
        parts.push(("input_zero_point", TensorData::new(vec![(i16::from(range.zero) - 128) as i8], [1])));
    }
    if let Some(factors) = tokens.and_then(|tokens| tokens.factors) {
        parts.push(("input_factors", TensorData::new(factors, [columns])));
    }
    parts.into_iter().map(|(suffix, data)| (format!("{module}.{suffix}"), data)).collect()
}

/// The groups of modules, each named by patterns: all that are alike in every layer have one.
fn scheme(modules: &BTreeMap<String, QuantizedTensor>) -> QuantizationConfig {
    let of = |tensor: &QuantizedTensor| {
        let bits = match tensor.matrix.bits() {
            Bits::Eight => 8,
            Bits::Four => 4,
        };
        let strategy = match tensor.matrix.scales() {
            Scales::Rows(_) => Strategy::Channel,
            Scales::Blocks(_) => Strategy::Group(BLOCK),
        };
        let inputs = match &tensor.tokens {
            None => Inputs::Floats,
            Some(tokens) if tokens.range.is_some() => Inputs::Static,
            Some(tokens) => Inputs::Dynamic { symmetric: tokens.symmetric },
        };
        (bits, strategy, inputs)
    };
    let mut groups: Vec<((u8, Strategy, Inputs), BTreeSet<String>)> = Vec::new();
    for (module, tensor) in modules {
        let (scheme, pattern) = (of(tensor), pattern_of(module));
        match groups.iter_mut().find(|(found, _)| *found == scheme) {
            Some((_, patterns)) => _ = patterns.insert(pattern),
            None => groups.push((scheme, [pattern].into())),
        }
    }
    let groups = groups.into_iter().map(|((bits, strategy, inputs), patterns)| Group {
        targets: patterns.iter().map(|pattern| Target::read(pattern).expect("a pattern of ours")).collect(),
        bits,
        strategy,
        inputs,
    });
    let has_factors =
        |tensor: &QuantizedTensor| tensor.tokens.as_ref().is_some_and(|tokens| tokens.factors.is_some());
    QuantizationConfig { groups: groups.collect(), has_factors: modules.values().any(has_factors) }
}

/// A module of any layer, whatever the class puts before its name.
fn pattern_of(module: &str) -> String {
    let parts = module.split('.').map(|part| match part.parse::<usize>() {
        Ok(_) => r"\d+".to_owned(),
        Err(_) => part.to_owned(),
    });
    format!(r"re:(.*\.)?{}$", parts.collect::<Vec<_>>().join(r"\."))
}

impl Transfer {
    /// The one tensor that holds these parameters, which are its rows; none if it does not.
    fn store_integers(&self, mut parts: Vec<QuantizedTensor>) -> Option<(String, QuantizedTensor)> {
        let first = parts.first()?;
        let name = self.holds_rows(first.tokens.is_some()).then(|| self.tensors[0].clone())?;
        // Maps of one input have been given one range, and parts of a tensor one rounding.
        if parts.iter().any(|part| part.tokens != first.tokens) {
            return None;
        }
        if parts.len() == 1 {
            return Some((name, parts.remove(0)));
        }
        let matrices: Vec<_> = parts.iter().map(|part| part.matrix.clone()).collect();
        let matrix = IntegerMatrix::concatenated(&matrices)?;
        Some((name, QuantizedTensor { matrix, tokens: parts.remove(0).tokens }))
    }
}
