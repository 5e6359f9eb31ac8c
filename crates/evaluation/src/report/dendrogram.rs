//! A dendrogram: which of some things are alike, and at what distance groups of them meet.

use maud::{Markup, html};

use crate::chart::ticks;
use crate::similarity::{Merge, leaves};

/// The picture's width, the height of a row, and the room below the plot, in the picture's units.
const WIDTH: f64 = 640.0;
const ROW: f64 = 26.0;
const BELOW: f64 = 52.0;

/// The width of a letter, and the letters of a name that are shown.
const LETTER: f64 = 8.5;
const LETTERS: usize = 24;

/// The dendrogram of names that are merged so; nothing for distances that are not finite. The axis is labelled with what
/// distances are.
pub(super) fn dendrogram(names: &[String], merges: &[Merge], axis: &str) -> Option<Markup> {
    if merges.is_empty() || merges.iter().any(|merge| !merge.distance.is_finite()) {
        return None;
    }
    let shown = |name: &String| match name.chars().count() > LETTERS {
        true => name.chars().take(LETTERS - 1).chain(['…']).collect(),
        false => name.clone(),
    };
    let names: Vec<String> = names.iter().map(shown).collect();
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let left = 16.0 + LETTER * longest as f64;
    let largest = merges.iter().map(|merge| merge.distance).fold(0.0, f64::max);
    let end = if largest > 0.0 { largest * 1.05 } else { 1.0 };
    let x = |distance: f64| left + (WIDTH - 24.0 - left) * (distance.max(0.0) / end);

    let order = leaves(names.len(), merges);
    let mut places = vec![(x(0.0), 0.0); names.len()];
    for (row, element) in order.iter().enumerate() {
        places[*element].1 = ROW * (row as f64 + 0.5);
    }
    let mut lines = Vec::new();
    for merge in merges {
        let [first, second] = merge.groups.map(|group| places[group]);
        let meet = x(merge.distance);
        let corners = [first, (meet, first.1), (meet, second.1), second];
        lines.push(corners.map(|(x, y)| format!("{x:.1},{y:.1}")).join(" "));
        places.push((meet, (first.1 + second.1) / 2.0));
    }
    let bottom = ROW * names.len() as f64;
    let view = format!("0 0 {WIDTH} {:.0}", bottom + BELOW);
    let label = format!("dendrogram by {axis}");
    Some(html! {
        div.curve {
            svg.chart xmlns="http://www.w3.org/2000/svg" viewBox=(view) width="100%" role="img" aria-label=(label) {
                @for (tick, text) in ticks(0.0, end, 6) {
                    @let at = format!("{:.1}", x(tick));
                    line.grid x1=(at) y1="0" x2=(at) y2=(bottom) {}
                    text x=(at) y=(bottom + 20.0) text-anchor="middle" { (text) }
                }
                g.line.line-0 {
                    @for points in &lines { polyline points=(points) {} }
                }
                @for (row, element) in order.iter().enumerate() {
                    text x=(format!("{:.1}", left - 8.0)) y=(format!("{:.1}", ROW * (row as f64 + 0.5) + 4.5)) text-anchor="end" {
                        (names[*element])
                    }
                }
                text.axis x=(format!("{:.1}", (left + WIDTH - 24.0) / 2.0)) y=(bottom + 42.0) text-anchor="middle" { (axis) }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::similarity::average_linkage;

    #[test]
    fn similar_names_are_neighbours() {
        let distances = vec![vec![0.0, 0.8, 0.1], vec![0.8, 0.0, 0.9], vec![0.1, 0.9, 0.0]];
        let names = ["a<b>", "other", "a name of more than twenty-four letters"].map(String::from);
        let drawn = dendrogram(&names, &average_linkage(&distances), "1 − ρ").unwrap().into_string();
        assert_eq!(drawn.matches("<polyline").count(), 2);
        let place = |text: &str| drawn.find(text).unwrap_or_else(|| panic!("{text}: {drawn}"));
        let (first, second, last) = (place("other"), place("a&lt;b&gt;"), place("a name of more than twe…"));
        assert!(first < second && second < last, "{drawn}");
        // The later merge is further to the right.
        let ends: Vec<f64> = drawn
            .split("points=\"")
            .skip(1)
            .map(|points| points.split([' ', ',']).nth(2).unwrap().parse().unwrap())
            .collect();
        assert!(ends[0] < ends[1], "{drawn}");
    }

    #[test]
    fn nothing_is_drawn_of_no_distances() {
        assert!(dendrogram(&["a".into()], &[], "x").is_none());
        let merge = Merge { groups: [0, 1], distance: f64::NAN, size: 2 };
        assert!(dendrogram(&["a".into(), "b".into()], &[merge], "x").is_none());
        // Things that are the same have no distance.
        let merge = Merge { distance: 0.0, ..merge };
        assert!(!dendrogram(&["a".into(), "b".into()], &[merge], "x").unwrap().into_string().contains("NaN"));
    }
}
