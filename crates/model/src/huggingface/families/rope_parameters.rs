//! Rotary positions in a `config.json`: `rope_parameters` of transformers 5, and `rope_theta` with `rope_scaling` of
//! transformers 4. What both mean, and which wins where a file has both, is as in 5.24 (`modeling_rope_utils.py`).

use super::super::fields::Fields;
use super::super::names::listed;
use crate::Result;
use crate::bert::BertConfig;
use crate::blocks::{RotaryConfig, RotaryScaling};
use serde_json::{Map, Value, json};

pub(super) const PARAMETERS: &str = "rope_parameters";
pub(super) const SCALING: &str = "rope_scaling";
pub(super) const THETA: &str = "rope_theta";
pub(super) const ORIGINAL: &str = "original_max_position_embeddings";
const PARTIAL: &str = "partial_rotary_factor";
const TYPES: [&str; 6] = ["default", "linear", "llama3", "dynamic", "yarn", "longrope"];

/// The keys of such a table. Those that its type does not read change nothing in transformers either.
const KEYS: [&str; 17] = [
    "rope_type",
    "type",
    THETA,
    PARTIAL,
    "factor",
    ORIGINAL,
    "attention_factor",
    "beta_fast",
    "beta_slow",
    "short_factor",
    "long_factor",
    "low_freq_factor",
    "high_freq_factor",
    "mscale",
    "mscale_all_dim",
    "truncate",
    // Of models that read pictures as well.
    "mrope_section",
];

/// A table of a file, and the name of each of its keys in errors.
pub(super) struct Table<'a> {
    fields: &'a Fields,
    name: String,
    map: Map<String, Value>,
}

impl<'a> Table<'a> {
    /// A table by its key, and an empty one if there is none.
    pub fn of(fields: &'a Fields, key: &str) -> Result<Self> {
        let map = fields.typed(key, "a table", Value::as_object)?.cloned().unwrap_or_default();
        Ok(Self { fields, name: key.into(), map })
    }

