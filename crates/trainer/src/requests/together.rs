//! A session of single steps.

use super::{Respond, Session};
use crate::Result;
use std::rc::Rc;

/// Answers all waiting units in one step.
pub(super) struct Together<'r, R: Respond> {
    model: &'r R,
    units: Vec<(usize, Rc<R::Unit>)>,
}

impl<'r, R: Respond> Together<'r, R> {
    pub fn new(model: &'r R) -> Self {
        Self { model, units: Vec::new() }
    }
}

impl<R: Respond> Session<R> for Together<'_, R> {
    fn submit(&mut self, id: usize, unit: Rc<R::Unit>) -> Result<()> {
        self.units.push((id, unit));
        Ok(())
    }

    fn step(&mut self) -> Vec<(usize, Result<R::Answer>)> {
        let (ids, units): (Vec<usize>, Vec<Rc<R::Unit>>) =
            std::mem::take(&mut self.units).into_iter().unzip();
        let units: Vec<&R::Unit> = units.iter().map(|unit| &**unit).collect();
        let answers = self.model.answer(&units);
        assert_eq!(answers.len(), ids.len(), "answers, and requests");
        ids.into_iter().zip(answers).collect()
    }

    fn next_tokens(&self) -> usize {
        self.units.iter().map(|(_, unit)| self.model.cost(unit)).sum()
    }

    fn cancel(&mut self, id: usize) {
        self.units.retain(|(other, _)| *other != id);
    }
}
