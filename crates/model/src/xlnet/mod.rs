//! XLNet (Yang et al. 2019): a Transformer-XL (Dai et al. 2019) pretrained to predict tokens in a random
//! order.
//!
//! A permutation `z` of the positions is the order in which a text's probability is factorised, `Π_t
//! P(x_(z_t) | x_(z_<t))` (eq. 3). Tokens keep their positions; only the attention
//! [masks](XlnetInput::with_order) follow the order. So that a prediction depends on its position but not its
//! token, there are two streams of states (eq. 5 and 6): the content stream `h`, which sees its own token,
//! and the query stream `g`, which starts from one trained vector and sees only the content of tokens before
//! it in the order. Fine-tuning uses only the content stream, without an order: an encoder,
//! [`Family::XLNET`](crate::huggingface::Family::XLNET).
//!
//! Attention uses the distance between tokens ([`RelativeAttention`]), and sees the states of earlier
//! segments ([`XlnetMemory`]).

mod config;
mod distances;
mod input;
mod language_model;
mod layer;
mod memory;
mod model;
mod relative_attention;
mod stream;

pub use config::XlnetConfig;
pub use input::XlnetInput;
pub use language_model::XlnetLanguageModel;
pub use layer::XlnetLayer;
pub use memory::XlnetMemory;
pub use model::{Predictions, Xlnet, XlnetOutput};
pub use relative_attention::RelativeAttention;
