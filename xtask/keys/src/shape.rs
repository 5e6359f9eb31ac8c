//! What a config may hold: tables, their keys, and the kinds of values.

/// The kind of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// A text in quotes.
    Text,
    /// The path of a file or folder.
    Path,
    /// A whole number.
    Whole,
    /// A number.
    Number,
    /// True or false.
    Flag,
    /// One character.
    Character,
    /// A list.
    List(Box<Shape>),
    /// A list of this many.
    Fixed(Box<Shape>, String),
    /// A table whose keys the user names.
    Names(Box<Shape>),
    /// One of several names.
    OneOf(Choices),
    /// One of several kinds of values.
    Either(Vec<Shape>),
    /// A table with known keys, by its index among all tables.
    Table(usize),
}

/// The names that a value may have.
#[derive(Clone, Debug, PartialEq)]
pub struct Choices {
    /// The Rust type's name.
    pub of: String,
    /// The names.
    pub choices: Vec<Choice>,
}

/// A name that a value may have, or the key of a table with its own keys.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The name, then other spellings of it.
    pub names: Vec<String>,
    /// What it means.
    pub doc: String,
    /// The keys of its table; none if it is a name.
    pub keys: Vec<Key>,
}

/// A table with known keys.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// The Rust type's name.
    pub of: String,
    /// What it is, by paragraphs.
    pub doc: Vec<String>,
    /// Its keys.
    pub content: Content,
}

/// The keys of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// The same in every such table.
    Keys(Vec<Key>),
    /// The key `tag` decides which others there are.
    Kinds {
        /// The key that decides.
        tag: String,
        /// Its values.
        kinds: Vec<Kind>,
    },
}

/// What a table holds with one value of its tag.
#[derive(Clone, Debug, PartialEq)]
pub struct Kind {
    /// The value, then other spellings of it.
    pub names: Vec<String>,
    /// What it means.
    pub doc: String,
    /// The keys that there are with it.
    pub keys: KindKeys,
}

/// The keys of a kind.
#[derive(Clone, Debug, PartialEq)]
pub enum KindKeys {
    /// Keys of this kind alone.
    Own(Vec<Key>),
    /// Those of a table.
    Of(usize),
}

/// A key of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// The name, then other spellings of it.
    pub names: Vec<String>,
    /// The kind of its value.
    pub shape: Shape,
    /// What it is if nobody sets it.
    pub default: DefaultValue,
    /// What it means.
    pub meaning: String,
}

/// What a key is if nobody sets it.
#[derive(Clone, Debug, PartialEq)]
pub enum DefaultValue {
    /// It must be set.
    Required,
    /// A value, as TOML.
    Value(String),
    /// What the doc comment says.
    Told(String),
    /// Nothing, or the defaults of a table's own keys.
    Unset,
}
