use serde::{Deserialize, Serialize};
use std::fmt;

/// Which published encoder a [`Bert`](super::Bert) is.
///
/// The encoder itself is built from the switches of [`BertConfig`](super::BertConfig); the family says what
/// goes with it: which heads were published for it, and what Hugging Face calls its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// BERT (Devlin et al. 2019), and MiniLM (Wang et al. 2020), which is one in shape.
    #[default]
    Bert,
    /// RoBERTa (Liu et al. 2019): positions counted from 2, one segment.
    Roberta,
    /// DistilBERT (Sanh et al. 2019): neither segments nor a pooler.
    DistilBert,
    /// ALBERT (Lan et al. 2020): one layer applied many times, narrow embeddings.
    Albert,
    /// ELECTRA's discriminator (Clark et al. 2020): narrow embeddings in the small size, no pooler.
    Electra,
}

impl Family {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Bert, Self::Roberta, Self::DistilBert, Self::Albert, Self::Electra];

    /// Whether an encoder of this family may have a pooler.
    pub fn may_pool(self) -> bool {
        !matches!(self, Self::DistilBert | Self::Electra)
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bert => "BERT",
            Self::Roberta => "RoBERTa",
            Self::DistilBert => "DistilBERT",
            Self::Albert => "ALBERT",
            Self::Electra => "ELECTRA",
        })
    }
}
