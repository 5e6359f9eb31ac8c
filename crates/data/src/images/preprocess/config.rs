//! `preprocessor_config.json`, in and out.

use super::{MAX_SIDE, Normalisation, Preprocessing, TargetSize};
use crate::images::Filter;
use crate::{DataError, Result};
use serde_json::{Map, Value, json};
use std::fs;
use std::path::Path;

/// Settings that leave the pixels of an RGB image as they are.
const HARMLESS: [&str; 10] = [
    "image_processor_type",
    "feature_extractor_type",
    "processor_class",
    "_valid_processor_keys",
    // Images are RGB already.
    "do_convert_rgb",
    "input_data_format",
    "return_tensors",
    "device",
    "disable_grouping",
    "default_to_square",
];

/// Settings that are read below.
const READ: [&str; 10] = [
    "do_resize",
    "size",
    "resample",
    "do_center_crop",
    "crop_size",
    "do_rescale",
    "rescale_factor",
    "do_normalize",
    "image_mean",
    "image_std",
];

impl Preprocessing {
    /// Reads a `preprocessor_config.json`.
    ///
    /// # Errors
    /// [`DataError::Io`]; otherwise as [`from_json`](Self::from_json).
    pub fn read(path: &Path) -> Result<Self> {
        let json = fs::read_to_string(path).map_err(DataError::io("read", path))?;
        Self::from_json(&json)
    }

    /// The preprocessing of a `preprocessor_config.json`, of `ViTImageProcessor` (which MAE has too) or
    /// `DeiTImageProcessor` of transformers, fast or not, or of their former feature extractors. Settings that are absent
    /// have that processor's default.
    ///
    /// An integer `size` is a square's side or, with `"default_to_square": false`, the shorter side's length. The crop
    /// of a `ViTImageProcessor` is applied, as transformers 5 and the fast processors do; the slow one of version 4
    /// ignores it.
    ///
    /// # Errors
    /// [`DataError::ImageSetting`] for another processor, for a setting that is unknown and not `null` or `false`, since
    /// it may change pixels, and for a value out of range.
    pub fn from_json(json: &str) -> Result<Self> {
        let settings: Map<String, Value> =
            serde_json::from_str(json).map_err(|error| setting("preprocessor_config.json", error))?;
        let settings = &settings;
        let is_deit = is_deit(settings)?;
        for (key, value) in settings {
            let is_off = matches!(value, Value::Null | Value::Bool(false));
            let is_first = key == "data_format" && value == "channels_first";
            if !is_off && !is_first && !HARMLESS.contains(&key.as_str()) && !READ.contains(&key.as_str()) {
                return Err(setting(
                    key,
                    format_args!("is {value}; this setting is not supported, remove it"),
                ));
            }
        }
        let resize = match flag(settings, "do_resize", true)? {
            false => None,
            true => {
                let side = if is_deit { 256 } else { 224 };
                let default = TargetSize::Exact { height: side, width: side };
                let size = target_size(settings, "size")?.unwrap_or(default);
                Some((size, filter(settings, if is_deit { Filter::Bicubic } else { Filter::Bilinear })?))
            }
        };
        let centre_crop = match flag(settings, "do_center_crop", is_deit)? {
            false => None,
            true => match target_size(settings, "crop_size")? {
                None => Some((224, 224)),
                Some(TargetSize::Exact { height, width }) => Some((height, width)),
                // An integer is a square here in any case.
                Some(TargetSize::ShortestEdge(side)) if settings["crop_size"].is_u64() => Some((side, side)),
                Some(_) => return Err(setting("crop_size", "expected a number, or `height` and `width`")),
            },
        };
        let rescale = match flag(settings, "do_rescale", true)? {
            false => None,
            true => Some(match present(settings, "rescale_factor") {
                None => 1.0 / 255.0,
                Some(value) => value
                    .as_f64()
                    .filter(|factor| factor.is_finite() && *factor > 0.0)
                    .ok_or_else(|| expected("rescale_factor", value, "a number above 0"))?,
            }),
        };
        let normalise = match flag(settings, "do_normalize", true)? {
            false => None,
            true => {
                let mean = colours(settings, "image_mean")?;
                let std = colours(settings, "image_std")?;
                if std.iter().any(|std| *std <= 0.0) {
                    return Err(expected("image_std", &settings["image_std"], "numbers above 0"));
                }
                Some(Normalisation { mean, std })
            }
        };
        Ok(Self { resize, centre_crop, rescale, normalise })
    }

