//! Line charts as SVG, for pages and for files of their own.
//!
//! A chart has no fixed colour: its style sheet gives lines, text and ground a colour for light, dark and
//! printed pages. It scales with its window, and a narrow window gets larger letters and fewer ticks.

mod ticks;

use maud::{Markup, PreEscaped, html};

use crate::table;

pub(crate) use ticks::ticks;

/// The style of every chart.
pub(crate) const STYLE: &str = include_str!("chart.css");

/// The width of the picture, the right margin of a plot and its height, in the picture's units.
const WIDTH: f64 = 640.0;
const RIGHT: f64 = 40.0;
const HEIGHT: f64 = 220.0;

/// The height of a line of text: that of a narrow window's letters.
const ROW: f64 = 24.0;

/// The width of a digit in a narrow window's letters.
const DIGIT: f64 = 12.8;

/// Colours of lines, and the marks that tell lines of the same colour apart.
const COLORS: usize = 10;
const MARKS: usize = 4;

/// Labels below a plot, at most.
const X_LABELS: usize = 12;

/// Panels of lines over one horizontal axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// The picture's name: its heading, and what a screen reader says. May be empty.
    pub title: String,
    /// The label of the horizontal axis, such as `step`.
    pub axis: String,
    /// What the horizontal axis counts.
    pub places: Places,
    /// The panels, from top to bottom.
    pub panels: Vec<ChartPanel>,
}

/// The horizontal axis of a [`Chart`].
#[derive(Clone, Debug, PartialEq)]
pub enum Places {
    /// Whole numbers from 0, such as steps.
    Numbers,
    /// Named places: a point's `x` is a name's index. A line break in a name begins a second line.
    Names(Vec<String>),
}

/// A panel of a [`Chart`]: lines over the same axes.
#[derive(Clone, Debug, PartialEq)]
pub struct ChartPanel {
    /// The label of the vertical axis, such as `loss (nats)`.
    pub axis: String,
    /// Its lines; those without finite points are left out.
    pub lines: Vec<ChartLine>,
}

/// A line of a [`ChartPanel`].
#[derive(Clone, Debug, PartialEq)]
pub struct ChartLine {
    /// Its label in the legend.
    pub label: String,
    /// How it is drawn.
    pub look: Look,
    /// Its colour by number. The first ten differ in colour, the next ten also in the shape of their marks.
    pub color: usize,
    /// Its points; those that are not finite, or 1e300 or more, are left out.
    pub points: Vec<(f64, f64)>,
}

/// The look of a [`ChartLine`].
#[derive(Clone, Debug, PartialEq)]
pub enum Look {
    /// A line with a mark at each point.
    Marked,
    /// A line over these raw values, drawn faintly.
    Smoothed {
        /// The raw values.
        raw: Vec<(f64, f64)>,
    },
    /// A dashed grey line from edge to edge: a baseline.
    Baseline,
}

impl Chart {
    /// The picture as a file of its own, with its style and without the need of anything else.
    pub fn to_svg(&self) -> String {
        let style = format!("{STYLE}{}", include_str!("alone.css"));
        self.draw(Some(&style)).into_string() + "\n"
    }

    /// The picture within a page that has its style.
    pub(crate) fn to_markup(&self) -> Markup {
        self.draw(None)
    }

