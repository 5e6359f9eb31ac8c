//! An interpreter for the part of Python's pickle format that dictionaries of tensors use.
//!
//! Pickle is a program: it may import any function and call it. This interpreter calls nothing. It knows the handful of
//! names that `torch.save` writes for a dictionary of tensors, makes plain values of them, and refuses every other
//! name. Containers are stored in one list and referred to by index, so that cycles and depth cost no more than the
//! file's bytes, and nothing recurses.

use super::refused::Refused;
use std::collections::HashMap;

/// The maximum length of a pickle in bytes; a state dict takes about a hundred for a tensor.
pub(super) const MAX_LEN: usize = 16 << 20;

/// The element type of a storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Element {
    F64,
    F32,
    F16,
    Bf16,
    I64,
    I32,
    I16,
    I8,
    U8,
    Bool,
}

impl Element {
    /// Bytes of an element.
    pub(super) fn size(self) -> usize {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::Bf16 | Self::I16 => 2,
            Self::I8 | Self::U8 | Self::Bool => 1,
        }
    }
}

/// The names that a pickle may import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Global {
    OrderedDict,
    Size,
    RebuildTensor,
    RebuildParameter,
    Storage(Element),
}

impl Global {
    fn named(module: &str, name: &str) -> Option<Self> {
        Some(match (module, name) {
            ("collections", "OrderedDict") => Self::OrderedDict,
            ("torch", "Size") => Self::Size,
            ("torch._utils", "_rebuild_tensor" | "_rebuild_tensor_v2") => Self::RebuildTensor,
            ("torch._utils", "_rebuild_parameter" | "_rebuild_parameter_with_state") => {
                Self::RebuildParameter
            }
            ("torch" | "torch.storage", storage) => Self::Storage(match storage {
                "DoubleStorage" => Element::F64,
                "FloatStorage" => Element::F32,
                "HalfStorage" => Element::F16,
                "BFloat16Storage" => Element::Bf16,
                "LongStorage" => Element::I64,
                "IntStorage" => Element::I32,
                "ShortStorage" => Element::I16,
                "CharStorage" => Element::I8,
                "ByteStorage" => Element::U8,
                "BoolStorage" => Element::Bool,
                _ => return None,
            }),
            _ => return None,
        })
    }
}

/// A value on the stack.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value<'a> {
    None,
    Bool(bool),
    Int(i64),
    Float,
    Text(&'a str),
    Global(Global),
    /// An object, by its index.
    Object(u32),
}

