//! A thing of a scene, and its box.

use super::Description;

/// The side of a scene in its own unit, in which places are whole numbers: 16 units are a pixel of 64.
pub(super) const UNITS: i64 = 1024;

/// A thing of a scene.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thing {
    /// What it looks like.
    pub description: Description,
    /// Its own red, green and blue.
    pub rgb: [u8; 3],
    /// The column of its centre, from the left, in 1024ths of the image's side.
    pub x: i64,
    /// The row of its centre, from the top, in the same unit.
    pub y: i64,
    /// Half the side of its box, in the same unit.
    pub radius: i64,
}

/// A rectangle of whole pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PixelBox {
    /// The first column.
    pub left: usize,
    /// The first row.
    pub top: usize,
    /// One after the last column.
    pub right: usize,
    /// One after the last row.
    pub bottom: usize,
}

impl Thing {
    /// Its box in an image of `side` × `side` pixels: the pixels that it touches. From 32 pixels on, the boxes of a scene's
    /// things do not overlap.
    pub fn bounds(&self, side: usize) -> PixelBox {
        let first = |units: i64| (units * side as i64).div_euclid(UNITS).max(0) as usize;
        let end = |units: i64| (units * side as i64 + UNITS - 1).div_euclid(UNITS) as usize;
        PixelBox {
            left: first(self.x - self.radius),
            top: first(self.y - self.radius),
            right: end(self.x + self.radius).min(side),
            bottom: end(self.y + self.radius).min(side),
        }
    }
}

impl PixelBox {
    /// Whether it contains the pixel in column `x` and row `y`.
    pub fn contains(&self, x: usize, y: usize) -> bool {
        (self.left..self.right).contains(&x) && (self.top..self.bottom).contains(&y)
    }

    /// The number of its pixels.
    pub fn area(&self) -> usize {
        (self.right - self.left) * (self.bottom - self.top)
    }
}