    fn draw(&self, style: Option<&str>) -> Markup {
        let mut panels = Vec::new();
        let mut top = if self.title.is_empty() { 4.0 } else { ROW + 8.0 };
        for panel in &self.panels {
            let drawn = Drawn::of(panel, self, top);
            top = drawn.bottom() + self.room_below();
            panels.push(drawn);
        }
        // Room for the longest label of any panel, so that all plots begin at one place.
        let longest = panels.iter().flat_map(|panel| panel.ticks()).map(|(_, label)| label.chars().count());
        let left = 14.0 + DIGIT * longest.max().unwrap_or(0).max(3) as f64;
        panels.iter_mut().for_each(|panel| panel.left = left);
        let middle = left + (WIDTH - left - RIGHT) / 2.0;
        let bottom = if panels.is_empty() { top } else { top + ROW };
        // A file of its own has a margin; a page has its own.
        let margin = if style.is_some() { 12.0 } else { 0.0 };
        let size = [WIDTH + 2.0 * margin, bottom + 4.0 + 2.0 * margin].map(px).join(" ");
        let view = format!("{0} {0} {size}", px(-margin));
        html! {
            svg.chart xmlns="http://www.w3.org/2000/svg" viewBox=(view) width="100%" role="img" aria-label=(self.name()) {
                @if let Some(style) = style {
                    title { (self.title) }
                    style { (PreEscaped(style)) }
                }
                @if !self.title.is_empty() { text.title x=(px(WIDTH / 2.0)) y=(px(ROW - 4.0)) text-anchor="middle" { (self.title) } }
                @for panel in &panels { (panel.draw(&self.places)) }
                @if !panels.is_empty() {
                    text x=(px(middle)) y=(px(bottom - 4.0)) text-anchor="middle" { (self.axis) }
                }
            }
        }
    }

    /// What a screen reader says.
    fn name(&self) -> String {
        if !self.title.is_empty() {
            return self.title.clone();
        }
        let axes: Vec<&str> = self.panels.iter().map(|panel| panel.axis.as_str()).collect();
        format!("{} by {}", axes.join(", "), self.axis)
    }

    /// The room for labels below each panel.
    fn room_below(&self) -> f64 {
        let lines = match &self.places {
            Places::Numbers => 1,
            Places::Names(names) => names.iter().map(|name| name.lines().count()).max().unwrap_or(1),
        };
        10.0 + ROW * lines.max(1) as f64
    }

    /// The largest `x` of the axis.
    fn last(&self) -> f64 {
        match &self.places {
            Places::Names(names) => names.len().saturating_sub(1).max(1) as f64,
            Places::Numbers => {
                let lines = self.panels.iter().flat_map(|panel| &panel.lines);
                lines.flat_map(ChartLine::finite).map(|(x, _)| x).fold(1.0, f64::max)
            }
        }
    }
}

impl ChartLine {
    fn finite(&self) -> impl Iterator<Item = (f64, f64)> {
        finite(&self.points)
    }

    /// All values that the axis has to show.
    fn values(&self) -> impl Iterator<Item = f64> {
        let raw = match &self.look {
            Look::Smoothed { raw } => raw.as_slice(),
            Look::Marked | Look::Baseline => &[],
        };
        self.finite().chain(finite(raw)).map(|(_, y)| y)
    }

    /// The classes of its colour.
    fn class(&self) -> String {
        match self.look {
            Look::Baseline => "line baseline".into(),
            Look::Marked | Look::Smoothed { .. } => format!("line line-{}", self.color % COLORS),
        }
    }
}

/// The points that can be drawn. The distance of two values that are larger may be infinite.
fn finite(points: &[(f64, f64)]) -> impl Iterator<Item = (f64, f64)> {
    points.iter().copied().filter(|(x, y)| x.is_finite() && y.abs() < 1e300)
}

/// The bias-corrected exponential moving average of the values, over about a thirtieth of them.
pub fn running_mean(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let keep = 1.0 - 1.0 / (points.len() as f64 / 30.0).max(1.0);
    let (mut sum, mut weight) = (0.0, 0.0);
    points
        .iter()
        .map(|&(x, y)| {
            sum = sum * keep + y;
            weight = weight * keep + 1.0;
            (x, sum / weight)
        })
        .collect()
}

/// A panel at its place in the picture.
struct Drawn<'a> {
    axis: &'a str,
    lines: Vec<&'a ChartLine>,
    /// Where it begins.
    top: f64,
    /// Where its plot begins.
    left: f64,
    /// The largest `x`.
    last: f64,
    /// The room at both ends of the horizontal axis.
    inset: f64,
    low: f64,
    high: f64,
}