    /// A table within this one, and an empty one if there is none.
    pub fn within(&self, key: &str) -> Result<Self> {
        let map = match self.value(key) {
            None => Map::new(),
            Some(Value::Object(map)) => map.clone(),
            Some(_) => return Err(self.refuse(key, "a table")),
        };
        Ok(Self { fields: self.fields, name: format!("{}.{key}", self.name), map })
    }

    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// The keys.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.map.keys().map(String::as_str)
    }

    /// Takes the entries of another one, which win.
    pub fn extend(&mut self, other: &Self) {
        if !other.is_empty() {
            self.map.extend(other.map.clone());
            self.name = other.name.clone();
        }
    }

    /// The value of a key, and none for `null`.
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// The error for an invalid value.
    pub fn refuse(&self, key: &str, expected: &str) -> crate::ModelError {
        let found = self.map.get(key).unwrap_or(&Value::Null);
        self.fields.refuse(&format!("{}.{key}", self.name), found, expected)
    }

    fn number(&self, key: &str) -> Result<Option<f64>> {
        const EXPECTED: &str = "a number above 0";
        let positive = |value: &Value| value.as_f64().filter(|number| number.is_finite() && *number > 0.0);
        self.value(key).map(|value| positive(value).ok_or_else(|| self.refuse(key, EXPECTED))).transpose()
    }

    fn needed(&self, key: &str) -> Result<f64> {
        self.number(key)?.ok_or_else(|| self.refuse(key, "a number above 0"))
    }

    fn numbers(&self, key: &str) -> Result<Vec<f64>> {
        let all =
            |value: &Value| -> Option<Vec<f64>> { value.as_array()?.iter().map(Value::as_f64).collect() };
        self.value(key).and_then(all).ok_or_else(|| self.refuse(key, "a list of numbers"))
    }

    fn kind(&self) -> Result<&str> {
        let text = |key: &str| match self.value(key) {
            None => Ok(None),
            Some(value) => {
                let known = value.as_str().filter(|name| TYPES.contains(name));
                known.map(Some).ok_or_else(|| self.refuse(key, &listed(TYPES.into_iter())))
            }
        };
        match (text("rope_type")?, text("type")?) {
            // One version of transformers follows the one, the other the other.
            (Some(new), Some(old)) if new != old => {
                Err(self.refuse("type", &format!("{new:?} as in `rope_type`, or none")))
            }
            (Some(kind), _) | (None, Some(kind)) => Ok(kind),
            (None, None) => Ok("default"),
        }
    }

    /// Rotary positions of all features in halves. `theta` is the base if the table has none, and `max_positions` the
    /// model's `max_position_embeddings`.
    ///
    /// # Errors
    /// [`ModelError::Config`](crate::ModelError::Config) for what this crate does not have, by its name.
    pub fn read(&self, theta: f64, max_positions: usize) -> Result<RotaryConfig> {
        if let Some(key) = self.keys().find(|key| !KEYS.contains(key)) {
            let expected = match key {
                "full_attention" | "sliding_attention" => {
                    "none: this class has one table for all layers, with `rope_type` and `rope_theta`".into()
                }
                _ => format!("none: the keys are {}", listed(KEYS.into_iter())),
            };
            return Err(self.refuse(key, &expected));
        }
        // The classes turn all features or fail.
        if self.number(PARTIAL)?.is_some_and(|part| part != 1.0) {
            return Err(self.refuse(PARTIAL, "1: this class turns all features"));
        }
        let whole = |value: &Value| value.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
        let original = match (self.fields.size(ORIGINAL)?, self.value(ORIGINAL)) {
            (Some(0), _) => return Err(self.fields.refuse(ORIGINAL, &0.into(), "at least 1")),
            (Some(positions), _) => positions,
            (None, None) => max_positions,
            (None, Some(value)) => {
                whole(value).ok_or_else(|| self.refuse(ORIGINAL, "a whole number, 1 or more"))?
            }
        };
        // Where `null` stands for it.
        let ratio = max_positions as f64 / original as f64;
        let scaling = match self.kind()? {
            "linear" => Some(RotaryScaling::Linear { factor: self.needed("factor")? }),
            "llama3" => Some(RotaryScaling::Llama3 {
                factor: self.needed("factor")?,
                low_frequency_factor: self.needed("low_freq_factor")?,
                high_frequency_factor: self.needed("high_freq_factor")?,
                original_positions: original,
            }),
            "dynamic" => {
                // transformers counts from `max_position_embeddings`, whatever this key says.
                if self.value(ORIGINAL).is_some_and(|value| whole(value) != Some(max_positions)) {
                    let expected = format!("{max_positions} as in `max_position_embeddings`, or none");
                    return Err(self.refuse(ORIGINAL, &expected));
                }
                let factor = self.needed("factor")?;
                Some(RotaryScaling::Dynamic { factor, original_positions: max_positions })
            }
            "yarn" => {
                let factor = match self.map.get("factor") {
                    Some(Value::Null) => ratio,
                    _ => self.needed("factor")?,
                };
                let truncate = match self.value("truncate") {
                    None => true,
                    Some(value) => value.as_bool().ok_or_else(|| self.refuse("truncate", "true or false"))?,
                };
                Some(RotaryScaling::Yarn {
                    factor,
                    original_positions: original,
                    beta_fast: self.number("beta_fast")?.unwrap_or(32.0),
                    beta_slow: self.number("beta_slow")?.unwrap_or(1.0),
                    truncate,
                    magnitude: match self.number("attention_factor")? {
                        Some(given) => given,
                        None => self.yarn_magnitude(factor)?,
                    },
                })
            }
            "longrope" => {
                let factor = self.number("factor")?.unwrap_or(ratio);
                Some(RotaryScaling::LongRope {
                    short_factors: self.numbers("short_factor")?,
                    long_factors: self.numbers("long_factor")?,
                    original_positions: original,
                    magnitude: match self.number("attention_factor")? {
                        Some(given) => given,
                        None if factor <= 1.0 => 1.0,
                        None if original == 1 => {
                            let expected = "a number: without one it follows from more than 1 position";
                            return Err(self.refuse("attention_factor", expected));
                        }
                        None => (1.0 + factor.ln() / (original as f64).ln()).sqrt(),
                    },
                })
            }
            _ => None,
        };
        let theta = self.number(THETA)?.unwrap_or(theta);
        Ok(RotaryConfig { theta, scaling, ..RotaryConfig::default() })
    }

    /// YaRN's attention factor, where the file does not have it.
    fn yarn_magnitude(&self, factor: f64) -> Result<f64> {
        let scale = |of: f64| if factor <= 1.0 { 1.0 } else { 0.1 * of * factor.ln() + 1.0 };
        // 0 counts as none.
        let number = |key: &str| match self.value(key).map(|value| value.as_f64()) {
            None => Ok(None),
            Some(Some(number)) if number >= 0.0 => Ok(Some(number).filter(|number| *number != 0.0)),
            _ => Err(self.refuse(key, "a number, 0 or more")),
        };
        Ok(match (number("mscale")?, number("mscale_all_dim")?) {
            (Some(above), Some(below)) => scale(above) / scale(below),
            _ => scale(1.0),
        })
    }
}

/// The rotary positions that a file describes for all layers; `theta` is the class's default.
///
/// # Errors
/// Those of [`Table::read`].
pub(super) fn read(fields: &Fields, theta: f64, max_positions: usize) -> Result<RotaryConfig> {
    if let Some(part) = fields.number(PARTIAL)?.filter(|part| *part != 1.0) {
        return Err(fields.refuse(PARTIAL, &part.into(), "1: this class turns all features"));
    }
    let old = Table::of(fields, SCALING)?;
    let table = if old.is_empty() { Table::of(fields, PARAMETERS)? } else { old };
    table.read(read_theta(fields, THETA)?.unwrap_or(theta), max_positions)
}

