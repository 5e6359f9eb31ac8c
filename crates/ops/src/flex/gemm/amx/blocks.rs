//! Integers in blocks with scales: tiles multiply a block, and vectors scale its sums, which needs them in memory.
//!
//! A tile's sums are stored, converted and scaled while later blocks are multiplied, in other registers. With the same registers for
//! each block it took 1.2 times as long.

use super::super::avx512::BLOCK;
use super::tiles::BLOCK as TILES;
use std::arch::asm;
use std::arch::x86_64::*;
use std::mem::MaybeUninit;

/// Rows and columns of a tile of sums.
const TILE: usize = 16;

/// Tiles of sums in memory, and in registers.
const HELD: usize = 4;
/// A block's sums are scaled when so many later ones were begun.
const BEHIND: usize = 2;

#[repr(align(64))]
#[allow(dead_code, reason = "reached by pointers")]
struct Held([[i32; TILE * TILE]; HELD]);

/// `to += Σ scale·(a·b)` over blocks of [`BLOCK`] lanes. The left panel has whole rows, the right one's lanes are of as many
/// columns; `scales` and `to` are of as many numbers for each block and for each row.
///
/// # Safety
/// There are tiles, which are [configured for blocks](super::machine::Tiles::for_blocks), and AVX-512; the panels have
/// `n_blocks` blocks, and the left one as many rows as the right one has columns.
#[target_feature(enable = "avx512f")]
pub(in crate::flex) unsafe fn multiply_blocks(
    n_blocks: usize,
    a: *const u32,
    b: *const u32,
    scales: *const f32,
    [height, width]: [usize; 2],
    to: *mut f32,
) {
    for row in (0..height).step_by(TILE) {
        for column in (0..width).step_by(TILE) {
            // SAFETY: the caller's promise.
            unsafe {
                let (a, to) = (a.add(row * n_blocks * BLOCK), to.add(row * TILES + column));
                tile(n_blocks, a, b.add(column), scales.add(column), to);
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn tile(n_blocks: usize, a: *const u32, b: *const u32, scales: *const f32, to: *mut f32) {
    let mut held = MaybeUninit::<Held>::uninit();
    let held: *mut [i32; TILE * TILE] = held.as_mut_ptr().cast();
    // SAFETY: the caller's promise.
    unsafe {
        let mut scaled = [_mm512_setzero_ps(); TILE];
        for (r, scaled) in scaled.iter_mut().enumerate() {
            *scaled = _mm512_loadu_ps(to.add(r * TILES));
        }
        macro_rules! multiply {
            ($sums:literal, $a:literal, $b:literal, $block:expr) => {
                asm!(
                    concat!("tilezero ", $sums),
                    concat!("tileloadd ", $a, ", [{a} + {row}]"),
                    concat!("tileloadd ", $b, ", [{b} + {lane}]"),
                    concat!("tdpbusd ", $sums, ", ", $a, ", ", $b),
                    concat!("tilestored [{held} + {sums}], ", $sums),
                    a = in(reg) a.add($block * BLOCK),
                    row = in(reg) 4 * n_blocks * BLOCK,
                    b = in(reg) b.add($block * BLOCK * TILES),
                    lane = in(reg) 4 * TILES,
                    held = in(reg) held.add($block % HELD),
                    sums = in(reg) 4 * TILE,
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack),
                )
            };
        }
        for first in (0..n_blocks + BEHIND).step_by(HELD) {
            for place in 0..HELD {
                let block = first + place;
                if block < n_blocks {
                    match place {
                        0 => multiply!("tmm0", "tmm4", "tmm6", block),
                        1 => multiply!("tmm1", "tmm5", "tmm7", block),
                        2 => multiply!("tmm2", "tmm4", "tmm6", block),
                        _ => multiply!("tmm3", "tmm5", "tmm7", block),
                    }
                }
                if (BEHIND..n_blocks + BEHIND).contains(&block) {
                    let block = block - BEHIND;
                    let sums: *const i32 = held.add(block % HELD).cast();
                    let scales = _mm512_loadu_ps(scales.add(block * TILES));
                    for (r, scaled) in scaled.iter_mut().enumerate() {
                        let sums = _mm512_cvtepi32_ps(_mm512_load_si512(sums.add(r * TILE).cast()));
                        *scaled = _mm512_fmadd_ps(sums, scales, *scaled);
                    }
                }
            }
        }
        for (r, scaled) in scaled.into_iter().enumerate() {
            _mm512_storeu_ps(to.add(r * TILES), scaled);
        }
    }
}
