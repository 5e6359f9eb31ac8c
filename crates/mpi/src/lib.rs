#![doc = include_str!("../README.md")]

mod launcher;
#[cfg(feature = "mpi")]
mod ranks;
#[cfg(feature = "mpi")]
mod wire;

pub use launcher::{Launched, launched};
#[cfg(feature = "mpi")]
pub use ranks::{Mpi, StartError};
