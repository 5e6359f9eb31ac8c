//! Detection and set-up of AMX tiles.
//!
//! `is_x86_feature_detected!("amx-…")` and the `_tile_*` intrinsics are unstable, so the flags are read with
//! CPUID and the instructions written with `asm!`.

use std::arch::asm;
#[cfg(target_os = "linux")]
use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
#[cfg(target_os = "linux")]
use std::sync::OnceLock;

/// Whether bf16 and 8-bit tiles can be used. The first call requests the kernel's permission for the whole
/// process, including existing and future threads.
pub fn available() -> bool {
    #[cfg(target_os = "linux")]
    {
        static AVAILABLE: OnceLock<bool> = OnceLock::new();
        *AVAILABLE.get_or_init(|| has_instructions() && is_saved() && is_permitted())
    }
    // Other systems ask for the permission in other ways, which nobody has tried here.
    #[cfg(not(target_os = "linux"))]
    false
}

/// Whether the processor has them, with the only existing tile size.
#[cfg(target_os = "linux")]
fn has_instructions() -> bool {
    const BF16_TILE_INT8: u32 = 1 << 22 | 1 << 24 | 1 << 25;
    if __cpuid(0).eax < 0x1d || __cpuid_count(7, 0).edx & BF16_TILE_INT8 != BF16_TILE_INT8 {
        return false;
    }
    let palette = __cpuid_count(0x1d, 1);
    let (row_bytes, tiles, rows) = (palette.ebx & 0xffff, palette.ebx >> 16, palette.ecx & 0xffff);
    __cpuid_count(0x1d, 0).eax >= 1 && row_bytes == 64 && tiles == 8 && rows == 16
}

/// Whether the operating system saves tiles and their configuration for its threads.
#[cfg(target_os = "linux")]
fn is_saved() -> bool {
    #[target_feature(enable = "xsave")]
    fn enabled() -> u64 {
        // SAFETY: the caller has looked for XGETBV.
        unsafe { _xgetbv(0) }
    }
    const CONFIGURATION_AND_TILES: u64 = 1 << 17 | 1 << 18;
    const OSXSAVE: u32 = 1 << 27;
    __cpuid(1).ecx & OSXSAVE != 0 && {
        // SAFETY: OSXSAVE says that XGETBV is there and enabled.
        unsafe { enabled() & CONFIGURATION_AND_TILES == CONFIGURATION_AND_TILES }
    }
}

/// Asks Linux (5.16 and later) for the 8 KiB of tiles. Without it the first tile instruction raises SIGILL.
///
/// It is refused when a thread has an alternative signal stack too small for the tiles, or by a sandbox.
#[cfg(target_os = "linux")]
fn is_permitted() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    // SAFETY: the call has no arguments in memory.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
}

/// The operand of LDTILECFG.
#[repr(C, align(64))]
#[allow(dead_code, reason = "read by the instruction")]
struct Configuration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Configuration {
    /// Four tiles of sums, two of 16 left rows, and two of `lanes` lanes of 16 right columns.
    const fn of(lanes: u8) -> Self {
        let (mut row_bytes, mut rows, mut tile) = ([0; 16], [0; 16], 0);
        while tile < 8 {
            row_bytes[tile] = if tile == 4 || tile == 5 { 4 * lanes as u16 } else { 64 };
            rows[tile] = if tile >= 6 { lanes } else { 16 };
            tile += 1;
        }
        Self { palette: 1, start_row: 0, reserved: [0; 14], row_bytes, rows }
    }
}

/// All eight tiles in full size. Edges are zeros in the panels instead: another configuration would clear the tiles in the
/// middle of a sum.
static FULL: Configuration = Configuration::of(16);

/// Operands of a block.
static BLOCKS: Configuration = Configuration::of(super::avx512::BLOCK as u8);

/// Configures the thread's tiles, and releases them on drop: until then, every context switch saves and
/// restores 8 KiB, and the core does not reach its deepest sleep state.
pub struct Tiles(());

impl Tiles {
    /// All in full size.
    ///
    /// # Safety
    /// [`available`] returned `true`.
    #[inline]
    pub unsafe fn configured() -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::by(&FULL) }
    }

    /// For [`multiply_blocks`](super::multiply_blocks).
    ///
    /// # Safety
    /// As [`configured`](Self::configured).
    #[inline]
    pub unsafe fn for_blocks() -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::by(&BLOCKS) }
    }

    /// # Safety
    /// As [`configured`](Self::configured).
    #[inline]
    unsafe fn by(configuration: &Configuration) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            asm!(
                "ldtilecfg [{}]", in(reg) &raw const *configuration,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack, readonly, preserves_flags),
            );
        }
        Self(())
    }
}

impl Drop for Tiles {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: a value exists only where there are tiles.
        unsafe {
            asm!(
                "tilerelease",
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack, nomem, preserves_flags),
            );
        }
    }
}