impl<'a> Drawn<'a> {
    fn of(panel: &'a ChartPanel, chart: &Chart, top: f64) -> Self {
        let lines: Vec<&ChartLine> =
            panel.lines.iter().filter(|line| line.finite().next().is_some()).collect();
        let (low, high) = range(lines.iter().flat_map(|line| line.values()));
        let inset = if chart.places == Places::Numbers { 0.0 } else { 24.0 };
        Self { axis: &panel.axis, lines, top, left: 0.0, last: chart.last(), inset, low, high }
    }

    /// Where the plot begins: below the axis' label and the legend.
    fn plot(&self) -> f64 {
        self.top + ROW * (1 + self.lines.len()) as f64 + 6.0
    }

    fn bottom(&self) -> f64 {
        self.plot() + HEIGHT
    }

    /// The numbers of its vertical axis.
    fn ticks(&self) -> Vec<(f64, String)> {
        ticks(self.low, self.high, 6)
    }

    fn x(&self, value: f64) -> f64 {
        let left = self.left;
        left + self.inset + (WIDTH - left - RIGHT - 2.0 * self.inset) * value / self.last
    }

    fn y(&self, value: f64) -> f64 {
        self.plot() + HEIGHT * (self.high - value) / (self.high - self.low)
    }

    fn draw(&self, places: &Places) -> Markup {
        let (plot, bottom, left, right) = (self.plot(), self.bottom(), self.left, WIDTH - RIGHT);
        html! {
            text.axis x="0.0" y=(px(self.top + ROW - 7.0)) { (self.axis) }
            @for (row, line) in self.lines.iter().enumerate() {
                (legend(line, self.top + ROW * (row + 2) as f64 - 12.0))
            }
            @for (at, (value, label)) in self.ticks().into_iter().enumerate() {
                line.grid x1=(px(left)) x2=(px(right)) y1=(px(self.y(value))) y2=(px(self.y(value))) {}
                text.minor[at % 2 == 1] x=(px(left - 8.0)) y=(px(self.y(value) + 5.0)) text-anchor="end" { (label) }
            }
            (self.labels(places))
            rect.frame x=(px(left)) y=(px(plot)) width=(px(right - left)) height=(px(bottom - plot)) {}
            @for line in &self.lines { (self.line(line)) }
        }
    }

    /// The labels below the plot; a narrow window has every other one.
    fn labels(&self, places: &Places) -> Markup {
        let labels: Vec<(f64, String)> = match places {
            Places::Numbers => {
                let whole = ticks(0.0, self.last, 7).into_iter().filter(|(value, _)| value.fract() == 0.0);
                whole.map(|(value, _)| (value, table::grouped(value as u64))).collect()
            }
            Places::Names(names) => {
                let every = names.len().div_ceil(X_LABELS).max(1);
                let shown = names.iter().enumerate().step_by(every);
                shown.map(|(at, name)| (at as f64, name.clone())).collect()
            }
        };
        html! {
            @for (at, (value, label)) in labels.iter().enumerate() {
                @let x = px(self.x(*value));
                line.tick x1=(x) x2=(x) y1=(px(self.bottom())) y2=(px(self.bottom() + 5.0)) {}
                @for (row, text) in label.lines().enumerate() {
                    text.minor[at % 2 == 1] x=(x) y=(px(self.bottom() + ROW * (row + 1) as f64)) text-anchor="middle" { (text) }
                }
            }
        }
    }

