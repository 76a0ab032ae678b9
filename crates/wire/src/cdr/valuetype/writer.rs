//! Writing of values (IDL `valuetype`): the first occurrence in full, each further occurrence as an
//! indirection.

use std::any::Any;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::{CHUNKED, ID_LIST, INDIRECTION, ONE_ID, TAG};
use crate::cdr::{CdrError, Encoder};

/// Maximum nesting of values that are written; deeper nesting may exceed a thread's stack.
const MAX_NESTING: u32 = 256;

#[derive(Default)]
pub(in crate::cdr) struct ValueWriter {
    pub(super) positions: HashMap<(usize, u32), usize>,
    /// Keeps written values alive, so that no later value gets the identity of one of them.
    kept: Vec<Arc<dyn Any + Send + Sync>>,
    pub(super) ids: HashMap<Cow<'static, str>, usize>,
    depth: u32,
    pub(super) level: u32,
    chunk: Option<Chunk>,
}

impl fmt::Debug for ValueWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueWriter").field("values", &self.positions.len()).field("level", &self.level).finish()
    }
}

#[derive(Clone, Copy)]
struct Chunk {
    before: usize,
    size_at: usize,
    start: usize,
}

/// A value whose state is being written. [`Encoder::end_value`] ends the value.
#[derive(Debug)]
#[must_use]
pub struct UnfinishedValue {
    chunked: bool,
}

impl Encoder<'_> {
    /// Writes the null value.
    pub fn write_null_value(&mut self) {
        self.write_u32(0);
    }

    /// Begins a value. The caller then writes its state and calls
    /// [`end_value`](Encoder::end_value). If the value was written before, this method writes an
    /// indirection instead and returns `None`.
    ///
    /// `keep` returns an owner that keeps the value alive while the encoder compares identities;
    /// `ids` are the repository ids to send, the most derived first. A value inside a chunked value
    /// is chunked regardless of `chunked`.
    ///
    /// # Errors
    /// [`CdrError::NestingTooDeep`] for more than 256 nested values; [`CdrError::LengthOverflow`]
    /// if an offset or the size of the enclosing value's chunk is too large for the wire form; the
    /// errors of [`write_latin1_str`](Encoder::write_latin1_str) for an id.
    pub fn begin_value(
        &mut self,
        identity: (usize, u32),
        keep: impl FnOnce() -> Arc<dyn Any + Send + Sync>,
        ids: &'static [&'static str],
        chunked: bool,
    ) -> Result<Option<UnfinishedValue>, CdrError> {
        if self.try_write_indirection(identity)? {
            return Ok(None);
        }
        self.begin_new_value(identity, keep, ids.iter().map(|id| Cow::Borrowed(*id)), chunked).map(Some)
    }

    pub(crate) fn try_write_indirection(&mut self, identity: (usize, u32)) -> Result<bool, CdrError> {
        let known = self.values().positions.get(&identity).copied();
        known.map(|at| self.write_indirection(at)).transpose().map(|written| written.is_some())
    }

    pub(crate) fn has_values(&mut self) -> bool {
        !self.values().positions.is_empty()
    }

    pub(crate) fn begin_new_value(
        &mut self,
        identity: (usize, u32),
        keep: impl FnOnce() -> Arc<dyn Any + Send + Sync>,
        ids: impl ExactSizeIterator<Item = Cow<'static, str>>,
        chunked: bool,
    ) -> Result<UnfinishedValue, CdrError> {
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
        Ok(UnfinishedValue { chunked })
    }

    /// Begins a chunked value whose content will be copied. The bytes after its head get the same
    /// alignment as the bytes at `from`.
    pub(super) fn begin_copied_value(
        &mut self,
        identity: (usize, u32),
        keep: Arc<dyn Any + Send + Sync>,
        id: Cow<'static, str>,
        from: usize,
    ) -> Result<UnfinishedValue, CdrError> {
        self.enter_value(identity, keep)?;
        let end = self.position().wrapping_add(4).wrapping_add(self.id_size(&id));
        // A list of one id means the same as the id alone. It is 4 bytes longer, which changes the
        // alignment.
        let form = if is_aligned_as(end, from) { ONE_ID } else { ID_LIST };
        self.write_u32(TAG | form | CHUNKED);
        if form == ID_LIST {
            self.write_u32(1);
        }
        self.write_repository_id(id)?;
        self.values().level += 1;
        Ok(UnfinishedValue { chunked: true })
    }

    fn enter_value(&mut self, identity: (usize, u32), keep: Arc<dyn Any + Send + Sync>) -> Result<(), CdrError> {
        let values = self.values();
        if values.depth == MAX_NESTING {
            return Err(CdrError::NestingTooDeep);
        }
        values.depth += 1;
        self.close_chunk()?;
        self.align(4);
        let at = self.position();
        let values = self.values();
        values.positions.insert(identity, at);
        values.kept.push(keep);
        Ok(())
    }

    fn id_size(&mut self, id: &str) -> usize {
        if self.values().ids.contains_key(id) { 8 } else { 5 + id.chars().count() }
    }

    /// Ends a value whose state was written.
    ///
    /// # Errors
    /// [`CdrError::LengthOverflow`] if the last chunk of the value is larger than the wire form
    /// permits.
    pub fn end_value(&mut self, value: UnfinishedValue) -> Result<(), CdrError> {
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
        let back = i32::try_from(back).map_err(|_| CdrError::LengthOverflow)?;
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
            // A chunk must not be empty, so its size field is removed.
            0 => self.buffer_mut().truncate(before),
            size => {
                let size = u32::try_from(size).ok().filter(|size| *size < TAG).ok_or(CdrError::LengthOverflow)?;
                self.patch_at_buffer(size_at, size);
            }
        }
        Ok(())
    }
}

/// Returns true if the multiples of 4 at or after the two positions are equal modulo 8.
pub(super) fn is_aligned_as(one: usize, other: usize) -> bool {
    let next = |position: usize| position.wrapping_add(3) & 4;
    next(one) == next(other)
}