    /// Writes a `preprocessor_config.json`, which is replaced in one step.
    ///
    /// # Errors
    /// [`DataError::Io`].
    pub fn write(&self, path: &Path) -> Result<()> {
        Ok(cloze_files::write_atomic(path, self.to_json().as_bytes())?)
    }

    /// The `preprocessor_config.json` that transformers 4 and 5 read: of a `DeiTImageProcessor` if a part is cut out,
    /// otherwise of a `ViTImageProcessor`.
    pub fn to_json(&self) -> String {
        let mut settings = Map::new();
        let mut set = |key: &str, value: Value| settings.insert(key.into(), value);
        if let Some((height, width)) = self.centre_crop {
            set("crop_size", json!({"height": height, "width": width}));
            set("do_center_crop", true.into());
        }
        set("do_normalize", self.normalise.is_some().into());
        set("do_rescale", self.rescale.is_some().into());
        set("do_resize", self.resize.is_some().into());
        if let Some(Normalisation { mean, .. }) = self.normalise {
            set("image_mean", decimals(mean));
        }
        let processor = if self.centre_crop.is_some() { "DeiTImageProcessor" } else { "ViTImageProcessor" };
        set("image_processor_type", processor.into());
        if let Some(Normalisation { std, .. }) = self.normalise {
            set("image_std", decimals(std));
        }
        if let Some((size, filter)) = self.resize {
            set("resample", resample(filter).into());
            set(
                "size",
                match size {
                    TargetSize::Exact { height, width } => json!({"height": height, "width": width}),
                    TargetSize::ShortestEdge(edge) => json!({"shortest_edge": edge}),
                },
            );
        }
        if let Some(factor) = self.rescale {
            set("rescale_factor", factor.into());
        }
        settings.sort_keys();
        let mut json = serde_json::to_string_pretty(&settings).expect("strings and finite numbers");
        json.push('\n');
        json
    }
}

/// Pillow's number of a filter.
fn resample(filter: Filter) -> u64 {
    match filter {
        Filter::Bilinear => 2,
        Filter::Bicubic => 3,
        Filter::Box => 4,
    }
}

/// By way of their decimal digits, so that 0.485 stays 0.485.
fn decimals(values: [f32; 3]) -> Value {
    let value = |value: f32| value.to_string().parse::<f64>().unwrap_or_else(|_| f64::from(value));
    json!(values.map(value))
}

fn setting(key: &str, problem: impl std::fmt::Display) -> DataError {
    DataError::ImageSetting { key: key.into(), problem: problem.to_string() }
}

fn expected(key: &str, found: &Value, expected: &str) -> DataError {
    setting(key, format_args!("is {found}; expected {expected}"))
}

/// A setting other than `null`.
fn present<'a>(settings: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    settings.get(key).filter(|value| !value.is_null())
}

fn is_deit(settings: &Map<String, Value>) -> Result<bool> {
    for key in ["image_processor_type", "feature_extractor_type"] {
        let Some(value) = present(settings, key) else { continue };
        let name = value.as_str().unwrap_or_default();
        let family = ["ImageProcessorFast", "ImageProcessorPil", "ImageProcessor", "FeatureExtractor"]
            .iter()
            .find_map(|ending| name.strip_suffix(ending));
        return match family {
            Some("ViT") => Ok(false),
            Some("DeiT") => Ok(true),
            _ => Err(expected(key, value, "the processor of ViT or DeiT")),
        };
    }
    Ok(false)
}

