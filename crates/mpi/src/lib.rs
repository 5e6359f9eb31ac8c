#![doc = include_str!("../README.md")]

// Most of it needs no GPU, and is tested without one.
#[cfg(any(feature = "nccl", test))]
mod by_length;
mod launcher;
#[cfg(feature = "nccl")]
mod nccl;
#[cfg(any(feature = "nccl", test))]
mod pieces;
#[cfg(feature = "mpi")]
mod ranks;
#[cfg(feature = "mpi")]
mod wire;

pub use launcher::{Launched, launched};
#[cfg(feature = "nccl")]
pub use nccl::Nccl;
#[cfg(feature = "mpi")]
pub use ranks::{Mpi, StartError};
