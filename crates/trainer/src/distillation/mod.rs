//! Students and their teachers: the config section, and the terms that compare what happens inside both.
//!
//! A task's teacher is opened by [`finetune`](crate::finetune), and one of masked pieces by
//! [`pretraining`](crate::pretraining).

mod common_parts;
mod inner;
mod section;

pub(crate) use common_parts::CommonParts;
pub(crate) use inner::{Inner, Side};
pub use section::{DistillationSection, InnerSection};
