//! Replicas that prepare data together.

use super::messages::gather;
use super::replicas::Replicas;
use crate::TrainerError;
use cloze_data::{Crew, DataError};

/// Replicas as the processes of a [`Preparation`](cloze_data::Preparation).
pub(crate) struct DataCrew<'a>(pub &'a dyn Replicas);

/// Begins each message, so that a replica which does something else is noticed.
const PREPARING: u32 = 0xDA7A_0001;

impl Crew for DataCrew<'_> {
    fn rank(&self) -> usize {
        self.0.rank()
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn gather(&self, own: Vec<u32>) -> cloze_data::Result<Vec<Vec<u32>>> {
        let message = [PREPARING].into_iter().chain(own).collect();
        let all = gather(self.0, message).map_err(|error| {
            let problem = match error {
                TrainerError::Replicas { problem } => problem,
                other => other.to_string(),
            };
            DataError::Crew { problem }
        })?;
        let told = |(rank, message): (usize, Vec<u32>)| match message.split_first() {
            Some((&PREPARING, rest)) => Ok(rest.to_vec()),
            _ => Err(DataError::Crew { problem: format!("rank {rank} does something else") }),
        };
        all.into_iter().enumerate().map(told).collect()
    }
}
