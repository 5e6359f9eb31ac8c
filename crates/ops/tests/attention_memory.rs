//! A long sequence needs no matrix of all its queries and keys. In a process of its own, whose peak is measured.
#![cfg(all(feature = "flex", target_os = "linux"))]
#![allow(missing_docs, clippy::unwrap_used)]

use burn::tensor::{Device, Distribution, Tensor};
use cloze_ops::{AttentionMask, attention};

/// A line of the kernel's account of the process, in bytes.
fn memory(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() * 1024
}

#[test]
fn memory_grows_with_the_length() {
    let device = Device::flex().autodiff();
    let (len, d) = (8192, 8);
    let leaf = || Tensor::<4>::random([1, 1, len, d], Distribution::Default, &device).require_grad();
    let (q, k, v) = (leaf(), leaf(), leaf());
    let before = memory("VmRSS:");
    let y = attention(q.clone(), k, v, &AttentionMask::default(), 0.1);
    let grads = y.backward();
    assert_eq!(q.grad(&grads).unwrap().dims(), [1, 1, len, d]);
    let grown = memory("VmHWM:") - before;
    // All scores would be 256 MiB; a tensor is 256 KiB.
    assert!(grown < 32 << 20, "grew by {grown} bytes");
}
