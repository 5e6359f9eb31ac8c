//! Products of queries and rows, compiled for several instruction sets and chosen when the program runs.
//!
//! [`rows`] compares a query with a few rows that lie anywhere, for a graph; [`panels`] compares many queries with rows that
//! were laid side by side, for a scan of all rows.
//!
//! Left to the compiler, sums went through memory, and an exact search of 32-bit floats took twelve times as long; so they
//! are made of vector instructions by name. All of it is safe code but for the calls of what is compiled for instructions
//! that the machine was found to have, and for what only asks for memory ahead.

pub(crate) mod panels;
pub(crate) mod rows;

/// What is added to a query's 8-bit numbers: instructions multiply numbers without a sign by numbers with one.
pub(crate) const RAISED: u8 = 128;

/// Calls a function of the first of these modules whose instructions the machine has, or of module `plain`.
/// (NEON is part of AArch64's plain set.)
macro_rules! best_of {
    ($name:ident $args:tt in $($module:ident[$($feature:tt)+]),+) => {{
        $(
            #[cfg(target_arch = "x86_64")]
            if $(std::is_x86_feature_detected!($feature))&&+ {
                // SAFETY: the machine has these instructions.
                return unsafe { $module::$name $args };
            }
        )+
        plain::$name $args
    }};
}
use best_of;
