//! Writing: every value once, and where it comes again an indirection to it.

use std::any::Any;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::{CHUNKED, ID_LIST, INDIRECTION, ONE_ID, TAG};
use crate::cdr::{CdrError, Encoder};

/// Values within values that are written; a thread's stack holds no more for certain.
const NESTING: u32 = 256;

/// What one message's values share while they are written.
#[derive(Default)]
pub(in crate::cdr) struct ValueWriter {
    /// Where the tags of values stand, by what tells values apart.
    pub(super) known: HashMap<(usize, u32), usize>,
    /// Keeps values alive, so that none takes the identity of one that was written before.
    kept: Vec<Arc<dyn Any + Send + Sync>>,
    /// Where repository ids stand.
    pub(super) ids: HashMap<Cow<'static, str>, usize>,
    /// Values that are being written.
    depth: u32,
    /// Chunked ones among them.
    pub(super) level: u32,
    chunk: Option<Chunk>,
}

impl fmt::Debug for ValueWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueWriter").field("values", &self.known.len()).field("level", &self.level).finish()
    }
}

/// A chunk that grows.
#[derive(Clone, Copy)]
struct Chunk {
    /// Length of the buffer in front of it and its gap.
    before: usize,
    /// Index of its size in the buffer.
    size_at: usize,
    /// All octets written before its contents.
    start: usize,
}

/// A value whose state is being written; ends with [`Encoder::end_value`].
#[derive(Debug)]
#[must_use]
pub struct WrittenValue {
    chunked: bool,
}

