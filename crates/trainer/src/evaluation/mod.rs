//! How good a model is: metrics, what it got wrong, and how far runs scatter.
//!
//! Metrics ([`confusion`], [`correlation`], [`entities`], [`squad`]) equal those of scikit-learn, scipy,
//! seqeval and SQuAD's scripts. A task's predictions beside gold implement [`report::Predictions`]: they
//! give the [`Figures`](figures::Figures), and a [`Report`](report::Report) puts them into a folder for people
//! to read. [`seeds`] has the mean and the deviation over several runs.

pub mod confusion;
pub mod correlation;
pub mod entities;
pub mod figures;

pub mod report;
pub mod scores;
pub mod seeds;
pub mod squad;
pub mod tags;
