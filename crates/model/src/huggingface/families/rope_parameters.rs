//! `rope_parameters`, the table of rotary positions in files of transformers 5.

use super::super::fields::Fields;
use super::encoder_format::listed;
use crate::Result;
use crate::blocks::{RotaryConfig, RotaryScaling};
use serde_json::{Map, Value, json};

const KEY: &str = "rope_parameters";

/// The rotary positions of all features in halves; without the table, those of `theta`.
///
/// # Errors
/// [`ModelError::Config`](crate::ModelError::Config) for a scaling that this crate does not have, and for numbers that
/// are none above 0.
pub(super) fn read(fields: &Fields, theta: f64) -> Result<RotaryConfig> {
    let plain = RotaryConfig { theta, ..RotaryConfig::default() };
    let Some(table) = fields.typed(KEY, "a table", Value::as_object)? else { return Ok(plain) };
    let refuse = |key: &str, expected: &str| {
        fields.refuse(&format!("{KEY}.{key}"), table.get(key).unwrap_or(&Value::Null), expected)
    };
    let number = |key| {
        let found = table.get(key).and_then(Value::as_f64).filter(|number| *number > 0.0);
        found.ok_or_else(|| refuse(key, "a number above 0"))
    };
    let theta = if table.contains_key("rope_theta") { number("rope_theta")? } else { theta };
    let scaling = match table.get("rope_type").and_then(Value::as_str) {
        None if !table.contains_key("rope_type") => None,
        Some("default") => None,
        Some("linear") => Some(RotaryScaling::Linear { factor: number("factor")? }),
        _ => return Err(refuse("rope_type", &listed(["default", "linear"].into_iter()))),
    };
    Ok(RotaryConfig { theta, scaling, ..plain })
}

/// Adds the table.
pub(super) fn write(rotary: &RotaryConfig, config: &mut Map<String, Value>) {
    let table = match rotary.scaling {
        Some(RotaryScaling::Linear { factor }) => {
            json!({"rope_type": "linear", "rope_theta": rotary.theta, "factor": factor})
        }
        _ => json!({"rope_type": "default", "rope_theta": rotary.theta}),
    };
    config.insert(KEY.into(), table);
}

/// Rotary positions as the table can describe them: with no other scaling, of all features, in halves.
pub(super) fn describable(rotary: Option<&RotaryConfig>, theta: f64) -> RotaryConfig {
    let scaling = match rotary.and_then(|rotary| rotary.scaling) {
        linear @ Some(RotaryScaling::Linear { .. }) => linear,
        _ => None,
    };
    let theta = rotary.map_or(theta, |rotary| rotary.theta);
    RotaryConfig { theta, scaling, ..RotaryConfig::default() }
}
