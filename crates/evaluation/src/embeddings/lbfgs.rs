//! The minimum of a smooth function by L-BFGS (Nocedal and Wright 2006, algorithms 7.4 and 7.5).
//!
//! Implemented here because the published crates would add a linear-algebra library and another error type
//! for a hundred lines.

use std::collections::VecDeque;

/// Number of steps kept for the Hessian approximation.
const MEMORY: usize = 10;
/// Constants of the Wolfe conditions: sufficient decrease and curvature.
const DECREASE: f64 = 1e-4;
const FLATNESS: f64 = 0.9;
/// Maximum trials of a line search.
const TRIALS: usize = 60;

/// The minimum found for a function.
pub(super) struct Minimum {
    pub point: Vec<f64>,
    pub value: f64,
    pub iterations: usize,
    /// Whether every component of the gradient is within the tolerance.
    pub is_converged: bool,
}

/// Minimises from `start`. `function` returns its value at a point and writes the gradient; `step_done` is
/// called after each step.
pub(super) fn minimize(
    start: Vec<f64>,
    max_iterations: usize,
    tolerance: f64,
    function: impl Fn(&[f64], &mut [f64]) -> f64,
    step_done: &mut dyn FnMut(usize),
) -> Minimum {
    let mut point = start;
    let mut gradient = vec![0.0; point.len()];
    let mut value = function(&point, &mut gradient);
    let mut steps: VecDeque<Step> = VecDeque::with_capacity(MEMORY);
    let mut iterations = 0;
    let is_flat = |gradient: &[f64]| gradient.iter().all(|slope| slope.abs() <= tolerance);
    while !is_flat(&gradient) && iterations < max_iterations {
        let direction = direction(&gradient, &steps);
        let length = if steps.is_empty() { 1.0 / dot(&gradient, &gradient).sqrt() } else { 1.0 };
        let Some(next) = search(&point, value, &gradient, &direction, length, &function) else {
            // The value's last digits are all that is left to gain.
            break;
        };
        iterations += 1;
        let step =
            Step { moved: difference(&next.point, &point), bent: difference(&next.gradient, &gradient) };
        if dot(&step.moved, &step.bent) > f64::EPSILON * dot(&step.bent, &step.bent) {
            if steps.len() == MEMORY {
                steps.pop_front();
            }
            steps.push_back(step);
        }
        (point, value, gradient) = (next.point, next.value, next.gradient);
        step_done(iterations);
    }
    Minimum { is_converged: is_flat(&gradient), point, value, iterations }
}

/// A step, and the change of the gradient along it.
struct Step {
    moved: Vec<f64>,
    bent: Vec<f64>,
}

/// Minus the approximate inverse Hessian times the gradient.
fn direction(gradient: &[f64], steps: &VecDeque<Step>) -> Vec<f64> {
    let mut direction: Vec<f64> = gradient.iter().map(|slope| -slope).collect();
    let mut shares = Vec::with_capacity(steps.len());
    for step in steps.iter().rev() {
        let share = dot(&step.moved, &direction) / dot(&step.moved, &step.bent);
        add(&mut direction, -share, &step.bent);
        shares.push(share);
    }
    if let Some(last) = steps.back() {
        let scale = dot(&last.moved, &last.bent) / dot(&last.bent, &last.bent);
        direction.iter_mut().for_each(|slope| *slope *= scale);
    }
    for (step, share) in steps.iter().zip(shares.iter().rev()) {
        let back = dot(&step.bent, &direction) / dot(&step.moved, &step.bent);
        add(&mut direction, share - back, &step.moved);
    }
    direction
}

struct Tried {
    point: Vec<f64>,
    value: f64,
    gradient: Vec<f64>,
}

/// A step length that satisfies the Wolfe conditions, by doubling and bisection; near the minimum, where
/// values differ only by rounding, Hager and Zhang's approximate form by slopes alone.
fn search(
    point: &[f64],
    value: f64,
    gradient: &[f64],
    direction: &[f64],
    first: f64,
    function: &impl Fn(&[f64], &mut [f64]) -> f64,
) -> Option<Tried> {
    let slope = dot(gradient, direction);
    let (mut low, mut high, mut length) = (0.0, f64::INFINITY, first);
    for _ in 0..TRIALS {
        let mut tried = Tried { point: point.to_vec(), value: 0.0, gradient: vec![0.0; point.len()] };
        add(&mut tried.point, length, direction);
        tried.value = function(&tried.point, &mut tried.gradient);
        let slope_there = dot(&tried.gradient, direction);
        let falls = tried.value <= value + DECREASE * length * slope;
        let falls_by_slope =
            tried.value <= value + 1e-12 * value.abs() && slope_there <= (2.0 * DECREASE - 1.0) * slope;
        if !(falls || falls_by_slope) {
            high = length;
        } else if slope_there < FLATNESS * slope {
            low = length;
        } else {
            return Some(tried);
        }
        length = if high.is_finite() { (low + high) / 2.0 } else { 2.0 * length };
    }
    None
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(to: &mut [f64], times: f64, vector: &[f64]) {
    to.iter_mut().zip(vector).for_each(|(to, value)| *to += times * value);
}

fn difference(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rosenbrock's valley, whose minimum is 0 at (1, 1).
    #[test]
    fn the_end_of_a_bent_valley_is_found() {
        let valley = |at: &[f64], gradient: &mut [f64]| {
            let (x, y) = (at[0], at[1]);
            gradient[0] = -2.0 * (1.0 - x) - 400.0 * x * (y - x * x);
            gradient[1] = 200.0 * (y - x * x);
            (1.0 - x).powi(2) + 100.0 * (y - x * x).powi(2)
        };
        let mut heard = 0;
        let found = minimize(vec![-1.2, 1.0], 200, 1e-9, valley, &mut |_| heard += 1);
        assert!(found.is_converged && found.value < 1e-16, "{}", found.value);
        assert!(found.point.iter().all(|part| (part - 1.0).abs() < 1e-8), "{:?}", found.point);
        assert_eq!(heard, found.iterations);
        assert!(!minimize(vec![-1.2, 1.0], 3, 1e-9, valley, &mut |_| ()).is_converged);
    }
}
