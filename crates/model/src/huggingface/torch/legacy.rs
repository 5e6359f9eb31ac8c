//! Files of PyTorch before 1.6: pickles of a magic number, a protocol, system information, the tensors and the
//! storages' keys; then, for each key, the number of elements and their bytes.

use super::contents::Contents;
use super::pickle::{Element, Pickle, Value};
use super::refused::Refused;
use std::collections::HashMap;

/// The magic number in the first pickle, after the two bytes of the pickle protocol.
const MAGIC: &[u8] = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";

/// Whether the file is in this format.
pub(super) fn begins(bytes: &[u8]) -> bool {
    bytes.first() == Some(&0x80) && bytes.get(2..).is_some_and(|rest| rest.starts_with(MAGIC))
}

pub(super) fn contents(bytes: &[u8]) -> Result<Contents<'_>, Refused> {
    let mut at = 2 + MAGIC.len();
    let mut next = || {
        let from = at;
        let pickle = Pickle::read(&bytes[from..], from)?;
        at += pickle.len;
        Ok::<_, Refused>((from, pickle))
    };
    let (protocol_at, protocol) = next()?;
    if protocol.root() != Value::Int(1001) {
        return Err(Refused { offset: protocol_at, reason: "the protocol is not number 1001".into() });
    }
    let (machine_at, machine) = next()?;
    let order = (Value::Text("little_endian"), Value::Bool(true));
    if !machine.dict(machine.root()).is_some_and(|entries| entries.contains(&order)) {
        let reason = "the bytes are not in little-endian order".into();
        return Err(Refused { offset: machine_at, reason });
    }
    let (pickle_at, pickle) = next()?;
    let (keys_at, keys) = next()?;
    let Some(keys) = keys.items(keys.root()) else {
        return Err(Refused { offset: keys_at, reason: "the storages' keys are not a list".into() });
    };

    let elements: HashMap<&str, Element> = pickle.storages().collect();
    let mut storages = HashMap::new();
    for key in keys {
        let element = match key {
            Value::Text(key) => elements.get(key).map(|element| (*key, element.size())),
            _ => None,
        };
        let Some((key, size)) = element else {
            return Err(Refused {
                offset: keys_at,
                reason: "a storage's key is not among the tensors'".into(),
            });
        };
        let place = bytes[at..].split_first_chunk::<8>().and_then(|(len, rest)| {
            let len = usize::try_from(u64::from_le_bytes(*len)).ok()?.checked_mul(size)?;
            (len <= rest.len()).then_some(at + 8..at + 8 + len)
        });
        let Some(place) = place else {
            let reason = "the storages' bytes end too early: is the file cut short?".into();
            return Err(Refused { offset: at, reason });
        };
        at = place.end;
        storages.insert(key, place);
    }
    Ok(Contents { pickle, pickle_at, storages })
}
