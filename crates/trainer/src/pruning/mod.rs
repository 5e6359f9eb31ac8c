//! Training with masks: lottery tickets, movement pruning and gates, as [extensions](crate::engine::Extension) of a run.
//!
//! A mask acts on a weight, `W' = W ⊙ M`. Between steps the model holds `W'`, so whatever evaluates or saves it sees the
//! pruned model; the extension holds `W`, and puts it in place for the update. A step's gradient `∂L/∂W'` gives both
//! gradients: `∂L/∂W = ∂L/∂W' ⊙ M`, and `∂L/∂M = ∂L/∂W' ⊙ W`, which a score or a gate receives straight through.

mod gates;
mod hard_concrete;
mod latent;
mod masks;
mod movement;
mod schedule;
mod section;
mod targets;
mod tickets;

pub use gates::{Gates, GatesSection};
pub use hard_concrete::HardConcrete;
pub use movement::{Movement, MovementSection};
pub use schedule::CubicSchedule;
pub use section::PruningSection;
pub use targets::{Granularity, Scope, Target, weight_targets};
pub use tickets::{TicketMasks, Tickets, TicketsSection};

pub(crate) use latent::{ids, weights, with_weights};
pub(crate) use targets::share_of_zeros;
