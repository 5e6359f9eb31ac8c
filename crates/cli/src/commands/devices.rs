//! `cloze devices`.

use anyhow::{Result, bail};
use cloze_model::ops::{Kernels, kernels};
use cloze_trainer::memory::bytes;
use comfy_table::{Table, presets};
use serde_json::json;

use crate::check::{Check, check};
use crate::compute;
use crate::device::{self, Available, DeviceName};
use crate::memory;
use crate::output::{Output, say};

/// List the devices available in this build and on this machine, the default first.
///
/// Example: cloze devices
///
/// For each device: the name for --device, a description, its memory if known, and the precisions it multiplies
/// in; for flex, also which processor instructions multiply matrices in each format. Backends missing from this
/// build are named on standard error, with how to add them. With --check, each device trains a small model for
/// one step.
#[derive(clap::Args)]
#[command(after_long_help = "\
More examples:
  cloze devices --check
  cloze devices --json")]
pub struct Args {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Compute a small model's loss, gradients and an update on each device, and compare them with flex.
    #[arg(long)]
    check: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let (available, missing) = (device::available(), device::missing_features());
    let names: Vec<DeviceName> = available.iter().map(|device| device.name).collect();
    let checks = if args.check { check(&names) } else { Vec::new() };
    let devices: Vec<Row> = available.into_iter().map(Row::new).collect();
    let mut output = Output::new();
    output.line(if args.json { json(&devices, &checks, &missing) } else { table(&devices, &checks) })?;
    output.flush()?;
    if let Some(first) = missing.first() {
        say(format_args!(
            "not in this build: {}; add one with `cargo build --release -p cloze --features {first}`",
            missing.join(", ")
        ));
    }
    let wrong: Vec<String> = names
        .iter()
        .zip(&checks)
        .filter(|(_, check)| !check.passes())
        .map(|(name, _)| name.to_string())
        .collect();
    match wrong.is_empty() {
        true => Ok(()),
        false => bail!("{} computed wrongly or failed; do not train there", wrong.join(", ")),
    }
}

/// A row of the device table.
struct Row {
    name: DeviceName,
    description: String,
    /// In bytes, if known.
    memory: Option<u64>,
    /// Precisions it multiplies in; empty if the device does not open.
    precisions: Vec<&'static str>,
}

impl Row {
    fn new(available: Available) -> Self {
        let device = available.name.open().ok();
        let memory = device.as_ref().and_then(|device| memory::of_available(&available, device));
        let precisions = device.as_ref().map_or_else(Vec::new, compute::precisions);
        Self { name: available.name, description: available.description, memory, precisions }
    }

    /// The matrix kernels it uses, if cloze chooses them.
    fn kernels(&self) -> Option<&'static Kernels> {
        (self.name == DeviceName::Flex).then(kernels)
    }

    /// Memory and precisions.
    fn abilities(&self) -> String {
        let memory = self.memory.map_or_else(|| "memory unknown".to_owned(), bytes);
        match self.precisions.is_empty() {
            true => "cannot be opened".to_owned(),
            false => format!("{memory}; {}", self.precisions.join(", ")),
        }
    }
}

/// A line for each device, followed by one for each format of its kernels.
fn table(devices: &[Row], checks: &[Check]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    for (place, device) in devices.iter().enumerate() {
        let default = if place == 0 { " (default)" } else { "" };
        table.add_row([device.name.to_string(), format!("{}{default}", device.description)]);
        table.add_row([String::new(), device.abilities()]);
        if let Some(check) = checks.get(place) {
            table.add_row([String::new(), check.to_string()]);
        }
        let Some(Kernels { fp32, bf16, int8, refused, .. }) = device.kernels() else {
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

/// `{"devices": [{"name": ..., "description": ..., "default": ..., "memory": ..., "precisions": [...], "kernels": {"fp32":
/// ..., "bf16": ..., "int8": ..., "refused": [...]}, "check": {"passed": ..., "difference": ..., "seconds": ..., "error":
/// ...}}], "missing": [...]}`, without `kernels` where the backend chooses them; `memory` is in bytes, null where it is
/// unknown.
fn json(devices: &[Row], checks: &[Check], missing: &[&str]) -> String {
    let devices = devices.iter().enumerate().map(|(place, device)| {
        let mut entry = json!({
            "name": device.name.to_string(),
            "description": device.description,
            "default": place == 0,
            "memory": device.memory,
            "precisions": device.precisions,
        });
        if let Some(Kernels { fp32, bf16, int8, refused, .. }) = device.kernels() {
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

    fn devices() -> Vec<Row> {
        let device = |name, description: &str, memory, precisions| Row {
            name,
            description: description.to_owned(),
            memory,
            precisions,
        };
        let flex = device(DeviceName::Flex, "CPU", Some(25_300_000_000), vec!["FP32", "bf16", "8-bit"]);
        vec![flex, device(DeviceName::Cuda(1), "a GPU", None, vec!["FP32"])]
    }

    #[test]
    fn people_see_flex_with_its_kernels_and_which_is_the_default() {
        let Kernels { fp32, bf16, int8, .. } = kernels();
        let table = table(&devices(), &[]);
        let lines: Vec<&str> = table.lines().map(str::trim).collect();
        assert!(lines[0].starts_with("flex") && lines[0].ends_with("CPU (default)"), "{table}");
        assert_eq!(lines[1], "25.3 GB; FP32, bf16, 8-bit");
        let expected = [("FP32", fp32), ("bf16", bf16), ("8-bit", int8)];
        assert_eq!(lines[2..5], expected.map(|(format, kernel)| format!("{format} products: {kernel}")));
        let last = lines.len() - 2;
        assert!(lines[last].starts_with("cuda:1") && lines[last].ends_with("a GPU"), "{table}");
        assert_eq!(lines[last + 1], "memory unknown; FP32");
    }

    #[test]
    fn programs_read_the_same() {
        let value: serde_json::Value = serde_json::from_str(&json(&devices(), &[], &["wgpu"])).unwrap();
        assert_eq!(value["devices"][0]["kernels"]["bf16"], kernels().bf16);
        assert_eq!(value["devices"][0]["default"], true);
        let other = json!({
            "name": "cuda:1", "description": "a GPU", "default": false, "memory": null, "precisions": ["FP32"],
        });
        assert_eq!(value["devices"][1], other);
        assert_eq!(value["missing"], json!(["wgpu"]));
    }

    #[cfg(feature = "flex")]
    #[test]
    fn the_cpu_tells_its_memory_and_precisions() {
        let row = Row::new(Available { name: DeviceName::Flex, description: "CPU".into() });
        assert!(
            row.memory > Some(1 << 26) && row.precisions == ["FP32", "bf16", "8-bit"],
            "{}",
            row.abilities()
        );
    }
}
