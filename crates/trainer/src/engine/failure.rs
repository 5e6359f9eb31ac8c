//! A device that fails in the middle of a run: it is lost, has too little memory, or lacks an operation.
//!
//! burn's operations return no errors. A backend that fails panics, in the operation or later, where a number is read.

use crate::device_failure::{DeviceFailure, Told};
use crate::{Result, TrainerError};
use cloze_data::panic_message;
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What is left of a run whose device failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// All steps that were made: their parameters could still be read, and have a checkpoint.
    All {
        /// The last one of them.
        step: u64,
    },
    /// An older checkpoint.
    Checkpoint {
        /// The last step that it has.
        step: u64,
    },
    /// There was no checkpoint yet.
    Nothing,
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let go_on = "go on with --resume, on another device if need be (--device)";
        match self {
            Self::All { step } => write!(f, "all is saved after step {step}: {go_on}"),
            Self::Checkpoint { step } => write!(f, "the last checkpoint is that of step {step}: {go_on}"),
            Self::Nothing => {
                write!(f, "there is no checkpoint yet: start again, on another device (--device)")
            }
        }
    }
}

/// The result of `work`; a panic within it is the failure of a device, in the step with that number.
pub(crate) fn guarded<T>(step: u64, work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        Err(TrainerError::DeviceFailed { step, reason: reason(panic.as_ref()), kept: Kept::Nothing })
    })
}

/// What a panic said, on one line, with what to do where that is known.
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
