//! `[pruning]` of a fine-tuning config.

use super::gates::{Gates, GatesSection};
use super::movement::{Movement, MovementSection};
use super::targets::{Granularity, Target, weight_targets};
use super::tickets::{TicketMasks, Tickets, TicketsSection};
use crate::config::validate::Check;
use crate::engine::{Extension, Rounds};
use burn::module::Module;
use cloze_model::HasBackbone;
use cloze_model::bert::Bert;
use serde::{Deserialize, Serialize};

/// `[pruning]`: what is masked during training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum PruningSection {
    /// A lottery ticket: rounds of training, after each of which the smallest weights are pruned and the rest returns to
    /// its beginning (Frankle & Carbin 2019).
    Magnitude(TicketsSection),
    /// The same with random masks, as a control.
    Random(TicketsSection),
    /// Weights, heads or neurons that training moves towards 0 are pruned (Sanh et al. 2020).
    Movement(MovementSection),
    /// Heads get gates with a penalty on those that are open (Voita et al. 2019).
    Gates(GatesSection),
}

impl PruningSection {
    pub(crate) fn check(&self) -> Check {
        match self {
            Self::Magnitude(section) | Self::Random(section) => section.check(),
            Self::Movement(section) => section.check(),
            Self::Gates(section) => section.check(),
        }
    }

    /// The targets of a model's masks.
    pub(crate) fn targets<M: HasBackbone<Backbone = Bert>>(&self, model: &M) -> Vec<Target> {
        let granularity = match self {
            Self::Magnitude(_) | Self::Random(_) => Granularity::Weights,
            Self::Movement(section) => section.granularity,
            Self::Gates(_) => Granularity::Heads,
        };
        weight_targets(model, granularity)
    }

    /// The rounds of a run whose first round has this many steps, and how many there are.
    pub(crate) fn rounds(&self, steps: u64) -> Option<(Rounds, u64)> {
        let section = self.tickets()?;
        Some((Rounds { steps, rewind: section.rewind }, section.n_rounds()))
    }

    /// The first step of a run of `steps` steps whose model is pruned as far as the result.
    pub(crate) fn settled(&self, steps: u64, rounds: Option<(Rounds, u64)>) -> u64 {
        match (self, rounds) {
            (Self::Movement(section), _) => section.schedule(steps).settled.max(1),
            (_, Some((rounds, n))) if n > 1 => rounds.all_steps(n - 1) + 1,
            _ => 1,
        }
    }

    /// The extension of a run with masks of these targets.
    pub(crate) fn extension<M: Module>(
        &self,
        targets: Vec<Target>,
        rounds: Option<Rounds>,
        steps: u64,
        seed: u64,
    ) -> Box<dyn Extension<M>> {
        let tickets = |section: &TicketsSection, choice, targets| {
            let rounds = rounds.unwrap_or(Rounds { steps, rewind: 0 });
            Box::new(Tickets::new(section.clone(), choice, rounds, targets))
        };
        match self {
            Self::Magnitude(section) => tickets(section, TicketMasks::Magnitude, targets),
            Self::Random(section) => tickets(section, TicketMasks::Random { seed }, targets),
            Self::Movement(section) => Box::new(Movement::new(section.clone(), targets, steps)),
            Self::Gates(section) => Box::new(Gates::new(section.clone(), targets, seed)),
        }
    }

    /// The rounds of a search for a ticket.
    pub(crate) fn tickets(&self) -> Option<&TicketsSection> {
        match self {
            Self::Magnitude(section) | Self::Random(section) => Some(section),
            Self::Movement(_) | Self::Gates(_) => None,
        }
    }
}
