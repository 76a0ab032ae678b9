//! Copying of custom values (IDL `valuetype`), chunk by chunk.
//!
//! End tags and repository ids between the chunks are adapted to the new message. The contents of
//! chunks are copied unchanged, because only the custom code of a type understands them, with one
//! exception: if -1 is followed by an offset that leads exactly to a value of the message, the copy
//! treats the two numbers as an indirection and adapts the offset.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

use super::reader::IndirectionTarget;
use super::writer::is_aligned_as;
use super::{CHUNKED, CODEBASE, ID_LIST, IDS, INDIRECTION, ONE_ID, TAG, ValueStart};
use crate::cdr::{CdrError, Decoder, Encoder, Endian};

struct IdText<'m> {
    octets: &'m [u8],
    is_indirection: bool,
}

impl<'m> Decoder<'m> {
    /// Skips the state of a custom value whose head was read.
    ///
    /// # Errors
    /// [`CdrError::MalformedValuetype`] if the value is not chunked or its chunks are malformed.
    pub(crate) fn skip_custom(&mut self, start: &ValueStart<'m>) -> Result<(), CdrError> {
        self.walk_chunks(start, None)
    }

    /// Copies a custom value whose head was read. `keep` is an owner of the bytes.
    ///
    /// # Errors
    /// [`CdrError::CustomValueNotConvertible`] if the bytes would have another meaning in `e`; the
    /// errors of [`skip_custom`](Decoder::skip_custom).
    pub(crate) fn copy_custom(
        &mut self,
        start: &ValueStart<'m>,
        id: Cow<'static, str>,
        keep: &Arc<dyn Any + Send + Sync>,
        e: &mut Encoder<'_>,
    ) -> Result<(), CdrError> {
        if (self.endian(), self.version(), self.code_sets()) != (e.endian(), e.version(), e.code_sets()) {
            return Err(CdrError::CustomValueNotConvertible);
        }
        let value = e.begin_copied_value(self.identity(start.value_number), Arc::clone(keep), id, self.position())?;
        self.walk_chunks(start, Some(e))?;
        e.end_value(value)
    }

    /// Returns the identity of the value with this number. It is unique while the bytes of the
    /// message exist.
    pub(crate) fn identity(&self, number: u32) -> (usize, u32) {
        (self.bytes_from_origin().as_ptr().addr(), number)
    }

    fn walk_chunks(&mut self, start: &ValueStart<'m>, mut out: Option<&mut Encoder<'_>>) -> Result<(), CdrError> {
        if !start.is_chunked {
            return Err(CdrError::MalformedValuetype);
        }
        self.show_whole_message();
        let mut inside = 0;
        loop {
            let next = self.read_u32()?;
            match next {
                0 => {
                    if let Some(e) = out.as_deref_mut() {
                        e.write_null_value();
                    }
                }
                1..TAG => {
                    let at = self.position();
                    let chunk = self.read_bytes(next as usize)?;
                    if let Some(e) = out.as_deref_mut() {
                        e.write_u32(next);
                        self.copy_chunk(at, chunk, e)?;
                    }
                }
                TAG.. if next >> 31 == 0 => {
                    self.copy_head(next, start.level + inside, out.as_deref_mut())?;
                    inside += 1;
                }
                _ => {
                    let ended = next.wrapping_neg();
                    let Some(within) = ended.checked_sub(start.level).filter(|within| *within > 0) else {
                        self.chunks_mut().ended_level = ended;
                        return self.end_value(start);
                    };
                    if within > inside {
                        return Err(CdrError::MalformedValuetype);
                    }
                    inside = within - 1;
                    if let Some(e) = out.as_deref_mut() {
                        let level = e.values().level + within;
                        e.write_u32(level.wrapping_neg());
                    }
                }
            }
        }
    }

