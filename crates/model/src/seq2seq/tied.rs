use crate::blocks::AdaptiveSoftmaxConfig;
use crate::{ModelError, Result};
use serde::{Deserialize, Serialize};

/// Which embeddings share one table. The output layer's matrix has the same shape as the target's embeddings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum TiedEmbeddings {
    /// One table for source, target and output (Vaswani et al. 2017, §3.4). It needs a joint vocabulary.
    #[default]
    All,
    /// One table for target and output (Press & Wolf 2017), one for the source.
    TargetOutput,
    /// One table for source and target, one for the output. It needs a joint vocabulary.
    SourceTarget,
    /// Three tables.
    None,
}

impl TiedEmbeddings {
    /// Whether source and target share a table.
    pub fn joins_source(self) -> bool {
        matches!(self, Self::All | Self::SourceTarget)
    }

    /// Whether the output layer's matrix is the target's table.
    pub fn joins_output(self) -> bool {
        matches!(self, Self::All | Self::TargetOutput)
    }

    /// The same with a matrix of its own for the output layer.
    pub fn without_output(self) -> Self {
        match self {
            Self::All | Self::SourceTarget => Self::SourceTarget,
            Self::TargetOutput | Self::None => Self::None,
        }
    }

    /// Checks that an adaptive output, if there is one, shares nothing and fits the vocabulary.
    pub(super) fn check_output(
        self,
        output: Option<&AdaptiveSoftmaxConfig>,
        vocab_size: usize,
        d: usize,
    ) -> Result<()> {
        let Some(output) = output else { return Ok(()) };
        if self.joins_output() {
            let expected = "`source-target` or `none`: an adaptive output has weights of its own";
            return Err(ModelError::setting("tied", format!("{self:?}"), expected));
        }
        output.validate(vocab_size, d)
    }
}
