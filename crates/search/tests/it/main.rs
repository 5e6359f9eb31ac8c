//! Indexes on the disk: what is found in them, and what becomes of them.

#![allow(missing_docs)]
#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not count as tests")]

mod crashes;
mod damage;
mod equal;
mod inputs;
mod neighbours;
mod places;
