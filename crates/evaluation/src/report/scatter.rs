//! A scatter plot as SVG, in the page's colours.

use maud::{Markup, html};

use super::html::sample;
use crate::chart::ticks;

/// Maximum points drawn.
const POINTS: usize = 2_000;

/// The side of the plot, and the margins left of and below it, in pixels.
const SIDE: f64 = 420.0;
const MARGIN: f64 = 56.0;

/// The points (evenly sampled if there are many) on equal axes with the diagonal. Non-finite points are left
/// out.
pub(super) fn plot(points: &[(f64, f64)], x_label: &str, y_label: &str) -> Markup {
    let finite: Vec<(f64, f64)> =
        points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
    let all = || finite.iter().flat_map(|(x, y)| [*x, *y]);
    let (low, high) = (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max));
    // A single value gets an axis around it.
    let room = if low == high { 0.5 * low.abs().max(1.0) } else { 0.03 * (high - low) };
    let (low, high) = (low - room, high + room);
    let range = high - low;
    if !range.is_finite() || range <= 0.0 {
        return html! { p.note { "There are no values to draw." } };
    }
    let x = |value: f64| MARGIN + SIDE * (value - low) / range;
    let y = |value: f64| 8.0 + SIDE * (high - value) / range;
    let px = |value: f64| format!("{value:.1}");
    let (width, height) = (px(MARGIN + SIDE + 12.0), px(8.0 + SIDE + MARGIN));
    html! {
        svg.drawn width=(width) height=(height) viewBox={ "0 0 " (width) " " (height) } role="img" aria-label={ (x_label) " and " (y_label) } {
            @for (tick, label) in ticks(low, high, 6) {
                line.grid x1=(px(x(tick))) x2=(px(x(tick))) y1="8.0" y2=(px(8.0 + SIDE)) {}
                line.grid y1=(px(y(tick))) y2=(px(y(tick))) x1=(px(MARGIN)) x2=(px(MARGIN + SIDE)) {}
                text x=(px(x(tick))) y=(px(8.0 + SIDE + 16.0)) text-anchor="middle" { (label) }
                text x=(px(MARGIN - 6.0)) y=(px(y(tick) + 4.0)) text-anchor="end" { (label) }
            }
            rect.frame x=(px(MARGIN)) y="8.0" width=(px(SIDE)) height=(px(SIDE)) {}
            line.ideal x1=(px(x(low))) y1=(px(y(low))) x2=(px(x(high))) y2=(px(y(high))) {}
            @for i in sample(finite.len(), POINTS) {
                circle.point cx=(px(x(finite[i].0))) cy=(px(y(finite[i].1))) r="2.6" {}
            }
            text x=(px(MARGIN + SIDE / 2.0)) y=(px(8.0 + SIDE + 38.0)) text-anchor="middle" { (x_label) }
            text transform={ "translate(14 " (px(8.0 + SIDE / 2.0)) ") rotate(-90)" } text-anchor="middle" { (y_label) }
        }
        @if finite.len() < points.len() {
            p.note { "Not finite, and so not drawn: " (points.len() - finite.len()) "." }
        }
        @if finite.len() > POINTS { p.note { (POINTS) " of " (finite.len()) " points, evenly spaced." } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_breaks_the_picture() {
        let circles = |points: &[(f64, f64)]| plot(points, "x", "y").into_string().matches("<circle").count();
        assert_eq!(circles(&[]), 0);
        assert_eq!(circles(&[(f64::NAN, 1.0), (1.0, f64::INFINITY)]), 0);
        assert_eq!(circles(&[(1.0, 1.0)]), 1);
        assert_eq!(circles(&[(0.0, 0.0), (f64::NAN, 1.0)]), 1);
        assert_eq!(circles(&[(f64::MAX, f64::MIN)]), 0);
        assert_eq!(circles(&[(1e-310, 2e-310), (0.0, 1e-300)]), 2);
        assert_eq!(circles(&vec![(1.0, 2.0); 5_000]), POINTS);
    }
}