/// A base of the angles that has a key of its own.
pub(super) fn read_theta(fields: &Fields, key: &str) -> Result<Option<f64>> {
    let positive = |value: &Value| value.as_f64().filter(|theta| *theta > 0.0);
    fields.typed(key, "a number above 0", positive)
}

/// The number of positions that a model with these rotary positions is meant for: `max_position_embeddings`, times
/// the factor of a dynamic scaling, which acts beyond them only.
pub(super) fn reach(rotary: &RotaryConfig, max_positions: usize) -> usize {
    match rotary.scaling {
        // Too large a number is refused by `validate`.
        Some(RotaryScaling::Dynamic { factor, original_positions }) => {
            (original_positions as f64 * factor) as usize
        }
        _ => max_positions,
    }
}

/// `max_position_embeddings` of a model that is meant for this many positions.
pub(super) fn max_positions(rotary: &RotaryConfig, reach: usize) -> usize {
    match rotary.scaling {
        Some(RotaryScaling::Dynamic { original_positions, .. }) => original_positions,
        _ => reach,
    }
}

/// A table of transformers 5.
pub(super) fn table(rotary: &RotaryConfig) -> Map<String, Value> {
    let rest = match &rotary.scaling {
        None => json!({"rope_type": "default"}),
        Some(RotaryScaling::Linear { factor }) => json!({"rope_type": "linear", "factor": factor}),
        Some(RotaryScaling::Llama3 {
            factor,
            low_frequency_factor,
            high_frequency_factor,
            original_positions,
        }) => json!({
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": low_frequency_factor,
            "high_freq_factor": high_frequency_factor,
            ORIGINAL: original_positions,
        }),
        Some(RotaryScaling::Dynamic { factor, .. }) => json!({"rope_type": "dynamic", "factor": factor}),
        Some(RotaryScaling::Yarn {
            factor,
            original_positions,
            beta_fast,
            beta_slow,
            truncate,
            magnitude,
        }) => json!({
            "rope_type": "yarn",
            "factor": factor,
            ORIGINAL: original_positions,
            "beta_fast": beta_fast,
            "beta_slow": beta_slow,
            "truncate": truncate,
            "attention_factor": magnitude,
        }),
        Some(RotaryScaling::LongRope { short_factors, long_factors, original_positions, magnitude }) => {
            json!({
                "rope_type": "longrope",
                "short_factor": short_factors,
                "long_factor": long_factors,
                ORIGINAL: original_positions,
                "attention_factor": magnitude,
            })
        }
    };
    let Value::Object(mut rest) = rest else { unreachable!("these are tables") };
    let kind = rest.shift_remove("rope_type").expect("every table has a type");
    let mut table = Map::from_iter([("rope_type".into(), kind), (THETA.into(), rotary.theta.into())]);
    table.extend(rest);
    table
}

/// The same without its base, as in transformers 4; none for a default.
pub(super) fn scaling(rotary: &RotaryConfig) -> Option<Map<String, Value>> {
    let mut table = table(rotary);
    table.shift_remove(THETA);
    rotary.scaling.is_some().then_some(table)
}

/// Adds rotary positions in the old keys, which transformers 5 reads as well, for a class that both versions have.
pub(super) fn write_old(rotary: &RotaryConfig, config: &mut Map<String, Value>) {
    config.insert(THETA.into(), rotary.theta.into());
    config.insert(SCALING.into(), scaling(rotary).map_or(Value::Null, Value::Object));
    write_original(rotary, config);
}

/// Adds LongRoPE's number of positions in pretraining, where transformers 4 looks for it.
pub(super) fn write_original(rotary: &RotaryConfig, config: &mut Map<String, Value>) {
    if let Some(RotaryScaling::LongRope { original_positions, .. }) = rotary.scaling {
        config.insert(ORIGINAL.into(), original_positions.into());
    }
}

/// Adds an encoder's rotary positions in the keys of transformers 5, for a class that only it has; `key` is that of the
/// number of positions.
pub(super) fn write(encoder: &BertConfig, key: &str, config: &mut Map<String, Value>) {
    let rotary = encoder.rotary.clone().unwrap_or_default();
    config.insert(key.into(), max_positions(&rotary, encoder.max_positions).into());
    config.insert(PARAMETERS.into(), table(&rotary).into());
}

/// Rotary positions as such tables can describe them, of all features in halves; `theta` if there are none.
pub(super) fn describable(rotary: Option<&RotaryConfig>, theta: f64) -> RotaryConfig {
    let plain = RotaryConfig { theta, ..RotaryConfig::default() };
    rotary.map_or(plain.clone(), |rotary| RotaryConfig {
        theta: rotary.theta,
        scaling: rotary.scaling.clone(),
        ..plain
    })
}
