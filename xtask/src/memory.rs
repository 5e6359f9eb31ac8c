//! The memory of processes, where Linux tells it.

use std::fs;

/// A field of a process's status, such as `VmHWM`, the most memory that it has held, in kB.
pub fn kilobytes(process: u32, field: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_held_at_least_what_it_holds() {
        let of = |field| kilobytes(std::process::id(), field);
        assert!(of("VmRSS").unwrap() > 0 && of("VmHWM").unwrap() >= of("VmRSS").unwrap());
        assert_eq!((of("Vm"), of("VmNone"), kilobytes(u32::MAX, "VmRSS")), (None, None, None));
    }
}
