//! The innermost loop: up to two by two tiles of sums.
//!
//! With eight tiles, two by two needs the fewest loads, one per product: four sums, two tiles of the left
//! operand and two of the right one. Everything from the first tile to the last is one `asm!` block,
//! because clobbered registers do not keep their values between blocks.

use std::arch::asm;

/// Rows and columns of a block of 2 x 2 tiles.
pub(in crate::flex) const BLOCK: usize = 32;
/// Lanes of 32 bits along `k` in a tile.
pub(in crate::flex) const STEP: usize = 16;

/// Memory layout of the left operand's tiles, in bytes.
#[derive(Clone, Copy)]
pub(in crate::flex) struct Left {
    pub start: *const u8,
    /// Stride between rows within a tile.
    pub row: isize,
    /// Distance from the upper tile to the lower one.
    pub lower: isize,
    /// Stride between steps along `k`.
    pub step: isize,
}

impl Left {
    /// A packed panel: for each step 32 rows of 16 lanes.
    pub fn panel(start: *const u32) -> Self {
        Self { start: start.cast(), row: 64, lower: 1024, step: 2048 }
    }

    /// Rows in memory, `row` bytes apart: whole tiles are read, so rows and `k` are padded there.
    pub fn rows(start: *const u8, row: isize) -> Self {
        Self { start, row, lower: 16 * row, step: 64 }
    }
}

/// Sums in memory, with the stride between rows in bytes.
#[derive(Clone, Copy)]
pub(in crate::flex) struct Sums<T> {
    pub start: T,
    pub row: isize,
}

/// What the tiles hold.
pub(in crate::flex) trait Element {
    /// `to = onto + a·b`, or `a·b` if `onto` is null, for `R` by `V` tiles and `steps` steps along `k`. The
    /// right panel has 32 columns: 16 lanes of 128 bytes per step.
    ///
    /// With row stride zero, one row of `onto` is added to all rows.
    ///
    /// # Safety
    /// There are tiles and they are configured; all arguments point to whole tiles in memory.
    unsafe fn multiply<const R: usize, const V: usize>(
        steps: usize,
        a: Left,
        b: *const u32,
        onto: Sums<*const u8>,
        to: Sums<*mut u8>,
    );
}

/// Pairs of bf16 numbers, summed in FP32.
pub(in crate::flex) struct Bf16Pairs;
/// Fours of unsigned integers on the left, signed ones on the right.
pub(in crate::flex) struct UnsignedSigned;

/// One shape of tiles: the lines for the second row and column are optional.
macro_rules! block {
    (
        $steps:ident $a:ident $b:ident $onto:ident $to:ident,
        zero: [$($zero:literal),*], onto: [$($begin:literal),*], work: [$($work:expr),*], end: [$($end:literal),*]
    ) => {
        asm!(
            // Some shapes do not name it.
            "/* {wanted} */",
            "test {onto}, {onto}",
            "jnz 2f",
            $($zero,)*
            "jmp 4f",
            "2:",
            $($begin,)*
            "4:",
            $($work,)*
            "add {a}, {step}",
            "add {lower}, {step}",
            "add {b}, 2048",
            "dec {steps}",
            "jnz 4b",
            $($end,)*
            a = inout(reg) $a.start => _,
            lower = inout(reg) $a.start.wrapping_offset($a.lower) => _,
            row = in(reg) $a.row,
            step = in(reg) $a.step,
            b = inout(reg) $b => _,
            width = in(reg) 128usize,
            steps = inout(reg) $steps => _,
            onto = inout(reg) $onto.start => _,
            onto_row = inout(reg) $onto.row => _,
            to = inout(reg) $to.start => _,
            wanted = inout(reg) $to.start => _,
            to_row = inout(reg) $to.row => _,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        )
    };
}

