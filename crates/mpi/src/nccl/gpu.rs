//! A rank's GPU, and NCCL on it. Libraries are loaded here, and may be absent.

use crate::pieces::Link;
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DriverError};
use cudarc::nccl::result::{NcclError, get_nccl_version};
use cudarc::nccl::{Comm, Id, group_end, group_start};
use std::ffi::CStr;
use std::ops::Range;
use std::sync::Arc;

/// The bytes of what identifies a job's communicator.
pub(super) const ID: usize = 128;

/// The first version with messages between two ranks and with the text of an error: 2.13.
const OLDEST: i32 = 21300;

/// A GPU with a stream of its own.
pub(super) struct Gpu {
    stream: Arc<CudaStream>,
}

impl Gpu {
    /// The GPU of a process with this number among those of its machine. Where there are fewer GPUs, several have the same:
    /// a launcher may also show each process only its own.
    ///
    /// # Errors
    /// No driver, no NCCL, or no GPU.
    pub fn open(local_rank: usize) -> Result<Self, String> {
        // Safety: loading a library runs its initialisers. These are NVIDIA's.
        let (has_cuda, has_nccl) =
            unsafe { (cudarc::driver::sys::is_culib_present(), cudarc::nccl::sys::is_culib_present()) };
        if !has_cuda {
            return Err("there is no NVIDIA driver (libcuda.so.1)".into());
        }
        if !has_nccl {
            let problem = "there is no libnccl.so: install libnccl-dev, or add its folder to LD_LIBRARY_PATH";
            return Err(problem.into());
        }
        let version = get_nccl_version().map_err(nccl)?;
        if version < OLDEST {
            return Err(format!("its NCCL is too old (version code {version}): install 2.13 or later"));
        }
        let n = CudaContext::device_count().map_err(cuda)? as usize;
        let number = local_rank.checked_rem(n).ok_or("it has no NVIDIA GPU")?;
        let context = CudaContext::new(number).map_err(cuda)?;
        Ok(Self { stream: context.new_stream().map_err(cuda)? })
    }

    /// What no other GPU has.
    pub fn uuid(&self) -> Result<[u8; 16], String> {
        Ok(self.stream.context().uuid().map_err(cuda)?.bytes.map(|byte| byte as u8))
    }

    /// What identifies a new communicator.
    pub fn new_id() -> Result<[u8; ID], String> {
        Ok(Id::new().map_err(nccl)?.internal().map(|byte| byte as u8))
    }

    /// Joins the others. Returns when all have joined.
    pub fn join(self, rank: usize, size: usize, id: [u8; ID]) -> Result<Joined, String> {
        let id = Id::uninit(id.map(|byte| byte as std::ffi::c_char));
        let comm = Comm::from_rank(self.stream.clone(), rank, size, id).map_err(nccl)?;
        Ok(Joined { stream: self.stream, comm, sent: None, received: None })
    }
}

/// A GPU among others.
pub(super) struct Joined {
    stream: Arc<CudaStream>,
    comm: Comm,
    /// What pieces pass through, as large as any round has needed.
    sent: Option<CudaSlice<u32>>,
    received: Option<CudaSlice<u32>>,
}