    /// Reads the head of a value within a custom value, and copies it to `out`, if given. `around`
    /// is the number of chunked values that contain the head.
    fn copy_head(&mut self, tag: u32, around: u32, out: Option<&mut Encoder<'_>>) -> Result<(), CdrError> {
        if tag & 0xff > 0x0f || tag & CHUNKED == 0 {
            return Err(CdrError::MalformedValuetype);
        }
        let at = self.position() - 4;
        let space = self.usable_value_read_state().ok_or(CdrError::UnsupportedForm)?;
        let number = space.add_value(self.address(at), around, self.limits().max_valuetype_instances)?;
        space.leave_value();
        let codebase = if tag & CODEBASE != 0 { Some(self.read_id()?) } else { None };
        let ids = match tag & IDS {
            0 => Vec::new(),
            ONE_ID => vec![self.read_id()?],
            _ => self.read_id_list(tag & IDS)?,
        };
        let Some(e) = out else { return Ok(()) };
        e.align(4);
        let identity = self.identity(number);
        let to = e.position();
        e.values().positions.insert(identity, to);
        let mut end = to.wrapping_add(4);
        for text in codebase.iter().chain(&ids) {
            end = (end.wrapping_add(3) & !3).wrapping_add(text.size(e));
        }
        let is_list = match (tag & IDS, ids.len()) {
            (_, 1) => !is_aligned_as(end, self.position()),
            (form, _) => form == ID_LIST,
        };
        let form = if is_list { ID_LIST } else { tag & IDS & ONE_ID };
        e.write_u32((tag & !IDS) | form);
        if let Some(codebase) = codebase {
            codebase.write(e)?;
        }
        if is_list {
            e.write_len(ids.len())?;
        }
        ids.into_iter().try_for_each(|text| text.write(e))?;
        if is_aligned_as(e.position(), self.position()) { Ok(()) } else { Err(CdrError::CustomValueNotConvertible) }
    }

    fn read_id(&mut self) -> Result<IdText<'m>, CdrError> {
        let is_elsewhere = self.clone().read_u32()? == INDIRECTION;
        Ok(IdText { octets: self.read_repository_id()?, is_indirection: is_elsewhere })
    }

    fn read_id_list(&mut self, form: u32) -> Result<Vec<IdText<'m>>, CdrError> {
        let mut first = self.clone();
        let is_elsewhere = first.read_u32()? == INDIRECTION;
        let ids = self.read_value_type(form)?;
        if is_elsewhere {
            return Ok(ids.as_slice().iter().map(|octets| IdText { octets, is_indirection: is_elsewhere }).collect());
        }
        ids.as_slice().iter().map(|_| first.read_id()).collect()
    }

    fn copy_chunk(&self, at: usize, chunk: &[u8], e: &mut Encoder<'_>) -> Result<(), CdrError> {
        let to = e.position();
        if !is_aligned_as(to, at) {
            return Err(CdrError::CustomValueNotConvertible);
        }
        let mut copy = Cow::Borrowed(chunk);
        let first = at.wrapping_neg() & 3;
        let words = || chunk.get(first..).unwrap_or_default().chunks_exact(4);
        for (index, (word, offset)) in words().zip(words().skip(1)).enumerate() {
            let offset = self.endian().i32_of(offset);
            if word != INDIRECTION.to_ne_bytes() || offset >= 0 {
                continue;
            }
            let place = first + index * 4 + 4;
            let target = (at + place).checked_sub(offset.unsigned_abs() as usize);
            let space = self.usable_value_read_state().ok_or(CdrError::UnsupportedForm)?;
            let Some(IndirectionTarget::Value(number)) =
                target.and_then(|target| space.find_target(self.address(target)))
            else {
                continue;
            };
            let there = *e.values().positions.get(&self.identity(number)).ok_or(CdrError::CustomValueNotConvertible)?;
            let back =
                i32::try_from(to.wrapping_add(place).wrapping_sub(there)).map_err(|_| CdrError::LengthOverflow)?;
            if let Some(octets) = copy.to_mut().get_mut(place..place + 4) {
                octets.copy_from_slice(&e.endian().octets_of(-back));
            }
        }
        e.write_bytes(&copy);
        Ok(())
    }
}

impl IdText<'_> {
    fn text(&self) -> String {
        self.octets.iter().map(|octet| char::from(*octet)).collect()
    }

    fn size(&self, e: &mut Encoder<'_>) -> usize {
        if self.is_indirection && e.values().ids.contains_key(&*self.text()) { 8 } else { 5 + self.octets.len() }
    }

    /// Writes the id as text if the original was text. If the original was an indirection, writes
    /// an indirection, or text if the id is not in this message yet.
    fn write(self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
        let text = self.text();
        if self.is_indirection {
            return e.write_repository_id(Cow::Owned(text));
        }
        e.align(4);
        let at = e.position();
        e.write_latin1_str(&text)?;
        e.values().ids.entry(Cow::Owned(text)).or_insert(at);
        Ok(())
    }
}

impl Endian {
    fn i32_of(self, octets: &[u8]) -> i32 {
        let octets: [u8; 4] = octets.try_into().unwrap_or_default();
        if self == Endian::Big { i32::from_be_bytes(octets) } else { i32::from_le_bytes(octets) }
    }

    fn octets_of(self, number: i32) -> [u8; 4] {
        if self == Endian::Big { number.to_be_bytes() } else { number.to_le_bytes() }
    }
}
