//! Computes every case on devices and on flex, and prints a line of JSON for each.

use std::io::Write;
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use cloze::device::DeviceName;
use cloze_backends::{CASES, WORKAROUNDS, compare};
use serde_json::json;

/// Hold devices against flex.
#[derive(Parser)]
struct Args {
    /// The devices, by the names that `cloze --device` takes.
    #[arg(required = true)]
    devices: Vec<DeviceName>,
    /// Only cases with this in their names.
    #[arg(long, default_value = "")]
    only: String,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let flex = DeviceName::Flex.open().expect("flex is always built in");
    for name in &args.devices {
        let device = match name.open() {
            Ok(device) => device,
            Err(error) => {
                eprintln!("error: {error}");
                return ExitCode::FAILURE;
            }
        };
        for case in CASES.iter().filter(|case| case.name.contains(&args.only)) {
            let began = Instant::now();
            // A backend that lacks an operation panics in it: that is one failed case.
            let difference = panic::catch_unwind(AssertUnwindSafe(|| (case.run)(&device)));
            let seconds = began.elapsed().as_secs_f64();
            let mut line = json!({ "device": name.to_string(), "case": case.name, "seconds": seconds });
            match difference.map(|found| compare(&found, &(case.run)(&flex))) {
                Ok(difference) => line["difference"] = json!(difference),
                Err(panic) => line["panic"] = json!(cloze::data::panic_message(panic.as_ref())),
            }
            println!("{line}");
            std::io::stdout().flush().ok();
        }
        for workaround in WORKAROUNDS {
            let needed = panic::catch_unwind(AssertUnwindSafe(|| (workaround.is_needed)(&device)));
            println!("{}", json!({ "workaround": workaround.name, "needed": needed.ok() }));
        }
    }
    ExitCode::SUCCESS
}
