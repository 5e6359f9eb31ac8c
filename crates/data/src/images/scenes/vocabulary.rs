//! What a thing looks like, and the words for it.

use std::fmt;

/// An enum whose values are words.
macro_rules! words {
    ($(#[$docs:meta])* $name:ident: $($(#[$variant_docs:meta])* $variant:ident $word:literal,)+) => {
        $(#[$docs])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$variant_docs])* $variant,)+
        }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Its word in captions.
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}

words! {
    /// The shape of a thing.
    Shape:
    /// A filled circle.
    Circle "circle",
    /// An upright square.
    Square "square",
    /// A triangle with one corner at the top.
    Triangle "triangle",
    /// A star with five points.
    Star "star",
    /// A circle with a hole of half its diameter.
    Ring "ring",
    /// An upright cross, with four arms of the same length.
    Cross "cross",
}

words! {
    /// The colour of a thing.
    Colour:
    /// About `#D62828`.
    Red "red",
    /// About `#F58214`.
    Orange "orange",
    /// About `#F0D728`.
    Yellow "yellow",
    /// About `#28963C`.
    Green "green",
    /// About `#2850D2`.
    Blue "blue",
    /// About `#8732A5`.
    Purple "purple",
    /// About `#808080`.
    Grey "grey",
    /// About `#191919`.
    Black "black",
}

words! {
    /// The size of a thing.
    Size:
    /// From 17 to 22 % of the image's side.
    Small "small",
    /// From 31 to 39 % of the image's side.
    Big "big",
}

impl Colour {
    /// Red, green and blue. A thing's own colour differs from it by at most 10 in each.
    pub fn rgb(self) -> [u8; 3] {
        match self {
            Self::Red => [214, 40, 40],
            Self::Orange => [245, 130, 20],
            Self::Yellow => [240, 215, 40],
            Self::Green => [40, 150, 60],
            Self::Blue => [40, 80, 210],
            Self::Purple => [135, 50, 165],
            Self::Grey => [128, 128, 128],
            Self::Black => [25, 25, 25],
        }
    }
}

/// What a caption says of a thing, such as "small red circle".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Description {
    /// Its size.
    pub size: Size,
    /// Its colour.
    pub colour: Colour,
    /// Its shape.
    pub shape: Shape,
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.size, self.colour, self.shape)
    }
}
