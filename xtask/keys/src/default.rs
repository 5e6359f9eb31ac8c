//! Defaults, read from the code: of literals, and of what refers to them.

use syn::{BinOp, Expr, Item, Lit, Member, Type, UnOp};

use crate::attributes::{self, Serde};
use crate::reader::arguments;
use crate::shape::DefaultValue;
use crate::source::Sources;

/// A default that the code has.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Flag(bool),
    Whole(i128),
    /// As TOML writes it.
    Number(String),
    Text(String),
    List(Vec<Value>),
    /// A table of this kind.
    Kind(String, String),
    /// A table whose keys have their own defaults.
    Table,
    /// `None`
    Nothing,
}

impl Value {
    /// As TOML, unless it says no more than that nothing is set.
    pub fn toml(&self) -> Option<String> {
        Some(match self {
            Self::Flag(flag) => flag.to_string(),
            Self::Whole(number) if *number >= 100_000 => grouped(*number),
            Self::Whole(number) => number.to_string(),
            Self::Number(number) => number.clone(),
            Self::Text(text) if text.is_empty() => return None,
            Self::Text(text) => format!("{text:?}"),
            Self::List(items) if items.is_empty() => return None,
            Self::List(items) => {
                let items = items.iter().map(Self::toml).collect::<Option<Vec<_>>>()?;
                format!("[{}]", items.join(", "))
            }
            Self::Kind(tag, name) => format!("{{ {tag} = {name:?} }}"),
            Self::Table | Self::Nothing => return None,
        })
    }

    /// What to show of one that is not shown as TOML, if the comment says nothing either.
    pub fn otherwise(self) -> DefaultValue {
        match self {
            Self::Text(_) => DefaultValue::Value("\"\"".into()),
            Self::List(_) => DefaultValue::Value("[]".into()),
            _ => DefaultValue::Unset,
        }
    }
}

/// A whole number with its digits in groups.
fn grouped(number: i128) -> String {
    let digits = number.to_string();
    let first = digits.len() % 3;
    let (head, tail) = digits.split_at(first);
    let groups = tail.as_bytes().chunks(3).map(|group| String::from_utf8_lossy(group).into_owned());
    let head = (!head.is_empty()).then(|| head.to_owned());
    head.into_iter().chain(groups).collect::<Vec<_>>().join("_")
}

/// A word of a comment, or TOML, as a value to compare: numbers without commas, names without backticks;
/// `None` for a word that is no value.
pub fn literal(word: &str) -> Option<String> {
    let word = word.trim_matches('`');
    let plain = word.replace([',', '_'], "");
    if let Ok(number) = plain.parse::<f64>() {
        return Some(number.to_string());
    }
    let is_value =
        matches!(word, "true" | "false") || word.len() > 2 && word.starts_with('"') && word.ends_with('"');
    is_value.then(|| word.to_owned())
}

/// Reads defaults of the file and the type that a definition is.
#[derive(Clone, Copy)]
pub struct Evaluator<'a> {
    pub sources: &'a Sources,
    pub definition: usize,
}