    fn line(&self, line: &ChartLine) -> Markup {
        let places: Vec<(f64, f64)> = line.finite().map(|(x, y)| (self.x(x), self.y(y))).collect();
        html! {
            g class=(line.class()) {
                @match &line.look {
                    Look::Smoothed { raw } => {
                        polyline.raw points=(path(finite(raw).map(|(x, y)| (self.x(x), self.y(y))))) {}
                        polyline points=(path(places)) {}
                    }
                    Look::Marked => {
                        polyline points=(path(places.iter().copied())) {}
                        @for (x, y) in places { (mark(line.color, x, y)) }
                    }
                    // From edge to edge, so that a single evaluation shows too.
                    Look::Baseline => {
                        @let ends = [(self.left, places.first()), (WIDTH - RIGHT, places.last())].map(|(x, end)| end.map(|(_, y)| (x, *y)));
                        polyline points=(path(ends[0].into_iter().chain(places.iter().copied()).chain(ends[1]))) {}
                    }
                }
            }
        }
    }
}

/// A line's row of the legend, with its middle at `y`.
fn legend(line: &ChartLine, y: f64) -> Markup {
    html! {
        g class=(line.class()) {
            polyline points=(path([(2.0, y), (30.0, y)])) {}
            @if line.look == Look::Marked { (mark(line.color, 16.0, y)) }
        }
        text.legend x="38.0" y=(px(y + 5.0)) { (line.label) }
    }
}

/// A mark: a circle, a square, a triangle or a diamond, in the order of tens of colours.
fn mark(color: usize, x: f64, y: f64) -> Markup {
    let corners: &[(f64, f64)] = match color / COLORS % MARKS {
        0 => return html! { circle cx=(px(x)) cy=(px(y)) r="3.5" {} },
        1 => &[(-3.5, -3.5), (3.5, -3.5), (3.5, 3.5), (-3.5, 3.5)],
        2 => &[(0.0, -5.0), (4.5, 3.5), (-4.5, 3.5)],
        _ => &[(0.0, -5.5), (5.5, 0.0), (0.0, 5.5), (-5.5, 0.0)],
    };
    html! { polygon points=(path(corners.iter().map(|(right, down)| (x + right, y + down)))) {} }
}

fn path(points: impl IntoIterator<Item = (f64, f64)>) -> String {
    let points: Vec<String> = points.into_iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    points.join(" ")
}

fn px(value: f64) -> String {
    format!("{value:.1}")
}

