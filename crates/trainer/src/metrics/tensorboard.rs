//! TensorBoard event files: scalars as TensorFlow's summaries, framed as TFRecords.
//!
//! The format is small enough to write by hand. A file is a series of records
//! (`tensorflow/core/lib/io/record_writer.h`): length (u64), masked CRC-32C of the length, data, masked CRC-32C
//! of the data, all little-endian. The data is an `Event` protobuf message (`tensorflow/core/util/event.proto`)
//! that holds a `Summary` (`tensorflow/core/framework/summary.proto`).

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::{Result, TrainerError};

/// The prefix of event file names.
const PREFIX: &str = "events.out.tfevents.";

/// An event file open for appending.
pub struct EventFile {
    path: PathBuf,
    file: File,
}

impl EventFile {
    /// Creates a new event file in `folder`, which is created if missing.
    ///
    /// With `resumed_at`, the file's first event tells TensorBoard to drop later steps from the folder's older
    /// files.
    ///
    /// # Errors
    /// [`TrainerError::Io`].
    pub fn create(folder: &Path, resumed_at: Option<u64>) -> Result<Self> {
        std::fs::create_dir_all(folder).map_err(TrainerError::io("create the folder", folder))?;
        let seconds = now() as u64;
        let mut number = 0;
        let (path, file) = loop {
            // TensorBoard reads a folder's files in the order of their names.
            let path = folder.join(format!("{PREFIX}{seconds:010}.cloze.{number}"));
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => break (path, file),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(TrainerError::io("create", &path)(error)),
            }
        };
        let mut events = Self { path, file };
        let mut first = Message::event(now(), 0);
        first.bytes(field::FILE_VERSION, b"brain.Event:2");
        events.append(&first)?;
        if let Some(step) = resumed_at {
            let mut status = Message::default();
            status.varint(field::STATUS, field::STATUS_START);
            let mut session = Message::event(now(), step + 1);
            session.bytes(field::SESSION_LOG, &status.0);
            events.append(&session)?;
        }
        Ok(events)
    }

    /// Appends the scalars of `step`, in single precision as the format requires.
    ///
    /// # Errors
    /// [`TrainerError::Io`].
    pub fn write(&mut self, step: u64, scalars: &[(impl AsRef<str>, f64)]) -> Result<()> {
        let mut summary = Message::default();
        for (tag, value) in scalars {
            let mut scalar = Message::default();
            scalar.bytes(field::TAG, tag.as_ref().as_bytes());
            scalar.float(field::SIMPLE_VALUE, *value as f32);
            summary.bytes(field::VALUE, &scalar.0);
        }
        let mut event = Message::event(now(), step);
        event.bytes(field::SUMMARY, &summary.0);
        self.append(&event)
    }

    /// One write per record: a killed process leaves only complete records.
    fn append(&mut self, message: &Message) -> Result<()> {
        self.file.write_all(&frame(&message.0)).map_err(TrainerError::io("write", &self.path))
    }
}

/// Removes the event files in `folder`, if it exists; other files are kept.
///
/// # Errors
/// [`TrainerError::Io`].
pub fn clear(folder: &Path) -> Result<()> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(TrainerError::io("read the folder", folder)(error)),
    };
    for entry in entries {
        let entry = entry.map_err(TrainerError::io("read the folder", folder))?;
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            std::fs::remove_file(entry.path()).map_err(TrainerError::io("remove", &entry.path()))?;
        }
    }
    Ok(())
}

/// Seconds since 1970, as TensorBoard's wall time.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

/// `data` as a TFRecord.
fn frame(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut record = Vec::with_capacity(data.len() + 16);
    record.extend(length);
    record.extend(masked_crc(&length).to_le_bytes());
    record.extend(data);
    record.extend(masked_crc(data).to_le_bytes());
    record
}