impl Encoder<'_> {
    /// Writes the null value.
    pub fn write_null_value(&mut self) {
        self.write_u32(0);
    }

    /// Begins a value: its state follows, then [`end_value`](Encoder::end_value). `None` if the value was written before, and
    /// an indirection stands for it.
    ///
    /// `identity` tells values apart, and `keep` holds on to the value for as long as the encoder may compare with it. `ids` are the
    /// repository ids to be sent: one, or for a truncatable type also those it can be truncated to, the most derived first.
    ///
    /// # Errors
    /// [`CdrError::TooDeep`] below 256 values within each other, [`CdrError::TooLong`].
    pub fn begin_value(
        &mut self,
        identity: (usize, u32),
        keep: impl FnOnce() -> Arc<dyn Any + Send + Sync>,
        ids: &'static [&'static str],
        chunked: bool,
    ) -> Result<Option<WrittenValue>, CdrError> {
        if self.write_known_value(identity)? {
            return Ok(None);
        }
        self.begin_unknown_value(identity, keep, ids.iter().map(|id| Cow::Borrowed(*id)), chunked).map(Some)
    }

    /// Writes an indirection to a value, if it was written before.
    pub(crate) fn write_known_value(&mut self, identity: (usize, u32)) -> Result<bool, CdrError> {
        let known = self.values().known.get(&identity).copied();
        known.map(|at| self.write_indirection(at)).transpose().map(|written| written.is_some())
    }

    /// Whether values were written.
    pub(crate) fn has_values(&mut self) -> bool {
        !self.values().known.is_empty()
    }

    /// Begins a value that was not written before.
    pub(crate) fn begin_unknown_value(
        &mut self,
        identity: (usize, u32),
        keep: impl FnOnce() -> Arc<dyn Any + Send + Sync>,
        ids: impl ExactSizeIterator<Item = Cow<'static, str>>,
        chunked: bool,
    ) -> Result<WrittenValue, CdrError> {
        let chunked = chunked || self.values().level > 0;
        self.enter_value(identity, keep())?;
        let form = match ids.len() {
            0 => 0,
            1 => ONE_ID,
            _ => ID_LIST,
        };
        self.write_u32(TAG | form | if chunked { CHUNKED } else { 0 });
        if ids.len() > 1 {
            self.write_len(ids.len())?;
        }
        for id in ids {
            self.write_repository_id(id)?;
        }
        if chunked {
            self.values().level += 1;
            self.open_chunk();
        }
        Ok(WrittenValue { chunked })
    }

    /// Begins a value whose chunks are copied: what follows its head is aligned as what stood at `from`.
    pub(super) fn begin_copied_value(
        &mut self,
        identity: (usize, u32),
        keep: Arc<dyn Any + Send + Sync>,
        id: Cow<'static, str>,
        from: usize,
    ) -> Result<WrittenValue, CdrError> {
        self.enter_value(identity, keep)?;
        let end = self.position().wrapping_add(4).wrapping_add(self.id_size(&id));
        // A list of one id is 4 octets longer than the id alone, and says the same.
        let form = if is_aligned_as(end, from) { ONE_ID } else { ID_LIST };
        self.write_u32(TAG | form | CHUNKED);
        if form == ID_LIST {
            self.write_u32(1);
        }
        self.write_repository_id(id)?;
        self.values().level += 1;
        Ok(WrittenValue { chunked: true })
    }

    fn enter_value(&mut self, identity: (usize, u32), keep: Arc<dyn Any + Send + Sync>) -> Result<(), CdrError> {
        let values = self.values();
        if values.depth == NESTING {
            return Err(CdrError::TooDeep);
        }
        values.depth += 1;
        self.close_chunk()?;
        self.align(4);
        let at = self.position();
        let values = self.values();
        values.known.insert(identity, at);
        values.kept.push(keep);
        Ok(())
    }

    /// What a repository id takes from a multiple of 4 on, without the gap behind it.
    fn id_size(&mut self, id: &str) -> usize {
        if self.values().ids.contains_key(id) { 8 } else { 5 + id.chars().count() }
    }

    /// Ends a value whose state is written.
    ///
    /// # Errors
    /// [`CdrError::TooLong`].
    pub fn end_value(&mut self, value: WrittenValue) -> Result<(), CdrError> {
        if value.chunked {
            self.close_chunk()?;
            let level = self.values().level;
            self.write_u32(level.wrapping_neg());
            self.values().level = level.saturating_sub(1);
            if level > 1 {
                self.open_chunk();
            }
        }
        let values = self.values();
        values.depth = values.depth.saturating_sub(1);
        Ok(())
    }

    pub(super) fn write_repository_id(&mut self, id: Cow<'static, str>) -> Result<(), CdrError> {
        if let Some(at) = self.values().ids.get(&id).copied() {
            return self.write_indirection(at);
        }
        self.align(4);
        let at = self.position();
        self.write_latin1_str(&id)?;
        self.values().ids.insert(id, at);
        Ok(())
    }

    pub(super) fn write_indirection(&mut self, to: usize) -> Result<(), CdrError> {
        self.write_u32(INDIRECTION);
        self.align(4);
        let back = self.position().wrapping_sub(to);
        let back = i32::try_from(back).map_err(|_| CdrError::TooLong)?;
        self.write_i32(-back);
        Ok(())
    }

    fn open_chunk(&mut self) {
        let before = self.buffer_mut().len();
        self.write_u32(0);
        let size_at = self.buffer_mut().len() - 4;
        let start = self.len();
        self.values().chunk = Some(Chunk { before, size_at, start });
    }

    fn close_chunk(&mut self) -> Result<(), CdrError> {
        let Some(Chunk { before, size_at, start }) = self.values().chunk.take() else { return Ok(()) };
        match self.len() - start {
            // There are no empty chunks.
            0 => self.buffer_mut().truncate(before),
            size => {
                let size = u32::try_from(size).ok().filter(|size| *size < TAG).ok_or(CdrError::TooLong)?;
                self.patch_at_buffer(size_at, size);
            }
        }
        Ok(())
    }
}

/// Whether what comes next, at a multiple of 4, is at the same place between multiples of 8 behind both positions.
pub(super) fn is_aligned_as(one: usize, other: usize) -> bool {
    let next = |position: usize| position.wrapping_add(3) & 4;
    next(one) == next(other)
}
