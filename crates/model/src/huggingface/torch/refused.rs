/// Why a file is refused, and the offset in bytes.
#[derive(Debug)]
pub(super) struct Refused {
    pub offset: usize,
    pub reason: String,
}