macro_rules! element {
    ($name:ty, $dot:literal) => {
        impl Element for $name {
            #[inline]
            unsafe fn multiply<const R: usize, const V: usize>(
                steps: usize,
                a: Left,
                b: *const u32,
                onto: Sums<*const u8>,
                to: Sums<*mut u8>,
            ) {
                debug_assert!(steps > 0);
                // SAFETY: the caller's promise.
                unsafe {
                    match (R, V) {
                        (2, 2) => block!(
                            steps a b onto to,
                            zero: ["tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3"],
                            onto: [
                                "tileloadd tmm0, [{onto} + {onto_row}]",
                                "tileloadd tmm1, [{onto} + {onto_row} + 64]",
                                // 16 rows on.
                                "shl {onto_row}, 4", "add {onto}, {onto_row}", "sar {onto_row}, 4",
                                "tileloadd tmm2, [{onto} + {onto_row}]",
                                "tileloadd tmm3, [{onto} + {onto_row} + 64]"
                            ],
                            // Between them the target is fetched, two rows to a step: stores that miss the first-level
                            // cache took as long as half of the sums, and fetching all rows at once as long.
                            work: [
                                "tileloadd tmm4, [{a} + {row}]",
                                "tileloadd tmm6, [{b} + {width}]",
                                concat!($dot, " tmm0, tmm4, tmm6"),
                                "tileloadd tmm7, [{b} + {width} + 64]",
                                "prefetchw [{wanted}]", "prefetchw [{wanted} + 64]",
                                "add {wanted}, {to_row}",
                                concat!($dot, " tmm1, tmm4, tmm7"),
                                "tileloadd tmm5, [{lower} + {row}]",
                                concat!($dot, " tmm2, tmm5, tmm6"),
                                "prefetchw [{wanted}]", "prefetchw [{wanted} + 64]",
                                "add {wanted}, {to_row}",
                                concat!($dot, " tmm3, tmm5, tmm7")
                            ],
                            end: [
                                "tilestored [{to} + {to_row}], tmm0",
                                "tilestored [{to} + {to_row} + 64], tmm1",
                                "shl {to_row}, 4", "add {to}, {to_row}", "sar {to_row}, 4",
                                "tilestored [{to} + {to_row}], tmm2",
                                "tilestored [{to} + {to_row} + 64], tmm3"
                            ]
                        ),
                        (2, 1) => block!(
                            steps a b onto to,
                            zero: ["tilezero tmm0", "tilezero tmm2"],
                            onto: [
                                "tileloadd tmm0, [{onto} + {onto_row}]",
                                "shl {onto_row}, 4", "add {onto}, {onto_row}", "sar {onto_row}, 4",
                                "tileloadd tmm2, [{onto} + {onto_row}]"
                            ],
                            work: [
                                "tileloadd tmm4, [{a} + {row}]",
                                "tileloadd tmm6, [{b} + {width}]",
                                concat!($dot, " tmm0, tmm4, tmm6"),
                                "tileloadd tmm5, [{lower} + {row}]",
                                concat!($dot, " tmm2, tmm5, tmm6")
                            ],
                            end: [
                                "tilestored [{to} + {to_row}], tmm0",
                                "shl {to_row}, 4", "add {to}, {to_row}", "sar {to_row}, 4",
                                "tilestored [{to} + {to_row}], tmm2"
                            ]
                        ),
                        (1, 2) => block!(
                            steps a b onto to,
                            zero: ["tilezero tmm0", "tilezero tmm1"],
                            onto: [
                                "tileloadd tmm0, [{onto} + {onto_row}]",
                                "tileloadd tmm1, [{onto} + {onto_row} + 64]"
                            ],
                            work: [
                                "tileloadd tmm4, [{a} + {row}]",
                                "tileloadd tmm6, [{b} + {width}]",
                                concat!($dot, " tmm0, tmm4, tmm6"),
                                "tileloadd tmm7, [{b} + {width} + 64]",
                                concat!($dot, " tmm1, tmm4, tmm7")
                            ],
                            end: [
                                "tilestored [{to} + {to_row}], tmm0",
                                "tilestored [{to} + {to_row} + 64], tmm1"
                            ]
                        ),
                        (1, 1) => block!(
                            steps a b onto to,
                            zero: ["tilezero tmm0"],
                            onto: ["tileloadd tmm0, [{onto} + {onto_row}]"],
                            work: [
                                "tileloadd tmm4, [{a} + {row}]",
                                "tileloadd tmm6, [{b} + {width}]",
                                concat!($dot, " tmm0, tmm4, tmm6")
                            ],
                            end: ["tilestored [{to} + {to_row}], tmm0"]
                        ),
                        _ => unreachable!("a block has up to two by two tiles"),
                    }
                }
            }
        }
    };
}

element!(Bf16Pairs, "tdpbf16ps");
element!(UnsignedSigned, "tdpbusd");