impl Link for Joined {
    fn carry(
        &mut self,
        sent: &[(usize, &[u32])],
        received: &mut [(usize, &mut [u32])],
    ) -> Result<(), String> {
        let stream = &self.stream;
        let n_sent = sent.iter().map(|(_, words)| words.len()).sum();
        let n_received = received.iter().map(|(_, words)| words.len()).sum();
        let from = buffer(stream, &mut self.sent, n_sent)?;
        let to = buffer(stream, &mut self.received, n_received)?;
        for ((_, words), place) in sent.iter().zip(places(sent.iter().map(|(_, words)| words.len()))) {
            stream.memcpy_htod(*words, &mut from.slice_mut(place)).map_err(cuda)?;
        }
        let expected: Vec<(usize, Range<usize>)> = (received.iter().map(|(rank, _)| *rank))
            .zip(places(received.iter().map(|(_, words)| words.len())))
            .collect();
        group_start().map_err(nccl)?;
        let queued = (|| {
            for ((rank, _), place) in sent.iter().zip(places(sent.iter().map(|(_, words)| words.len()))) {
                self.comm.send(&from.slice(place), *rank as i32)?;
            }
            for (rank, place) in &expected {
                self.comm.recv(&mut to.slice_mut(place.clone()), *rank as i32)?;
            }
            Ok(())
        })();
        // A group that was started must be ended, whatever was put into it.
        let ended = group_end();
        queued.map_err(nccl)?;
        ended.map_err(nccl)?;
        for ((_, words), (_, place)) in received.iter_mut().zip(expected) {
            stream.memcpy_dtoh(&to.slice(place), *words).map_err(cuda)?;
        }
        // Until then words on their way are read, and others are not here.
        stream.synchronize().map_err(cuda)
    }
}

/// Consecutive places for things of these lengths.
fn places(lengths: impl Iterator<Item = usize>) -> impl Iterator<Item = Range<usize>> {
    lengths.scan(0, |end, n| {
        let start = *end;
        *end += n;
        Some(start..*end)
    })
}

/// A buffer for at least `n` words.
fn buffer<'a>(
    stream: &Arc<CudaStream>,
    kept: &'a mut Option<CudaSlice<u32>>,
    n: usize,
) -> Result<&'a mut CudaSlice<u32>, String> {
    // One of no words would be no allocation.
    let n = n.max(1);
    let kept = match kept.take().filter(|kept| kept.len() >= n) {
        Some(large) => kept.insert(large),
        // Safety: each word is written before it is read, by a copy or by NCCL.
        None => kept.insert(unsafe { stream.alloc(n) }.map_err(cuda)?),
    };
    Ok(kept)
}

/// What CUDA says of an error, in a line.
fn cuda(error: DriverError) -> String {
    let said = error.error_string().map_or_else(|_| format!("{:?}", error.0), line);
    format!("CUDA fails: {said}")
}

/// What NCCL says of an error, in a line.
fn nccl(error: NcclError) -> String {
    // Safety: no communicator is needed, and the answer is a string of the library's or nothing.
    let said = unsafe {
        let said = cudarc::nccl::sys::ncclGetLastError(std::ptr::null_mut());
        if said.is_null() { String::new() } else { line(CStr::from_ptr(said)) }
    };
    let code = error.0;
    let colon = if said.is_empty() { "" } else { ": " };
    format!("NCCL fails with {code:?}{colon}{said} (NCCL_DEBUG=INFO tells more)")
}

fn line(text: &CStr) -> String {
    text.to_string_lossy().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pieces::carry;

    #[test]
    fn places_follow_each_other() {
        assert_eq!(places([2, 0, 3].into_iter()).collect::<Vec<_>>(), [0..2, 2..2, 2..5]);
    }

    /// One rank, which sends to itself. Left out, with a line, where there is no GPU or no NCCL.
    #[test]
    fn words_pass_through_a_gpu() {
        let gpu = match Gpu::open(0) {
            Ok(gpu) => gpu,
            Err(problem) => {
                eprintln!("left out: {problem}");
                return;
            }
        };
        assert_ne!(gpu.uuid().unwrap(), [0; 16]);
        let mut joined = gpu.join(0, 1, Gpu::new_id().unwrap()).unwrap();
        // Less than a piece, many pieces, and less again.
        for n in [1, 100_003, 7] {
            let message: Vec<u32> = (0..n as u32).map(|word| word.wrapping_mul(2_654_435_761)).collect();
            let received = carry(&mut joined, std::slice::from_ref(&message), &[n], 4096, || {}).unwrap();
            assert!(received == [message], "{n} words");
        }
    }
}