fn flag(settings: &Map<String, Value>, key: &str, default: bool) -> Result<bool> {
    match present(settings, key) {
        None => Ok(default),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(other) => Err(expected(key, other, "true or false")),
    }
}

fn filter(settings: &Map<String, Value>, default: Filter) -> Result<Filter> {
    let Some(value) = present(settings, "resample") else { return Ok(default) };
    [Filter::Bilinear, Filter::Bicubic, Filter::Box]
        .into_iter()
        .find(|filter| value.as_u64() == Some(resample(*filter)))
        .ok_or_else(|| expected("resample", value, "2 (bilinear), 3 (bicubic) or 4 (box)"))
}

fn target_size(settings: &Map<String, Value>, key: &str) -> Result<Option<TargetSize>> {
    let Some(value) = present(settings, key) else { return Ok(None) };
    let invalid = || {
        let forms = format!("a number, `height` and `width`, or `shortest_edge`, each from 1 to {MAX_SIDE}");
        expected(key, value, &forms)
    };
    let side = |value: &Value| {
        let side = value.as_u64().and_then(|side| usize::try_from(side).ok());
        side.filter(|side| (1..=MAX_SIDE).contains(side)).ok_or_else(invalid)
    };
    let found = match value {
        Value::Array(sides) if sides.len() == 2 => {
            TargetSize::Exact { height: side(&sides[0])?, width: side(&sides[1])? }
        }
        Value::Object(sides) => {
            // `null` is no side.
            let names: Vec<&str> =
                sides.iter().filter(|(_, side)| !side.is_null()).map(|(name, _)| name.as_str()).collect();
            match names[..] {
                ["height", "width"] | ["width", "height"] => {
                    TargetSize::Exact { height: side(&sides["height"])?, width: side(&sides["width"])? }
                }
                ["shortest_edge"] => TargetSize::ShortestEdge(side(&sides["shortest_edge"])?),
                _ => return Err(invalid()),
            }
        }
        value if flag(settings, "default_to_square", true)? => {
            let side = side(value)?;
            TargetSize::Exact { height: side, width: side }
        }
        value => TargetSize::ShortestEdge(side(value)?),
    };
    Ok(Some(found))
}