impl Evaluator<'_> {
    fn file(&self) -> usize {
        self.sources.definitions[self.definition].file
    }

    /// What a function of the file returns.
    pub fn function(&self, name: &str) -> Option<Value> {
        self.value(self.sources.function(self.file(), name)?)
    }

    /// What `Default` gives for a field of a definition.
    pub fn member(&self, definition: usize, name: &str) -> Option<Value> {
        let there = Self { definition, ..*self };
        if let Some(expression) = self.sources.default_of(definition) {
            let Expr::Struct(expression) = expression else { return None };
            let is_it =
                |field: &&syn::FieldValue| matches!(&field.member, Member::Named(ident) if ident == name);
            return there.value(&expression.fields.iter().find(is_it)?.expr);
        }
        let Item::Struct(item) = &self.sources.definitions[definition].item else { return None };
        if !attributes::derives_default(&item.attrs) {
            return None;
        }
        let is_it = |field: &&syn::Field| field.ident.as_ref().is_some_and(|ident| ident == name);
        there.of_type(&item.fields.iter().find(is_it)?.ty)
    }

    /// What `Default` gives for a type.
    pub fn of_type(&self, of: &Type) -> Option<Value> {
        let Type::Path(path) = of else { return None };
        let last = path.path.segments.last()?;
        let parts: Vec<String> = path.path.segments.iter().map(|part| part.ident.to_string()).collect();
        if let Some(definition) = self.sources.resolve(self.file(), &parts).ok()? {
            return self.of_definition(definition);
        }
        Some(match last.ident.to_string().as_str() {
            "Option" => Value::Nothing,
            "Vec" | "BTreeMap" | "HashMap" => Value::List(Vec::new()),
            "Box" => return self.of_type(arguments(&last.arguments).first()?),
            "String" | "PathBuf" => Value::Text(String::new()),
            "bool" => Value::Flag(false),
            "f32" | "f64" => Value::Number("0.0".into()),
            "u8" | "u16" | "u32" | "u64" | "usize" | "i8" | "i16" | "i32" | "i64" | "isize" => {
                Value::Whole(0)
            }
            _ => return None,
        })
    }

    fn of_definition(&self, definition: usize) -> Option<Value> {
        let there = Self { definition, ..*self };
        if let Some(expression) = self.sources.default_of(definition) {
            return there.value(expression);
        }
        match &self.sources.definitions[definition].item {
            Item::Enum(item) => {
                let variant = item.variants.iter().find(|variant| attributes::is_default(&variant.attrs))?;
                there.variant(&variant.ident.to_string())
            }
            Item::Struct(item) if attributes::derives_default(&item.attrs) => Some(Value::Table),
            _ => None,
        }
    }

    /// A variant of the definition.
    fn variant(&self, name: &str) -> Option<Value> {
        let Item::Enum(item) = &self.sources.definitions[self.definition].item else { return None };
        let serde = Serde::read(&item.attrs).ok()?;
        let variant = item.variants.iter().find(|variant| variant.ident == name)?;
        // An enum that is read as another has the other's names.
        let own = Serde::read(&variant.attrs).ok()?;
        let name = own.variant(name, serde.rename_all.as_deref()).ok()?;
        match (serde.tag, &variant.fields) {
            (Some(tag), _) => Some(Value::Kind(tag, name)),
            (None, syn::Fields::Unit) => Some(Value::Text(name)),
            (None, _) => None,
        }
    }

    fn value(&self, expression: &Expr) -> Option<Value> {
        match expression {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Bool(flag) => Some(Value::Flag(flag.value)),
                Lit::Int(number) => Some(Value::Whole(number.base10_parse().ok()?)),
                Lit::Float(number) => Some(Value::Number(number.base10_digits().to_owned())),
                Lit::Str(text) => Some(Value::Text(text.value())),
                Lit::Char(letter) => Some(Value::Text(letter.value().to_string())),
                _ => None,
            },
            Expr::Paren(inner) => self.value(&inner.expr),
            Expr::Group(inner) => self.value(&inner.expr),
            Expr::Unary(inner) if matches!(inner.op, UnOp::Neg(_)) => match self.value(&inner.expr)? {
                Value::Whole(number) => Some(Value::Whole(-number)),
                Value::Number(number) => Some(Value::Number(format!("-{number}"))),
                _ => None,
            },
            Expr::Binary(binary) => match (self.value(&binary.left)?, &binary.op, self.value(&binary.right)?)
            {
                (Value::Whole(left), BinOp::Shl(_), Value::Whole(right)) => {
                    left.checked_shl(right.try_into().ok()?).map(Value::Whole)
                }
                (Value::Whole(left), BinOp::Mul(_), Value::Whole(right)) => {
                    left.checked_mul(right).map(Value::Whole)
                }
                _ => None,
            },
            Expr::MethodCall(call)
                if matches!(call.method.to_string().as_str(), "into" | "to_owned" | "to_string") =>
            {
                self.value(&call.receiver)
            }
            Expr::Array(array) => {
                array.elems.iter().map(|item| self.value(item)).collect::<Option<_>>().map(Value::List)
            }
            Expr::Call(call) => {
                let Expr::Path(path) = &*call.func else { return None };
                self.call(&parts(&path.path), call.args.first())
            }
            Expr::Field(field) => {
                let (Expr::Call(call), Member::Named(name)) = (&*field.base, &field.member) else {
                    return None;
                };
                let Expr::Path(path) = &*call.func else { return None };
                let of = parts(&path.path);
                let (last, of) = of.split_last()?;
                let definition = self.sources.resolve(self.file(), of).ok()??;
                (last == "default").then(|| self.member(definition, &name.to_string()))?
            }
            Expr::Path(path) => self.path(&parts(&path.path)),
            Expr::Struct(made) => {
                let path = parts(&made.path);
                let (last, of) = path.split_last()?;
                match of {
                    [] => Some(Value::Table),
                    of => self.of_variant(of, last),
                }
            }
            _ => None,
        }
    }

    fn call(&self, function: &[String], argument: Option<&Expr>) -> Option<Value> {
        let (last, of) = function.split_last()?;
        match (of, last.as_str()) {
            ([], "Some") => self.value(argument?),
            (_, "new")
                if of.last().is_some_and(|of| matches!(of.as_str(), "Vec" | "BTreeMap" | "HashMap")) =>
            {
                Some(Value::List(Vec::new()))
            }
            (_, "new") if of.last().is_some_and(|of| of == "String") => Some(Value::Text(String::new())),
            (_, "default") if !of.is_empty() => {
                let definition = match of {
                    [one] if one == "Self" => self.definition,
                    of => self.sources.resolve(self.file(), of).ok()??,
                };
                self.of_definition(definition)
            }
            _ => self.function(&function.join("::")),
        }
    }

    fn path(&self, path: &[String]) -> Option<Value> {
        match path {
            [name] if name == "None" => Some(Value::Nothing),
            [name] => self.value(self.sources.constant(self.file(), name)?),
            [of @ .., name] => self.of_variant(of, name),
            [] => None,
        }
    }

    fn of_variant(&self, of: &[String], name: &str) -> Option<Value> {
        let definition = match of {
            [one] if one == "Self" => self.definition,
            of => self.sources.resolve(self.file(), of).ok()??,
        };
        Self { definition, ..*self }.variant(name)
    }
}

fn parts(path: &syn::Path) -> Vec<String> {
    path.segments.iter().map(|part| part.ident.to_string()).collect()
}