/// An object that values refer to.
#[derive(Debug)]
pub(super) enum Object<'a> {
    Tuple(Box<[Value<'a>]>),
    List(Vec<Value<'a>>),
    Dict(Vec<(Value<'a>, Value<'a>)>),
    Storage {
        key: &'a str,
        element: Element,
        len: i64,
    },
    /// A view of a storage: its first element, and its shape and strides, both tuples.
    Tensor {
        storage: u32,
        offset: i64,
        shape: u32,
        strides: u32,
    },
}

/// The result of a pickle.
pub(super) struct Pickle<'a> {
    objects: Vec<Object<'a>>,
    root: Value<'a>,
    /// Its length in bytes.
    pub(super) len: usize,
}

impl<'a> Pickle<'a> {
    /// Reads the pickle at the beginning of `bytes`; `base` is its offset in the file, for errors.
    pub(super) fn read(bytes: &'a [u8], base: usize) -> Result<Self, Refused> {
        let bytes = &bytes[..bytes.len().min(MAX_LEN)];
        let mut machine = Machine {
            bytes,
            at: 0,
            stack: Vec::new(),
            marks: Vec::new(),
            memo: HashMap::new(),
            objects: Vec::new(),
        };
        loop {
            let opcode_at = machine.at;
            match machine.step() {
                Ok(None) => {}
                Ok(Some(root)) => return Ok(Self { objects: machine.objects, root, len: machine.at }),
                Err(reason) => return Err(Refused { offset: base + opcode_at, reason }),
            }
        }
    }

    /// The pickle's value.
    pub(super) fn root(&self) -> Value<'a> {
        self.root
    }

    /// The object that `value` refers to.
    pub(super) fn object(&self, value: Value<'a>) -> Option<&Object<'a>> {
        match value {
            Value::Object(id) => Some(&self.objects[id as usize]),
            _ => None,
        }
    }

    /// The entries of a dictionary.
    pub(super) fn dict(&self, value: Value<'a>) -> Option<&[(Value<'a>, Value<'a>)]> {
        match self.object(value)? {
            Object::Dict(entries) => Some(entries),
            _ => None,
        }
    }

    /// The keys and elements of all storages.
    pub(super) fn storages(&self) -> impl Iterator<Item = (&'a str, Element)> {
        self.objects.iter().filter_map(|object| match object {
            Object::Storage { key, element, .. } => Some((*key, *element)),
            _ => None,
        })
    }

    /// The items of a list or a tuple.
    pub(super) fn items(&self, value: Value<'a>) -> Option<&[Value<'a>]> {
        match self.object(value)? {
            Object::List(items) => Some(items),
            Object::Tuple(items) => Some(items),
            _ => None,
        }
    }
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    stack: Vec<Value<'a>>,
    /// The stack heights of the marks.
    marks: Vec<usize>,
    memo: HashMap<u32, Value<'a>>,
    objects: Vec<Object<'a>>,
}

/// The result of a step; an error is only the reason.
type Step<T> = Result<T, String>;

impl<'a> Machine<'a> {
    /// Executes one opcode; returns the result after the last one.
    fn step(&mut self) -> Step<Option<Value<'a>>> {
        match self.byte()? {
            // PROTO, FRAME: skip the protocol number or the frame length.
            0x80 => _ = self.byte()?,
            0x95 => _ = self.take(8)?,
            b'.' => return self.pop().map(Some),
            b'(' => self.marks.push(self.stack.len()),
            b'0' => _ = self.pop()?,
            b'1' => _ = self.since_mark()?,
            b'N' => self.stack.push(Value::None),
            0x88 => self.stack.push(Value::Bool(true)),
            0x89 => self.stack.push(Value::Bool(false)),
            b'J' => {
                let value = i32::from_le_bytes(self.array()?);
                self.stack.push(Value::Int(value.into()));
            }
            b'K' => {
                let value = self.byte()?;
                self.stack.push(Value::Int(value.into()));
            }
            b'M' => {
                let value = u16::from_le_bytes(self.array()?);
                self.stack.push(Value::Int(value.into()));
            }
            0x8a => {
                let value = self.long()?;
                self.stack.push(Value::Int(value));
            }
            b'G' => {
                self.take(8)?;
                self.stack.push(Value::Float);
            }
            // BINUNICODE and Python 2's BINSTRING, in their short and long forms.
            b'X' | b'T' => {
                let len = u32::from_le_bytes(self.array()?);
                self.text(len as usize)?;
            }
            0x8c | b'U' => {
                let len = self.byte()?;
                self.text(len.into())?;
            }
            0x8d => {
                let len = u64::from_le_bytes(self.array()?);
                self.text(usize::try_from(len).unwrap_or(usize::MAX))?;
            }
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.global(module, name)?;
            }
            0x93 => match (self.pop()?, self.pop()?) {
                (Value::Text(name), Value::Text(module)) => self.global(module, name)?,
                _ => return Err("an imported name is not text".into()),
            },
            b'}' => self.push(Object::Dict(Vec::new()))?,
            b']' => self.push(Object::List(Vec::new()))?,
            b')' => self.push(Object::Tuple(Box::new([])))?,
            b't' => {
                let items = self.since_mark()?;
                self.push(Object::Tuple(items.into()))?;
            }
            opcode @ 0x85..=0x87 => {
                let len = usize::from(opcode - 0x84);
                let from = self.stack.len().checked_sub(len).filter(|from| *from >= self.floor());
                let items = self.stack.split_off(from.ok_or("the stack is empty")?);
                self.push(Object::Tuple(items.into()))?;
            }
            b'a' => {
                let item = self.pop()?;
                self.list()?.push(item);
            }
            b'e' => {
                let items = self.since_mark()?;
                self.list()?.extend(items);
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.dict()?.push((key, value));
            }
            b'u' => {
                let items = self.since_mark()?;
                let (pairs, rest) = items.as_chunks::<2>();
                if !rest.is_empty() {
                    return Err("a dictionary's key has no value".into());
                }
                self.dict()?.extend(pairs.iter().map(|[key, value]| (*key, *value)));
            }
            b'q' => {
                let key = self.byte()?;
                self.memoize(key.into())?;
            }
            b'r' => {
                let key = u32::from_le_bytes(self.array()?);
                self.memoize(key)?;
            }
            0x94 => self.memoize(self.memo.len() as u32)?,
            b'h' => {
                let key = self.byte()?;
                self.recall(key.into())?;
            }
            b'j' => {
                let key = u32::from_le_bytes(self.array()?);
                self.recall(key)?;
            }
            b'Q' => {
                let id = self.pop()?;
                self.storage(id)?;
            }
            b'R' => {
                let (arguments, callee) = (self.pop()?, self.pop()?);
                self.call(callee, arguments)?;
            }
            // The attributes of an ordered dictionary, its `_metadata`, are not needed.
            b'b' => {
                self.pop()?;
                self.dict()?;
            }
            other => return Err(format!("opcode 0x{other:02x} does not occur in dictionaries of tensors")),
        }
        Ok(None)
    }

    fn take(&mut self, len: usize) -> Step<&'a [u8]> {
        let bytes = self.bytes[self.at..].get(..len).ok_or("the pickle ends too early")?;
        self.at += len;
        Ok(bytes)
    }

    fn byte(&mut self) -> Step<u8> {
        Ok(self.array::<1>()?[0])
    }

    fn array<const N: usize>(&mut self) -> Step<[u8; N]> {
        Ok(*self.take(N)?.as_array().expect("as many bytes as asked for"))
    }

    /// Text up to the end of the line, without the newline.
    fn line(&mut self) -> Step<&'a str> {
        let rest = &self.bytes[self.at..];
        let len = rest.iter().position(|byte| *byte == b'\n').ok_or("the pickle ends too early")?;
        let line = self.take(len)?;
        self.at += 1;
        str::from_utf8(line).map_err(|_| "a name is not UTF-8".into())
    }

    fn text(&mut self, len: usize) -> Step<()> {
        let text = str::from_utf8(self.take(len)?).map_err(|_| "a text is not UTF-8")?;
        self.stack.push(Value::Text(text));
        Ok(())
    }

    /// An integer in two's complement with as many bytes as its length says.
    fn long(&mut self) -> Step<i64> {
        let len = usize::from(self.byte()?);
        let bytes = self.take(len)?;
        if len > 8 {
            return Err("a number needs more than 64 bits".into());
        }
        let negative = bytes.last().is_some_and(|last| last & 0x80 != 0);
        let mut whole = [if negative { 0xff } else { 0 }; 8];
        whole[..len].copy_from_slice(bytes);
        Ok(i64::from_le_bytes(whole))
    }

    /// The bottom of the stack above the innermost mark: nothing below may be popped.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn pop(&mut self) -> Step<Value<'a>> {
        if self.stack.len() <= self.floor() {
            return Err("the stack is empty".into());
        }
        self.stack.pop().ok_or_else(|| "the stack is empty".into())
    }

    fn since_mark(&mut self) -> Step<Vec<Value<'a>>> {
        let mark = self.marks.pop().ok_or("there is no mark on the stack")?;
        Ok(self.stack.split_off(mark))
    }

    fn new_object(&mut self, object: Object<'a>) -> Step<Value<'a>> {
        let id = u32::try_from(self.objects.len()).map_err(|_| "there are too many objects")?;
        self.objects.push(object);
        Ok(Value::Object(id))
    }

    fn push(&mut self, object: Object<'a>) -> Step<()> {
        let value = self.new_object(object)?;
        self.stack.push(value);
        Ok(())
    }

    fn top(&mut self) -> Option<&mut Object<'a>> {
        match *self.stack.get(self.floor()..)?.last()? {
            Value::Object(id) => Some(&mut self.objects[id as usize]),
            _ => None,
        }
    }

    fn list(&mut self) -> Step<&mut Vec<Value<'a>>> {
        match self.top() {
            Some(Object::List(items)) => Ok(items),
            _ => Err("items are added to something that is not a list".into()),
        }
    }

    fn dict(&mut self) -> Step<&mut Vec<(Value<'a>, Value<'a>)>> {
        match self.top() {
            Some(Object::Dict(entries)) => Ok(entries),
            _ => Err("entries or attributes are added to something that is not a dictionary".into()),
        }
    }

    fn memoize(&mut self, key: u32) -> Step<()> {
        let value = *self.stack.last().ok_or("the stack is empty")?;
        self.memo.insert(key, value);
        Ok(())
    }

    fn recall(&mut self, key: u32) -> Step<()> {
        let value = self.memo.get(&key).ok_or_else(|| format!("the memo has no entry {key}"))?;
        self.stack.push(*value);
        Ok(())
    }

    fn global(&mut self, module: &str, name: &str) -> Step<()> {
        let global = Global::named(module, name).ok_or_else(|| {
            let shown: String = format!("{module}.{name}").chars().take(100).collect();
            format!("`{}` is not among the names that a file of weights may import", shown.escape_debug())
        })?;
        self.stack.push(Value::Global(global));
        Ok(())
    }

    fn tuple(&self, value: Value<'a>) -> Step<&[Value<'a>]> {
        match value {
            Value::Object(id) => match &self.objects[id as usize] {
                Object::Tuple(items) => Ok(items),
                _ => Err("the arguments are not a tuple".into()),
            },
            _ => Err("the arguments are not a tuple".into()),
        }
    }

    /// `('storage', type, key, location, length)`, and in old files a view of it or None.
    fn storage(&mut self, id: Value<'a>) -> Step<()> {
        let storage = match self.tuple(id)? {
            [
                Value::Text("storage"),
                Value::Global(Global::Storage(element)),
                Value::Text(key),
                _location,
                Value::Int(len),
            ]
            | [
                Value::Text("storage"),
                Value::Global(Global::Storage(element)),
                Value::Text(key),
                _location,
                Value::Int(len),
                Value::None,
            ] => Object::Storage { key, element: *element, len: *len },
            _ => return Err("a storage is not described as torch.save describes it".into()),
        };
        self.push(storage)
    }

    /// The value that Python would get from calling `callee`.
    fn call(&mut self, callee: Value<'a>, arguments: Value<'a>) -> Step<()> {
        let Value::Global(callee) = callee else {
            return Err("the called object is not a function".into());
        };
        let value = match (callee, self.tuple(arguments)?) {
            (Global::OrderedDict, []) => self.new_object(Object::Dict(Vec::new()))?,
            (Global::Size, [shape]) => *shape,
            (
                Global::RebuildTensor,
                [
                    Value::Object(storage),
                    Value::Int(offset),
                    Value::Object(shape),
                    Value::Object(strides),
                    ..,
                ],
            ) => {
                let tensor =
                    Object::Tensor { storage: *storage, offset: *offset, shape: *shape, strides: *strides };
                self.new_object(tensor)?
            }
            (Global::RebuildParameter, [tensor, ..]) => *tensor,
            (callee, _) => return Err(format!("{callee:?} is not called as torch.save calls it")),
        };
        self.stack.push(value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(bytes: &[u8]) -> (usize, String) {
        let refused = Pickle::read(bytes, 100).err().expect("the pickle is refused");
        (refused.offset, refused.reason)
    }

    #[test]
    fn plain_values_are_read() {
        // pickle.dumps({"a": [1, -2, 300, 70000, 2**40, -1.5, True, None], "b": ()}, 2)
        let bytes = b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01]q\x02(K\x01J\xfe\xff\xff\xffM,\x01J\x70\x11\x01\
            \x00\x8a\x06\x00\x00\x00\x00\x00\x01G\xbf\xf8\x00\x00\x00\x00\x00\x00\x88Neq\x01X\x01\x00\x00\x00b)u.rest";
        let pickle = Pickle::read(bytes, 0).unwrap();
        assert_eq!(pickle.len, bytes.len() - 4);
        let entries = pickle.dict(pickle.root()).unwrap();
        assert_eq!(entries[0].0, Value::Text("a"));
        let expected = [1, -2, 300, 70_000, 1 << 40].map(Value::Int);
        let items = pickle.items(entries[0].1).unwrap();
        assert_eq!(items[..5], expected);
        assert_eq!(items[5..], [Value::Float, Value::Bool(true), Value::None]);
        assert_eq!(pickle.items(entries[1].1).unwrap(), []);
    }

    #[test]
    fn code_is_refused_by_name_and_place() {
        let (offset, reason_given) = reason(b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00ls\x85R.");
        assert_eq!(offset, 102);
        assert_eq!(reason_given, "`os.system` is not among the names that a file of weights may import");
        // The same through the newer opcode, and names that only look like the allowed ones.
        assert!(reason(b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93.").1.starts_with("`builtins.eval`"));
        for name in
            ["ctorch\nload\n", "ctorch._utils\n_rebuild_tensor_v3\n", "ctorch.storage\n_load_from_bytes\n"]
        {
            assert!(reason(name.as_bytes()).1.ends_with("may import"), "{name}");
        }
        // Opcodes that call or import in other ways: INST, OBJ, NEWOBJ, NEWOBJ_EX, EXT1, PERSID.
        for opcode in [b"i", b"o", b"\x81", b"\x92", b"\x82", b"P"] {
            let bytes = [b"(", &opcode[..], b"os\nsystem\n"].concat();
            assert!(reason(&bytes).1.contains("does not occur in dictionaries of tensors"), "{opcode:?}");
        }
    }

    #[test]
    fn stacks_are_never_popped_below_their_mark() {
        for bytes in
            [&b"."[..], b"N(.", b"0", b"t", b"K\x01(K\x01\x86.", b"N(a", b"](Na", b"q\x00", b"h\x07", b"R"]
        {
            let (_, reason) = reason(bytes);
            assert!(!reason.is_empty(), "{bytes:?}");
        }
    }

    #[test]
    fn cut_anywhere_it_is_an_error() {
        let bytes = b"\x80\x02ccollections\nOrderedDict\n)Rq\x00X\x01\x00\x00\x00aJ\x01\x00\x00\x00s.";
        assert!(Pickle::read(bytes, 0).is_ok());
        for end in 0..bytes.len() {
            assert!(Pickle::read(&bytes[..end], 0).is_err(), "{end}");
        }
    }

    #[test]
    fn depth_and_cycles_cost_no_more_than_their_bytes() {
        // A million nested tuples.
        let deep = [&b")"[..], &[0x85; 1 << 20], b"."].concat();
        assert_eq!(Pickle::read(&deep, 0).unwrap().objects.len(), (1 << 20) + 1);
        // Each tuple contains the previous one three times: 3^40 leaves when walked.
        let wide = [&b")"[..], &b"q\x00h\x00h\x00\x87".repeat(40), b"."].concat();
        assert_eq!(Pickle::read(&wide, 0).unwrap().objects.len(), 41);
        // A list that contains itself.
        assert_eq!(Pickle::read(b"]q\x00h\x00a.", 0).unwrap().objects.len(), 1);
        // A memo key that is no index.
        assert!(Pickle::read(b"Nr\xff\xff\xff\xff.", 0).is_ok());
        // A text longer than the file.
        assert!(reason(b"X\xff\xff\xff\xffa").1.contains("ends too early"));
        assert!(reason(b"\x8d\xff\xff\xff\xff\xff\xff\xff\xffa").1.contains("ends too early"));
    }
}