/// The range of values with a margin; a single value gets an axis around it.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), y| (low.min(y), high.max(y)));
    if low > high {
        return (0.0, 1.0);
    }
    let margin = if high > low { (high - low) * 0.06 } else { 0.05 * high.abs().max(1.0) };
    // A correlation may be below 0; a loss or a share is not.
    let floor = if low < 0.0 { f64::NEG_INFINITY } else { 0.0 };
    ((low - margin).max(floor), high + margin)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(label: &str, color: usize, look: Look, points: &[(f64, f64)]) -> ChartLine {
        ChartLine { label: label.into(), look, color, points: points.to_vec() }
    }

    fn chart(places: Places, lines: Vec<ChartLine>) -> Chart {
        let panels = vec![ChartPanel { axis: "loss <nats>".into(), lines }];
        Chart { title: "a <run>".into(), axis: "step".into(), places, panels }
    }

    #[test]
    fn a_picture_says_what_it_shows_and_fixes_no_colour() {
        let lines = vec![
            line(
                "training",
                0,
                Look::Smoothed { raw: vec![(1.0, 3.0), (2.0, 1.0)] },
                &[(1.0, 2.0), (2.0, 1.5)],
            ),
            line("dev & test", 1, Look::Marked, &[(2.0, 2.0), (1_000.0, f64::NAN)]),
            line("never measured", 2, Look::Marked, &[(1.0, f64::NAN)]),
            line("always one class", 0, Look::Baseline, &[(2.0, 2.5)]),
        ];
        let svg = chart(Places::Numbers, lines).to_svg();
        for part in
            ["a &lt;run&gt;", "loss &lt;nats&gt;", "step", "training", "dev &amp; test", "always one class"]
        {
            assert!(svg.contains(part), "{part} is missing in {svg}");
        }
        assert!(!svg.contains("never measured"), "the legend names only what is drawn");
        assert!(svg.contains("viewBox=\"-12.0 -12.0 664.0") && svg.contains("prefers-color-scheme: dark"));
        for fixed in [" fill=\"", " stroke=\"", " style=\"", "NaN", "inf"] {
            assert!(!svg.contains(fixed), "{fixed} in {svg}");
        }
        // One in the legend, one at the point.
        assert_eq!(svg.matches("<circle").count(), 2);
        assert!(svg.ends_with("</svg>\n"));
    }

    #[test]
    fn a_page_s_picture_has_no_style_of_its_own() {
        let chart = chart(Places::Numbers, vec![line("a", 0, Look::Marked, &[(1.0, 1.0)])]);
        let markup = chart.to_markup().into_string();
        assert!(!markup.contains("<style") && markup.contains("class=\"chart\""));
    }

    #[test]
    fn lines_beyond_the_colours_have_other_marks() {
        let lines =
            (0..40).map(|number| line(&format!("line {number}"), number, Look::Marked, &[(0.0, 1.0)]));
        let drawn: Vec<String> = lines.map(|line| legend(&line, 0.0).into_string()).collect();
        let looks: std::collections::BTreeSet<&str> =
            drawn.iter().map(|drawn| drawn.split("<text").next().unwrap()).collect();
        assert_eq!(looks.len(), 40);
    }

    #[test]
    fn names_are_labels_and_few_of_many_are_shown() {
        let names = |count: usize| (0..count).map(|at| format!("layer {at}\nsecond")).collect();
        let labels = |count: usize| {
            let points: Vec<(f64, f64)> = (0..count).map(|at| (at as f64, 0.5)).collect();
            let lines = vec![line("a", 0, Look::Marked, &points)];
            chart(Places::Names(names(count)), lines).to_svg().matches(">second<").count()
        };
        assert_eq!((labels(3), labels(12), labels(49)), (3, 12, 10));
    }

    #[test]
    fn odd_values_still_make_a_picture() {
        for points in [
            &[][..],
            &[(0.0, f64::NAN)],
            &[(0.0, 3.0)],
            &[(1.0, f64::MAX), (2.0, f64::MIN)],
            &[(1.0, 1e-300)],
        ] {
            for places in [Places::Numbers, Places::Names(vec![]), Places::Names(vec!["a".into()])] {
                let svg = chart(places, vec![line("a", 0, Look::Marked, points)]).to_svg();
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{points:?}: {svg}");
            }
        }
        let none = Chart { panels: Vec::new(), ..chart(Places::Numbers, Vec::new()) };
        assert!(none.to_svg().ends_with("</svg>\n"));
    }

    #[test]
    fn axes_have_room_around_their_values() {
        assert_eq!(range([].into_iter()), (0.0, 1.0));
        assert_eq!(range([0.0, 10.0].into_iter()), (0.0, 10.6));
        assert!(range([-0.2, 0.7].into_iter()).0 < -0.2);
        let (low, high) = range([3.0].into_iter());
        assert!(low < 3.0 && high > 3.0);
    }

    #[test]
    fn smoothing_keeps_a_constant_and_averages_noise() {
        let constant: Vec<_> = (0..300).map(|x| (f64::from(x), 2.0)).collect();
        assert!(running_mean(&constant).iter().all(|(_, y)| (y - 2.0).abs() < 1e-12));
        let noisy: Vec<_> = (0..300).map(|x| (f64::from(x), f64::from(x % 2))).collect();
        let (_, last) = running_mean(&noisy)[299];
        assert!((last - 0.5).abs() < 0.06, "{last}");
        // Few points are left as they are.
        assert_eq!(running_mean(&[(1.0, 5.0), (2.0, 3.0)]), [(1.0, 5.0), (2.0, 3.0)]);
    }
}