/// One number, or one for each colour. Default 0.5, of mean and deviation.
fn colours(settings: &Map<String, Value>, key: &str) -> Result<[f32; 3]> {
    let Some(value) = present(settings, key) else { return Ok([0.5; 3]) };
    let number =
        |value: &Value| value.as_f64().map(|number| number as f32).filter(|number| number.is_finite());
    let found = match value {
        Value::Array(values) => {
            let values: Option<Vec<f32>> = values.iter().map(number).collect();
            values.and_then(|values| values.try_into().ok())
        }
        value => number(value).map(|value| [value; 3]),
    };
    found.ok_or_else(|| expected(key, value, "three numbers, or one"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(json: &str) -> String {
        Preprocessing::from_json(json).unwrap_err().to_string()
    }

    fn size(json: &str) -> Option<(TargetSize, Filter)> {
        Preprocessing::from_json(json).unwrap().resize
    }

    #[test]
    fn sizes_have_several_forms() {
        let square = |side| TargetSize::Exact { height: side, width: side };
        assert_eq!(size("{}"), Some((square(224), Filter::Bilinear)));
        assert_eq!(size(r#"{"size": 8, "resample": 3}"#), Some((square(8), Filter::Bicubic)));
        let tall = Some((TargetSize::Exact { height: 9, width: 7 }, Filter::Box));
        assert_eq!(
            size(r#"{"size": {"width": 7, "height": 9, "shortest_edge": null}, "resample": 4}"#),
            tall
        );
        assert_eq!(size(r#"{"size": [9, 7], "resample": 4}"#), tall);
        let edge = Some((TargetSize::ShortestEdge(5), Filter::Bilinear));
        assert_eq!(size(r#"{"size": {"shortest_edge": 5}}"#), edge);
        assert_eq!(size(r#"{"size": 5, "default_to_square": false}"#), edge);
        assert_eq!(size(r#"{"size": 5, "do_resize": false}"#), None);
    }

    /// As published: vit-base-patch16-224, deit-base-distilled-patch16-224.
    #[test]
    fn old_files_have_their_processors_defaults() {
        let old = r#"{"do_normalize": true, "do_resize": true, "feature_extractor_type": "DeiTFeatureExtractor",
            "do_center_crop": true, "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225],
            "resample": 3, "size": 256, "crop_size": 224}"#;
        let deit = Preprocessing::from_json(old).unwrap();
        assert_eq!(deit.input_size(), Some((224, 224)));
        assert_eq!((deit.centre_crop, deit.rescale), (Some((224, 224)), Some(1.0 / 255.0)));
        assert_eq!(deit.resize, Some((TargetSize::Exact { height: 256, width: 256 }, Filter::Bicubic)));
        let defaults = r#"{"image_processor_type": "DeiTImageProcessorFast", "do_normalize": false}"#;
        assert_eq!(Preprocessing::from_json(defaults).unwrap(), Preprocessing { normalise: None, ..deit });
        assert_eq!(Preprocessing::from_json("{}").unwrap().input_size(), Some((224, 224)));
        assert_eq!(Preprocessing::from_json(r#"{"size": {"shortest_edge": 5}}"#).unwrap().input_size(), None);
    }

    #[test]
    fn what_may_change_pixels_is_refused_by_name() {
        let of = "of preprocessor_config.json";
        assert_eq!(
            message(r#"{"do_pad": true}"#),
            format!("`do_pad` {of}: is true; this setting is not supported, remove it")
        );
        assert!(message(r#"{"crop_pct": 0.875}"#).starts_with(&format!("`crop_pct` {of}: is 0.875; ")));
        assert!(message(r#"{"data_format": "channels_last"}"#).contains("data_format"));
        assert!(Preprocessing::from_json(r#"{"do_pad": false, "pad_size": null}"#).is_ok());
        assert!(Preprocessing::from_json(r#"{"data_format": "channels_first", "device": "cpu"}"#).is_ok());
        assert_eq!(
            message(r#"{"image_processor_type": "CLIPImageProcessor"}"#),
            format!(
                "`image_processor_type` {of}: is \"CLIPImageProcessor\"; expected the processor of ViT or DeiT"
            )
        );
        assert_eq!(
            message(r#"{"resample": 1}"#),
            format!("`resample` {of}: is 1; expected 2 (bilinear), 3 (bicubic) or 4 (box)")
        );
        for (json, key) in [
            (r#"{"size": 0}"#, "size"),
            (r#"{"size": -3}"#, "size"),
            (r#"{"size": 1000000}"#, "size"),
            (r#"{"size": {"height": 3}}"#, "size"),
            (r#"{"size": {"shortest_edge": 3, "longest_edge": 4}}"#, "size"),
            (r#"{"do_resize": 1}"#, "do_resize"),
            (r#"{"do_center_crop": true, "crop_size": {"shortest_edge": 3}}"#, "crop_size"),
            (r#"{"rescale_factor": 0}"#, "rescale_factor"),
            (r#"{"image_mean": [0.5, 0.5]}"#, "image_mean"),
            (r#"{"image_mean": "a"}"#, "image_mean"),
            (r#"{"image_std": [0.5, 0, 0.5]}"#, "image_std"),
            (r#"{"image_std": 0}"#, "image_std"),
        ] {
            let found = message(json);
            assert!(
                found.starts_with(&format!("`{key}` {of}: is ")) || key == "crop_size",
                "{json}: {found}"
            );
            assert_eq!(found.lines().count(), 1);
        }
        assert!(message("[]").starts_with("`preprocessor_config.json`"));
    }
}
