//! Device failures during a run: the device is lost, runs out of memory, or lacks an operation.
//!
//! burn's operations return no errors. A failing backend panics, in the operation or later, when a value is
//! read.

use crate::device_failure::{DeviceFailure, Told};
use crate::{Result, TrainerError};
use cloze_data::panic_message;
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What remains of a run whose device failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// All steps: the parameters could still be read and were saved.
    All {
        /// The last step.
        step: u64,
    },
    /// An older checkpoint.
    Checkpoint {
        /// Its step.
        step: u64,
    },
    /// There was no checkpoint yet.
    Nothing,
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let go_on = "resume with --resume, on another device if necessary (--device)";
        match self {
            Self::All { step } => write!(f, "all is saved after step {step}: {go_on}"),
            Self::Checkpoint { step } => write!(f, "the last checkpoint is that of step {step}: {go_on}"),
            Self::Nothing => {
                write!(f, "there is no checkpoint yet: start again, on another device (--device)")
            }
        }
    }
}

/// The result of `work`; a panic within it is a device failure in step `step`.
pub(crate) fn guarded<T>(step: u64, work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        Err(TrainerError::DeviceFailed { step, reason: reason(panic.as_ref()), kept: Kept::Nothing })
    })
}

/// A panic's message on one line, with advice if available.
fn reason(panic: &(dyn Any + Send)) -> String {
    let said = panic_message(panic);
    let told = Told(said);
    match DeviceFailure::of(said) {
        DeviceFailure::OutOfMemory => format!(
            "{told}; it is short of memory: lower the batch (`train.batch_size` or `train.batch_tokens`) and raise \
             `train.accumulate` as much, set `train.recompute = true`, or shorten the sequences"
        ),
        _ => told.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(work: impl FnOnce()) -> String {
        let error = guarded(7, || {
            work();
            Ok(())
        });
        error.unwrap_err().to_string()
    }

    #[test]
    fn a_panic_is_an_error_of_one_line() {
        let error = failure(|| panic!("device\n  lost"));
        let start = "step 7: the device failed: device lost; only a new process can use it again; there is no \
                     checkpoint";
        assert!(error.starts_with(start), "{error}");
        let error = failure(|| panic!("Out of memory: {} bytes", 7));
        assert!(
            error.contains(
                "Out of memory: 7 bytes; it is short of memory: lower the batch (`train.batch_size`"
            ),
            "{error}"
        );
        assert!(failure(|| std::panic::panic_any(3)).contains("no message"));
        assert_eq!(guarded(1, || Ok(5)).unwrap(), 5);
    }
}
