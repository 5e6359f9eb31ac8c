//! `cloze devices`.

use anyhow::Result;

use crate::device;
use crate::output::{Output, say};

/// List the devices that this build and this machine offer, the default first.
///
/// A line each: the name that --device takes, a tab, what it is. The backends that this build
/// leaves out are named on standard error, with how to add them.
#[derive(clap::Args)]
pub struct Args {}

pub fn run(_: &Args) -> Result<()> {
    let mut output = Output::new();
    for device in device::available() {
        output.line(format_args!("{}\t{}", device.name, device.description))?;
    }
    output.flush()?;
    let missing = device::missing_features();
    if let Some(first) = missing.first() {
        say(format_args!(
            "not in this build: {}; add one with `cargo build --release -p cloze --features {first}`",
            missing.join(", ")
        ));
    }
    Ok(())
}
