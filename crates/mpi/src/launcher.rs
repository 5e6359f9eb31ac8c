//! What a launcher of several processes tells each of them.

use std::env;

/// The variables in which launchers tell the number of processes, this one's among them, and this one's among those of its
/// machine.
const LAUNCHERS: [(&str, &str, &str, &str); 4] = [
    ("Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("MPICH or Intel MPI", "PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID"),
    ("MVAPICH", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_RANK"),
    // A step of srun has both; a batch script has not the second.
    ("Slurm", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID"),
];

/// A process that was started with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launched {
    /// The launcher's name.
    pub launcher: &'static str,
    /// The number of processes.
    pub size: usize,
    /// This one's among them, from 0.
    pub rank: usize,
    /// This one's among those on its machine, from 0, if the launcher tells.
    pub local_rank: Option<usize>,
}

/// Whether a launcher such as `mpirun` has started this process, as far as its variables tell.
pub fn launched() -> Option<Launched> {
    told_by(|name| env::var(name).ok())
}

fn told_by(variable: impl Fn(&str) -> Option<String>) -> Option<Launched> {
    let number = |name: &str| variable(name)?.trim().parse::<usize>().ok();
    LAUNCHERS.iter().find_map(|(launcher, size, rank, local_rank)| {
        let local_rank = number(local_rank);
        Some(Launched { launcher, size: number(size)?, rank: number(rank)?, local_rank })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_launcher_is_recognised() {
        let with = |given: &[(&str, &str)]| {
            told_by(|name| given.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned()))
        };
        assert_eq!(with(&[]), None);
        assert_eq!(with(&[("SLURM_STEP_NUM_TASKS", "4")]), None);
        for (launcher, size, rank, local) in LAUNCHERS {
            let launched = |local_rank| Some(Launched { launcher, size: 4, rank: 3, local_rank });
            assert_eq!(with(&[(size, "4"), (rank, "3")]), launched(None));
            assert_eq!(with(&[(size, "4"), (rank, "3"), (local, "1")]), launched(Some(1)));
        }
        assert_eq!(with(&[("PMI_SIZE", "many"), ("PMI_RANK", "0")]), None);
    }
}
