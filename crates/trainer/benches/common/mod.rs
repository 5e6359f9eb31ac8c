//! What steps are measured with.

/// The process's peak resident memory, 0 where the system does not say.
pub fn peak_megabytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<f64>().ok())
        .map_or(0.0, |kb| kb / 1e3)
}

/// The middle of times, the mean of the two in the middle of an even number.
pub fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    f64::midpoint(times[(times.len() - 1) / 2], times[times.len() / 2])
}
