//! Round numbers along an axis.

/// Up to about `most` round numbers within an axis, with their labels; at least half as many.
pub(crate) fn ticks(low: f64, high: f64, most: usize) -> Vec<(f64, String)> {
    let rough = (high - low) / most.max(1) as f64;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .map(|digit| digit * power)
        .into_iter()
        .find(|step| *step >= rough * (1.0 - 1e-9));
    let step = step.unwrap_or(power);
    let (first, last) = ((low / step).ceil(), (high / step).floor());
    if !step.is_finite() {
        return Vec::new();
    }
    // Where numbers are so large that steps of theirs are lost in them, there are no ticks.
    if !(0.0..=20.0).contains(&(last - first)) {
        return Vec::new();
    }
    let decimals = (-step.log10().floor()).clamp(0.0, 12.0) as usize;
    let text = |tick: f64| match tick.abs() {
        1e7.. => format!("{tick:.2e}"),
        _ if step < 1e-6 => format!("{tick:.2e}"),
        _ if step < 1e-4 && low.abs().max(high.abs()) < 1e-2 => format!("{tick:.1e}"),
        // No minus before a zero.
        _ => format!("{:.decimals$}", tick + 0.0),
    };
    (0..=(last - first) as usize).map(|i| (first + i as f64) * step).map(|tick| (tick, text(tick))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        let labels = |low, high, most| -> Vec<String> {
            ticks(low, high, most).into_iter().map(|(_, label)| label).collect()
        };
        assert_eq!(labels(-0.15, 5.15, 6), ["0", "1", "2", "3", "4", "5"]);
        assert_eq!(labels(-0.1, 0.1, 5), ["-0.10", "-0.05", "0.00", "0.05", "0.10"]);
        assert_eq!(labels(0.0, 1_000.0, 7), ["0", "200", "400", "600", "800", "1000"]);
        assert_eq!(labels(1e-5, 6e-5, 3), ["2.0e-5", "4.0e-5", "6.0e-5"]);
        assert_eq!(labels(1e300, 5e300, 5)[0], "1.00e300");
        assert!(ticks(1e16, 1e16 + 2.0, 6).len() <= 10);
        assert!(ticks(f64::MIN, f64::MAX, 6).is_empty());
    }
}
