//! `cloze devices`.

use anyhow::{Result, bail};
use cloze_model::ops::{Kernels, kernels};
use comfy_table::{Table, presets};
use serde_json::json;

use crate::check::{Check, check};
use crate::device::{self, Available, DeviceName};
use crate::output::{Output, say};

/// List the devices that this build and this machine offer, the default first.
///
/// A line each: the name that --device takes, and what it is. Of flex, also by which of the processor's
/// instructions it multiplies matrices in each format. The backends that this build leaves out are named on
/// standard error, with how to add them. With --check a small model is trained for a step on each.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  cloze devices
  cloze devices --check
  cloze devices --json")]
pub struct Args {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Compute a small model's loss, gradients and an update on each device, and compare them with those of flex.
    #[arg(long)]
    check: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let (devices, missing) = (device::available(), device::missing_features());
    let checked: Option<Vec<Check>> =
        args.check.then(|| devices.iter().map(|device| check(device.name)).collect());
    let checks = checked.as_deref().unwrap_or_default();
    let mut output = Output::new();
    output.line(if args.json { json(&devices, checks, &missing) } else { table(&devices, checks) })?;
    output.flush()?;
    if let Some(first) = missing.first() {
        say(format_args!(
            "not in this build: {}; add one with `cargo build --release -p cloze --features {first}`",
            missing.join(", ")
        ));
    }
    let wrong: Vec<String> = devices
        .iter()
        .zip(checks)
        .filter(|(_, check)| !check.passes())
        .map(|(device, _)| device.name.to_string())
        .collect();
    match wrong.is_empty() {
        true => Ok(()),
        false => bail!("{} computed wrongly or failed; do not train there", wrong.join(", ")),
    }
}

/// What multiplies matrices on a device, where that is ours to choose.
fn kernels_of(device: &Available) -> Option<&'static Kernels> {
    (device.name == DeviceName::Flex).then(kernels)
}

/// A line for each device, and for each format of the kernels below it.
fn table(devices: &[Available], checks: &[Check]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    for (place, device) in devices.iter().enumerate() {
        let default = if place == 0 { " (default)" } else { "" };
        table.add_row([device.name.to_string(), format!("{}{default}", device.description)]);
        if let Some(check) = checks.get(place) {
            table.add_row([String::new(), check.to_string()]);
        }
        let Some(Kernels { fp32, bf16, int8, refused, .. }) = kernels_of(device) else {
            continue;
        };
        for (format, kernel) in [("FP32", fp32), ("bf16", bf16), ("8-bit", int8)] {
            table.add_row([String::new(), format!("{format} products: {kernel}")]);
        }
        for kernel in refused {
            table
                .add_row([String::new(), format!("not used, because its products are wrong here: {kernel}")]);
        }
    }
    table.trim_fmt()
}

/// `{"devices": [{"name": ..., "description": ..., "default": ..., "kernels": {"fp32": ..., "bf16": ..., "int8": ...,
/// "refused": [...]}, "check": {"passed": ..., "difference": ..., "seconds": ..., "error": ...}}], "missing": [...]}`,
/// without `kernels` where the backend chooses them.
fn json(devices: &[Available], checks: &[Check], missing: &[&str]) -> String {
    let devices = devices.iter().enumerate().map(|(place, device)| {
        let mut entry = json!({
            "name": device.name.to_string(),
            "description": device.description,
            "default": place == 0,
        });
        if let Some(Kernels { fp32, bf16, int8, refused, .. }) = kernels_of(device) {
            entry["kernels"] = json!({ "fp32": fp32, "bf16": bf16, "int8": int8, "refused": refused });
        }
        if let Some(check) = checks.get(place) {
            entry["check"] = check.json();
        }
        entry
    });
    json!({ "devices": devices.collect::<Vec<_>>(), "missing": missing }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices() -> Vec<Available> {
        let device = |name, description: &str| Available { name, description: description.to_owned() };
        vec![device(DeviceName::Flex, "CPU"), device(DeviceName::Cuda(1), "a GPU")]
    }

    #[test]
    fn people_see_flex_with_its_kernels_and_which_is_the_default() {
        let Kernels { fp32, bf16, int8, .. } = kernels();
        let table = table(&devices(), &[]);
        let lines: Vec<&str> = table.lines().map(str::trim).collect();
        assert!(lines[0].starts_with("flex") && lines[0].ends_with("CPU (default)"), "{table}");
        let expected = [("FP32", fp32), ("bf16", bf16), ("8-bit", int8)];
        assert_eq!(lines[1..4], expected.map(|(format, kernel)| format!("{format} products: {kernel}")));
        assert!(lines.last().unwrap().starts_with("cuda:1") && table.ends_with("a GPU"), "{table}");
    }

    #[test]
    fn programs_read_the_same() {
        let value: serde_json::Value = serde_json::from_str(&json(&devices(), &[], &["wgpu"])).unwrap();
        assert_eq!(value["devices"][0]["kernels"]["bf16"], kernels().bf16);
        assert_eq!(value["devices"][0]["default"], true);
        let other = json!({ "name": "cuda:1", "description": "a GPU", "default": false });
        assert_eq!(value["devices"][1], other);
        assert_eq!(value["missing"], json!(["wgpu"]));
    }
}