/// CRC-32C, rotated and shifted so that checksums of data containing checksums stay robust (`crc32c.h`).
fn masked_crc(data: &[u8]) -> u32 {
    crc32c::crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// The messages' field numbers.
mod field {
    // Event
    pub const WALL_TIME: u32 = 1;
    pub const STEP: u32 = 2;
    pub const FILE_VERSION: u32 = 3;
    pub const SUMMARY: u32 = 5;
    pub const SESSION_LOG: u32 = 7;
    // SessionLog
    pub const STATUS: u32 = 1;
    pub const STATUS_START: u64 = 1;
    // Summary and Summary.Value
    pub const VALUE: u32 = 1;
    pub const TAG: u32 = 1;
    pub const SIMPLE_VALUE: u32 = 2;
}

/// A protobuf message being encoded.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    /// An `Event` at `step`, without content yet.
    fn event(wall_time: f64, step: u64) -> Self {
        let mut event = Self::default();
        event.key(field::WALL_TIME, 1);
        event.0.extend(wall_time.to_le_bytes());
        event.varint(field::STEP, step);
        event
    }

    fn key(&mut self, field: u32, wire_type: u32) {
        self.raw_varint(u64::from(field << 3 | wire_type));
    }

    fn raw_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn varint(&mut self, field: u32, value: u64) {
        self.key(field, 0);
        self.raw_varint(value);
    }

    fn bytes(&mut self, field: u32, value: &[u8]) {
        self.key(field, 2);
        self.raw_varint(value.len() as u64);
        self.0.extend(value);
    }

    fn float(&mut self, field: u32, value: f32) {
        self.key(field, 5);
        self.0.extend(value.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The data of each record, after checking both checksums.
    fn records(mut bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut records = Vec::new();
        while !bytes.is_empty() {
            let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
            assert_eq!(bytes[8..12], masked_crc(&bytes[..8]).to_le_bytes());
            let data = &bytes[12..12 + length];
            assert_eq!(bytes[12 + length..16 + length], masked_crc(data).to_le_bytes());
            records.push(data.to_vec());
            bytes = &bytes[16 + length..];
        }
        records
    }

    #[test]
    fn checksums_are_masked_as_in_tensorflow() {
        // The length 24 as TensorFlow frames it, the first twelve bytes of every event file it writes.
        let length = 24_u64.to_le_bytes();
        assert_eq!(masked_crc(&length).to_le_bytes(), [0xa3, 0x7f, 0x4b, 0x22]);
    }

    #[test]
    fn a_scalar_event_has_the_bytes_of_the_protobuf_encoder() {
        let mut event = Message::event(1.0, 300);
        let mut scalar = Message::default();
        scalar.bytes(field::TAG, b"loss");
        scalar.float(field::SIMPLE_VALUE, 0.5);
        let mut summary = Message::default();
        summary.bytes(field::VALUE, &scalar.0);
        event.bytes(field::SUMMARY, &summary.0);
        let expected = [
            &[0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f][..], // wall_time = 1.0
            &[0x10, 0xac, 0x02],                       // step = 300
            &[0x2a, 0x0d],                             // summary, 13 bytes
            &[0x0a, 0x0b],                             // value, 11 bytes
            &[0x0a, 0x04, b'l', b'o', b's', b's'],     // tag
            &[0x15, 0, 0, 0, 0x3f],                    // simple_value = 0.5
        ]
        .concat();
        assert_eq!(event.0, expected);
    }

    #[test]
    fn files_start_with_their_version_and_a_resumed_one_with_its_step() {
        let folder = tempfile::tempdir().unwrap();
        let mut fresh = EventFile::create(folder.path(), None).unwrap();
        fresh.write(1, &[("a", 1.0), ("b", 2.0)]).unwrap();
        let resumed = EventFile::create(folder.path(), Some(4)).unwrap();
        assert_ne!(fresh.path, resumed.path);

        let fresh = records(&std::fs::read(&fresh.path).unwrap());
        assert_eq!(fresh.len(), 2);
        assert!(fresh[0].ends_with(b"brain.Event:2"));
        let resumed = records(&std::fs::read(&resumed.path).unwrap());
        assert_eq!(resumed.len(), 2);
        // step = 5, session_log { status: START }
        assert!(resumed[1].ends_with(&[0x10, 5, 0x3a, 2, 0x08, 1]));
    }

    #[test]
    fn clearing_takes_event_files_only() {
        let folder = tempfile::tempdir().unwrap();
        EventFile::create(folder.path(), None).unwrap();
        std::fs::write(folder.path().join("notes.txt"), "").unwrap();
        clear(folder.path()).unwrap();
        let left: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
        assert_eq!(left, ["notes.txt"]);
        clear(&folder.path().join("missing")).unwrap();
    }
}
