use super::Checked;
use crate::huggingface::fields::Fields;
use crate::{ModelError, Result};
use regex::Regex;
use serde_json::{Map, Value, json};
use std::path::Path;

/// The key of `config.json`.
pub(crate) const KEY: &str = "quantization_config";

const METHOD: &str = "compressed-tensors";
const OWN_METHOD: &str = "cloze";

/// The scheme of a folder's integers.
#[derive(Debug)]
pub(crate) struct QuantizationConfig {
    pub groups: Vec<Group>,
    /// Whether inputs have factors, which transformers does not know of.
    pub has_factors: bool,
}

/// Modules that are quantised alike.
#[derive(Debug)]
pub(crate) struct Group {
    pub targets: Vec<Target>,
    /// 8 or 4.
    pub bits: u8,
    pub strategy: Strategy,
    pub inputs: Inputs,
}

/// Which numbers of a weight share a scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strategy {
    Tensor,
    Channel,
    /// As many adjacent numbers of a row.
    Group(usize),
}

/// How a module's input is rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inputs {
    Floats,
    /// To 8 bits, in a range of each token's own.
    Dynamic {
        symmetric: bool,
    },
    /// To 8 bits, in the range that the file has.
    Static,
}

/// Which modules a group is for.
#[derive(Debug)]
pub(crate) enum Target {
    Name(String),
    Pattern(String, Regex),
}

impl Target {
    /// A module's name, a class or, after `re:`, a pattern.
    pub fn read(text: &str) -> Checked<Self> {
        let Some(pattern) = text.strip_prefix("re:") else { return Ok(Self::Name(text.into())) };
        // Python's `re.match`: from the beginning on.
        let regex = Regex::new(&format!("^(?:{pattern})")).map_err(|error| format!("`{text}`: {error}"))?;
        Ok(Self::Pattern(text.into(), regex))
    }

    /// How exactly it names a module, the smallest number first; none if it does not.
    fn exactness(&self, module: &str) -> Option<u8> {
        match self {
            Self::Name(name) if name == module => Some(0),
            Self::Pattern(_, regex) => regex.is_match(module).then_some(1),
            Self::Name(name) if name == "Embedding" => looks_like_table(module).then_some(2),
            Self::Name(name) if name == "Linear" => (!looks_like_table(module)).then_some(2),
            Self::Name(_) => None,
        }
    }

    fn text(&self) -> &str {
        match self {
            Self::Name(text) | Self::Pattern(text, _) => text,
        }
    }
}

/// Whether a module's name is that of a table of embeddings in the classes of transformers.
fn looks_like_table(module: &str) -> bool {
    let last = module.rsplit('.').next().unwrap_or(module);
    last.ends_with("embeddings")
        || ["wte", "wpe", "embed_tokens", "embed_positions", "shared", "tok_embeddings"].contains(&last)
}

impl QuantizationConfig {
    /// The scheme in a `config.json`; none if it has none.
    ///
    /// # Errors
    /// [`ModelError::Config`] with the key, for what this crate does not follow.
    pub fn read(fields: &Fields) -> Result<Option<Self>> {
        let Some(value) = fields.map().get(KEY).filter(|value| !value.is_null()) else { return Ok(None) };
        fields.ask(KEY);
        Self::of(value).map(Some).map_err(|reason| refusal(fields.path(), &reason))
    }

