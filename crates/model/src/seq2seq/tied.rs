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
}
