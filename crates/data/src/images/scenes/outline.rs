//! What is inside a shape, in whole numbers.

use super::Shape;

/// Half of an outline's width and height. The outlines of all shapes touch the four sides of a square of twice this side.
const REACH: i64 = 1000;

/// Corners as `(x, y)` from the centre, downwards, in thousandths of half the width.
const TRIANGLE: &[(i64, i64)] = &[(0, -1000), (1000, 1000), (-1000, 1000)];

/// A regular pentagram, stretched by 5 % to be as high as it is wide.
const STAR: &[(i64, i64)] = &[
    (0, -1000),
    (236, -236),
    (1000, -236),
    (382, 236),
    (618, 1000),
    (0, 528),
    (-618, 1000),
    (-382, 236),
    (-1000, -236),
    (-236, -236),
];

impl Shape {
    /// Whether a place is inside a shape whose box has half the side `radius`. `x` and `y` count from its centre to the
    /// right and downwards, in the unit of `radius`, which is at most 2^28.
    pub(super) fn contains(self, x: i64, y: i64, radius: i64) -> bool {
        if x.abs().max(y.abs()) > radius {
            return false;
        }
        match self {
            Self::Square => true,
            Self::Circle => x * x + y * y <= radius * radius,
            Self::Ring => (radius * radius..=4 * radius * radius).contains(&(4 * (x * x + y * y))),
            Self::Cross => 3 * x.abs().min(y.abs()) <= radius,
            Self::Triangle => is_inside(TRIANGLE, x, y, radius),
            Self::Star => is_inside(STAR, x, y, radius),
        }
    }
}

/// Whether an odd number of a polygon's edges is above the place.
fn is_inside(corners: &[(i64, i64)], x: i64, y: i64, radius: i64) -> bool {
    let place = |(corner_x, corner_y): (i64, i64)| (corner_x * radius, corner_y * radius);
    // All in thousandths of the unit, which makes the corners whole numbers.
    let (x, y) = (x * REACH, y * REACH);
    let edges = corners.iter().zip(corners.iter().cycle().skip(1));
    let n_above = edges.filter(|(from, to)| {
        let ((left, left_y), (right, right_y)) = match from.0 <= to.0 {
            true => (place(**from), place(**to)),
            false => (place(**to), place(**from)),
        };
        let product = |a: i64, b: i64| i128::from(a) * i128::from(b);
        left <= x && x < right && product(y - left_y, right - left) > product(right_y - left_y, x - left)
    });
    n_above.count() % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(shape: Shape) -> Vec<String> {
        let row = |y| (-6..=6).map(|x| if shape.contains(x, y, 6) { '#' } else { '.' }).collect();
        (-6..=6).map(row).collect()
    }

    #[test]
    fn shapes_have_their_outlines() {
        let circle = picture(Shape::Circle);
        assert_eq!(circle[0], "......#......");
        assert_eq!(circle[3], ".###########.");
        assert_eq!(circle[6], "#############");
        assert_eq!(picture(Shape::Ring)[6], "####.....####");
        assert_eq!(picture(Shape::Square), vec!["#############"; 13]);
        let cross = picture(Shape::Cross);
        assert_eq!((&cross[0][..], &cross[6][..]), ("....#####....", "#############"));
        let triangle: Vec<usize> =
            picture(Shape::Triangle).iter().map(|row| row.matches('#').count()).collect();
        assert!(triangle.is_sorted() && triangle[2] <= 3 && triangle[11] >= 11, "{triangle:?}");
    }

    /// A star's area is 0.3062 of its box: from the areas of a regular pentagram, 1.1226 r², and of its box.
    #[test]
    fn shapes_have_their_areas() {
        let shares = [
            (Shape::Circle, std::f64::consts::FRAC_PI_4),
            (Shape::Square, 1.0),
            (Shape::Triangle, 0.5),
            (Shape::Star, 1.1226 / (1.9021 * 1.8090)),
            (Shape::Ring, 0.75 * std::f64::consts::FRAC_PI_4),
            (Shape::Cross, 5.0 / 9.0),
        ];
        // Half steps, so that no place is on an edge.
        let half = |i: i64| 2 * i + 1;
        for (shape, share) in shares {
            let inside = (-200..200)
                .flat_map(|y| (-200..200).map(move |x| (half(x), half(y))))
                .filter(|(x, y)| shape.contains(*x, *y, 400));
            let found = inside.count() as f64 / 160_000.0;
            assert!((found - share).abs() < 0.005, "{shape}: {found}, expected {share}");
        }
    }
}