    fn of(value: &Value) -> Checked<Self> {
        let map = value.as_object().ok_or_else(|| format!("is {value}, expected an object"))?;
        expect(map, "quant_method", "compressed-tensors", |value| value == METHOD || value == OWN_METHOD)?;
        expect(map, "format", "int-quantized, pack-quantized or mixed-precision", |value| {
            ["int-quantized", "naive-quantized", "pack-quantized", "mixed-precision"]
                .iter()
                .any(|name| value == name)
        })?;
        expect(map, "quantization_status", "compressed", |value| value == "compressed" || value == "frozen")?;
        for key in ["kv_cache_scheme", "sparsity_config", "transform_config"] {
            let is_none = |value: &Value| {
                value.is_null() || value.as_object().is_some_and(Map::is_empty) || value["format"] == "dense"
            };
            if let Some(value) = map.get(key).filter(|value| !is_none(value)) {
                return Err(format!("`{key}` is {value}, which is not supported, expected null"));
            }
        }
        let texts = |value: Option<&Value>, key: &str| -> Checked<Vec<Target>> {
            let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(Vec::new()) };
            let wrong = || format!("`{key}` is {value}, expected names of modules");
            let texts = value.as_array().ok_or_else(wrong)?;
            texts.iter().map(|text| Target::read(text.as_str().ok_or_else(wrong)?)).collect()
        };
        let groups = map.get("config_groups").and_then(Value::as_object);
        let groups = groups.filter(|groups| !groups.is_empty()).ok_or("has no `config_groups`")?;
        let groups = groups.iter().map(|(name, group)| {
            let key = |key: &str| format!("config_groups.{name}.{key}");
            let targets = texts(group.get("targets"), &key("targets"))?;
            if let Some(value) = group.get("output_activations").filter(|value| !value.is_null()) {
                return Err(format!(
                    "`{}` is {value}, which is not supported, expected null",
                    key("output_activations")
                ));
            }
            let (bits, strategy) = weights(&group["weights"], &key("weights"))?;
            let inputs = inputs(&group["input_activations"], &key("input_activations"))?;
            Ok(Group { targets, bits, strategy, inputs })
        });
        let groups = groups.collect::<Checked<Vec<_>>>()?;
        // What they name has no integers.
        texts(map.get("ignore"), "ignore")?;
        Ok(Self { groups, has_factors: map["quant_method"] == OWN_METHOD })
    }

    /// The group of a module, by the target that names it most exactly.
    pub fn group_of(&self, module: &str) -> Option<&Group> {
        let exactness =
            |group: &Group| group.targets.iter().filter_map(|target| target.exactness(module)).min();
        let found = self.groups.iter().filter_map(|group| Some((exactness(group)?, group)));
        found.min_by_key(|(exactness, _)| *exactness).map(|(_, group)| group)
    }

    /// The value of the key in `config.json`.
    pub fn to_json(&self) -> Value {
        let packed = |group: &Group| group.bits == 4;
        let format = |packed: bool| if packed { "pack-quantized" } else { "int-quantized" };
        let groups = self.groups.iter().enumerate().map(|(number, group)| {
            let (strategy, group_size) = match group.strategy {
                Strategy::Tensor => ("tensor", None),
                Strategy::Channel => ("channel", None),
                Strategy::Group(size) => ("group", Some(size)),
            };
            let weights = json!({
                "num_bits": group.bits, "type": "int", "symmetric": true, "strategy": strategy, "group_size": group_size,
                "dynamic": false, "actorder": null, "block_structure": null, "observer": "minmax", "observer_kwargs": {},
            });
            let inputs = |symmetric: bool, strategy: &str, dynamic: bool| {
                json!({
                    "num_bits": 8, "type": "int", "symmetric": symmetric, "strategy": strategy, "group_size": null,
                    "dynamic": dynamic, "actorder": null, "block_structure": null,
                    "observer": if dynamic { Value::Null } else { "minmax".into() }, "observer_kwargs": {},
                })
            };
            let inputs = match group.inputs {
                Inputs::Floats => Value::Null,
                Inputs::Dynamic { symmetric } => inputs(symmetric, "token", true),
                Inputs::Static => inputs(false, "tensor", false),
            };
            let targets: Vec<&str> = group.targets.iter().map(Target::text).collect();
            let group = json!({
                "targets": targets, "weights": weights, "input_activations": inputs, "output_activations": null,
                "format": format(packed(group)),
            });
            (format!("group_{number}"), group)
        });
        let first = self.groups.first().is_some_and(packed);
        let mixed = self.groups.iter().any(|group| packed(group) != first);
        json!({
            "quant_method": if self.has_factors { OWN_METHOD } else { METHOD },
            "format": if mixed { "mixed-precision" } else { format(first) },
            "quantization_status": "compressed",
            "global_compression_ratio": null,
            "kv_cache_scheme": null,
            "config_groups": groups.collect::<Map<String, Value>>(),
            "ignore": [],
        })
    }
}

