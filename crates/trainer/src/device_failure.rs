//! Classifies device failures by the panic messages of their backends.
//!
//! burn's operations return no errors. The texts are those of CubeCL 0.11.3 (`IoError`, `LaunchError` and `ServerError` in
//! cubecl-runtime, `device_poison.rs` in cubecl-wgpu), wgpu 30, cudarc 0.19 and libtorch 2.9.

use std::fmt;

/// Why a device failed, as far as the backend's message tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceFailure {
    /// Out of memory.
    OutOfMemory,
    /// It is gone, or a kernel left it in a state that requires a new process.
    Lost,
    /// Its driver or a CUDA library is missing or older than the build needs.
    Driver,
    /// It lacks what the computation needs: a missing adapter feature, or a limit that is too low.
    Feature,
    /// There is no device.
    Absent,
    /// Anything else.
    Other,
}

/// Phrases that identify a failure, in lower case. The first match counts: a message about memory may also
/// mention the driver.
const WORDS: [(DeviceFailure, &[&str]); 5] = [
    (
        DeviceFailure::OutOfMemory,
        &[
            "out of memory",
            "out-of-memory",
            "out of device memory",
            "out_of_memory",
            "outofmemory",
            "can't allocate",
            "cannot allocate",
            "failed to allocate",
            "not enough memory",
            "buffer size",
            "deferred allocation",
            "no room for",
            "alloc_failed",
        ],
    ),
    (
        DeviceFailure::Driver,
        &[
            "driver version is insufficient",
            "insufficient_driver",
            "driver_mismatch",
            "driver mismatch",
            "unsupported_ptx_version",
            "unsupported toolchain",
            "dynamically load",
            "no_binary_for_gpu",
            "invalid_ptx",
            "incompatible_driver",
            "incompatible driver",
        ],
    ),
    (
        DeviceFailure::Lost,
        &[
            "device is lost",
            "device lost",
            "devicelost",
            "device was lost",
            "is poisoned",
            "was poisoned",
            "illegal_address",
            "illegal address",
            "launch_failed",
            "launch_timeout",
            "ecc_uncorrectable",
            "hardware_stack_error",
            "unspecified launch failure",
        ],
    ),
    (
        DeviceFailure::Absent,
        &[
            "no adapter available",
            "no suitable graphics adapter",
            "no_device",
            "no cuda-capable device",
            "invalid_device",
        ],
    ),
    (
        DeviceFailure::Feature,
        &[
            "unable to request a wgpu device",
            "unable to acquire wgpu device",
            "unable to initialize wgpu",
            "graphics api",
            "missing features",
            "unsupported features",
            "features are required",
            "limit exceeded",
            "limitsexceeded",
            "exceeds maximum",
            "too much shared memory",
            "too many resources",
            "not supported",
            "unsupported",
            "not implemented",
        ],
    ),
];

impl DeviceFailure {
    /// Classifies a panic message.
    pub fn of(said: &str) -> Self {
        let lower = said.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
        let found = WORDS.iter().find(|(_, words)| words.iter().any(|word| lower.contains(word)));
        found.map_or(Self::Other, |(failure, _)| *failure)
    }

    /// Advice that holds for any computation; `None` if it depends on the computation or the cause is unknown.
    pub fn advice(self) -> Option<&'static str> {
        match self {
            Self::OutOfMemory | Self::Other => None,
            Self::Lost => Some("only a new process can use it again"),
            Self::Driver => Some(
                "install a newer driver of the device's maker or, if a library such as nvrtc is missing, the CUDA toolkit",
            ),
            Self::Feature => Some(
                "the device or its driver lacks what that needs: `cloze devices --check` shows which devices compute",
            ),
            Self::Absent => Some("`cloze devices` lists those available"),
        }
    }
}

/// A backend's message on one line, without code locations, plus any advice that does not depend on the
/// computation.
///
/// ```
/// use cloze_trainer::device_failure::Told;
///
/// let said = "wgpu error: Device lost\n   0: a::b\n      at a.rs:7\n";
/// let told = Told(said).to_string();
/// assert_eq!(told, "wgpu error: Device lost; only a new process can use it again");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Told<'a>(pub &'a str);

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.0.lines().map(str::trim).filter(|line| !line.is_empty());
        let is_trace = |line: &&str| {
            let number = line.split(':').next().unwrap_or_default();
            line.starts_with("Backtrace")
                || *line == "No backtrace available"
                || line.starts_with("at /")
                || line.starts_with("at ./")
                || !number.is_empty()
                    && line.contains(':')
                    && number.bytes().all(|byte| byte.is_ascii_digit())
        };
        // All that follows the first of them is of the trace.
        let message: Vec<&str> = lines.take_while(|line| !is_trace(line)).collect();
        let words = message.iter().flat_map(|line| line.split_whitespace());
        f.write_str(&words.collect::<Vec<_>>().join(" "))?;
        match DeviceFailure::of(self.0).advice() {
            Some(advice) => write!(f, "; {advice}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backends_words_tell_why() {
        for (said, expected) in [
            ("wgpu error: Out of Memory", DeviceFailure::OutOfMemory),
            (
                "wgpu error: Validation Error\n\nCaused by:\n  Buffer size 9000000000 is greater than the maximum buffer \
                 size (2147483648)",
                DeviceFailure::OutOfMemory,
            ),
            ("can't allocate buffer of size: 8589934592\n   0: cubecl", DeviceFailure::OutOfMemory),
            (
                "An IO error happened\nCaused by:\n  out of device memory allocating 4096 bytes",
                DeviceFailure::OutOfMemory,
            ),
            ("DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")", DeviceFailure::OutOfMemory),
            ("CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0)", DeviceFailure::OutOfMemory),
            ("The device is poisoned\nCaused by:\n  Unknown: a driver reset", DeviceFailure::Lost),
            (
                "DriverError(CUDA_ERROR_ILLEGAL_ADDRESS, \"an illegal memory access was encountered\")",
                DeviceFailure::Lost,
            ),
            (
                "DriverError(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, \"the provided PTX was compiled with an unsupported \
                 toolchain.\")",
                DeviceFailure::Driver,
            ),
            (
                "Unable to dynamically load the \"nvrtc\" shared library - searched for library names: [\"nvrtc\"].",
                DeviceFailure::Driver,
            ),
            (
                "Unable to acquire wgpu device: No adapter available for DefaultDevice: NotFound",
                DeviceFailure::Absent,
            ),
            (
                "Unable to acquire wgpu device: Unable to request a wgpu device: Limit 'max_storage_buffers' value 8 is \
                 better than allowed 4",
                DeviceFailure::Feature,
            ),
            (
                "Too many resources were requested during launch\nToo much shared memory requested.",
                DeviceFailure::Feature,
            ),
            ("index out of bounds: the len is 3", DeviceFailure::Other),
        ] {
            assert_eq!(DeviceFailure::of(said), expected, "{said}");
        }
    }

    #[test]
    fn a_trace_is_left_out_and_advice_added() {
        let told = |said: &str| Told(said).to_string();
        assert_eq!(told("device\n  gone"), "device gone");
        assert_eq!(
            told("The device is poisoned\nCaused by:\n  a reset\nBacktrace:\n   0: a::b\n      at /x.rs:3"),
            "The device is poisoned Caused by: a reset; only a new process can use it again"
        );
        assert_eq!(
            told("can't allocate buffer of size: 7\nNo backtrace available"),
            "can't allocate buffer of size: 7"
        );
        assert_eq!(told("12 of 13 failed: why\nand more"), "12 of 13 failed: why and more");
    }
}