fn refusal(path: &Path, reason: &str) -> ModelError {
    ModelError::Config(format!("{}: `{KEY}` is not followed: {reason}", path.display()))
}

fn expect(map: &Map<String, Value>, key: &str, expected: &str, fits: impl Fn(&Value) -> bool) -> Checked<()> {
    match map.get(key).unwrap_or(&Value::Null) {
        value if fits(value) => Ok(()),
        value => Err(format!("`{key}` is {value}, which is not supported, expected {expected}")),
    }
}

/// The width and the strategy of a group's weights.
fn weights(value: &Value, key: &str) -> Checked<(u8, Strategy)> {
    let map = value.as_object().ok_or_else(|| format!("`{key}` is {value}, expected an object"))?;
    let refuse = |name: &str, expected: &str| {
        let found = map.get(name).unwrap_or(&Value::Null);
        Err(format!("`{key}.{name}` is {found}, which is not supported, expected {expected}"))
    };
    if map.get("type").is_some_and(|value| value != "int") {
        return refuse("type", "int");
    }
    if map.get("symmetric").is_some_and(|value| value != true) {
        return refuse("symmetric", "true");
    }
    if map.get("dynamic").is_some_and(|value| value != false) {
        return refuse("dynamic", "false");
    }
    if map.get("actorder").is_some_and(|value| !value.is_null() && value != "weight" && value != "static") {
        return refuse("actorder", "null or \"weight\"");
    }
    let bits = match map.get("num_bits").and_then(Value::as_u64) {
        Some(bits @ (4 | 8)) => bits as u8,
        _ => return refuse("num_bits", "8 or 4"),
    };
    let size = map.get("group_size").and_then(Value::as_u64);
    let strategy = match (map.get("strategy").and_then(Value::as_str), size) {
        (Some("tensor") | None, None) => Strategy::Tensor,
        (Some("channel"), _) => Strategy::Channel,
        (Some("group") | None, Some(size)) if size > 0 && size.is_multiple_of(32) => {
            Strategy::Group(size as usize)
        }
        (Some("group"), _) => return refuse("group_size", "a multiple of 32"),
        _ => return refuse("strategy", "tensor, channel or group"),
    };
    Ok((bits, strategy))
}

/// How a group's inputs are rounded.
fn inputs(value: &Value, key: &str) -> Checked<Inputs> {
    let Some(map) = value.as_object() else {
        return match value {
            Value::Null => Ok(Inputs::Floats),
            _ => Err(format!("`{key}` is {value}, expected an object or null")),
        };
    };
    let refuse = |name: &str, expected: &str| {
        let found = map.get(name).unwrap_or(&Value::Null);
        Err(format!("`{key}.{name}` is {found}, which is not supported, expected {expected}"))
    };
    if map.get("type").is_some_and(|value| value != "int") {
        return refuse("type", "int");
    }
    if map.get("num_bits").is_some_and(|value| value != 8) {
        return refuse("num_bits", "8");
    }
    let symmetric = map.get("symmetric").is_none_or(|value| value == true);
    match (map.get("dynamic"), map.get("strategy").and_then(Value::as_str)) {
        (Some(Value::Bool(true)), Some("token")) => Ok(Inputs::Dynamic { symmetric }),
        (Some(Value::Bool(true)), _) => refuse("strategy", "token"),
        (Some(Value::Bool(false)) | None, Some("tensor") | None) => Ok(Inputs::Static),
        (Some(Value::Bool(false)) | None, _) => refuse("strategy", "tensor"),
        _ => refuse("dynamic", "true or false"),
    }
}
